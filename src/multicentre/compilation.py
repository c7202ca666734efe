"""Compiler of kernels, with a notice when it runs: kernels are compiled once per installation and then loaded."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core.event import Listener, register

_LOG = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])


def njit(*signatures: Any, cache: bool = False, **options: Any) -> Callable[[F], F]:
    """Return numba's decorator; where no folder for compiled kernels can be written, they are not stored."""
    decorate: Any = numba.njit  # its overloads know no list of signatures

    def compiled(kernel: F) -> F:
        try:
            dispatcher: F = decorate(*signatures, cache=cache, **options)(kernel)
        except RuntimeError as error:  # numba raises this general class
            if "cannot cache" not in str(error):
                raise
            _announce_no_cache()
            dispatcher = decorate(*signatures, **options)(kernel)
        return dispatcher

    return compiled


@functools.cache
def _announce_no_cache() -> None:
    """Log once that every process compiles its kernels."""
    _LOG.warning(
        "No folder for compiled kernels can be written: every process compiles them again, up to a minute. Name one in "
        "NUMBA_CACHE_DIR."
    )


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
