"""Results of a fitted model as a table, a sentence and a picture."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from multicentre.core.published_counts import MIN_PUBLISHED
from multicentre.estimator.figures import Bars, Figure
from multicentre.estimator.model_in_force import HasModelInForce
from multicentre.estimator.printing import frame_as_latex, p_cell

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Largest number of bars in a picture and of values in a sentence, so that both remain legible.
MAX_BARS, MAX_VALUES = 20, 4
# Most significant digits of an estimate; a narrower interval is printed as if it had no length.
MAX_DIGITS = 6
MISSING_PREFIX = "missing_"
# An equals sign in brackets belongs to a parameter of a function, as in ns(age, df=3)[1].
_LEVEL = re.compile(r"((?:[^=(]|\([^()]*\))+)=")
_BASIS = re.compile(r"\[\d+\]$")


class Presented(HasModelInForce):
    """Mixin of fitted models whose results are presented by the command line, the report and notebooks."""

    exposure: str | None = None
    """Variable whose effect answers the study's question; the first one by default."""
    least_published: int = MIN_PUBLISHED
    """Smallest count that results state; see :mod:`multicentre.core.published_counts`."""
    in_subgroups: bool = False
    """True if a study repeats the analysis by the levels of a category."""

    def first_effect(self, names: Sequence[str]) -> int:
        """Return the place of the first column of the exposure; 0 without an exposure, or if no column is of it."""
        return next((place for place, name in enumerate(names) if variable_of(name) == self.exposure), 0)

    def summary(self) -> pd.DataFrame:
        """Return the results of the fit as a frame."""
        raise NotImplementedError

    def to_frame(self) -> pd.DataFrame:
        """Return the main table of the fitted model, with labelled columns."""
        import pandas as pd

        return pd.DataFrame(self.summary())

    def to_latex(self) -> str:
        """Return the table of :meth:`summary` as LaTeX, as it is printed; it needs the package booktabs."""
        return frame_as_latex(self.summary())

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables that a run writes to ``results/<name>.csv``, by name; the first is the main result."""
        return {"result": self.to_frame()}

    def answer(self) -> str:
        """Return the result of the fit in one or two sentences, with its interval where there is one."""
        values = number_column(self.to_frame()).head(MAX_VALUES)
        listed = "; ".join(f"{name} {number_text(value)}" for name, value in values.items())
        return f"{type(self).__name__}: {listed}." if listed else f"{type(self).__name__}: see the table."

    def main_figure(self) -> Figure:
        """Return the picture of :meth:`plot` as plain values."""
        values = number_column(self.to_frame()).head(MAX_BARS)
        title = type(self).__name__
        caption = f"The first {MAX_BARS} rows at most of the table of results."
        series = {str(values.name): [float(value) for value in values]}
        return Bars(title, caption, "model", str(values.name), [str(name) for name in values.index], series, {})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the main picture of the fitted model.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; those of a new figure by default.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        NotFittedError
            The model was not fitted.
        """
        from multicentre.estimator.drawing import plot

        return plot(self.main_figure(), ax)


def number_column(frame: pd.DataFrame) -> pd.Series[Any]:
    """Return the finite numbers of the first column that has some, with the labels of their rows.

    The labels are the index, or the first column of texts if the index only numbers the rows.

    Examples
    --------
    >>> import pandas as pd
    >>> number_column(pd.DataFrame({"feature": ["age", "dose"], "share": [0.75, 0.25]})).to_dict()
    {'age': 0.75, 'dose': 0.25}
    """
    import pandas as pd

    is_text = [not pd.api.types.is_numeric_dtype(column) for _, column in frame.items()]
    labels = [" ".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in frame.index]
    skipped = None
    if isinstance(frame.index, pd.RangeIndex) and frame.index.name is None and any(is_text):
        skipped = frame.columns[is_text.index(True)]
        labels = [str(one) for one in frame[skipped]]
    for name, column in frame.items():
        numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
        if name != skipped and np.isfinite(numbers).any():
            finite = np.isfinite(numbers)
            names = [label for label, is_finite in zip(labels, finite.tolist(), strict=True) if is_finite]
            return pd.Series(numbers[finite], index=names, name=name)
    return pd.Series(dtype=np.float64, name="value")


def number_text(value: float, digits: int = 3) -> str:
    """Return a number with some significant digits, whole numbers in full.

    Examples
    --------
    >>> number_text(1234.0), number_text(0.012345), number_text(1.5), number_text(float("nan"))
    ('1,234', '0.0123', '1.50', 'not estimated')
    """
    if not np.isfinite(value):
        return "not estimated" if np.isnan(value) else f"{value:g}"
    whole = float(value).is_integer() or abs(value) >= 1000
    return f"{value:,.0f}" if whole else f"{value:#.{digits}g}".rstrip(".")


