"""Pages of a site's folder for its steward: findings, proposals, approvals, ledgers and budgets."""

from __future__ import annotations

import dataclasses
import hmac
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from multicentre.errors import ConfigurationError, MulticentreError
from multicentre.privacy.ledger import read_ledger, verify_ledger
from multicentre_sites.deployment.approvals import Approvals, ApprovedStudy, read_approvals
from multicentre_sites.deployment.approvals import approve as approve_proposal
from multicentre_sites.deployment.approvals import reject as reject_study
from multicentre_sites.deployment.approvals import revoke as revoke_approval
from multicentre_sites.deployment.decisions import MAX_CHARACTERS, WHO_READS_IT, check_reason
from multicentre_sites.deployment.proposal_review import Review, review
from multicentre_sites.deployment.proposals import Proposal
from multicentre_sites.deployment.proposed_files import (
    FOLDER,
    find_proposed,
    read_proposed,
    remove_proposed,
    store_proposed,
)
from multicentre_sites.deployment.site_check import brief_at, card_at, examine
from multicentre_sites.deployment.site_folder import Site, read_again
from multicentre_sites.deployment.site_service import card_of, study_at_site
from multicentre_sites.serve.forms import Form
from multicentre_sites.serve.rendering import Cell, Menu, Renderer, Table
from multicentre_sites.serve.views import (
    brief_tables,
    budgets_of,
    card_table,
    cell_link,
    choose,
    ledger_page,
    letter_table,
)

_CHANGED = (
    "Nothing was approved or rejected: the proposal, your policy or your approvals have changed since the page was "
    "displayed. Read this page, which shows the present state."
)
_UNCONFIRMED = "Nothing was approved: tick the box of the confirmation first."
_REVOCABLE = ("apps", "release_keys", "studies", "analysts")


