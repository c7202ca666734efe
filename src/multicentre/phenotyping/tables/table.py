"""The table of a factorisation's phenotypes, and how it is made from factors, codes and weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.data.events.titles import titles_of
from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.phenotyping.tables.phenotype import CodeWeight, Phenotype
from multicentre.phenotyping.tables.printing import as_html, as_text

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Titles = Mapping[str, str] | Literal[True] | None
LEAST_SHOWN = 10
"""A figure that rests on fewer patients is left out."""


@dataclass(frozen=True, repr=False)
class PhenotypeTable:
    """Phenotypes with their leading codes; printed, a table for a terminal, and one for a notebook.

    Examples
    --------
    >>> table = tabulate_phenotypes(
    ...     {"procedure": np.array([[0.6], [0.8]]), "diagnosis": np.array([[1.0], [0.0]])},
    ...     {"procedure": ("p1", "p2"), "diagnosis": ("d1", "d2")},
    ...     np.array([12.5]),
    ...     prevalence=[0.25],
    ...     titles={"p2": "Haemodialysis"},
    ... )
    >>> table
    phenotype  weight  patients  procedure            diagnosis
    1          12.5    25.0 %    Haemodialysis  0.80  d1  1.00
                                 p1  0.60
    """

    phenotypes: tuple[Phenotype, ...]

    @property
    def modes(self) -> tuple[str, ...]:
        """Names of the modes."""
        return tuple(self.phenotypes[0].codes) if self.phenotypes else ()

    def __len__(self) -> int:
        return len(self.phenotypes)

    def __iter__(self) -> Iterator[Phenotype]:
        return iter(self.phenotypes)

    def with_outcome(
        self, coefficients: Mapping[int, float], p_values: Mapping[int, float] | None = None
    ) -> PhenotypeTable:
        """Return the table with what a model of an outcome says of the phenotypes.

        Parameters
        ----------
        coefficients : mapping of int to float
            Log odds by the phenotype's number; numbers that are left out have none.
        p_values : mapping of int to float, optional

        Raises
        ------
        DataError
            A number is not one of the table's.
        """
        known = {one.number for one in self.phenotypes}
        strangers = sorted({*coefficients, *(p_values or {})} - known)
        if strangers:
            raise DataError(
                f"the table has no phenotype {', '.join(map(str, strangers))}",
                where="coefficients",
                mend="Number phenotypes from 1, in the order of the table.",
            )
        return PhenotypeTable(
            tuple(
                replace(one, coefficient=coefficients.get(one.number), p_value=(p_values or {}).get(one.number))
                for one in self.phenotypes
            )
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a phenotype, mode and code: phenotype, mode, rank (from 1), code, title, weight."""
        import pandas as pd

        rows = [
            (one.number, mode, rank, entry.code, entry.title, entry.weight)
            for one in self.phenotypes
            for mode, entries in one.codes.items()
            for rank, entry in enumerate(entries, start=1)
        ]
        return pd.DataFrame(rows, columns=["phenotype", "mode", "rank", "code", "title", "weight"])

    def summary_frame(self) -> pd.DataFrame:
        """Return one row a phenotype: weight, prevalence, the outcome's where known, and the first title a mode."""
        import pandas as pd

        rows = [
            {
                "phenotype": one.number,
                "weight": one.weight,
                "prevalence": one.prevalence,
                "coefficient": one.coefficient,
                "p_value": one.p_value,
                **{mode: entries[0].title if entries else "" for mode, entries in one.codes.items()},
            }
            for one in self.phenotypes
        ]
        frame = pd.DataFrame(rows, columns=["phenotype", "weight", "prevalence", *self._told, *self.modes])
        return frame.astype(dict.fromkeys(["weight", "prevalence", *self._told], float)).set_index("phenotype")

    def __repr__(self) -> str:
        return as_text(self.phenotypes, self._told)

    def _repr_html_(self) -> str:
        return as_html(self.phenotypes, self._told)

    @property
    def _told(self) -> tuple[str, ...]:
        return tuple(
            name
            for name in ("coefficient", "p_value")
            if any(getattr(one, name) is not None for one in self.phenotypes)
        )


def tabulate_phenotypes(
    factors: Mapping[str, Floats],
    codes: Mapping[str, Sequence[str]],
    weights: Floats,
    *,
    prevalence: Sequence[float | None] | None = None,
    n_codes: int = 10,
    titles: Titles = None,
) -> PhenotypeTable:
    """Make the table of a factorisation's phenotypes, in the order of its columns.

    Parameters
    ----------
    factors : mapping of str to array of shape (codes, r)
        Weight of every code of a mode in every phenotype.
    codes : mapping of str to sequence of str
        Codes of every mode.
    weights : array of shape (r,)
    prevalence : sequence of float or None, length r, optional
        Share of the patients.
    n_codes : int, default 10
        At most so many codes a mode and phenotype.
    titles : mapping of str to str or True, optional
        Titles by code; True: those that the extra ``codes`` knows (ICD-9, ICD-10, CCS). A code without title stands
        for itself.

    Raises
    ------
    ConfigurationError
        `n_codes` is not a whole number of at least 1.
    """
    if isinstance(n_codes, bool) or n_codes != int(n_codes) or n_codes < 1:
        raise ConfigurationError(f"{n_codes!r} is not a whole number of at least 1", where="n_codes")
    shares = list(prevalence) if prevalence is not None else [None] * len(weights)
    leading = [
        {mode: _leading(factor[:, column], codes[mode], int(n_codes)) for mode, factor in factors.items()}
        for column in range(len(weights))
    ]
    known = _titles((code for one in leading for entries in one.values() for code, _ in entries), titles)
    return PhenotypeTable(
        tuple(
            Phenotype(number, float(weights[number - 1]), shares[number - 1], _with_titles(one, known))
            for number, one in enumerate(leading, start=1)
        )
    )


def share_of_patients(members: Floats | None, n_patients: float, rank: int) -> list[float | None]:
    """Return which share of the patients has each phenotype; None where that is not known or rests on few.

    Examples
    --------
    >>> share_of_patients(np.array([50.0, 9.0]), 200.0, 2)
    [0.25, None]
    """
    if members is None or not n_patients > 0:
        return [None] * rank
    return [float(count / n_patients) if count >= LEAST_SHOWN else None for count in members]


def _leading(column: Floats, names: Sequence[str], n_codes: int) -> list[tuple[str, float]]:
    first = np.argsort(-np.abs(column), kind="stable")[:n_codes]
    return [(names[place], float(column[place])) for place in first if column[place] != 0]


def _titles(codes: Iterable[str], titles: Titles) -> Mapping[str, str]:
    return titles_of(set(codes)) if titles is True else titles or {}


def _with_titles(
    codes: Mapping[str, Sequence[tuple[str, float]]], titles: Mapping[str, str]
) -> dict[str, tuple[CodeWeight, ...]]:
    return {
        mode: tuple(CodeWeight(code, titles.get(code, code), weight) for code, weight in entries)
        for mode, entries in codes.items()
    }
