"""Agreement before the first tree: columns and classes of the sites, first margin and common cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting import messages
from multicentre.boosting.site import BoostingSite
from multicentre.boosting.trees import MAX_VALUE, OBJECTIVES, Ensemble
from multicentre.core.messages import Nothing
from multicentre.core.session import Session
from multicentre.core.steps import Acknowledgement
from multicentre.data.schema import check_columns
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch, nearest_name
from multicentre.statistics.quantiles.maths import coarsen, up_to_float32
from multicentre.statistics.quantiles.rounds import cuts_for_bins

Singles = NDArray[np.float32]

# Binary digits of slopes and curvatures: more than the 24 of single precision, in which xgboost computes them.
DIGITS = 30
# Binary digits of the largest sum: below the 52 up to which a site truncates single terms.
MAX_DIGITS = 51


def describe(session: Session) -> messages.Described:
    """Return the columns and classes of all sites, and the fewest digits to which a site compares values.

    Raises
    ------
    SchemaMismatch
        The columns or classes differ between sites.
    """

    def request() -> messages.Described:
        answers = session.ask(BoostingSite.describe, Nothing())
        classes = max((answer.classes for answer in answers.values()), key=len)
        first, expected = next(iter(answers.items()))
        for site, answer in answers.items():
            check_columns(site, answer, first, expected)
            if answer.classes != classes[: len(answer.classes)] or bool(answer.classes) != bool(classes):
                raise SchemaMismatch(
                    f"classes must be the same at all sites, {', '.join(classes) or 'none'}; "
                    f"got {', '.join(answer.classes) or 'none'}",
                    where=site,
                    hint="Use the same names in the same order at all sites.",
                )
        digits = min(answer.digits for answer in answers.values())
        return messages.Described(expected.columns, classes, digits, levels=expected.levels)

    return session.once("columns", messages.Described, request)


def assign_columns(session: Session, roles: messages.Roles, columns: Sequence[str]) -> tuple[str, ...]:
    """Send the columns that are not features to every site; return the names of the others.

    Raises
    ------
    ConfigurationError
        A column does not exist, has two roles, or no other column remains.
    """
    named = roles.columns
    features = tuple(name for name in columns if name not in named)
    if not set(named) <= set(columns) or len(set(named)) < len(named) or not features:
        absent = [name for name in named if name not in columns]
        raise ConfigurationError(
            f"sample_weight, base_margin and event must be different columns of the sites; got {', '.join(named)}",
            where="sample_weight",
            hint=f"{nearest_name(absent, columns)}The columns begin with {', '.join(columns[:8])}.",
        )
    if named:
        session.ask(BoostingSite.assign_columns, roles)
    return features


@dataclass(frozen=True)
class Magnitude:
    """Exponents of two of nine tenths of some positive values, and of the largest.

    Parameters
    ----------
    usual, largest : int
    """

    usual: int
    largest: int

    @classmethod
    def of(cls, counts: NDArray[np.int64]) -> Magnitude:
        """Return the magnitude of values counted by exponent, from LOWEST_EXPONENT on."""
        if not counts.any():
            return ONE
        usual, largest = int(np.searchsorted(np.cumsum(counts), 0.9 * counts.sum())), int(np.flatnonzero(counts)[-1])
        return cls(usual + messages.LOWEST_EXPONENT, largest + messages.LOWEST_EXPONENT)

    def times(self, other: Magnitude) -> Magnitude:
        """Return the magnitude of products."""
        return Magnitude(self.usual + other.usual, self.largest + other.largest)

    def unit(self, n_records: int, digits: int = DIGITS) -> int:
        """Return the exponent of a unit in which nine tenths of the values have at least `digits` binary digits.

        They have fewer if the sum over all records could otherwise have more than MAX_DIGITS.

        Examples
        --------
        >>> Magnitude(1, 1).unit(100), Magnitude(1, 30).unit(100)
        (-29, -14)
        """
        return max(self.usual - digits, self.largest - (MAX_DIGITS - n_records.bit_length()))


# Magnitude of ones: slopes of the logistic loss, equal weights.
ONE = Magnitude(0, 0)


def weight_magnitude(session: Session) -> Magnitude:
    """Return the magnitude of the weights over all sites.

    Raises
    ------
    DataError
        All weights are 0.
    """
    counts = session.once(
        "weights", messages.Magnitudes, lambda: session.sum(BoostingSite.count_weights, Nothing())
    ).counts
    if not counts.any():
        raise DataError("weights must not all be 0; they are", where="sample_weight", hint="Use another column.")
    return Magnitude.of(counts)


def outcome_magnitude(session: Session) -> Magnitude:
    """Return the magnitude of the outcomes over all sites."""
    return Magnitude.of(
        session.once(
            "magnitudes", messages.Magnitudes, lambda: session.sum(BoostingSite.count_magnitudes, Nothing())
        ).counts
    )


def share_of_second(session: Session) -> float:
    """Return the share of records of the second of two classes.

    Raises
    ------
    DataError
        All records are of one class.
    """
    counts = session.once(
        "classes", messages.ClassCounts, lambda: session.sum(BoostingSite.count_classes, messages.OfClasses(2))
    ).counts
    if not counts.all():
        raise DataError(
            "records must be of two classes; got one class", where="y", hint="Add sites that have both classes."
        )
    return float(counts[1] / counts.sum())


def mean_outcome(session: Session, unit: int, weight_unit: int | None = None) -> float:
    """Return the mean outcome, or the share of the second of two classes, weighted if there is a unit of weights.

    Parameters
    ----------
    session : Session
    unit : int
        The sum is in units of two to the power of this number.
    weight_unit : int, optional
        Exponent of the unit of the sum of weights.
    """
    request = messages.InUnits(unit, weight_unit)
    total = session.once("outcomes", messages.Outcomes, lambda: session.sum(BoostingSite.sum_outcomes, request)).total
    weight = float(total[1]) * 2.0 ** (weight_unit or 0)
    return float(total[0]) * 2.0**unit / weight if weight else 0.0


def number_units(
    objective: str, outcomes: Magnitude, weights: Magnitude, mean: float, power: float, n_records: int
) -> dict[str, int]:
    """Return the exponents of the units of slopes, curvatures and losses for numbers.

    Parameters
    ----------
    objective : str
    outcomes, weights : Magnitude
    mean : float
        Mean outcome.
    power : float
        Power of the mean in the variance of a Tweedie outcome.
    n_records : int
        Number of records over all sites.

    Examples
    --------
    >>> number_units("reg:squarederror", Magnitude(4, 5), ONE, 8.0, 0.0, 1000)
    {'slope_exponent': -26, 'curvature_exponent': -30, 'loss_exponent': -22}
    """
    slope = curvature = loss = outcomes
    if objective == "reg:squarederror":
        curvature, loss = ONE, outcomes.times(outcomes)
    elif objective == "survival:aft":
        slope = curvature = loss = ONE
    elif objective != "count:poisson":
        # Slopes contain outcomes divided by a power of the mean: the first for reg:gamma, `power` - 1 for reg:tweedie.
        divisor = int(np.floor((1.0 if objective == "reg:gamma" else power - 1.0) * np.log2(mean)))
        slope = curvature = loss = outcomes.times(Magnitude(-divisor, -divisor))
    names = ("slope_exponent", "curvature_exponent", "loss_exponent")
    return {
        name: each.times(weights).unit(n_records) for name, each in zip(names, (slope, curvature, loss), strict=True)
    }


def class_settings(session: Session, parameters: Mapping[str, Any], n_classes: int, n_records: int) -> dict[str, Any]:
    """Return the fields of Start for classes: objective, first margin and units.

    Parameters
    ----------
    session : Session
    parameters : mapping of str to object
        Parameters of the estimator.
    n_classes, n_records : int
        Numbers of classes, and of records over all sites.
    """
    is_weighted, positive = parameters["sample_weight"] is not None, float(parameters["scale_pos_weight"])
    weights = weight_magnitude(session) if is_weighted else ONE
    weight_unit = weights.unit(n_records) if is_weighted else None
    # Slopes of the second class are at most this magnitude, so that sums of large weights stay in range.
    unit = weights.times(Magnitude(0, max(0, int(np.ceil(np.log2(positive)))))).unit(n_records)
    return {
        "objective": "binary:logistic" if n_classes == 2 else "multi:softprob",
        "base": _first_margins(session, parameters, n_classes, weight_unit),
        "positive": positive,
        "slope_exponent": unit,
        "curvature_exponent": unit,
        "loss_exponent": weights.unit(n_records),
        "weight_exponent": weight_unit,
    }


def _first_margins(
    session: Session, parameters: Mapping[str, Any], n_classes: int, weight_unit: int | None
) -> NDArray[np.float32]:
    """Return the common first margins: the log odds of the second of two classes, or 0.5 for each of more."""
    share = parameters["base_score"]
    if parameters["base_margin"]:
        return np.zeros(1 if n_classes == 2 else n_classes, dtype=np.float32)
    if n_classes > 2:
        return np.full(n_classes, 0.5 if share is None else share, dtype=np.float32)
    if share is None and weight_unit is None:
        share = share_of_second(session)
    elif share is None and weight_unit is not None:
        share = mean_outcome(session, weight_unit, weight_unit)
    if not 0 < share < 1:
        raise ConfigurationError(
            f"base_score must be between 0 and 1 for two classes; got {share:g}",
            where="base_score",
            hint="Set base_score=None for the share of the second class, and use records of both classes.",
        )
    return np.array([-np.log(np.float32(1.0) / np.float32(share) - np.float32(1.0))], dtype=np.float32)


def number_settings(session: Session, parameters: Mapping[str, Any], n_records: int) -> dict[str, Any]:
    """Return the fields of Start for numbers: objective, first margin, units and shape.

    Parameters
    ----------
    session : Session
    parameters : mapping of str to object
        Parameters of the estimator.
    n_records : int
        Number of records over all sites.

    Raises
    ------
    DataError
        The mean is not above 0, and the objective requires it.
    """
    objective, is_weighted = parameters["objective"], parameters["sample_weight"] is not None
    weights = weight_magnitude(session) if is_weighted else ONE
    weight_unit = weights.unit(n_records) if is_weighted else None
    outcomes, mean = outcome_magnitude(session), parameters["base_score"]
    if mean is None:
        mean = mean_outcome(session, outcomes.times(weights).unit(n_records), weight_unit)
    is_log, of_times = OBJECTIVES[objective].is_log, objective == "survival:aft"
    if is_log and not mean > 0:
        raise DataError(
            f"the mean of the outcomes must be above 0; got {mean:g}",
            where="base_score",
            hint="Set base_score to a number above 0.",
        )
    power = float(parameters["tweedie_variance_power"])
    base = 0.0 if parameters["base_margin"] else np.log(np.float32(mean)) if is_log else mean
    return {
        "objective": objective,
        "base": np.array([base], dtype=np.float32),
        "positive": 1.0,
        "weight_exponent": weight_unit,
        "power": power if objective == "reg:tweedie" else None,
        "scale": float(parameters["aft_loss_distribution_scale"]) if of_times else None,
        "distribution": (parameters["aft_loss_distribution"],) if of_times else (),
        **number_units(objective, outcomes, weights, float(mean), power, n_records),
    }


def find_cuts(
    session: Session,
    n_columns: int,
    max_bins: int,
    public_cuts: Sequence[Sequence[float]] | None,
    *,
    digits: int = BoostingSite.finest,
) -> tuple[Singles, NDArray[np.int32]]:
    """Return the cuts of all columns in sequence, and their number by column: public ones, or from secure sums.

    `digits` is the number of binary digits to which sites compare values with cuts.
    """
    if public_cuts is None:
        quantiles = cuts_for_bins(session, BoostingSite, n_columns=n_columns, n_bins=max_bins, finest=digits)
        # Cuts lie on borders of public cells. Sites compare cells, so predictions then separate the same records.
        columns = [on_borders(column, digits) for column in quantiles]
    else:
        columns = [np.unique(np.asarray(column, dtype=np.float32)) for column in public_cuts]
    if len(columns) != n_columns:
        raise ConfigurationError(
            f"cuts must have one list per column ({n_columns}); got {len(columns)}",
            where="cuts",
            hint="Pass one list per column.",
        )
    sizes = np.array([len(column) for column in columns], dtype=np.int32)
    return np.concatenate([np.zeros(0, dtype=np.float32), *columns]).astype(np.float32), sizes


def add_cuts(cuts: Singles, n_cuts: NDArray[np.int32], model: Ensemble) -> tuple[Singles, NDArray[np.int32]]:
    """Return the cuts with the thresholds of a model added.

    Raises
    ------
    ConfigurationError
        A column then has too many cuts.
    """
    limit, columns = np.float32(MAX_VALUE), np.split(cuts, np.cumsum(n_cuts)[:-1])
    for place, column in enumerate(columns):
        thresholds = model.threshold[model.column == place]
        columns[place] = np.union1d(column, thresholds[np.abs(thresholds) < limit]).astype(np.float32)
    sizes = np.array([len(column) for column in columns], dtype=np.int32)
    if sizes.max() > messages.MAX_CUTS:
        raise ConfigurationError(
            f"cuts and thresholds of xgb_model must be at most {messages.MAX_CUTS} per column; got {sizes.max()}",
            where="max_bins",
            hint="Lower max_bins.",
        )
    return np.concatenate(columns), sizes


def on_borders(cuts: Singles, digits: int) -> Singles:
    """Return the cuts moved to the first value of their cells, unless cells distinguish any two single numbers."""
    if digits >= BoostingSite.all_digits:
        return cuts
    # Rounded up, so that a cut lies in the cell that it begins and not in the one before.
    return np.unique(up_to_float32(coarsen(cuts.astype(np.float64), digits)))


def begin(session: Session, start: messages.Start) -> None:
    """Send the agreed start to every site."""

    def request() -> Acknowledgement:
        session.ask(BoostingSite.begin, start)
        return Acknowledgement()

    session.once("begun", Acknowledgement, request)
