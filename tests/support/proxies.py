"""The installed proxy, for tests of a coordinator."""

import pytest

from multicentre_sites.deployment.coordinator_folder import Consortium
from multicentre_sites.deployment.proxy import find_nginx

NGINX = find_nginx()
PROXY = "nginx" if NGINX else "none"
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


def address_of(consortium: Consortium, proxy: str = PROXY) -> str:
    """Return the address that sites on this machine connect to."""
    return consortium.superlink_address if proxy == "none" else consortium.address
