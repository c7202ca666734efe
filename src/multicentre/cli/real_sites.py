"""Commands and functions of other distributions, found by entry points.

A distribution adds a command by an entry point of the group ``multicentre.commands``: its name, and a function or a
:class:`typer.Typer`. The commands for real sites are in multicentre-sites. Functions that commands of this package call
for real sites are in the group ``multicentre.real_sites``, so that nothing here imports that distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

from multicentre.cli.console import handle_errors
from multicentre.errors import MissingExtra

COMMAND_GROUP = "multicentre.commands"
FUNCTION_GROUP = "multicentre.real_sites"
SITES = "multicentre-sites"
# Known without the distribution, so that the message can name it.
_OF_SITES = ("analyst", "coordinator", "serve", "site", "study")
_ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


def add_commands(app: typer.Typer) -> None:
    """Add the commands that installed distributions register; a command of this package cannot be replaced."""
    taken = {one.name for one in app.registered_commands} | {one.name for one in app.registered_groups}
    installed = {entry.name: entry for entry in entry_points(group=COMMAND_GROUP) if entry.name not in taken}
    for name in sorted(installed):
        _add(app, installed[name])
    for name in _OF_SITES:
        if name not in installed:
            _add_missing(app, name, SITES)


def function_of_sites(name: str, subject: str) -> Callable[..., Any]:
    """Return a function of multicentre-sites; `subject` is what needs it, for the message.

    Raises
    ------
    MissingExtra
        multicentre-sites is not installed.
    """
    for entry in entry_points(group=FUNCTION_GROUP, name=name):
        return entry.load()  # type: ignore[no-any-return]
    raise _missing(subject, SITES)


def _add(app: typer.Typer, entry: EntryPoint) -> None:
    try:
        command = entry.load()
    except ModuleNotFoundError as error:
        _add_missing(app, entry.name, (error.name or entry.module).partition(".")[0].replace("_", "-"))
        return
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=entry.name)
    else:
        app.command(entry.name)(command)


def _add_missing(app: typer.Typer, name: str, distribution: str) -> None:
    """Add a hidden command that names the distribution that it needs."""

    @handle_errors
    def refuse() -> None:
        raise _missing(f"multicentre {name}", distribution)

    app.command(name, hidden=True, add_help_option=False, context_settings=_ANY_ARGUMENTS)(refuse)


def how_to_install(distribution: str) -> str:
    """Return the command that installs a distribution; those of this project are folders of a clone.

    Examples
    --------
    >>> how_to_install("multicentre-sites")
    'in a clone: pip install ./sites'
    """
    folder = distribution.removeprefix("multicentre-")
    return f"pip install {distribution}" if folder == distribution else f"in a clone: pip install ./{folder}"


def _missing(subject: str, distribution: str) -> MissingExtra:
    return MissingExtra(
        f"{subject} requires the package {distribution}", hint=f"Install it; {how_to_install(distribution)}."
    )
