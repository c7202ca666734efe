"""The website's navigation, from the lists of links on the pages of its four groups.

A page of a group lists its pages under headings: each list item or table row that begins with a link is an entry of the
navigation, and the heading above it is the caption. A page of `docs` that no group lists is added to one under the
caption "More". Other pages of the repository that are not listed are on the website, but not in its navigation.
"""

import re
from pathlib import PurePosixPath
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

GROUPS = ("docs/tutorials/index", "docs/guides/index", "docs/reference", "docs/explanation")
ROOT = "docs/index"
# Group of a page that no group lists, by the folder of the page.
FOLDERS = {"docs/tutorials": GROUPS[0], "docs/methods": GROUPS[2], "docs/papers": GROUPS[3]}
# Pages that are part of no group: entries of the root.
TOP = (*GROUPS, "CHANGELOG")
ENTRY = re.compile(r"^(?:[-*] |\d+\. |\| )\**\[[^\]]+\]\(([^)#:]+)\.md\)", re.MULTILINE)


def resolve(page: str, link: str) -> str:
    """Return the name of the page to which a relative link of a page leads."""
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / link).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def read_entries(page: str, text: str) -> dict[str, list[str]]:
    """Return the pages that a group's page lists, by heading."""
    captions: dict[str, list[str]] = {}
    for section in re.split(r"^###? ", text, flags=re.MULTILINE)[1:]:
        heading, _, content = section.partition("\n")
        captions[heading.strip().replace("`", "")] = [resolve(page, link) for link in ENTRY.findall(content)]
    return captions


def all_entries(app: Sphinx) -> dict[str, dict[str, list[str]]]:
    """Return the navigation of every group, each page once."""
    navigation = {}
    seen = {ROOT, *TOP}
    for group in GROUPS:
        text = app.env.doc2path(group).read_text(encoding="utf-8")
        navigation[group] = {}
        for heading, pages in read_entries(group, text).items():
            navigation[group][heading] = [page for page in dict.fromkeys(pages) if page not in seen]
            seen.update(pages)
    for page in sorted(app.env.found_docs - seen):
        if page.startswith("docs/") and not page.startswith("docs/api/"):
            group = FOLDERS.get(page.rpartition("/")[0], GROUPS[1])
            navigation[group].setdefault("More", []).append(page)
    return navigation


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the navigation to the pages of the groups and to the root."""
    if not page.startswith("docs/") and page not in TOP and not is_listed(app, page):
        source[0] = "---\norphan: true\n---\n" + source[0]
    if page == ROOT:
        source[0] += toctree("", TOP)
    elif page in GROUPS:
        for heading, pages in all_entries(app)[page].items():
            source[0] += toctree(heading, pages) if pages else ""


def is_listed(app: Sphinx, page: str) -> bool:
    """Return whether a group lists a page."""
    return any(page in pages for captions in all_entries(app).values() for pages in captions.values())


def toctree(caption: str, pages: Any) -> str:
    """Return a hidden table of contents."""
    option = f":caption: {caption}\n" if caption else ""
    entries = "\n".join(f"/{page}" for page in pages)
    return f"\n\n```{{toctree}}\n:hidden:\n{option}\n{entries}\n```\n"


def groups_again(
    _app: Sphinx, _env: BuildEnvironment, added: set[str], _changed: set[str], removed: set[str]
) -> list[str]:
    """Return the pages to read again after pages were added or removed."""
    return list(GROUPS) if added or removed else []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the navigation."""
    app.connect("source-read", add_navigation)
    app.connect("env-get-outdated", groups_again)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
