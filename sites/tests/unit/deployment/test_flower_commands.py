import os
import shlex
import subprocess
import sys

import pytest

from multicentre.errors import ConfigurationError, MissingExtra
from multicentre_sites.deployment import flower_commands
from multicentre_sites.deployment.flower_commands import Command, ask, flower_settings


def test_shown_line_is_what_a_shell_would_run(tmp_path):
    code = "import os, sys; print(os.environ['FLWR_HOME'], os.environ['PATH'], sys.argv[1])"
    command = Command((sys.executable, "-c", code, "a 'b' $c"), flower_settings(tmp_path / "my home"))
    direct, shell = (
        subprocess.run(what, shell=is_shell, env=env, capture_output=True, text=True, check=True).stdout
        for what, is_shell, env in [
            (command.arguments, False, command.environment()),
            (command.as_typed(), True, dict(os.environ)),
        ]
    )
    assert direct == shell
    assert direct.split()[-3:] == ["a", "'b'", "$c"]


def test_flower_is_told_to_keep_quiet_and_install_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.setenv("FLWR_INTERNAL_GRPC_CONTROL_API", "1")
    environment = Command(("x",), flower_settings(tmp_path)).environment()
    assert {key: value for key, value in environment.items() if key.startswith("FLWR_")} == {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_HOME": str(tmp_path),
    }
    assert environment["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)  # noqa: PTH120


def test_proxy_is_kept_for_the_way_out_and_left_out_for_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.hospital:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", "intranet,localhost")
    command = Command(("x",), flower_settings(tmp_path))
    environment = command.environment()
    assert environment["HTTPS_PROXY"] == "http://proxy.hospital:3128"
    assert environment["NO_PROXY"] == environment["no_proxy"] == "intranet,localhost,127.0.0.1"
    assert "NO_PROXY=intranet,localhost,127.0.0.1" in command.as_typed()


def test_without_a_proxy_nothing_is_said_of_one(tmp_path, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert "NO_PROXY" not in flower_settings(tmp_path)


@pytest.mark.parametrize(
    ("printed", "answer"),
    [('{"success": true}', {"success": True}), ('Note\n{\n "success": false\n}\n', {"success": False})],
)
def test_answer_is_the_json_that_ends_what_is_printed(printed, answer):
    assert ask(Command((sys.executable, "-c", f"print({printed!r})"), {})) == answer


def test_no_answer_says_what_was_printed_last():
    code = "import sys; print('one\\ntwo', file=sys.stderr); sys.exit(2)"
    with pytest.raises(ConfigurationError, match="status 2 and the message: two"):
        ask(Command((sys.executable, "-c", code), {}))


def test_late_answer_is_not_waited_for():
    with pytest.raises(ConfigurationError, match=r"no answer within 0\.2 s"):
        ask(Command((sys.executable, "-c", "import time; time.sleep(3600)"), {}), patience_s=0.2)


def test_flower_that_is_not_installed_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(flower_commands.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(MissingExtra, match="multicentre-sites"):
        flower_commands.program("flower-superlink")


def test_line_is_quoted():
    typed = Command(("flwr", "run", "a b"), {"X": "1 2"}).as_typed()
    assert shlex.split(typed) == ["X=1 2", "flwr", "run", "a b"]
