"""Kernels on sparse patient tensors beside pyttb and tensorly, in one run: seconds, nanoseconds an entry, ratios."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measuring import pin_threads, show, write_json

from multicentre.phenotyping.kernels.clipped import clipped_products, pass_patients
from multicentre.phenotyping.kernels.hals import hadamard_gram, solve_columns, solve_rows
from multicentre.phenotyping.kernels.mttkrp import SparseTensor, mttkrp
from multicentre.phenotyping.kernels.psgd import pass_entries

try:
    import pyttb
except ImportError:
    pyttb = None
try:
    from tensorly.cp_tensor import unfolding_dot_khatri_rao
except ImportError:
    unfolding_dot_khatri_rao = None

RANK = 50
N_SWEEPS = 5


@dataclass(frozen=True)
class Size:
    """A tensor of the paper: patients and codes, entries, and most codes of either mode in a window (0: uniform)."""

    shape: tuple[int, int, int]
    nnz: int
    most_codes: tuple[int, int] = (0, 0)


SIZES = {
    "synthetic": Size((5_000, 300, 800), 12_000),
    "MIMIC-like": Size((40_662, 202, 316), 427_484, (3, 6)),
    "CMS-like": Size((82_307, 2_532, 10_983), 693_266, (3, 5)),
}


def main() -> None:
    arguments = read_arguments()
    pin_threads()
    results: dict[str, Any] = {"rank": RANK}
    for name, size in SIZES.items():
        tensor, rng = draw_tensor(size, np.random.default_rng(7)), np.random.default_rng(8)
        factors = [0.1 * rng.random((side, RANK)) for side in tensor.shape]
        results[name] = {"nnz": tensor.nnz, "fibres": len(tensor.fibres.codes)}
        results[name]["mttkrp"] = compare_mttkrp(name, tensor, factors, arguments.repeat)
        results[name]["updates"] = time_updates(name, tensor, factors, rng, arguments.repeat)
    results["scaling"] = scale_entries(arguments.repeat)
    results["dense"] = compare_dense(arguments.repeat)
    write_json(arguments.json, results)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=9, help="runs of which the quickest counts (default: 9)")
    parser.add_argument("--json", type=Path, help="also write the results here")
    return parser.parse_args()


def draw_tensor(size: Size, rng: np.random.Generator) -> SparseTensor:
    """Draw entries uniformly, or from windows in which a few codes of a phenotype occur together."""
    if size.most_codes == (0, 0):
        places = np.stack([rng.integers(side, size=2 * size.nnz) for side in size.shape], axis=1)
    else:
        places = draw_windows(size, rng)
    places = np.unique(places, axis=0)
    places = places[np.sort(rng.permutation(len(places))[: size.nnz])]
    return SparseTensor(places, 1.0 + rng.poisson(0.3, len(places)), size.shape)


def draw_windows(size: Size, rng: np.random.Generator) -> np.ndarray:
    """Draw the cells of windows: a patient has one of 20 phenotypes, which are a tenth of the codes of either mode."""
    phenotypes = [[rng.permutation(side)[: side // 10] for _ in range(20)] for side in size.shape[1:]]
    own = rng.integers(20, size=size.shape[0])
    n_windows = int(1.15 * size.nnz / np.prod([(most + 1) / 2 for most in size.most_codes]))
    patients = np.concatenate([np.arange(size.shape[0]), rng.integers(size.shape[0], size=n_windows)])[:n_windows]
    codes, taken = [], []
    for lists, most in zip(phenotypes, size.most_codes, strict=True):
        drawn = rng.integers(len(lists[0]), size=(n_windows, most))
        codes.append(np.array(lists)[own[patients][:, None], drawn])
        taken.append(np.arange(most) < rng.integers(1, most + 1, size=(n_windows, 1)))
    window, first, second = np.nonzero(taken[0][:, :, None] & taken[1][:, None, :])
    return np.stack([patients[window], codes[0][window, first], codes[1][window, second]], axis=1)


def least_seconds(runs: dict[str, Callable[[], Any]], n_runs: int) -> dict[str, float]:
    """Return the quickest of some runs of each, one after another in turn, so that all meet the same machine."""
    least = dict.fromkeys(runs, np.inf)
    for run in runs.values():
        run()
    for _ in range(n_runs):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            least[name] = min(least[name], time.perf_counter() - began)
    return least


def compare_mttkrp(name: str, tensor: SparseTensor, factors: list[np.ndarray], n_runs: int) -> dict[str, Any]:
    """Time the product of every mode, and pyttb's beside it."""
    peer = pyttb and pyttb.sptensor(tensor.coordinates.astype(np.int64), tensor.counts[:, None], tensor.shape)
    found, rows = {}, []
    for mode in range(3):
        runs: dict[str, Callable[[], Any]] = {"ours": lambda mode=mode: mttkrp(tensor, factors, mode)}
        if peer:
            runs["pyttb"] = lambda mode=mode: peer.mttkrp(factors, mode)
            np.testing.assert_allclose(runs["ours"](), runs["pyttb"](), rtol=1e-9)
        seconds = least_seconds(runs, n_runs)
        found[f"mode {mode}"] = seconds
        beside = [f"{1e3 * seconds['pyttb']:.0f}", f"{seconds['pyttb'] / seconds['ours']:.0f}x"] if peer else ["", ""]
        rows.append([str(mode), f"{1e3 * seconds['ours']:.2f}", f"{1e9 * seconds['ours'] / tensor.nnz:.1f}", *beside])
    show(f"MTTKRP, {name}: {tensor.nnz} entries, R={RANK}", ["mode", "ms", "ns/entry", "pyttb ms", "ratio"], rows)
    return found


