"""The application: commands of this package, then those of installed distributions."""

from __future__ import annotations

from typing import Annotated

import typer
import typer.core

from multicentre.cli import (
    audit,
    budget,
    card,
    datasets,
    docs,
    doctor,
    ledger,
    real_sites,
    reproduce,
    run,
    secret,
    watch,
)

# With rich installed, typer escapes brackets of help texts for an export to HTML, and prints the backslashes.
typer.core.HAS_RICH = False

app = typer.Typer(
    name="multicentre",
    help="Federated statistical learning on multi-centre health data. Start with: multicentre demo",
    epilog="Exit codes: 0 ok, 2 usage, 3 configuration or data, 4 refused by policy, 5 disclosure refused, 6 quorum "
    "lost (resumable), 7 not converged, 8 integrity, 70 bug, 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from multicentre import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command("demo")(run.demo)
app.command("run")(run.run)
app.command("watch")(watch.watch)
app.command("card")(card.card)
app.command("audit")(audit.audit)
app.command("budget")(budget.budget)
app.add_typer(ledger.app, name="ledger")
app.add_typer(secret.app, name="secret")
app.command("report")(run.report)
app.add_typer(datasets.app, name="datasets")
app.command("docs")(docs.docs)
app.command("doctor")(doctor.doctor)
app.command("reproduce")(reproduce.reproduce)
real_sites.add_commands(app)
