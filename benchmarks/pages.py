"""Write docs/benchmarks.md and docs/scaling.md from the stored results; no number in them is typed.

``python benchmarks/pages.py --check`` changes nothing and fails if a page differs from what the results give.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import page_of_pairs
import page_of_scaling
from tables import DOCS, read_results

PAGES: dict[Path, Callable[[], str]] = {
    DOCS / "benchmarks.md": page_of_pairs.render,
    DOCS / "scaling.md": page_of_scaling.render,
}


def main(arguments: list[str] | None = None) -> None:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page differs")
    check = parser.parse_args(arguments or []).check
    different = [path for path, render in PAGES.items() if not path.exists() or path.read_text("utf-8") != render()]
    if check and different:
        sys.exit(f"{', '.join(path.name for path in different)}: run python benchmarks/pages.py.")
    for path in different:
        path.write_text(PAGES[path](), encoding="utf-8")
        print(f"Wrote {path.name}.")
    for slope in page_of_scaling.unexplained(read_results("scaling")["results"]["points"]):
        print(f"No explanation in page_of_scaling.py of a slope above {page_of_scaling.STEEP}: {slope}")


if __name__ == "__main__":
    main(sys.argv[1:])
