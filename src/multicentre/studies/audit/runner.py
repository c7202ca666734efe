"""Audit of differential privacy: many fits with and without one patient, and an attack on their answers.

An audit consists of:

1. One fit without the canary is recorded.
2. The canary is chosen: records are tried in a replay without noise, and the one that changes the answers most is used.
3. If the canary changes a field by more than declared, the audit ends.
4. The method is fitted many times with the canary and many times without.
5. Each fit is scored by its log-likelihood ratio, and the scores give a lower bound on epsilon.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone

from multicentre.core.calls import Protection
from multicentre.core.noise_plan import Plan
from multicentre.core.rounds import Listener
from multicentre.core.run_terms import Quorum
from multicentre.errors import ConfigurationError
from multicentre.estimator.base import FederatedEstimator
from multicentre.privacy.accountant import Spent, cost_of
from multicentre.privacy.guarantee import Guarantee, guarantee_of_plan
from multicentre.privacy.patient_counts import ONE_RECORD, people_of
from multicentre.privacy.policy import Policy, unknown_key
from multicentre.studies.audit.canary import Canary, choose_canary, measure
from multicentre.studies.audit.result import AuditResult, Scores
from multicentre.studies.audit.scores import lower_bound, separation
from multicentre.studies.audit.transcript import AllReleased, Recording, Replays, Transcript
from multicentre.studies.site_data import read_sites
from multicentre.studies.site_patients import SiteData
from multicentre.studies.study import Study, make_estimator

RUNS = 500  # prove an epsilon of at most 4.2, in seconds for a small study
MIN_RUNS = 10  # half of them choose the threshold, half give the bound


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
        Study whose method has an epsilon.
    sites : mapping of str to SiteData, optional
        Data in memory; read from the study's files by default.
    site, runs, seed, listener
        As for :func:`audit`.

    Returns
    -------
    AuditResult

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre.data import MultiViewData
    >>> from multicentre.studies.study_file import study_from_mapping
    >>> reference = {"blood": {"centre": [0, 0], "spread": [1, 1]}}
    >>> study = study_from_mapping(
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
    data = {name: site_data.data for name, site_data in (sites or read_sites(study)).items()}
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
    """Fit a method many times with and without one patient, and compute a lower bound on epsilon.

    Parameters
    ----------
    estimator : FederatedEstimator
        Differentially private estimator. Its parameters are used; the object itself is not changed.
    sites : mapping of str to data
        Data by site.
    policy : Policy or mapping, optional
        As for ``Federation.in_process``. Budgets and minimum numbers of patients are ignored: the audit does not read
        or charge any account, and its hundreds of fits would exceed the noise that replaces a minimum. Nothing leaves
        this process.
    secure_sum : bool, default True
        If True, the attacker sees masked sums instead of single sites' answers.
    quorum : "all" or int, default "all"
        As for ``Federation.in_process``: number of sites whose noise must suffice.
    one_row_per_patient : bool, default False
        As for ``Federation.in_process``. If the patients of the records are not known, the privacy unit is a record.
    site : str, optional
        Site of the canary; by default the site with the fewest patients.
    runs : int, at least 10, default 500
        Number of fits with the canary, and of fits without. With n runs the bound is at most about ``log(n / 7.4)``.
    confidence : float, in (0, 1), default 0.95
        Probability with which the bound holds.
    seed : int, default 0
        Seed of the choice of the canary. The noise has no seed.
    listener : Listener, optional
        Receives the runs as rounds.

    Returns
    -------
    AuditResult
        Without scores if the canary exceeds the declared sensitivity; no runs are made then.

    Raises
    ------
    ConfigurationError
        The method is not differentially private, an argument is invalid, or a patient has several records (the canary
        has one).

    Notes
    -----
    The attacker knows every record except whether the canary is present. It receives what the coordinator receives,
    replays the requests without noise, with and without the canary, and computes the log-likelihood ratio. A fit ends
    with the last planned release, since later values are computed from releases only.

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
    data, policies = _prepare_sites(sites, policy)
    place = _choose_site(data, site)
    _check_one_record(data)
    options: dict[str, Any] = {
        "policy": policies,
        "secure_sum": secure_sum,
        "quorum": quorum,
        "study": "audit",
        "one_row_per_patient": one_row_per_patient,
    }
    with warnings.catch_warnings(), Recording.in_process(data, **options) as without:
        warnings.simplefilter("ignore")  # warnings on the quality of a fit would be repeated a thousand times
        probe = record_fit(estimator, without, place)
        canary = choose_canary(plan, data, place, probe, seed)
        guarantee = guarantee_of_plan(plan, without.protection, counted=without.terms.counted)
        result = _result(plan, canary, guarantee, without.protection, runs, confidence)
        if canary.exceeds:
            return result
        replays = Replays(plan, place, data, canary.exposed)
        with Recording.in_process({**data, place: canary.exposed}, **options) as exposed:
            pairs = PairedRuns(estimator, replays, exposed, without, len(probe), listener or Listener())
            with_scores, without_scores = pairs.run(runs)
    scores = Scores(
        separation(with_scores, without_scores), lower_bound(with_scores, without_scores, plan.delta, confidence)
    )
    ratio, field = max((result.sensitivity_ratio, result.field), pairs.worst)
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
        unprotected=canary.unprotected,
        reach=canary.reach,
        mu=math.sqrt(2 * cost.rho) if cost.gaussian else None,
        scores=None,
    )


