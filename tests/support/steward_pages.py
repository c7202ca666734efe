"""A site's folder and a client of the pages that ``multicentre serve`` shows of a folder."""

from pathlib import Path

from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.serve.application import make_application
from multicentre_sites.serve.door import Access
from support.asgi_client import Client

PORT = 8123


def make_lyon(root: Path) -> Path:
    """Make the folder of a site whose coordinator does not answer."""
    make_site("lyon", root / "lyon", "127.0.0.1:1")
    return root / "lyon"


def stranger_of(folder: Path) -> Client:
    """Return a client without a session."""
    access = Access(PORT)
    return Client(make_application(folder, access), access)


def client_of(folder: Path) -> Client:
    """Return a client that opened the printed address."""
    client = stranger_of(folder)
    assert client.enter().status == 303
    return client
