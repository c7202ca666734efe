"""Memory of the cohorts of a site's answers, which prevents the subtraction of two answers.

Every answer that depends on patients' values is compared with the cohorts of all earlier answers, whatever the
quantity, step or method. Counts of records and keyed hashes (``Release.without_values``) are compared only with
releases of the same class.

A record is stored as eight bytes of a hash under a key that never leaves the site's folder. The upper six bytes are the
same for all records of one patient, so that the difference of two cohorts counts patients and not records.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.core.parsing import load_json
from multicentre.core.steps import Step
from multicentre.core.storage import (
    check_owner_writes_alone,
    held,
    make_private_folder,
    read_regular,
    write_atomically,
)
from multicentre.errors import DisclosureRefused, IntegrityError
from multicentre.privacy.policy import ASK_STEWARD, Refusal

Cohort = NDArray[np.uint64]
_KEY, _INDEX, _LOCK = "key", "answered.json", "lock"
ANSWERS, _RELEASE = "answers", "release "
_PATIENCE_S = 10.0  # another process locks the memory for milliseconds only
# Output length of SHA-256, the least that RFC 2104 recommends for the key of an HMAC.
_KEY_BYTES = 32
_PLACE_BITS = 16  # 65,535 records per patient; 48 bits remain for the patient
# Largest place that fits into _PLACE_BITS bits: 2**16 - 1 = 65,535.
_LAST_PLACE = 2**_PLACE_BITS - 1
_SAME = (
    'Use the same patients in both requests: missing="mean" or "indicator" keeps those with a missing entry, and '
    '[data] complete = "all" of a study file leaves them out of all analyses.'
)


def group_of(step: Step[Any, Any, Any]) -> str:
    """Return the group of answers whose cohorts are compared with each other.

    All answers are one group, whatever the quantity, step or method, because almost any sum determines others. For
    example, column sums follow from the sums of squares about two centres. Releases that declare ``without_values``,
    and those with only public fields (names of columns), are compared with releases of the same class.

    Examples
    --------
    >>> from multicentre.survival.cox.site import CoxSite
    >>> from multicentre.survival.rsf.site import ForestSite
    >>> group_of(CoxSite.sum_squares), group_of(ForestSite.sum_squares), group_of(CoxSite.count_gaps)
    ('answers', 'answers', 'release Gaps')
    """
    holds_values = step.releases.tells_of_patients() and not step.releases.without_values
    return ANSWERS if holds_values else f"{_RELEASE}{step.releases.__name__}"


def find_close_cohort(
    memory: CohortMemory, group: str, cohort: Cohort, least: int, session: str = ""
) -> Refusal | None:
    """Return the refusal of a cohort that differs from an earlier one by fewer than `least` patients.

    Parameters
    ----------
    memory : CohortMemory
    group : str
        Group of answers, see :func:`group_of`.
    cohort : array of int
        Fingerprints of the records of the answer.
    least : int
        Smallest permitted difference in patients (``min_difference``).
    session : str, optional
        Session of the answer. The session of the earlier answer is named if it is of the same run.
    """
    if not len(cohort):
        reason = "records must have patient ids to compare cohorts; got none"
        return Refusal("min_difference", reason, DisclosureRefused)
    closest = memory.closest(group, cohort)
    if closest is None or not 0 < closest < least:
        return None
    earlier, earlier_session = memory.label_of_closest(group, cohort)
    if earlier and session and _run_of(earlier_session) == _run_of(session):
        earlier += f" of session {earlier_session}"
    reason = f"the cohort must differ from that of an earlier answer by at least {least} patients; it differs by fewer"
    reason += f" from that of {earlier}" if earlier else ""
    return Refusal("min_difference", reason, DisclosureRefused, f"{_SAME} {ASK_STEWARD}")


def _run_of(session: str) -> str:
    """Return the run of a session, the part of its name before the first dot."""
    return session.partition(".")[0]


class CohortMemory:
    """Cohorts of a site's answers, by group of answers.

    Parameters
    ----------
    folder : Path, optional
        Folder of the memory, readable only by its owner. Without it, the memory lasts as long as this object.

    Examples
    --------
    >>> memory = CohortMemory()
    >>> first, second = memory.fingerprints(["a", "b", "c"]), memory.fingerprints(["a", "b"])
    >>> memory.remember(ANSWERS, first)
    >>> memory.closest(ANSWERS, second), memory.closest(ANSWERS, first), memory.closest("release Gaps", second)
    (1, 0, None)
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._cohorts: dict[str, Cohort] = {}
        self._answered: dict[str, list[str]] = {ANSWERS: []}
        self._labels: dict[str, tuple[str, str]] = {}
        self._secret = os.urandom(_KEY_BYTES)
        if folder is not None:
            with self.alone():
                pass

    def fingerprints(self, ids: Iterable[object], places: ArrayLike | None = None) -> Cohort:
        """Return the records as sorted fingerprints, shape (n,).

        Parameters
        ----------
        ids : iterable
            Patient of each record.
        places : array of int, optional
            Place of each record among those of its patient, from 0. Without it, each patient has one record.
        """
        digests = [hmac.digest(self._secret, str(token).encode(), "sha256")[:8] for token in ids]
        patients = np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)
        if places is None:
            return np.unique(patients)
        place = np.minimum(places, _LAST_PLACE).astype(np.uint64)
        later = (patients >> np.uint64(_PLACE_BITS) << np.uint64(_PLACE_BITS)) | place
        return np.unique(np.where(place > 0, later, patients))

    def closest(self, group: str, cohort: Cohort) -> int | None:
        """Return the number of patients by which a cohort differs from the closest other cohort of a group.

        The result is 0 if the group contains only this cohort, and None if it contains no cohort.
        """
        names = self._answered.get(group)
        if not names:
            return None
        differences = (_n_differing(cohort, self._cohort(name)) for name in names)
        return min(filter(None, differences), default=0)

    def label_of_closest(self, group: str, cohort: Cohort) -> tuple[str, str]:
        """Return label and session of the closest other cohort; empty if it was stored by another process."""
        differences = {name: _n_differing(cohort, self._cohort(name)) for name in self._answered.get(group, ())}
        closest = min(filter(differences.get, differences), key=differences.__getitem__, default="")
        return self._labels.get(closest, ("", ""))

    def remember(self, group: str, cohort: Cohort, label: str = "", session: str = "") -> None:
        """Store the cohort of an answer; it is on disk when this method returns, apart from its label."""
        name = hashlib.sha256(cohort.tobytes()).hexdigest()[:32]
        self._labels.setdefault(name, (label, session))
        names = self._answered.setdefault(group, [])
        if name in names:
            return
        self._cohorts[name] = cohort
        names.append(name)
        if self._folder is not None:
            write_atomically(self._folder / f"{name}.cohort", cohort.tobytes(), mode=0o600)
            write_atomically(self._folder / _INDEX, json.dumps(self._answered).encode(), mode=0o600)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the memory and read the cohorts of other processes, so that check and storage are one operation."""
        if self._folder is None:
            yield
            return
        make_private_folder(self._folder)
        check_owner_writes_alone(self._folder, "memory of cohorts")
        with held(self._folder / _LOCK, _PATIENCE_S):
            self._open(self._folder)
            yield

    def _open(self, folder: Path) -> None:
        for name in (_KEY, _INDEX):
            check_owner_writes_alone(folder / name, "memory of cohorts")
        stored = {path.stem for path in folder.glob("*.cohort")}
        try:
            if not (folder / _KEY).exists() and not stored and not (folder / _INDEX).exists():
                write_atomically(folder / _KEY, self._secret, mode=0o600)
            self._secret = read_regular(folder / _KEY, "key of cohorts")
            if stored or (folder / _INDEX).exists():
                self._answered = _by_group(load_json(read_regular(folder / _INDEX, "memory of cohorts")))
            names = {name for names in self._answered.values() for name in names}
        except (OSError, ValueError, AttributeError, TypeError):
            raise _unreadable(folder) from None
        if len(self._secret) != _KEY_BYTES or not stored >= names:
            raise _unreadable(folder)

    def _cohort(self, name: str) -> Cohort:
        if name not in self._cohorts and self._folder is not None:
            try:
                stored = read_regular(self._folder / f"{name}.cohort", "memory of cohorts")
            except OSError:
                raise _unreadable(self._folder) from None
            if hashlib.sha256(stored).hexdigest()[:32] != name:
                raise _unreadable(self._folder)
            self._cohorts[name] = np.frombuffer(stored, dtype=np.uint64)
        return self._cohorts[name]


def is_begun(folder: Path) -> bool:
    """Return whether a folder holds a memory of cohorts, possibly one without an answer."""
    return (folder / _KEY).exists()


def _by_group(index: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return an index by group; an index without groups becomes one list of answers."""
    if ANSWERS in index:
        return {group: list(names) for group, names in index.items()}
    return {ANSWERS: list(dict.fromkeys(name for names in index.values() for name in names))}


def _n_differing(one: Cohort, other: Cohort) -> int:
    """Return the number of patients with a record that is in only one of two cohorts."""
    records = np.setxor1d(one, other, assume_unique=True)
    return len(np.unique(records >> np.uint64(_PLACE_BITS)))


def _unreadable(folder: Path) -> IntegrityError:
    return IntegrityError(
        "the memory of cohorts is damaged or incomplete",
        where=str(folder),
        hint="Restore the folder from a copy. Without it, differences between cohorts cannot be checked.",
    )
