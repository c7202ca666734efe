"""Tables of phenotypes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.data.events.rollup import titles_of
from multicentre.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class CodeWeight:
    """A code of a phenotype.

    Parameters
    ----------
    code : str
    title : str
        The code itself if it has no title.
    weight : float
        Its entry in the phenotype's column, which has length 1 over the codes of the mode.
    """

    code: str
    title: str
    weight: float


@dataclass(frozen=True)
class Phenotype:
    """One component of a factorisation.

    Parameters
    ----------
    number : int
        From 1, the heaviest first.
    weight : float
        Length of its memberships over all patients, ``lambda`` of the paper.
    prevalence : float or None
        Share of the patients, 0 to 1; None if it is unknown or based on few patients.
    codes : mapping of str to tuple of CodeWeight
        Leading codes by mode, the heaviest first; codes without weight are left out.
    coefficient : float or None
        Log odds of an outcome per standard deviation of the membership; None without a model of an outcome.
    p_value : float or None
    """

    number: int
    weight: float
    prevalence: float | None
    codes: Mapping[str, tuple[CodeWeight, ...]]
    coefficient: float | None = None
    p_value: float | None = None


# Five codes per phenotype, cut to 44 characters, keep a row of two modes within a wide terminal.
PRINTED_CODES = 5
# Two modes of 44 characters take 88 columns of the terminal; longer titles are cut.
PRINTED_WIDTH = 44

UNKNOWN = "–"


def as_text(phenotypes: Sequence[Phenotype], outcome_columns: Sequence[str] = ()) -> str:
    """Return a table for a terminal, with one line per leading code of each phenotype.

    Parameters
    ----------
    phenotypes : sequence of Phenotype
    outcome_columns : sequence of {"coefficient", "p_value"}, default ()
        Columns of a model of an outcome.

    Examples
    --------
    >>> print(as_text([Phenotype(1, 12.5, 0.25, {"diagnosis": (CodeWeight("d1", "Anaemia", 0.8),)})]))
    phenotype  weight  patients  diagnosis
    1          12.5    25.0 %    Anaemia  0.80
    """
    blocks = [
        _headings(phenotypes, outcome_columns),
        *(row for one in phenotypes for row in _lines(one, outcome_columns)),
    ]
    widths = [max(map(len, column)) for column in zip(*blocks, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in blocks)
    return "\n".join(line.rstrip() for line in lines)


def as_html(phenotypes: Sequence[Phenotype], outcome_columns: Sequence[str] = ()) -> str:
    """Return a table in HTML with one row per phenotype; codes are tooltips of their titles.

    Parameters
    ----------
    phenotypes : sequence of Phenotype
    outcome_columns : sequence of {"coefficient", "p_value"}, default ()
        Columns of a model of an outcome.

    Examples
    --------
    >>> as_html([Phenotype(1, 12.5, None, {})])[-54:]
    '<td>1</td><td>12.5</td><td>–</td></tr></tbody></table>'
    """
    headings = "".join(f"<th>{escape(name)}</th>" for name in _headings(phenotypes, outcome_columns))
    rows = "".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in (*_numbers(one, outcome_columns), *_html_codes(one))) + "</tr>"
        for one in phenotypes
    )
    return f"<table><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table>"


def _headings(phenotypes: Sequence[Phenotype], outcome_columns: Sequence[str]) -> list[str]:
    modes = phenotypes[0].codes if phenotypes else ()
    return ["phenotype", "weight", "patients", *(name.replace("_", " ") for name in outcome_columns), *modes]


def _lines(one: Phenotype, outcome_columns: Sequence[str]) -> list[list[str]]:
    columns = [[_printed_code(entry) for entry in codes[:PRINTED_CODES]] for codes in one.codes.values()]
    numbers = _numbers(one, outcome_columns)
    height = max([1, *map(len, columns)])
    return [
        [
            *(numbers if row == 0 else [""] * len(numbers)),
            *(column[row] if row < len(column) else "" for column in columns),
        ]
        for row in range(height)
    ]


def _numbers(one: Phenotype, outcome_columns: Sequence[str]) -> list[str]:
    share = UNKNOWN if one.prevalence is None else f"{100 * one.prevalence:.1f} %"
    outcome = [UNKNOWN if getattr(one, name) is None else f"{getattr(one, name):.3g}" for name in outcome_columns]
    return [str(one.number), f"{one.weight:.4g}", share, *outcome]


def _printed_code(entry: CodeWeight) -> str:
    number = f"  {entry.weight:.2f}"
    room = PRINTED_WIDTH - len(number)
    title = entry.title if len(entry.title) <= room else entry.title[: room - 1] + "…"
    return title + number


def _html_codes(one: Phenotype) -> list[str]:
    return [
        "<br>".join(
            f'<span title="{escape(entry.code)}">{escape(entry.title)}</span> {entry.weight:.2f}' for entry in entries
        )
        for entries in one.codes.values()
    ]


Floats = NDArray[np.float64]

Titles = Mapping[str, str] | Literal[True] | None

# Number of patients below which a figure is left out. A larger number protects rare groups better and hides more.
MIN_SHOWN = 10


@dataclass(frozen=True, repr=False)
class PhenotypeTable:
    """Phenotypes with their leading codes; prints as a table in a terminal and in a notebook.

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre.phenotyping.tables import tabulate_phenotypes
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
        """Return the table with the coefficients of an outcome model.

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
        numbers = {one.number for one in self.phenotypes}
        unknown = sorted({*coefficients, *(p_values or {})} - numbers)
        if unknown:
            raise DataError(
                f"phenotypes must be numbered from 1 to {len(self)}; got {', '.join(map(str, unknown))}",
                where="coefficients",
                hint="Use the numbers of the table.",
            )
        return PhenotypeTable(
            tuple(
                replace(one, coefficient=coefficients.get(one.number), p_value=(p_values or {}).get(one.number))
                for one in self.phenotypes
            )
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per phenotype, mode and code: phenotype, mode, rank (from 1), code, title, weight."""
        import pandas as pd

        rows = [
            (one.number, mode, rank, entry.code, entry.title, entry.weight)
            for one in self.phenotypes
            for mode, entries in one.codes.items()
            for rank, entry in enumerate(entries, start=1)
        ]
        return pd.DataFrame(rows, columns=["phenotype", "mode", "rank", "code", "title", "weight"])

    def summary_frame(self) -> pd.DataFrame:
        """Return one row per phenotype: weight, prevalence, outcome columns if any, and the first title per mode."""
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
        frame = pd.DataFrame(rows, columns=["phenotype", "weight", "prevalence", *self._outcome_columns, *self.modes])
        return frame.astype(dict.fromkeys(["weight", "prevalence", *self._outcome_columns], float)).set_index(
            "phenotype"
        )

    def __repr__(self) -> str:
        return as_text(self.phenotypes, self._outcome_columns)

    def _repr_html_(self) -> str:
        return as_html(self.phenotypes, self._outcome_columns)

    @property
    def _outcome_columns(self) -> tuple[str, ...]:
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
    """Return the table of a factorisation's phenotypes, in the order of its columns.

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
        Maximum number of codes per mode and phenotype.
    titles : mapping of str to str or True, optional
        Titles by code; True: the titles of the extra ``codes`` (ICD-9, ICD-10, CCS). A code without a title is shown as
        it is.

    Raises
    ------
    ConfigurationError
        `n_codes` is not an integer of at least 1, or `titles` is of another type.
    """
    if isinstance(n_codes, bool) or n_codes != int(n_codes) or n_codes < 1:
        raise ConfigurationError(f"n_codes must be an integer of at least 1; got {n_codes!r}", where="n_codes")
    shares = list(prevalence) if prevalence is not None else [None] * len(weights)
    leading = [
        {mode: _leading(factor[:, column], codes[mode], int(n_codes)) for mode, factor in factors.items()}
        for column in range(len(weights))
    ]
    title_of_code = _titles((code for one in leading for entries in one.values() for code, _ in entries), titles)
    return PhenotypeTable(
        tuple(
            Phenotype(number, float(weights[number - 1]), shares[number - 1], _with_titles(one, title_of_code))
            for number, one in enumerate(leading, start=1)
        )
    )


