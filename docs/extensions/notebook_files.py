"""Tutorials as notebooks to download: written into the website, and linked next to each tutorial."""

import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import notebooks

FOLDER = "notebooks"


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    """Write the notebooks into the website."""
    if error is None and app.builder.format == "html":
        notebooks.write_notebooks(Path(app.outdir) / FOLDER)


def add_link(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Give a tutorial's page the address of its notebook."""
    name = page.rpartition("/")[2]
    if page.startswith("docs/tutorials/") and name in {path.stem for path in notebooks.pages()}:
        context["notebook"] = f"{FOLDER}/{name}.ipynb"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the steps."""
    app.connect("build-finished", write_notebooks)
    app.connect("html-page-context", add_link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
