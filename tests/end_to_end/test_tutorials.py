"""Tutorials run from their first cell to their last, and the notebooks and the gallery are those of the pages."""

import importlib.util
import json
import re
import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def load_script():
    spec = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
    module = sys.modules["notebooks"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NOTEBOOKS = load_script()
PAGES = NOTEBOOKS.pages()
NEEDS = {"survival": "lifelines", "privacy": "opendp"}
HEADINGS = (
    *("The question", "The data", "How to read it"),
    *("Compared with pooled rows and single sites", "What left a site", "Limits"),
)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tutorials_run(page, capsys):
    package = NEEDS.get(page.stem)
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = NOTEBOOKS.run_page(page)
    assert names["picture"].figure is not None
    plt.close("all")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_tutorial_has_the_expected_sections(page):
    headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [heading for heading in headings if heading in HEADINGS] == list(HEADINGS)


def test_notebooks_hold_the_code_of_the_pages_and_compile(tmp_path):
    paths = NOTEBOOKS.write_notebooks(tmp_path)
    assert [path.stem for path in paths] == [page.stem for page in PAGES]
    for path, page in zip(paths, PAGES, strict=True):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
        assert code, path
        for source in code:
            compile(source, path.name, "exec")
            assert source in page.read_text(encoding="utf-8")
        assert not any("](../" in cell["source"] for cell in cells)


def test_the_gallery_shows_each_tutorial_with_its_picture():
    gallery = (DOCS / "tutorials" / "gallery.md").read_text(encoding="utf-8")
    shown = re.findall(r"\[!\[[^\]]+\]\(pictures/([\w-]+)\.png\)\]\(([\w-]+)\.md\)", gallery)
    assert sorted(shown) == [(page.stem, page.stem) for page in PAGES]
    assert all((DOCS / "tutorials" / "pictures" / f"{picture}.png").exists() for picture, _ in shown)


def test_the_glossary_is_in_order_and_each_term_has_a_page():
    entries = re.findall(
        r"^- \*\*(.+?)\*\*: (.*?)(?=^- |\Z)", (DOCS / "glossary.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    terms = [term.lower() for term, _ in entries]
    assert terms == sorted(terms)
    assert [term for term, text in entries if "](" not in text and "See *" not in text] == []
    words = [
        "federated",
        "site",
        "coordinator",
        "steward",
        "release",
        "ledger",
        "policy",
        "quorum",
        "roster",
        "fold",
        "epsilon",
    ]
    assert set(words) <= set(terms)
