"""Results of a descriptive table: frames, texts, files, histograms, correlations, and requests to single sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.analytics.describe.formats import Layout
from multicentre.analytics.describe.histograms import Histograms, histogram_frame
from multicentre.analytics.describe.messages import Counts, Groups, SiteSummary, Squares
from multicentre.analytics.describe.published import Published
from multicentre.analytics.describe.quality import find_problems
from multicentre.analytics.describe.site import DescribeSite
from multicentre.analytics.describe.site_table import SiteTable
from multicentre.analytics.describe.table_one import INFINITE, OVERALL, Row, TableOne
from multicentre.core.printable import harmless
from multicentre.core.session import Answers
from multicentre.errors import ConfigurationError, describe_reasons
from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.figures import Bars, Figure, Table
from multicentre.estimator.parameters import OneOf, check_parameters
from multicentre.estimator.presentation import number_column
from multicentre.estimator.saved import Arrays
from multicentre.estimator.site_estimates import SiteEstimates

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
MISSING = "missing"
Format = Literal["html", "latex", "csv"]


class DescribeResults(FederatedEstimator):
    """Fitted descriptive table.

    Attributes
    ----------
    groups_ : Groups
        Groups and variables.
    group_names_ : tuple of str
        Names of the groups; empty without groups.
    counts_ : Counts
        Counts and sums of every group, the last without a group. Not for publication: small cells are included, so
        that a saved model has none, as of `squares_` and `histograms_`.
    n_patients_ : int
        Patients of all sites.
    published_ : Published
        Printed table as plain values, without small counts; what a saved model holds.
    squares_ : Squares
        Sums of squared differences from the means.
    quartiles_ : array of shape (G + 1, d, 3)
        Quartiles of the d numeric variables, for all patients and for each of G groups; NaN with ``quartiles=False``
        and for fewer than ten patients.
    quartiles_exact_ : array of bool of shape (G + 1, d, 3)
        Whether a quartile is that of the pooled patients exactly; otherwise it is within a 4096th of the value, and
        within a 16th of the standard deviation.
    off_steps_ : array of bool of shape (d, 9)
        Whether some value is not a multiple of a step: 100, 10, 5, 1, 0.5, 0.1, 0.05, 0.01, 0.001.
    histograms_ : Histograms
        Counts in fine bins; empty with ``histograms=False``. Not for publication, as `counts_`.
    correlations_ : array of shape (d, d)
        Pearson's correlations of the patients with both variables; NaN for fewer than `min_cell` patients, and with
        ``correlations=False``.
    rank_correlations_ : array of shape (d, d)
        Spearman's correlations; NaN also with ``histograms=False``.
    """

    groups_: Groups
    counts_: Counts
    squares_: Squares
    quartiles_: Floats
    quartiles_exact_: NDArray[np.bool_]
    off_steps_: NDArray[np.bool_]
    histograms_: Histograms
    correlations_: Floats
    rank_correlations_: Floats
    _published: Published | None = None  # of a loaded table, which has no counts
    by: str | None
    min_cell: int
    quartiles: bool

    @property
    def group_names_(self) -> tuple[str, ...]:
        """Names of the groups; empty without groups."""
        check_is_fitted(self, "groups_")
        return self.groups_.group_levels

    @property
    def n_patients_(self) -> int:
        """Patients of all sites."""
        check_is_fitted(self, "quartiles_")
        return self.published_.n_patients

    @property
    def published_(self) -> Published:
        """Printed table as plain values, without small counts."""
        if self._published is not None:
            return self._published
        table = self._table()
        if vars(table).get("published") is None:
            vars(table)["published"] = Published.of(table)
        published: Published = vars(table)["published"]
        return published

    @published_.setter
    def published_(self, published: Published) -> None:
        self._published = published

    @property
    def _has_histograms(self) -> bool:
        return bool(self.published_.histograms)

    def numbers(self) -> pd.DataFrame:
        """Return a row per numeric variable and group: patients, missing, mean, standard deviation, quartiles.

        What :meth:`to_frame` leaves out is NaN.
        """
        import pandas as pd

        names = ["variable", "group", "present", MISSING, "mean", "sd", "q1", "median", "q3"]
        frame = pd.DataFrame(self.published_.numbers, columns=names)
        return frame.astype(dict.fromkeys(names[2:], np.float64))

    def to_frame(self) -> pd.DataFrame:
        """Return the table in the layout of a journal: texts, a row per number, a column per group.

        Small counts are "<5" (of `min_cell`), and counts that are left out to protect them "-". For groups, the last
        columns are the largest standardised difference between two groups and a p-value: of Welch's test (means), of
        Kruskal and Wallis (medians, with ``histograms=True``; of two groups, of Mann and Whitney; "‡" if values share
        a bin, see :meth:`rank_tests`), or of Pearson's chi-square test (categories; "†" where an expected count is
        below 5). Both are left out where a count is.
        """
        import pandas as pd

        rows = {row.label: row.cells for row in self.published_.table}
        return pd.DataFrame.from_dict(rows, orient="index", columns=self._columns())

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with patients without a group."""
        from multicentre.estimator.results import with_note

        return with_note(
            self.to_frame(), self._remarks(), model=self.describe_model(), remark=self.published_.without_group
        )

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the table as HTML with headings and footnotes, and write it to a file.

        Parameters
        ----------
        path : path, optional
            File to write.
        """
        return self._written("html", path)

    def to_latex(self, path: str | Path | None = None) -> str:
        """Return the table as LaTeX (package booktabs) with headings and footnotes, and write it to a file.

        Parameters
        ----------
        path : path, optional
            File to write.
        """
        return self._written("latex", path)

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return the table of :meth:`to_frame` as CSV, and write it to a file.

        Parameters
        ----------
        path : path, optional
            File to write.
        """
        return self._written("csv", path)

    def rank_tests(self) -> pd.DataFrame:
        """Return a row per numeric variable: Kruskal and Wallis' statistic and p-value, with its limits.

        The limits hold for every order of the values that share a bin. They are equal to the p-value if ``exact`` is
        True.

        Raises
        ------
        ConfigurationError
            There are no groups, or the fit has ``histograms=False``.
        """
        import pandas as pd

        self._require_histograms()
        if not self.group_names_:
            raise ConfigurationError("rank tests must have groups; by is None", where="by", hint="Set by.")
        names = ["statistic", "p_value", "lower", "upper", "exact"]
        return pd.DataFrame.from_dict(self.published_.rank_tests, orient="index", columns=names)

    def histogram(self, variable: str) -> pd.DataFrame:
        """Return patients by bin and group; NaN for small counts and counts from which they would follow.

        Parameters
        ----------
        variable : str
            Numeric variable.

        Raises
        ------
        ConfigurationError
            The variable does not exist, or the fit has ``histograms=False``.
        """
        self._require_histograms()
        if variable not in self.groups_.numbers:
            raise ConfigurationError(
                f"variable must be one of {', '.join(self.groups_.numbers[:10])}; got {variable!r}", where="variable"
            )
        labels, counts = self.published_.histograms[variable]
        return histogram_frame(labels, np.array(counts, dtype=np.float64), [OVERALL, *self.group_names_])

    def plot_histogram(self, variable: str, ax: Axes | None = None) -> Axes:
        """Draw the histogram of a variable, of all patients or by group; counts that are left out have no bar.

        Parameters
        ----------
        variable : str
        ax : matplotlib Axes, optional
            Axes to draw on; those of a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from multicentre.estimator.drawing import plot

        return plot(self._histogram_figure(variable), ax)

    def correlation_table(self, method: Literal["pearson", "spearman"] = "pearson") -> pd.DataFrame:
        """Return correlations of the numeric variables of the patients with both; NaN where they were not requested.

        Parameters
        ----------
        method : {"pearson", "spearman"}, default "pearson"
            Spearman's correlations are of ranks among all patients with a value. They are approximate for variables
            with missing values, and for variables whose values share bins; the printed frame names these.

        Raises
        ------
        ConfigurationError
            `method` is not one of these.
        """
        import pandas as pd

        from multicentre.estimator.results import with_note

        check_is_fitted(self, "correlations_")
        check_parameters({"method": method}, {"method": OneOf("pearson", "spearman")})
        names = list(self.groups_.numbers)
        values = self.correlations_ if method == "pearson" else self.rank_correlations_
        frame = pd.DataFrame(values, index=names, columns=names)
        rough = [] if method == "pearson" else self.published_.rough_ranks
        return with_note(frame, f"Approximate for {', '.join(rough)}.") if rough else frame

    def by_site(self) -> pd.DataFrame:
        """Request counts, means and standard deviations from every site of the last fit.

        A site answers only if no cell is below its policy's minimum of patients. Not for publication: counts below
        `min_cell` are included; see :meth:`table_by_site`.

        Returns
        -------
        pandas frame
            A row per site: patients, mean and standard deviation of every numeric variable, patients of every level.
            NaN if the site refuses; its reason is in ``attrs["refused"]``.
        """
        import pandas as pd

        answers = self._ask_sites()
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

    def table_by_site(self) -> pd.DataFrame:
        """Request figures from every site as in :meth:`by_site`, and return a table with a column per site.

        Small counts, and counts and means from which they would follow together with :meth:`to_frame`, are left out
        ("-"). If one site alone refuses, its figures would follow from those of the others, so that the smallest other
        ones are left out too. Columns of sites that refuse contain "refused"; the reasons are printed.
        """
        import pandas as pd

        from multicentre.estimator.results import with_note

        answers = self._ask_sites()
        table = SiteTable(self._table(), answers, list(answers.refused))
        rows = {row.label: row.cells for row in table.rows()}
        frame = pd.DataFrame.from_dict(rows, orient="index", columns=table.columns)
        return with_note(frame, f"Refused: {describe_reasons(answers.refused)}." if answers.refused else "")

    def means_by_site(self) -> SiteEstimates:
        """Request the mean of each numeric variable from every site, with its standard error, for a meta-analysis."""
        answers, sites = self._ask_sites(), self.session.sites
        d = len(self.groups_.numbers)
        values, errors = np.full((2, len(sites), d), np.nan)
        for place, site in enumerate(sites):
            if site in answers:
                answer = answers[site]
                enough = answer.present > 1
                values[place] = np.where(enough, answer.mean, np.nan)
                errors[place] = np.where(enough, answer.deviation / np.sqrt(np.maximum(answer.present, 1)), np.nan)
        return SiteEstimates(self.groups_.numbers, tuple(sites), values, errors, answers.refused, label="mean")

    def check_quality(self) -> pd.DataFrame:
        """Request rounded figures from every site, and return what is suspicious about its data.

        A row per finding: variable, site, check ("unit", "code", "level", "shift", "refused"), value, and a sentence.
        Every figure rests on the policy's minimum of patients or more. "unit": median and quartile range differ from
        those of the other sites by a factor between common units. "code": several patients have a number such as 999
        that is apart from all others. "level": a level that only one site uses. "shift": the mean differs by more than
        a quarter of a standard deviation from that of the other sites.
        """
        import pandas as pd

        check_is_fitted(self, "quartiles_")
        answers = self.session.ask(DescribeSite.check_quality, self.groups_, skip_refusals=True)
        findings = find_problems(answers, answers.refused, self.groups_.numbers, self.groups_.levels)
        return pd.DataFrame(
            [[each.variable, each.site, each.check, each.value, each.sentence] for each in findings],
            columns=["variable", "site", "check", "value", "sentence"],
        )

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
        """Return the table of :meth:`to_frame` and histograms for a report; parameters are not used."""
        printed = self.published_.table
        rows = [[row.label, *row.cells] for row in printed]
        figures: list[Figure] = [
            Table("Table 1", " ".join(self._notes(printed)), "model", ["", *self._columns()], rows)
        ]
        if self._has_histograms:
            figures += [self._histogram_figure(name) for name in self.groups_.numbers]
        return figures

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the table in the layout of a journal, and correlations and histograms if they were requested."""
        tables = {"table-1": self.to_frame()}
        if np.isfinite(self.correlations_).any():
            tables["correlations"] = self.correlation_table()
        if np.isfinite(self.rank_correlations_).any():
            tables["rank-correlations"] = self.correlation_table("spearman")
        if self._has_histograms:
            numbers = enumerate(self.groups_.numbers, start=1)
            tables |= {f"histogram-{place}": self.histogram(name) for place, name in numbers}
        return tables

    def answer(self) -> str:
        """Return the numbers of patients, of all and of each group."""
        sizes = self.to_frame().loc["n"]
        groups = ", ".join(f"{name} {sizes[name]}" for name in self.group_names_)
        return f"{sizes[OVERALL]} patients{f', by {self.by}: {groups}' if groups else ''}."

    def main_figure(self) -> Figure:
        """Return the standardised differences between groups, or, without groups, the shares of missing values."""
        table = self.to_frame()
        if self.group_names_:
            values = number_column(table[["difference"]])
            title, label = "Differences between groups", "largest standardised difference"
        else:
            numbers = self.numbers().set_index("variable").dropna(subset=[MISSING])
            values = numbers[MISSING] / (numbers[MISSING] + numbers["present"])
            title, label = "Missing values", "share of patients without a value"
        series = {label: [float(value) for value in values]}
        return Bars(title, f"By variable: {label}.", "model", label, [str(name) for name in values.index], series, {})

    def _histogram_figure(self, variable: str) -> Bars:
        frame = self.histogram(variable)
        columns = list(self.group_names_) or [OVERALL]
        series = {name: [float(value) for value in frame[name]] for name in columns}
        title, caption = f"Histogram of {variable}", f"Patients by {variable}. Small counts are left out."
        return Bars(title, caption, "model", "patients", [str(name) for name in frame.index], series, {})

    def _table(self) -> TableOne:
        check_is_fitted(self, "quartiles_")
        fitted = self.groups_, self.counts_, self.squares_, self.quartiles_, self.histograms_
        terms = int(self.min_cell), bool(self.quartiles)
        before: TableOne | None = vars(self).get("_printed")
        if before is None or not before.is_of(*fitted, *terms):
            self._printed = before = TableOne(*fitted, *terms)
        return before

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, facts = super()._state()
        quartiles = self.numbers()[["q1", "median", "q3"]].to_numpy(np.float64)
        # Without groups, the second table is that of all patients again.
        return {**arrays, "quartiles_": np.resize(quartiles, self.quartiles_.shape)}, facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.numbers()  # refuses a table that does not fit its groups
        self.result_tables()

    def _columns(self) -> list[str]:
        return [OVERALL, *self.group_names_, *(["difference", "p"] if self.group_names_ else [])]

    def _written(self, form: Format, path: str | Path | None) -> str:
        rows = self.published_.table
        layout = Layout("Table 1", self._columns(), rows, self._notes(rows))
        text = {"html": layout.to_html, "latex": layout.to_latex, "csv": layout.to_csv}[form]()
        text = harmless(text)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def _notes(self, printed: Sequence[Row]) -> list[str]:
        """Return the footnotes of the table."""
        least, without_group = self.min_cell, self.published_.without_group
        notes = ["Numbers: mean (SD), median [quartiles]; categories: n (% of the patients in whom it is known)."]
        if self.group_names_:
            tests = "Welch's test of means, Pearson's chi-square test of categories"
            if self._has_histograms:
                name = "Mann and Whitney's" if len(self.group_names_) == 2 else "Kruskal and Wallis'"
                tests += f", {name} test of ranks"
            notes.append(f"difference: largest standardised difference between two groups. p: {tests}.")
            if any(row.cells[-2] == INFINITE for row in printed):
                notes.append(f"{INFINITE}: two groups have no level in common.")
            cells = [row.cells[-1] for row in printed]
            if any("†" in cell for cell in cells):
                notes.append("†: an expected count is below 5.")
            if any("‡" in cell for cell in cells):
                notes.append("‡: some patients with different values have the same rank.")
        rounded = [name for column, name in enumerate(self.groups_.numbers) if self._has_rounded_quartiles(column)]
        if rounded:
            notes.append(f"Quartiles within a 4096th of the value: {', '.join(rounded)}.")
        if least > 1:
            notes.append(f"Counts below {least} (<{least}), and counts from which they would follow (-), are left out.")
        if without_group:
            notes.append(without_group)
        if self.left_out_:
            notes.append(f"Without {describe_reasons(self.left_out_)}.")
        return notes

    def _has_rounded_quartiles(self, column: int) -> bool:
        is_finite = np.isfinite(self.quartiles_[:, column])
        return bool((is_finite & ~self.quartiles_exact_[:, column]).any())

    def _ask_sites(self) -> Answers[SiteSummary]:
        check_is_fitted(self, "quartiles_")
        return self.session.ask(DescribeSite.describe_site, self.groups_, skip_refusals=True)

    def _require_histograms(self) -> None:
        check_is_fitted(self, "quartiles_")
        if not self._has_histograms:
            raise ConfigurationError(
                "the fit must have histograms; histograms is False", where="histograms", hint="Set histograms=True."
            )
