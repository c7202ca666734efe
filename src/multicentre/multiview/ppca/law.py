"""Fitted law of Fed-mv-PPCA: its parameters in the units of the columns, and how it is saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.data.missing.values import count_missing
from multicentre.data.schema import MultiViewSchema
from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.saved import PLAIN, Arrays, Saved, SavedAttributes
from multicentre.multiview.agreement import Agreement
from multicentre.multiview.ppca.maths import gauge
from multicentre.multiview.ppca.maths.ard import active_axes
from multicentre.multiview.ppca.maths.model import Floats, Layout, NoiseModel, Parameters
from multicentre.multiview.ppca.maths.prior import Prior
from multicentre.multiview.ppca.maths.regression import Choice

if TYPE_CHECKING:
    import pandas as pd

_PRIOR = tuple(Prior.__dataclass_fields__)
_CHOICE = tuple(Choice.__dataclass_fields__)
# A variance between sites is infinite where the sites do not determine it; the share of a view without variance is NaN.
_DIAGNOSTICS = frozenset(
    {"global_loadings_variance", "global_mean_variance", "explained_variance_ratio_", "explained_variance_"}
    | {"choice_errors"}
)
# JSON has no integers as keys: pairs of a number of latent dimensions and its criterion.
_CRITERION_PATH = Saved(
    lambda path: list(path.items()), lambda pairs: {int(q): float(criterion) for q, criterion in pairs}
)


class FittedDistribution(FederatedEstimator):
    """A law of multi-view rows, t = W x + mu + eps, with x ~ N(0, I).

    Attributes are in the units of the columns unless stated otherwise.

    Attributes
    ----------
    schema_ : MultiViewSchema
        Views and columns.
    loadings_ : dict of str to array of shape (d_k, q)
        ``W`` by view, in canonical axes: sorted by variance explained, largest loading positive.
    mean_ : dict of str to array of shape (d_k,)
        ``mu`` by view.
    noise_variance_ : dict of str to array of shape (d_k,)
        Noise variance of each column by view.
    intercept_variance_ : dict of str to array of shape (d_k,)
        Variance between sites of the offset of each column, by view; 0 without `site_intercepts`, for views of fewer
        than three sites and for ``method="hierarchical"``, whose global law contains it.
    n_components_ : int
        Latent dimensions of the fit.
    correlations_ : dict of str to array of shape (d_k, q)
        Correlation of each column with each latent dimension under the model (the correlation circle), by view.
    varimax_rotation_ : array of shape (q, q)
        ``transform(data) @ varimax_rotation_`` and ``loadings_[view] @ varimax_rotation_`` are latents and loadings
        in axes that each load on few columns.
    imputation_errors_ : dict of str to dict of str to float
        Mean absolute error, in standard deviations, of each view predicted from the others at sites that did not
        contribute: by the column's ``"mean"``, by the latent ``"model"`` (whose parameters the site did contribute to),
        by ``"regression"``. Empty where they were not compared.
    active_components_ : dict of str to mask of shape (q,)
        Latent dimensions that explain at least a thousandth of the view's variance under the model.
    observed_ : array of shape (d,)
        Number of patients with an entry, by column.
    missing_ : pandas frame
        A row per column: view, column, number of patients of all sites without an entry, and their share.
    deviation_ : array of shape (d,)
        Standard deviation of each column over all sites: the unit of errors.
    between_centres_ : dict of str to dict of str to float
        Standard deviation between centres of the loadings and of the means by view, in the units of the fit
        (a view's or a column's standard deviation). Views that a single centre has are absent; empty for
        ``method="invariant"``.
    """

    same_sites: ClassVar[bool] = False
    may_be_missing: ClassVar[frozenset[str]] = _DIAGNOSTICS
    saved_attributes: ClassVar[SavedAttributes] = {
        "schema_": Saved(lambda schema: schema.to_dict(), MultiViewSchema.from_dict),
        "_centre": PLAIN,
        "_spread": PLAIN,
        "deviation_": PLAIN,
        "observed_": PLAIN,
        "explained_variance_ratio_": Saved(lambda by_view: np.stack(list(by_view.values()))),
        "explained_variance_": Saved(lambda by_view: np.array(list(by_view.values()))),
        "n_features_in_": PLAIN,
        "n_patients_": PLAIN,
        "converged_": PLAIN,
        "training_": PLAIN,
        **dict.fromkeys(("waic_", "noise_angle_"), PLAIN),
        "waic_path_": _CRITERION_PATH,
        "bic_path_": _CRITERION_PATH,
    }

    noise: NoiseModel
    case_mix_weight: float
    schema_: MultiViewSchema
    n_features_in_: int
    n_patients_: int
    converged_: bool
    explained_variance_ratio_: dict[str, Floats]
    explained_variance_: dict[str, float]
    training_: dict[str, float]
    waic_: float | None
    waic_path_: dict[int, float]
    bic_path_: dict[int, float]
    noise_angle_: float | None
    _law: Parameters
    _intercepts: Floats
    _choice: Choice | None
    _completed: Floats | None
    _prior: Prior | None
    _centre: Floats
    _spread: Floats
    deviation_: Floats
    observed_: Floats

    @property
    def missing_(self) -> pd.DataFrame:
        """Missing entries by view and column over all sites; see :func:`multicentre.data.missing.values.count_missing`.

        None are left out or filled: the likelihood is that of the observed entries. A differentially private fit
        requires complete rows.
        """
        check_is_fitted(self, "observed_")
        return count_missing(self.schema_.columns, self.observed_, self.n_patients_)

    @property
    def n_components_(self) -> int:
        """Latent dimensions of the fit."""
        check_is_fitted(self, "schema_")
        return self._law.n_components

    @property
    def layout(self) -> Layout:
        """Order and widths of the views in a stacked row."""
        check_is_fitted(self, "_law")
        return Layout(tuple(self.schema_.views), tuple(self.schema_.sizes[view] for view in self.schema_.views))

    @property
    def loadings_(self) -> dict[str, Floats]:
        """Loadings by view."""
        return self.layout.split(self._law.loadings)

    @property
    def mean_(self) -> dict[str, Floats]:
        """Means by view."""
        return self.layout.split(self._law.mean)

    @property
    def noise_variance_(self) -> dict[str, Floats]:
        """Noise variances by view."""
        return self.layout.split(self._law.noise)

    @property
    def intercept_variance_(self) -> dict[str, Floats]:
        """Variances of the sites' intercepts by view."""
        return self.layout.split(self._intercepts)

    @property
    def active_components_(self) -> dict[str, NDArray[np.bool_]]:
        """Mask of the latent dimensions that explain at least a thousandth of a view's model variance, shape (q,)."""
        return dict(zip(self.layout.names, active_axes(self._law, self.layout), strict=True))

    @property
    def correlations_(self) -> dict[str, Floats]:
        """Correlations of columns with latent dimensions by view, shape (d_k, q)."""
        return self.layout.split(gauge.feature_correlations(self._patient_law))

    @property
    def varimax_rotation_(self) -> Floats:
        """Rotation of the latent dimensions to simple structure, shape (q, q)."""
        check_is_fitted(self, "_law")
        return gauge.varimax_rotation(self._law.loadings / self.deviation_[:, None])

    @property
    def between_centres_(self) -> dict[str, dict[str, float]]:
        """Standard deviations between centres by view."""
        names = self.layout.names
        if self._prior is None:
            return {}
        variances = zip(self._prior.loadings_variance, self._prior.mean_variance, strict=True)
        unit = float(self._spread[0]) if self.get_params()["scale"] == "none" else 1.0
        return {
            view: {"loadings": unit * float(np.sqrt(loadings)), "mean": unit * float(np.sqrt(mean))}
            for view, (loadings, mean) in zip(names, variances, strict=True)
            if np.isfinite(loadings) and np.isfinite(mean)
        }

    @property
    def imputation_errors_(self) -> dict[str, dict[str, float]]:
        """Error of each way to predict a view at left-out sites, by view."""
        check_is_fitted(self, "_law")
        if self._choice is None:
            return {}
        errors, regression = self._choice.errors, self._choice.regression
        return {
            view: {"mean": float(row[1]), "model": float(row[0]), "regression": float(row[best])}
            for view, row, best in zip(self.layout.names, errors, regression, strict=True)
        }

    def _take_units(self, agreement: Agreement) -> None:
        """Set the units that the sites agreed on."""
        self.schema_ = agreement.schema
        self._centre, self._spread = agreement.units(self.get_params()["scale"])
        self.deviation_ = agreement.deviation
        self.observed_ = agreement.observed
        self._intercepts, self._choice, self._completed = np.zeros_like(self._centre), None, None

    def _set_fitted(self, parameters: Parameters, prior: Prior | None) -> None:
        """Take the fitted law, in the units of the fit, to canonical axes and the columns' own units."""
        rotation = gauge.canonical_rotation(parameters)
        law = gauge.rotate_parameters(parameters, rotation)
        self._law = Parameters(
            law.loadings * self._spread[:, None], law.mean * self._spread + self._centre, law.noise * self._spread**2
        )
        self._prior = None
        if prior is not None:
            fields = {name: getattr(prior, name) for name in _PRIOR}
            self._prior = Prior(**{**fields, "loadings": prior.loadings @ rotation})

    @property
    def _patient_law(self) -> Parameters:
        """Law of a patient whose site is not known: the variance of intercepts adds to the noise."""
        check_is_fitted(self, "_law")
        return Parameters(self._law.loadings, self._law.mean, self._law.noise + self._intercepts)

    def _standard_law(self) -> Parameters:
        """Return the law of a patient in the units of the fit."""
        law = self._patient_law
        return Parameters(
            law.loadings / self._spread[:, None],
            (law.mean - self._centre) / self._spread,
            law.noise / self._spread**2,
        )

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        check_is_fitted(self, "_law")
        arrays, facts = super()._state()
        # Each array of the law has an entry of the file, so that a reader without this package can use the model.
        arrays |= {"loadings": self._law.loadings, "mean": self._law.mean, "noise_variance": self._law.noise}
        arrays["intercept_variance"] = self._intercepts
        if self._choice is not None and self._completed is not None:
            arrays |= {f"choice_{name}": getattr(self._choice, name) for name in _CHOICE}
            arrays["completed_covariance"] = self._completed
        if self._prior is not None:
            arrays |= {f"global_{name}": getattr(self._prior, name) for name in _PRIOR}
        return arrays, facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self._law = Parameters(arrays["loadings"], arrays["mean"], arrays["noise_variance"])
        self._intercepts, self._choice, self._completed = arrays["intercept_variance"], None, None
        if "completed_covariance" in arrays:
            self._choice = Choice(**{name: arrays[f"choice_{name}"] for name in _CHOICE})
            self._completed = arrays["completed_covariance"]
        self._prior = None
        if "global_loadings" in arrays:
            self._prior = Prior(**{name: arrays[f"global_{name}"] for name in _PRIOR})
        ratios, totals = arrays["explained_variance_ratio_"], arrays["explained_variance_"].tolist()
        self.explained_variance_ratio_ = dict(zip(self.layout.names, ratios, strict=True))
        self.explained_variance_ = dict(zip(self.layout.names, totals, strict=True))
