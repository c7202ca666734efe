"""An audit: many fits with and without one patient, and what an attacker makes of them."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping
from typing import Any

from multicentre.estimator.base import FederatedEstimator
from multicentre.federation.engine import Protection
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.noise import Plan
from multicentre.federation.rounds import Listener
from multicentre.federation.terms import Quorum
from multicentre.privacy.accountant import Spent, cost_of
from multicentre.privacy.guarantee import Guarantee, guarantee_of_plan
from multicentre.privacy.people import ONE_RECORD, people_of
from multicentre.privacy.policy import Policy, unknown_key
from multicentre.studies.audit.canary import Bench, Canary, choose_canary, hear
from multicentre.studies.audit.result import AuditResult, Scores
from multicentre.studies.audit.scores import lower_bound, separation
from multicentre.studies.audit.transcript import Recording, Witness
from multicentre.studies.methods import make_estimator
from multicentre.studies.sites import SiteData, read_sites
from multicentre.studies.study import Study

RUNS = 500
FEWEST_RUNS = 10


def audit_study(
    study: Study,
    *,
    sites: Mapping[str, SiteData] | None = None,
    site: str | None = None,
    runs: int = RUNS,
    seed: int = 0,
    listener: Listener | None = None,
) -> AuditResult:
    """Audit the differential privacy of a study's method over its simulated sites, under the sites' policies.

    Parameters
    ----------
    study : Study
        Its method is given an epsilon.
    sites : mapping of str to SiteData, optional
        Data in memory; read from the study's files otherwise.
    site, runs, seed, listener
        As for :func:`audit`.

    Returns
    -------
    AuditResult

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre.data import MultiViewData
    >>> reference = {"blood": {"centre": [0, 0], "spread": [1, 1]}}
    >>> study = Study.from_mapping(
    ...     {
    ...         "study": {"name": "pilot", "method": "fed-mv-ppca"},
    ...         "parameters": {"n_components": 1, "epsilon": 2.0, "reference": reference},
    ...         "sites": {"lyon": {}},
    ...     }
    ... )
    >>> rows = np.random.default_rng(0).normal(size=(40, 2))
    >>> audit_study(study, sites={"lyon": SiteData(MultiViewData({"blood": rows}))}, runs=10).verdict
    'consistent'
    """
    estimator = make_estimator(study)
    _plan_of(estimator)
    data = {name: held.data for name, held in (sites or read_sites(study)).items()}
    return audit(
        estimator,
        data,
        policy=study.policies,
        secure_sum=study.masked,
        quorum=study.run.quorum,
        one_row_per_patient=study.data.one_row_per_patient,
        site=site,
        runs=runs,
        seed=seed,
        listener=listener,
    )


def audit(
    estimator: FederatedEstimator,
    sites: Mapping[str, Any],
    *,
    policy: Mapping[str, Policy] | Policy | None = None,
    secure_sum: bool = True,
    quorum: Quorum = "all",
    one_row_per_patient: bool = False,
    site: str | None = None,
    runs: int = RUNS,
    confidence: float = 0.95,
    seed: int = 0,
    listener: Listener | None = None,
) -> AuditResult:
    """Fit a method many times with and without one patient, and bound epsilon by how well they are told apart.

    Parameters
    ----------
    estimator : FederatedEstimator
        Differentially private. Its parameters are used; the object itself is left as it is.
    sites : mapping of str to data
        By site.
    policy : Policy or mapping, optional
        As for ``Federation.in_process``. Budgets and minimum numbers of patients are set aside: the audit neither asks
        nor charges any account, and hundreds of fits use up what noise may hide, while nothing leaves this process.
    secure_sum : bool, default True
        The attacker sees masked sums, not single sites' answers.
    quorum : "all" or int, default "all"
        As for ``Federation.in_process``: of how many sites the noise must suffice.
    one_row_per_patient : bool, default False
        As for ``Federation.in_process``; where nothing says whose the records are, the promise is one to a record.
    site : str, optional
        Where the canary is put; by default the site with the fewest patients.
    runs : int, at least 10, default 500
        Fits with the canary, and as many without. Of n runs the bound is at most about ``log(n / 7.4)``.
    confidence : float, in (0, 1), default 0.95
        With which the bound holds.
    seed : int, default 0
        Choice of the canary. The noise has no seed.
    listener : Listener, optional
        Hears of the runs as of rounds.

    Returns
    -------
    AuditResult
        Without scores where one patient matters more than the releases declare: no run is needed then.

    Raises
    ------
    ConfigurationError
        The method is not differentially private, an argument is unfit, or a patient has several records: the canary has
        one.

    Notes
    -----
    The attacker knows every record but the canary's presence, hears what the coordinator hears, replays the asks
    without noise with and without the canary, and scores the log-likelihood ratio. A fit ends with the last planned
    release, as what follows is computed from releases alone.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> blood = mc.data.MultiViewData({"blood": np.random.default_rng(0).normal(size=(40, 2))})
    >>> reference = {"blood": {"centre": [0.0, 0.0], "spread": [1.0, 1.0]}}
    >>> model = mc.multiview.FedMvPPCA(n_components=1, epsilon=2.0, reference=reference)
    >>> result = audit(model, {"lyon": blood}, runs=20)
    >>> result.verdict, round(result.sensitivity_ratio, 2), round(result.mu, 3)
    ('consistent', 1.0, 0.502)
    """
    plan = _plan_of(estimator)
    _check(runs, confidence)
    data, policies = _prepared(sites, policy)
    place = _chosen_site(data, site)
    _check_one_record(data)
    options: dict[str, Any] = {
        "policy": policies,
        "secure_sum": secure_sum,
        "quorum": quorum,
        "study": "audit",
        "one_row_per_patient": one_row_per_patient,
    }
    with warnings.catch_warnings(), Recording.in_process(data, **options) as without:
        warnings.simplefilter("ignore")  # of a fit's quality, a thousand times
        probe = hear(estimator, without, place)
        canary = choose_canary(plan, data, place, probe, seed)
        guarantee = guarantee_of_plan(plan, without.protection, counted=without.terms.counted)
        result = _result(plan, canary, guarantee, without.protection, runs, confidence)
        if canary.exceeds:
            return result
        witness = Witness(plan, place, data, canary.exposed)
        with Recording.in_process({**data, place: canary.exposed}, **options) as exposed:
            bench = Bench(estimator, witness, exposed, without, len(probe), listener or Listener())
            with_scores, without_scores = bench.run(runs)
    scores = Scores(
        separation(with_scores, without_scores), lower_bound(with_scores, without_scores, plan.delta, confidence)
    )
    ratio, field = max((result.sensitivity_ratio, result.field), bench.worst)
    return dataclasses.replace(result, sensitivity_ratio=ratio, field=field, scores=scores)


def _result(
    plan: Plan, canary: Canary, guarantee: Guarantee, protection: Protection, runs: int, confidence: float
) -> AuditResult:
    cost = sum((cost_of(planned.noise, planned.times) for planned in plan.releases), start=Spent())
    return AuditResult(
        guarantee=guarantee,
        protection=protection,
        site=canary.site,
        canary=canary.kind,
        n_runs=runs,
        confidence=confidence,
        sensitivity_ratio=canary.ratio,
        field=canary.field,
        betrayed=canary.betrayed,
        reach=canary.reach,
        mu=math.sqrt(2 * cost.rho) if cost.gaussian else None,
        scores=None,
    )


def _plan_of(estimator: FederatedEstimator) -> Plan:
    plan = estimator.privacy_plan()
    if plan is None or not plan.releases:
        raise ConfigurationError(
            "the study claims no differential privacy, so there is nothing to audit",
            where=estimator.site_part.method,
            mend="Give the method an epsilon, where it takes one.",
        )
    return plan


def _check(runs: int, confidence: float) -> None:
    if runs < FEWEST_RUNS:
        raise ConfigurationError(f"at least {FEWEST_RUNS} runs are needed", where="runs")
    if not 0 < confidence < 1:
        raise ConfigurationError("a number between 0 and 1 is needed", where="confidence", mend="0.95 is usual.")


def _prepared(
    sites: Mapping[str, Any], policy: Mapping[str, Policy] | Policy | None
) -> tuple[dict[str, Any], dict[str, Policy]]:
    """Return the columns that each site's policy allows, and the policies without budgets and minimum numbers."""
    given = policy if isinstance(policy, Mapping) else dict.fromkeys(sites, policy or Policy())
    data = {
        name: held if given[name].columns is None else held.keep_columns(given[name].columns)
        for name, held in sites.items()
    }
    aside: dict[str, Any] = {"epsilon": None, "account": None, "min_patients": 0, "min_patients_in_total": 0}
    return data, {name: dataclasses.replace(given[name], **aside) for name in sites}


def _check_one_record(data: Mapping[str, Any]) -> None:
    """Refuse data in which a patient has several records: the canary is one record, and no patient of that kind."""
    several = [name for name, held in data.items() if people_of(held).most_records > 1]
    if several:
        raise ConfigurationError(
            "a patient must have one record, as the canary has; got several", where=", ".join(several), mend=ONE_RECORD
        )


def _chosen_site(data: Mapping[str, Any], site: str | None) -> str:
    if site is None:
        return min(data, key=lambda name: len(data[name]))
    if site not in data:
        raise unknown_key(site, list(data), "site")
    return site
