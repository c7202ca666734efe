"""A coordinator that turned hostile: what it sends under the name and version of the real bundle runs at no site."""

import hashlib
import json
import subprocess
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from multicentre.errors import IntegrityError
from multicentre_sites.deployment.bundle import APP, APP_ID, Bundle, sign_app, validate_content, write_bundle
from multicentre_sites.deployment.release_key import ReleaseKey
from support.coordinators import add_site, finished, make_card, make_consortium, running, supernode
from support.waiting import GENEROUS_S, wait_for

pytest.importorskip("flwr", reason="flwr is not installed")
pytestmark = pytest.mark.slow
NOT_VERIFIED = 7

SERVER = """
import json
import time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    while not (nodes := list(grid.get_nodes())):
        time.sleep(0.2)
    asked = [
        Message(RecordDict({{"ask": ConfigRecord({{"x": 1}})}}), dst_node_id=node.node_id, message_type="query")
        for node in nodes
    ]
    pending, codes = set(grid.push_messages(asked)), []
    while pending:
        for reply in grid.pull_messages(pending):
            pending.discard(reply.metadata.reply_to_message_id)
            codes.append(reply.error.code if reply.has_error() else 0)
        time.sleep(0.2)
    out = Path(str(context.run_config["out"]))
    out.with_suffix(".new").write_text(json.dumps(codes))
    out.with_suffix(".new").replace(out)
"""
CLIENT = """
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

Path({mark!r}).write_text("imported")
app = ClientApp()

@app.query()
def answer(message, context):
    Path({mark!r}).write_text("ran")
    return Message(RecordDict({{"answer": ConfigRecord({{"x": 2}})}}), reply_to=message)
"""
PROJECT = """
[project]
name = "{name}"
version = "{version}"
license = {{ file = "LICENSE" }}
dependencies = ["flwr>=1.41,<1.43"]
[tool.flwr.app]
publisher = "multicentre"
fab-format-version = 1
flwr-version-target = "1.41.0"
[tool.flwr.app.components]
serverapp = "intruder.server:app"
clientapp = "intruder.client:app"
[tool.flwr.app.config]
out = ""
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def consortium(place):
    """A running coordinator with one stock site, which trusts its release key."""
    made = make_consortium(place / "coordinator")
    with running(made):
        card = make_card("lyon", place / "lyon")
        added = add_site(made, card, place)
        assert added.returncode == 0, added.stderr
        with supernode(made, place / "lyon", place):
            yield made


@pytest.fixture(scope="module")
def real(consortium):
    return sign_app(consortium, print)


@pytest.fixture(scope="module")
def intruder(consortium, real, place):
    """A folder and a bundle with the name and version of the real one, and code of its own."""
    app = place / APP
    (app / "intruder").mkdir(parents=True)
    (app / "pyproject.toml").write_text(PROJECT.format(name=APP, version=real.version))
    (app / "LICENSE").write_text("none")
    (app / "intruder" / "__init__.py").write_text("")
    (app / "intruder" / "server.py").write_text(SERVER.format())
    (app / "intruder" / "client.py").write_text(CLIENT.format(mark=str(place / "PWNED")))
    command = consortium.command("flwr", "build", "--app", str(app))
    subprocess.run(command.arguments, env=command.environment(), cwd=place, check=True, timeout=GENEROUS_S)
    (built,) = place.glob("*.fab")
    return app, Bundle(real.version, built.read_bytes())


def run_app(consortium, place, app):
    """Submit a run and return the codes of the site's errors, 0 where it answered."""
    out = place / "codes.json"
    for old in (out, place / "PWNED"):
        old.unlink(missing_ok=True)
    command = consortium.command("flwr", "run", app, "consortium", "-c", f"out={json.dumps(str(out))}", "--format=json")
    ended = finished(command, cwd=place)
    assert json.loads(ended.stdout)["success"] is True, ended.stdout
    wait_for(out.exists)
    return json.loads(out.read_text())


def claims(case, consortium, real, bundle):
    """Return the hostile bundle as the hub would tell it."""
    signature = ReleaseKey.read(consortium.release_key).sign(real.content, 1_800_000_000)
    if case == "no signature":
        return bundle
    if case == "signature of the real one":
        return replace(bundle, signatures=(signature,))
    stranger = ReleaseKey(Ed25519PrivateKey.generate()).sign(bundle.content, 1_800_000_000)
    return replace(bundle, signatures=(replace(stranger, key_id=signature.key_id), stranger))


@pytest.mark.parametrize("case", ["no signature", "signature of the real one", "signature of a stranger"])
def test_bundle_of_the_same_name_and_version_runs_at_no_site(consortium, place, real, intruder, case):
    _, bundle = intruder
    write_bundle(claims(case, consortium, real, bundle), consortium.bundles)
    assert run_app(consortium, place, f"{APP_ID}=={real.version}") == [NOT_VERIFIED]
    assert not (place / "PWNED").exists()


def test_bundle_that_goes_past_the_hub_runs_at_no_site(consortium, place, intruder):
    app, _ = intruder
    assert run_app(consortium, place, str(app)) == [NOT_VERIFIED]
    assert not (place / "PWNED").exists()


def test_only_the_release_key_opens_the_site(consortium, place, real, intruder):
    """The same intruder with a right signature does run: what stops it above is the signature and nothing else."""
    _, bundle = intruder
    key = ReleaseKey.read(consortium.release_key)
    write_bundle(replace(bundle, signatures=(key.sign(bundle.content, 1_800_000_000),)), consortium.bundles)
    assert run_app(consortium, place, f"{APP_ID}=={real.version}") == [0]
    assert (place / "PWNED").read_text() == "ran"


def test_a_bundle_with_code_is_not_what_sign_app_makes(real, intruder):
    _, bundle = intruder
    assert validate_content(real.content) == real.content
    with pytest.raises(IntegrityError, match="must contain only"):
        validate_content(bundle.content)
    assert hashlib.sha256(real.content).hexdigest() == real.sha256
