"""Lines of a table from fits: mean over folds, then mean and standard deviation over repetitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from multicentre_papers.fed_mv_ppca.measure import Figures

FIGURES = ("mae_train", "mae_test", "accuracy", "log_likelihood", "imputation_mae", "mean_imputation_mae", "seconds")


@dataclass(frozen=True)
class Row:
    """Position of one fit in the table, and its figures."""

    sample: str
    scenario: str
    n_sites: int
    method: str
    repetition: int
    fold: int
    n_components: int
    figures: Figures

    def flat(self) -> dict[str, object]:
        """Return the row as a line of a CSV file."""
        position = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del position["figures"]
        return position | dataclasses.asdict(self.figures)


@dataclass(frozen=True)
class Summary:
    """One line of a table.

    Parameters
    ----------
    sample, scenario, n_sites, method
        Position in the table.
    mean, deviation : dict from str to float
        Mean and standard deviation over repetitions by figure; the deviation of one repetition is not-a-number.
    n_repetitions : int
        Repetitions behind them.
    n_fits, n_settled : int
        Fits, and those that ended by their own criterion.
    """

    sample: str
    scenario: str
    n_sites: int
    method: str
    mean: dict[str, float]
    deviation: dict[str, float]
    n_repetitions: int
    n_fits: int
    n_settled: int


def summarise(rows: Iterable[Row]) -> list[Summary]:
    """Return one line for every data set, scenario, number of centres and method, in the order of the rows."""
    groups: dict[tuple[str, str, int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.sample, row.scenario, row.n_sites, row.method), []).append(row)
    return [_summarise(place, members) for place, members in groups.items()]


def find(lines: Iterable[Summary], **place: object) -> list[Summary]:
    """Return the lines whose fields have these values."""
    return [line for line in lines if all(getattr(line, name) == value for name, value in place.items())]


def _summarise(place: tuple[str, str, int, str], members: list[Row]) -> Summary:
    repetitions = sorted({row.repetition for row in members})
    by_repetition = np.array(
        [np.mean([_values(row) for row in members if row.repetition == r], axis=0) for r in repetitions]
    )
    mean = by_repetition.mean(axis=0)
    deviation = by_repetition.std(axis=0, ddof=1) if len(repetitions) > 1 else np.full(len(FIGURES), np.nan)
    return Summary(
        *place,
        mean=dict(zip(FIGURES, mean.tolist(), strict=True)),
        deviation=dict(zip(FIGURES, deviation.tolist(), strict=True)),
        n_repetitions=len(repetitions),
        n_fits=len(members),
        n_settled=sum(row.figures.converged for row in members),
    )


def _values(row: Row) -> list[float]:
    return [getattr(row.figures, name) for name in FIGURES]
