"""Fits over sites in this process, and what is measured of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from multicentre.data import EventTensor
from multicentre.errors import NoiseWarning, SeparationWarning
from multicentre.federation import Federation
from multicentre.phenotyping.dpfact import DPFact
from multicentre.phenotyping.fitted.model import PhenotypeModel, rank_outcome
from multicentre.privacy.policy import Policy
from multicentre_papers.baselines.trip import TRIP
from multicentre_papers.dpfact import published
from multicentre_papers.entry_descent import MaskedLossWarning
from multicentre_papers.published import DPFactAsPublished
from multicentre_papers.published.dpfact.estimator import ClaimWarning

Floats = NDArray[np.float64]
Sites = Mapping[str, EventTensor]
Codes = Mapping[str, tuple[str, ...]]
M = TypeVar("M", bound=PhenotypeModel)
OPEN = Policy(min_patients=0, max_parameters_per_patient=0)
"""Data that anyone may see: no answer is too small."""

HAS_NOISE = find_spec("opendp") is not None
NO_NOISE = "Private fits are left out: opendp is not installed. Install multicentre[dp]."
# Value at which absent phenotypes of planted data were recovered without false positives.
SPARSITY = 0.06
# Tuned on planted data in the size of MIMIC-III; a small penalty lets the sites converge to different factors.
PENALTY_OF_TRIP = 300.0
# The paper's 60-40 split.
HELD_OUT = 0.4
# Mean of the paper's six values of ``mu`` for the units of MIMIC-III, used for sites that are not such units.
MEAN_MU = 1.65


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings of short, noisy or masked fits from the analyst: here they are meant."""
    with warnings.catch_warnings():
        for kind in (ConvergenceWarning, MaskedLossWarning, ClaimWarning, SeparationWarning, NoiseWarning):
            warnings.simplefilter("ignore", kind)
        yield


@contextmanager
def federated(sites: Sites, *, secure_sum: bool = False) -> Iterator[Federation]:
    """Yield a federation of simulated sites."""
    with quiet(), Federation.in_process(sites, policy=OPEN, secure_sum=secure_sum) as federation:
        yield federation


def fit(model: M, sites: Sites, *, secure_sum: bool = False) -> M:
    """Fit a method over simulated sites."""
    with federated(sites, secure_sum=secure_sum) as federation:
        model.fit(federation)
    return model


def dpfact(rank: int, codes: Codes, seed: int, **parameters: object) -> DPFact:
    """Return DPFact over all codes of a simulated vocabulary, which is public."""
    return DPFact(rank, vocabulary=codes, random_state=seed, **parameters)  # type: ignore[arg-type]


def trip(rank: int, codes: Codes, seed: int, n_patients: int, max_iter: int, *, track_errors: bool = False) -> TRIP:
    """Return TRIP with a penalty that grows with the patients, as curvature does: 300 at MIMIC-III's size."""
    return TRIP(
        rank,
        penalty=PENALTY_OF_TRIP * n_patients / published.SIZES[published.MIMIC][0],
        max_iter=max_iter,
        tol=0.0,
        vocabulary=codes,
        min_code_patients=0,
        track_errors=track_errors,
        random_state=seed,
    )


def as_published(rank: int, codes: Codes, seed: int, epochs: int, stands_for: str, **parameters: object) -> DPFact:
    """Return DPFact as it was published: only entries above zero, and the paper's parameters."""
    mu = published.MU[stands_for]
    return DPFactAsPublished(
        rank,
        vocabulary=codes,
        min_code_patients=0,
        random_state=seed,
        max_iter=epochs,
        tol=0.0,
        elastic_penalty=published.GAMMA,
        learning_rate=published.LEARNING_RATE[stands_for],
        sparsity=MEAN_MU if len(mu) > 1 else mu[0],
        **parameters,  # type: ignore[arg-type]
    )


def auc_of(memberships: Floats, outcomes: NDArray[np.int8], seed: int) -> float | None:
    """Return the area under the curve of a logistic regression on 60 % of the patients, evaluated on 40 %.

    None where the held-out or the other patients all have the same outcome.

    Examples
    --------
    >>> auc_of(np.arange(20.0)[:, None], np.repeat(np.array([0, 1], dtype=np.int8), 10), seed=0)
    1.0
    """
    happened = outcomes.astype(bool)
    if min(happened.sum(), (~happened).sum()) < 2:
        return None
    training, held_out = train_test_split(
        np.arange(len(happened)), test_size=HELD_OUT, random_state=seed, stratify=happened
    )
    if len(set(happened[held_out])) < 2 or len(set(happened[training])) < 2:
        return None
    return rank_outcome(memberships[training], happened[training], memberships[held_out], happened[held_out])
