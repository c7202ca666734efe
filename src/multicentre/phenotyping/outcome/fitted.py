"""Fitted model of an outcome: predictions, metrics and tables for patients that the caller holds."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit
from sklearn.utils.validation import check_is_fitted

from multicentre.data.events.tensor import EventTensor
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Figure, Table
from multicentre.estimator.saved import PLAIN, Arrays, Saved, SavedAttributes
from multicentre.federation.errors import DataError
from multicentre.phenotyping.outcome.maths import area_under_curve
from multicentre.phenotyping.outcome.phenotypes import PhenotypeFactors
from multicentre.phenotyping.tables import PhenotypeTable, Titles, share_of_patients, tabulate_phenotypes

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
FLOATS = Saved(unpack=lambda array: np.asarray(array, dtype=np.float64))


class OutcomeModel(FederatedEstimator):
    """A logistic regression of an outcome on memberships in phenotypes.

    Attributes
    ----------
    phenotypes_ : PhenotypeFactors
        Those of the fit.
    coef_ : array of shape (r,)
        Log odds of one standard deviation of each phenotype's membership.
    intercept_ : float
        Log odds at memberships of zero.
    spread_ : array of shape (r,)
        Standard deviation of each membership over the patients of the fit.
    standard_errors_ : array of shape (r,)
        Standard errors of `coef_`, with the ridge.
    p_values_ : array of shape (r,)
        Two-sided Wald tests; not a number for a phenotype that nobody has.
    odds_ratios_ : array of shape (r, 3)
        For one standard deviation: ratio, lower and upper end of the 95 % interval.
    n_patients_, n_outcomes_ : float
        Patients of the fit, and those with the outcome.
    n_held_out_ : float
        Held-out patients.
    auc_ : float or None
        Area under the curve of the held-out patients of all sites, to the resolution that `auc_bounds_` states. None
        where nobody was held out, or none of them has the outcome, or each has.
    auc_bounds_ : tuple of two floats, or None
        Between these the area of the scores themselves is sure to lie. They cover what the bins of scores hide, not
        chance; patients with equal scores, who count half in any area, are in them too. In
        simulations of three sites with 100 to 1,200 held-out patients together, default bins and outcomes in half of
        the patients, they lay at most .005 apart and the area was off by at most .0006.
    n_iter_ : int
    converged_ : bool
    """

    saved_attributes: ClassVar[SavedAttributes] = {
        **dict.fromkeys(("coef_", "standard_errors_", "p_values_", "odds_ratios_", "spread_"), FLOATS),
        **dict.fromkeys(("intercept_", "n_patients_", "n_outcomes_", "n_held_out_", "auc_"), PLAIN),
        "auc_bounds_": Saved(unpack=lambda bounds: bounds and tuple(bounds)),
        **dict.fromkeys(("n_iter_", "converged_"), PLAIN),
    }
    may_be_missing: ClassVar[frozenset[str]] = frozenset({"standard_errors_", "p_values_", "odds_ratios_"})
    metrics: ClassVar[Mapping[str, Metric]] = {
        "auc": Metric(
            "area under the curve",
            "higher",
            "probability",
            "how often the patient with the outcome has the higher score of a pair with and without it; held out",
        ),
        "brier": Metric("Brier score", "lower", "", "mean squared error of the predicted chance, held out"),
        "log_loss": Metric(
            "log loss", "lower", "nats", "minus the mean log predicted probability of the observed outcome, held out"
        ),
    }
    phenotypes: PhenotypeFactors | None
    phenotypes_: PhenotypeFactors
    coef_: Floats
    intercept_: float
    spread_: Floats
    standard_errors_: Floats
    p_values_: Floats
    odds_ratios_: Floats
    n_patients_: float
    n_outcomes_: float
    n_held_out_: float
    auc_: float | None
    auc_bounds_: tuple[float, float] | None
    n_iter_: int
    converged_: bool

    def predict_proba(self, data: EventTensor) -> Floats:
        """Return the chance of no outcome and of the outcome for patients that the caller holds, shape (n, 2)."""
        chance = expit(self.decision_function(data))
        return np.column_stack([1.0 - chance, chance])

    def decision_function(self, data: EventTensor) -> Floats:
        """Return the log odds of the outcome for patients that the caller holds, shape (n,)."""
        check_is_fitted(self, "coef_")
        return self.phenotypes_.memberships(data) @ (self.coef_ / self.spread_) + self.intercept_

    def assess(
        self,
        data: EventTensor,
        labels: Sequence[str] | None = None,
        *,
        training: EventTensor | None = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return area under the curve, Brier score and log loss for patients that the fit did not see.

        Parameters
        ----------
        data : EventTensor
        labels : sequence of {"0", "1"}, optional
            Their outcomes; by default those of the data.
        training, training_labels : optional
            Not used, present for API consistency by convention.

        Raises
        ------
        DataError
            The outcomes are missing, or neither 0 nor 1.
        """
        happened, scores = _outcomes_of(data, labels), self.decision_function(data)
        metrics = {
            "brier": float(np.mean((expit(scores) - happened) ** 2)),
            "log_loss": float(-np.mean(log_expit(np.where(happened, scores, -scores)))),
        }
        area = area_under_curve(scores, happened)
        return metrics if math.isnan(area) else {"auc": area, **metrics}

    def to_frame(self) -> pd.DataFrame:
        """Return one row per phenotype, by number: coefficient, standard error, odds ratio with interval, p-value."""
        import pandas as pd

        check_is_fitted(self, "coef_")
        columns = {
            "coefficient": self.coef_,
            "standard_error": self.standard_errors_,
            "odds_ratio": self.odds_ratios_[:, 0],
            "odds_ratio_low": self.odds_ratios_[:, 1],
            "odds_ratio_high": self.odds_ratios_[:, 2],
            "p_value": self.p_values_,
        }
        return pd.DataFrame(columns, index=pd.RangeIndex(1, len(self.p_values_) + 1, name="phenotype"))

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`; printed, it ends with a sentence on sites that were left out."""
        from multicentre.estimator.results import with_note

        return with_note(self.to_frame(), self._remarks())

    def phenotype_table(self, *, n_codes: int = 10, titles: Titles = None) -> PhenotypeTable:
        """Return the phenotypes with weight, prevalence, coefficient and p-value, as the paper's Tables 5 and 7.

        Parameters
        ----------
        n_codes : int, default 10
            Maximum number of codes per mode and phenotype.
        titles : mapping of str to str or True, optional
            Titles by code; True: the titles of the extra ``codes``.

        Returns
        -------
        PhenotypeTable
            Its ``summary_frame()`` has the paper's columns, and ``to_frame()`` the codes.
        """
        check_is_fitted(self, "coef_")
        phenotypes = self.phenotypes_
        shares = share_of_patients(phenotypes.members, phenotypes.n_patients, phenotypes.rank)
        table = tabulate_phenotypes(
            phenotypes.factors, phenotypes.codes, phenotypes.weights, prevalence=shares, n_codes=n_codes, titles=titles
        )
        p_values = {n: float(value) for n, value in enumerate(self.p_values_, start=1) if not math.isnan(value)}
        return table.with_outcome({n: float(v) for n, v in enumerate(self.coef_, start=1)}, p_values)

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return the table of coefficients."""
        frame = self.to_frame().reset_index()
        rows = [[None if math.isnan(cell) else float(cell) for cell in row] for row in frame.to_numpy()]
        caption = "Log odds and odds ratios of one standard deviation of the membership, with 95 % intervals."
        columns = [str(name).replace("_", " ") for name in frame.columns]
        return [Table("Phenotypes and the outcome", caption, "model", columns, rows)]

    def save(self, folder: str | Path) -> None:
        """Write the fitted model, the phenotypes among its arrays, as ``model.npz`` and ``model.json``."""
        bare = copy.copy(self)
        bare.phenotypes = None
        FederatedEstimator.save(bare, folder)

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        check_is_fitted(self, "coef_")
        (arrays, facts), (more_arrays, more_facts) = super()._state(), self.phenotypes_.state()
        return arrays | more_arrays, facts | more_facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.phenotypes = self.phenotypes_ = PhenotypeFactors.from_state(arrays, facts)


def _outcomes_of(data: EventTensor, labels: Sequence[str] | None) -> NDArray[np.bool_]:
    raw_outcomes = data.outcomes if labels is None else labels
    if raw_outcomes is None:
        raise DataError("the patients have no outcomes", where="data", hint="Give data with outcomes, or labels.")
    texts = np.asarray(raw_outcomes).astype(str)
    if texts.shape != (len(data),) or not np.isin(texts, ("0", "1")).all():
        raise DataError("an outcome is neither 0 nor 1", where="labels", hint="Give one of both for every patient.")
    return np.asarray(texts == "1")
