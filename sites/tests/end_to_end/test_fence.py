"""An outsider before a coordinator that is up: nothing answers but what asks for a site's key."""

import http.client
import json
import ssl

import pytest

from multicentre_sites.deployment.connectivity import FORBIDDEN_ROUTES
from multicentre_sites.deployment.flower_commands import Command, flower_settings, program
from multicentre_sites.deployment.proxy import FLEET_ROUTES
from support.coordinators import call, finished, make_consortium, make_key, running
from support.proxies import needs_nginx
from support.waiting import GENEROUS_S

pytest.importorskip("flwr", reason="flwr is not installed")
pytestmark = [pytest.mark.slow, needs_nginx]


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    """A coordinator that is up."""
    consortium = make_consortium(tmp_path_factory.mktemp("consortium") / "coordinator")
    with running(consortium):
        yield consortium


def ask_public(consortium, method, route):
    context = ssl.create_default_context(cafile=consortium.public / "ca.crt")
    connection = http.client.HTTPSConnection("127.0.0.1", consortium.settings.port, timeout=GENEROUS_S, context=context)
    try:
        headers = {"Content-Type": "application/protobuf"}
        connection.request(method, route, body=b"" if method == "POST" else None, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_outsider_reaches_no_route_but_those_that_ask_for_a_key(consortium):
    from flwr.supercore.routers.runtime import responses_router as responses
    from flwr.supercore.routers.runtime import router as runtime
    from flwr.superlink.routers.control import router as control
    from flwr.superlink.routers.fleet.router import router as fleet

    routers = [control, fleet, runtime, responses]
    routes = {route.path for router in routers for route in router.routes}
    assert len(routes) > 60
    answers = {route: ask_public(consortium, "POST", route) for route in routes}
    answers |= {route: ask_public(consortium, method, route) for method, route in FORBIDDEN_ROUTES}
    passed = {f"/v1/fleet/{route}" for route in FLEET_ROUTES}
    assert {route for route, status in answers.items() if status not in (403, 404)} == passed
    assert {answers[route] for route in passed} == {401}


def test_outsider_with_the_authority_registers_no_site_and_lists_no_run(consortium, tmp_path):
    (tmp_path / "config.toml").write_text(
        f'[superlink.out]\naddress = "{consortium.address}"\nroot-certificates = "{consortium.public / "ca.crt"}"\n'
    )
    (tmp_path / "mine.pub").write_text(make_key())
    for arguments in (["supernode", "register", str(tmp_path / "mine.pub"), "out"], ["list", "out"]):
        command = Command((program("flwr"), *arguments, "--format", "json"), flower_settings(tmp_path))
        ended = finished(command)
        assert json.loads(ended.stdout)["success"] is False
        assert "404" in ended.stdout
    listed = call("coordinator", "sites", "--folder", consortium.folder, "--json")
    assert json.loads(listed.stdout) == []
