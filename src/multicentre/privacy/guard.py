"""The one gate of a site: it lets an answer pass and writes it down, or refuses it and writes that down."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.asker import asker_facts
from multicentre.federation.engine import Call
from multicentre.federation.errors import (
    DataError,
    DisclosureRefused,
    MessageError,
    MulticentreError,
    RefusedByPolicy,
)
from multicentre.federation.messages import Declaration, place
from multicentre.federation.noise import PlanReview, PlanShown
from multicentre.federation.ranges import check_ranges
from multicentre.federation.steps import R, Release
from multicentre.federation.totals import is_held
from multicentre.privacy import fields, parameters
from multicentre.privacy.cohorts import Cohort, CohortMemory, group_of
from multicentre.privacy.fields import Field, HeldFields, SitesBehind
from multicentre.privacy.hiding import DELTA, EPSILON, NoisedAnswers
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.mechanisms import require_sampler
from multicentre.privacy.payment import Payment
from multicentre.privacy.people import HOW_TO_NAME, ONE_RECORD, Crowd, People
from multicentre.privacy.policy import Policy

_MEND = "Ask the site's steward whether its policy can be changed, or leave the site out."
_SEVERAL = "Records of one patient, and records without an identifier, which may be anybody's, count as one patient."
_SAME = 'Ask about the same patients again: missing="mean" or "indicator" keeps those with a missing entry.'
MOST_FAILURES = 3
_LOCKED = "Look at the site's log, mend the data or the study there, and begin a new federation."
_TOO_FEW = f"Leave out columns and views that few patients have, and patients who alone lack a view. {_MEND}"
_MORE_NOISE = (
    "Take a smaller epsilon: noise takes the place of a minimum while all noised answers of the site together are "
    f"within epsilon {EPSILON:g} at delta {DELTA:g}."
)
_MASK = "Mask the sums (secure_sum=True), which hides small cells in the total."
_POOL = "Pool small sites under one agent (docs/small-sites.md; in a simulation, mc.data.merge_sites)."


class Behind(NamedTuple):
    """Records behind a value, as the method counts them, and the fewest patients that can own them, where known."""

    records: int | None
    patients: int | None


_NO_PATIENT = Behind(None, None)


class Guard:
    """Holds one site's answers against its policy and keeps its ledger.

    Parameters
    ----------
    policy : Policy
    ledger : Ledger
    people : People, optional
        Persons to whom the site's records belong; stays at the site. Without it nobody knows.
    site : str, optional
        Its name, for its log.
    n_records : int, optional
        Number of records of the site; without it the site is not refused as a whole, nor a fit for its coefficients.
    noised : NoisedAnswers, optional
        The noised answers of all studies of the site; without it, those of this guard's own account or ledger count.

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
        self.memory = CohortMemory(_path(policy.cohorts) if policy.min_difference else None)
        self.people = people or People()
        self.cohort = self._fingerprints(None)
        self.payment = Payment(policy)
        self._n_records = n_records
        self._has_few = 0 < self.people.among().fewest(n_records or 0) < policy.min_patients
        self._failures = 0
        self._noised = NoisedAnswers(lambda: ledger.entries, self.payment.account, noised)
        self._log = logging.getLogger(f"multicentre.site.{site}")

    @property
    def least_behind(self) -> int:
        """How many patients the policy wants behind a value."""
        return self.policy.min_patients

    def least_records(self, rows: NDArray[np.int64] | None) -> int:
        """Return how many of the records at `rows` must stand behind a value so that enough patients do.

        Where a patient has several records it is a power of two, since error messages of a part may name it, and the
        exact number would reveal how many records some patients have.
        """
        records = self.people.among(rows).records_of(self.least_behind)
        return records if records <= self.least_behind else 1 << (records - 1).bit_length()

    def review(self, plan: PlanShown) -> None:
        """Hold a plan against the policy and its budget, before anything is computed.

        Raises
        ------
        RefusedByPolicy
            The method is not allowed here, or the plan does not fit what is left of the budget.
        DisclosureRefused
            The site has fewer patients than the policy's minimum.
        MissingExtra
            The noise cannot be drawn here.
        """
        facts = {"method": plan.method, "step": "plan", **asker_facts()}
        if self.policy.methods is not None and plan.method not in self.policy.methods:
            reason = f"the method {plan.method} is not allowed here"
            self._refuse(facts, RefusedByPolicy, reason, "methods")
        self._check_size(facts)
        if plan.steps:
            self._check_unit(facts)
        require_sampler()
        with self._refusing(facts):
            self.payment.review(plan)

    def admit(self, call: Call) -> None:
        """Check a call against the policy before anything is computed.

        Raises
        ------
        RefusedByPolicy
            The method is not on the policy's list, only masked sums may leave and this is not one, a privacy budget
            asks for noise and there is none, the noise costs more than is left, or a field needs a permission that the
            policy does not give.
        DisclosureRefused
            The site has fewer patients than the policy's minimum. That one fact about the site is reported under a
            privacy budget too.
        """
        policy, facts = self.policy, facts_of_call(call)
        if self.payment.account is not None and self._failures >= MOST_FAILURES and call.step.part.holds_patients:
            reason = f"{MOST_FAILURES} steps broke, and each told something"
            self._refuse(facts, RefusedByPolicy, reason, "epsilon", mend=_LOCKED)
        if policy.methods is not None and call.step.method not in policy.methods and _concerns_patients(call):
            self._refuse(facts, RefusedByPolicy, f"the method {call.step.method} is not allowed here", "methods")
        if call.step.part.holds_patients and not call.step.releases.individual:
            self._check_size(facts)
        if policy.secure_sums_only and call.protection != "masked" and call.step.releases.tells_of_patients():
            self._refuse(facts, RefusedByPolicy, "only masked sums may leave this site", "secure_sums_only")
        self._check_permissions(call)
        crowd = 0 if call.mask is None else min(len(set(call.peers)), call.mask.threshold)
        if call.mask is not None and crowd < policy.min_sites_in_sum:
            reason = f"a sum of {crowd} sites is too small a crowd"
            self._refuse(facts, RefusedByPolicy, reason, "min_sites_in_sum")
        self._check_total_is_held(call)
        if call.step.releases.tells_of_patients():
            with self._refusing(facts):
                self.payment.admit(call)
            self._check_persons(call)

    def check_fit(self, call: Call, n_parameters: int, rows: NDArray[np.int64] | None) -> None:
        """Check, before anything is computed, that a regression rests on enough patients for its coefficients.

        Raises
        ------
        RefusedByPolicy
            It has more coefficients than the policy's share of the patients; see
            :func:`~multicentre.privacy.parameters.most_parameters`.
        """
        if n_parameters and self._n_records is not None and call.step.releases.tells_of_patients():
            n_patients = self.people.among(rows).fewest(self._n_records if rows is None else len(rows))
            share = self.policy.max_parameters_per_patient
            reason = parameters.objection(call, n_parameters, n_patients, share)
            self._refuse_for(call, "max_parameters_per_patient", reason, parameters.MEND)

    def fields_of(self, data: Any) -> HeldFields:
        """Return which views and columns the data have; with a budget, whose answers are noised, views alone."""
        held = HeldFields.of(data, self.policy.min_patients)
        return held if self.payment.account is None else HeldFields(held.views)

    def check_crowds(self, call: Call, behind: Mapping[Field, SitesBehind]) -> None:
        """Check, before anything is computed, that enough sites stand behind each view and column of a masked sum.

        Parameters
        ----------
        call : Call
        behind : mapping of Field to SitesBehind
            Sites behind each field that some site lacks; see :mod:`multicentre.privacy.fields`.

        Raises
        ------
        RefusedByPolicy
            There are fewer than the policy's ``min_sites_in_sum``.
        """
        if call.step.releases.tells_of_patients():
            reason = fields.objection(behind, self.policy.min_sites_in_sum)
            self._refuse_for(call, "min_sites_in_sum", reason, fields.MEND)

    def patients_among(self, rows: NDArray[np.int64]) -> int:
        """Return how many patients the records at `rows` belong to; how many records where nobody knows."""
        return self.people.among(rows).fewest(len(rows))

    def persons(self, rows: NDArray[np.int64] | None, *, all_named: bool = True) -> NDArray[np.int64] | None:
        """Return a number for the person of each record at `rows`; None where nobody has two records.

        Where a record's person has no name, return None, or, without `all_named`, -1 for that record.
        """
        return self.people.owners(rows, all_named=all_named)

    def hides(self, call: Call) -> bool:
        """Tell whether the noise that the call asks for takes the place of a minimum number, and count the answer.

        It does while all noised answers of the site hide each patient together; see :class:`NoisedAnswers`.
        """
        if call.noise is None:
            return False
        hides = self._noised.hide_with(call.noise)
        self._noised.add(call.noise)
        return hides

    def release(self, call: Call, release: Release, rows: NDArray[np.int64] | None = None) -> Release:
        """Check an answer, pay for it, write it to the ledger, and return it with the noise that the call asks for.

        Parameters
        ----------
        call : Call
        release : Release
        rows : array of int, optional
            Records that the answer is about; all without it.

        Raises
        ------
        DisclosureRefused
            It is not the declared release, a value is beyond its declared range, or too few patients stand behind one
            of its fields.
        RefusedByPolicy
            The budget was spent in the meantime.
        """
        facts = facts_of_call(call)
        if not _is_declared(call, release):
            self._refuse(facts, DisclosureRefused, "the answer is not the release that the step declares", "release")
        try:
            release.checked()
            check_ranges(release)
        except MulticentreError as error:
            mend = f"{error.mend} {_MEND}" if error.mend else _MEND
            self._refuse_answer(call, f"the answer is not as declared ({error.what})", error.where, mend=mend)
        with self.memory.alone():
            behind = self._examined(call, release, rows)
        with self._refusing(facts):
            noised = self.payment.add_noise(call, release)
            paid = self.payment.pay(call, facts, "patient" if self._counts_patients else "record")
        items = zip(noised.items(), behind, strict=True)
        fields = [_described(call, name, key, value, counts) for (name, key, _, value), counts in items]
        self.ledger.append("release", {**facts, "fields": fields, **paid})
        return self._with_persons(noised, rows)

    def _with_persons(self, release: R, rows: NDArray[np.int64] | None) -> R:
        """Return a release with persons in place of records, by which totals over sites are counted."""
        crowd, said = self.people.among(rows), release.patients
        if crowd.covered is None or not type(release).concerns_patients:
            return release
        if not isinstance(said, Mapping):
            return dataclasses.replace(release, patients=crowd.fewest(said))
        return dataclasses.replace(release, patients={name: crowd.fewest(n) for name, n in said.items()})

    def note_failure(self, call: Call, error: BaseException) -> BaseException:
        """Write to the ledger that a step broke, and return what the coordinator may be told of it.

        With a privacy budget that is nothing but the fact: what stands in an error may depend on one patient.
        """
        if call.step.part is PlanReview:
            return error
        self.ledger.append("failure", {**facts_of_call(call), "reason": type(error).__name__})
        if not call.step.part.holds_patients or self.payment.account is None:
            return error
        self._log.error("step %s of %s: %s", call.step.name, call.step.method, error)
        return self._neutral(call)

    def note_departure(self, call: Call, error: MulticentreError) -> None:
        """Write to the ledger that a call is refused since it departs from what the site was asked or agreed before."""
        self.ledger.append("refusal", {**facts_of_call(call), "reason": error.what})

    def _refuse_answer(self, call: Call, reason: str, where: str, *, mend: str = _MEND) -> NoReturn:
        """Refuse an answer for what is in it; with a budget the coordinator is not told what that was."""
        try:
            self._refuse(facts_of_call(call), DisclosureRefused, reason, where, mend=mend)
        except DisclosureRefused:
            if self.payment.account is None:
                raise
        raise self._neutral(call)

    def _neutral(self, call: Call) -> DataError:
        self._failures += 1
        return DataError(
            "the step does not go with the data here",
            where=call.step.name,
            mend="The site's own log or ledger says why; with a privacy budget nobody else is told.",
        )

    @contextmanager
    def _refusing(self, facts: Mapping[str, Any]) -> Iterator[None]:
        """Write whatever is raised within to the ledger, as a refusal."""
        try:
            yield
        except MulticentreError as error:
            kind = DisclosureRefused if isinstance(error, MessageError) else RefusedByPolicy
            self._refuse(facts, kind, error.what, error.where, mend=error.mend)

    def _fingerprints(self, rows: NDArray[np.int64] | None) -> Cohort:
        return self.memory.fingerprints(*(self.people.tokens(rows) if self.policy.min_difference else ((), ())))

    def _examined(self, call: Call, release: Release, rows: NDArray[np.int64] | None) -> list[Behind]:
        """Return how many records and patients stand behind every value, and remember the cohort."""
        if not type(release).concerns_patients:
            return [_NO_PATIENT for _ in release.items()]
        cohort = self.cohort if rows is None else self._fingerprints(rows)
        crowd = self.people.among(rows)
        self._check_difference(call, cohort)
        behind = [self._behind(call, release, crowd, *item) for item in release.items()]
        self._remember(call, cohort)
        return behind

    def _behind(
        self, call: Call, release: Release, crowd: Crowd, field: str, key: str, declaration: Declaration, value: Any
    ) -> Behind:
        """Return how many records, and at least how many patients, stand behind a value; refuse too few."""
        records = release.patients_behind(field, key)
        where = place(type(release), field, key)
        if records is None:
            self._refuse_answer(call, "the answer does not say how many patients it rests on", where)
        if not _is_count(records):
            self._refuse_answer(call, "the number of patients behind the answer is not a count", where)
        if records == 0 and _says_something(declaration, value):
            self._refuse_answer(call, "a value is said to rest on no patient", where)
        patients, least = crowd.fewest(int(records)), self._least_behind(call)
        if 0 < patients < least and not type(release).individual:
            reason = f"fewer than {least} patients stand behind the answer"
            self._refuse_answer(call, reason, where, mend=_hint(call, several=patients < records))
        return Behind(int(records), patients if self._counts_patients else None)

    @property
    def _counts_patients(self) -> bool:
        return self.people.counted == "patients"

    def _check_unit(self, facts: Mapping[str, Any]) -> None:
        """Refuse to spend a budget, which is per patient, on records of which nobody knows whose they are."""
        if self.payment.account is not None and not self._counts_patients:
            reason = "the budget is per patient, and nothing tells which records are of one patient"
            self._refuse(facts, RefusedByPolicy, reason, "epsilon", mend=HOW_TO_NAME)

    def _check_persons(self, call: Call) -> None:
        """Refuse noise that hides one record where a patient has several, unless the part bounds them together."""
        if call.noise is None:
            return
        self._check_unit(facts_of_call(call))
        if not self.people.are_hidden_by(call.step.part):
            most = _rounded_up(self.people.most_records)
            reason = f"the noise hides one record, and a patient may have up to {most:,} here"
            self._refuse_answer(call, reason, "persons", mend=ONE_RECORD)

    def _check_size(self, facts: Mapping[str, Any]) -> None:
        if self._has_few:
            reason = f"the site has fewer patients than its policy's minimum of {self.policy.min_patients}"
            self.ledger.append("refusal", {**facts, "reason": reason})
            several = self.people.most_records > 1 and self.payment.account is None
            raise DisclosureRefused(reason, mend=f"{_SEVERAL} {_POOL}" if several else _POOL)

    def _least_behind(self, call: Call) -> int:
        """Return how many patients must stand behind an answer; an unmasked summand is held against both minima."""
        bare = call.step.summed and call.mask is None
        return max(self.policy.min_patients, self.policy.min_patients_in_total if bare else 0)

    def _check_total_is_held(self, call: Call) -> None:
        """Refuse a masked sum whose patients are not counted, and noise that hides nobody in place of counting."""
        if not self.policy.min_patients_in_total or call.mask is None or not is_held(call.step.releases):
            return
        if call.noise is not None and not self._noised.hide_with(call.noise):
            reason = "noise takes the place of a minimum only while all noised answers together hide each patient"
        elif call.noise is None and not call.mask.counted:
            reason = "the coordinator does not count the patients behind this sum"
        else:
            self._check_cells(call)
            return
        self._refuse(facts_of_call(call), RefusedByPolicy, reason, "min_patients_in_total")

    def _check_cells(self, call: Call) -> None:
        """Refuse a table whose cells count records where a patient has several: its total counts no patients."""
        tables = [name for name, field in call.step.releases.declarations().items() if field.counts]
        if call.noise is None and tables and self.people.most_records > 1:
            reason = f"the cells of {', '.join(tables)} count records, and a patient may have several here"
            self._refuse(facts_of_call(call), DisclosureRefused, reason, "min_patients_in_total", mend=ONE_RECORD)

    def _check_permissions(self, call: Call) -> None:
        for name, declaration in call.step.releases.declarations().items():
            permission = _needed_permission(call, declaration)
            if permission and (lacking := self.policy.lacks(permission)):
                mend = f"Mask the sums (secure_sum=True). {_MEND}" if _is_bare(call, declaration) else _MEND
                reason = f"this leaves only where the policy says {lacking}"
                self._refuse(facts_of_call(call), RefusedByPolicy, reason, place(call.step.releases, name), mend=mend)

    def _check_difference(self, call: Call, cohort: Cohort) -> None:
        least = self.policy.min_difference
        if not least:
            return
        if not len(cohort):
            reason = "without patient ids nobody can tell by how many patients two cohorts differ"
            self._refuse(facts_of_call(call), DisclosureRefused, reason, "min_difference")
        closest = self.memory.closest(group_of(call.step), cohort)
        if closest is not None and 0 < closest < least:
            reason = f"the cohort differs from one already answered for by fewer than {least} patients"
            self._refuse(facts_of_call(call), DisclosureRefused, reason, "min_difference", mend=f"{_SAME} {_MEND}")

    def _remember(self, call: Call, cohort: Cohort) -> None:
        if self.policy.min_difference:
            self.memory.remember(group_of(call.step), cohort)

    def _refuse_for(self, call: Call, term: str, reason: str, mend: str) -> None:
        """Refuse a call where a reason is given."""
        if reason:
            self._refuse(facts_of_call(call), RefusedByPolicy, reason, term, mend=f"{mend} {_MEND}")

    def _refuse(
        self,
        facts: Mapping[str, Any],
        kind: Callable[..., MulticentreError],
        reason: str,
        where: str,
        *,
        mend: str = _MEND,
    ) -> NoReturn:
        self.ledger.append("refusal", {**facts, "reason": f"{where}: {reason}"})
        raise kind(f"{reason}, says the site's policy", where=f"{facts['step']}, {where}", mend=mend)


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _is_declared(call: Call, release: object) -> bool:
    return isinstance(release, Release) and type(release) is call.step.releases


