"""``multicentre ledger``: show, verify, compare, export, repair."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multicentre.cli.console import AsJson, align, handle_errors, notify, show, show_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multicentre.privacy.ledger import Entry
    from multicentre.privacy.ledger_comparison import Difference

app = typer.Typer(
    help="Read the ledgers of a site: its releases and refusals.", no_args_is_help=True, rich_markup_mode=None
)

Where = Annotated[Path, typer.Argument(metavar="RUN|LEDGER.jsonl", help="Run folder, or ledger of one site.")]
Several = Annotated[
    list[str], typer.Argument(metavar="RUN|[NAME=]LEDGER.jsonl...", help="Run folders, or ledgers of several sites.")
]
Site = Annotated[str | None, typer.Option(help="One site of a run folder; all sites by default.")]


@app.command("show")
@handle_errors
def show_ledger(where: Where, site: Site = None, as_json: AsJson = False) -> None:
    """Print every release and refusal, oldest first."""
    from multicentre.privacy.ledger import read_ledger

    entries_by_site = {name: list(read_ledger(path)) for name, path in _ledgers(where, site).items()}
    if as_json:
        return show_json(entries_by_site)
    for name, entries in entries_by_site.items():
        show(f"{name}: {len(entries)} entries\n{_table(entries)}\n")
    return None


@app.command()
@handle_errors
def verify(
    where: Where,
    site: Site = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY|CARD", help="Public identity of the site: 64 digits, or its NAME.site.toml."),
    ] = None,
    witness: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Ends recorded by others: heads.json of a run, or a site's STUDY.peers.json."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the signatures and the completeness of ledgers.

    Every entry must be signed by the site. Changed, removed, inserted or cut-off entries are detected.
    """
    from multicentre.studies.ledger_verification import Evidence, verify_ledgers

    ledgers, evidence = _ledgers(where, site), Evidence.of(where, key or (), witness or ())
    verified = verify_ledgers(where, ledgers, evidence, site)
    elsewhere = {} if verified else evidence.recorded
    if as_json:
        content = {name: one.to_dict() for name, one in verified.items()}
        return show_json(content | {name: head.to_dict() for name, head in elsewhere.items()})
    for name, head in elsewhere.items():
        show(f"{name}: the ledger is at the site; it had {head.entries} entries and ended with {head.hash}")
    for name, one in verified.items():
        show(f"{name}: {one}")
    return None


@app.command()
@handle_errors
def compare(where: Several, as_json: AsJson = False) -> None:
    """Compare the ledgers of several sites.

    The command prints every call that differs between them.
    """
    from dataclasses import asdict

    from multicentre.errors import IntegrityError
    from multicentre.privacy.ledger import read_ledger
    from multicentre.privacy.ledger_comparison import compare_ledgers

    paths = _ledgers_of_several(where)
    comparison = compare_ledgers({name: read_ledger(path) for name, path in paths.items()})
    if as_json:
        show_json({"sites": list(paths), **asdict(comparison)})
    else:
        show(
            f"{', '.join(paths)}: {comparison.n_calls} calls in at least two ledgers, "
            f"{len(comparison.differences)} differences"
        )
        if comparison.n_unknown:
            show(f"{comparison.n_unknown} entries contain no hash of the request")
        if comparison.differences:
            show(_differences(comparison.differences))
    if comparison.differences:
        notify("The sites received different requests. A site that was lost, refused or was left out also differs.")
        raise typer.Exit(IntegrityError.exit_code)


