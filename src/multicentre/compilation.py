"""Compiler of kernels, with a notice when it runs: kernels are compiled once per installation and then loaded."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.event import Listener, register

_LOG = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])


def njit(*signatures: Any, cache: bool = False, **options: Any) -> Callable[[F], F]:
    """Return numba's decorator; where compiled kernels cannot be written to a folder, they are not stored."""
    decorate: Any = numba.njit  # its overloads know no list of signatures

    def compiled(kernel: F) -> F:
        try:
            dispatcher: Any = decorate(*signatures, cache=cache, **options)(kernel)
            if cache:
                dispatcher._cache.save_overload = _lenient(dispatcher._cache)
        except RuntimeError as error:  # numba raises this general class
            if "cannot cache" not in str(error):
                raise
            _announce_no_cache("no folder for them can be written")
            dispatcher = decorate(*signatures, **options)(kernel)
        except OSError as error:
            folder = getattr(numba.config, "CACHE_DIR", "") or Path(kernel.__code__.co_filename).parent
            _announce_no_cache(f"{error.strerror}: {folder}")
            dispatcher = decorate(*signatures, **options)(kernel)
        return cast("F", dispatcher)

    return compiled


def _lenient(cache: Any) -> Callable[..., None]:
    """Return a function that stores a compiled kernel if the disk has room; numba writes whole files or none."""
    save = cache.save_overload

    def save_if_possible(*overload: Any) -> None:
        try:
            save(*overload)
        except OSError as error:
            _announce_no_cache(f"{error.strerror}: {cache.cache_path}")

    return save_if_possible


@functools.cache
def _announce_no_cache(reason: str) -> None:
    """Log once per reason that every process compiles its kernels."""
    _LOG.warning(
        "Compiled kernels cannot be stored (%s): every process compiles them again, up to a minute. Free disk space, "
        "or name a folder that can be written in NUMBA_CACHE_DIR.",
        reason,
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
