"""README.md of a coordinator's folder, for its administrator."""

from __future__ import annotations

FIRST_FREE_PORT = 1024  # lower ports require a capability on Unix

_README = """\
# The coordinator at {host}

| file or folder | what it is | who may have it |
|---|---|---|
| `coordinator.toml` | host, port, certificates, loopback ports | administrator |
| `pki/`, `secrets/` | keys: of the authority, of TLS, of releases, of the SuperExec | nobody else, ever |
| `public/` | `ca.crt`, `release.pub`, `trusted-entities.yaml`, `roster.toml`, `bundle.toml` | every site |
| `register.json` | the sites: names, public keys, numbers in Flower | administrator |
| `analysts.json` | the analysts who are admitted: names and public keys | administrator |
| `bundles/` | the signed bundle; it contains no code | anybody |
| `proxy/` | configurations of nginx, written again at every start | administrator |
| `flower/`, `state/` | Flower's private home, its database, logs | administrator |

## First steps

    multicentre coordinator sign-app --folder .
    multicentre coordinator up --folder .                  # starts nginx on {listen}
    multicentre coordinator up --folder . --proxy external # behind a proxy that you run, with proxy/site.conf
    multicentre coordinator up --folder . --proxy none     # a trial with sites on this machine alone; read its warning
    multicentre coordinator add-site lyon.site.toml --folder .
    multicentre coordinator sites --folder .
    multicentre coordinator remove-site lyon --folder .    # its keys are never taken again
    multicentre coordinator admit-analyst ada.analyst.toml --folder .   # and remove-analyst ada, analysts

Send `public/` to the sites, and compare fingerprints over another channel, such as the telephone:

| what | here | at the site |
|---|---|---|
| each site's card | `coordinator add-site`, `sites` | `site keygen`, `site check` (line `keys`) |
| authority, `ca.crt` | `study init`, `sign-app`, `add-site`, `roster` | `site check` (line `authority`) |
| release key, `release.pub` | the same | `site approve` |
| bundle, `bundle.toml` | the same, from `sign-app` on | `site approve` |
| roster, `roster.toml` | the same, from the first `add-site` on | `site approve` |

After each `add-site` and `remove-site`, send the new `public/roster.toml`, and compare its fingerprint again.

## What must hold

- Sites reach {host}:{port}, by TLS, outbound from the site. Nothing else of this machine needs to be reachable.
- The SuperLink listens on 127.0.0.1 alone. Never publish its port: only the routes in `proxy/site.conf` ask a caller
  who it is. Whoever has an account on this machine reaches the others: give accounts to administrators alone, or reject
  the others' packets to the ports of [loopback] (docs/deployment.md, Analysts, has the rule).
- `pki/`, `secrets/`, `state/` and `flower/` belong to the account of the service, mode 700, keys and database 600; the
  service does not start otherwise. Analysts have separate accounts and use the socket of [analysts].
- `multicentre coordinator up` asks the public address, at the start and every five minutes, for routes that must not
  answer, and stops everything when one does.
- With the authority of this consortium the certificate is renewed at the start when fewer than 60 days are left. You
  must replace a certificate of your own in `pki/`.
- Clocks of coordinator and sites may differ by at most five seconds.
- Copy this folder to a safe place after every change of the register.

## As a service

    [Unit]
    Description=multicentre coordinator
    After=network-online.target

    [Service]
    User=multicentre
    ExecStart=/opt/multicentre/bin/multicentre coordinator up --folder /srv/consortium
    Restart=on-failure
    RestartSec=15
    TimeoutStopSec=20
    RuntimeDirectory=multicentre
    RuntimeDirectoryMode=0755
    UMask=0077
    NoNewPrivileges=yes
{rights}    ProtectSystem=strict
    ReadWritePaths=/srv/consortium

    [Install]
    WantedBy=multi-user.target

The account `multicentre` owns this folder and nobody logs in to it. For analysts, `coordinator.toml` names a socket in
the runtime directory:

    [analysts]
    socket = "/run/multicentre/analysts"
"""

_LOW_PORT_RIGHTS = """\
    AmbientCapabilities=CAP_NET_BIND_SERVICE
    CapabilityBoundingSet=CAP_NET_BIND_SERVICE
"""


def coordinator_readme(host: str, port: int, listen: str) -> str:
    """Return the content of README.md.

    Parameters
    ----------
    host : str
    port : int
        Public address, to which sites connect.
    listen : str
        Address and port of the proxy, ``address:port``; a port below 1024 requires a capability.
    """
    rights = _LOW_PORT_RIGHTS if int(listen.rpartition(":")[2]) < FIRST_FREE_PORT else ""
    return _README.format(host=host, port=port, listen=listen, rights=rights)
