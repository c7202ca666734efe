"""Guard of a site: checks every call and every answer, and releases or refuses them.

Each rule is in the module of its subject:

- permissions of the policy: :mod:`multicentre.privacy.policy`
- minimum numbers of patients and sites: :mod:`multicentre.privacy.minimum_counts`
- sites behind each view and column of a masked sum: :mod:`multicentre.privacy.sites_per_field`
- differences between cohorts: :mod:`multicentre.privacy.cohort_memory`
- noise and budget: :mod:`multicentre.privacy.charging`

The guard calls them in order, writes every release and every refusal to the site's ledger, and raises the refusals.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.core.calls import Call
from multicentre.core.noise_plan import PlanReview, PlanShown
from multicentre.core.range_checks import check_ranges
from multicentre.core.requester import requester_facts
from multicentre.core.steps import R, Release, SitePart
from multicentre.errors import (
    DataError,
    DisclosureRefused,
    MessageError,
    MulticentreError,
    RefusedByPolicy,
)
from multicentre.privacy.allowed_methods import find_objection
from multicentre.privacy.charging import Charging
from multicentre.privacy.cohort_memory import Cohort, CohortMemory, find_close_cohort, group_of
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.ledger_entries import call_metadata, field_metadata
from multicentre.privacy.mechanisms import require_sampler
from multicentre.privacy.minimum_counts import (
    NO_PATIENTS,
    Counts,
    NoisedAnswers,
    find_excess_coefficients,
    find_small_site,
    find_too_few_sites,
    find_uncounted_total,
    find_value_refusal,
    min_behind_value,
    rests_on_total,
)
from multicentre.privacy.patient_counts import HOW_TO_NAME, ONE_RECORD, People
from multicentre.privacy.policy import ASK_STEWARD, Policy, Refusal, find_unpermitted
from multicentre.privacy.sites_per_field import Field, SiteFields, SitesBehind, find_lone_fields

# With a privacy budget, the failure of a step may depend on one patient. Three failures disclose at most three bits.
MAX_FAILURES = 3
_LOCKED = "See the site's log, correct the data or the study there, and create a new federation."


class Guard:
    """Gate of one site: checks calls and answers against its policy and writes its ledger.

    Parameters
    ----------
    policy : Policy
    ledger : Ledger
    people : People, optional
        Patients of the site's records; they do not leave the site. Without it, records are counted.
    site : str, optional
        Name of the site, for its log.
    n_records : int, optional
        Number of records of the site. Without it, neither the size of the site nor the number of coefficients of a fit
        is checked.
    noised : NoisedAnswers, optional
        Noised answers of all studies of the site; by default those in the account or ledger of this guard.

    Raises
    ------
    IntegrityError
        The account of the policy's budget, or the memory of cohorts, is not intact.
    """

    def __init__(
        self,
        policy: Policy,
        ledger: Ledger,
        people: People | None = None,
        *,
        site: str = "",
        n_records: int | None = None,
        noised: NoisedAnswers | None = None,
    ) -> None:
        self.policy = policy
        self.ledger = ledger
        self.people = people or People()
        self._least_difference = policy.difference_of(have_ids=self.people.names_all)
        self.memory = CohortMemory(_path(policy.cohorts) if self._least_difference else None)
        self.cohort = self._fingerprints(None)
        self.charging = Charging(policy)
        self._n_records = n_records
        self._small_site, self._small_share = (
            find_small_site(least, self.people, n_records, has_budget=self._has_budget)
            for least in (policy.min_patients, policy.least_in_share)
        )
        self._failures = 0
        self._noised = NoisedAnswers(lambda: ledger.entries, self.charging.account, noised)
        self._log = logging.getLogger(f"multicentre.site.{site}")

    @property
    def least_behind(self) -> int:
        """Smallest number of patients that the policy requires behind a value."""
        return self.policy.min_patients

    def least_records(self, rows: NDArray[np.int64] | None) -> int:
        """Return the number of records at `rows` that guarantees the minimum number of patients behind a value.

        If a patient has several records, it is rounded up to a power of two. Error messages of a part may contain it,
        and the exact number would disclose the number of records of some patients.
        """
        records = self.people.among(rows).records_of(self.least_behind)
        return records if records <= self.least_behind else 1 << (records - 1).bit_length()

    def least_in_answer(self, call: Call, rows: NDArray[np.int64] | None) -> int:
        """Return the number of records at `rows` that guarantees the minimum number of patients behind an answer."""
        return self.people.among(rows).records_of(min_behind_value(call, self.policy))

    # Checks before anything is computed

    def review(self, plan: PlanShown) -> None:
        """Check a plan of noise against the policy and its budget.

        Raises
        ------
        RefusedByPolicy
            The policy does not permit the method, or the plan does not fit the remaining budget.
        DisclosureRefused
            The site has fewer patients than the policy's minimum.
        MissingExtra
            The noise cannot be drawn here.
        """
        metadata = {"method": plan.method, "step": "plan", **requester_facts()}
        self._raise(metadata, self._find_method_refusal(plan.method))
        self._raise(metadata, self._small_site)
        if plan.steps:
            self._raise(metadata, self._find_unit_refusal())
        require_sampler()
        with self._refusing(metadata):
            self.charging.review(plan)

    def admit(self, call: Call) -> None:
        """Check a call against the policy.

        Raises
        ------
        RefusedByPolicy
            The policy does not permit the method, the unmasked answer, or a field. Or the policy has a privacy budget,
            and the call has no noise or exceeds the remaining budget.
        DisclosureRefused
            The site has fewer patients than the policy's minimum. This is also reported with a privacy budget.
        """
        for refusal in self._refusals(call):
            self._raise(call, refusal)
        if call.step.releases.tells_of_patients():
            with self._refusing(call):
                self.charging.admit(call)
            self._check_noise_unit(call)

    def _refusals(self, call: Call) -> Iterator[Refusal | None]:
        """Yield the refusals of a call, in the order in which they are checked."""
        policy, part, releases = self.policy, call.step.part, call.step.releases
        if self._has_budget and self._failures >= MAX_FAILURES and part.holds_patients:
            reason = f"at most {MAX_FAILURES} steps may fail at a site with a privacy budget; got {self._failures}"
            yield Refusal("epsilon", reason, hint=_LOCKED)
        if releases.concerns_patients:
            yield self._find_method_refusal(call.step.method, part)
        if part.holds_patients and not releases.individual:
            yield self._small_share if rests_on_total(call) else self._small_site
        if policy.secure_sums_only and call.protection != "masked" and releases.tells_of_patients():
            yield Refusal("secure_sums_only", "answers of this site must be masked sums; got an unmasked one")
        yield find_unpermitted(policy, call.step, call.protection, call.n_peers)
        yield find_too_few_sites(call, policy.min_sites_in_sum)
        yield find_uncounted_total(call, policy, self.people, self._noised)

    def check_fit(self, call: Call, n_parameters: int, rows: NDArray[np.int64] | None) -> None:
        """Check that a regression has enough patients for its coefficients.

        Raises
        ------
        RefusedByPolicy
            The number of coefficients exceeds the policy's share of the number of patients; see
            :func:`~multicentre.privacy.minimum_counts.max_parameters`.
        """
        if n_parameters and self._n_records is not None and call.step.releases.tells_of_patients():
            n_patients = self.people.among(rows).fewest(self._n_records if rows is None else len(rows))
            share = self.policy.max_parameters_per_patient
            self._raise(call, find_excess_coefficients(call, n_parameters, n_patients, share))

    def check_sites_per_field(self, call: Call, behind: Mapping[Field, SitesBehind]) -> None:
        """Check that enough sites have each view and column of a masked sum.

        Parameters
        ----------
        call : Call
        behind : mapping of Field to SitesBehind
            Sites behind each field that at least one site lacks; see :mod:`multicentre.privacy.sites_per_field`.

        Raises
        ------
        RefusedByPolicy
            There are fewer than the policy's ``min_sites_in_sum``.
        """
        if call.step.releases.tells_of_patients():
            self._raise(call, find_lone_fields(behind, self.policy.min_sites_in_sum))

    # Inputs of a site part

    def fields_of(self, data: Any) -> SiteFields:
        """Return the views and columns of the data; only the views if a budget requires noise."""
        fields = SiteFields.of(data, self.policy.least_in_share)
        return SiteFields(fields.views) if self._has_budget else fields

    def patients_among(self, rows: NDArray[np.int64]) -> int:
        """Return the number of patients with records at `rows`; of records if these have no patients."""
        return self.people.among(rows).fewest(len(rows))

    def persons(self, rows: NDArray[np.int64] | None, *, all_named: bool = True) -> NDArray[np.int64] | None:
        """Return the index of the patient of each record in `rows`; None if no patient has two records.

        If the patient of a record has no name, return None or, with ``all_named=False``, -1 for that record.
        """
        return self.people.patient_numbers(rows, all_named=all_named)

    def hides(self, call: Call) -> bool:
        """Return whether the noise of the call replaces a minimum number, and count the answer.

        It does if the combined noised answers of the site hide each patient; see
        :class:`~multicentre.privacy.minimum_counts.NoisedAnswers`.
        """
        if call.noise is None:
            return False
        hides = self._noised.hide_with(call.noise)
        self._noised.add(call.noise)
        return hides

    # Answers

    def release(self, call: Call, release: Release, rows: NDArray[np.int64] | None = None) -> Release:
        """Check an answer, charge its cost, write it to the ledger, and return it with the noise of the call.

        Parameters
        ----------
        call : Call
        release : Release
        rows : array of int, optional
            Records of the answer; by default all records.

        Raises
        ------
        DisclosureRefused
            It is not the declared release, a value is beyond its declared range, or a field has too few patients behind
            it.
        RefusedByPolicy
            The budget was spent in the meantime.
        """
        if type(release) is not call.step.releases or not isinstance(release, Release):
            expected = call.step.releases.__name__
            reason = f"the answer must be a release of class {expected}; got {type(release).__name__}"
            self._raise(call, Refusal("release", reason, DisclosureRefused))
        try:
            release.checked()
            check_ranges(release)
        except MulticentreError as error:
            hint = f"{error.hint} {ASK_STEWARD}" if error.hint else ASK_STEWARD
            reason = f"the answer must match its declaration ({error.what})"
            self._raise_for_answer(call, Refusal(error.where, reason, DisclosureRefused, hint))
        with self.memory.alone():
            counts = self._check_counts(call, release, rows)
        metadata = call_metadata(call)
        with self._refusing(call):
            noised = self.charging.add_noise(call, release)
            cost_facts = self.charging.pay(call, metadata, "patient" if self._counts_patients else "record")
        fields = [
            field_metadata(f"{name}[{key}]" if key else name, value, of_field, call.protection)
            for (name, key, _, value), of_field in zip(noised.items(), counts, strict=True)
        ]
        self.ledger.add("release", {**metadata, "fields": fields, **cost_facts})
        return self._with_patients(noised, rows)

    def _check_counts(self, call: Call, release: Release, rows: NDArray[np.int64] | None) -> list[Counts]:
        """Return the numbers of records and patients behind each value, and store the cohort."""
        if not type(release).concerns_patients:
            return [NO_PATIENTS for _ in release.items()]
        cohort = self.cohort if rows is None else self._fingerprints(rows)
        least, group = self._least_difference, group_of(call.step)
        if least:
            self._raise(call, find_close_cohort(self.memory, group, cohort, least, call.session))
        patient_counts, counts = self.people.among(rows), []
        for item in release.items():
            self._raise_for_answer(call, find_value_refusal(call, release, item, patient_counts, self.policy))
            records = int(release.patients_behind(item[0], item[1]) or 0)
            counts.append(Counts(records, patient_counts.fewest(records) if self._counts_patients else None))
        if least:
            self.memory.remember(group, cohort, f"{call.step.method}, {call.step.name}", call.session)
        return counts

    def _with_patients(self, release: R, rows: NDArray[np.int64] | None) -> R:
        """Return a release with numbers of patients instead of records, for the counts behind totals over sites."""
        counts, stated = self.people.among(rows), release.patients
        if counts.covered is None or not type(release).concerns_patients:
            return release
        if not isinstance(stated, Mapping):
            return dataclasses.replace(release, patients=counts.fewest(stated))
        return dataclasses.replace(release, patients={name: counts.fewest(n) for name, n in stated.items()})

    # Failures and departures from the protocol

    def note_failure(self, call: Call, error: BaseException) -> BaseException:
        """Write the failure of a step to the ledger, and return the error for the coordinator.

        With a privacy budget, that error has no details, because the content of an error may depend on one patient.
        """
        if call.step.part is PlanReview:
            return error
        self.ledger.add("failure", {**call_metadata(call), "reason": type(error).__name__})
        if not call.step.part.holds_patients or not self._has_budget:
            return error
        self._log.error("step %s of %s: %s", call.step.name, call.step.method, error)
        return self._neutral(call)

    def note_departure(self, call: Call, error: MulticentreError) -> None:
        """Write to the ledger that a call was refused because it departs from earlier requests or agreements."""
        self.ledger.add("refusal", {**call_metadata(call), "reason": error.what})

    def _neutral(self, call: Call) -> DataError:
        self._failures += 1
        return DataError(
            "the step failed on the data of this site",
            where=call.step.name,
            hint="See the site's log or ledger for the reason; with a privacy budget it is not sent.",
        )

    # Refusals

    def _find_method_refusal(self, method: str, part: type[SitePart] | None = None) -> Refusal | None:
        """Return the refusal of a method; its distribution is compared only with a part, that is, in calls."""
        objection = find_objection(self.policy.allowed_methods, method, part)
        if objection is None:
            return None
        return Refusal("methods", f"the site's policy does not permit the method {method}{objection}")

    def _find_unit_refusal(self) -> Refusal | None:
        """Return the refusal to charge a budget, which is per patient, if records cannot be assigned to patients."""
        if not self._has_budget or self._counts_patients:
            return None
        reason = "records must have patients for a budget, which is per patient; got records without patients"
        return Refusal("epsilon", reason, hint=HOW_TO_NAME)

    def _check_noise_unit(self, call: Call) -> None:
        """Refuse noise calibrated to one record if a patient has several, unless the part bounds their sum."""
        if call.noise is None:
            return
        self._raise(call, self._find_unit_refusal())
        if not self.people.are_hidden_by(call.step.part):
            most = _round_up(self.people.most_records)
            reason = f"a patient must have one record, because the noise hides one record; got up to {most:,}"
            self._raise_for_answer(call, Refusal("persons", reason, DisclosureRefused, ONE_RECORD))

    def _raise_for_answer(self, call: Call, refusal: Refusal | None) -> None:
        """Refuse an answer because of its content; with a budget the coordinator does not receive the reason."""
        if refusal is None:
            return
        try:
            self._raise(call, refusal)
        except DisclosureRefused:
            if not self._has_budget:
                raise
            raise self._neutral(call) from None

    @contextmanager
    def _refusing(self, refused: Call | Mapping[str, Any]) -> Iterator[None]:
        """Write an error of the block to the ledger, as a refusal."""
        try:
            yield
        except MulticentreError as error:
            kind = DisclosureRefused if isinstance(error, MessageError) else RefusedByPolicy
            self._raise(refused, Refusal(error.where, error.what, kind, error.hint))

    def _raise(self, refused: Call | Mapping[str, Any], refusal: Refusal | None) -> None:
        """Write the refusal of a call, or of a request with this metadata, to the ledger and raise it, if any."""
        if refusal is None:
            return
        term, reason = refusal.term, refusal.reason
        metadata = call_metadata(refused) if isinstance(refused, Call) else refused
        self.ledger.add("refusal", {**metadata, "reason": f"{term}: {reason}" if term else reason})
        raise refusal.error(reason, where=f"{metadata['step']}, {term}" if term else "", hint=refusal.hint)

    @property
    def _has_budget(self) -> bool:
        return self.charging.account is not None

    @property
    def _counts_patients(self) -> bool:
        return self.people.counted == "patients"

    def _fingerprints(self, rows: NDArray[np.int64] | None) -> Cohort:
        return self.memory.fingerprints(*(self.people.tokens(rows) if self._least_difference else ((), ())))


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _round_up(count: int) -> int:
    """Return the smallest power of ten that is at least a count, which discloses only the order of magnitude."""
    return int(10 ** len(str(count - 1)))
