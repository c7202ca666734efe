"""Checks of a site's data and of every request before any computation."""

from __future__ import annotations

import numpy as np

from multicentre.data.multiview import MultiViewData
from multicentre.errors import ConfigurationError, DataError, MessageError, SchemaMismatch
from multicentre_papers.baselines.fuzzy import messages
from multicentre_papers.baselines.fuzzy.maths import Floats

MAX_REQUESTS = 100_000  # sums per fit and site
# Bounds memory: a request computes one distance per view, patient and cluster.
MAX_CLUSTERS = 1_000
# At 1 memberships are undefined; near 1.005 they are almost 0 or 1, and above 100 almost equal.
MIN_FUZZINESS, MAX_FUZZINESS = 1.005, 100.0
# Largest entry of a cluster centre in the agreed units, in which patients have a mean squared length of 1 per view.
FARTHEST = 2.0**20
# Largest magnitude of means and units; squares of such numbers stay finite.
EXTREME = 2.0**500


def check_rows(data: MultiViewData) -> None:
    """Raise DataError if a patient has an incomplete view or no view.

    Examples
    --------
    >>> check_rows(MultiViewData({"blood": np.ones((2, 3))}))
    """
    data.check_whole_views()
    if not np.any([data.patients_with(view) for view in data.views], axis=0).all():
        raise DataError(
            "every patient must have at least one view; got patients without views",
            where="data",
            hint="Leave these patients out.",
        )


def check_layout(data: MultiViewData, layout: messages.Layout) -> None:
    """Raise SchemaMismatch unless the site's views are agreed views with the agreed columns, in the same order.

    Examples
    --------
    >>> check_layout(MultiViewData({"b": np.ones((2, 1))}), messages.Layout(("a", "b"), {"a": ("x",), "b": ("b_0",)}))
    """
    same = set(layout.views) == set(layout.columns) and len(set(layout.views)) == len(layout.views)
    if not same or not set(data.views) <= set(layout.views):
        raise SchemaMismatch(
            "views must be those of the fit; got other views", where="views", hint="Pass only views of the fit."
        )
    for view in data.views:
        if tuple(data.columns[view]) != tuple(layout.columns[view]):
            expected = ", ".join(layout.columns[view][:5])
            raise SchemaMismatch(
                "columns must be those of the fit, in the same order; got other columns or another order",
                where=f"view {view!r}",
                hint=f"Pass the {len(layout.columns[view])} columns of the fit: {expected} ...",
            )


def check_units(layout: messages.Layout, *arrays: Floats, units: Floats) -> None:
    """Raise MessageError unless there is one number per column and every unit is in range.

    Examples
    --------
    >>> check_units(messages.Layout(("b",), {"b": ("b_0",)}), np.zeros(1), units=np.ones(1))
    """
    d = sum(layout.sizes.values())
    if any(len(values) != d or (np.abs(values) > EXTREME).any() for values in (*arrays, units)):
        raise MessageError(
            f"arrays must have {d} entries, one per column, within {EXTREME:.0e} of 0; "
            "got another number of entries or larger entries",
            where=type(layout).__name__,
        )
    if not (units >= 1 / EXTREME).all():
        raise MessageError(f"units must be at least {1 / EXTREME:.0e}; got a smaller unit", where=type(layout).__name__)


def check_clusters(request: messages.Clusters, layout: messages.Layout) -> None:
    """Raise MessageError unless the clusters have the agreed columns and all numbers are in range.

    Examples
    --------
    >>> layout = messages.Layout(("b",), {"b": ("b_0",)})
    >>> check_clusters(messages.Clusters(np.zeros((2, 1)), np.ones(1), 2.0, False), layout)
    """
    d, k = sum(layout.sizes.values()), len(layout.views)
    if request.centres.shape[1] != d or len(request.view_weights) != k or not 1 <= len(request.centres) <= MAX_CLUSTERS:
        raise MessageError(
            f"there must be 1 to {MAX_CLUSTERS} centres with {d} columns, and {k} view weights; "
            f"got centres of shape {request.centres.shape} and {len(request.view_weights)} view weights",
            where="Clusters.centres",
        )
    if (np.abs(request.centres) > FARTHEST).any():
        raise MessageError(f"centres must lie within {FARTHEST:g} of 0; got a larger entry", where="Clusters.centres")
    weights = request.view_weights
    if not ((weights >= 0) & (weights <= FARTHEST)).all() or not weights.any():
        raise MessageError(
            f"view weights must lie in [0, {FARTHEST:g}], with one above 0; got other weights",
            where="Clusters.view_weights",
        )
    if not MIN_FUZZINESS <= request.fuzziness <= MAX_FUZZINESS:
        raise MessageError(
            f"fuzziness must lie in [{MIN_FUZZINESS}, {MAX_FUZZINESS}]; got {request.fuzziness:g}",
            where="Clusters.fuzziness",
        )


def check_count(n_requests: int) -> None:
    """Raise ConfigurationError if a site has answered the maximum number of requests of one fit.

    Examples
    --------
    >>> check_count(3)
    """
    if n_requests >= MAX_REQUESTS:
        raise ConfigurationError(
            f"sums must be requested at most {MAX_REQUESTS} times per fit; got a further request",
            where="sum_memberships",
            hint="Lower max_iter or n_init.",
        )
