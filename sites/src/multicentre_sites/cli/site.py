"""``multicentre site``: keys, approvals, checks, the site's process and its log."""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from multicentre.cli.console import AsJson, handle_errors, notify, show, show_json
from multicentre_sites.cli.status import Format, StatusFormat, show_status

if TYPE_CHECKING:
    from multicentre_sites.deployment.approvals import Approvals
    from multicentre_sites.deployment.proposals import Proposal
    from multicentre_sites.deployment.site_check import Examination
    from multicentre_sites.deployment.site_folder import Site

app = typer.Typer(
    help="Commands for hospitals: keys, approvals and the process.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Option(metavar="DIR", help="The site's folder, with site.toml.")]
_WORDS = {
    "approve": ("approval", "approved", "all of them may run here"),
    "reject": ("rejection", "rejected", "study and reason are right"),
}
_MARKS = {"ok": "ok   ", "note": "note ", "fault": "FAULT"}


class Mode(str, Enum):  # noqa: UP042  # typer reads it from Python 3.11 on
    """Transport of requests."""

    auto = "auto"
    standard = "standard"
    fast = "fast"


@app.command()
@handle_errors
def keygen(
    name: Annotated[str, typer.Argument(help="The site's name in studies, also used for the file name of its card.")],
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="New folder; by default named after the site.")
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the coordinator.")
    ] = "coordinator.example.org:443",
    as_json: AsJson = False,
) -> None:
    """Create a site's folder with keys, public card and site.toml."""
    from multicentre_sites.deployment.new_site_folder import make_site

    new_site = make_site(name, folder or Path(name), address)
    notify(
        f"Send {new_site.card_path.name} to the coordinator and compare the fingerprint by telephone. "
        f"Put the coordinator's ca.crt into the folder, and read {new_site.folder / 'site.toml'}."
    )
    if as_json:
        show_json(
            {"folder": str(new_site.folder), "card": str(new_site.card_path), "fingerprint": new_site.card.fingerprint}
        )
    else:
        show(
            f"folder       {new_site.folder}\ncard         {new_site.card_path}\n"
            f"fingerprint  {new_site.card.fingerprint}"
        )


@app.command()
@handle_errors
def approve(
    items: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WHAT...]",
            help="Bundle's SHA-256, or a file: bundle.toml, release.pub, roster.toml, study.toml, NAME.analyst.toml.",
            show_default=False,
        ),
    ] = None,
    folder: Folder = Path(),
    analysts: Annotated[
        list[Path] | None,
        typer.Option(
            "--for",
            metavar="NAME.analyst.toml",
            help="Allow studies for these analysts only, in place of earlier ones; repeatable.",
        ),
    ] = None,
    revoke: Annotated[
        bool,
        typer.Option("--revoke", help="Revoke a SHA-256, a fingerprint, a study's name, roster or signatures."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Approve without confirmation; required without a terminal.")
    ] = False,
    fields: Annotated[bool, typer.Option("--fields", help="Print every field that may leave.")] = False,
    as_json: AsJson = False,
) -> None:
    """Approve what may run at this site, or list the approvals.

    Without WHAT, the command lists the current approvals and rejections. Otherwise it shows each item and asks for
    confirmation. Only this command approves.
    """
    from multicentre_sites.deployment import approvals
    from multicentre_sites.deployment.proposal_review import review
    from multicentre_sites.deployment.proposals import recognise
    from multicentre_sites.deployment.site_service import card_of

    site = _site(folder)
    current = approvals.read_approvals(site.approved)
    if not items:
        _check_only_listed(revoke=revoke, analysts=analysts)
    elif revoke:
        for one in items:
            current = approvals.revoke(site.approved, one)
            notify(f"No longer approved: {one}")
    else:
        analyst_cards = [recognise(str(one)) for one in analysts or []]
        _check_analysts(analyst_cards)
        proposals = [*analyst_cards, *(recognise(one) for one in items)]
        chosen = {proposal.fingerprint: proposal.name for proposal in analyst_cards}
        for proposal in proposals:
            notify(review(site, proposal, current, chosen).text(fields=fields))
        if not yes:
            _ask("approve")
        for proposal in proposals:
            policy = site.policy_for(proposal.name)
            current = approvals.approve(site.approved, proposal, card_of(site), analysts=chosen, policy=policy)
    _show_approvals(current, as_json)


