"""The project's files agree with each other: declared and locked dependencies, documents and Makefile, arrows."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SITES = tomllib.loads((ROOT / "sites" / "pyproject.toml").read_text(encoding="utf-8"))
PAGES = [*ROOT.glob("*.md"), *(path for name in ("docs", "papers", "sites") for path in (ROOT / name).rglob("*.md"))]
DOCUMENTS = sorted(path for path in PAGES if path.name != "CHANGELOG.md")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def read_pins(lock: str) -> dict[str, set[str]]:
    pins: dict[str, set[str]] = {}
    for name, version in PIN.findall((ROOT / "requirements" / lock).read_text(encoding="utf-8")):
        pins.setdefault(canonicalize_name(name), set()).add(version)
    return pins


def declared(*parts: str) -> list[Requirement]:
    tables = PROJECT["project"]["optional-dependencies"] | PROJECT["dependency-groups"]
    tables["core"] = PROJECT["project"]["dependencies"]
    tables["sites"] = [line for line in SITES["project"]["dependencies"] if not line.startswith("multicentre==")]
    return [Requirement(line) for part in parts for line in tables[part]]


@pytest.mark.parametrize(
    ("lock", "parts"),
    [
        ("core.lock", ["core", "parquet", "build"]),
        ("test.lock", ["core", "sites", "parquet", "build", "polars", "test", "torch-needs"]),
        ("flower.lock", ["core", "sites", "parquet", "build"]),
        ("bench.lock", ["core", "sites", "parquet", "build", "boost", "bench", "test"]),
        ("docs.lock", ["core", "parquet", "build", "docs"]),
    ],
)
def test_lock_covers_what_is_declared(lock: str, parts: list[str]) -> None:
    pins = read_pins(lock)
    for requirement in declared(*parts):
        versions = pins.get(canonicalize_name(requirement.name), set())
        assert versions, f"{requirement.name} is not in {lock}: make lock"
        assert all(requirement.specifier.contains(version) for version in versions), requirement


def test_build_backend_is_locked() -> None:
    assert PROJECT["build-system"]["requires"] == PROJECT["dependency-groups"]["build"]


def test_locks_agree() -> None:
    core, test, *others = (read_pins(f"{name}.lock") for name in ("core", "test", "bench", "docs"))
    assert core == {name: test.get(name) for name in core}
    # Packages to compare with, and Sphinx, are installed on top of the locked tools, and replace none of them.
    for other in others:
        shared = other.keys() & test.keys()
        assert {name: other[name] for name in shared} == {name: test[name] for name in shared}


@pytest.mark.parametrize("lock", ["core.lock", "test.lock", "bench.lock", "docs.lock"])
def test_every_pin_has_a_hash_and_no_address(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) > 20
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
    assert "index-url" not in text


def test_the_locked_torch_satisfies_the_extra() -> None:
    lines = (ROOT / "requirements" / "deep.txt").read_text(encoding="utf-8").splitlines()
    (locked,) = [Requirement(line) for line in lines if not line.startswith("#")]
    (declared,) = map(Requirement, PROJECT["project"]["optional-dependencies"]["deep"])
    (pin,) = locked.specifier
    assert (locked.name, pin.operator) == (declared.name, "==")
    assert pin.version in declared.specifier


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_links_of_documents_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = re.findall(r"(?:^|`)make (?:[A-Z]+=\S+ )?([a-z]+)", text, re.MULTILINE)
    assert set(named) <= targets
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_import_contracts_hold() -> None:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_conda_recipe_names_the_version_and_the_dependencies_of_the_package() -> None:
    recipe = (ROOT / "deploy" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    (version,) = re.findall(r"^  version: ([\d.]+)$", recipe, re.MULTILINE)
    assert version == PROJECT["project"]["version"]
    run = recipe.split("  run:\n")[1].split("\n\n")[0]
    named = {Requirement(line.strip(" -").replace("matplotlib-base", "matplotlib")) for line in run.splitlines()}
    python = Requirement(f"python {PROJECT['project']['requires-python']}")
    assert named == {python, *declared("core")}


def test_every_place_states_the_same_version() -> None:
    version = PROJECT["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'__version__ = "{version}"' in (ROOT / "src/multicentre/__init__.py").read_text(encoding="utf-8")
    assert f"\nVersion: {version}\n" in (ROOT / "r" / "DESCRIPTION").read_text(encoding="utf-8")
    for name in ("papers", "sites"):
        project = tomllib.loads((ROOT / name / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["version"] == version
        assert f"multicentre=={version}" in project["dependencies"]
        module = ROOT / name / "src" / f"multicentre_{name}" / "__init__.py"
        assert f'__version__ = "{version}"' in module.read_text(encoding="utf-8")
