import re
import shutil
import subprocess

import pytest

from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.new_coordinator_folder import ConsortiumOptions, create_consortium
from multicentre_sites.deployment.proxy import FLEET_ROUTES, nginx_command, render_site, render_standalone
from support.coordinators import make_consortium
from support.proxies import needs_nginx
from support.waiting import GENEROUS_S


def test_only_listed_routes_lead_to_the_superlink(tmp_path):
    page = render_site(make_consortium(tmp_path / "new"))
    assert page.count("proxy_pass ") == 1
    (pattern,) = re.findall(r"location ~ (\S+) \{", page)
    matcher = re.compile(pattern.replace("?<", "?P<"))
    assert all(matcher.search(f"/v1/fleet/{route}") for route in FLEET_ROUTES)
    for route in ("register-node", "unregister-node", "pull-messages/", "x/pull-messages", "pull-messagesx"):
        assert not matcher.search(f"/v1/fleet/{route}")
    assert not matcher.search("/v1/control/list-nodes")
    assert "proxy_ssl_verify on;" in page


def test_routes_are_those_of_flower_but_registration():
    pytest.importorskip("flwr")
    from flwr.superlink.routers.fleet.router import router

    known = {route.path.removeprefix("/v1/fleet/") for route in router.routes}
    assert known - set(FLEET_ROUTES) == {"register-node", "unregister-node"}
    assert set(FLEET_ROUTES) <= known


@needs_nginx
@pytest.mark.parametrize("name", ["new", "new folder", "néw"])
def test_nginx_takes_the_configuration(tmp_path, name):
    consortium = make_consortium(tmp_path / name)
    command = nginx_command(consortium)
    ended = subprocess.run([*command.arguments, "-t"], capture_output=True, text=True, timeout=GENEROUS_S, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "warn" not in ended.stderr


@pytest.mark.parametrize("sign", ['"', "$", ";", "{", "\\"])
def test_path_that_nginx_would_misread_is_refused_before_keys_are_made(tmp_path, sign):
    with pytest.raises(ConfigurationError, match="a path for nginx must be"):
        make_consortium(tmp_path / f"a{sign}b")
    assert list(tmp_path.iterdir()) == []


def test_host_and_listening_are_the_settings(tmp_path):
    consortium = create_consortium(tmp_path / "new", ConsortiumOptions("fl.example.org", 8443, "10.0.0.1:9443"))
    page = render_standalone(consortium)
    assert "listen 10.0.0.1:9443 ssl;" in page
    assert "server_name fl.example.org;" in page


def test_absent_nginx_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ConfigurationError, match="nginx must be installed"):
        nginx_command(make_consortium(tmp_path / "new"))
