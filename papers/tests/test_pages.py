"""Pages with recomputed tables: written by the commands, for the plans that the commands run."""

import importlib
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "papers"
WORDS = ("reached", "NOT reached", "holds", "does NOT hold", "undecided", "too few to judge", "untested")
PAPERS = sorted(page.stem for page in PAGES.glob("*.md") if page.stem != "index")
VERDICT = re.compile(rf"^\* ({'|'.join(WORDS)}): ", re.MULTILINE)


@pytest.mark.parametrize("paper", PAPERS)
def test_page_shows_a_run_of_the_present_plan(paper):
    text = (PAGES / f"{paper}.md").read_text(encoding="utf-8")
    plan = importlib.import_module(f"multicentre_papers.{paper.replace('-', '_')}.plan")
    assert f"Run: {plan.FULL.describe()}" in text
    assert VERDICT.search(text)


@pytest.mark.parametrize("paper", PAPERS)
def test_page_names_no_folder_of_a_machine(paper):
    text = (PAGES / f"{paper}.md").read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.])/(tmp|home|work|root)/", text)
