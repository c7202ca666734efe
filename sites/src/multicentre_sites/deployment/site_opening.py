"""Files of a site that every run opens. Runs, ``site check`` and ``site up`` open them by the same function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multicentre.core.disk import check_space
from multicentre.errors import IntegrityError
from multicentre.privacy.charging import Charging
from multicentre.privacy.cohort_memory import CohortMemory, is_begun
from multicentre.privacy.ledger import Ledger, repair_ledger
from multicentre.privacy.ledger_witnesses import Witness
from multicentre.privacy.policy import Policy
from multicentre.privacy.policy_strictness import check_as_strict
from multicentre.privacy.run_ledgers import terms_of
from multicentre_sites.deployment.approvals import ApprovedStudy
from multicentre_sites.deployment.signed_runs import OpenedRuns
from multicentre_sites.deployment.site_folder import Site


@dataclass(frozen=True)
class StudyFiles:
    """Files of a study at a site: the policy in force, the ledger, and the ends of the peers' ledgers."""

    policy: Policy
    ledger: Ledger
    witness: Witness


def open_study_files(
    site: Site, study: str, approved: ApprovedStudy, previous: StudyFiles | None = None, *, repair: bool
) -> StudyFiles:
    """Open the files that a run of a study needs, and check what would refuse the run later.

    Parameters
    ----------
    site : Site
    study : str
    approved : ApprovedStudy
    previous : StudyFiles, optional
        Files that this process opened before; ledger and ends are used again.
    repair : bool
        Set aside a last entry of the ledger that a crash cut off. A check, next to which a run may write, does not.

    Raises
    ------
    MulticentreError
        A file is missing where an earlier run left one, is damaged, may be changed by other accounts or cannot be
        written; or the policy is weaker than at the approval.
    """
    policy = site.policy_for(study)
    check_as_strict(approved.policy, terms_of(policy)["policy"], study)
    check_space((site.folder, site.ledgers, site.state))
    ledger = open_ledger(site, study, repair=repair) if previous is None else previous.ledger
    witness = Witness(site.name, ledger) if previous is None else previous.witness
    witness.check_ledger()
    OpenedRuns(site.opened).check(was_used=_was_signed(ledger))
    _check_memories(ledger, policy, study)
    return StudyFiles(policy, ledger, witness)


def open_ledger(site: Site, study: str, *, repair: bool) -> Ledger:
    """Open the ledger of a study at a site.

    Raises
    ------
    IntegrityError
        An entry was changed, removed, inserted, or not signed with the site's identity.
    """
    if not repair and not site.ledgers.exists():
        return Ledger(study=study)  # a check before the first run leaves no folder
    path, signer = site.ledger_of(study), site.identity
    if repair and path.exists():
        repair_ledger(path, signer=signer, study=study)
    return Ledger(path, durable=True, signer=signer, study=study)


def _was_signed(ledger: Ledger) -> bool:
    """Return True if a ledger has an entry of a signed run."""
    return any((entry.get("requested_by") or {}).get("fingerprint") for entry in ledger.entries)


def _check_memories(ledger: Ledger, policy: Policy, study: str) -> None:
    """Open account and cohorts; raise IntegrityError if they are missing although the ledger shows their use."""
    terms: Mapping[str, Any] = (ledger.last("terms") or {}).get("policy", {})
    now = terms_of(policy)["policy"]
    cohorts, account = (None if name is None else Path(name) for name in (policy.cohorts, policy.account))
    for name, path, is_missing in (
        ("cohorts", cohorts, cohorts is not None and not is_begun(cohorts)),
        ("account", account, ledger.last("rho") and account is not None and not account.exists()),
    ):
        if is_missing and terms.get(name) == now[name]:
            raise IntegrityError(
                f"the policy's {name} must be there, since earlier runs used it; it is missing",
                where=str(path),
                hint=f"Restore it from a copy. Without one, name a new path in the policy ({name} = ...): its earlier "
                "content then counts no more, which the ledger shows.",
            )
    CohortMemory(cohorts)
    Charging(policy)
