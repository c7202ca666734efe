"""Patients made up of landmarks instead of all others: what many patients need (section 4 of the corrected method)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from multicentre.clustering.fedmsgl import messages as sent
from multicentre.clustering.fedmsgl.maths.landmarks import draw_landmarks, keep_largest, spread_codes
from multicentre.clustering.fedmsgl.rounds import Sparse, Views, ask_for_lists
from multicentre.clustering.fedmsgl.site import FedMSGLSite
from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import ConfigurationError

Floats = NDArray[np.float64]
BLOCK = 4096
MOST_ON_ALL = 20_000
NEAREST = 40


@dataclass(frozen=True)
class _Block:
    landmarks: NDArray[np.int64]
    nearest: int
    first: int
    last: int


def code_patients(
    federation: Federation, terms: sent.Terms, views: Views, n: int, n_landmarks: int, seed: int
) -> Sparse:
    """Return what patients are made up of, shape (n, m): the largest shares of the mean over views.

    Up to 20,000 patients all landmarks are mixed, above that the 40 nearest of each patient.

    Raises
    ------
    ConfigurationError
        Some patients lack a view.
    """
    if views.n_incomplete:
        raise ConfigurationError(
            "some patients lack a view", where="landmarks", mend="Take landmarks=None, or leave these patients out."
        )
    drawn = draw_landmarks(n, n_landmarks, seed)
    nearest = 0 if n <= MOST_ON_ALL else min(NEAREST, n_landmarks)
    blocks = []
    for first in range(0, n, BLOCK):
        block = _Block(drawn, nearest, first, min(first + BLOCK, n))
        blocks.append(keep_largest(_coded(federation, terms, views, block)))
    return Sparse.of(csr_array(vstack(blocks, format="csr")))


def _coded(federation: Federation, terms: sent.Terms, views: Views, block: _Block) -> Floats:
    """Return the mean code of a block over all views."""
    told = {name: getattr(terms, name) for name in sent.Terms.declarations()}
    asked = sent.Coding(**told, landmarks=block.landmarks, nearest=block.nearest, first=block.first, last=block.last)
    if federation.protection == "masked":
        codes = federation.sum(FedMSGLSite.code, asked).codes
        return np.asarray(codes / sum(site in federation.sites for site in views.sites))
    total, n_views = np.zeros((block.last - block.first, len(block.landmarks))), 0
    for answer in ask_for_lists(federation, FedMSGLSite.list_codes, asked).values():
        for view, nearest in answer.nearest.items():
            total += spread_codes(nearest, answer.shares[view], len(block.landmarks))
            n_views += 1
    return total / n_views
