"""The one gate of a site: it lets an answer pass and writes it down, or refuses it and writes that down."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from multicentre.federation.engine import Call
from multicentre.federation.errors import DisclosureRefused, MulticentreError, RefusedByPolicy
from multicentre.federation.messages import Declaration, place
from multicentre.federation.noise import PlanShown
from multicentre.federation.steps import Release
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.policy import Policy

_MEND = "Ask the site's steward whether its policy can be changed, or leave the site out."
_TOO_FEW = f"Leave out columns and views that few patients have, and patients who alone lack a view. {_MEND}"


class Guard:
    """Holds one site's answers against its policy and keeps its ledger.

    Parameters
    ----------
    policy : Policy
    ledger : Ledger
    cohort : frozenset of int, optional
        Fingerprints of the site's patients, for the differencing memory; stays at the site.
    """

    def __init__(self, policy: Policy, ledger: Ledger, cohort: frozenset[int] = frozenset()) -> None:
        self.policy = policy
        self.ledger = ledger
        self.cohort = cohort
        self._answered: dict[tuple[str, str], list[frozenset[int]]] = {}

    def review(self, plan: PlanShown) -> None:
        """Cost a plan against the budget, before anything is computed."""

    def admit(self, call: Call) -> None:
        """Check a call against the policy before anything is computed.

        Raises
        ------
        RefusedByPolicy
            The method is not on the policy's list, or only masked sums may leave and this is not one.
        """
        policy = self.policy
        if policy.methods is not None and call.step.method not in policy.methods and _concerns_patients(call):
            self._refuse(call, RefusedByPolicy, f"the method {call.step.method} is not allowed here", "methods")
        if policy.secure_sums_only and call.protection != "masked" and _concerns_patients(call):
            self._refuse(call, RefusedByPolicy, "only masked sums may leave this site", "secure_sums_only")
        if call.protection == "masked" and len(set(call.peers)) < policy.min_sites_in_sum:
            self._refuse(
                call, RefusedByPolicy, f"a sum of {len(call.peers)} sites is too small a crowd", "min_sites_in_sum"
            )

    def release(self, call: Call, release: Release) -> Release:
        """Check an answer and write it to the ledger.

        Raises
        ------
        DisclosureRefused
            It is not the declared release, or too few patients stand behind one of its fields.
        """
        if not _is_declared(call, release):
            self._refuse(call, DisclosureRefused, "the answer is not the release that the step declares", "release")
        try:
            release.checked()
        except MulticentreError as error:
            self._refuse(call, DisclosureRefused, f"the answer is not as declared ({error.what})", error.where)
        if type(release).concerns_patients:
            self._check_difference(call)
        fields = [
            self._examine(call, release, field, key, declaration, value)
            for field, key, declaration, value in release.items()
        ]
        if type(release).concerns_patients:
            self._remember(call)
        self.ledger.append("release", {**_facts(call), "fields": fields, "epsilon": None, "delta": None})
        return release

    def _examine(
        self, call: Call, release: Release, field: str, key: str, declaration: Declaration, value: Any
    ) -> dict[str, Any]:
        if not type(release).concerns_patients:
            return _described(call, field, key, value, None)
        patients = release.patients_behind(field, key)
        where = place(type(release), field, key)
        if patients is None:
            self._refuse(call, DisclosureRefused, "the answer does not say how many patients it rests on", where)
        if not _is_count(patients):
            self._refuse(call, DisclosureRefused, "the number of patients behind the answer is not a count", where)
        if patients == 0 and _says_something(declaration, value):
            self._refuse(call, DisclosureRefused, "a value is said to rest on no patient", where)
        if 0 < patients < self.policy.min_patients:
            reason = f"fewer than {self.policy.min_patients} patients stand behind the answer"
            self._refuse(call, DisclosureRefused, reason, where, mend=_TOO_FEW)
        return _described(call, field, key, value, int(patients))

    def _check_difference(self, call: Call) -> None:
        least = self.policy.min_difference
        if not least:
            return
        if not self.cohort:
            reason = "without patient ids nobody can tell by how many patients two cohorts differ"
            self._refuse(call, DisclosureRefused, reason, "min_difference")
        known = self._answered.get((call.step.method, call.step.name), [])
        if any(0 < len(self.cohort ^ earlier) < least for earlier in known):
            self._refuse(
                call,
                DisclosureRefused,
                f"the cohort differs from one already answered for by fewer than {least} patients",
                "min_difference",
            )

    def _remember(self, call: Call) -> None:
        known = self._answered.setdefault((call.step.method, call.step.name), [])
        if self.policy.min_difference and self.cohort not in known:
            known.append(self.cohort)

    def _refuse(
        self, call: Call, kind: Callable[..., MulticentreError], reason: str, where: str, *, mend: str = _MEND
    ) -> NoReturn:
        self.ledger.append("refusal", {**_facts(call), "reason": f"{where}: {reason}"})
        raise kind(f"{reason}, says the site's policy", where=f"{call.step.name}, {where}", mend=mend)


def _is_declared(call: Call, release: object) -> bool:
    return isinstance(release, Release) and type(release) is call.step.releases


def _concerns_patients(call: Call) -> bool:
    return bool(call.step.releases.concerns_patients)


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _says_something(declaration: Declaration, value: Any) -> bool:
    return len(value) > 0 if declaration.kind in ("text", "texts") else bool(np.any(value))


def _facts(call: Call) -> dict[str, Any]:
    return {
        "study": call.study,
        "session": call.session,
        "call": call.sequence,
        "method": call.step.method,
        "step": call.step.name,
        "protection": call.protection,
        "sites": len(call.peers),
    }


def _described(call: Call, field: str, key: str, value: Any, patients: int | None) -> dict[str, Any]:
    # A masked value does not leave as it is, and a hash of it would let a guess be checked.
    raw = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
    return {
        "field": f"{field}[{key}]" if key else field,
        "shape": list(value.shape) if isinstance(value, np.ndarray) else [],
        "bytes": len(raw),
        "patients": patients,
        "sha256": None if call.protection == "masked" else hashlib.sha256(raw).hexdigest(),
    }
