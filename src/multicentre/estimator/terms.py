"""Terms of a fitted linear predictor: joint tests, and curves of the effects of numbers.

A term is a variable, a function of one, or a product. Its columns are tested together. Columns of splines and
polynomials are not effects by themselves: only their sum changes with the variable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, f, norm, t

from multicentre.data.categories import families
from multicentre.errors import ConfigurationError, nearest_name
from multicentre.estimator.figures import EffectCurve, Table
from multicentre.estimator.presentation import number_text, p_text
from multicentre.formula.design import BuiltFactor, Design
from multicentre.formula.functions import LEADING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
# Points of a curve: with more, neighbours differ by less than a pixel of a report's figure.
N_POINTS = 101


@dataclass(frozen=True)
class Term:
    """Columns of a linear predictor that are tested together.

    Parameters
    ----------
    name : str
        For example "age", "ns(age, df=3)", "arm:age" or "age + power(age, 2)".
    sources : tuple of str
        Columns and categories of the data that it is built from.
    columns : tuple of str
        Names of its columns.
    is_basis : bool
        True for splines and polynomials, whose single columns are not effects.
    """

    name: str
    sources: tuple[str, ...]
    columns: tuple[str, ...]
    is_basis: bool = False


def terms_of(names: Iterable[str], levels: Sequence[str] = (), design: Design | None = None) -> list[Term]:
    """Return the terms of columns: those of a formula's design, and of other columns by category.

    Examples
    --------
    >>> [term.name for term in terms_of(["age", "stage=II", "stage=III"], ["stage=I", "stage=II", "stage=III"])]
    ['age', 'stage']
    """
    remaining = list(dict.fromkeys(names))
    terms = [] if design is None else [term for term in _terms_of_design(design) if set(term.columns) <= {*remaining}]
    built = {column for term in terms for column in term.columns}
    category_of = {level: category for category, family in families(tuple(levels)).items() for level in family}
    others: dict[str, list[str]] = {}
    for name in remaining:
        if name not in built:
            others.setdefault(category_of.get(name, name), []).append(name)
    return terms + [Term(name, (name,), tuple(columns)) for name, columns in others.items()]


def _terms_of_design(design: Design) -> list[Term]:
    factors, products = design.factors, design.products
    widths = [int(np.prod([len(factors[place].column_names) for place in product])) for product in products]
    ends = np.cumsum(widths).tolist()
    curved = _curved(factors, products)
    parts: dict[tuple[str, ...], list[Term]] = {}
    for product, width, end in zip(products, widths, ends, strict=True):
        used = [factors[place] for place in product]
        name = ":".join(factor.source if factor.levels else factor.name for factor in used)
        sources = tuple(sorted({factor.source for factor in used}))
        keys = {factor.source if factor.levels or factor.source in curved else factor.name for factor in used}
        term = Term(name, sources, design.column_names[end - width : end], bool(curved & {*sources}))
        parts.setdefault(tuple(sorted(keys)), []).append(term)
    return [
        Term(
            " + ".join(term.name for term in group),
            group[0].sources,
            tuple(column for term in group for column in term.columns),
            group[0].is_basis,
        )
        for group in parts.values()
    ]


def _curved(factors: Sequence[BuiltFactor], products: Sequence[Sequence[int]]) -> set[str]:
    """Return the columns of numbers that enter by a spline, or by several functions."""
    functions: dict[str, set[tuple[str, ...]]] = {}
    splines = set()
    for product in products:
        numbers = [factors[place] for place in product if not factors[place].levels]
        splines |= {factor.source for factor in numbers if factor.is_spline}
        for source in {factor.source for factor in numbers}:
            used = tuple(sorted(factor.name for factor in numbers if factor.source == source))
            functions.setdefault(source, set()).add(used)
    return splines | {source for source, used in functions.items() if len(used) > 1}


@dataclass(frozen=True)
class Estimates:
    """Parameters of a linear predictor.

    Parameters
    ----------
    names : sequence of str
        Column of each of the p parameters; empty for intercepts and thresholds.
    values : array of shape (p,)
    covariance : array of shape (p, p)
    freedom : float, optional
        Residual degrees of freedom, if the dispersion is estimated.
    """

    names: Sequence[str]
    values: Floats
    covariance: Floats
    freedom: float | None = None

    def test(self, columns: Iterable[str]) -> tuple[float, int, float]:
        """Return statistic, degrees of freedom and p-value of the Wald test of all parameters of some columns."""
        chosen = {*columns}
        places = [place for place, name in enumerate(self.names) if name in chosen]
        values, covariance = self.values[places], self.covariance[np.ix_(places, places)]
        if not (np.isfinite(covariance).all() and (np.diagonal(covariance) > 0).all()):
            return float("nan"), len(places), float("nan")
        statistic = float(values @ np.linalg.lstsq(covariance, values, rcond=None)[0])
        df = int(np.linalg.matrix_rank(covariance, hermitian=True))
        p_value = chi2.sf(statistic, df) if self.freedom is None else f.sf(statistic / df, df, self.freedom)
        return statistic, df, float(p_value)


class HasTerms:
    """Mixin of fitted models with named terms in a linear predictor."""

    confidence_level: float

    def term_tests(self) -> pd.DataFrame:
        """Return one joint Wald test per term: all of its coefficients are 0.

        The levels of a category are tested together, as are the columns of a spline or a polynomial.

        Returns
        -------
        pandas frame
            A row per term: chi-square statistic, degrees of freedom and p-value. The p-value is by the F distribution
            if the dispersion is estimated, otherwise by the chi-square distribution; NaN without standard errors.
        """
        import pandas as pd

        estimates = self._estimates()
        rows = {term.name: estimates.test(term.columns) for term in self._terms()}
        frame = pd.DataFrame.from_dict(rows, orient="index", columns=["statistic", "df", "p_value"])
        return frame.rename_axis("term")

    def joint_tests_text(self) -> str:
        """Return the joint tests of terms with several coefficients in a sentence; empty without such terms."""
        tests = self.term_tests()
        parts = [f"{name}: {wald_text(*test)}" for name, test in zip(tests.index, tests.to_numpy(), strict=True)]
        joint = (tests["df"] > 1) & tests["p_value"].notna()
        chosen = [part for part, is_joint in zip(parts, joint, strict=True) if is_joint]
        return f"Joint Wald tests: {'; '.join(chosen)}." if chosen else ""

    def terms_table(self) -> list[Table]:
        """Return the table of joint tests of a report; none if every term has one coefficient."""
        tests = self.term_tests()
        if not ((tests["df"] > 1) & tests["p_value"].notna()).any():
            return []
        rows: list[list[str | float | None]] = [
            [name, *(float(value) if np.isfinite(value) else None for value in test)]
            for name, test in zip(tests.index, tests.to_numpy(np.float64), strict=True)
        ]
        caption = "Joint Wald test of the coefficients of each term."
        columns = ["term", "chi-square", "degrees of freedom", "p-value"]
        return [Table("Tests of terms", caption, "model", columns, rows)]

    def _adjustment(self, variable: str) -> str:
        others = [term.name for term in self._terms() if variable not in term.sources]
        return f", adjusted for {', '.join(others)}" if others else ""

    def _terms(self) -> list[Term]:
        raise NotImplementedError

    def _estimates(self) -> Estimates:
        raise NotImplementedError


class HasEffects(HasTerms):
    """Mixin of fitted models with one linear predictor, in which the effect of a number is a curve."""

    def effect_curve(
        self,
        variable: str,
        *,
        reference: float | None = None,
        values: Sequence[float] | None = None,
        at: Mapping[str, float | str] | None = None,
    ) -> pd.DataFrame:
        """Return the effect of a number, against a reference value, with pointwise limits.

        Parameters
        ----------
        variable : str
            Column of numbers.
        reference : float, optional
            Value with an effect of 0 (a ratio of 1); by default the middle knot of a spline or the mean, rounded.
        values : sequence of float, optional
            Values of the curve; by default from the first to the last knot, or two standard deviations on either side
            of the mean.
        at : mapping of str to float or str, optional
            Values and levels of the columns in products with `variable`; by default the mean or the reference level.

        Returns
        -------
        pandas frame
            A row per value: difference of the linear predictor from that of the reference, and its limits at
            `confidence_level`. ``attrs["reference"]`` is the reference.

        Raises
        ------
        ConfigurationError
            The fit has no such column of numbers, or values must be given.
        """
        import pandas as pd

        numbers = self._numbers()
        if variable not in numbers:
            raise ConfigurationError(
                f"variable must be a column of numbers of the fit; got {variable!r}",
                where="variable",
                hint=f"{nearest_name([variable], numbers)}Name one of {', '.join(numbers)}.",
            )
        points, middle = self._points(variable, values)
        reference = middle if reference is None else float(reference)
        estimates = self._estimates()
        rows = self._rows_at(variable, np.append(points, reference), at or {})
        contrasts = rows[:-1] - rows[-1]
        effect = contrasts @ estimates.values
        errors = np.sqrt(np.einsum("ij,jk,ik->i", contrasts, estimates.covariance, contrasts))
        level = 0.5 + self.confidence_level / 2.0
        half = errors * (norm.ppf(level) if estimates.freedom is None else t.ppf(level, estimates.freedom))
        frame = pd.DataFrame({variable: points, "effect": effect, "lower": effect - half, "upper": effect + half})
        frame.attrs["reference"] = reference
        return frame

    def effect_figure(
        self,
        variable: str,
        *,
        reference: float | None = None,
        values: Sequence[float] | None = None,
        at: Mapping[str, float | str] | None = None,
    ) -> EffectCurve:
        """Return the curve of :meth:`effect_curve` as plain values, as ratios where the model has them."""
        frame = self.effect_curve(variable, reference=reference, values=values, at=at)
        ratio = self._ratio_name()
        curve = frame[["effect", "lower", "upper"]].to_numpy()
        y, lower, upper = (np.exp(curve) if ratio else curve).T.tolist()
        reference = frame.attrs["reference"]
        tests = self.term_tests()
        terms = [term for term in self._terms() if variable in term.sources]
        sentences = [f"{term.name}: {wald_text(*tests.loc[term.name])}" for term in terms]
        label = ratio.replace("_", " ") or "difference of the linear predictor"
        stated = {name: str(value) for name, value in (at or {}).items()}
        crossed = dict.fromkeys(name for term in terms for name in term.sources if name != variable)
        held = "".join(f"; at {name} = {stated.get(name, 'its mean or reference level')}" for name in crossed)
        caption = (
            f"{label[0].upper()}{label[1:]} against {variable} = {reference:g}, with a pointwise "
            f"{100 * self.confidence_level:g} % band{self._adjustment(variable)}{held}. "
            f"Joint Wald test{'s' if len(terms) > 1 else ''}: {'; '.join(sentences)}."
        )
        x, title = frame[variable].tolist(), f"Effect of {variable}"
        return EffectCurve(
            title, caption, "model", variable, label, x, y, lower, upper, reference, 1.0 if ratio else 0.0
        )

    def plot_effect(
        self,
        variable: str,
        ax: Axes | None = None,
        *,
        reference: float | None = None,
        values: Sequence[float] | None = None,
        at: Mapping[str, float | str] | None = None,
    ) -> Axes:
        """Draw the curve of :meth:`effect_curve`; parameters as there.

        Parameters
        ----------
        variable : str
        ax : matplotlib Axes, optional
            Axes to draw on; those of a new figure by default.
        reference, values, at : optional
            As for :meth:`effect_curve`.

        Returns
        -------
        matplotlib Axes
        """
        from multicentre.estimator.drawing import plot

        return plot(self.effect_figure(variable, reference=reference, values=values, at=at), ax)

    def with_terms(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a table by column in which a term's test replaces the columns of a spline or a polynomial."""
        term_of = {column: term.name for term in self._terms() if term.is_basis for column in term.columns}
        if not term_of:
            return frame
        rows = frame.rename(index=term_of)
        rows.loc[rows.index.isin([*term_of.values()])] = np.nan
        rows = rows[~rows.index.duplicated()]
        tests = self.term_tests()["p_value"]
        replaced = [name for name in rows.index if name in {*term_of.values()}]
        rows.loc[replaced, "p_value"] = tests[replaced]
        return rows

    def effect_figures(self) -> list[EffectCurve]:
        """Return the curve of every number that enters by a spline or a polynomial."""
        curved = {name for term in self._terms() if term.is_basis for name in term.sources}
        figures = []
        for name in self._numbers():
            if name in curved:
                with contextlib.suppress(ConfigurationError):  # a number without knots or a mean needs stated values
                    figures.append(self.effect_figure(name))
        return figures

    def _ratio_name(self) -> str:
        """Return the name of exponentiated coefficients; empty if they have none."""
        raise NotImplementedError

    def _numbers(self) -> list[str]:
        """Return the columns of numbers, in order."""
        return [term.name for term in self._terms() if term.columns == (term.name,)]

    def _location(self) -> dict[str, tuple[float, float]]:
        """Return mean and standard deviation of the columns of the predictor."""
        raise NotImplementedError

    def _rows_at(self, variable: str, values: Floats, at: Mapping[str, float | str]) -> Floats:
        """Return rows of the predictor at some values of a variable, up to a constant, shape (n, p)."""
        names = np.array(self._estimates().names)
        return np.asarray(values[:, None] * (names == variable), dtype=np.float64)

    def _points(self, variable: str, values: Sequence[float] | None) -> tuple[Floats, float]:
        """Return the values of a curve and its reference."""
        knots = self._knots(variable)
        mean, deviation = self._location().get(variable, (np.nan, np.nan))
        if not knots and np.isfinite(mean):
            knots = [mean - 2.0 * deviation, mean, mean + 2.0 * deviation]
        if values is not None:
            points = np.asarray(values, dtype=np.float64)
            return points, rounded(float(np.median(knots if knots else points)))
        if not knots:
            raise ConfigurationError(
                f"values of {variable} must be given; the fit has no knots and no mean of it",
                where="values",
                hint="Pass values=[20, 30, 40, ...].",
            )
        return np.linspace(knots[0], knots[-1], N_POINTS), rounded(float(np.median(knots)))

    def _knots(self, variable: str) -> list[float]:
        """Return all knots of the splines of a variable, in order."""
        return []


def knots_of(design: Design, variable: str) -> list[float]:
    """Return all knots of the splines of a variable in a design, in order; of functions of a variable none."""
    knots: set[float] = set()
    for factor in design.factors:
        if factor.source == variable and factor.is_spline and len(factor.steps) == 1:
            knots |= {*factor.steps[0].numbers[LEADING[factor.steps[0].function] :]}
    return sorted(knots)


def wald_text(statistic: float, df: float, p_value: float) -> str:
    """Return a test in words.

    Examples
    --------
    >>> wald_text(7.815, 3, 0.05)
    'chi-square 7.82 on 3 degrees of freedom, p = 0.050'
    """
    degrees = f"{df:g} degree{'' if df == 1 else 's'} of freedom"
    return f"chi-square {number_text(statistic)} on {degrees}, {p_text(p_value)}"


def rounded(value: float) -> float:
    """Return a value with two significant digits, so that a reference can be read.

    Examples
    --------
    >>> rounded(49.73), rounded(0.01234)
    (50.0, 0.012)
    """
    return float(f"{value:.2g}")
