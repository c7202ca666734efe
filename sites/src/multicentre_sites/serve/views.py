"""Contents of pages that several roles use: cards, ledgers and budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multicentre.errors import ConfigurationError, MulticentreError
from multicentre.privacy.budget_summary import COLUMNS as SPENDING
from multicentre.privacy.budget_summary import accounts_of, summarise_budget
from multicentre.privacy.card import DisclosureCard
from multicentre.privacy.guarantee import rounded_down, rounded_up
from multicentre.privacy.ledger import Entry, read_ledger
from multicentre.privacy.ledger_text import COLUMNS, REQUESTER, describe_entry
from multicentre.privacy.policy import Policy
from multicentre.studies.brief import VARIABLE_COLUMNS, Brief
from multicentre_sites.serve.rendering import Cell, Link, Table

# Entries of one page: more are hard to read and slow to load.
PER_PAGE = 100
_CARD_COLUMNS = {
    "analysis": "analysis",
    "step": "step",
    "field": "field",
    "what": "meaning",
    "when": "how often",
    "shape": "shape",
    "unit": "unit",
    "seen": "who can see it",
    "span": "range, rounding of the sum",
    "noise": "noise",
}


def card_table(card: DisclosureCard) -> Table:
    """Return every field of a card; columns without entries are left out."""
    columns = {name: head for name, head in _CARD_COLUMNS.items() if any(getattr(line, name) for line in card.lines)}
    rows = [
        [*(getattr(line, name) for name in columns), "yes" if line.answered else "REFUSED by the policy"]
        for line in card.lines
    ]
    caption = f"Every field that would leave ({len(card.lines)})"
    return Table(caption, [*columns.values(), "leaves"], rows, "No field leaves.")


def brief_tables(brief: Brief) -> tuple[Table, Table, Table]:
    """Return the tables of variables, analyses and parameters of a study; columns without entries are left out."""
    rows = brief.variable_rows
    used = [place for place in range(len(VARIABLE_COLUMNS)) if any(row[place] != "-" for row in rows)]
    variables: list[list[Cell]] = [[row[place] for place in used] for row in rows]
    analyses: list[list[Cell]] = [list(row) for row in brief.analysis_rows]
    parameters: list[list[Cell]] = [list(row) for row in brief.parameter_rows]
    heads = [VARIABLE_COLUMNS[place] for place in used]
    return (
        Table(f"Variables that it uses ({len(rows)})", heads, variables, "It names no variable."),
        Table(f"Analyses ({len(analyses)})", ["analysis", "asks"], analyses, "It has no analysis."),
        Table("Parameters of the analyses", ["analysis", "parameters"], parameters),
    )


def letter_table(card: DisclosureCard) -> Table:
    """Return the meanings of the letters in the shapes."""
    rows = [[one.letter, one.meaning, one.number] for one in card.used_letters]
    return Table("Letters in the shapes", ["letter", "meaning", "number"], rows)


@dataclass(frozen=True)
class LedgerPage:
    """Part of a ledger.

    Parameters
    ----------
    table : Table
    runs : Table
        Runs that the ledger records.
    number, n_pages : int
        Number of the page from 1, and number of pages.
    n_entries, n_refusals : int
        Of the whole ledger.
    """

    table: Table
    runs: Table
    number: int
    n_pages: int
    n_entries: int
    n_refusals: int


def ledger_page(path: Path, number: str, only: str) -> LedgerPage:
    """Return a page of a ledger, the newest entries first.

    Parameters
    ----------
    path : Path
    number : str
        Number of the page; an invalid one is the first page.
    only : {"", "refusals"}

    Raises
    ------
    IntegrityError
        An entry was changed, removed or inserted.
    """
    entries = list(read_ledger(path))
    refusals = [entry for entry in entries if _is_refusal(entry)]
    chosen = refusals if only == "refusals" else entries
    n_pages = max(-(-len(chosen) // PER_PAGE), 1)
    place = int(number) if number.isdecimal() and 1 <= int(number) <= n_pages else 1
    part = list(reversed(chosen))[(place - 1) * PER_PAGE : place * PER_PAGE]
    return LedgerPage(ledger_table(part), run_table(entries), place, n_pages, len(entries), len(refusals))


def ledger_table(entries: Sequence[Entry]) -> Table:
    """Return entries of a ledger as a table."""
    signed = any("requested_by" in entry for entry in entries)
    columns = [*COLUMNS, REQUESTER] if signed else list(COLUMNS)
    texts = [describe_entry(entry) for entry in entries]
    rows = [[text[column] for column in columns] for text in texts]
    return Table("Entries, newest first", columns, rows, "No entries.")


def run_table(entries: Sequence[Entry]) -> Table:
    """Return the runs that a ledger records, the newest first.

    The sessions of a run share the part of their names before the first dot.
    """
    runs: dict[str, list[Entry]] = {}
    for entry in entries:
        if session := entry.get("session"):
            runs.setdefault(str(session).partition(".")[0], []).append(entry)
    rows = [
        [
            run,
            str(of_run[0].get("time", "-")),
            str(of_run[-1].get("time", "-")),
            ", ".join(dict.fromkeys(describe_entry(entry)[REQUESTER] for entry in of_run)),
            ", ".join(dict.fromkeys(str(entry["method"]) for entry in of_run if "method" in entry)),
            str(sum(entry.get("event") == "release" for entry in of_run)),
            str(sum(map(_is_refusal, of_run))),
        ]
        for run, of_run in reversed(runs.items())
    ]
    columns = ["run", "first entry", "last entry", "asked by", "methods", "releases", "refusals"]
    return Table("Runs", columns, rows, "No run is recorded.")


def _is_refusal(entry: Entry) -> bool:
    return entry.get("event") in ("refusal", "failure")


@dataclass(frozen=True)
class Budget:
    """Budget of one account.

    Parameters
    ----------
    name : str
    summary : mapping
        See :func:`summarise_budget`; empty if the account cannot be read.
    table : Table
    problem : str
    """

    name: str
    summary: Mapping[str, Any]
    table: Table
    problem: str = ""

    @property
    def spent(self) -> str:
        """Spent epsilon, rounded up."""
        return rounded_up(self.summary["spent_epsilon"])

    @property
    def left(self) -> str:
        """Epsilon of a plan of Gaussian noise that still fits, rounded down."""
        return rounded_down(self.summary["left_epsilon"])


def budgets_of(policies: Mapping[str, tuple[Policy, Path]]) -> list[Budget]:
    """Return the budgets of policies that have one, each account once.

    Parameters
    ----------
    policies : mapping of str to (Policy, Path)
        Policy and its file by label.
    """
    budgets: dict[Path, Budget] = {}
    for label, (policy, where) in policies.items():
        if policy.epsilon is None or policy.account is None:
            continue
        try:
            for path in accounts_of(policy, where):
                budgets.setdefault(path, _budget(label, policy, path))
        except MulticentreError as error:
            budgets.setdefault(where, Budget(label, {}, Table("", [], []), str(error)))
    return list(budgets.values())


def _budget(label: str, policy: Policy, path: Path) -> Budget:
    summary = summarise_budget(policy, path)
    rows = [[str(entry[name]) for name in SPENDING] for entry in summary["entries"]]
    return Budget(f"{label}: {path.name}", summary, Table("Spending", SPENDING, rows, "Nothing has been spent."))


def choose(name: str, choices: Mapping[str, Any], what: str) -> Any:
    """Return one of several values by the name in a request; the name is never part of a path.

    Raises
    ------
    ConfigurationError
        There is no such name.
    """
    if name not in choices:
        raise ConfigurationError(f"the {what} must exist; got another name", where=name[:100], hint="Follow a link.")
    return choices[name]


def cell_link(text: str, page: str, /, **query: str) -> Link:
    """Return a cell that leads to a page."""
    return Link(text, page, query)
