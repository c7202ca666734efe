"""Exercises of a reproduction and the report sections made from their rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from multicentre.estimator.figures import Figure
from multicentre_papers.runner.verdict import Verdict

P = TypeVar("P")
Row = Mapping[str, Any]
"""Line of a CSV file: texts, integers, finite numbers and None by name."""

FitCallback = Callable[[int], None]
"""Receives the number of completed fits."""


@dataclass(frozen=True)
class Claim(Verdict):
    """Claim of or about the paper and its result in this run.

    Parameters
    ----------
    clear : bool, default True
        True if the figures differ from the claim's level by more than twice their standard error.
    """

    words: ClassVar[tuple[str, str]] = ("holds", "does NOT hold")
    clear: bool = True

    @property
    def verdict(self) -> str:
        """Result in words; "undecided" within two standard errors of the claim's level."""
        verdict = super().verdict
        return "undecided" if not self.clear and verdict in self.words else verdict


class PairedDifference(NamedTuple):
    """Mean difference between two methods over paired rows, its standard error, and the number of pairs."""

    gain: float
    error: float
    n_pairs: int


def compare(claim: str, difference: PairedDifference, remark: str = "", *, least: float = 0.0) -> Claim:
    """Return the claim that a gain is above a level; undecided within two standard errors.

    Examples
    --------
    >>> print(compare("more than before", PairedDifference(0.02, 0.015, 8)))
    undecided: more than before (+0.0200, standard error 0.0150, 8 pairs)
    >>> print(compare("more than before", PairedDifference(0.02, 0.001, 2)))
    too few to judge: more than before (+0.0200, standard error 0.0010, 2 pairs)
    """
    gain, error, n_pairs = difference
    spread = f", standard error {error:.4f}" if math.isfinite(error) else ""
    figures = f"{gain:+.4f}{spread}, {n_pairs} pair{'' if n_pairs == 1 else 's'}" if n_pairs else "no pairs"
    figures += f"; {remark}" if remark else ""
    clear = abs(gain - least) > 2 * error
    return Claim(claim, gain > least, figures, n_repetitions=n_pairs, clear=clear)


@dataclass(frozen=True)
class Section:
    """Report section of one exercise.

    Parameters
    ----------
    blocks : sequence of str
        Paragraphs and tables in Markdown.
    figures : mapping from str to Figure
        Figures by file name without suffix.
    claims : sequence of Claim
    """

    blocks: Sequence[str]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    claims: Sequence[Claim] = ()


@dataclass(frozen=True)
class Exercise(Generic[P]):
    """Reproduction of one figure or table of a paper.

    Parameters
    ----------
    name : str
        Name of the CSV file.
    title : str
    n_fits : callable from the plan to int
    run : callable from the plan and a callback for the number of fits to rows
    show : callable from rows and the plan to Section
    """

    name: str
    title: str
    n_fits: Callable[[P], int]
    run: Callable[[P, FitCallback], list[Row]]
    show: Callable[[Sequence[Row], P], Section]


def pick(rows: Sequence[Row], **place: object) -> list[Row]:
    """Return the rows with these values.

    Examples
    --------
    >>> pick([{"seed": 0, "auc": 0.7}, {"seed": 1, "auc": 0.8}], seed=1)
    [{'seed': 1, 'auc': 0.8}]
    """
    return [row for row in rows if all(row.get(name) == value for name, value in place.items())]


def values(rows: Sequence[Row], name: str) -> list[float]:
    """Return the present values of a column."""
    return [float(row[name]) for row in rows if row.get(name) is not None]


def mean(rows: Sequence[Row], name: str) -> float:
    """Return the mean of the present values of a column; NaN if there are none."""
    present = values(rows, name)
    return sum(present) / len(present) if present else float("nan")


def distinct(rows: Sequence[Row], name: str) -> list[Any]:
    """Return the distinct values of a column in order of appearance."""
    return list(dict.fromkeys(row[name] for row in rows if row.get(name) is not None))


def paired(rows: Sequence[Row], name: str, method: str, rival: str, by: Sequence[str]) -> PairedDifference:
    """Return the mean difference between two methods over rows paired by `by`.

    Examples
    --------
    >>> rows = [{"method": m, "seed": s, "auc": a} for m, s, a in (("a", 0, 0.75), ("b", 0, 0.5))]
    >>> paired(rows, "auc", "a", "b", by=["seed"])
    PairedDifference(gain=0.25, error=nan, n_pairs=1)
    """
    rival_values = {tuple(row[key] for key in by): row.get(name) for row in pick(rows, method=rival)}
    pairs = [(row.get(name), rival_values.get(tuple(row[key] for key in by))) for row in pick(rows, method=method)]
    gains = [one - other for one, other in pairs if one is not None and other is not None]
    middle = sum(gains) / len(gains) if gains else math.nan
    if len(gains) < 2:
        return PairedDifference(middle, math.nan, len(gains))
    variance = sum((one - middle) ** 2 for one in gains) / (len(gains) - 1)
    return PairedDifference(middle, math.sqrt(variance / len(gains)), len(gains))


def skipped(rows: Sequence[Row]) -> list[str]:
    """Return one line per skipped sample; the notes give the reason and the remedy."""
    return [f"*Left out: {row['sample']}.*" for row in rows if row.get("skipped")]
