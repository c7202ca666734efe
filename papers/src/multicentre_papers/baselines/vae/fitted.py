"""Methods of a trained auto-encoder on local rows; independent of sites and of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from multicentre.data.multiview import MultiViewData
from multicentre.data.schema import MultiViewSchema
from multicentre.errors import DataError
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.saved import PLAIN, Arrays, Saved, SavedAttributes
from multicentre.multiview.agreement import SHARED_METRICS, Floats, accuracy_of_groups, unit_of_errors
from multicentre_papers.baselines.vae.maths import Architecture, Model, decode_mean, encode_mean

if TYPE_CHECKING:
    import pandas as pd


class AutoEncoderModel(FederatedEstimator):
    """Encoder and decoder per channel; a channel is all views combined (VAE) or one view (mc-VAE).

    Attributes
    ----------
    schema_ : MultiViewSchema
        Views and columns.
    model_ : Model
        Weights, offsets and log noise variances by name, in scaled columns.
    training_ : dict of str to float
        ``mae``: mean absolute error of the reconstruction over the training rows, in standard deviations.
    """

    same_sites: ClassVar[bool] = False
    metrics: ClassVar[Mapping[str, Metric]] = SHARED_METRICS
    saved_attributes: ClassVar[SavedAttributes] = {
        "schema_": Saved(lambda schema: schema.to_dict(), MultiViewSchema.from_dict),
        **dict.fromkeys(("_centre", "_spread", "_deviation"), PLAIN),
        "training_": PLAIN,
    }

    channel_per_view: ClassVar[bool]
    schema_: MultiViewSchema
    model_: Model
    training_: dict[str, float]
    _centre: Floats
    _spread: Floats
    _deviation: Floats

    @property
    def evaluator(self) -> Any:
        """Scorer for held-out records."""
        from multicentre_papers.baselines.vae.scoring import ENCODERS

        return ENCODERS

    @property
    def architecture(self) -> Architecture:
        """Layers of the model."""
        check_is_fitted(self, "schema_")
        sizes = tuple(self.schema_.sizes[view] for view in self.schema_.views)
        channels = sizes if self.channel_per_view else (sum(sizes),)
        parameters = self.get_params(deep=False)
        return Architecture(
            channels, int(parameters["n_components"]), tuple(int(w) for w in parameters["hidden_layer_sizes"])
        )

    def transform(self, data: MultiViewData) -> Floats:
        """Return the latent position of every patient, shape (n, q).

        Parameters
        ----------
        data : MultiViewData
            Patients with the views of the fit. The mc-VAE accepts patients without some views: the position is the mean
            over the encoders of the complete views. The VAE needs complete views.

        Raises
        ------
        DataError
            A patient has too few complete views, or the columns of a view differ from those of the fit.
        """
        rows = (self._stacked(data) - self._centre) / self._spread
        complete = [~np.isnan(rows[:, block]).any(axis=1) for block in self.architecture.blocks]
        n_without = int((~np.any(complete, axis=0)).sum())
        if n_without:
            expected = "at least one complete view" if self.channel_per_view else "all entries"
            raise DataError(
                f"every patient must have {expected}; got {n_without} patients without",
                where="data",
                hint="Leave them out, or use FedMvPPCA, which accepts missing views and entries.",
            )
        return encode_mean(self.model_, self.architecture, rows)

    def summary(self) -> pd.DataFrame:
        """Return the numbers of the fit, the training error and the last lower bound, one row each."""
        import pandas as pd

        from multicentre.estimator.results import with_note

        frame = super().summary()
        rows = {"training error (mae)": self.training_["mae"]}
        if self.history_:
            rows["lower bound before the last round"] = self.history_[-1]["bound"]
        details = pd.DataFrame({"value": list(rows.values())}, index=list(rows), dtype=object)
        return with_note(pd.concat([frame, details]), self._remarks(), model=self.describe_model())

    def reconstruct(self, data: MultiViewData) -> dict[str, Floats]:
        """Return every view as predicted from the latent positions, in the original units.

        Parameters
        ----------
        data : MultiViewData
            As for :meth:`transform`; missing views of a patient are predicted from the others.

        Returns
        -------
        dict of str to array of shape (n, d_k)
        """
        rebuilt = decode_mean(self.model_, self.architecture, self.transform(data)) * self._spread + self._centre
        ends = np.cumsum([self.schema_.sizes[view] for view in self.schema_.views])
        return dict(zip(self.schema_.views, np.split(rebuilt, ends[:-1], axis=1), strict=True))

    def assess(
        self,
        data: MultiViewData,
        labels: Sequence[str] | None = None,
        *,
        training: MultiViewData | None = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return the test MAE and, with training patients and labels, the accuracy in latent space."""
        rebuilt = np.hstack(list(self.reconstruct(data).values()))
        rows = self._stacked(data)
        metrics = {"mae": float(np.nanmean(np.abs(rows - rebuilt) * unit_of_errors(rows, self._deviation)))}
        if labels is not None and training is not None and training_labels is not None:
            metrics["accuracy"] = accuracy_of_groups(
                self.transform(training), training_labels, self.transform(data), labels
            )
        return metrics

    def score(self, data: MultiViewData, y: None = None) -> float:
        """Return minus the mean absolute error of the reconstruction in standard deviations; higher is better."""
        return -self.assess(data)["mae"]

    def _set_units(self, schema: MultiViewSchema, centre: Floats, spread: Floats, deviation: Floats) -> None:
        self.schema_ = schema
        self._centre, self._spread, self._deviation = centre, spread, deviation

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        check_is_fitted(self, "model_")
        arrays, facts = super()._state()
        # One array per parameter, so that the network can be read without this package.
        matrices = {f"matrix {name}": values for name, values in self.model_.matrices.items()}
        vectors = {f"vector {name}": values for name, values in self.model_.vectors.items()}
        return {**arrays, **matrices, **vectors}, facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.model_ = Model(_with_prefix(arrays, "matrix "), _with_prefix(arrays, "vector "))

    def _stacked(self, data: MultiViewData) -> Floats:
        check_is_fitted(self, "model_")
        if not isinstance(data, MultiViewData):
            raise DataError(f"data must be a MultiViewData; got {type(data).__name__}", where="data")
        for view in self.schema_.views:
            expected = tuple(self.schema_.columns[view])
            if data.columns.get(view, expected) != expected:
                raise DataError(
                    "columns must be those of the fit, in the same order; got other columns or another order",
                    where=f"view {view!r}",
                    hint=f"Pass the columns {', '.join(expected)} in this order.",
                )
        return data.stacked(self.schema_.views, self.schema_.sizes)


def _with_prefix(arrays: Arrays, prefix: str) -> dict[str, Floats]:
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
