"""Process of the application: a socket on loopback, and the printed address."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from multicentre.errors import ConfigurationError

_LOOPBACK = "127.0.0.1"


def serve_folder(folder: Path, port: int, report: Callable[[str], None]) -> None:
    """Serve the pages of a folder on loopback until Ctrl-C or SIGTERM.

    Parameters
    ----------
    folder : Path
        A site's folder, a coordinator's folder, or a folder of studies and runs.
    port : int
        Port on 127.0.0.1; 0 for any free port.
    report : callable
        Receives the address.

    Raises
    ------
    ConfigurationError
        The folder cannot be served, or the port is in use.
    """
    import uvicorn

    from multicentre_sites.serve.application import make_application
    from multicentre_sites.serve.connections import MAX_CONNECTIONS, Connection
    from multicentre_sites.serve.door import Access

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_LOOPBACK, port))
            listener.listen(MAX_CONNECTIONS)  # a browser that opens the address at once waits until pages are served
        except OSError as error:
            raise ConfigurationError(
                f"the port must be free; it cannot be used ({error.strerror})",
                where=f"{_LOOPBACK}:{port}",
                hint="Name another port with --port, or 0 for any free one.",
            ) from None
        access = Access(listener.getsockname()[1])
        application = make_application(folder, access)
        settings = uvicorn.Config(
            application,
            access_log=False,  # addresses contain the token
            log_level="error",
            lifespan="off",
            http=Connection,
            ws="none",
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=2,
        )
        report(access.address)
        uvicorn.Server(settings).run(sockets=[listener])
