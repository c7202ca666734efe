"""What the administrator of a coordinator finds in its folder."""

README = """\
# The coordinator at {host}

| file or folder | what it is | who may have it |
|---|---|---|
| `coordinator.toml` | host, port, certificates, loopback ports | administrator |
| `pki/`, `secrets/` | keys: of the authority, of TLS, of releases, of the SuperExec | nobody else, ever |
| `public/` | `ca.crt`, `release.pub`, `trusted-entities.yaml`, `roster.toml`, `bundle.toml` | every site |
| `register.json` | the sites: names, public keys, numbers in Flower | administrator |
| `bundles/` | the signed bundle; it contains no code | anybody |
| `proxy/` | configurations of nginx, written anew at every start | administrator |
| `flower/`, `state/` | Flower's private home, its database, logs | administrator |

## First steps

    multicentre coordinator sign-app --folder .
    multicentre coordinator up --folder .                  # with an nginx of its own on {listen}
    multicentre coordinator up --folder . --proxy external # behind a proxy that you run, with proxy/site.conf
    multicentre coordinator add-site lyon.site.toml --folder .
    multicentre coordinator sites --folder .

Send `public/` to the sites by any way; compare the fingerprint of every card, and the SHA-256 of the bundle, by
another, such as the telephone. After each `add-site`, send the new `public/roster.toml`.

## What must hold

- Sites reach {host}:{port}, by TLS, outbound from the site. Nothing else of this machine needs to be reachable.
- The SuperLink listens on 127.0.0.1 alone. Never publish its port: only the routes in `proxy/site.conf` ask a caller
  who it is. Whoever has an account on this machine reaches the others, so give accounts to administrators alone.
- `multicentre coordinator up` asks the public address, at the start and every five minutes, for routes that must not
  answer, and stops everything when one does.
- With the authority of its own the certificate is renewed at the start when fewer than 60 days are left. One that you
  gave, you replace in `pki/`.
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
    UMask=0077
    NoNewPrivileges=yes
    ProtectSystem=strict
    ReadWritePaths=/srv/consortium

    [Install]
    WantedBy=multi-user.target
"""