def interval_text(value: float, lower: float, upper: float, level: float) -> str:
    """Return an estimate with its interval, with as many digits as tell them apart.

    Examples
    --------
    >>> interval_text(1.42, 1.31, 1.54, 0.95), interval_text(1.0111, 1.0082, 1.0143, 0.95)
    ('1.42 (95 % interval 1.31 to 1.54)', '1.011 (95 % interval 1.008 to 1.014)')
    """
    if not np.isfinite([lower, upper]).any():
        return number_text(value)
    rounded = ((number_text(value, n), number_text(lower, n), number_text(upper, n)) for n in range(3, MAX_DIGITS + 1))
    texts = ("", "", "")
    for texts in rounded:
        if len(set(texts)) == len(texts):
            break
    estimate, low, high = texts
    return f"{estimate} ({100 * level:g} % interval {low} to {high})"


def variable_of(column: str) -> str:
    """Return the variable or term of a column: a category of its levels, a spline of its bases.

    Examples
    --------
    >>> variable_of("stage=II"), variable_of("ns(age, df=3)[2]"), variable_of("C(ward, ref='a')=b"), variable_of("age")
    ('stage', 'ns(age, df=3)', "C(ward, ref='a')", 'age')
    """
    level = _LEVEL.match(column)
    return level[1] if level else _BASIS.sub("", column)


def effect_text(
    label: str, row: tuple[str, float, float, float], p_value: float, level: float, columns: Iterable[str]
) -> str:
    """Return an effect of a model in one sentence.

    Parameters
    ----------
    label : str
        Name of the effect, for example "odds ratio".
    row : tuple of str and three floats
        Column, estimate, and limits of its interval.
    p_value, level : float
    columns : iterable of str
        All columns of the model. The levels of a category, the bases of a spline and the indicator of missing values
        are of one variable.

    Examples
    --------
    >>> effect_text("hazard ratio", ("age", 1.42, 1.31, 1.54), 0.0001, 0.95, ["age", "sex=m", "stage=II", "stage=III"])
    'Hazard ratio of age: 1.42 (95 % interval 1.31 to 1.54), p < 0.001, adjusted for 2 other variables.'
    """
    name, value, lower, upper = row
    others = _adjusted_for({variable_of(column) for column in columns}) - {variable_of(name)}
    adjusted = f", adjusted for {len(others)} other variable{'s' if len(others) > 1 else ''}" if others else ""
    estimate = interval_text(value, lower, upper, level)
    sentence = f"{label.replace('_', ' ')} of {name}: {estimate}, {p_text(p_value)}{adjusted}."
    return sentence[0].upper() + sentence[1:]


def _adjusted_for(variables: set[str]) -> set[str]:
    """Return variables without indicators of missing values and products of others."""
    indicators = {one for one in variables if one.removeprefix(MISSING_PREFIX) in variables - {one}}
    return {one for one in variables - indicators if ":" not in one or not set(one.split(":")) <= variables}


def number_or_none(value: float) -> float | None:
    """Return a number; None if it is not finite, which JSON cannot hold."""
    return float(value) if np.isfinite(value) else None


# Tests of one hypothesis, that all coefficients (but an intercept) are 0.
_GLOBAL_TESTS = {"likelihood_ratio": "likelihood ratio", "wald": "Wald", "score": "score"}


def rows_of_tests(tests: Mapping[str, Any]) -> list[list[str | float | None]]:
    """Return the rows of a report's table of tests: name, statistic, degrees of freedom and p-value."""
    return [
        [
            f"all coefficients are 0, {_GLOBAL_TESTS[name]}" if name in _GLOBAL_TESTS else name.replace("_", " "),
            number_or_none(test.statistic),
            test.degrees_of_freedom,
            number_or_none(test.p_value),
        ]
        for name, test in tests.items()
    ]


def frame_of_tests(tests: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row per test of a model: statistic, degrees of freedom and p-value."""
    import pandas as pd

    rows = [[test.statistic, test.degrees_of_freedom, test.p_value] for test in tests.values()]
    return pd.DataFrame(rows, index=pd.Index(list(tests), name="test"), columns=["statistic", "df", "p_value"])


def p_text(p_value: float) -> str:
    """Return a p-value as journals print it.

    Examples
    --------
    >>> p_text(0.0342), p_text(0.00001), p_text(float("nan"))
    ('p = 0.034', 'p < 0.001', 'no p-value')
    """
    if np.isnan(p_value):
        return "no p-value"
    text = p_cell(p_value)
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"
