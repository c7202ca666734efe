"""Notice of the compilation of kernels."""

import io
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from multicentre import compilation
from multicentre.compilation import CompilationNotice


class Terminal(io.StringIO):
    """Stream of a terminal."""

    def isatty(self):
        """Return that it is one."""
        return True


def compiled(module):
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))})


@pytest.mark.parametrize(("stream", "n_lines"), [(Terminal, 2), (io.StringIO, 0)])
def test_a_terminal_shows_one_line_per_package(monkeypatch, stream, n_lines):
    monkeypatch.setattr(sys, "stderr", stream())
    notice = CompilationNotice()
    for module in ("multicentre.survival.kernels.pairs", "multicentre.survival.kernels.hazard"):
        notice.on_start(compiled(module))
    for module in ("multicentre.boosting.kernels.splits", "another.package"):
        notice.on_start(compiled(module))
    lines = sys.stderr.getvalue().splitlines()
    assert len(lines) == n_lines
    if lines:
        assert lines[0] == "Compiling kernels of multicentre.survival: up to a minute, once per installation."


def test_numba_announces_a_kernel_that_is_not_cached(tmp_path):
    program = (
        "import logging; logging.basicConfig(level='INFO', format='%(message)s')\n"
        "import numpy as np\nfrom multicentre.trees.kernels.shape import place_children\n"
        "nodes = np.zeros(1, dtype=np.int32)\n"
        "place_children(nodes, nodes - 1)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"NUMBA_CACHE_DIR": str(tmp_path), "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        for _ in range(2)
    ]
    assert [run.stderr.count("Compiling kernels of multicentre.trees") for run in runs] == [1, 0]


def test_kernels_are_compiled_without_a_cache_and_one_line_says_so(tmp_path):
    """A service account without a home runs a package that belongs to root; also holds for root itself."""
    (tmp_path / "plain").write_text("")
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(
            "from multicentre.compilation import njit\n@njit(cache=True)\ndef double(x):\n    return 2 * x\n"
        )
    (tmp_path / "__pycache__").write_text("")
    run = subprocess.run(
        [sys.executable, "-c", "import one, two; print(one.double(3), two.double(4))"],
        env={"HOME": str(tmp_path / "plain" / "home"), "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "6 8\n", run.stderr
    assert run.stderr.count("Compiled kernels cannot be stored") == 1


def test_every_kernel_is_compiled_by_the_one_decorator():
    """numba's own decorator fails where no cache can be written."""
    source = Path(compilation.__file__).parent
    files = [one for one in source.rglob("*.py") if one != Path(compilation.__file__)]
    assert [str(one) for one in files if re.search(r"from numba import .*njit|numba\.njit", one.read_text())] == []
