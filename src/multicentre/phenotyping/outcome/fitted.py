"""Fitted model of an outcome: predictions, metrics and tables for patients that the caller holds."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit
from sklearn.utils.validation import check_is_fitted

from multicentre.data.events.tensor import EventTensor
from multicentre.errors import DataError
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Figure, Forest, Table
from multicentre.estimator.presentation import effect_text, number_text
from multicentre.estimator.saved import PLAIN, Arrays, Saved, SavedAttributes
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
        Phenotypes of the fit.
    coef_ : array of shape (r,)
        Log odds of one standard deviation of each phenotype's membership.
    intercept_ : float
        Log odds at memberships of zero.
    spread_ : array of shape (r,)
        Standard deviation of each membership over the patients of the fit.
    standard_errors_ : array of shape (r,)
        Standard errors of `coef_`, with the ridge.
    p_values_ : array of shape (r,)
        Two-sided Wald tests; NaN for a phenotype that no patient has.
    odds_ratios_ : array of shape (r, 3)
        For one standard deviation: ratio, lower and upper end of the 95 % interval.
    n_patients_, n_outcomes_ : float
        Number of patients of the fit, and of those with the outcome.
    n_held_out_ : float
        Number of held-out patients.
    auc_ : float or None
        Area under the curve of the held-out patients of all sites, within `auc_bounds_`. None if no patients were held
        out, or all of them have the same outcome.
    auc_bounds_ : tuple of two floats, or None
        Bounds of the area of the unbinned scores. They cover the error of the bins, not sampling error. In simulations
        of three sites with 100 to 1,200 held-out patients, default bins and outcomes in half of the patients, they
        differed by at most 0.005, and the error of the area was at most 0.0006.
    converged_ : bool
        Whether the rounds ended by `tol`.
    """

    saved_attributes: ClassVar[SavedAttributes] = {
        **dict.fromkeys(("coef_", "standard_errors_", "p_values_", "odds_ratios_", "spread_"), FLOATS),
        **dict.fromkeys(("intercept_", "n_patients_", "n_outcomes_", "n_held_out_", "auc_"), PLAIN),
        "auc_bounds_": Saved(unpack=lambda bounds: bounds and tuple(bounds)),
        "converged_": PLAIN,
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
            "log loss", "lower", "", "minus the mean log predicted probability of the observed outcome, held out"
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
    converged_: bool

    @property
    def predicts(self) -> Literal["classifier"]:
        """Kind of the estimator in scikit-learn's tags."""
        return "classifier"

    def predict_proba(self, data: EventTensor) -> Floats:
        """Return the probabilities of no outcome and of the outcome for local patients, shape (n, 2)."""
        chance = expit(self.decision_function(data))
        return np.column_stack([1.0 - chance, chance])

    def predict(self, data: EventTensor) -> NDArray[np.int64]:
        """Return 1 for local patients whose outcome is more probable than not, 0 for others, shape (n,)."""
        return np.asarray(self.decision_function(data) > 0, dtype=np.int64)

    def score(self, data: EventTensor, y: None = None) -> float:
        """Return the share of local patients whose outcome is the more probable one.

        Parameters
        ----------
        data : EventTensor
            Patients with outcomes.
        y : None
            Not used, present for API consistency by convention.

        Raises
        ------
        DataError
            The outcomes are missing, or neither 0 nor 1.
        """
        return float((self.predict(data) == _outcomes_of(data, None)).mean())

    def decision_function(self, data: EventTensor) -> Floats:
        """Return the log odds of the outcome for local patients, shape (n,)."""
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
        check_is_fitted(self, "coef_")
        happened, scores = _outcomes_of(data, labels), self.decision_function(data)
        metrics = {
            "brier": float(np.mean((expit(scores) - happened) ** 2)),
            "log_loss": float(-np.mean(log_expit(np.where(happened, scores, -scores)))),
        }
        area = area_under_curve(scores, happened)
        return metrics if math.isnan(area) else {"auc": area, **metrics}

    def to_frame(self) -> pd.DataFrame:
        """Return one row per phenotype, by number: coefficient, standard error, odds ratio, p-value.

        ``lower`` and ``upper`` are the ends of the 95 % interval of the odds ratio.
        """
        import pandas as pd

        check_is_fitted(self, "coef_")
        columns = {
            "coefficient": self.coef_,
            "standard_error": self.standard_errors_,
            "odds_ratio": self.odds_ratios_[:, 0],
            "lower": self.odds_ratios_[:, 1],
            "upper": self.odds_ratios_[:, 2],
            "p_value": self.p_values_,
        }
        return pd.DataFrame(columns, index=pd.RangeIndex(1, len(self.p_values_) + 1, name="phenotype"))

    def summary(self) -> pd.DataFrame:
        """Return the table of :meth:`to_frame`.

        The printed table ends with the numbers of patients, the area under the curve and sites that were left out.
        """
        from multicentre.estimator.results import with_note

        frame = self.to_frame()
        facts = f"{self.n_patients_:.0f} patients, {self.n_outcomes_:.0f} with the outcome."
        if self.auc_ is not None:
            facts += f" Area under the curve of {self.n_held_out_:.0f} held-out patients: {self.auc_:.3f}."
        return with_note(
            frame, " ".join(part for part in (facts, self._remarks()) if part), model=self.describe_model()
        )

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the odds ratios of the phenotypes."""
        return {"odds-ratios": self.to_frame()}

    def answer(self) -> str:
        """Return the area under the curve if it was estimated, and the odds ratio of the largest phenotype."""
        frame = self.to_frame()
        ratio, lower, upper = (float(frame[name].iloc[0]) for name in ("odds_ratio", "lower", "upper"))
        row = ("phenotype 1", ratio, lower, upper)
        effect = effect_text(
            "odds ratio", row, float(frame["p_value"].iloc[0]), 0.95, [f"phenotype {one}" for one in frame.index]
        )
        if self.auc_ is None:
            return effect
        return f"Area under the curve of {self.n_held_out_:,.0f} held-out patients: {number_text(self.auc_)}. {effect}"

    def main_figure(self) -> Figure:
        """Return the forest plot of the odds ratios."""
        frame = self.to_frame().replace([np.inf, -np.inf], np.nan)
        ratios, lower, upper = (
            [None if math.isnan(value) else float(value) for value in frame[name]]
            for name in ("odds_ratio", "lower", "upper")
        )
        names = [f"phenotype {number}" for number in frame.index]
        caption = "Odds ratios of one standard deviation of the membership, with 95 % intervals."
        return Forest(
            "Odds ratios of the phenotypes", caption, "model", "odds ratio", names, ratios, lower, upper, 0, 1.0
        )

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
        raise DataError(
            "patients must have outcomes; got none", where="data", hint="Pass data with outcomes, or labels."
        )
    texts = np.asarray(raw_outcomes).astype(str)
    if texts.shape != (len(data),) or not np.isin(texts, ("0", "1")).all():
        raise DataError(
            "outcomes must be 0 or 1, one per patient; got others",
            where="labels",
            hint="Leave patients without an outcome out.",
        )
    return np.asarray(texts == "1")
