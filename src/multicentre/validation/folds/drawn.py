"""Folds drawn at random within every site, which records of one person at two sites escape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.coordinator import Federation
from multicentre.federation.messages import Nothing
from multicentre.federation.steps import Acknowledgement, step
from multicentre.validation.folds import messages as sent
from multicentre.validation.folds.site import FoldPart
from multicentre.validation.folds.splitter import FoldSplitter, checked_splits

Integers = NDArray[np.int64]


class DrawnFolds(FoldPart):
    """The site part of random folds."""

    method: ClassVar[str] = "random-folds"

    @step(releases=Acknowledgement, when="once")
    def draw(self, ask: sent.Drawing) -> Acknowledgement:
        """Draw a fold for every patient of this site; nothing leaves."""
        n_splits = checked_splits(ask.n_splits)
        random = self.generator(ask.seed, int(self.data.digest()[:16], 16))
        self.settle(draw_folds(self.patients_by(ask.patient_key), n_splits, random), n_splits, ask)
        return Acknowledgement()


class FederatedKFold(FoldSplitter):
    """Random folds of equal size, drawn within every site: not safe against duplicates.

    A person with records at two sites is in two folds with probability 1 - 1/K, and what is learnt of one record is
    tested on the other: estimates are too good. It serves to measure by how much, see
    :func:`multicentre.validation.leakage_report`.

    Parameters
    ----------
    n_splits : int, default 5
        Folds, from 2 to 100.
    patient_key : str, optional
        Column of identifiers by which a site knows the records of one patient; they stay together. By default every
        record is a patient.
    random_state : int, default 0
        Seed; a site mixes it with its data, so that nobody else can look for seeds whose folds differ by one record.

    Examples
    --------
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: mc.data.TableData(rng.normal(size=(60, 2)), np.arange(60) % 2) for name in ("lyon", "oslo")}
    >>> plan = FederatedKFold(3).plan(mc.Federation.in_process(sites))
    >>> plan.counts.tolist(), plan.duplicate_safe
    ([40.0, 40.0, 40.0], False)
    """

    site_part: ClassVar[type[FoldPart]] = DrawnFolds
    duplicate_safe: ClassVar[bool] = False

    def __init__(self, n_splits: int = 5, *, patient_key: str | None = None, random_state: int = 0) -> None:
        self.n_splits = n_splits
        self.patient_key = patient_key
        self.random_state = random_state

    def _divide(self, federation: Federation) -> Mapping[str, object]:
        told = sent.Drawing(checked_splits(self.n_splits), int(self.random_state), self.patient_key or "")
        federation.once("divided", Nothing, lambda: _drawn(federation, told))
        return {}

    def _folds(self, X: NDArray[Any], y: NDArray[Any] | None, groups: NDArray[Any] | None) -> Integers:
        patients = np.arange(len(X)) if groups is None else np.unique(groups, return_inverse=True)[1]
        return draw_folds(patients, checked_splits(self.n_splits), np.random.default_rng(self.random_state))


def draw_folds(patients: Integers, n_splits: int, random: np.random.Generator) -> Integers:
    """Return folds of about equally many patients, all records of a patient in one.

    Parameters
    ----------
    patients : array of int, shape (n,)
        Number of every record's patient, from 0.
    n_splits : int
    random : numpy.random.Generator

    Examples
    --------
    >>> folds = draw_folds(np.arange(7), 3, np.random.default_rng(0))
    >>> sorted(np.bincount(folds).tolist())
    [2, 2, 3]
    """
    n_patients = int(patients.max(initial=-1)) + 1
    order = random.permutation(n_splits)
    fold = np.empty(n_patients, dtype=np.int64)
    fold[random.permutation(n_patients)] = order[np.arange(n_patients) % n_splits]
    return fold[patients]


def _drawn(federation: Federation, told: sent.Drawing) -> Nothing:
    federation.ask(DrawnFolds.draw, told)
    return Nothing()
