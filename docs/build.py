"""Build the website of the documentation in `build/docs`, with every warning an error.

A build after a change reads the changed pages again. After a failure the next build reads all of them, because a page
that is not read again does not repeat its warning.
"""

import os
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main

ROOT = Path(__file__).resolve().parents[1]
WEBSITE = ROOT / "build" / "docs"
PAGES_READ = ROOT / "build" / "docs-read"


def build() -> int:
    """Build the website, and return the exit status."""
    # The matrices of tutorials are small: more threads would slow them down.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "2"]
    places = ["--conf-dir", str(ROOT / "docs"), "--doctree-dir", str(PAGES_READ), str(ROOT), str(WEBSITE)]
    status = main([*options, *places])
    if status:
        shutil.rmtree(PAGES_READ, ignore_errors=True)
    else:
        print(f"The documentation is in {WEBSITE / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(build())