def _concerns_patients(call: Call) -> bool:
    return bool(call.step.releases.concerns_patients)


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _needed_permission(call: Call, declaration: Declaration) -> str:
    """Return the permission that a field needs: a sum that is not masked shows a site's whole table."""
    return "relations=dense" if _is_bare(call, declaration) else declaration.permission


def _is_bare(call: Call, declaration: Declaration) -> bool:
    return call.step.summed and call.protection == "clear" and declaration.permission == "relations=summed"


def _says_something(declaration: Declaration, value: Any) -> bool:
    return len(value) > 0 if declaration.kind in ("text", "texts") else bool(np.any(value))


def facts_of_call(call: Call) -> dict[str, Any]:
    """Return what every entry of a ledger says of the call that it is about."""
    return {
        "study": call.study,
        "session": call.session,
        "call": call.sequence,
        "method": call.step.method,
        "step": call.step.name,
        "protection": call.protection,
        "sites": len(call.peers),
        "peers": call.peers,
        **({"ask": call.mark.ask, "transcript": call.mark.transcript} if call.mark.ask else {}),
        **({"addressed": "each"} if call.step.addressed == "each" else {}),
        **({"records": str(call.selection)} if call.selection else {}),
        **({"counted": True} if call.mask and call.mask.counted else {}),
        **asker_facts(),
    }


def _hint(call: Call, *, several: bool) -> str:
    """Return what helps against too few patients behind an answer, in the state that the call is in."""
    can_mask = call.step.summed and call.protection == "clear" and len(call.peers) > 1
    hints = [(_SEVERAL, several), (_MASK, can_mask), (_MORE_NOISE, call.noise is not None), (_TOO_FEW, True)]
    return " ".join(hint for hint, applies in hints if applies)


def _rounded_up(count: int) -> int:
    """Return the power of ten that is not below a count, which tells its order alone."""
    return int(10 ** len(str(count - 1)))


def _described(call: Call, field: str, key: str, value: Any, behind: Behind) -> dict[str, Any]:
    is_array = isinstance(value, np.ndarray)
    return {
        "field": f"{field}[{key}]" if key else field,
        "shape": list(value.shape) if is_array else [],
        "bytes": value.nbytes if is_array else 8 if isinstance(value, int | float | np.number) else len(_raw(value)),
        "records": behind.records,
        "patients": behind.patients,
        # A masked value does not leave as it is, and a hash of it would let a guess be checked.
        "sha256": None if call.protection == "masked" else hashlib.sha256(_raw(value)).hexdigest(),
    }


def _raw(value: Any) -> bytes:
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
