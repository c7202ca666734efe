"""The reverse proxy: the only thing that sites reach. It lets the fleet routes through, and nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from multicentre.deployment.commands import Command
from multicentre.deployment.consortium import Consortium
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.storage import write_atomically

FLEET_ROUTES = (
    "activate-node",
    "confirm-message-received",
    "deactivate-node",
    "get-fab",
    "get-run",
    "pull-messages",
    "pull-object",
    "push-messages",
    "push-object",
    "send-node-heartbeat",
)
LARGEST_BODY = "8m"
# A site has at most a few connections; hospitals may share an address behind one way out.
CONNECTIONS_PER_ADDRESS = 64
# Each may hold a body of LARGEST_BODY in memory before anybody is authenticated: 3 GiB at most.
CONNECTIONS = 384
# A call costs a site about 15 requests, and large letters one for each piece.
REQUESTS_PER_SECOND = 500
# More than all connections of an address, each with one request at a time: what comes too fast waits, and none fails.
REQUESTS_WAITING = 1000
# Authenticated encryption with forward secrecy alone, for clients that have no TLS 1.3.
TLS12_CIPHERS = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
)

_UPSTREAM = """\
# Before anybody is authenticated: so many connections and requests for each address, and connections in all.
limit_conn_zone $binary_remote_addr zone=multicentre_address:2m;
limit_conn_zone $server_name zone=multicentre_all:64k;
limit_req_zone $binary_remote_addr zone=multicentre_requests:2m rate={per_second}r/s;

upstream multicentre_superlink {{
    server {superlink};
    keepalive 32;
    keepalive_timeout 3s;  # below the SuperLink's own five, so that no request meets a connection that is closing
}}
"""

_SERVER = """\
server {{
    listen {listen} ssl;
    server_name {host};
    server_tokens off;

    ssl_certificate {certificate};
    ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3;  # both ends take the newer one where they can
    ssl_ciphers {ciphers};
    ssl_session_cache shared:multicentre:2m;
    ssl_session_tickets off;  # their key would outlive the secrecy of a session

    limit_conn multicentre_address {per_address};
    limit_conn multicentre_all {connections};
    limit_conn_status 429;
    limit_req zone=multicentre_requests burst={waiting};
    limit_req_status 429;
    client_header_timeout 10s;
    client_body_timeout 30s;  # between two pieces

    client_max_body_size {largest};
    client_body_buffer_size {largest};  # what sites send stays in memory
    proxy_max_temp_file_size 0;
    keepalive_timeout 75s;
    keepalive_requests 100000;

    # Only these routes are authenticated by Flower. Never widen this list: the others let anyone in.
    # register-node is not among them: the coordinator alone registers sites.
    location ~ ^/v1/fleet/(?<fleet_route>{routes})$ {{
        limit_except POST {{ deny all; }}
        proxy_pass https://multicentre_superlink/v1/fleet/$fleet_route;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host $host;
        proxy_ssl_verify on;
        proxy_ssl_verify_depth 2;
        proxy_ssl_trusted_certificate {own_ca};
        proxy_ssl_name localhost;
        proxy_ssl_server_name on;
        proxy_ssl_protocols TLSv1.2 TLSv1.3;
        proxy_read_timeout 300s;
        proxy_next_upstream off;
    }}
    location = /v1/fleet/register-node {{ return 403; }}
    location / {{ return 404; }}
}}
"""

_ALONE = """\
# nginx by itself, as an ordinary user: nginx -c {conf} -e {error_log}
daemon off;
worker_processes 1;
pid {pid};
error_log {error_log} warn;
events {{ worker_connections 2048; }}
http {{
    access_log {access_log};
    client_body_temp_path {body};
    proxy_temp_path {proxied};
    fastcgi_temp_path {fastcgi};
    uwsgi_temp_path {uwsgi};
    scgi_temp_path {scgi};

{inner}}}
"""


def render_site(consortium: Consortium) -> str:
    """Return what an administrator's own nginx includes within ``http``.

    Raises
    ------
    ConfigurationError
        A path holds a character that nginx would read as its own.
    """
    settings = consortium.settings
    values = {
        "superlink": consortium.superlink_address,
        "listen": settings.listen,
        "host": settings.host,
        "certificate": _quoted(settings.tls.certificate),
        "key": _quoted(settings.tls.key),
        "own_ca": _quoted(consortium.own_ca),
        "largest": LARGEST_BODY,
        "routes": "|".join(FLEET_ROUTES),
        "per_second": REQUESTS_PER_SECOND,
        "waiting": REQUESTS_WAITING,
        "per_address": CONNECTIONS_PER_ADDRESS,
        "connections": CONNECTIONS,
        "ciphers": ":".join(TLS12_CIPHERS),
    }
    return _UPSTREAM.format(**values) + "\n" + _SERVER.format(**values)


def render_alone(consortium: Consortium) -> str:
    """Return a whole configuration for an nginx that runs as an ordinary user beside the coordinator."""
    inner = "".join(f"    {line}".rstrip() + "\n" for line in render_site(consortium).splitlines())
    state, logs = consortium.state, consortium.logs
    files = {
        "conf": alone_file(consortium),
        "pid": state / "nginx.pid",
        "error_log": logs / "nginx.error.log",
        "access_log": logs / "nginx.access.log",
        "body": state / "nginx" / "body",
        "proxied": state / "nginx" / "proxied",
        "fastcgi": state / "nginx" / "fastcgi",
        "uwsgi": state / "nginx" / "uwsgi",
        "scgi": state / "nginx" / "scgi",
    }
    return _ALONE.format(inner=inner, **{name: _quoted(path) for name, path in files.items()})


def alone_file(consortium: Consortium) -> Path:
    """Return where the whole configuration is written."""
    return consortium.proxy / "nginx.conf"


def write_proxy(consortium: Consortium) -> None:
    """Write both configurations into the folder ``proxy``."""
    (consortium.state / "nginx").mkdir(parents=True, exist_ok=True)  # nginx makes the folders in it, and no parents
    write_atomically(consortium.proxy / "site.conf", render_site(consortium).encode())
    write_atomically(alone_file(consortium), render_alone(consortium).encode())


def find_nginx() -> str | None:
    """Return the path of the installed nginx, None without one; an ordinary user's PATH often lacks its folder."""
    folders = [os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"]
    return shutil.which("nginx", path=os.pathsep.join(folders))


def nginx_command(consortium: Consortium) -> Command:
    """Return how nginx is started by itself.

    Raises
    ------
    ConfigurationError
        nginx is not installed.
    """
    nginx = find_nginx()
    if nginx is None:
        raise ConfigurationError(
            "nginx is not installed here",
            where="coordinator up --proxy nginx",
            hint="Install it; or use proxy/site.conf in your own proxy, with --proxy external; or, for a trial with "
            "all sites on this machine, --proxy none.",
        )
    conf, log = alone_file(consortium), consortium.logs / "nginx.error.log"
    return Command((nginx, "-c", str(conf), "-e", str(log)), {})


def _quoted(path: Path) -> str:
    text = str(path)
    if not text.isprintable() or set(text) & set("\"'$;{}\\"):
        raise ConfigurationError(
            "nginx cannot name this path", where=text, hint="Use a folder without quotes, $, ;, braces and backslashes."
        )
    return f'"{text}"'
