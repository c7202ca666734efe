"""Fitted FedMSGL: the attributes that figures show and that files hold."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from multicentre.clustering.aligned import AlignedClusterer
from multicentre.clustering.candidates import Candidates
from multicentre.clustering.fedmsgl.rounds import Sparse
from multicentre.estimator.saved import PLAIN, Saved, SavedAttributes, saved_message

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_SPARSE = saved_message(Sparse)


class FedMSGLModel(AlignedClusterer):
    """Base of the estimator: the attributes of a fit, which :class:`FedMSGL` describes, and their form in files."""

    saved_attributes: ClassVar[SavedAttributes] = {
        **AlignedClusterer.saved_attributes,
        "embedding_": PLAIN,
        "eigenvalues_": PLAIN,
        "affinity_": Saved(
            lambda affinity: _SPARSE.pack(Sparse.of(affinity)),
            lambda parts: _SPARSE.unpack(parts).matrix,
            in_parts=True,
        ),
        "view_weights_": PLAIN,
        "n_clusters_": PLAIN,
        "candidates_": dataclasses.replace(saved_message(Candidates), optional=True),
    }
    n_clusters: int | None
    embedding_: Floats
    affinity_: csr_array
    eigenvalues_: Floats
    n_clusters_: int
    candidates_: Candidates
