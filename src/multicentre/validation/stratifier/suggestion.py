"""What was found of the covariates that folds could be cut by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Candidate:
    """One covariate.

    Attributes
    ----------
    name : str
    usable : bool
        Whether folds can be cut by it: enough different values, few missing, stable.
    reason : str
        Why not; empty where it is usable.
    missing : float
        Share of records without a value.
    imbalance : float
        Records of the largest over those of the smallest fold; infinite where ties leave fewer folds.
    stability : float
        Share of patients with several values at one site whose values agree; NaN where none is known.
    information : float
        Mutual information with the outcome, in nats.
    ratio : float
        Mean over sites of the pilot's ratio, score with folds cut by the covariate over score with random folds; NaN
        where no pilot was run.
    ratio_error : float
        Its standard error over sites.
    predicted_ratio : float
        The ratio over all sites that goes with it.
    predicted_bias, lower, upper : float
        The bias of the score that goes with it, and its 95 % interval.
    n_sites : int
        Sites that ran the pilot.
    """

    name: str
    usable: bool
    reason: str
    missing: float
    imbalance: float
    stability: float
    information: float
    ratio: float = np.nan
    ratio_error: float = np.nan
    predicted_ratio: float = np.nan
    predicted_bias: float = np.nan
    lower: float = np.nan
    upper: float = np.nan
    n_sites: int = 0


@dataclass(frozen=True, eq=False)
class Suggestion:
    """Covariates in the order in which they are to be preferred.

    Attributes
    ----------
    candidates : tuple of Candidate
        Usable ones first: those with a pilot by predicted bias, the others by mutual information.
    score : str
        What the pilot scored: "accuracy" or "concordance".
    random_score : float
        Its mean over sites with random folds.
    identifiers : tuple of str
        Columns of identifiers that all sites have; folds hashed by one of them have a predicted bias of 0.
    calibrated : bool
        Whether a line was known that leads from the pilot's ratio to that over all sites; the pilot's own ratio stands
        in for it otherwise, and the interval tells of the sites' spread alone.
    n_splits : int
    model : str
    """

    candidates: tuple[Candidate, ...]
    score: str
    random_score: float
    identifiers: tuple[str, ...]
    calibrated: bool
    n_splits: int
    model: str

    @property
    def best(self) -> str | None:
        """The covariate with the least predicted bias; None where none can be used."""
        usable = [one.name for one in self.candidates if one.usable]
        return usable[0] if usable else None

    @property
    def advice(self) -> str:
        """What to do, in a few sentences."""
        said = []
        if self.identifiers:
            said.append(
                f"Every site has {', '.join(self.identifiers)}: prefer HashGroupKFold(person_key=...), whose predicted "
                "bias is 0."
            )
        if self.best is None:
            said.append("No covariate can be used to cut folds.")
            return " ".join(said)
        first = self.candidates[0]
        if np.isnan(first.predicted_bias):
            said.append(f"Of the covariates, {first.name} tells least of the outcome; no site could run the pilot.")
        else:
            said.append(
                f"Of the covariates, {first.name} has the least predicted bias: {first.predicted_bias:+.4f} "
                f"(95 % interval {first.lower:+.4f} to {first.upper:+.4f}) in {self.score}."
            )
        said.append(
            f"Where records of one person agree in {first.name}, deal out its bins by a hash, "
            f"CovariateFoldKFold(covariate={first.name!r}, scheme='binned-hash'): little of that bias is left."
        )
        return " ".join(said)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a strategy: hashes of identifiers first, then the covariates in their order."""
        import pandas as pd

        hashed = [
            {"strategy": f"hash of {name}", "usable": True, "predicted_bias": 0.0, "reason": ""}
            for name in self.identifiers
        ]
        cut = [
            {
                "strategy": f"thresholds of {one.name}",
                "usable": one.usable,
                "predicted_bias": one.predicted_bias,
                "lower": one.lower,
                "upper": one.upper,
                "predicted_ratio": one.predicted_ratio,
                "pilot_ratio": one.ratio,
                "pilot_error": one.ratio_error,
                "pilot_sites": one.n_sites,
                "information": one.information,
                "stability": one.stability,
                "missing": one.missing,
                "imbalance": one.imbalance,
                "reason": one.reason,
            }
            for one in self.candidates
        ]
        columns = ["strategy", "usable", "predicted_bias", "lower", "upper", "predicted_ratio", "pilot_ratio"]
        more = ["pilot_error", "pilot_sites", "information", "stability", "missing", "imbalance", "reason"]
        return pd.DataFrame(hashed + cut, columns=columns + more)

    def __repr__(self) -> str:
        n_usable = sum(one.usable for one in self.candidates)
        return f"Suggestion({n_usable} of {len(self.candidates)} covariates can be used). {self.advice}"
