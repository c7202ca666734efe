"""What a site holds against an ask before it computes anything."""

from __future__ import annotations

import numpy as np

from multicentre.data.multiview import MultiViewData
from multicentre.federation.errors import ConfigurationError, DataError, MessageError, SchemaMismatch
from multicentre_papers.baselines.fuzzy import messages as sent
from multicentre_papers.baselines.fuzzy.maths import Floats

MOST_ASKED = 100_000
MOST_CLUSTERS = 1_000
LEAST_FUZZINESS, MOST_FUZZINESS = 1.005, 100.0
FARTHEST = 2.0**20
EXTREME = 2.0**500


def check_rows(data: MultiViewData) -> None:
    """Raise DataError where a patient has a view in part, or none at all.

    Examples
    --------
    >>> check_rows(MultiViewData({"blood": np.ones((2, 3))}))
    """
    data.check_whole_views()
    if not np.any([data.patients_with(view) for view in data.views], axis=0).all():
        raise DataError("some patients have no entry in any view", where="data", hint="Remove them.")


def check_layout(data: MultiViewData, layout: sent.Layout) -> None:
    """Raise SchemaMismatch unless the site's views are among those agreed, with the same columns in the same order.

    Examples
    --------
    >>> check_layout(MultiViewData({"b": np.ones((2, 1))}), sent.Layout(("a", "b"), {"a": ("x",), "b": ("b_0",)}))
    """
    same = set(layout.views) == set(layout.columns) and len(set(layout.views)) == len(layout.views)
    if not same or not set(data.views) <= set(layout.views):
        raise SchemaMismatch("the views are not those agreed", where="views", hint="Give views of the fit alone.")
    for view in data.views:
        if tuple(data.columns[view]) != tuple(layout.columns[view]):
            expected = ", ".join(layout.columns[view][:5])
            hint = f"Give its {len(layout.columns[view])} columns in the order agreed: {expected} ..."
            raise SchemaMismatch("the columns are not those agreed", where=f"view {view!r}", hint=hint)


def check_units(layout: sent.Layout, *arrays: Floats, units: Floats) -> None:
    """Raise MessageError unless there is one number a column, and units in which rows can be measured.

    Examples
    --------
    >>> check_units(sent.Layout(("b",), {"b": ("b_0",)}), np.zeros(1), units=np.ones(1))
    """
    d = sum(layout.sizes.values())
    if any(len(values) != d or (np.abs(values) > EXTREME).any() for values in (*arrays, units)):
        raise MessageError(f"one number for each of {d} columns is needed", where=type(layout).__name__)
    if not (units >= 1 / EXTREME).all():
        raise MessageError("a unit is far too small", where=type(layout).__name__)


def check_clusters(ask: sent.Clusters, layout: sent.Layout) -> None:
    """Raise MessageError unless the clusters fit the agreed columns and all numbers are in range.

    Examples
    --------
    >>> layout = sent.Layout(("b",), {"b": ("b_0",)})
    >>> check_clusters(sent.Clusters(np.zeros((2, 1)), np.ones(1), 2.0, False), layout)
    """
    d, k = sum(layout.sizes.values()), len(layout.views)
    if ask.centres.shape[1] != d or len(ask.view_weights) != k or not 1 <= len(ask.centres) <= MOST_CLUSTERS:
        raise MessageError("the centres do not fit the agreed columns", where="Clusters.centres")
    if (np.abs(ask.centres) > FARTHEST).any():
        raise MessageError("a centre is too far away", where="Clusters.centres")
    weights = ask.view_weights
    if not ((weights >= 0) & (weights <= FARTHEST)).all() or not weights.any():
        raise MessageError("a view's weight is out of range", where="Clusters.view_weights")
    if not LEAST_FUZZINESS <= ask.fuzziness <= MOST_FUZZINESS:
        raise MessageError("the fuzziness is out of range", where="Clusters.fuzziness")


def check_count(n_asked: int) -> None:
    """Raise ConfigurationError once a site has answered too many asks of one fit.

    Examples
    --------
    >>> check_count(3)
    """
    if n_asked >= MOST_ASKED:
        raise ConfigurationError(
            f"{MOST_ASKED} sums of one fit have left", where="sum_memberships", hint="Lower max_iter or n_init."
        )
