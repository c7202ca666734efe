"""The architecture page is true: its pictures are drawn from the declared layers, and its paths exist."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "multicentre"
SITES = ROOT / "sites" / "src" / "multicentre_sites"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def load_script():
    spec = importlib.util.spec_from_file_location("draw", ROOT / "docs" / "pictures" / "draw.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DRAW = load_script()


@pytest.mark.parametrize("name", DRAW.PICTURES)
def test_pictures_are_what_the_script_draws(name):
    assert (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8") == DRAW.PICTURES[name]()
    assert any(f"(pictures/{name})" in page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))


def test_the_picture_shows_every_package_and_no_other():
    drawn = [package for layer in DRAW.layers() for package in layer]
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert sorted(drawn) == sorted(packages | modules) == sorted(DRAW.PACKAGES)


def test_every_package_is_explained_on_the_page():
    table = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|$", PAGE, re.MULTILINE))
    assert table.keys() == DRAW.PACKAGES.keys()


def test_the_journey_of_a_call_is_that_of_the_code():
    places = {}
    for _, what, path, code in DRAW.CALL:
        text = (SOURCE / path).read_text(encoding="utf-8")
        start = text.index("def answer") if path == "core/site_runtime.py" else 0
        place = text.find(code, start)
        assert place >= 0, (what, path, code)
        assert place > places.get(path, -1), f"{what} comes before its predecessor in {path}"
        places[path] = place


def test_paths_on_the_page_exist():
    paths = re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE)
    assert len(paths) > 10
    assert [path for path in paths if not any((base / path).exists() for base in (ROOT, SOURCE, SITES))] == []


# A session belongs to a consortium, and a summation runs within a session: their types name each other.
CIRCLES = [{"multicentre.core.consortium", "multicentre.core.session", "multicentre.core.summation"}]


def imported_modules():
    """Return the modules that each module imports, also within functions and for types only."""
    files = {}
    for folder in (ROOT / "src", ROOT / "papers" / "src", ROOT / "sites" / "src"):
        for path in folder.rglob("*.py"):
            files[".".join(path.relative_to(folder).with_suffix("").parts)] = path
    imports = {}
    for module, path in files.items():
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
        names = {f"{node.module}.{one.name}" for node in froms for one in node.names} | {node.module for node in froms}
        names |= {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
        imports[module] = names & files.keys()
    return imports


def reachable(start, imports):
    found, remaining = set(), [start]
    while remaining:
        new = imports[remaining.pop()] - found
        found |= new
        remaining += new
    return found


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle():
    imports = imported_modules()
    below = {module: reachable(module, imports) for module in imports}
    circles = {frozenset(other for other in below[module] if module in below[other]) for module in imports}
    assert sorted(map(sorted, circles - {frozenset()})) == sorted(map(sorted, CIRCLES))
