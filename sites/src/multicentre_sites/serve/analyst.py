"""Pages of a folder of studies and runs for an analyst, and of a coordinator's folder for its administrator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from multicentre.errors import MulticentreError
from multicentre.privacy.guarantee import rounded_up
from multicentre.privacy.policy import Policy
from multicentre.studies.file_card import card_of_file
from multicentre.studies.ledger_verification import Evidence, verify_ledgers
from multicentre.studies.run_folder import RunFolder
from multicentre.studies.run_state import RUNNING, RunReader, RunState
from multicentre.studies.study_file import read_study
from multicentre_sites.deployment.analysts import AdmittedAnalysts
from multicentre_sites.deployment.certificates import Fingerprints
from multicentre_sites.deployment.coordinator_folder import Consortium
from multicentre_sites.deployment.site_register import SiteRegister
from multicentre_sites.serve.forms import Form
from multicentre_sites.serve.rendering import Cell, Menu, Renderer, Table
from multicentre_sites.serve.run_lists import (
    RUN_PLACES,
    STUDY_PLACES,
    ListedRun,
    is_coordinator,
    list_runs,
    list_studies,
)
from multicentre_sites.serve.views import (
    brief_tables,
    budgets_of,
    card_table,
    cell_link,
    choose,
    ledger_page,
    letter_table,
)

REPORT = "report.html"
# Verification reads whole ledgers; a page of more runs would be slow.
_MAX_VERIFIED = 20
# The report brings its own styles and pictures; in a sandbox, it can neither run scripts nor use the session.
_REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"


class AnalystPages:
    """Pages of a folder of studies and runs.

    Parameters
    ----------
    folder : Path
    area : str
        First part of every path.
    """

    def __init__(self, folder: Path, area: str) -> None:
        self._folder = folder
        self._consortium = Consortium.read(folder) if is_coordinator(folder) else None
        pages = {"": "Runs", "studies": "Studies", "ledgers": "Ledgers", "budgets": "Budgets"}
        if self._consortium is not None:
            pages = {"": "Runs", "consortium": "Sites and analysts", "ledgers": "Ledgers"}
        role = "Analyst" if self._consortium is None else "Coordinator"
        self.renderer = Renderer(area, Menu(folder.name, role, pages))
        self.pages = {
            "/": self.runs,
            "/studies": self.studies,
            "/study": self.study,
            "/run": self.run,
            "/report": self.report,
            "/ledgers": self.ledgers,
            "/ledger": self.ledger,
            "/budgets": self.budgets,
            **({} if self._consortium is None else {"/consortium": self.consortium}),
        }
        self.forms: Mapping[str, Callable[[Request, Form], Response]] = {}

    def runs(self, request: Request) -> Response:
        """List the runs."""
        rows: list[list[Cell]] = [
            [
                cell_link(run.name, "run", name=run.name),
                run.fact("study"),
                run.fact("method"),
                run.fact("status"),
                run.fact("started"),
                run.fact("answer") or run.fact("message"),
            ]
            for run in list_runs(self._folder).values()
        ]
        columns = ["run", "study", "method", "status", "began", "answer or message"]
        empty = f"No runs. {RUN_PLACES}"
        return self.renderer.page(request, "runs", table=Table("Runs, newest first", columns, rows, empty))

    def studies(self, request: Request) -> Response:
        """List the study files of the folder."""
        rows: list[list[Cell]] = []
        for name, path in list_studies(self._folder).items():
            try:
                study = read_study(path)
                rows.append([cell_link(name, "study", name=name), study.name, study.method, ", ".join(study.sites)])
            except MulticentreError as error:
                rows.append([name, f"cannot be read: {error.with_notes}", "-", "-"])
        empty = f"The folder contains no study file. {STUDY_PLACES}"
        table = Table("Study files", ["file", "study", "method", "sites"], rows, empty)
        return self.renderer.page(request, "studies", table=table)

    def study(self, request: Request) -> Response:
        """Show the disclosure card of a study file, or of the study of a run."""
        query = request.query_params
        if "run" in query:
            run = choose(query["run"], list_runs(self._folder), "run")
            title, path = f"Study of {run.name}", run.path / "study.toml"
        else:
            title = query.get("name", "")
            path = choose(title, list_studies(self._folder), "study")
        brief, card = card_of_file(path)
        return self.renderer.page(
            request,
            "study",
            title=title,
            brief=brief,
            brief_tables=brief_tables(brief),
            card=card,
            card_table=card_table(card),
            letters=letter_table(card),
        )

    def run(self, request: Request) -> Response:
        """Show a run: its progress, its sites, what left and what was refused."""
        run = self._run(request)
        state = RunState()
        if run.has_events:
            reader = RunReader(run.path)
            reader.read()
            state = reader.state
        return self.renderer.page(
            request,
            "run",
            run=run,
            state=state,
            spent=_spent(state),
            loops=_loop_table(state),
            sites=_site_table(run, state),
            released=_release_table(state),
            refused=Table("Refusals", ["site", "step", "reason"], state.releases.refusals, "Nothing was refused."),
            has_report=(run.path / REPORT).is_file(),
            is_running=state.status == RUNNING if run.has_events else run.fact("status") == RUNNING,
        )

    def report(self, request: Request) -> Response:
        """Return the report of a run, in a sandbox."""
        path = self._run(request).path / REPORT
        choose(REPORT, {REPORT: path} if path.is_file() and not path.is_symlink() else {}, "report")
        page = path.read_text(encoding="utf-8")
        return HTMLResponse(page, headers={"Content-Security-Policy": _REPORT_POLICY})

    def ledgers(self, request: Request) -> Response:
        """List the ledgers of one run, or of the newest runs, with their verification."""
        rows: list[list[Cell]] = []
        runs = list_runs(self._folder)
        query = request.query_params
        listed = [choose(query["name"], runs, "run")] if "name" in query else list(runs.values())[:_MAX_VERIFIED]
        for run in listed:
            verification = _verification(run)
            ledgers = _ledgers(run)
            rows += [
                [cell_link(f"{run.name}, {site}", "ledger", name=run.name, site=site), verification.get(site, "")]
                for site in ledgers
            ]
            rows += [[f"{run.name}, {site}", text] for site, text in verification.items() if site not in ledgers]
        return self.renderer.page(
            request,
            "ledgers",
            table=Table("Ledgers of runs", ["ledger", "verification"], rows, "No ledgers."),
            note=""
            if len(listed) in (1, len(runs))
            else f"The newest {len(listed)} runs; others: by the page of the run.",
        )

    def ledger(self, request: Request) -> Response:
        """Show the ledger of a site in a run."""
        query, run = request.query_params, self._run(request)
        site = query.get("site", "")
        path = choose(site, _ledgers(run), "ledger")
        only = "refusals" if query.get("only") == "refusals" else ""
        return self.renderer.page(
            request,
            "ledger",
            title=f"Ledger of {site}, {run.name}",
            query={"name": run.name, "site": site},
            only=only,
            verification=_verification(run).get(site, "not verified"),
            ledger=ledger_page(path, query.get("page", ""), only),
        )

    def budgets(self, request: Request) -> Response:
        """Show the privacy budgets of the policies that the study files name."""
        policies: dict[str, tuple[Policy, Path]] = {}
        for name, path in list_studies(self._folder).items():
            try:
                study = read_study(path)
                policies |= {f"{name}, {site}": (policy, path) for site, policy in study.policies.items()}
            except MulticentreError:  # the list of studies states the reason
                continue
        return self.renderer.page(request, "budgets", budgets=budgets_of(policies))

    def consortium(self, request: Request) -> Response:
        """Show the sites, the analysts and the fingerprints of a coordinator."""
        assert self._consortium is not None
        consortium = self._consortium
        entries = SiteRegister.read(consortium.register).entries
        sites = [[one.card.name, one.state, one.since, one.card.fingerprint] for one in entries]
        analysts = [[one.name, one.fingerprint] for one in AdmittedAnalysts(consortium.analysts).cards]
        return self.renderer.page(
            request,
            "consortium",
            address=consortium.address,
            fingerprints=Fingerprints.of(consortium.public),
            sites=Table("Sites", ["site", "state", "since", "fingerprint"], sites, "No site is registered."),
            analysts=Table("Admitted analysts", ["analyst", "fingerprint"], analysts, "Nobody is admitted."),
        )

    def _run(self, request: Request) -> ListedRun:
        run: ListedRun = choose(request.query_params.get("name", ""), list_runs(self._folder), "run")
        return run


def _ledgers(run: ListedRun) -> dict[str, Path]:
    return RunFolder(run.path).ledgers()


def _verification(run: ListedRun) -> dict[str, str]:
    """Return the result of the verification by site, as ``multicentre ledger verify`` prints it."""
    ledgers = _ledgers(run)
    if run.fact("status") == RUNNING:
        return dict.fromkeys(ledgers, "verified when the run has ended")
    try:
        evidence = Evidence.of(run.path, (), ())
        verified = {site: str(one) for site, one in verify_ledgers(run.path, ledgers, evidence).items()}
    except MulticentreError as error:
        return dict.fromkeys(ledgers or {"-": run.path}, f"NOT INTACT: {error}")
    if verified:
        return verified
    return {
        site: f"at the site; it had {head.entries} entries and ended with {head.hash}"
        for site, head in evidence.recorded.items()
    }


def _spent(state: RunState) -> str:
    if not state.noised:
        return "none is spent: the study adds no noise"
    if not state.releases.noised:
        return "recorded at each site"
    epsilon, delta = state.releases.spent(state.sites_per_patient)
    return f"epsilon {rounded_up(epsilon)} at delta {delta:g} spent by this run"


def _loop_table(state: RunState) -> Table:
    rows = [
        [
            loop.name,
            f"{loop.number}" if loop.ended else f"{loop.number} of at most {loop.n_rounds}",
            f"{loop.objective} {loop.values[-1]:.6g}" if loop.values else "-",
            "-" if loop.change is None else f"{loop.change:+.3g}",
        ]
        for loop in state.loops.values()
    ]
    return Table("Rounds", ["fit", "rounds", "objective", "last change"], rows, "No rounds were recorded.")


def _site_table(run: ListedRun, state: RunState) -> Table:
    absences = {"lost": state.lost, "left out": state.left_out, "awaited": state.awaited}
    described = run.metadata.get("sites", [])
    names = state.sites or tuple(one["name"] for one in described if isinstance(one, dict) and "name" in one)
    rows = []
    for site in names:
        label = next((label for label, sites in absences.items() if site in sites), "answers")
        rows.append([site, label, absences.get(label, {}).get(site, "")])
    return Table("Sites", ["site", "state", "reason"], rows, "No site is named.")


def _release_table(state: RunState) -> Table:
    rows = [
        [
            step,
            str(max(row.times.values())),
            f"{row.numbers:,}",
            f"{row.n_bytes:,}",
            "-" if row.fewest is None else str(row.fewest),
            row.protection,
        ]
        for step, row in state.releases.rows.items()
    ]
    columns = ["step", "times", "numbers", "bytes", "fewest patients or records of a site", "left as"]
    empty = "The ledgers are at the sites: their stewards read them."
    return Table("What left the sites, over all sites", columns, rows, empty)
