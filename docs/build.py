"""Build the website of the documentation, with every warning an error.

Usage: python docs/build.py [FOLDER]. The folder is `build/docs` by default; what was read is kept in `FOLDER-read`.

A build after a change reads the changed pages again. After a failure the next build reads all of them, because a page
that is not read again does not repeat its warning.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.cmd.build import main

ROOT = Path(__file__).resolve().parents[1]
WEBSITE = ROOT / "build" / "docs"


def silence_kernels(profiles: Path) -> None:
    """Let kernels of tutorials start without the warning that they use local sockets, by a profile for them alone."""
    profile = profiles / "profile_default"
    profile.mkdir()
    (profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 40\n", encoding="utf-8")  # errors
    os.environ["IPYTHONDIR"] = str(profiles)


def build(website: Path) -> int:
    """Build the website, and return the exit status."""
    # The matrices of tutorials are small: more threads would slow them down.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    pages_read = website.with_name(f"{website.name}-read")
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "2"]
    places = ["--conf-dir", str(ROOT / "docs"), "--doctree-dir", str(pages_read), str(ROOT), str(website)]
    print("Building the website; tutorials that changed are executed. A first build takes several minutes.", flush=True)
    with tempfile.TemporaryDirectory() as profiles:
        silence_kernels(Path(profiles))
        status = main([*options, *places])
    if status:
        shutil.rmtree(pages_read, ignore_errors=True)
    else:
        print(f"The documentation is in {website / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else WEBSITE))
