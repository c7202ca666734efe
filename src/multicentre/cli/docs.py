"""``multicentre docs``: pages of the documentation, as installed with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multicentre.cli.console import AsJson, align, handle_errors, show, show_json


@handle_errors
def docs(
    page: Annotated[str | None, typer.Argument(help="Name of a page; without one, the pages are listed.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a page of the documentation, or list the pages."""
    pages = find_pages()
    if page is None:
        titles = {name: title_of(path) for name, path in pages.items()}
        if as_json:
            return show_json([{"name": name, "title": title} for name, title in titles.items()])
        return show(align([["page", "title"], *([name, title] for name, title in titles.items())]))
    if page not in pages:
        from multicentre.errors import ConfigurationError, nearest_name

        raise ConfigurationError(
            f"page must be the name of a page; got {page!r}",
            where="docs",
            hint=f"{nearest_name([page], pages)}multicentre docs lists all pages.",
        )
    text = pages[page].read_text(encoding="utf-8").rstrip()
    if as_json:
        return show_json({"name": page, "title": title_of(pages[page]), "text": text})
    return show(text)


def find_pages() -> dict[str, Path]:
    """Return the pages by name: those of an installed package, or of the repository."""
    package = Path(__file__).resolve().parents[1]
    folders = (package / "docs", package.parents[1] / "docs")
    folder = next((one for one in folders if one.is_dir()), folders[0])
    return {path.stem: path for path in sorted([*folder.glob("*.md"), *folder.glob("methods/*.md")])}


def title_of(path: Path) -> str:
    """Return the first heading of a page."""
    with path.open(encoding="utf-8") as file:
        return next((line[2:].strip() for line in file if line.startswith("# ")), path.stem)