def share_of_patients(members: Floats | None, n_patients: float, rank: int) -> list[float | None]:
    """Return the share of patients with each phenotype; None if missing or based on few patients.

    Examples
    --------
    >>> share_of_patients(np.array([50.0, 9.0]), 200.0, 2)
    [0.25, None]
    """
    if members is None or not n_patients > 0:
        return [None] * rank
    return [float(count / n_patients) if count >= MIN_SHOWN else None for count in members]


def _leading(column: Floats, names: Sequence[str], n_codes: int) -> list[tuple[str, float]]:
    first = np.argsort(-np.abs(column), kind="stable")[:n_codes]
    return [(names[place], float(column[place])) for place in first if column[place] != 0]


def _titles(codes: Iterable[str], titles: Titles) -> Mapping[str, str]:
    if titles is not None and titles is not True and not isinstance(titles, Mapping):
        raise ConfigurationError(
            f"titles must be True, None or a mapping of code to title; got {titles!r}",
            where="titles",
            hint="titles=True shows the titles of ICD-9-CM, ICD-10-CM, ICD-10-PCS and CCS; it requires "
            "multicentre[codes].",
        )
    return titles_of(set(codes)) if titles is True else titles or {}


def _with_titles(
    codes: Mapping[str, Sequence[tuple[str, float]]], titles: Mapping[str, str]
) -> dict[str, tuple[CodeWeight, ...]]:
    return {
        mode: tuple(CodeWeight(code, titles.get(code, code), weight) for code, weight in entries)
        for mode, entries in codes.items()
    }
