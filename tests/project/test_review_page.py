"""The review page is true: its tables name the files that hold the steps of every registered method and part."""

import inspect
import re
from pathlib import Path

import pytest

from multicentre.core.noise_plan import PlanReview
from multicentre.errors import MissingExtra
from multicentre.estimator.registry import METHODS, PARTS, import_class
from multicentre.privacy.secure_sum.site import MaskingKeys

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "multicentre": ROOT / "src" / "multicentre",
    "multicentre-papers": ROOT / "papers" / "src" / "multicentre_papers",
}
PAGE = (ROOT / "docs" / "review.md").read_text(encoding="utf-8")
CORE_PARTS = {part.method: part for part in (PlanReview, MaskingKeys)}
_ROW = re.compile(r"^\| `([\w-]+)` \| `([^`|]+)` \| (.+) \|$", re.MULTILINE)


def file_of(thing):
    """Return the path of a class or function as the page writes it: a path in the library, or in `papers/`."""
    path = Path(inspect.getsourcefile(inspect.unwrap(thing))).resolve()
    for distribution, folder in FOLDERS.items():
        if path.is_relative_to(folder):
            inside = path.relative_to(folder).as_posix()
            return inside if distribution == "multicentre" else f"papers: {inside}"
    raise AssertionError(f"{path} is in neither distribution")


def files_of_steps(part):
    return {file_of(step.run) for step in part.steps().values()}


def row_of(part, aligned_by=None):
    """Return the file of a site part, and the other files whose steps a study with it may request."""
    file = file_of(part)
    others = files_of_steps(part) | (set() if aligned_by is None else files_of_steps(aligned_by))
    return file, sorted(others - {file})


def registered(distribution):
    """Return a row for every method and site part of a distribution."""
    rows = {}
    for name, entry in METHODS.items():
        if entry.distribution == distribution:
            try:
                estimator = import_class(entry, name)
            except MissingExtra:
                continue
            rows[name] = row_of(estimator.site_part, estimator.aligned_by)
    for name, entry in PARTS.items():
        if entry.distribution == distribution:
            rows[name] = row_of(import_class(entry, name))
    if distribution == "multicentre":
        rows |= {name: row_of(part) for name, part in CORE_PARTS.items()}
    return rows


def printed():
    return {name: (file, re.findall(r"`([^`]+)`", others)) for name, file, others in _ROW.findall(PAGE)}


def as_markdown(rows):
    cells = {name: ", ".join(f"`{other}`" for other in others) or "-" for name, (_, others) in rows.items()}
    return "\n".join(f"| `{name}` | `{rows[name][0]}` | {cells[name]} |" for name in rows)


@pytest.mark.parametrize("distribution", FOLDERS)
def test_the_page_lists_the_files_of_all_steps(distribution):
    rows = registered(distribution)
    if not rows:
        pytest.skip(f"{distribution} is not installed")
    assert {name: printed().get(name) for name in rows} == rows, f"the rows should be:\n{as_markdown(rows)}"


def test_the_page_lists_no_other_method():
    installed = registered("multicentre") | registered("multicentre-papers")
    if not registered("multicentre-papers"):
        pytest.skip("multicentre-papers is not installed")
    assert printed().keys() <= installed.keys() | {"fed-deep-surv", "fed-vae", "fed-mcvae"}


def test_a_name_on_the_page_has_one_row():
    names = [name for name, *_ in _ROW.findall(PAGE)]
    assert len(names) == len(set(names)) > 30


def test_files_on_the_page_exist():
    for path in {path for file, others in printed().values() for path in (file, *others)}:
        folder = FOLDERS["multicentre-papers" if path.startswith("papers: ") else "multicentre"]
        assert (folder / path.removeprefix("papers: ")).is_file(), path


def test_the_page_names_the_module_that_decides_at_a_real_site():
    for path in ("deployment/study_permissions.py", "deployment/site_service.py"):
        assert f"`sites: {path}`" in PAGE
        assert (ROOT / "sites" / "src" / "multicentre_sites" / path).is_file()
