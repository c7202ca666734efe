"""Release and errors of a fit, as sums over the patients of a site.

:class:`FitSums` is the release of the step ``sum_errors`` of all factorisations; :func:`sum_fit` computes it at the
site.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array, number
from multicentre.core.steps import Release
from multicentre.phenotyping.agreement import COUNTS, PATIENTS, TensorPart
from multicentre.phenotyping.kernels.effective_counts import fewest_in_errors, fewest_patients
from multicentre.phenotyping.kernels.hals import squared_error, squared_error_at_entries
from multicentre.phenotyping.kernels.patients import count_members
from multicentre.phenotyping.scores import TensorErrors

Floats = NDArray[np.float64]

# Bound of sums of products in messages: 2**14 for each of 2**22 patients.
PRODUCTS = 2.0**36

# A patient counts as a member of a phenotype that makes up a tenth of the patient's total. A smaller share would count
# patients with a trace of it, a larger one would miss patients with many phenotypes.
MEMBER_SHARE = 0.1


@dataclass(frozen=True)
class FitSums(Release):
    """Errors of the factors on a site's tensor, as sums over its patients."""

    gram: Floats = array("sums over patients of products of two memberships", ("r", "r"), bound=PRODUCTS)
    members: Floats = array("patients that have the phenotype", ("r",), unit="patients", bound=PATIENTS, counts=True)
    error: float = number("squared error over all cells", bound=COUNTS)
    error_at_entries: float = number("squared error at the entries above zero", bound=COUNTS)
    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_entries: float = number("entries above zero", bound=COUNTS)
    total: float = number("sum of the entries", bound=COUNTS)
    squares: float = number("sum of the squared entries", bound=COUNTS)


def total_errors(sums: FitSums, n_codes: Mapping[str, int]) -> TensorErrors:
    """Return the errors of a fit over the sites that returned sums.

    Parameters
    ----------
    sums : FitSums
        Sums over sites.
    n_codes : mapping of str to int
        Number of codes of every mode.
    """
    return TensorErrors(
        n_entries=sums.n_entries,
        n_cells=sums.n_patients * math.prod(n_codes.values()),
        sum_counts=sums.total,
        sum_squares=sums.squares,
        squared_error=max(sums.error, 0.0),
        squared_error_at_entries=sums.error_at_entries,
    )


def sum_fit(part: TensorPart, memberships: Floats, factors: Sequence[Floats], threshold: float) -> FitSums:
    """Return the sums over a site's patients of a fit: second moments of memberships, members and squared errors.

    Parameters
    ----------
    part : TensorPart
        The site.
    memberships : array of shape (n, r)
    factors : sequence of arrays of shape (codes, r)
    threshold : float
        Least share of a patient's total for a membership to count.
    """
    members, tensor = count_members(memberships, threshold), part.tensor
    matrices = [memberships, *factors]
    return FitSums(
        gram=memberships.T @ memberships,
        members=members,
        error=squared_error(tensor, matrices),
        error_at_entries=squared_error_at_entries(tensor, matrices),
        n_patients=float(tensor.shape[0]),
        n_entries=float(tensor.nnz),
        total=float(tensor.counts.sum()),
        squares=tensor.norm_squared,
        patients=len(memberships) if part.masked else _fewest_behind_fit(part, matrices, members),
    )


def _fewest_behind_fit(part: TensorPart, matrices: Sequence[Floats], members: Floats) -> int:
    """Return the fewest patients behind a number of a fit: a cell of the Gram matrix, a member count or an error."""
    cells = min(part.behind_cells(matrices[0]), part.behind_totals(), fewest_in_errors(part.tensor, matrices))
    return fewest_patients(members, cells)
