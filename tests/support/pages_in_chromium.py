"""Chromium without a window, and a proxy that notes what a browser asks of the network."""

import http.server
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
# Hosts that a browser itself asks on its start.
SERVICES = ("update.googleapis.com", "clients2.google.com", "redirector.gvt1.com", "accounts.google.com")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Proxy(http.server.BaseHTTPRequestHandler):
    """Notes what a browser asks for, of any host, and has nothing."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        if not any(host in self.path for host in SERVICES):
            self.asked.append(self.path)
        self.send_error(404)

    def do_CONNECT(self) -> None:
        self.do_GET()

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def noted_requests() -> Iterator[tuple[list[str], str]]:
    """Yield a list of all that is asked of a proxy, and the proxy's address."""
    Proxy.asked = []
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Proxy.asked, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def run_chromium(folder: Path, *arguments: str, timeout: float = 120) -> str:
    """Run Chromium with an empty profile, and return its output."""
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={folder / 'profile'}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=timeout).stdout
