"""Notice of the compilation of kernels."""

import io
import subprocess
import sys
from types import SimpleNamespace

import pytest

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
        "import numpy as np\nfrom multicentre.boosting.kernels.descent import are_leaves\n"
        "nodes = np.zeros(1, dtype=np.int32)\n"
        "are_leaves(nodes, 0, nodes - 1)"
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
    assert [run.stderr.count("Compiling kernels of multicentre.boosting") for run in runs] == [1, 0]
