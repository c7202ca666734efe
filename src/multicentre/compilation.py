"""Compiler of kernels, with a notice when it runs: kernels are compiled once per installation and then loaded."""

from __future__ import annotations

import logging
import sys
from typing import Any

from numba import njit as njit
from numba.core.event import Listener, register

_LOG = logging.getLogger(__name__)


class CompilationNotice(Listener):
    """Logs one line per package whose kernels are compiled, and prints it at a terminal or in a notebook.

    Compilation takes seconds in which nothing else happens.
    """

    def __init__(self) -> None:
        self._announced: set[str] = set()

    def on_start(self, event: Any) -> None:
        """Receive that the compiler begins with a function."""
        module = event.data["dispatcher"].py_func.__module__
        package = ".".join(module.split(".")[:2])
        if not module.startswith(("multicentre.", "multicentre_papers.")) or package in self._announced:
            return
        self._announced.add(package)
        text = f"Compiling kernels of {package}: up to a minute, once per installation."
        _LOG.info(text)
        if sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def on_end(self, event: Any) -> None:
        """Receive that the compiler ends with a function."""


register("numba:compile", CompilationNotice())  # type: ignore[no-untyped-call]
