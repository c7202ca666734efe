"""Combination of the estimates of several sites, with its table and forest plot."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from multicentre.errors import CombinationWarning, ConfigurationError, name_some
from multicentre.estimator.drawing import plot
from multicentre.estimator.figures import Forest
from multicentre.estimator.parameters import Flag, OneOf, ParameterRanges, Real, check_parameters
from multicentre.estimator.presentation import p_text
from multicentre.estimator.results import with_note
from multicentre.estimator.site_estimates import NO_ERROR, Scale, SiteEstimates, undo_scale
from multicentre.statistics.meta_analysis import (
    HartungKnapp,
    Mean,
    Pooled,
    TauMethod,
    describe_limits,
    leave_one_out,
    pool,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
ONE_FIT = "all sites, one fit"
FIXED, RANDOM, NEW_SITE = "fixed effect", "random effects", "new site"
_RANGES: ParameterRanges = {
    "method": OneOf("REML", "DL"),
    "hartung_knapp": (Flag(), OneOf("adhoc")),
    "confidence_level": Real(0.5, 1, open="high"),
    "scale": OneOf("identity", "log", "log-log"),
}


@dataclass(frozen=True)
class Terms:
    """Terms of a combination; see :func:`combine`."""

    method: TauMethod = "REML"
    hartung_knapp: HartungKnapp = True
    confidence_level: float = 0.95

    def __post_init__(self) -> None:
        check_parameters(vars(self), {name: _RANGES[name] for name in vars(self)})

    def pool(self, estimates: Floats, errors: Floats) -> Pooled:
        """Return the meta-analysis of some estimates."""
        return pool(estimates, errors, **vars(self))


@dataclass(frozen=True)
class Combination:
    """Combined estimate of several sites; made by :func:`combine`.

    Parameters
    ----------
    sites : tuple of str
        Names of the sites with an estimate.
    estimates, standard_errors : arrays of shape (k,)
    terms : Terms
    left_out : mapping of str to str
        Sites without an estimate, and why.
    scale : {"identity", "log", "log-log"}
    label : str
        Name of the values after the scale is undone.

    Attributes
    ----------
    pooled : Pooled
        Fixed effect, random effects, Q, I squared, H squared, tau squared and prediction interval; NaN without sites.
    """

    sites: tuple[str, ...]
    estimates: Floats
    standard_errors: Floats
    terms: Terms
    left_out: Mapping[str, str] = field(default_factory=dict)
    scale: Scale = "identity"
    label: str = "estimate"

    @property
    def pooled(self) -> Pooled:
        """Meta-analysis of the estimates."""
        if len(self.estimates):
            return self.terms.pool(self.estimates, self.standard_errors)
        nan = float("nan")
        none = Mean(nan, nan, nan, nan, nan)
        return Pooled(0, none, none, nan, nan, nan, nan, nan, (nan, nan))

    def to_frame(self) -> pd.DataFrame:
        """Return a row per site, then fixed effect, random effects, and the prediction interval of a new site.

        A site that has the name of one of the last three rows has "site" before its name.

        Columns: estimate, standard error and limits; the weight under random effects; and, on a scale other than
        "identity", the value of `label` with its limits. Sites without an estimate are rows of NaN.
        """
        import pandas as pd

        pooled = self.pooled
        half = float(norm.ppf(0.5 + self.terms.confidence_level / 2.0)) * self.standard_errors
        rows = {
            _label(site): [value, error, value - width, value + width, weight]
            for site, value, error, width, weight in zip(
                self.sites, self.estimates, self.standard_errors, half, self._weights, strict=True
            )
        }
        rows |= {_label(site): [np.nan] * 5 for site in self.left_out}
        rows |= {
            name: [mean.value, mean.standard_error, mean.lower, mean.upper, np.nan]
            for name, mean in ((FIXED, pooled.fixed), (RANDOM, pooled.random))
        }
        rows[NEW_SITE] = [np.nan, np.nan, *pooled.prediction, np.nan]
        names = ["estimate", "standard_error", "lower", "upper", "weight"]
        frame = pd.DataFrame.from_dict(rows, orient="index", columns=names)
        if self.scale != "identity":
            for name, values in zip(("", "_lower", "_upper"), self._shown(frame), strict=True):
                frame[self.label.replace(" ", "_") + name] = values
        return frame

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with heterogeneity and sites left out."""
        from multicentre.errors import describe_reasons

        without = f"Without {describe_reasons(self.left_out)}." if self.left_out else ""
        return with_note(self.to_frame(), without, remark=self.describe_heterogeneity())

    def describe_heterogeneity(self) -> str:
        """Return Q, I squared, H and tau squared in a sentence, and what limits the combined estimates."""
        pooled = self.pooled
        if not pooled.k:
            return "0 sites with an estimate: heterogeneity is not defined."
        limits = pooled.limits()
        if pooled.k == 1:
            return limits[0]
        if self.terms.hartung_knapp == "adhoc":
            limits.append("Hartung-Knapp interval with the ad hoc correction (a factor of at least 1).")
        return (
            f"{pooled.k} sites; Q {pooled.q:.2f} ({p_text(pooled.q_p_value)}), "
            f"I squared {100 * pooled.i_squared:.0f} %, "
            f"H {np.sqrt(pooled.h_squared):.2f}, tau squared {pooled.tau_squared:.4g} ({self.terms.method})."
            f"{''.join(f' {limit}' for limit in limits)}"
        )

    def leave_one_out(self) -> pd.DataFrame:
        """Return a row per site that is left out: random effects and heterogeneity of the other sites.

        Raises
        ------
        ConfigurationError
            Fewer than two sites have an estimate.
        """
        import pandas as pd

        if len(self.sites) < 2:
            raise ConfigurationError(
                f"at least two sites must have an estimate; got {len(self.sites)}", where="leave_one_out"
            )
        others = leave_one_out(self.estimates, self.standard_errors, **vars(self.terms))
        rows = [
            [
                *(each.random.value, each.random.standard_error, each.random.lower, each.random.upper),
                *(each.q, each.i_squared, each.tau_squared),
            ]
            for each in others
        ]
        names = ["estimate", "standard_error", "lower", "upper", "q", "i_squared", "tau_squared"]
        limits = describe_limits(
            {f"without {site}": each.limits() for site, each in zip(self.sites, others, strict=True)}
        )
        frame = pd.DataFrame(rows, index=pd.Index(self.sites, name="without"), columns=names)
        return with_note(frame, "", remark=" ".join(limits))

    def forest(self, title: str = "Estimates by site", *, fit: tuple[float, float] | None = None) -> Forest:
        """Return the forest plot as plain values: a row per site, then the combined estimates.

        Parameters
        ----------
        title : str, default "Estimates by site"
        fit : tuple of two floats, optional
            Estimate and standard error of the fit to the patients of all sites, for a separate row.
        """
        frame = self.to_frame()
        if fit is not None:
            half = float(norm.ppf(0.5 + self.terms.confidence_level / 2.0)) * fit[1]
            frame.loc[ONE_FIT, ["estimate", "lower", "upper"]] = [fit[0], fit[0] - half, fit[0] + half]
            frame = frame.reindex([*frame.index[:-4], ONE_FIT, *frame.index[-4:-1]])
        values, lower, upper = ([_number_or_none(value) for value in column] for column in self._shown(frame))
        reference = 1.0 if self.scale == "log" else 0.0
        level = f"{100 * self.terms.confidence_level:g} % intervals"
        caption = f"Each site alone, with {level}; the last row is the prediction interval of a new site. "
        caption += self.describe_heterogeneity()
        n_pooled = 3 if fit is None else 4
        return Forest(title, caption, "model", self.label, list(frame.index), values, lower, upper, n_pooled, reference)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the forest plot.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; those of a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        return plot(self.forest(), ax)

    def __str__(self) -> str:
        """Return the summary."""
        return str(self.summary())

    @property
    def _weights(self) -> Floats:
        weights = 1.0 / (self.standard_errors**2 + np.nan_to_num(self.pooled.tau_squared))
        return np.asarray(weights / max(float(weights.sum()), np.finfo(float).tiny), dtype=np.float64)

    def _shown(self, frame: pd.DataFrame) -> list[Floats]:
        """Return estimates, lower and upper limits with the scale undone."""
        columns = [undo_scale(frame[name].to_numpy(), self.scale) for name in ("estimate", "lower", "upper")]
        # Survival decreases with its log-log, so that the limits change places.
        return [columns[0], columns[2], columns[1]] if self.scale == "log-log" else columns


