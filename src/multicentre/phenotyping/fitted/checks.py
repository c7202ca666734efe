"""Checks of parameters that the methods share; each raises ConfigurationError and names the parameter."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.messages import array, number
from multicentre.federation.steps import Release
from multicentre.phenotyping.agreement import COUNTS, PATIENTS, TensorPart
from multicentre.phenotyping.kernels.effective_counts import fewest_in_errors, fewest_patients
from multicentre.phenotyping.kernels.hals import squared_error, squared_error_at_entries
from multicentre.phenotyping.kernels.patients import count_members
from multicentre.phenotyping.scores import TensorErrors


class MaskedLossWarning(UserWarning):
    """The loss includes only entries above zero."""


def check_whole(parameters: Mapping[str, Any], least: Mapping[str, int]) -> None:
    """Raise ConfigurationError unless each parameter named in `least` is a whole number of at least that.

    Examples
    --------
    >>> check_whole({"rank": 3}, {"rank": 1})
    """
    for name, lowest in least.items():
        value = parameters[name]
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < lowest:
            raise ConfigurationError(f"{name} must be an integer of at least {lowest}; got {value!r}", where=name)


def check_numbers(
    parameters: Mapping[str, Any], *, above: Mapping[str, float] = {}, least: Mapping[str, float] = {}
) -> None:
    """Raise ConfigurationError unless each parameter is a finite number above, or not below, its limit.

    Examples
    --------
    >>> check_numbers({"tol": 0.0}, least={"tol": 0.0})
    """
    for name, lowest in above.items():
        if not (_is_number(parameters[name]) and parameters[name] > lowest):
            raise ConfigurationError(f"{name} must be a number above {lowest:g}; got {parameters[name]!r}", where=name)
    for name, lowest in least.items():
        if not (_is_number(parameters[name]) and parameters[name] >= lowest):
            raise ConfigurationError(
                f"{name} must be a number of at least {lowest:g}; got {parameters[name]!r}", where=name
            )


def check_flags(parameters: Mapping[str, Any], *names: str) -> None:
    """Raise ConfigurationError unless each named parameter is true or false.

    Examples
    --------
    >>> check_flags({"nonnegative": True}, "nonnegative")
    """
    for name in names:
        if not isinstance(parameters[name], bool | np.bool_):
            raise ConfigurationError(f"{name} must be True or False; got {parameters[name]!r}", where=name)


def check_rank(rank: int, sizes: Mapping[str, int]) -> None:
    """Raise ConfigurationError when there are more phenotypes than codes of some mode.

    Parameters
    ----------
    rank : int
    sizes : mapping from str to int
        Codes of every mode.

    Examples
    --------
    >>> check_rank(2, {"procedure": 2, "diagnosis": 5})
    """
    mode, size = min(sizes.items(), key=lambda item: item[1])
    if rank > size:
        raise ConfigurationError(
            f"{rank} phenotypes are more than the {size} codes of mode {mode!r}",
            where="rank",
            hint="Use fewer phenotypes, or keep more codes.",
        )


def check_codes(vocabulary: object, n_codes: object) -> None:
    """Raise ConfigurationError unless a list of codes and the numbers of codes to keep can be read.

    Parameters
    ----------
    vocabulary : mapping from str to sequence of str, or None
    n_codes : mapping from str to int, or None

    Examples
    --------
    >>> check_codes({"procedure": ["p1"], "diagnosis": ["d1"]}, {"diagnosis": 1})
    """
    if vocabulary is not None:
        _check_mapping(
            vocabulary, "vocabulary", "Give a list of codes for each mode: {'diagnosis': ['icd9cm-dx:4280']}."
        )
        for mode, names in dict(vocabulary).items():  # type: ignore[call-overload]
            if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
                raise ConfigurationError(
                    "codes should be a list of texts", where=f"vocabulary, mode {mode!r}", hint="Put codes in quotes."
                )
    if n_codes is not None:
        _check_mapping(n_codes, "n_codes", "Give a number for each mode: {'diagnosis': 300}.")
        for mode, number in dict(n_codes).items():  # type: ignore[call-overload]
            if not isinstance(number, int | np.integer) or isinstance(number, bool) or number < 1:
                raise ConfigurationError(
                    f"n_codes must be integers of at least 1; got {number!r}", where=f"n_codes, mode {mode!r}"
                )


def _check_mapping(value: object, name: str, hint: str) -> None:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} must be a mapping; got {type(value).__name__}", where=name, hint=hint)


def warn_of_absent(weights: NDArray[np.float64]) -> None:
    """Warn of phenotypes that no patient has.

    Examples
    --------
    >>> warn_of_absent(np.array([2.0, 1.0]))
    """
    n_absent = int((weights <= 0).sum())
    if n_absent:
        warnings.warn(
            f"{n_absent} of {len(weights)} phenotypes have no patient: lower sparsity, or use a smaller rank.",
            UserWarning,
            stacklevel=6,
        )


def _is_number(value: object) -> bool:
    is_real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_real and math.isfinite(value)  # type: ignore[arg-type]


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
    n_codes : mapping from str to int
        Codes of every mode.
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
    cells = min(part.behind_cells(matrices[0]), part.behind_totals, fewest_in_errors(part.tensor, matrices))
    return fewest_patients(members, cells)
