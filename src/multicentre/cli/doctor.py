"""``multicentre doctor``: checks of the installation."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from multicentre.cli.console import AsJson, align, handle_errors, show, show_json

# Exit status of errors in configuration or data (docs/command-line.md): the installation cannot be used.
UNFIT = 3


@dataclass(frozen=True)
class Check:
    """Result of one check; checks with `needed` must be `ok`."""

    name: str
    ok: bool
    detail: str
    needed: bool = True


@handle_errors
def doctor(
    output: Annotated[Path, typer.Option(help="Folder for run folders.")] = Path("runs"), as_json: AsJson = False
) -> None:
    """Check the installation, the folders and the clock.

    The checks cover Python, packages, extras, companion packages, data folders, the output folder and the clock.
    """
    checks = [_python(), *_packages(), *_extras(), *_companions(), *_data_folders(), _writable(output), _clock()]
    unfit = any(check.needed and not check.ok for check in checks)
    if as_json:
        show_json({"ok": not unfit, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        rows = [[check.name, _word(check), check.detail] for check in checks]
        show(align([["check", "state", "detail"], *rows]))
    if unfit:
        raise typer.Exit(UNFIT)


def _word(check: Check) -> str:
    if check.ok:
        return "ok"
    return "MISSING" if check.needed else "absent"


def _python() -> Check:
    return Check("python", sys.version_info >= (3, 11), f"{sys.version.split()[0]} at {sys.executable}")


def _packages() -> list[Check]:
    from multicentre import __version__
    from multicentre.studies.installation import BASE, declared_packages, installed_version

    versions = {package: installed_version(package) for package in declared_packages()[BASE]}
    installed = [Check(name, version is not None, version or "not installed") for name, version in versions.items()]
    return [Check("multicentre", True, __version__), *installed]


def _extras() -> list[Check]:
    """Check every extra: present if all its packages are installed."""
    from multicentre.studies.installation import BASE, declared_packages, installed_version

    checks = []
    for extra, packages in declared_packages().items():
        if extra != BASE:
            versions = {package: installed_version(package) for package in packages}
            ok = all(versions.values())
            present = ", ".join(f"{package} {version}" for package, version in versions.items() if version)
            detail = present if ok else f'pip install "multicentre[{extra}]"'
            checks.append(Check(f"extra {extra}", ok, detail, needed=False))
    return checks


def _companions() -> list[Check]:
    """Check the distributions that the library works without, and the packages that an installed one needs."""
    from multicentre.cli.real_sites import how_to_install
    from multicentre.studies.installation import BASE, COMPANIONS, declared_packages, installed_version

    checks = []
    for companion in COMPANIONS:
        version = installed_version(companion)
        checks.append(Check(companion, version is not None, version or how_to_install(companion), needed=False))
        others = sorted(set(declared_packages(companion)[BASE]) - {"multicentre", *declared_packages()[BASE]})
        versions = {name: installed_version(name) for name in others}
        for name, version in versions.items():
            checks.append(Check(name, version is not None, version or "not installed"))
    return checks


def _data_folders() -> list[Check]:
    from multicentre.datasets.base import data_folders

    return [Check("data folder", folder.is_dir(), str(folder), needed=False) for folder in data_folders()]


def _writable(output: Path) -> Check:
    """Check that the nearest existing folder is writable; the temporary file is removed."""
    output = output.absolute()
    nearest = next(folder for folder in (output, *output.parents) if folder.is_dir())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return Check("output", True, f"{output} can be written")
    except OSError as error:
        return Check("output", False, f"{nearest} cannot be written ({error.strerror})")


def _clock() -> Check:
    """Check that the clock is not before the package's files, as ledgers record the time."""
    now = datetime.now(UTC)
    installed = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
    return Check("clock", now >= installed, f"{now:%Y-%m-%d %H:%M:%S} UTC")