class StewardPages:
    """Pages of one site.

    Parameters
    ----------
    site : Site
    area : str
        First part of every path.
    """

    def __init__(self, site: Site, area: str) -> None:
        self._site = site
        pages = {
            "": "Overview",
            "studies": "Studies",
            "approvals": "Approvals",
            "ledgers": "Ledgers",
            "budgets": "Budgets",
        }
        self.renderer = Renderer(area, Menu(site.name, "Steward of a site", pages))
        self.pages = {
            "/": self.overview,
            "/studies": self.studies,
            "/study": self.study,
            "/proposal": self.proposal,
            "/approvals": self.approvals,
            "/revoke": self.revocation,
            "/ledgers": self.ledgers,
            "/ledger": self.ledger,
            "/budgets": self.budgets,
        }
        self.forms = {
            "/upload": self.upload,
            "/approve": self.approve,
            "/reject": self.reject,
            "/remove": self.remove,
            "/revoke": self.revoke,
        }

    @property
    def site(self) -> Site:
        """Site with its current settings."""
        return read_again(self._site)

    def overview(self, request: Request) -> Response:
        """Show the checks of the site and its policy."""
        site = self.site
        examination = examine(site, check_coordinator=False, check_data=False)
        findings = [[one.subject, one.level.upper(), one.detail] for one in examination.findings]
        policy = site.policy_for("")
        terms = [[name, _text(value)] for name, value in dataclasses.asdict(policy).items()]
        return self.renderer.page(
            request,
            "steward_overview",
            site=site,
            fingerprint=card_of(site).fingerprint,
            n_proposed=len(read_proposed(site)),
            findings=Table("Checks", ["subject", "result", "detail"], findings),
            terms=Table("Policy of this site", ["key", "value"], terms),
        )

    def studies(self, request: Request) -> Response:
        """List proposals, approved and rejected studies, with a form for a new file."""
        site = self.site
        current = read_approvals(site.approved)
        waiting: list[list[Cell]] = [
            [
                cell_link(_title(file.proposal), "proposal", sha256=file.sha256)
                if file.proposal
                else f"cannot be approved: {file.objection}",
                file.path.name,
                file.proposal.fingerprint if file.proposal else "-",
            ]
            for file in read_proposed(site)
        ]
        approved: list[list[Cell]] = [
            [cell_link(name, "study", name=name), one.time, _analysts(one, current)]
            for name, one in current.studies.items()
        ]
        rejected = [[one.study, one.time, one.reason, one.sha256] for one in current.rejections]
        return self.renderer.page(
            request,
            "steward_studies",
            folder=FOLDER,
            waiting=Table("Waiting for a decision", ["proposal", "file", "fingerprint"], waiting, "Nothing waits."),
            approved=Table(
                "Approved studies", ["study", "approved", "may be run by"], approved, "No study is approved."
            ),
            rejected=Table(
                "Rejected studies", ["study", "rejected", "reason", "SHA-256"], rejected, "No study is rejected."
            ),
        )

    def study(self, request: Request) -> Response:
        """Show an approved study: its card under the present policy."""
        site, name = self.site, request.query_params.get("name", "")
        current = read_approvals(site.approved)
        approved = choose(name, current.studies, "study")
        study = current.study(name)
        card, brief = card_at(site, study), brief_at(site, study, asked_by=_analysts(approved, current))
        return self.renderer.page(
            request,
            "steward_study",
            brief=brief,
            brief_tables=brief_tables(brief),
            name=name,
            approved=approved,
            analysts=_analysts(approved, current),
            files=study_at_site(site, study).sites[site.name],
            card=card,
            card_table=card_table(card),
            letters=letter_table(card),
            has_ledger=site.ledger_of(name).exists(),
        )

    def proposal(self, request: Request) -> Response:
        """Show everything that an approval would permit, with the form to approve it."""
        site = self.site
        return self._review_page(
            request, site, request.query_params.get("sha256", ""), request.query_params.getlist("analyst")
        )

    def upload(self, request: Request, form: Form) -> Response:
        """Store a file among the proposals, and show it; nothing is approved."""
        content = form.files.get("file", b"")
        if not content:
            raise ConfigurationError("a file must be chosen; got none", hint="Choose a file, then send it.")
        file = store_proposed(self.site, content)
        return self.renderer.redirect("proposal", sha256=file.sha256)

    def approve(self, request: Request, form: Form) -> Response:
        """Approve what the page displayed; if it has changed since, display it again."""
        site, sha256, fingerprints = self.site, form.text("sha256"), form.values.get("analyst", ())
        chosen_review, chosen = self._review(site, sha256, fingerprints)
        if not hmac.compare_digest(form.text("reviewed"), chosen_review.digest):
            return self._review_page(request, site, sha256, fingerprints, status=409, alert=_CHANGED)
        if form.values.get("confirmed") != ["yes"]:
            return self._review_page(request, site, sha256, fingerprints, status=400, alert=_UNCONFIRMED)
        proposal = chosen_review.proposal
        policy = site.policy_for(proposal.name)
        approve_proposal(site.approved, proposal, card_of(site), analysts=chosen, policy=policy)
        remove_proposed(site, sha256)
        if chosen_review.proposal.kind == "study":
            return self.renderer.redirect("study", name=chosen_review.proposal.name)
        return self.renderer.redirect("approvals")

    def reject(self, request: Request, form: Form) -> Response:
        """Reject the study that the page displayed; if it has changed since, display it again."""
        site, sha256, fingerprints = self.site, form.text("sha256"), form.values.get("analyst", ())
        reason = " ".join(form.text("reason").split("\r\n"))  # the line breaks of a text area
        chosen_review, _ = self._review(site, sha256, fingerprints)
        if not hmac.compare_digest(form.text("reviewed"), chosen_review.digest):
            return self._review_page(
                request, site, sha256, fingerprints, status=409, alert=_CHANGED, reason=reason[:MAX_CHARACTERS]
            )
        try:
            check_reason(reason)
        except ConfigurationError as error:
            alert = f"Nothing was rejected: {error.what}."
            return self._review_page(
                request, site, sha256, fingerprints, status=400, alert=alert, reason=reason[:MAX_CHARACTERS]
            )
        reject_study(site.approved, chosen_review.proposal, card_of(site), reason)
        remove_proposed(site, sha256)
        return self.renderer.redirect("studies")

    def remove(self, request: Request, form: Form) -> Response:
        """Remove a proposal without a decision."""
        remove_proposed(self.site, form.text("sha256"))
        return self.renderer.redirect("studies")

    def approvals(self, request: Request) -> Response:
        """List all approvals."""
        site = self.site
        current = read_approvals(site.approved)
        roster = current.roster()
        decisions = [
            [one.time, one.study, one.decision, one.reason or "-", one.sha256] for one in reversed(current.decisions)
        ]
        cards = [] if roster is None else [[card.name, card.fingerprint] for card in roster.cards]
        tables = [
            Table(
                "Studies", ["study", "SHA-256", ""], _rows({n: s.sha256 for n, s in current.studies.items()}), "None."
            ),
            Table("Analysts", ["fingerprint", "name", ""], _rows(current.analysts), "None."),
            Table("Bundles", ["SHA-256", "approved", ""], _rows(current.apps), "None."),
            Table("Release keys", ["fingerprint", "key", ""], _rows(current.release_keys), "None."),
            Table(f"Pinned roster {current.roster_sha256}".rstrip(), ["site", "fingerprint"], cards, "None."),
            Table(
                "Decisions about studies, newest first",
                ["time", "study", "decision", "reason", "SHA-256"],
                decisions,
                "None.",
            ),
        ]
        return self.renderer.page(request, "steward_approvals", tables=tables, current=current)

    def revocation(self, request: Request) -> Response:
        """Ask for a confirmation before an approval is revoked."""
        current = read_approvals(self.site.approved)
        name = request.query_params.get("name", "")
        choose(name, _revocable(current), "approval")
        return self.renderer.page(request, "steward_revoke", name=name, kind=_revocable(current)[name])

    def revoke(self, request: Request, form: Form) -> Response:
        """Revoke an approval."""
        revoke_approval(self.site.approved, form.text("name"))
        return self.renderer.redirect("approvals")

    def ledgers(self, request: Request) -> Response:
        """List the ledgers of all studies with their verification."""
        site = self.site
        rows: list[list[Cell]] = [
            [cell_link(name, "ledger", name=name), self._verification(path)] for name, path in _ledgers(site).items()
        ]
        table = Table("Ledgers of this site", ["study", "verification"], rows, "No study has run here.")
        return self.renderer.page(request, "ledgers", table=table, note="")

    def ledger(self, request: Request) -> Response:
        """Show the ledger of a study."""
        query = request.query_params
        name = query.get("name", "")
        path = choose(name, _ledgers(self.site), "ledger")
        only = "refusals" if query.get("only") == "refusals" else ""
        return self.renderer.page(
            request,
            "ledger",
            title=f"Ledger of {name}",
            query={"name": name},
            only=only,
            verification=self._verification(path),
            ledger=ledger_page(path, query.get("page", ""), only),
        )

    def budgets(self, request: Request) -> Response:
        """Show the privacy budgets of the site's policies."""
        site = self.site
        names = ["", *read_approvals(site.approved).studies]
        policies = {name or "site": (site.policy_for(name), site.rules_for(name)[-1]) for name in names}
        return self.renderer.page(request, "budgets", budgets=budgets_of(policies))

    def _verification(self, path: Path) -> str:
        try:
            head = verify_ledger(path, keys=[self._site.identity.public.hex()])
        except MulticentreError as error:
            return f"NOT INTACT: {error}"
        return f"intact and signed by this site: {head.entries} entries, ends with {head.hash}"

    def _review(self, site: Site, sha256: str, fingerprints: Sequence[str]) -> tuple[Review, dict[str, str]]:
        file, current = find_proposed(site, sha256), read_approvals(site.approved)
        if file.proposal is None:
            raise ConfigurationError(f"the file cannot be approved: {file.objection}", where=file.path.name)
        chosen = {one: choose(one, current.analysts, "analyst") for one in fingerprints}
        return review(site, file.proposal, current, chosen), chosen

    def _review_page(
        self,
        request: Request,
        site: Site,
        sha256: str,
        fingerprints: Sequence[str],
        *,
        status: int = 200,
        alert: str = "",
        reason: str = "",
    ) -> Response:
        chosen_review, chosen = self._review(site, sha256, fingerprints)
        card = chosen_review.card
        sites = [[one.name, one.fingerprint, one.change] for one in chosen_review.sites]
        return self.renderer.page(
            request,
            "steward_proposal",
            status=status,
            review=chosen_review,
            title=_title(chosen_review.proposal),
            sha256=sha256,
            chosen=chosen,
            analysts=read_approvals(site.approved).analysts,
            card=card,
            brief=chosen_review.brief,
            brief_tables=None if chosen_review.brief is None else brief_tables(chosen_review.brief),
            card_table=None if card is None else card_table(card),
            letters=None if card is None else letter_table(card),
            sites=Table("Sites of the roster", ["site", "fingerprint", "change"], sites),
            alert=alert,
            reason=reason,
            longest_reason=MAX_CHARACTERS,
            readers=WHO_READS_IT,
        )


