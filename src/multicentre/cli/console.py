"""Shared functions of the commands: output, tables and error handling."""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from multicentre.core.disk import cannot_write, is_full
from multicentre.core.printable import harmless
from multicentre.errors import MulticentreError

P = ParamSpec("P")
# Exit codes: EX_SOFTWARE of sysexits.h, and 128 plus the number of SIGINT as in shells.
BUG, INTERRUPTED = 70, 130

AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]


def show(text: str = "") -> None:
    """Print a result on standard output."""
    typer.echo(harmless(text))


def show_json(value: Any) -> None:
    """Print a result as JSON on standard output."""
    from multicentre.studies.serialisation import to_json

    typer.echo(to_json(value), nl=False)


def notify(text: str) -> None:
    """Print a message for the user on standard error."""
    typer.echo(harmless(text), err=True)


def program() -> str:
    """Return the command line as the reader can enter it: by name on the search path, otherwise as it was started."""
    started = Path(sys.argv[0])
    return str(started) if started.name == "multicentre" and shutil.which("multicentre") is None else "multicentre"


def align(rows: Sequence[Sequence[str]]) -> str:
    """Format rows of texts as aligned columns, with a line below the first row.

    >>> print(align([["step", "times"], ["sum", "12"]]))
    step  times
    ----  -----
    sum   12
    """
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    ruled = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in ruled
    )


def handle_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Decorate a command so that errors become a message and an exit status."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with _warnings_as_notes():
                command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except MulticentreError as error:
            raise _exit_after(error, str(error), error.exit_code, bool(kwargs.get("as_json"))) from None
        except KeyboardInterrupt as error:
            raise _exit_after(error, "Interrupted.", INTERRUPTED, bool(kwargs.get("as_json"))) from None
        except Exception as error:
            if isinstance(error, OSError) and is_full(error):
                full = cannot_write(Path(error.filename or "."), error)
                raise _exit_after(error, str(full), full.exit_code, bool(kwargs.get("as_json"))) from None
            message = f"Internal error in multicentre: {type(error).__name__}. The traceback {_keep_trace(error)}"
            raise _exit_after(error, message, BUG, bool(kwargs.get("as_json"))) from None

    return guarded


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    with warnings.catch_warnings():
        printed: set[str] = set()

        def show_once(message: Warning | str, *_: object, **__: object) -> None:
            if str(message) not in printed:
                printed.add(str(message))
                notify(f"Note: {message}")

        warnings.showwarning = show_once
        yield


def _exit_after(error: BaseException, message: str, status: int, as_json: bool) -> typer.Exit:
    notes = list(getattr(error, "__notes__", []))
    notify("\n".join([message, *notes]))
    if as_json:
        content: dict[str, Any] = {"message": message, "exit_code": status, "notes": notes}
        if isinstance(error, MulticentreError):
            content |= {"code": error.code, "what": error.what, "where": error.where, "hint": error.hint}
            content["refusals"] = dict(error.refusals)
        show_json({"error": content})
    return typer.Exit(status)


def _keep_trace(error: Exception) -> str:
    """Store a traceback, and return where it is; the traceback itself if no temporary file can be written."""
    trace = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="multicentre-", suffix=".log", encoding="utf-8", delete=False
        ) as file:
            file.write(f"{' '.join(sys.argv)}\n\n{trace}")
    except OSError:
        return f"follows:\n{trace}"
    return f"is in {file.name}"
