"""Reverse proxy between sites and the SuperLink; it forwards only the routes of authenticated sites."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from multicentre.core.storage import write_atomically
from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.coordinator_folder import Consortium
from multicentre_sites.deployment.flower_commands import Command

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
MAX_BODY = "8m"  # Flower sends messages in chunks below this size
# A site has a few connections; several hospitals may share one public address.
CONNECTIONS_PER_ADDRESS = 64
# Each can hold a body of MAX_BODY in memory before authentication: at most 3 GiB in total.
CONNECTIONS = 384
# A call costs a site about 15 HTTP requests, and a large message one per chunk.
REQUESTS_PER_SECOND = 500
# More than all connections of an address with one request each: requests that arrive too fast wait, and none fails.
REQUESTS_WAITING = 1000
# Only authenticated encryption with forward secrecy, for clients without TLS 1.3.
TLS12_CIPHERS = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
)

_UPSTREAM = """\
# Limits before authentication: connections and requests per address, and connections in total.
limit_conn_zone $binary_remote_addr zone=multicentre_address:2m;
limit_conn_zone $server_name zone=multicentre_all:64k;
limit_req_zone $binary_remote_addr zone=multicentre_requests:2m rate={per_second}r/s;

upstream multicentre_superlink {{
    server {superlink};
    keepalive 32;
    keepalive_timeout 3s;  # below the five of the SuperLink, so that no request meets a closing connection
}}
"""

_SERVER = """\
server {{
    listen {listen} ssl;
    server_name {host};
    server_tokens off;

    ssl_certificate {certificate};
    ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3;  # the newer one if both ends support it
    ssl_ciphers {ciphers};
    ssl_session_cache shared:multicentre:2m;
    ssl_session_tickets off;  # their key would outlive the session

    limit_conn multicentre_address {per_address};
    limit_conn multicentre_all {connections};
    limit_conn_status 429;
    limit_req zone=multicentre_requests burst={waiting};
    limit_req_status 429;
    client_header_timeout 10s;
    client_body_timeout 30s;  # between two pieces

    client_max_body_size {largest};
    client_body_buffer_size {largest};  # bodies stay in memory
    proxy_max_temp_file_size 0;
    keepalive_timeout 75s;
    keepalive_requests 100000;

    # Only these routes are authenticated by Flower. Never widen this list: the others are open to anyone.
    # register-node is not among them: the coordinator alone registers sites.
    location ~ ^/v1/fleet/(?<fleet_route>{routes})$ {{
        limit_except POST {{ deny all; }}
        proxy_pass https://multicentre_superlink/v1/fleet/$fleet_route;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host $host;
        proxy_ssl_verify on;
        proxy_ssl_verify_depth 2;
        proxy_ssl_trusted_certificate {superlink_ca};
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

_STANDALONE = """\
# nginx by itself, as an ordinary user: nginx -c {conf} -e {error_log}
daemon off;
worker_processes 1;
pid {pid};
error_log {error_log} warn;
events {{ worker_connections 2048; }}
http {{
    # Requests that succeed are not logged: sites ask several times per second, also while nothing runs.
    map $status $multicentre_logged {{ ~^[23] 0; default 1; }}
    access_log {access_log} combined if=$multicentre_logged;
    client_body_temp_path {body};
    proxy_temp_path {proxied};
    fastcgi_temp_path {fastcgi};
    uwsgi_temp_path {uwsgi};
    scgi_temp_path {scgi};

{inner}}}
"""


def render_site(consortium: Consortium) -> str:
    """Return the configuration that an administrator's nginx includes within ``http``.

    Raises
    ------
    ConfigurationError
        A path contains a character with a meaning to nginx.
    """
    settings = consortium.settings
    values = {
        "superlink": consortium.superlink_address,
        "listen": settings.listen,
        "host": settings.host,
        "certificate": _quote(settings.tls.certificate),
        "key": _quote(settings.tls.key),
        "superlink_ca": _quote(consortium.superlink_ca),
        "largest": MAX_BODY,
        "routes": "|".join(FLEET_ROUTES),
        "per_second": REQUESTS_PER_SECOND,
        "waiting": REQUESTS_WAITING,
        "per_address": CONNECTIONS_PER_ADDRESS,
        "connections": CONNECTIONS,
        "ciphers": ":".join(TLS12_CIPHERS),
    }
    return _UPSTREAM.format(**values) + "\n" + _SERVER.format(**values)


def render_standalone(consortium: Consortium) -> str:
    """Return a complete configuration for an nginx that runs as an ordinary user next to the coordinator."""
    inner = "".join(f"    {line}".rstrip() + "\n" for line in render_site(consortium).splitlines())
    state, logs = consortium.state, consortium.logs
    files = {
        "conf": standalone_file(consortium),
        "pid": state / "nginx.pid",
        "error_log": logs / "nginx.error.log",
        "access_log": logs / "nginx.access.log",
        "body": state / "nginx" / "body",
        "proxied": state / "nginx" / "proxied",
        "fastcgi": state / "nginx" / "fastcgi",
        "uwsgi": state / "nginx" / "uwsgi",
        "scgi": state / "nginx" / "scgi",
    }
    return _STANDALONE.format(inner=inner, **{name: _quote(path) for name, path in files.items()})


def standalone_file(consortium: Consortium) -> Path:
    """Return the path of the complete configuration."""
    return consortium.proxy / "nginx.conf"


def write_proxy(consortium: Consortium) -> None:
    """Write both configurations into the folder ``proxy``."""
    (consortium.state / "nginx").mkdir(
        parents=True, exist_ok=True
    )  # nginx creates the folders in it, but not their parents
    write_atomically(consortium.proxy / "site.conf", render_site(consortium).encode())
    write_atomically(standalone_file(consortium), render_standalone(consortium).encode())


def find_nginx() -> str | None:
    """Return the path of the installed nginx, also outside PATH; None if there is none."""
    folders = [os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"]
    return shutil.which("nginx", path=os.pathsep.join(folders))


def nginx_command(consortium: Consortium) -> Command:
    """Return the command that starts nginx with the complete configuration.

    Raises
    ------
    ConfigurationError
        nginx is not installed.
    """
    nginx = find_nginx()
    if nginx is None:
        raise ConfigurationError(
            "nginx must be installed; it was not found",
            where="coordinator up --proxy nginx",
            hint="Install it; or use proxy/site.conf in your own proxy, with --proxy external; or, for a trial with "
            "all sites on this machine, --proxy none.",
        )
    conf, log = standalone_file(consortium), consortium.logs / "nginx.error.log"
    return Command((nginx, "-c", str(conf), "-e", str(log)), {})


def _quote(path: Path) -> str:
    text = str(path)
    if not text.isprintable() or set(text) & set("\"'$;{}\\"):
        raise ConfigurationError(
            "a path for nginx must be without quotes, $, ;, braces and backslashes; got another",
            where=text,
            hint="Use another folder.",
        )
    return f'"{text}"'
