"""Build the sdist and, from it, the wheel, and the same of multicentre-sites; try both in a new environment per Python.

The demo runs with the library alone. Then the wheel for real sites is installed, whose commands join the library's.
Dependencies are the newest that pip resolves, not those of the locks, since that is what a user's `pip install` takes.

    python deploy/try_wheel.py dist python3.11 python3.12 python3.13 python3.14
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from hatchling.build import build_sdist, build_wheel

ROOT = Path(__file__).resolve().parents[1]
# Files without which an installed package lacks its types, its report or its licence.
IN_WHEEL = ("multicentre/py.typed", ".dist-info/licenses/LICENSE", ".dist-info/entry_points.txt")
IN_SDIST = ("/pyproject.toml", "/LICENSE", "/README.md", "/CHANGELOG.md", "/Makefile", "/requirements/core.lock")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder for the sdist and the wheel")
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", help="interpreters; one that is absent is reported")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    wheel = build(options.folder.resolve())
    sites = build_sites(options.folder.resolve())
    results = {python: try_in_new_environment(wheel, sites, python) for python in options.pythons}
    for python, result in results.items():
        print(f"{python}: {result}")
    sys.exit(any(result.startswith("failed") for result in results.values()))


def build(folder: Path) -> Path:
    """Return the wheel, built from the unpacked sdist, so that nothing outside the sdist is needed for it."""
    os.chdir(ROOT)
    sdist = folder / build_sdist(str(folder))
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(sdist) as archive:
            # Python 3.11.0 to 3.11.3 have no filters, and need none: the archive was built here.
            archive.extractall(unpacked, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
            check_names(archive.getnames(), IN_SDIST, sdist)
        os.chdir(next(Path(unpacked).iterdir()))
        wheel = folder / build_wheel(str(folder))
    os.chdir(ROOT)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    check_names(names, IN_WHEEL, wheel)
    check_templates(names)
    print(f"{sdist.name}: {sdist.stat().st_size:,} bytes\n{wheel.name}: {wheel.stat().st_size:,} bytes")
    return wheel


def build_sites(folder: Path) -> Path:
    """Return the wheel of multicentre-sites; its sdist is next to it."""
    os.chdir(ROOT / "sites")
    sdist, wheel = folder / build_sdist(str(folder)), folder / build_wheel(str(folder))
    os.chdir(ROOT)
    with zipfile.ZipFile(wheel) as archive:
        check_templates(archive.namelist(), "sites/src/multicentre_sites")
    print(f"{sdist.name}: {sdist.stat().st_size:,} bytes\n{wheel.name}: {wheel.stat().st_size:,} bytes")
    return wheel


def check_names(names: list[str], needed: tuple[str, ...], archive: Path) -> None:
    absent = [end for end in needed if not any(name.endswith(end) for name in names)]
    if absent:
        raise SystemExit(f"{archive.name} must hold {', '.join(absent)}; it does not.")


def check_templates(names: list[str], package: str = "src/multicentre") -> None:
    """Check that every file of the package's folder that git tracks is in the wheel."""
    listed = subprocess.run(["git", "ls-files", package], cwd=ROOT, capture_output=True, text=True, check=False)
    parent = package.rpartition("/")[0] + "/"
    absent = {line.removeprefix(parent) for line in listed.stdout.splitlines() if (ROOT / line).exists()} - set(names)
    if absent:
        raise SystemExit(f"{len(absent)} files of the package are not in the wheel: {sorted(absent)[:5]}")


def try_in_new_environment(wheel: Path, sites: Path, python: str) -> str:
    """Return the result of installing the wheels and running the demo outside the repository."""
    if shutil.which(python) is None:
        return "not run: there is no such interpreter"
    with tempfile.TemporaryDirectory() as folder:
        environment = {"HOME": folder, "PATH": "/usr/bin:/bin", "MPLBACKEND": "agg"}
        bin_folder = Path(folder, "venv", "bin")
        steps = [
            [python, "-m", "venv", f"{folder}/venv"],
            [bin_folder / "pip", "install", "--quiet", "--disable-pip-version-check", wheel],
            [bin_folder / "pip", "check"],
            [bin_folder / "multicentre", "--help"],
            [bin_folder / "multicentre", "doctor"],
            [bin_folder / "multicentre", "demo"],
            [bin_folder / "pip", "install", "--quiet", "--disable-pip-version-check", sites],
            [bin_folder / "pip", "check"],
            [bin_folder / "multicentre", "site", "--help"],
            [bin_folder / "multicentre", "study", "init", "hub", "--host", "fl.example.org"],
        ]
        for step in steps:
            # pip needs the settings of this machine, such as the address of its index; the package must not.
            own = None if step[0] in (python, bin_folder / "pip") else environment
            run = subprocess.run(step, cwd=folder, env=own, capture_output=True, text=True, check=False)
            if run.returncode:
                end = "\n".join((run.stdout + run.stderr).splitlines()[-15:])
                return f"failed at `{' '.join(str(part) for part in step)}`\n{end}"
        version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        return f"installed and ran the demo on Python {version}"


if __name__ == "__main__":
    main()
