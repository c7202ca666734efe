import hashlib
import json
import urllib.error
import urllib.request

import pytest

from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.bundle import APP_ID, Bundle
from multicentre_sites.deployment.bundle_server import BundleServer
from multicentre_sites.deployment.release_key import ReleaseKey
from support.ports import free_ports
from support.waiting import GENEROUS_S

KEY = ReleaseKey.generate()
OLD, NEW = (
    Bundle(version, content, (KEY.sign(content, 1_800_000_000),))
    for version, content in [("0.9.0", b"old"), ("0.10.0", b"new")]
)


@pytest.fixture
def port():
    (port,) = free_ports(1)
    server = BundleServer(port, lambda: {one.version: one for one in (OLD, NEW)})
    yield port
    server.close()


def ask(port, question, route="/v1/hub/fetch-fab"):
    body = question if isinstance(question, bytes) else json.dumps(question).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{route}", body)
    try:
        with urllib.request.urlopen(request, timeout=GENEROUS_S) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.mark.parametrize(("version", "expected"), [("0.9.0", OLD), ("0.10.0", NEW), (None, NEW)])
def test_bundle_is_found_with_its_signatures(port, version, expected):
    status, told = ask(port, {"app_id": APP_ID, "app_version": version, "flwr_version": "1.41.0"})
    assert (status, told["verifications"]) == (200, [one.as_flower() for one in expected.signatures])
    with urllib.request.urlopen(told["fab_url"], timeout=GENEROUS_S) as response:
        assert hashlib.sha256(response.read()).hexdigest() == expected.sha256


@pytest.mark.parametrize(
    "question",
    [{"app_id": "@multicentre/other"}, {"app_id": APP_ID, "app_version": "1.0.0"}, {}, [], b"", b"{", b"x" * 70_000],
)
def test_what_is_not_there_is_not_found(port, question):
    assert ask(port, question)[0] == 404


def test_no_other_route_answers(port):
    assert ask(port, {"app_id": APP_ID}, "/v1/hub/fetch-zip")[0] == 404
    for route in ("/", "/v1/bundles/../../etc/passwd", "/v1/bundles/" + "0" * 64 + ".fab"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{route}", timeout=GENEROUS_S)
        caught.value.close()
        assert caught.value.code == 404


def test_taken_port_is_told(port):
    with pytest.raises(ConfigurationError, match="cannot listen"):
        BundleServer(port, dict)
