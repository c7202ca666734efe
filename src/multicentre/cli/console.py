"""What commands share: where they write, and what becomes of an error."""

from __future__ import annotations

import functools
import sys
import tempfile
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import click
import typer

from multicentre.federation.errors import MulticentreError

P = ParamSpec("P")
BUG, INTERRUPTED = 70, 130
_MOVING = ("Cc", "Cf", "Cs", "Zl", "Zp")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output and nothing else there.")]


def show(text: str = "") -> None:
    """Print a result on standard output."""
    typer.echo(harmless(text))


def show_json(value: Any) -> None:
    """Print a result as JSON on standard output."""
    from multicentre.studies.formats import to_json

    typer.echo(to_json(value), nl=False)


def tell(text: str) -> None:
    """Print a message for a person on standard error."""
    typer.echo(harmless(text), err=True)


def harmless(text: str) -> str:
    """Return a text without what moves a terminal's cursor or turns a line round: parts of it come from elsewhere.

    >>> harmless("approved" + chr(27) + "[2K")
    'approved [2K'
    """
    moving = {letter for letter in set(text) if unicodedata.category(letter) in _MOVING and letter not in "\n\t"}
    return "".join(" " if letter in moving else letter for letter in text) if moving else text


def align(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of texts as aligned columns, the first row above a line.

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


def answering(command: Callable[P, None]) -> Callable[P, None]:
    """Turn a command's errors into a message and an exit status."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with _warnings_told():
                command(*args, **kwargs)
        except (click.exceptions.Exit, click.Abort, click.ClickException, BrokenPipeError):
            raise
        except MulticentreError as error:
            raise _ended(error, str(error), error.exit_code, bool(kwargs.get("as_json"))) from None
        except KeyboardInterrupt as error:
            raise _ended(error, "Interrupted.", INTERRUPTED, bool(kwargs.get("as_json"))) from None
        except Exception as error:
            message = f"A bug in multicentre: {type(error).__name__}. The details are in {_keep_trace(error)}"
            raise _ended(error, message, BUG, bool(kwargs.get("as_json"))) from None

    return guarded


@contextmanager
def _warnings_told() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: tell(f"Note: {message}")
        yield


def _ended(error: BaseException, message: str, status: int, as_json: bool) -> typer.Exit:
    notes = list(getattr(error, "__notes__", []))
    tell("\n".join([message, *notes]))
    if as_json:
        told: dict[str, Any] = {"message": message, "exit_code": status, "notes": notes}
        if isinstance(error, MulticentreError):
            told |= {"code": error.code, "what": error.what, "where": error.where, "hint": error.hint}
            told["refusals"] = dict(error.refusals)
        show_json({"error": told})
    return typer.Exit(status)


def _keep_trace(error: Exception) -> Path:
    with tempfile.NamedTemporaryFile("w", prefix="multicentre-", suffix=".log", encoding="utf-8", delete=False) as file:
        file.write(f"{' '.join(sys.argv)}\n\n")
        file.writelines(traceback.format_exception(error))
    return Path(file.name)
