"""Table 1: descriptive statistics of all patients and of groups, from sums over sites.

The fit consists of:

1. Each site returns the names of its columns, levels and classes. The coordinator checks that they are equal.
2. Each site counts its patients by group and level, and sums its numeric variables by group.
3. The coordinator sends the means. Each site returns squared differences from them.
4. With ``quartiles=True``, a search for quartiles of every numeric variable, overall and by group, via counts
   (:mod:`multicentre.statistics.quantiles`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.analytics.describe.maths import (
    chi_square_test,
    difference_of_means,
    difference_of_shares,
    means,
    standard_deviations,
    welch_test,
)
from multicentre.analytics.describe.site import (
    OUTCOME,
    Counts,
    Described,
    DescribeSite,
    Groups,
    Means,
    Squares,
)
from multicentre.analytics.describe.suppression import suppressed_cells
from multicentre.core.messages import Message, Nothing, array
from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.data.categories import families
from multicentre.data.schema import agree_tables
from multicentre.errors import ConfigurationError
from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.figures import Bars, Figure, Table
from multicentre.estimator.parameters import Flag, Integer, ParameterRanges, Where
from multicentre.estimator.presentation import number_column
from multicentre.estimator.saved import PLAIN, SavedAttributes, saved_message
from multicentre.statistics.quantiles import find_thresholds

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
OVERALL, MISSING = "overall", "missing"
# Binary digits of a value that the search for quartiles distinguishes, and those that one call adds.
QUARTILE_DIGITS, DIGITS_PER_CALL = 24, 8
_NAME = (None, Where("the name of a variable", lambda value: isinstance(value, str) and bool(value)))


@dataclass(frozen=True)
class Quartiles(Message):
    """Quartiles of numeric variables."""

    values: Floats = array("quartiles by group (all patients first), variable and quarter", ("h", "d", 3), finite=False)


class Describe(FederatedEstimator):
    """Table 1: counts, means and quartiles of all patients and of groups, and how the groups differ.

    Sites hold ``TableData``. The outcome is a variable named "outcome".

    Parameters
    ----------
    by : str, optional
        Variable whose levels are the groups: a category, a column of `categorical`, or "outcome" if it is a class. By
        default there are no groups.
    categorical : sequence of str, default ()
        Columns of zeros and ones that are counted instead of averaged.
    quartiles : bool, default True
        Search for medians and quartiles, which takes up to three more calls. They are within a hundredth of a quarter
        of the patients, and within a 4096th of the value if a policy has a minimum of patients.
    min_cell : int, default 5
        Smallest count that the table shows. Smaller counts, except 0, and further counts from which they would follow,
        are left out.

    Attributes
    ----------
    groups_ : Groups
        Groups and variables.
    group_names_ : tuple of str
        Names of the groups; empty without groups.
    counts_ : Counts
        Counts and sums of every group, the last without a group. Not for publication: small cells are included.
    squares_ : Squares
        Sums of squared differences from the means.
    quartiles_ : array of shape (G + 1, d, 3)
        Quartiles of the d numeric variables, for all patients and for each of G groups; NaN with ``quartiles=False``
        and without patients.

    Raises
    ------
    ConfigurationError
        `by` or `categorical` does not name a variable of this kind.
    DataError
        A column of `categorical` has values other than 0 and 1.
    SchemaMismatch
        Sites differ in columns, levels or classes.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(60, 10, 300), rng.integers(0, 2, 300)])
    >>> data = mc.data.TableData(X, rng.integers(0, 2, 300), columns=["age", "smoker"], classes=["alive", "dead"])
    >>> sites = {name: data.take(np.arange(start, 300, 3)) for start, name in enumerate(["lyon", "oslo", "turin"])}
    >>> with mc.Federation.in_process(sites) as federation:
    ...     model = mc.analytics.Describe(by="outcome", categorical=["smoker"], quartiles=False).fit(federation)
    >>> print(model.to_frame()["overall"].to_string())
    n                            300
    age, mean (SD)       59.6 (10.2)
    smoker = 0, n (%)     142 (47.3)
    smoker = 1, n (%)     158 (52.7)
    """

    site_part: ClassVar[type[SitePart]] = DescribeSite
    parameter_ranges: ClassVar[ParameterRanges] = {
        "by": _NAME,
        "categorical": Where(
            "a list of names",
            lambda value: (
                not isinstance(value, str)
                and isinstance(value, Sequence)
                and all(isinstance(name, str) for name in value)
            ),
        ),
        "quartiles": Flag(),
        "min_cell": Integer(0),
    }
    saved_attributes: ClassVar[SavedAttributes] = {
        "groups_": saved_message(Groups),
        "counts_": saved_message(Counts),
        "squares_": saved_message(Squares),
        "quartiles_": PLAIN,
    }
    may_be_missing: ClassVar[frozenset[str]] = frozenset({"quartiles_"})
    groups_: Groups
    counts_: Counts
    squares_: Squares
    quartiles_: Floats

    def __init__(
        self,
        by: str | None = None,
        *,
        categorical: Sequence[str] = (),
        quartiles: bool = True,
        min_cell: int = 5,
    ) -> None:
        self.by = by
        self.categorical = categorical
        self.quartiles = quartiles
        self.min_cell = min_cell

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters, and requests after it, may use."""
        steps = {"describe", "count_groups", "sum_squares", "describe_site"}
        return frozenset(steps | {"count_below"} if self.quartiles else steps)

    def _fit(self, session: Session) -> None:
        described = session.once(
            "described", Described, lambda: agree_tables(session.ask(DescribeSite.describe, Nothing()))
        )
        self.groups_ = groups = self._plan(described)
        self.counts_ = counts = session.once("counts", Counts, lambda: session.sum(DescribeSite.count_groups, groups))
        fields = {name: getattr(groups, name) for name in Groups.declarations()}
        mean = np.nan_to_num(means(counts.present.astype(np.float64), counts.total))
        request = Means(**fields, mean=mean)
        self.squares_ = session.once("squares", Squares, lambda: session.sum(DescribeSite.sum_squares, request))
        self.quartiles_ = session.once("quartiles", Quartiles, lambda: self._search(session)).values
        self.history_ = []

    def _plan(self, described: Described) -> Groups:
        """Return groups and variables for the columns of the sites."""
        by_category = families(described.levels)
        levels = [name for names in by_category.values() for name in names]
        absent = [name for name in self.categorical if name not in described.columns]
        if absent:
            raise ConfigurationError(
                f"categorical must name columns; got {', '.join(absent)}",
                where="categorical",
                hint=f"The columns are {', '.join(described.columns[:10])}.",
            )
        levels += [f"{name}={level}" for name in self.categorical for level in ("0", "1")]
        numbers = [name for name in described.columns if "=" not in name and name not in self.categorical]
        if described.classes:
            levels += [f"{OUTCOME}={level}" for level in described.classes]
        elif OUTCOME not in numbers:
            numbers.append(OUTCOME)
        group_levels = tuple(name.partition("=")[2] for name in levels if name.partition("=")[0] == self.by)
        if self.by and not group_levels:
            raise ConfigurationError(
                f"by must name a category, a column of categorical, or the outcome if it is a class; got {self.by!r}",
                where="by",
                hint=f"Categories are {', '.join(families(levels)) or 'none'}.",
            )
        other_levels = tuple(name for name in levels if name.partition("=")[0] != self.by)
        return Groups(self.by or "", group_levels, tuple(numbers), other_levels)

    def _search(self, session: Session) -> Quartiles:
        n_groups, d = max(len(self.groups_.group_levels), 1), len(self.groups_.numbers)
        values = np.full((n_groups + 1, d, 3), np.nan)
        if not self.quartiles or not d:
            return Quartiles(values)
        thresholds = find_thresholds(
            session,
            DescribeSite,
            n_columns=(n_groups + 1) * d,
            n_parts=4,
            bits=DIGITS_PER_CALL,
            finest=QUARTILE_DIGITS,
        )
        flat = values.reshape(-1, 3)
        for place, quarters in enumerate(thresholds):
            flat[place, : len(quarters)] = quarters
        return Quartiles(flat.reshape(values.shape))

    @property
    def group_names_(self) -> tuple[str, ...]:
        """Names of the groups; empty without groups."""
        check_is_fitted(self, "groups_")
        return self.groups_.group_levels

    def numbers(self) -> pd.DataFrame:
        """Return a row per numeric variable and group: patients, missing, mean, standard deviation, quartiles.

        A mean or deviation of fewer than `min_cell` patients is NaN.
        """
        import pandas as pd

        check_is_fitted(self, "quartiles_")
        rows = []
        for group, (n, present, mean, deviation) in self._moments().items():
            place = [OVERALL, *self.group_names_].index(group)
            for column, name in enumerate(self.groups_.numbers):
                few = present[column] < max(self.min_cell, 1)
                moments = [np.nan, np.nan] if few else [mean[column], deviation[column]]
                quarters = np.full(3, np.nan) if few else self.quartiles_[place, column]
                rows.append([name, group, int(present[column]), int(n - present[column]), *moments, *quarters])
        names = ["variable", "group", "present", MISSING, "mean", "sd", "q1", "median", "q3"]
        return pd.DataFrame(rows, columns=names)

    def to_frame(self) -> pd.DataFrame:
        """Return the table in the layout of a journal: texts, a row per number, a column per group.

        Small counts are "<5" (of `min_cell`), and counts that are left out to protect them "-". For groups, the last
        columns are the largest standardised difference between two groups and the p-value of Welch's test (numbers) or
        Pearson's chi-square test (categories; "†" where an expected count is below 5). Both are left out where a count
        is.
        """
        import pandas as pd

        check_is_fitted(self, "quartiles_")
        groups = [OVERALL, *self.group_names_] if self.group_names_ else [OVERALL]
        moments = self._moments()
        rows = {"n": [str(int(moments[group][0])) for group in groups] + self._blank(2)}
        for column, name in enumerate(self.groups_.numbers):
            rows |= self._rows_of_number(name, column, groups)
        for name, level_places in self._categories().items():
            rows |= self._rows_of_category(name, level_places)
        columns = [*groups, *(["difference", "p"] if len(groups) > 1 else [])]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns)

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with patients without a group."""
        from multicentre.estimator.results import with_note

        n_without = int(self.counts_.n_patients[-1])
        remark = f"{n_without} patients without a group are part of the overall column." if n_without else ""
        return with_note(self.to_frame(), self._remarks(), remark=remark)

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the table in the layout of a journal."""
        return {"table-1": self.to_frame()}

    def answer(self) -> str:
        """Return the numbers of patients, of all and of each group."""
        sizes = self.to_frame().loc["n"]
        groups = ", ".join(f"{sizes[name]} {self.by} {name}" for name in self.group_names_)
        return f"{sizes[OVERALL]} patients{f': {groups}' if groups else ''}."

    def main_figure(self) -> Figure:
        """Return the standardised differences between groups, or, without groups, the shares of missing values."""
        table = self.to_frame()
        if self.group_names_:
            values = number_column(table[["difference"]])
            title, label = "Differences between groups", "largest standardised difference"
        else:
            numbers = self.numbers().set_index("variable")
            values = numbers[MISSING] / (numbers[MISSING] + numbers["present"])
            title, label = "Missing values", "share of patients without a value"
        series = {label: [float(value) for value in values]}
        return Bars(title, f"By variable: {label}.", "model", label, [str(name) for name in values.index], series, {})

    def by_site(self) -> pd.DataFrame:
        """Request counts, means and standard deviations from every site of the last fit.

        A site answers only if no cell is below its policy's minimum of patients.

        Returns
        -------
        pandas frame
            A row per site: patients, mean and standard deviation of every numeric variable, patients of every level.
            NaN if the site refuses; its reason is in ``attrs["refused"]``.
        """
        import pandas as pd

        answers = self.session.ask(DescribeSite.describe_site, self.groups_, skip_refusals=True)
        names = ["n", *(f"{name}, {figure}" for name in self.groups_.numbers for figure in ("mean", "SD"))]
        names += list(self.groups_.levels)
        rows = {}
        for site in self.session.sites:
            answer = answers.get(site)
            if answer is None:
                rows[site] = [np.nan] * len(names)
                continue
            figures = np.column_stack([answer.mean, answer.deviation]).ravel().tolist()
            rows[site] = [float(answer.n_patients[0]), *figures, *answer.levels.astype(np.float64).tolist()]
        frame = pd.DataFrame.from_dict(rows, orient="index", columns=names)
        frame.attrs["refused"] = answers.refused
        return frame

    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return no figures: a table predicts nothing."""
        return {}

    def figures(self, sites: Any, labels: Any) -> list[Figure]:
        """Return the table of :meth:`to_frame` for a report; parameters are not used."""
        frame = self.to_frame()
        rows = [[name, *row] for name, *row in frame.itertuples()]
        caption = f"Counts below {self.min_cell}, and counts from which they would follow, are left out."
        return [Table("Table 1", caption, "model", ["", *frame.columns], rows)]

    def _moments(self) -> dict[str, tuple[float, Floats, Floats, Floats]]:
        """Return patients, present, means and deviations for all patients and for each group."""
        counts, squares = self.counts_, self.squares_.squares
        present = counts.present.astype(np.float64)
        group_means = np.nan_to_num(means(present, counts.total))
        everyone = means(present.sum(axis=0), counts.total.sum(axis=0))
        within = squares.sum(axis=0) + (present * np.square(group_means - np.nan_to_num(everyone))).sum(axis=0)
        overall = standard_deviations(present.sum(axis=0), within)
        moments = {OVERALL: (float(counts.n_patients.sum()), present.sum(axis=0), everyone, overall)}
        deviations, group_means = standard_deviations(present, squares), means(present, counts.total)
        for place, name in enumerate(self.group_names_):
            n = float(counts.n_patients[place])
            moments[name] = n, present[place], group_means[place], deviations[place]
        return moments

    def _categories(self) -> dict[str, list[int]]:
        """Return the places of the levels of each category."""
        places: dict[str, list[int]] = {}
        for place, name in enumerate(self.groups_.levels):
            places.setdefault(name.partition("=")[0], []).append(place)
        return places

    def _rows_of_number(self, name: str, column: int, groups: Sequence[str]) -> dict[str, list[str]]:
        moments, numbers = self._moments(), self.numbers()
        numbers = numbers[numbers["variable"] == name].set_index("group").loc[list(groups)]
        digits = _digits(moments[OVERALL][3][column])
        cells = [_number(mean, deviation, digits) for mean, deviation in numbers[["mean", "sd"]].to_numpy().tolist()]
        rows = {f"{name}, mean (SD)": cells + self._tests_of_number(column, groups)}
        if self.quartiles:
            quarters = numbers[["q1", "median", "q3"]].to_numpy()
            rows[f"{name}, median [quartiles]"] = [_quarters(each, digits) for each in quarters] + self._blank(2)
        counts = self.counts_
        missing = counts.n_patients - counts.present[:, column]
        if missing.any():
            texts, _ = self._texts(np.stack([counts.present[:, column], missing]))
            rows[f"{name}, missing"] = texts[1] + self._blank(2)
        return rows

    def _tests_of_number(self, column: int, groups: Sequence[str]) -> list[str]:
        if len(groups) == 1:
            return []
        moments = self._moments()
        chosen = [moments[group][1:] for group in groups[1:]]
        present, mean, deviation = (
            np.array([each[column] for each in figures]) for figures in zip(*chosen, strict=True)
        )
        if (present[present > 0] < self.min_cell).any():
            return ["-", "-"]
        return [
            _decimal(difference_of_means(mean, deviation), 2),
            _p_value(welch_test(present, mean, deviation), is_small=False),
        ]

    def _rows_of_category(self, name: str, places: Sequence[int]) -> dict[str, list[str]]:
        counts = self.counts_
        levels = counts.levels[:, places].T
        missing = counts.n_patients - levels.sum(axis=0)
        texts, suppressed = self._texts(np.vstack([levels, missing]), with_shares=True)
        tests = self._blank(2)
        if self.group_names_:
            grouped = levels[:, :-1].astype(np.float64)
            p_value, is_small = chi_square_test(grouped)
            figures = [_decimal(difference_of_shares(grouped), 2), _p_value(p_value, is_small=is_small)]
            tests = ["-", "-"] if suppressed else figures
        rows = {}
        for row, place in enumerate(places):
            level = self.groups_.levels[place].partition("=")[2]
            rows[f"{name} = {level}, n (%)"] = texts[row] + (tests if row == 0 else self._blank(2))
        if missing.any():
            rows[f"{name}, missing"] = texts[-1] + self._blank(2)
        return rows

    def _texts(self, table: Integers, *, with_shares: bool = False) -> tuple[list[list[str]], bool]:
        """Return the cells of a table of levels (missing last) by group, overall first; and whether any is left out."""
        grouped = bool(self.group_names_)
        inner = table if grouped and table[:, -1].any() else table[:, :-1]
        suppressed = suppressed_cells(inner, self.min_cell)[:-1]
        order = [inner.shape[1], *range(len(self.group_names_))] if grouped and inner.shape[1] > 1 else [0]
        if grouped and inner.shape[1] == 1:
            order = [0, 0]
        cells = np.column_stack([inner, inner.sum(axis=1)]) if inner.shape[1] > 1 else inner
        n_present = cells[:-1].sum(axis=0)
        texts = []
        for row in range(len(cells)):
            share = with_shares and row < len(cells) - 1
            texts.append([self._cell(cells, suppressed, row, column, n_present, share=share) for column in order])
        return texts, bool(suppressed.any())

    def _cell(
        self, cells: Integers, suppressed: NDArray[np.bool_], row: int, column: int, n_present: Integers, *, share: bool
    ) -> str:
        count = int(cells[row, column])
        if suppressed[row, column]:
            return f"<{self.min_cell}" if 0 < count < self.min_cell else "-"
        # A share gives the number of patients with a level, and with it the missing ones.
        if not share or not n_present[column] or suppressed[-1, column]:
            return str(count)
        return f"{count} ({100.0 * count / n_present[column]:.1f})"

    def _blank(self, n: int) -> list[str]:
        return [""] * n if self.group_names_ else []


def _digits(deviation: float) -> int:
    """Return decimals that show a standard deviation with two or three digits."""
    if not (np.isfinite(deviation) and deviation > 0):
        return 1
    return int(np.clip(1 - np.floor(np.log10(deviation)), 1, 6))


def _number(mean: float, deviation: float, digits: int) -> str:
    if not np.isfinite(mean):
        return "-"
    return f"{mean:.{digits}f} ({deviation:.{digits}f})"


def _quarters(values: Floats, digits: int) -> str:
    if not np.isfinite(values).all():
        return "-"
    return f"{values[1]:.{digits}f} [{values[0]:.{digits}f}, {values[2]:.{digits}f}]"


def _decimal(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "-"


def _p_value(value: float, *, is_small: bool) -> str:
    if not np.isfinite(value):
        return "-"
    return ("<0.001" if value < 0.001 else f"{value:.3f}") + ("†" if is_small else "")
