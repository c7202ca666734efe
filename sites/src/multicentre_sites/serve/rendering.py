"""Pages as HTML: templates, links and tables."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from multicentre.core.printable import harmless
from multicentre_sites.serve.forms import TOKEN

STYLE = "style.css"
# Names of steps and times fit a column unbroken; hashes are broken where the column ends.
_LONG_WORD = 26


@dataclass(frozen=True)
class Link:
    """Cell of a table that leads to a page.

    Parameters
    ----------
    text : str
    page : str
        Page relative to the first one.
    query : mapping of str to str
    """

    text: str
    page: str
    query: Mapping[str, str]


Cell = str | Link


@dataclass(frozen=True)
class Table:
    """Table of a page.

    Parameters
    ----------
    caption : str
    columns : sequence of str
    rows : sequence of sequence of str or Link
        The first cell of a row is its heading.
    empty : str
        Sentence in place of a table without rows.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    empty: str = ""


@dataclass(frozen=True)
class Menu:
    """Links of every page.

    Parameters
    ----------
    title : str
        Name of the folder's owner.
    role : str
    pages : mapping of str to str
        Label by page.
    """

    title: str
    role: str
    pages: Mapping[str, str]


class Renderer:
    """Renders the templates.

    Parameters
    ----------
    area : str
        First part of every path.
    menu : Menu
    """

    def __init__(self, area: str, menu: Menu) -> None:
        self._area, self._menu = area, menu

    def link(self, page: str = "", /, **query: str) -> str:
        """Return the path of a page."""
        return f"/{self._area}/{page}" + (f"?{urlencode(query)}" if query else "")

    def page(self, request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
        """Return a page."""
        text = (
            _environment()
            .get_template(f"{template}.html.j2")
            .render(
                link=self.link,
                menu=self._menu,
                form_token=request.state.session.form_token,
                form_token_name=TOKEN,
                path=request.url.path.lstrip("/"),
                **context,
            )
        )
        return HTMLResponse(text, status)

    def redirect(self, page: str, /, **query: str) -> Response:
        """Return the response after a form: the browser loads a page."""
        return RedirectResponse(self.link(page, **query), 303)


def _has_long_word(cell: Cell) -> bool:
    text = cell.text if isinstance(cell, Link) else cell
    return any(len(word) > _LONG_WORD for word in text.split())


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("multicentre_sites.serve", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Texts of other parties could otherwise reverse the order of what is displayed.
        finalize=lambda value: harmless(value) if isinstance(value, str) else value,
    )
    environment.tests["link"] = lambda value: isinstance(value, Link)
    environment.tests["long"] = _has_long_word
    return environment


def style_sheet() -> str:
    """Return the style sheet of all pages."""
    return files("multicentre_sites.serve").joinpath("static", STYLE).read_text(encoding="utf-8")
