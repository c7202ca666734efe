"""Steps of Fed-mv-PPCA after the rounds: errors over the sites' own rows, comparison of predictions, WAIC."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from multicentre.core.session import Session
from multicentre.multiview.agreement import Agreement
from multicentre.multiview.ppca import messages
from multicentre.multiview.ppca.maths.model import Floats, Layout
from multicentre.multiview.ppca.maths.regression import Choice, PredictionSums, choose_prediction
from multicentre.multiview.ppca.maths.selection import WAICParts
from multicentre.multiview.ppca.planning import MIN_SITES
from multicentre.multiview.ppca.rounds import MAX_DIRECT
from multicentre.multiview.ppca.site import MvPPCASite

# Draws of the WAIC. More draws reduce the Monte Carlo error, whose square falls as one over their number, and cost time
# in proportion. The chain starts at the fit, so that a quarter as many draws are discarded; the tests of the criterion
# discard 30 to 40 and select the simulated number of dimensions.
N_DRAWS, N_BURN = 400, 100


def compare_predictions(
    session: Session, part: type[MvPPCASite], law: messages.Law, agreement: Agreement, unit: Floats
) -> tuple[Choice, Floats] | None:
    """Compare ways to predict a view at left-out sites; return the choice and the completed covariance.

    The sites receive second moments over all sites. Where only two have a view, each could compute the other's: None
    then, and for a single view and many columns. `unit` is the factor of each column's errors, shape (d,).
    """
    layout = Layout(agreement.views, tuple(agreement.sizes.values()))
    few = bool((agreement.sites < MIN_SITES - 0.5).any())
    if few or layout.n_views < 2 or layout.n_features > MAX_DIRECT:
        return None
    completed = session.sum(part.complete_products, law)
    errors = session.sum(
        part.compare_predictions,
        messages.Comparison(
            **messages.fields_of(law),
            products=completed.products,
            n_rows=completed.n_rows,
            sites=np.maximum(np.rint(agreement.sites), 2.0),
        ),
    )
    sums = PredictionSums(**messages.fields_of(errors, PredictionSums))
    return choose_prediction(sums, layout, unit), completed.products / completed.n_rows


def draw_waic(session: Session, part: type[MvPPCASite], law: messages.Law, seed: int) -> float:
    """Return the WAIC, from draws of each site's parameters at the sites."""
    draws = messages.Draws(**messages.fields_of(law), n_draws=N_DRAWS, n_burn=N_BURN, seed=seed)
    parts = session.sum(part.draw_waic, draws)
    return WAICParts(parts.lppd, parts.p_waic, round(parts.n_rows)).waic


def metrics_of(answer: messages.Evaluation, names: Sequence[str]) -> dict[str, float]:
    """Return MAE, log-likelihood per patient and cross-view MAE from sums over the sites' rows."""
    metrics = {
        "mae": float(answer.absolute_error.sum() / answer.entries.sum()),
        "log_likelihood": answer.log_likelihood / answer.n_rows,
    }
    for k, view in enumerate(names):
        if answer.cross_view_entries[k] > 0:
            metrics[f"imputation_mae/{view}"] = float(answer.cross_view_error[k] / answer.cross_view_entries[k])
    return metrics
