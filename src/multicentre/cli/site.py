"""``multicentre site``: keygen, approve, check, up, log."""

from __future__ import annotations

import signal
import sys
import threading
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multicentre.cli.console import AsJson, answering, show, show_json, tell

if TYPE_CHECKING:
    from multicentre.deployment.approvals import Approvals
    from multicentre.deployment.proposals import Proposal
    from multicentre.deployment.site import Site
    from multicentre.deployment.site_check import Examination

app = typer.Typer(
    help="Take part in studies as a hospital: keys, approvals, checks, and the process that answers the coordinator.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Option(metavar="DIR", help="The site's folder, with its site.toml.")]
_MARKS = {"ok": "ok   ", "note": "note ", "fault": "FAULT"}


class Mode(str, Enum):  # noqa: UP042  # typer reads it from Python 3.11 on
    """How letters come."""

    auto = "auto"
    standard = "standard"
    fast = "fast"


@app.command()
@answering
def keygen(
    name: Annotated[
        str, typer.Argument(help="The site's name, as studies write it, and the start of its card's file name.")
    ],
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A new folder; one of the site's name otherwise.")
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the coordinator is reached.")
    ] = "coordinator.example.org:443",
    as_json: AsJson = False,
) -> None:
    """Make a site's folder: its keys, its public card, and a commented site.toml."""
    from multicentre.deployment.new_site import make_site

    made = make_site(name, folder or Path(name), address)
    tell(
        f"Send {made.card_path.name} to the coordinator, tell the fingerprint by another way, "
        f"put the coordinator's ca.crt into the folder, and read {made.folder / 'site.toml'}."
    )
    if as_json:
        show_json({"folder": str(made.folder), "card": str(made.card_path), "fingerprint": made.card.fingerprint})
    else:
        show(f"folder       {made.folder}\ncard         {made.card_path}\nfingerprint  {made.card.fingerprint}")


