"""The library works alone: no authority, proxy or web server in its wheel, and no need for the other distributions."""

import email
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
ABSENT = ("multicentre_sites", "multicentre_papers", "flwr", "httpx", "starlette", "uvicorn")
# What the distribution for real sites needs in addition to the library.
OF_SITES = {"flwr", "httpx", "starlette", "uvicorn"}
# An interpreter in which the other distributions and what they need cannot be imported, and register nothing.
ALONE = f"""
import importlib.metadata, sys
sys.modules |= dict.fromkeys({ABSENT})
entry_points = importlib.metadata.entry_points
def of_the_library(**chosen):
    return importlib.metadata.EntryPoints(one for one in entry_points(**chosen) if one.dist.name == "multicentre")
importlib.metadata.entry_points = of_the_library
"""
FIT = """
import numpy as np, pandas as pd
import multicentre as mc
rng = np.random.default_rng(0)
sites = {}
for name in ("lyon", "porto", "turin"):
    frame = pd.DataFrame({"y": rng.normal(size=40), "x": rng.normal(size=40)})
    sites[name] = mc.data.TableData.from_frame(frame, outcome="y", kind="number", columns=["x"])
print(mc.regression.FedLinearRegression().fit(mc.Federation.in_process(sites)).n_iter_)
"""
COMMAND = "sys.argv[0] = 'multicentre'; from multicentre.cli import main; main()"


def alone(code, *arguments):
    program = [sys.executable, "-c", ALONE + code, *map(str, arguments)]
    return subprocess.run(program, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Wheels of the library and of the distribution for real sites, by name."""
    folder = tmp_path_factory.mktemp("wheels")
    built = {}
    for name, root in (("multicentre", ROOT), ("multicentre-sites", ROOT / "sites")):
        code = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
        run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
        built[name] = folder / run.stdout.split()[-1]
    return built


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        described = email.message_from_bytes(archive.read(metadata))
        points = archive.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    return names, [Requirement(one) for one in described.get_all("Requires-Dist")], points


@pytest.mark.slow
def test_the_wheel_of_the_library_holds_nothing_of_real_sites(wheels):
    names, needs, points = contents(wheels["multicentre"])
    assert {name.split("/")[0] for name in names} == {"multicentre", names[-1].split("/")[0]}
    assert [name for name in names if "flower" in name and not name.startswith("multicentre/docs/")] == []
    assert [name for name in names if name.startswith(("multicentre/serve", "multicentre/deployment"))] == []
    always = {one.name for one in needs if one.marker is None or "extra" not in str(one.marker)}
    assert always.isdisjoint(OF_SITES | {"multicentre-sites"})
    assert "multicentre_sites" not in points


@pytest.mark.slow
def test_the_wheel_for_real_sites_holds_its_pages_and_commands(wheels):
    names, needs, points = contents(wheels["multicentre-sites"])
    source = ROOT / "sites" / "src"
    files = {path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {path.relative_to(source).as_posix() for path in files} <= set(names)
    assert {"multicentre"} | OF_SITES <= {one.name for one in needs}
    assert "[multicentre.commands]" in points


def test_the_library_fits_a_model_without_the_other_distributions():
    run = alone(FIT)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "1"


@pytest.mark.slow
def test_commands_of_the_library_are_those_that_need_no_real_site():
    run = alone(COMMAND, "--help")
    assert run.returncode == 0, run.stderr
    commands = run.stdout.partition("Commands:")[2].partition("Exit codes")[0]
    listed = {line.split()[0] for line in commands.splitlines() if line[:2] == "  " and line[2:3].strip()}
    assert {"demo", "run", "ledger", "card"} <= listed
    assert listed.isdisjoint({"analyst", "coordinator", "serve", "site", "study"})


@pytest.mark.slow
@pytest.mark.parametrize("words", [("site", "up", "--folder", "lyon"), ("run", "study.toml", "--coordinator", "hub")])
def test_a_command_for_real_sites_names_the_missing_package(words):
    run = alone(COMMAND, *words)
    assert run.returncode == 3
    assert "pip install ./sites" in run.stderr
