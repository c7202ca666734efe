"""Examples on the method pages run, and every page has the expected sections."""

import importlib.util
import re
import warnings
from pathlib import Path

import pytest

OTHERS = ("tables.md", "vertical.md", "small-sites.md", "missing-data.md", "a-method-in-60-lines.md")
ROOT = Path(__file__).resolve().parents[2]
COMPARED = [ROOT / "papers" / "docs" / f"{name}.md" for name in ("fed-deep-surv", "fed-surf")]
PAGES = [*sorted((ROOT / "docs" / "methods").glob("*.md")), *COMPARED]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [*PAGES, *(ROOT / "docs" / name for name in OTHERS)],
    ids=lambda page: page.stem,
)
def test_the_examples_run(page, capsys):
    if page.stem in ("vae", "fed-deep-surv") and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            exec(compile(block, page.name, "exec"), names)
    assert "model" in names
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_page_has_the_expected_sections(page):
    headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    expected = ("Description", "When to use", "Assumptions", "What leaves a site", "Example")
    assert [heading for heading in headings if heading in expected] == list(expected)
