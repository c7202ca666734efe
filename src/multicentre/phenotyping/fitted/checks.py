"""Checks of parameters that the methods share; each raises ConfigurationError and names the parameter."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError


class MaskedLossWarning(UserWarning):
    """The chosen loss looks at entries above zero alone."""


def check_whole(given: Mapping[str, Any], least: Mapping[str, int]) -> None:
    """Raise ConfigurationError unless each parameter named in `least` is a whole number of at least that.

    Examples
    --------
    >>> check_whole({"rank": 3}, {"rank": 1})
    """
    for name, lowest in least.items():
        value = given[name]
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < lowest:
            raise ConfigurationError(f"{value!r} is not a whole number of at least {lowest}", where=name)


def check_numbers(
    given: Mapping[str, Any], *, above: Mapping[str, float] = {}, least: Mapping[str, float] = {}
) -> None:
    """Raise ConfigurationError unless each parameter is a finite number above, or not below, what is named.

    Examples
    --------
    >>> check_numbers({"tol": 0.0}, least={"tol": 0.0})
    """
    for name, lowest in above.items():
        if not (_is_number(given[name]) and given[name] > lowest):
            raise ConfigurationError(f"{given[name]!r} is not a number above {lowest:g}", where=name)
    for name, lowest in least.items():
        if not (_is_number(given[name]) and given[name] >= lowest):
            raise ConfigurationError(f"{given[name]!r} is not a number of at least {lowest:g}", where=name)


def check_flags(given: Mapping[str, Any], *names: str) -> None:
    """Raise ConfigurationError unless each named parameter is true or false.

    Examples
    --------
    >>> check_flags({"nonnegative": True}, "nonnegative")
    """
    for name in names:
        if not isinstance(given[name], bool | np.bool_):
            raise ConfigurationError(f"{given[name]!r} is neither true nor false", where=name)


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
            mend="Use fewer phenotypes, or keep more codes.",
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
                    "codes should be a list of texts", where=f"vocabulary, mode {mode!r}", mend="Put codes in quotes."
                )
    if n_codes is not None:
        _check_mapping(n_codes, "n_codes", "Give a number for each mode: {'diagnosis': 300}.")
        for mode, number in dict(n_codes).items():  # type: ignore[call-overload]
            if not isinstance(number, int | np.integer) or isinstance(number, bool) or number < 1:
                raise ConfigurationError(
                    f"{number!r} is not a whole number of at least 1", where=f"n_codes, mode {mode!r}"
                )


def _check_mapping(given: object, name: str, mend: str) -> None:
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{type(given).__name__} was given, a mapping is needed", where=name, mend=mend)


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
