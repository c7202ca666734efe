"""The synthetic data set of Balelli, Silva and Lorenzi (IPMI 2021), section 4."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multicentre.data import MultiViewData
from multicentre.datasets.labelled import SimulatedMultiView, SimulatedTruth
from multicentre.datasets.sources import SOURCES
from multicentre.federation.errors import ConfigurationError

Shift = Literal["paper", "mild"]

N_LATENT = 5
_SIZES = {"view_1": 15, "view_2": 8, "view_3": 10}
_SPREADS = {"view_1": 10.0, "view_2": 5.0, "view_3": 15.0}
_NOISE_SD = {"view_1": 2.0**0.5, "view_2": 1.0, "view_3": 3.0**0.5}
_MILD_DISTANCE = 2.0


def simulate_sd(
    seed: int | np.random.Generator, shift: Shift = "paper", *, n_patients: int = 400, n_shifted: int | None = None
) -> SimulatedMultiView:
    """Draw three views from a common five-dimensional latent space, with two groups of patients.

    A patient's latent position is standard normal, moved by a vector common to all patients of ``group_2``. View k is
    ``W_k x + mu_k + noise`` (equation 1 of the paper) with 15, 8 and 10 columns, entries of ``W_k`` and ``mu_k``
    uniform within 10, 5 and 15 of zero, and noise of variance 2, 1 and 3. The paper does not print these
    ranges; they follow its authors' published notebook.

    Parameters
    ----------
    seed : int or Generator
        Source of all randomness.
    shift : {"paper", "mild"}
        How the vector between the groups is drawn: uniform in (-10, 10) for each coordinate, which separates the
        groups trivially, or in a uniform direction with length 2, which lets them overlap.
    n_patients : int
        Number of patients, at least 2.
    n_shifted : int, optional
        Number of patients in ``group_2``; by default five eighths, as in the paper (250 of 400).

    Returns
    -------
    SimulatedMultiView
        Views ``view_1`` to ``view_3``, labels ``group_1`` and ``group_2`` in random order, and the true parameters.

    Raises
    ------
    ConfigurationError
        The shift is unknown or a number of patients is out of range.

    Examples
    --------
    >>> drawn = simulate_sd(0)
    >>> drawn.data
    MultiViewData(400 patients; view_1: 15 columns, 400 patients; view_2: 8 columns, 400 patients; view_3: 10 columns,
    400 patients)
    >>> drawn.truth.loadings["view_2"].shape
    (8, 5)
    """
    if shift not in get_args(Shift):
        raise ConfigurationError(f"shift {shift!r} is unknown", where="simulate_sd", mend="Use 'paper' or 'mild'.")
    n_moved = round(n_patients * 5 / 8) if n_shifted is None else n_shifted
    if n_patients < 2 or not 0 <= n_moved <= n_patients:
        raise ConfigurationError(
            f"{n_moved} of {n_patients} patients cannot be shifted",
            where="simulate_sd",
            mend="Draw at least 2 patients.",
        )
    random = np.random.default_rng(seed)
    loadings = {view: random.uniform(-_SPREADS[view], _SPREADS[view], (d, N_LATENT)) for view, d in _SIZES.items()}
    means = {view: random.uniform(-_SPREADS[view], _SPREADS[view], d) for view, d in _SIZES.items()}
    vector = _draw_shift(random, shift)
    moved = random.permutation(n_patients) < n_moved
    latent = random.standard_normal((n_patients, N_LATENT)) + np.outer(moved, vector)
    views = {
        view: latent @ loadings[view].T + means[view] + _NOISE_SD[view] * random.standard_normal((n_patients, d))
        for view, d in _SIZES.items()
    }
    source = SOURCES["sd"]
    return SimulatedMultiView(
        data=MultiViewData(views, ids=range(n_patients)),
        labels=np.where(moved, "group_2", "group_1"),
        name=source.name,
        description=source.description,
        licence=source.licence,
        truth=SimulatedTruth(loadings, means, dict(_NOISE_SD), vector, latent),
    )


def _draw_shift(random: np.random.Generator, shift: Shift) -> NDArray[np.float64]:
    if shift == "paper":
        return random.uniform(-10.0, 10.0, N_LATENT)
    direction = random.standard_normal(N_LATENT)
    return direction * (_MILD_DISTANCE / np.linalg.norm(direction))