def _plan_of(estimator: FederatedEstimator) -> Plan:
    plan = estimator.privacy_plan()
    if plan is None or not plan.releases:
        raise ConfigurationError(
            "the study must claim differential privacy to be audited; it does not",
            where=estimator.site_part.method,
            hint="Give the method an epsilon, if it has one.",
        )
    return plan


def _check(runs: int, confidence: float) -> None:
    if runs < MIN_RUNS:
        raise ConfigurationError(
            f"runs must be at least {MIN_RUNS}; got {runs}", where="runs", hint="500 is the default."
        )
    if not 0 < confidence < 1:
        raise ConfigurationError(
            f"confidence must be between 0 and 1; got {confidence}", where="confidence", hint="0.95 is usual."
        )


def _prepare_sites(
    sites: Mapping[str, Any], policy: Mapping[str, Policy] | Policy | None
) -> tuple[dict[str, Any], dict[str, Policy]]:
    """Return the columns that each site's policy allows, and the policies without budgets and minimum numbers."""
    policies = policy if isinstance(policy, Mapping) else dict.fromkeys(sites, policy or Policy())
    data = {
        name: site_data if policies[name].columns is None else site_data.keep_columns(policies[name].columns)
        for name, site_data in sites.items()
    }
    replaced: dict[str, Any] = {"epsilon": None, "account": None, "min_patients": 0, "min_patients_in_total": 0}
    replaced["min_patients_in_share"] = None
    return data, {name: dataclasses.replace(policies[name], **replaced) for name in sites}


def _check_one_record(data: Mapping[str, Any]) -> None:
    """Raise ConfigurationError if a patient has several records, since the canary is one record."""
    several = [name for name, site_data in data.items() if people_of(site_data).most_records > 1]
    if several:
        raise ConfigurationError(
            "each patient must have one record, as the canary has; got several",
            where=", ".join(several),
            hint=ONE_RECORD,
        )


def _choose_site(data: Mapping[str, Any], site: str | None) -> str:
    if site is None:
        return min(data, key=lambda name: len(data[name]))
    if site not in data:
        raise unknown_key(site, list(data), "site")
    return site


def record_fit(
    estimator: FederatedEstimator, federation: Recording, site: str, *, enough: int | None = None
) -> Transcript:
    """Fit a copy of the estimator and return the exchanges of the coordinator with a site.

    Parameters
    ----------
    estimator : FederatedEstimator
    federation : Recording
    site : str
    enough : int, optional
        As for :class:`Watch`.

    Raises
    ------
    ConfigurationError
        The fit released no values of the site's patients.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> blood = mc.data.MultiViewData({"blood": np.random.default_rng(0).normal(size=(40, 2))})
    >>> reference = {"blood": {"centre": [0.0, 0.0], "spread": [1.0, 1.0]}}
    >>> model = mc.multiview.FedMvPPCA(n_components=1, epsilon=9.0, reference=reference)
    >>> with Recording.in_process({"lyon": blood}) as federation:
    ...     exchanges = record_fit(model, federation, "lyon", enough=1)
    >>> exchanges[-1].step.name, exchanges[-1].answer.products.shape
    ('sum_outer_products', (6,))
    """
    recording = federation.watching(site, enough=enough)
    with suppress(AllReleased):
        clone(estimator).fit(recording)
    exchanges = recording.watch.exchanges
    if not any(one.answer is not None and one.step.releases.tells_of_patients() for one in exchanges):
        raise ConfigurationError(
            "the fit must release values of the site's patients; it released none",
            where=site,
            hint="Name another site.",
        )
    return exchanges


@dataclass
class PairedRuns:
    """Fits in two federations that differ by the canary.

    Parameters
    ----------
    estimator : FederatedEstimator
    replays : Replays
    exposed, without : Recording
        Federations with the canary and without it.
    enough : int
        Number of exchanges up to the last planned release.
    listener : Listener
        Receives the runs as rounds.

    Attributes
    ----------
    worst : tuple of float and str
        Largest change of a field by the canary in a run, relative to the declared sensitivity, and that field.
    """

    estimator: FederatedEstimator
    replays: Replays
    exposed: Recording
    without: Recording
    enough: int
    listener: Listener
    worst: tuple[float, str] = (0.0, "")

    def run(self, runs: int) -> tuple[list[float], list[float]]:
        """Return the scores of `runs` fits with the canary and of `runs` fits without."""
        name = "audit"
        self.listener.rounds_began(name, runs, 0)
        scores: tuple[list[float], list[float]] = ([], [])
        for number in range(1, runs + 1):
            scores[0].append(self._score(self.exposed))
            scores[1].append(self._score(self.without))
            self.listener.round_ended(name, number, {})
        self.listener.rounds_ended(name, runs)
        return scores

    def _score(self, federation: Recording) -> float:
        fields = self.replays.noised_fields(
            record_fit(self.estimator, federation, self.replays.site, enough=self.enough)
        )
        ratio, field, _ = measure(fields)
        self.worst = max(self.worst, (ratio, field))
        return sum(one.score for one in fields)