def time_updates(
    name: str, tensor: SparseTensor, factors: list[np.ndarray], rng: np.random.Generator, n_runs: int
) -> dict[str, float]:
    """Time nonnegative least squares and the passes of stochastic gradient descent."""
    memberships, features = factors[0], factors[1:]
    sparse = memberships * (rng.random(memberships.shape) < 0.1)
    products, gram = mttkrp(tensor, factors, 0), hadamard_gram(factors, skip=0)
    shuffled, patients = rng.permutation(tensor.nnz), rng.permutation(tensor.shape[0])
    slices = np.split(np.arange(tensor.nnz), tensor.order(0)[1][1:-1])
    blocked = np.concatenate([slices[i] for i in patients])
    runs: dict[str, Callable[[], Any]] = {
        f"HALS rows, {N_SWEEPS} sweeps": lambda: solve_rows(products, gram, memberships, N_SWEEPS),
        f"HALS columns with l21, {N_SWEEPS} sweeps": lambda: solve_columns(products, gram, memberships, 0.1, N_SWEEPS),
        "P-SGD, entries shuffled": lambda: pass_entries(tensor, shuffled, memberships, features, 1e-3, 1.0, features),
        "P-SGD, patient by patient": lambda: pass_entries(tensor, blocked, memberships, features, 1e-3, 1.0, features),
        "clipped statistics of patients": lambda: clipped_products(tensor, sparse, features, 1, 0.6, 0.6),
    }
    if tensor.shape[1] < 1000:
        runs["P-SGD on all cells, by patient"] = lambda: pass_patients(tensor, patients, sparse, features, 1, 1e-3, 0.6)
    seconds = least_seconds(runs, max(3, n_runs // 2))
    rows = [[kind, f"{1e3 * one:.1f}", f"{1e9 * one / tensor.nnz:.0f}"] for kind, one in seconds.items()]
    show(f"Updates, {name}", ["kernel", "ms", "ns/entry"], rows)
    ratio = seconds["P-SGD, entries shuffled"] / seconds["P-SGD, patient by patient"]
    print(f"patient by patient: {ratio:.1f}x quicker than shuffled")
    return seconds


def scale_entries(n_runs: int) -> dict[str, float]:
    """Time the product of all modes over the number of entries, patients in proportion."""
    found, rows = {}, []
    for share in (0.125, 0.25, 0.5, 1.0):
        full = SIZES["MIMIC-like"]
        size = Size((int(full.shape[0] * share), *full.shape[1:]), int(full.nnz * share), full.most_codes)
        tensor, rng = draw_tensor(size, np.random.default_rng(9)), np.random.default_rng(8)
        factors = [rng.random((side, RANK)) for side in tensor.shape]
        run = {"all": lambda tensor=tensor, factors=factors: [mttkrp(tensor, factors, mode) for mode in range(3)]}
        seconds = least_seconds(run, n_runs)["all"]
        found[str(tensor.nnz)] = seconds
        rows.append([str(tensor.nnz), f"{1e3 * seconds:.1f}", f"{1e9 * seconds / tensor.nnz:.1f}"])
    show("MTTKRP of three modes by number of entries", ["entries", "ms", "ns/entry"], rows)
    return found


def compare_dense(n_runs: int) -> dict[str, float]:
    """Time tensorly's dense product where a dense block is feasible."""
    if unfolding_dot_khatri_rao is None:
        return {}
    size = Size((500, 100, 200), 5_000)
    tensor, rng = draw_tensor(size, np.random.default_rng(9)), np.random.default_rng(8)
    factors = [rng.random((side, RANK)) for side in tensor.shape]
    cells = np.zeros(tensor.shape)
    cells[tuple(tensor.coordinates.T)] = tensor.counts
    seconds = least_seconds(
        {
            "ours": lambda: [mttkrp(tensor, factors, mode) for mode in range(3)],
            "tensorly, dense": lambda: [unfolding_dot_khatri_rao(cells, (None, factors), mode) for mode in range(3)],
        },
        max(3, n_runs // 3),
    )
    rows = [[kind, f"{1e3 * one:.2f}"] for kind, one in seconds.items()]
    show("MTTKRP of three modes, 500 x 100 x 200, 5000 entries", ["kernel", "ms"], rows)
    return seconds


if __name__ == "__main__":
    main()