@app.command()
@answering
def approve(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help="A bundle's SHA-256, or a file: bundle.toml, release.pub, roster.toml, study.toml, NAME.analyst.toml.",
        ),
    ],
    folder: Folder = Path(),
    analysts: Annotated[
        list[Path] | None,
        typer.Option("--for", metavar="NAME.analyst.toml", help="Studies for these analysts alone; repeatable."),
    ] = None,
    revoke: Annotated[
        bool,
        typer.Option("--revoke", help="Take back: a SHA-256, a fingerprint, a study's name, roster or signatures."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before approving; needed without a terminal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Approve what may run here, after showing what it is; nothing else ever does."""
    from multicentre.deployment import approvals
    from multicentre.deployment.proposals import recognise
    from multicentre.deployment.site import read_site
    from multicentre.deployment.site_service import card_of

    site = read_site(folder)
    known = approvals.read_approvals(site.approved)
    if revoke:
        for one in what:
            known = approvals.revoke(site.approved, one)
            tell(f"No longer approved: {one}")
    else:
        named = [recognise(str(one)) for one in analysts or []]
        _check_analysts(named)
        proposals = [*named, *(recognise(one) for one in what)]
        chosen = {proposal.fingerprint: proposal.name for proposal in named}
        for proposal in proposals:
            tell(_described(site, proposal, known, chosen))
        if not yes:
            _ask()
        for proposal in proposals:
            known = approvals.approve(site.approved, proposal, card_of(site), analysts=chosen)
    _show_approved(known, as_json)


@app.command()
@answering
def check(
    folder: Folder = Path(),
    offline: Annotated[bool, typer.Option("--offline", help="Do not look for the coordinator.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at all that a run needs, and print what each approved study would let out of this site."""
    from multicentre.deployment.site import read_site
    from multicentre.deployment.site_check import examine

    found = examine(read_site(folder), far=not offline)
    if as_json:
        show_json(_as_dict(found))
    else:
        for name, card in found.cards.items():
            show(f"{name}\n\n{card}\n")
        show(_listed(found))
    if found.exit_code:
        raise typer.Exit(found.exit_code)


@app.command()
@answering
def up(
    folder: Folder = Path(),
    mode: Annotated[Mode, typer.Option(help="fast needs what is internal to Flower; auto takes it where it can.")] = (
        Mode.auto
    ),
) -> None:
    """Answer the coordinator's letters until stopped (Ctrl-C, SIGTERM); nothing listens to the outside."""
    from multicentre.deployment.site import read_site
    from multicentre.deployment.site_check import examine
    from multicentre.deployment.site_process import serve

    site, stop = read_site(folder), threading.Event()

    def ready() -> None:
        found = examine(site, far=False, data=False)
        for finding in found.findings:
            if finding.level != "ok":
                tell(f"{finding.what}: {finding.said}")
        if found.exit_code:
            tell("The site does not start with faults: multicentre site check shows all.")
            raise typer.Exit(found.exit_code)
        for which in (signal.SIGTERM, signal.SIGINT):
            signal.signal(which, lambda *_: stop.set())

    serve(site, mode.value, report=tell, stop=stop, ready=ready)
    tell("Stopped.")


@app.command("log")
@answering
def show_log(
    folder: Folder = Path(),
    study: Annotated[str | None, typer.Option(metavar="NAME", help="One study; all otherwise.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print every release and refusal of this site, in all runs, oldest first; each ledger is verified on the way."""
    from multicentre.cli.ledger import show_ledger
    from multicentre.deployment.site import read_site
    from multicentre.privacy.ledger import read_ledger, verify_ledger

    site = read_site(folder)
    paths = _ledgers_of(site, study)
    for path in paths:
        verify_ledger(path, keys=[site.identity.public.hex()])
    found = {path: list(read_ledger(path)) for path in paths}
    names = {path: entries[0]["study"] if entries else path.stem for path, entries in found.items()}
    if as_json:
        return show_json({names[path]: entries for path, entries in found.items()})
    for path in paths:
        show_ledger(path, names[path])
    return None


def _ask() -> None:
    from multicentre.federation.errors import ConfigurationError

    if not _has_terminal():
        raise ConfigurationError(
            "nothing was approved: without a terminal nobody can be asked",
            where="site approve",
            hint="Read what is shown above; if all of it may run here, add --yes.",
        )
    if not typer.confirm("Approve?", err=True):
        raise typer.Exit(1)


def _has_terminal() -> bool:
    return sys.stdin.isatty()


def _ledgers_of(site: Site, study: str | None) -> list[Path]:
    from multicentre.federation.errors import ConfigurationError

    if study is None:
        return sorted(site.ledgers.glob("*.jsonl"))
    path = site.ledger_of(study)
    if not path.exists():
        raise ConfigurationError("this site has no ledger of the study", where=study, hint="No run was opened yet.")
    return [path]


def _check_analysts(named: list[Proposal]) -> None:
    from multicentre.federation.errors import ConfigurationError

    if other := [proposal.kind for proposal in named if proposal.kind != "analyst"]:
        raise ConfigurationError(
            f"--for must name an analyst's card; got a file of another kind ({other[0]})", where="site approve"
        )


def _described(site: Site, proposal: Proposal, known: Approvals, chosen: dict[str, str]) -> str:
    lines = [f"{proposal.kind} {proposal.name}".rstrip(), f"  fingerprint {proposal.fingerprint}"]
    if proposal.kind == "study":
        lines += [f"  {_who_runs(known, chosen)}"]
    if proposal.kind == "study":
        from multicentre.deployment.site_check import card_at
        from multicentre.deployment.site_service import study_at_site

        study = proposal.study()
        lines += [f"  reads {what} from {path}" for what, path in study_at_site(site, study).sites[site.name].items()]
        lines += ["", str(card_at(site, study)), ""]
    if proposal.kind == "roster":
        lines += _roster_lines(proposal, known)
    return "\n".join(lines)


def _who_runs(known: Approvals, chosen: dict[str, str]) -> str:
    """Return who may run a study once it is approved."""
    if chosen:
        names = ", ".join(f"{name} ({fingerprint})" for fingerprint, name in chosen.items())
        return f"run by these analysts alone: {names}"
    if known.analysts:
        names = ", ".join(f"{name} ({fingerprint})" for fingerprint, name in known.analysts.items())
        return f"run by every analyst who is approved here: {names}"
    if known.signed_only:
        return "run by nobody: runs need a signature, and no analyst is approved here any more"
    return "run by whoever the coordinator lets: no analyst is approved here, and requests need no signature"


def _roster_lines(proposal: Proposal, known: Approvals) -> list[str]:
    roster, before = proposal.roster(), known.roster()
    had = {} if before is None else {card.name: card.fingerprint for card in before.cards}
    lines = []
    for card in roster.cards:
        was = had.pop(card.name, None)
        note = "" if before is None or was == card.fingerprint else "  NEW" if was is None else "  KEYS CHANGED"
        lines.append(f"  {card.name}  {card.fingerprint}{note}")
    return [*lines, *(f"  {name}  no longer named" for name in had)]


def _show_approved(known: Approvals, as_json: bool) -> None:
    told: dict[str, Any] = {
        "apps": list(known.apps),
        "release_keys": list(known.release_keys),
        "roster": known.roster_sha256 or None,
        "studies": {
            name: {"sha256": one.sha256, "terms": one.terms, "analysts": list(one.analysts)}
            for name, one in known.studies.items()
        },
        "analysts": dict(known.analysts),
    }
    if as_json:
        return show_json(told)
    for kind, label in (("apps", "bundle"), ("release_keys", "release key")):
        for one in told[kind]:
            show(f"{label}  {one}")
    if known.roster_sha256:
        show(f"roster  {known.roster_sha256}")
    for name, one in known.studies.items():
        show(f"study {name}  {one.sha256}  terms {one.terms}")
        for fingerprint in one.analysts:
            show(f"  for analyst  {known.analysts.get(fingerprint, 'not approved any more')}  {fingerprint}")
    for fingerprint, name in known.analysts.items():
        show(f"analyst {name}  {fingerprint}")
    return None


def _listed(found: Examination) -> str:
    width = max(len(one.what) for one in found.findings)
    return "\n".join(f"{_MARKS[one.level]}  {one.what.ljust(width)}  {one.said}" for one in found.findings)


def _as_dict(found: Examination) -> dict[str, Any]:
    return {
        "ok": found.exit_code == 0,
        "exit_code": found.exit_code,
        "findings": [{"what": one.what, "level": one.level, "said": one.said} for one in found.findings],
        "cards": {name: card.to_dict() for name, card in found.cards.items()},
    }
