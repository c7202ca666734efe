"""Methods of a fitted Fed-mv-PPCA on local rows; no site is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from multicentre.data.multiview import MultiViewData
from multicentre.errors import ConfigurationError, DataError
from multicentre.estimator.base import Metric
from multicentre.estimator.figures import Bars, Figure
from multicentre.multiview.agreement import SHARED_METRICS, accuracy_of_groups, check_columns, unit_of_errors
from multicentre.multiview.ppca.law import FittedDistribution
from multicentre.multiview.ppca.maths import predict
from multicentre.multiview.ppca.maths.describe import harmonise
from multicentre.multiview.ppca.maths.model import Floats, LatentLaw, Parameters
from multicentre.multiview.ppca.maths.predict import Imputation
from multicentre.multiview.ppca.maths.prior import Prior
from multicentre.multiview.ppca.maths.regression import Regression, regress_view
from multicentre.multiview.ppca.maths.rows import SiteRows
from multicentre.multiview.ppca.maths.selection import compute_bic, count_parameters

if TYPE_CHECKING:
    import pandas as pd


class MvPPCAModel(FittedDistribution):
    """A law of multi-view rows with its methods: latents, imputation, harmonisation, tables.

    Attributes are those of :class:`~multicentre.multiview.ppca.law.FittedDistribution`.
    """

    metrics: ClassVar[Mapping[str, Metric]] = {
        **SHARED_METRICS,
        "log_likelihood": Metric("held-out log-likelihood", "higher", "", "mean log density of held-out patients"),
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
        facts = (
            f"Explained share of the variance of {self.n_patients_:,} patients; {self.n_iter_} rounds, which {ended}."
        )
        return with_note(
            frame, " ".join(part for part in (facts, self._remarks()) if part), model=self.describe_model()
        )

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
