"""Sparse tensors of events beside pyttb and tensorly: the product of CP-ALS, whole passes, and DPFact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pairing import Pair, Pairs, Way

import multicentre as mc
from multicentre.core.rounds import Listener
from multicentre.data import EventTensor
from multicentre.datasets import simulate_planted
from multicentre.phenotyping import DPFact
from multicentre.phenotyping.kernels.mttkrp import SparseTensor, mttkrp
from multicentre_papers.baselines.cp import CPALS
from pairs.sites import N_SITES, OPEN, divide

N_PASSES = 3


def pairs(quick: bool) -> Pairs:
    """Yield the pairs; events are simulated at the size of the MIMIC-III tensor of the DPFact paper."""
    tensor = simulate_planted(2_000, {"procedure": 40, "diagnosis": 60}).tensor if quick else simulate_planted().tensor
    rank = 10 if quick else 50
    yield products(tensor, rank)
    yield passes(tensor, rank)
    small = simulate_planted(200 if quick else 500, {"procedure": 40, "diagnosis": 60}).tensor
    yield dense(small, 10)
    yield phenotypes(tensor, 10 if quick else 20)


def describe(tensor: EventTensor) -> str:
    """Return the size of a tensor."""
    return f"{' x '.join(f'{side:,}' for side in tensor.shape)}, {tensor.nnz:,} entries"


def as_pyttb(tensor: EventTensor) -> Any:
    """Return the tensor as pyttb holds it."""
    import pyttb

    return pyttb.sptensor(tensor.coordinates.astype(np.int64), tensor.counts[:, None], tensor.shape)


def apart(ours: Any, peer: Any) -> dict[str, float]:
    """Return the relative difference of two results, which are numbers or arrays."""
    difference = max(np.max(np.abs(a - b)) / np.max(np.abs(b)) for a, b in zip(ours, peer, strict=True))
    return {"largest relative difference": float(difference)}


def products(tensor: EventTensor, rank: int) -> Pair:
    """Pair the products of a tensor and all factors except one (MTTKRP)."""
    sparse = SparseTensor(tensor.coordinates, tensor.counts, tensor.shape)
    generator = np.random.default_rng(0)
    factors = [generator.random((side, rank)) for side in tensor.shape]
    held: dict[str, Any] = {}

    def pyttb_products() -> list[Any]:
        held.setdefault("pyttb", as_pyttb(tensor))  # built in the turn that is not counted
        return [held["pyttb"].mttkrp(factors, mode) for mode in range(3)]

    return Pair(
        f"MTTKRP of three modes, rank {rank}",
        describe(tensor),
        [Way("kernel", lambda: [mttkrp(sparse, factors, mode) for mode in range(3)])],
        [Way("pyttb", pyttb_products, "pyttb")],
        apart,
        "entry and mode",
        3 * tensor.nnz,
    )


def starts(tensor: EventTensor, rank: int) -> dict[str, np.ndarray]:
    """Return the same random start for all ways."""
    generator = np.random.default_rng(0)
    return {mode: generator.random((len(codes), rank)) for mode, codes in tensor.codes.items()}


def als(tensor: EventTensor, start: Mapping[str, np.ndarray], rank: int, *, nonnegative: bool) -> list[float]:
    """Return the share of the tensor that our fit explains."""
    model = CPALS(rank, init=start, max_iter=N_PASSES, tol=0.0, nonnegative=nonnegative).fit(tensor)
    return [model.reconstruction_errors_.fit]


def pyttb_als(tensor: EventTensor, start: Mapping[str, np.ndarray], rank: int) -> Callable[[], list[float]]:
    """Return pyttb's fit from the same start."""
    held: dict[str, Any] = {}

    def fit() -> list[float]:
        import pyttb

        held.setdefault("tensor", as_pyttb(tensor))
        init = pyttb.ktensor([np.ones((len(tensor), rank)), *(factor.copy() for factor in start.values())])
        fitted = pyttb.cp_als(held["tensor"], rank, init=init, maxiters=N_PASSES, stoptol=0.0, printitn=0)
        return [fitted[2]["fit"]]

    return fit


def passes(tensor: EventTensor, rank: int) -> Pair:
    """Pair CP-ALS from the same start."""
    start = starts(tensor, rank)
    return Pair(
        f"CP-ALS, {N_PASSES} passes, rank {rank}",
        describe(tensor),
        [Way("CPALS", lambda: als(tensor, start, rank, nonnegative=False))],
        [Way("pyttb", pyttb_als(tensor, start, rank), "pyttb")],
        apart,
        "entry and pass",
        N_PASSES * tensor.nnz,
    )


def dense(tensor: EventTensor, rank: int) -> Pair:
    """Pair nonnegative CP-ALS with tensorly, which needs all cells in memory."""
    start = starts(tensor, rank)
    cells = np.zeros(tensor.shape)
    cells[tuple(tensor.coordinates.T)] = tensor.counts

    def tensorly() -> list[float]:
        from tensorly.decomposition import non_negative_parafac_hals

        factors = [np.ones((len(tensor), rank)), *(factor.copy() for factor in start.values())]
        errors = non_negative_parafac_hals(
            cells, rank, N_PASSES, init=(np.ones(rank), factors), tol=1e-30, return_errors=True
        )[1]
        return [1 - float(errors[-1])]

    return Pair(
        f"Nonnegative CP-ALS, {N_PASSES} passes, rank {rank}",
        describe(tensor),
        [Way("CPALS, nonnegative", lambda: als(tensor, start, rank, nonnegative=True))],
        [Way("tensorly, non_negative_parafac_hals", tensorly, "tensorly")],
        lambda ours, peer: {"share explained, ours": ours[0], "share explained, peer": peer[0]},
    )


def phenotypes(tensor: EventTensor, rank: int) -> Pair:
    """Pair rounds of DPFact over sites with as many passes of pyttb over the pooled patients."""
    start, sites = starts(tensor, rank), divide(tensor)

    def rounds(*, masked: bool) -> list[float]:
        model = DPFact(rank, init="random", n_starts=1, max_iter=N_PASSES, tol=0.0, vocabulary=tensor.codes)
        with mc.Federation.in_process(sites, policy=OPEN, secure_sum=masked, listener=Listener()) as federation:
            model.fit(federation)
        return [model.n_iter_]

    return Pair(
        f"DPFact over {N_SITES} sites, {N_PASSES} rounds, rank {rank}; pooled: CP-ALS, {N_PASSES} passes",
        describe(tensor),
        [Way("unmasked", lambda: rounds(masked=False)), Way("masked", lambda: rounds(masked=True))],
        [Way("pyttb", pyttb_als(tensor, start, rank), "pyttb")],
    )