def _title(proposal: Proposal) -> str:
    return f"{proposal.kind} {proposal.name}".rstrip()


def _text(value: object) -> str:
    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _analysts(approved: ApprovedStudy, current: Approvals) -> str:
    if not approved.analysts:
        return "every approved analyst" if current.signed_only else "everyone whom the coordinator admits"
    return ", ".join(f"{current.analysts.get(one, 'not approved any more')} ({one})" for one in approved.analysts)


def _rows(entries: Mapping[str, str]) -> list[list[Cell]]:
    return [[name, value, cell_link("revoke", "revoke", name=name)] for name, value in entries.items()]


def _revocable(current: Approvals) -> dict[str, str]:
    """Return the kind of everything that can be revoked, by name."""
    kinds = dict(zip(_REVOCABLE, ("bundle", "release key", "study", "analyst"), strict=True))
    names = {name: kinds[kind] for kind in _REVOCABLE for name in getattr(current, kind)}
    return names | ({"roster": "pinned roster"} if current.roster_sha256 else {})


def _ledgers(site: Site) -> dict[str, Path]:
    """Return the ledgers of a site by the name of their study."""
    ledgers = {}
    for path in sorted(site.ledgers.glob("*.jsonl")):
        try:
            first = next(iter(read_ledger(path)), None)
        except MulticentreError:
            first = None
        ledgers[path.stem if first is None else str(first.get("study", path.stem))] = path
    return ledgers
