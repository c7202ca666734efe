"""Methods of a fitted Fed-mv-PPCA on local rows; no site is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from multicentre.data.missing.values import count_missing
from multicentre.data.multiview import MultiViewData
from multicentre.data.schema import MultiViewSchema
from multicentre.errors import ConfigurationError, DataError
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Bars, Figure
from multicentre.estimator.saved import PLAIN, Arrays, Saved, SavedAttributes
from multicentre.multiview.agreement import SHARED_METRICS, Agreement, accuracy_of_groups, check_columns, unit_of_errors
from multicentre.multiview.ppca.maths import gauge, predict
from multicentre.multiview.ppca.maths.ard import active_axes
from multicentre.multiview.ppca.maths.describe import harmonise
from multicentre.multiview.ppca.maths.model import Floats, LatentLaw, Layout, Parameters
from multicentre.multiview.ppca.maths.predict import Imputation
from multicentre.multiview.ppca.maths.prior import Prior
from multicentre.multiview.ppca.maths.problem import NoiseModel
from multicentre.multiview.ppca.maths.regression import Choice, Regression, regress_view
from multicentre.multiview.ppca.maths.rows import SiteRows
from multicentre.multiview.ppca.maths.selection import compute_bic, count_parameters

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

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the explained shares of variance, and means, noise and loadings of every column."""
        import pandas as pd

        return {"explained-variance": pd.DataFrame(self.summary()), "loadings": self.to_frame()}

    def answer(self) -> str:
        """Return the share of each view's variance that the latent dimensions explain."""
        check_is_fitted(self, "_law")
        shares = [f"{100 * share:.0f} % of the variance of {view}" for view, share in self.explained_variance_.items()]
        return f"{self.n_components_} latent dimensions explain {', '.join(shares)}, in {self.n_patients_:,} patients."

    def main_figure(self) -> Figure:
        """Return the share of each view's variance that each latent dimension explains."""
        check_is_fitted(self, "_law")
        series = {view: [float(one) for one in ratios] for view, ratios in self.explained_variance_ratio_.items()}
        names = [f"dimension {number}" for number in range(1, self.n_components_ + 1)]
        caption = "Share of the variance of each view that each latent dimension explains."
        return Bars("Explained variance", caption, "model", "share of variance", names, series, {})

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
        return predict.posterior_latent(self._stacked(data), self._patient_law).mean

    def reconstruct(self, data: MultiViewData) -> dict[str, Floats]:
        """Return every view of each patient as reconstructed by the model, W x + mu, shape (n, d_k) by view."""
        rebuilt = predict.reconstruct(self._stacked(data), self._patient_law)
        return {view: rebuilt[:, self.layout.columns(view)] for view in self.layout.names}

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

    def impute(
        self,
        data: MultiViewData,
        view: str,
        *,
        how: Literal["auto", "model", "regression"] = "auto",
        new_centre: bool = False,
    ) -> Imputation:
        """Predict a view of each patient from the patient's other views.

        Parameters
        ----------
        data : MultiViewData
            Entries of `view` itself are not used.
        view : str
        how : {"auto", "model", "regression"}, default "auto"
            ``"model"``: the conditional law of the latent model. ``"regression"``: ridge regression on the other views
            from second moments over all sites. ``"auto"``: the one with the smaller error at left-out sites
            (`imputation_errors_`); the model where they were not compared.
        new_centre : bool, default False
            Widen the prediction by the variance between centres; needs a fit with ``method="hierarchical"``, and
            predicts by the model.

        Returns
        -------
        Imputation
            ``mean`` (n, d_k), ``variance`` (n, d_k), ``covariance(row)`` (d_k, d_k), ``interval(level)``. Variances and
            intervals are calibrated by the errors at left-out sites, where predictions were compared.

        Raises
        ------
        ConfigurationError
            `how` is ``"regression"`` and the fit did not compare predictions: it was private, had fewer than three
            sites with each view, a single view, or more than 400 columns.
        """
        if how not in ("auto", "model", "regression"):
            raise ConfigurationError(
                f"how must be one of auto, model, regression; got {how!r}", where="how", hint="Leave the default."
            )
        wanted = self.layout.features_of([self._checked_view(view)])
        X = self._stacked(data)
        if new_centre and how != "regression":
            hidden = np.where(wanted, np.nan, X)
            return predict.impute(hidden, self._patient_law, wanted, spread=self._between_centres())
        return self._impute_rows(X, view, how)

    def _impute_rows(self, X: Floats, view: str, how: str = "auto") -> Imputation:
        layout, choice = self.layout, self._choice
        k, wanted = layout.names.index(view), layout.features_of([view])
        if choice is None or self._completed is None:
            if how == "regression":
                raise ConfigurationError(
                    'how must be "auto" or "model" where the fit did not compare predictions; got "regression"',
                    where="how",
                    hint="The comparison needs two views or more, three sites with each, at most 400 columns, and no "
                    "epsilon.",
                )
            return predict.impute(np.where(wanted, np.nan, X), self._patient_law, wanted)
        candidate = {"auto": choice.candidate[k], "model": 0, "regression": choice.regression[k]}[how]
        law, standard = self._standard_law(), (X - self._centre) / self._spread
        if candidate == 0:
            guess = predict.impute(np.where(wanted, np.nan, standard), law, wanted)
        else:
            guess = regress_view(standard, law, Regression(self._completed, choice.shrinkage), view, layout)
        guess = guess.calibrated(choice.inflation[wanted, candidate], float(choice.freedom[k, candidate]))
        return guess.in_units(self._centre[wanted], self._spread[wanted])

    def sample(self, n_patients: int, random_state: int | None = None) -> MultiViewData:
        """Return patients drawn from the fitted law."""
        names = self.layout.names
        if n_patients < 1:
            raise ConfigurationError(
                f"n_patients must be at least 1; got {n_patients!r}", where="n_patients", hint="Draw 1 or more."
            )
        drawn = predict.sample(self._patient_law, n_patients, np.random.default_rng(random_state))
        return self._as_data(drawn, names, None)

    def score_samples(self, data: MultiViewData) -> Floats:
        """Return the log density of each patient's observed entries, shape (n,), in nats."""
        return predict.row_log_likelihood(self._stacked(data), self._patient_law)

    def score(self, data: MultiViewData, y: None = None) -> float:
        """Return the mean log density of the patients' observed entries, in nats."""
        return float(self.score_samples(data).mean())

    def harmonise(self, data: MultiViewData, *, n_iterations: int = 100) -> MultiViewData:
        """Return one centre's rows as they would have been measured under the global law.

        What belongs to the centre is estimated here, from its rows and the global law, and stays with the caller. After
        an ``"invariant"`` fit the centre's intercepts are subtracted. After a ``"hierarchical"`` one, offsets, loadings
        and noise become those of the global law. The case mix of the centre remains in both.

        Parameters
        ----------
        data : MultiViewData
            All patients of one centre.
        n_iterations : int, default 100
            Local iterations.

        Raises
        ------
        ConfigurationError
            The fit has no centre effects.
        """
        standard = (self._stacked(data) - self._centre) / self._spread
        rows = SiteRows(lambda: [standard], self.layout, data.has_missing_entries, self.noise, self.case_mix_weight)
        if self._prior is not None and self.between_centres_:
            moved = self._move_to_centre(standard, rows, self._prior, n_iterations)
        elif self._intercepts.any():
            shared = self._standard_law()
            variance = self._intercepts / self._spread**2
            shared = Parameters(shared.loadings, shared.mean, shared.noise - variance)
            law = LatentLaw.standard(self.n_components_)
            for _ in range(n_iterations):
                sums, law = rows.answer(shared, law, n_repetitions=1, intercept_variance=variance)
            moved = standard - variance * sums.intercept_total
        else:
            raise ConfigurationError(
                "the fit must have centre effects; got a fit without them",
                where="harmonise",
                hint="Fit over at least three sites per view, with site_intercepts=True, or over two with "
                'method="hierarchical".',
            )
        return self._as_data(moved * self._spread + self._centre, data.views, data.ids)

    def _move_to_centre(self, standard: Floats, rows: SiteRows, prior: Prior, n_iterations: int) -> Floats:
        shared, q = prior.centre(self.layout), prior.loadings.shape[1]
        local, law, _ = rows.fit_around(shared, LatentLaw.standard(q), prior, n_iterations)
        return harmonise(standard, local.parameters, shared, law)

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
        errors = predict.absolute_errors(X * unit, predict.reconstruct(X, self._patient_law) * unit, layout)
        metrics = {"mae": float(errors.absolute.sum() / errors.counts.sum()), "log_likelihood": self.score(data)}
        if labels is not None and training is not None and training_labels is not None:
            metrics["accuracy"] = accuracy_of_groups(
                self.transform(training), training_labels, self.transform(data), labels
            )
        if layout.n_views > 1:
            metrics |= self._imputation_metrics(X, unit)
        return metrics

    def _imputation_metrics(self, X: Floats, unit: Floats) -> dict[str, float]:
        metrics, layout = {}, self.layout
        for view in layout.names:
            columns, wanted = layout.columns(view), layout.features_of([view])
            rows = X[~np.isnan(X[:, ~wanted]).all(axis=1)]
            counts = (~np.isnan(rows[:, columns])).sum()
            if not counts:
                continue
            for name, guess in (
                ("imputation_mae", self._impute_rows(rows, view).mean),
                ("mean_imputation_mae", self._law.mean[columns]),
            ):
                errors = np.nansum(np.abs(rows[:, columns] - guess) * unit[columns])
                metrics[f"{name}/{view}"] = float(errors / counts)
        return metrics

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
