"""Bundle that Flower sends to every site: it names code that the site has installed, and contains none."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from multicentre.core.parsing import load_json
from multicentre.core.protocol import WIRE_PROTOCOL
from multicentre.core.storage import write_atomically
from multicentre.errors import ConfigurationError, IntegrityError
from multicentre_sites.deployment.coordinator_folder import Consortium
from multicentre_sites.deployment.flower_commands import Command
from multicentre_sites.deployment.release_key import ReleaseKey, Signature

PUBLISHER, APP = "multicentre", "relay"

APP_ID = f"@{PUBLISHER}/{APP}"

VERSION = f"{WIRE_PROTOCOL}.0.0"  # of the protocol, not of the release: an upgrade needs no new approval of a bundle

CONTENTS = frozenset({"pyproject.toml", "LICENSE", ".info/CONTENT"})

SUFFIX = ".fab"

_TIMEOUT_S = 120.0  # flwr takes seconds to import on an idle machine, and longer on a busy one

_PROJECT = """\
[project]
name = "{app}"
version = "{version}"
description = "Names the parts of the installed package multicentre; contains no code."
license = {{ file = "LICENSE" }}
dependencies = ["flwr>=1.41,<1.43"]

[tool.flwr.app]
publisher = "{publisher}"
fab-format-version = 1
flwr-version-target = "1.41.0"

[tool.flwr.app.components]
serverapp = "multicentre_sites.flower.apps:server_app"
clientapp = "multicentre_sites.flower.apps:client_app"

[tool.flwr.app.config]
bridge = ""
"""

_LICENCE = """\
multicentre is licensed under the Apache License, Version 2.0.
You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0
"""


@dataclass(frozen=True)
class Bundle:
    """A bundle with its signatures.

    Parameters
    ----------
    version : str
        Three numbers.
    content : bytes
    signatures : tuple of Signature
    """

    version: str
    content: bytes
    signatures: tuple[Signature, ...] = ()

    @property
    def sha256(self) -> str:
        """SHA-256 that a site approves, 64 hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def reference(self) -> str:
        """Reference of the bundle for ``flwr run``."""
        return f"{APP_ID}=={self.version}"


def build_command(consortium: Consortium, app: Path) -> Command:
    """Return the command that builds a bundle."""
    return consortium.command("flwr", "build", "--app", str(app))


def build(consortium: Consortium, report: Callable[[str], None]) -> Bundle:
    """Build the bundle of this wire protocol; the same protocol gives the same bytes.

    Raises
    ------
    ConfigurationError
        Flower does not build it.
    IntegrityError
        It contains other files than the expected ones.
    """
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder) / APP
        app.mkdir()
        page = _PROJECT.format(app=APP, version=VERSION, publisher=PUBLISHER)
        (app / "pyproject.toml").write_text(page, encoding="utf-8")
        (app / "LICENSE").write_text(_LICENCE, encoding="utf-8")
        command = build_command(consortium, app)
        report(command.as_typed())
        process = subprocess.run(
            command.arguments,
            cwd=folder,
            env=command.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        built = sorted(Path(folder).glob(f"*{SUFFIX}"))
        if process.returncode != 0 or len(built) != 1:
            output = " ".join((process.stderr or process.stdout).split())[-300:]
            raise ConfigurationError(f"Flower did not build the bundle: {output}", where="flwr build")
        return Bundle(VERSION, validate_content(built[0].read_bytes()))


def validate_content(content: bytes) -> bytes:
    """Return a bundle's bytes if it contains only configuration.

    Raises
    ------
    IntegrityError
        It contains a file that could be code, or is not a bundle.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = set(archive.namelist())
    except zipfile.BadZipFile:
        names = set()
    if names != CONTENTS:
        raise IntegrityError(
            f"a bundle must contain only {', '.join(sorted(CONTENTS))}; got others",
            where=", ".join(sorted(names - CONTENTS)) or "the bundle",
            hint="Build it with multicentre coordinator sign-app --folder FOLDER.",
        )
    return content


def sign_app(consortium: Consortium, report: Callable[[str], None]) -> Bundle:
    """Build and sign the bundle of this wire protocol, and write the files with which sites check it.

    A signed bundle with the same bytes keeps its signature.
    """
    key = ReleaseKey.read(consortium.release_key)
    built = build(consortium, report)
    earlier = read_bundles(consortium).get(built.version)
    if (
        earlier is not None
        and earlier.content == built.content
        and key.vouches_for(earlier.content, earlier.signatures)
    ):
        signed = earlier
    else:
        signed = Bundle(built.version, built.content, (key.sign(built.content, int(time.time())),))
        write_bundle(signed, consortium.bundles)
    publish_bundle(consortium, key, signed)
    return signed


def publish_bundle(consortium: Consortium, key: ReleaseKey, bundle: Bundle) -> None:
    """Write the file with which sites compare a bundle."""
    page = (
        "# The bundle that this coordinator runs. Approve it at the site by its SHA-256.\n"
        f'app = "{APP_ID}"\nversion = "{bundle.version}"\nsha256 = "{bundle.sha256}"\nsigned_by = "{key.key_id}"\n'
    )
    write_atomically(consortium.public / "bundle.toml", page.encode())


def write_bundle(bundle: Bundle, folder: Path) -> None:
    """Write a bundle, then its signatures, so that they are never next to the bytes of another bundle."""
    path = folder / f"{APP}-{bundle.version}{SUFFIX}"
    signatures = path.with_suffix(".json")
    signatures.unlink(missing_ok=True)
    write_atomically(path, bundle.content)
    content = {"sha256": bundle.sha256, "signatures": [one.as_flower() for one in bundle.signatures]}
    write_atomically(signatures, json.dumps(content, indent=2).encode())


def read_bundles(consortium: Consortium) -> dict[str, Bundle]:
    """Return the signed bundles by version, without those whose bytes were changed."""
    bundles = {}
    for path in sorted(consortium.bundles.glob(f"{APP}-*{SUFFIX}")):
        version = path.name.removeprefix(f"{APP}-").removesuffix(SUFFIX)
        try:
            content = load_json(path.with_suffix(".json").read_text(encoding="utf-8"))
            signatures = tuple(Signature.from_flower(one) for one in content["signatures"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        bundle = Bundle(version, path.read_bytes(), signatures)
        if bundle.sha256 == content["sha256"]:
            bundles[version] = bundle
    return bundles