class Combinations(dict[str, Combination]):
    """Combined estimates by column; made by :func:`combine` from the estimates of sites."""

    def to_frame(self) -> pd.DataFrame:
        """Return a row per column: random effects with limits and p-value, fixed effect, and heterogeneity."""
        import pandas as pd

        rows = {
            name: [
                pooled.k,
                *(pooled.random.value, pooled.random.standard_error, pooled.random.lower, pooled.random.upper),
                *(pooled.random.p_value, pooled.fixed.value, pooled.fixed.standard_error),
                *(pooled.q, pooled.q_p_value, pooled.i_squared, pooled.tau_squared, *pooled.prediction),
            ]
            for name, pooled in ((name, each.pooled) for name, each in self.items())
        }
        names = ["sites", "estimate", "standard_error", "lower", "upper", "p_value", "fixed", "fixed_standard_error"]
        names += ["q", "q_p_value", "i_squared", "tau_squared", "prediction_lower", "prediction_upper"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=names)

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; its printed form ends with their limits and sites left out."""
        from multicentre.errors import describe_reasons

        texts = dict.fromkeys(describe_reasons(each.left_out) for each in self.values() if each.left_out)
        without = f"Without {'; '.join(texts)}." if texts else ""
        return with_note(self.to_frame(), without, remark=" ".join(_limits_of(self)))

    def __str__(self) -> str:
        """Return the summary."""
        return str(self.summary())

    def plot(self, column: str, ax: Axes | None = None) -> Axes:
        """Draw the forest plot of a column; see :meth:`Combination.plot`.

        Raises
        ------
        ConfigurationError
            The column does not exist.
        """
        if column not in self:
            raise ConfigurationError(
                f"column must be one of {', '.join(list(self)[:10])}; got {column!r}", where="column"
            )
        return plot(self[column].forest(f"{column} by site"), ax)


@overload
def combine(
    estimates: SiteEstimates,
    *,
    method: TauMethod = ...,
    hartung_knapp: HartungKnapp = ...,
    confidence_level: float = ...,
) -> Combinations: ...


@overload
def combine(
    estimates: ArrayLike,
    standard_errors: ArrayLike,
    *,
    sites: Sequence[str] | None = ...,
    scale: Scale = ...,
    label: str = ...,
    method: TauMethod = ...,
    hartung_knapp: HartungKnapp = ...,
    confidence_level: float = ...,
) -> Combination: ...


def combine(
    estimates: SiteEstimates | ArrayLike,
    standard_errors: ArrayLike | None = None,
    *,
    sites: Sequence[str] | None = None,
    scale: Scale = "identity",
    label: str = "estimate",
    method: TauMethod = "REML",
    hartung_knapp: HartungKnapp = True,
    confidence_level: float = 0.95,
) -> Combination | Combinations:
    """Combine the estimates of sites by meta-analysis.

    Parameters
    ----------
    estimates : SiteEstimates or array of shape (k,)
        Result of a fitted model's ``by_site()``, or estimates of k sites. A site with an estimate that is NaN is left
        out and named.
    standard_errors : array of shape (k,), optional
        Standard errors of the estimates, above 0. Required with an array.
    sites : sequence of str, optional
        Names of the sites of an array, all different.
    scale : {"identity", "log", "log-log"}, default "identity"
        Scale of the estimates of an array; the forest plot undoes it. Use "log" for logarithms of ratios.
    label : str, default "estimate"
        Name of the values of an array after the scale is undone, for example "odds ratio".
    method : {"REML", "DL"}, default "REML"
        Estimator of the variance between sites: restricted maximum likelihood, or DerSimonian and Laird.
    hartung_knapp : bool or "adhoc", default True
        Interval, test and prediction interval of random effects by Hartung and Knapp, with t distributions of k - 1
        degrees of freedom; otherwise normal distributions. Where sites agree more than by chance, this interval can be
        narrower than that of the fixed effect; with "adhoc", its standard error is never below that of the usual
        random-effects interval.
    confidence_level : float, default 0.95
        Confidence level of the intervals, from 0.5 to below 1.

    Returns
    -------
    Combinations or Combination
        By column for estimates of sites; one combination for an array.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range, lengths differ, or two sites have the same name.

    Warns
    -----
    CombinationWarning
        One site has an estimate; two have and their differences are within chance, so that random effects are the fixed
        effect; or the interval of random effects is narrower than that of the fixed effect.

    References
    ----------
    C. Roever, G. Knapp, T. Friede (2015), Hartung-Knapp-Sidik-Jonkman approach and its modification for random-effects
    meta-analysis with few studies, BMC Medical Research Methodology 15, 99.

    W. Viechtbauer (2010), Conducting meta-analyses in R with the metafor package, Journal of Statistical Software
    36(3), 1-48.

    Examples
    --------
    >>> combined = combine([0.2, 0.5, 0.3], [0.1, 0.2, 0.1], sites=["lyon", "oslo", "turin"])
    >>> round(combined.pooled.random.value, 3), round(combined.pooled.q, 2)
    (0.278, 1.89)
    """
    terms = Terms(method, hartung_knapp, confidence_level)
    if isinstance(estimates, SiteEstimates):
        if standard_errors is not None or sites is not None:
            raise ConfigurationError(
                "standard_errors and sites must be left out with estimates of sites, which have their own",
                where="standard_errors, sites",
            )
        by_column = {name: _of_column(estimates, place, terms) for place, name in enumerate(estimates.columns)}
        _warn_of_limits(by_column)
        return Combinations(by_column)
    check_parameters({"scale": scale}, {"scale": _RANGES["scale"]})
    values, errors = np.asarray(estimates, dtype=np.float64), np.asarray(standard_errors, dtype=np.float64)
    names = tuple(f"site {number}" for number in range(1, values.size + 1)) if sites is None else tuple(sites)
    if values.ndim != 1 or values.shape != errors.shape or len(names) != len(values):
        raise ConfigurationError(
            "estimates, standard_errors and sites must have the same length; "
            f"got shapes {values.shape} and {errors.shape}, and {len(names)} names",
            where="standard_errors",
            hint="Pass one estimate, one standard error and one name per site.",
        )
    repeated = [str(name) for name, number in Counter(names).items() if number > 1]
    if repeated:
        raise ConfigurationError(
            f"sites must have different names; got {name_some(repeated)} more than once",
            where="sites",
            hint="Add a year or a number to the name.",
        )
    combined = _combination(names, values, errors, {}, terms, scale, label)
    _warn_of_limits({"": combined})
    return combined


def _limits_of(combined: Mapping[str, Combination]) -> list[str]:
    return describe_limits({name: each.pooled.limits() for name, each in combined.items()})


def _warn_of_limits(combined: Mapping[str, Combination]) -> None:
    """Warn once per limit, with the columns that it concerns."""
    for limit in _limits_of(combined):
        warnings.warn(limit, CombinationWarning, stacklevel=3)


def _of_column(estimates: SiteEstimates, place: int, terms: Terms) -> Combination:
    values, errors = estimates.estimates[:, place], estimates.standard_errors[:, place]
    reasons = {site: estimates.reason(site, estimates.columns[place]) or NO_ERROR for site in estimates.sites}
    return _combination(estimates.sites, values, errors, reasons, terms, estimates.scale, estimates.label)


def _combination(
    names: tuple[str, ...],
    values: Floats,
    errors: Floats,
    refused: Mapping[str, str],
    terms: Terms,
    scale: Scale,
    label: str,
) -> Combination:
    used = np.isfinite(values) & np.isfinite(errors) & (errors > 0)
    left_out = {name: refused.get(name, NO_ERROR) for name, is_used in zip(names, used, strict=True) if not is_used}
    chosen = tuple(name for name, is_used in zip(names, used, strict=True) if is_used)
    return Combination(chosen, values[used], errors[used], terms, left_out, scale, label)


def _label(site: str) -> str:
    """Return the name of a site's row, which differs from those of the combined estimates."""
    return f"site {site}" if site in (FIXED, RANDOM, NEW_SITE) else site


def _number_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