@app.command()
@handle_errors
def export(
    where: Where,
    site: Site = None,
    output: Annotated[Path | None, typer.Option(help="File to write; standard output by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write one CSV row per released field, for a spreadsheet."""
    from multicentre.core.storage import write_atomically
    from multicentre.privacy.ledger import read_ledger

    entries_by_site = {name: list(read_ledger(path)) for name, path in _ledgers(where, site).items()}
    n_entries = sum(len(entries) for entries in entries_by_site.values())
    if output is not None:
        write_atomically(output, _as_csv(entries_by_site).encode())
        notify(f"{n_entries:,} entries written to {output}")
    if as_json:
        show_json({"entries": n_entries, "output": str(output)} if output else entries_by_site)
    elif output is None:
        typer.echo(_as_csv(entries_by_site), nl=False)


@app.command()
@handle_errors
def repair(
    path: Annotated[Path, typer.Argument(metavar="LEDGER.jsonl", help="Ledger whose last line was cut off.")],
    identity: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The site's keys/identity, to sign an entry about the removal.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove an incomplete last line and record the removal.

    A crash can cut off the last line. All complete entries are kept.
    """
    from multicentre.privacy.ledger import repair_ledger
    from multicentre.privacy.secure_sum.identity import Identity

    head = repair_ledger(path, signer=None if identity is None else Identity.read(identity))
    if as_json:
        show_json({"entries": head.entries, "hash": head.hash})
    else:
        show(f"{path}: {head.entries} entries, ends with {head.hash}")


def _ledgers_of_several(where: list[str]) -> dict[str, Path]:
    """Return the ledgers of several paths by site; a path can be a run folder, a file, or NAME=FILE."""
    from multicentre.errors import ConfigurationError

    ledgers: dict[str, Path] = {}
    for place in where:
        name, is_named, path = place.rpartition("=")
        for site, ledger in _ledgers(Path(path), name if is_named else None).items():
            ledgers[site if site not in ledgers else str(ledger)] = ledger
    if len(ledgers) < 2:
        raise ConfigurationError(
            f"at least two ledgers must be given; got {len(ledgers)}",
            where=", ".join(where),
            hint="Give a run folder, or the ledgers of several sites as NAME=FILE.",
        )
    return ledgers


def _differences(differences: Sequence[Difference]) -> str:
    """Return a table of differences, one row per value that sites share."""
    rows = [["study", "session", "call", "step", "differs", "sites", "value"]]
    for one in differences:
        sites: dict[str, list[str]] = {}
        for site, value in one.values.items():
            sites.setdefault(value, []).append(site)
        place = [one.study, one.session, str(one.call), one.step, one.kind]
        rows += [[*place, ", ".join(names), value or "-"] for value, names in sites.items()]
    return align(rows)


def _as_csv(entries_by_site: dict[str, list[Entry]]) -> str:
    """Return the ledgers as one CSV table, with the site's name as the first column."""
    from multicentre.core.printable import inert
    from multicentre.privacy.ledger import ledger_as_csv

    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    for number, (name, entries) in enumerate(entries_by_site.items()):
        header, *rows = csv.reader(io.StringIO(ledger_as_csv(entries)))
        if number == 0:
            writer.writerow(["site", *header])
        writer.writerows([inert(name), *row] for row in rows)
    return page.getvalue()


def _ledgers(where: Path, site: str | None) -> dict[str, Path]:
    from multicentre.errors import ConfigurationError
    from multicentre.studies.run_folder import RunFolder

    if not where.exists():
        raise ConfigurationError("the path must exist", where=str(where), hint="Name a run folder or a ledger.jsonl.")
    if not where.is_dir():
        return {site or _site_of(where): where}
    ledgers = RunFolder.open(where).ledgers()
    if site is None:
        return ledgers
    if site not in ledgers:
        raise ConfigurationError(
            f"site must be one of {', '.join(ledgers)}; got {site!r}", where=str(where), hint="Correct the name."
        )
    return {site: ledgers[site]}


def _site_of(ledger: Path) -> str:
    """Return the name of the folder that holds a ledger; at a real site that folder is ``SITE/ledgers``."""
    folder = ledger.parent
    if folder.resolve().name == "ledgers":
        folder = folder.resolve().parent
    return folder.name or ledger.stem


def _table(entries: list[Entry]) -> str:
    from multicentre.privacy.ledger_text import COLUMNS, REQUESTER, describe_entry

    signed = any("requested_by" in entry for entry in entries)  # runs in one process have no requesting person
    columns = [*COLUMNS, REQUESTER] if signed else list(COLUMNS)
    texts = [describe_entry(entry) for entry in entries]
    return align([columns, *([text[column] for column in columns] for text in texts)])
