"""Tutorials as notebooks: read the MyST pages in `docs/tutorials`, write `.ipynb` files, run them, draw the gallery.

Usage:
    python docs/notebooks.py write FOLDER       # one .ipynb per tutorial, without outputs
    python docs/notebooks.py pictures [NAME...] # the gallery's pictures, from a run of each tutorial
"""

import argparse
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TUTORIALS = Path(__file__).resolve().parent / "tutorials"
PICTURES = TUTORIALS / "pictures"
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
CODE_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TAGS = re.compile(r"\A:tags: \[(.*?)\]\n")
LOCAL_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)[^)]+\)")
# A cell with this tag checks statements of the page. It is run and not shown.
HIDDEN = "remove-cell"


@dataclass(frozen=True)
class Cell:
    """A cell of a tutorial: Markdown or Python code."""

    kind: str
    text: str
    tags: tuple[str, ...] = ()


def pages() -> list[Path]:
    """Return the tutorials: pages that begin with a kernel."""
    return [path for path in sorted(TUTORIALS.glob("*.md")) if "kernelspec:" in path.read_text("utf-8")[:400]]


def read_cells(page: Path) -> Iterator[Cell]:
    """Yield the cells of a page in order."""
    text = FRONT_MATTER.sub("", page.read_text(encoding="utf-8"))
    end = 0
    for match in CODE_CELL.finditer(text):
        if prose := text[end : match.start()].strip():
            yield Cell("markdown", prose)
        tags = TAGS.match(match[1])
        names = tuple(name.strip() for name in tags[1].split(",")) if tags else ()
        yield Cell("code", TAGS.sub("", match[1]).strip(), names)
        end = match.end()
    if prose := text[end:].strip():
        yield Cell("markdown", prose)


def notebook(page: Path) -> dict[str, object]:
    """Return a page as a notebook in version 4.5 of the format. Links to other pages become plain text."""
    cells: list[dict[str, object]] = []
    for place, cell in enumerate(one for one in read_cells(page) if HIDDEN not in one.tags):
        source = LOCAL_LINK.sub(r"\1", cell.text) if cell.kind == "markdown" else cell.text
        plain = {"cell_type": cell.kind, "id": f"cell-{place}", "metadata": {}, "source": source}
        cells.append(plain if cell.kind == "markdown" else plain | {"outputs": [], "execution_count": None})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def write_notebooks(folder: Path) -> list[Path]:
    """Write all tutorials as notebooks to a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for page in pages():
        path = folder / f"{page.stem}.ipynb"
        path.write_text(json.dumps(notebook(page), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        paths.append(path)
    return paths


def run_page(page: Path) -> dict[str, object]:
    """Run the code of a page in an empty temporary folder, and return its variables."""
    names: dict[str, object] = {}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for place, cell in enumerate(read_cells(page)):
                if cell.kind == "code":
                    exec(compile(cell.text, f"{page.name}, cell {place}", "exec"), names)
        finally:
            os.chdir(before)
    return names


def draw_picture(page: Path) -> Path:
    """Run a page, and store the picture in its variable `picture` for the gallery."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.axes import Axes

    axes = run_page(page)["picture"]
    if not isinstance(axes, Axes):
        raise TypeError(f"{page.name}: picture must be a matplotlib Axes; got {type(axes).__name__}.")
    path = PICTURES / f"{page.stem}.png"
    axes.figure.savefig(path, dpi=80, metadata={"Software": None})
    return path


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write").add_argument("folder", type=Path)
    commands.add_parser("pictures").add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if arguments.command == "write":
        for path in write_notebooks(arguments.folder):
            print(path)
        return
    for page in pages():
        if not arguments.names or page.stem in arguments.names:
            print(draw_picture(page))


if __name__ == "__main__":
    main()