@app.command()
@handle_errors
def reject(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="File of the study.")],
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            metavar="TEXT",
            help="Reason, sent to everyone who asks to run the study here. Write no values of patients.",
        ),
    ],
    folder: Folder = Path(),
    yes: Annotated[
        bool, typer.Option("--yes", help="Reject without confirmation; required without a terminal.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Reject a study, with a reason for those who ask to run it.

    An approval of the same study ends, and so do its current runs. A later approval replaces the rejection.
    """
    from multicentre_sites.deployment import approvals
    from multicentre_sites.deployment.decisions import WHO_READS_IT, check_reason
    from multicentre_sites.deployment.proposals import recognise
    from multicentre_sites.deployment.site_service import card_of

    site, proposal, reason = _site(folder), recognise(str(study)), check_reason(reason)
    notify(f"{proposal.kind} {proposal.name}\n  fingerprint {proposal.fingerprint}\n  reason      {reason}")
    notify(WHO_READS_IT)
    if not yes:
        _ask("reject")
    _show_approvals(approvals.reject(site.approved, proposal, card_of(site), reason), as_json)


@app.command()
@handle_errors
def check(
    folder: Folder = Path(),
    offline: Annotated[bool, typer.Option("--offline", help="Skip the check of the coordinator.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check the requirements of a run and print disclosure cards.

    The cards list the fields that each approved study would release from this site.
    """
    from multicentre_sites.deployment.site_check import examine

    examination = examine(_site(folder), check_coordinator=not offline)
    if as_json:
        show_json(_as_dict(examination))
    else:
        for name, card in examination.cards.items():
            show(f"{name}\n\n{card}\n")
        show(_list_findings(examination))
    if examination.exit_code:
        raise typer.Exit(examination.exit_code)


@app.command()
@handle_errors
def up(
    folder: Folder = Path(),
    mode: Annotated[Mode, typer.Option(help="fast uses internals of Flower; auto uses fast if possible.")] = (
        Mode.auto
    ),
) -> None:
    """Answer the coordinator's requests until Ctrl-C or SIGTERM.

    The process opens no port to the outside.
    """
    from multicentre_sites.deployment.site_check import examine
    from multicentre_sites.deployment.site_process import serve

    site, stop = _site(folder), threading.Event()

    def ready() -> None:
        examination = examine(site, check_coordinator=False, check_data=False)
        for finding in examination.findings:
            if finding.level != "ok":
                notify(f"{finding.subject}: {finding.detail}")
        if examination.exit_code:
            notify("The site does not start: fix the faults above. multicentre site check lists all of them.")
            raise typer.Exit(examination.exit_code)
        for which in (signal.SIGTERM, signal.SIGINT):
            signal.signal(which, lambda *_: stop.set())

    serve(site, mode.value, report=notify, stop=stop, ready=ready)
    notify("Stopped.")


@app.command()
@handle_errors
def status(folder: Folder = Path(), chosen: Format = StatusFormat.text, as_json: AsJson = False) -> None:
    """Print the site's state for monitoring.

    The exit status is 3 if it does not work. The coordinator is not asked, and nothing is written.
    """
    from multicentre_sites.deployment.site_folder import read_site
    from multicentre_sites.deployment.status import site_status

    show_status("site", site_status(read_site(folder)), chosen, as_json)


@app.command("log")
@handle_errors
def show_log(
    folder: Folder = Path(),
    study: Annotated[str | None, typer.Option(metavar="NAME", help="Study; all studies by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print all releases and refusals of this site, oldest first.

    The output covers all runs. Each ledger is verified.
    """
    from multicentre.cli.ledger import show_ledger
    from multicentre.privacy.ledger import read_ledger, verify_ledger

    site = _site(folder)
    paths = _ledgers_of(site, study)
    for path in paths:
        verify_ledger(path, keys=[site.identity.public.hex()])
    entries_by_path = {path: list(read_ledger(path)) for path in paths}
    names = {path: entries[0]["study"] if entries else path.stem for path, entries in entries_by_path.items()}
    if as_json:
        return show_json({names[path]: entries for path, entries in entries_by_path.items()})
    for path in paths:
        show_ledger(path, names[path])
    return None


@app.command()
@handle_errors
def acknowledge(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Study whose ledger lost entries.")],
    folder: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Acknowledge the loss of entries of a ledger.

    Runs can then continue. The site must be stopped. Ends that other parties recorded contradict the ledger for ever.
    """
    from multicentre.privacy.ledger_witnesses import acknowledge_loss
    from multicentre_sites.deployment.site_opening import open_ledger
    from multicentre_sites.deployment.site_process import site_lock

    site = _site(folder)
    (path,) = _ledgers_of(site, study)
    with site_lock(site):
        entries, digest = acknowledge_loss(open_ledger(site, study, repair=True))
    if as_json:
        return show_json({"study": study, "entries": entries, "hash": digest})
    return show(f"{path}: the loss of the end after entry {entries} ({digest}) is acknowledged.")


def _site(folder: Path) -> Site:
    """Read a site's folder, and use it for temporary files and compiled kernels if the system provides none."""
    from multicentre.core.disk import use_folder
    from multicentre_sites.deployment.site_folder import read_site

    site = read_site(folder)
    use_folder(site.folder)
    return site


def _ask(action: Literal["approve", "reject"]) -> None:
    from multicentre.errors import ConfigurationError

    noun, participle, condition = _WORDS[action]
    if not _has_terminal():
        raise ConfigurationError(
            f"{noun} must be confirmed at a terminal; nothing was {participle}",
            where=f"site {action}",
            hint=f"Read the items above; if {condition}, add --yes.",
        )
    if not typer.confirm(f"{action.capitalize()}?", err=True):
        raise typer.Exit(1)


def _has_terminal() -> bool:
    return sys.stdin.isatty()


def _ledgers_of(site: Site, study: str | None) -> list[Path]:
    from multicentre.errors import ConfigurationError

    if study is None:
        return sorted(site.ledgers.glob("*.jsonl"))
    path = site.ledger_of(study)
    if not path.exists():
        raise ConfigurationError(
            "the study must have a ledger at this site; it has none",
            where=study,
            hint="Correct the name, or wait for the first run.",
        )
    return [path]


def _check_only_listed(*, revoke: bool, analysts: list[Path] | None) -> None:
    """Raise ConfigurationError if an option needs an item to approve or revoke."""
    from multicentre.errors import ConfigurationError

    if revoke or analysts:
        raise ConfigurationError(
            f"{'--revoke' if revoke else '--for'} must come with WHAT; got none",
            where="site approve",
            hint="Name an item, or leave the option out to list the approvals.",
        )


def _check_analysts(analyst_cards: list[Proposal]) -> None:
    from multicentre.errors import ConfigurationError

    if other := [proposal.kind for proposal in analyst_cards if proposal.kind != "analyst"]:
        raise ConfigurationError(
            f"--for must name an analyst's card; got a file of another kind ({other[0]})",
            where="site approve",
            hint="Name a file NAME.analyst.toml.",
        )


def _show_approvals(approvals: Approvals, as_json: bool) -> None:
    content: dict[str, Any] = {
        "apps": list(approvals.apps),
        "release_keys": list(approvals.release_keys),
        "roster": approvals.roster_sha256 or None,
        "studies": {
            name: {"sha256": one.sha256, "terms": one.terms, "analysts": list(one.analysts)}
            for name, one in approvals.studies.items()
        },
        "analysts": dict(approvals.analysts),
        "rejections": [asdict(one) for one in approvals.rejections],
        "decisions": [asdict(one) for one in approvals.decisions],
    }
    if as_json:
        return show_json(content)
    if not any(value for name, value in content.items() if name != "decisions"):
        return show("Nothing is approved or rejected at this site.")
    for kind, label in (("apps", "bundle"), ("release_keys", "release key")):
        for one in content[kind]:
            show(f"{label}  {one}")
    if approvals.roster_sha256:
        show(f"roster  {approvals.roster_sha256}")
    for name, one in approvals.studies.items():
        show(f"study {name}  {one.sha256}  terms {one.terms}")
        for fingerprint in one.analysts:
            show(f"  for analyst  {approvals.analysts.get(fingerprint, 'not approved any more')}  {fingerprint}")
    for rejection in approvals.rejections:
        show(f"rejected {rejection.study}  {rejection.sha256}  terms {rejection.terms}")
        show(f"  {rejection.time}  {rejection.reason}")
    for fingerprint, name in approvals.analysts.items():
        show(f"analyst {name}  {fingerprint}")
    return None


def _list_findings(examination: Examination) -> str:
    width = max(len(one.subject) for one in examination.findings)
    return "\n".join(f"{_MARKS[one.level]}  {one.subject.ljust(width)}  {one.detail}" for one in examination.findings)


def _as_dict(examination: Examination) -> dict[str, Any]:
    return {
        "ok": examination.exit_code == 0,
        "exit_code": examination.exit_code,
        "findings": [{"what": one.subject, "level": one.level, "said": one.detail} for one in examination.findings],
        "cards": {name: card.to_dict() for name, card in examination.cards.items()},
    }
