"""Methods of a fitted Fed-mv-PPCA on local rows; no site is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.data.missing.values import count_missing
from multicentre.data.multiview import MultiViewData
from multicentre.data.schema import MultiViewSchema
from multicentre.errors import ConfigurationError, DataError
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.saved import PLAIN, Arrays, Saved, SavedAttributes
from multicentre.multiview.agreement import SHARED_METRICS, Agreement, accuracy_of_groups, check_columns, unit_of_errors
from multicentre.multiview.ppca.maths import gauge, predict
from multicentre.multiview.ppca.maths.ard import active_axes
from multicentre.multiview.ppca.maths.describe import harmonise
from multicentre.multiview.ppca.maths.model import Floats, LatentLaw, Layout, Parameters
from multicentre.multiview.ppca.maths.predict import Imputation
from multicentre.multiview.ppca.maths.prior import Prior
from multicentre.multiview.ppca.maths.problem import NoiseModel
from multicentre.multiview.ppca.maths.rows import SiteRows
from multicentre.multiview.ppca.maths.selection import compute_bic, count_parameters

if TYPE_CHECKING:
    import pandas as pd

_PRIOR = tuple(Prior.__dataclass_fields__)
# A variance between sites is infinite where the sites do not determine it; the share of a view without variance is NaN.
_DIAGNOSTICS = frozenset(
    {"global_loadings_variance", "global_mean_variance", "explained_variance_ratio_", "explained_variance_"}
)
# JSON has no integers as keys: pairs of a number of latent dimensions and its criterion.
_CRITERION_PATH = Saved(
    lambda path: list(path.items()), lambda pairs: {int(q): float(criterion) for q, criterion in pairs}
)


class MvPPCAModel(FederatedEstimator):
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
    n_components_ : int
        Latent dimensions of the fit.
    correlations_ : dict of str to array of shape (d_k, q)
        Correlation of each column with each latent dimension under the model (the correlation circle), by view.
    varimax_rotation_ : array of shape (q, q)
        ``transform(data) @ varimax_rotation_`` and ``loadings_[view] @ varimax_rotation_`` are latents and loadings
        in axes that each load on few columns.
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
    metrics: ClassVar[Mapping[str, Metric]] = {
        **SHARED_METRICS,
        "log_likelihood": Metric(
            "held-out log-likelihood", "higher", "nats per patient", "mean log density of held-out patients"
        ),
        "imputation_mae": Metric(
            "imputation error",
            "lower",
            "standard deviations",
            "mean absolute error of a view of held-out patients predicted from their other views",
        ),
        "mean_imputation_mae": Metric(
            "the same, by the mean", "lower", "standard deviations", "the same when the column's mean is the prediction"
        ),
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
    def active_components_(self) -> dict[str, NDArray[np.bool_]]:
        """Mask of the latent dimensions that explain at least a thousandth of a view's model variance, shape (q,)."""
        return dict(zip(self.layout.names, active_axes(self._law, self.layout), strict=True))

    @property
    def correlations_(self) -> dict[str, Floats]:
        """Correlations of columns with latent dimensions by view, shape (d_k, q)."""
        return self.layout.split(gauge.feature_correlations(self._law))

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

    def to_frame(self) -> pd.DataFrame:
        """Return mean, noise variance and loadings of every column, one row per view and column."""
        import pandas as pd

        layout = self.layout
        pairs = [(view, column) for view in layout.names for column in self.schema_.columns[view]]
        frame = pd.DataFrame(
            {"mean": self._law.mean, "noise_variance": self._law.noise},
            index=pd.MultiIndex.from_tuples(pairs, names=["view", "column"]),
        )
        for number, loadings in enumerate(self._law.loadings.T, start=1):
            frame[f"loading_{number}"] = loadings
        return frame

    def summary(self) -> pd.DataFrame:
        """Return the explained share of each view's variance, one row per latent dimension and one for all of them.

        The printed table ends with the numbers of patients and rounds.
        """
        import pandas as pd

        from multicentre.estimator.results import with_note

        check_is_fitted(self, "_law")
        rows = [*range(1, self.n_components_ + 1), "all"]
        shares = {
            view: [*ratios.tolist(), self.explained_variance_[view]]
            for view, ratios in self.explained_variance_ratio_.items()
        }
        frame = pd.DataFrame(shares, index=pd.Index(rows, name="dimension"))
        ended = "converged" if self.converged_ else "did not converge"
        facts = f"Explained share of the variance of {self.n_patients_} patients; {self.n_iter_} rounds, which {ended}."
        return with_note(frame, " ".join(part for part in (facts, self._remarks()) if part))

    def transform(self, data: MultiViewData) -> Floats:
        """Return the expected latents of each patient given the entries that the patient has.

        Parameters
        ----------
        data : MultiViewData
            Any of the model's views; entries and views may be missing.

        Returns
        -------
        array of shape (n, q)
        """
        return predict.posterior_latent(self._stacked(data), self._law).mean

    def reconstruct(self, data: MultiViewData) -> dict[str, Floats]:
        """Return every view of each patient as reconstructed by the model, W x + mu, shape (n, d_k) by view."""
        rebuilt = predict.reconstruct(self._stacked(data), self._law)
        return {view: rebuilt[:, self.layout.columns(view)] for view in self.layout.names}

    def impute(self, data: MultiViewData, view: str, *, new_centre: bool = False) -> Imputation:
        """Predict a view of each patient from the patient's other views.

        Parameters
        ----------
        data : MultiViewData
            Entries of `view` itself are not used.
        view : str
        new_centre : bool, default False
            Widen the prediction by the variance between centres; needs a fit with ``method`` other than
            ``"invariant"``.

        Returns
        -------
        Imputation
            ``mean`` (n, d_k), ``variance`` (n, d_k), ``covariance(row)`` (d_k, d_k), ``interval(level)``.
        """
        wanted = self.layout.features_of([self._checked_view(view)])
        hidden = np.where(wanted, np.nan, self._stacked(data))
        return predict.impute(hidden, self._law, wanted, spread=self._between_centres() if new_centre else None)

    def sample(self, n_patients: int, random_state: int | None = None) -> MultiViewData:
        """Return patients drawn from the fitted law."""
        names = self.layout.names
        if n_patients < 1:
            raise ConfigurationError(
                f"n_patients must be at least 1; got {n_patients!r}", where="n_patients", hint="Draw 1 or more."
            )
        drawn = predict.sample(self._law, n_patients, np.random.default_rng(random_state))
        return self._as_data(drawn, names, None)

    def score_samples(self, data: MultiViewData) -> Floats:
        """Return the log density of each patient's observed entries, shape (n,), in nats."""
        return predict.row_log_likelihood(self._stacked(data), self._law)

    def score(self, data: MultiViewData, y: None = None) -> float:
        """Return the mean log density of the patients' observed entries, in nats."""
        return float(self.score_samples(data).mean())

    def harmonise(self, data: MultiViewData, *, n_iterations: int = 100) -> MultiViewData:
        """Return one centre's rows as they would have been measured under the global law.

        The centre's parameters and case mix are estimated here, from its rows and the global law; both stay with the
        caller. The result has the offsets, loadings and noise of the global law and the case mix of the centre.

        Parameters
        ----------
        data : MultiViewData
            All patients of one centre.
        n_iterations : int, default 100
            Local iterations.

        Raises
        ------
        ConfigurationError
            The fit was not hierarchical, and has no centre effects.
        """
        standard = (self._stacked(data) - self._centre) / self._spread
        if self._prior is None or not self.between_centres_:
            raise ConfigurationError(
                "the fit must be hierarchical over at least two sites; got a fit without centre effects",
                where="harmonise",
                hint='Fit with method="hierarchical" over two sites or more.',
            )
        q = self._prior.loadings.shape[1]
        rows = SiteRows(
            lambda: [standard],
            self.layout,
            data.has_missing_entries,
            self.noise,
            self.case_mix_weight,
        )
        shared = self._prior.centre(self.layout)
        local, law, _ = rows.fit_around(shared, LatentLaw.standard(q), self._prior, n_iterations)
        moved = harmonise(standard, local.parameters, shared, law)
        return self._as_data(moved * self._spread + self._centre, data.views, data.ids)

    def assess(
        self,
        data: MultiViewData,
        labels: Sequence[str] | None = None,
        *,
        training: MultiViewData | None = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return test MAE, accuracy in latent space, log-likelihood and imputation errors on held-out patients."""
        X, layout = self._stacked(data), self.layout
        unit = unit_of_errors(X, self.deviation_)
        errors = predict.absolute_errors(X * unit, predict.reconstruct(X, self._law) * unit, layout)
        metrics = {"mae": float(errors.absolute.sum() / errors.counts.sum()), "log_likelihood": self.score(data)}
        if labels is not None and training is not None and training_labels is not None:
            metrics["accuracy"] = accuracy_of_groups(
                self.transform(training), training_labels, self.transform(data), labels
            )
        if layout.n_views > 1:
            metrics |= self._imputation_metrics(X, unit)
        return metrics

    def _imputation_metrics(self, X: Floats, unit: Floats) -> dict[str, float]:
        across = predict.cross_view_errors(X, self._law, self.layout, unit=unit)
        by_mean = predict.cross_view_errors(X, _mean_only(self._law), self.layout, unit=unit)
        metrics = {}
        for k, view in enumerate(self.layout.names):
            if across.counts[k] > 0:
                metrics[f"imputation_mae/{view}"] = float(across.mean[k])
                metrics[f"mean_imputation_mae/{view}"] = float(by_mean.mean[k])
        return metrics

    def _take_units(self, agreement: Agreement) -> None:
        """Set the units that the sites agreed on."""
        self.schema_ = agreement.schema
        self._centre, self._spread = agreement.units(self.get_params()["scale"])
        self.deviation_ = agreement.deviation
        self.observed_ = agreement.observed

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

    def _standard_law(self) -> Parameters:
        """Return the law in the units of the fit."""
        check_is_fitted(self, "_law")
        return Parameters(
            self._law.loadings / self._spread[:, None],
            (self._law.mean - self._centre) / self._spread,
            self._law.noise / self._spread**2,
        )

    def _between_centres(self) -> predict.Spread:
        if self._prior is None:
            raise ConfigurationError(
                'new_centre must be False unless the fit has method="hierarchical"; got True',
                where="new_centre",
                hint='Fit with method="hierarchical" over at least two sites.',
            )
        of, square = self.layout.view_of, self._spread**2
        mean, loadings = (
            np.where(np.isfinite(variance), variance, 0.0)[of] * square
            for variance in (self._prior.mean_variance, self._prior.loadings_variance)
        )
        return predict.Spread(mean=mean, loadings=loadings)

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        check_is_fitted(self, "_law")
        arrays, facts = super()._state()
        # Each array of the law has an entry of the file, so that a reader without this package can use the model.
        arrays |= {"loadings": self._law.loadings, "mean": self._law.mean, "noise_variance": self._law.noise}
        if self._prior is not None:
            arrays |= {f"global_{name}": getattr(self._prior, name) for name in _PRIOR}
        return arrays, facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self._law = Parameters(arrays["loadings"], arrays["mean"], arrays["noise_variance"])
        self._prior = None
        if "global_loadings" in arrays:
            self._prior = Prior(**{name: arrays[f"global_{name}"] for name in _PRIOR})
        ratios, totals = arrays["explained_variance_ratio_"], arrays["explained_variance_"].tolist()
        self.explained_variance_ratio_ = dict(zip(self.layout.names, ratios, strict=True))
        self.explained_variance_ = dict(zip(self.layout.names, totals, strict=True))

    def _stacked(self, data: MultiViewData) -> Floats:
        layout = self.layout
        if not isinstance(data, MultiViewData):
            raise DataError(
                f"data must be a MultiViewData; got {type(data).__name__}",
                where="data",
                hint="Make one with mc.data.MultiViewData({view: table}).",
            )
        check_columns(data, self.schema_.columns)
        return data.stacked(layout.names, self.schema_.sizes)

    def _checked_view(self, view: str) -> str:
        if view not in self.layout.names:
            raise ConfigurationError(
                f"view must be one of {', '.join(self.layout.names)}; got {view!r}",
                where="view",
                hint="Use a view of the fit.",
            )
        return view

    def _as_data(self, rows: Floats, views: Sequence[str], ids: Any) -> MultiViewData:
        model_views = [view for view in views if view in self.layout.names]
        arrays = {view: rows[:, self.layout.columns(view)] for view in model_views}
        return MultiViewData(arrays, ids=ids, columns={view: self.schema_.columns[view] for view in model_views})


def bic_of(model: MvPPCAModel) -> float:
    """Return the Bayesian information criterion of a fit over all sites; lower is better."""
    n_noise = model.layout.n_features if model.noise == "diagonal" else None
    n_parameters = count_parameters(model.layout, model.n_components_, n_noise=n_noise)
    return compute_bic(model.training_["log_likelihood"] * model.n_patients_, n_parameters, model.n_patients_)


def _mean_only(law: Parameters) -> Parameters:
    return Parameters(np.zeros_like(law.loadings), law.mean, law.noise)
