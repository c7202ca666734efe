"""Chi-square tests of fitted models."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.stats import chi2


@dataclass(frozen=True)
class TestResult:
    """A chi-square test.

    Parameters
    ----------
    statistic : float
    degrees_of_freedom : int
    p_value : float
    name : str, default ""
        Name of the test where there are several.
    """

    __test__ = False
    statistic: float
    degrees_of_freedom: int
    p_value: float
    name: str = ""


def chi_square_test(statistic: float, degrees_of_freedom: int, name: str = "") -> TestResult:
    """Return the test of a statistic; one below 0 by rounding counts as 0.

    Examples
    --------
    >>> round(chi_square_test(3.841459, 1).p_value, 6)
    0.05
    """
    p_value = float(chi2.sf(max(statistic, 0.0), max(degrees_of_freedom, 1)))
    return TestResult(float(statistic), degrees_of_freedom, p_value, name)
