"""Rounds of FedMVFCM and FedMVFPC, fuzzy clustering of several views.

Before the first round:

1. Each site returns the names of its views and columns.
2. Each site returns the order of magnitude of the spread of every column. The means over sites give units for the sums.
3. Each site returns its numbers of patients and the sums of its columns. The sums over sites give the means.
4. The coordinator sends the means, and each site returns sums of squared deviations from them.
5. The coordinator sends the means and scales of all columns, and each site stores them.

One round consists of:

1. The coordinator sends the centres of the clusters, the weights of the views and the fuzziness to every site.
2. Each site computes the memberships of its patients, which stay at the site. It returns sums of their powers by
   cluster and view and, weighted by these powers, sums of its rows by cluster and of the distances by view.
3. The sums over sites give the next centres and the next weights of the views. FedMVFCM takes weighted means as
   centres, FedMVFPC the nearest orthonormal ones.

The first centres are random directions. In the first round memberships are almost 0 or 1, and the weights of the views
stay equal. The rounds stop when the objective changes by less than ``tol``, relatively, in two consecutive rounds after
the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from multicentre.core.messages import Message, Nothing, array
from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.data.schema import Kind, MultiViewSchema, agree_schemas
from multicentre.errors import DataError
from multicentre_papers.baselines.fuzzy import messages
from multicentre_papers.baselines.fuzzy.maths import Floats, Sums, draw_centres, objective, view_columns, weigh_views
from multicentre_papers.baselines.fuzzy.site import FuzzySite

FuzzyScale = Literal["feature", "view"]
Part = type[FuzzySite]
Update = Callable[[Sums, Floats, Sequence[int]], Floats]
START_FUZZINESS = 1.01  # the first round assigns each patient almost entirely to the nearest random direction
MIN_SQUARES = 1e-3  # a column whose sum of squares is smaller, in its unit, counts as constant


@dataclass(frozen=True)
class Plan:
    """Settings that stay fixed during a fit.

    Parameters
    ----------
    n_clusters : int
    fuzziness : float
    plain : bool
        Distances are not squared.
    max_iter : int
    tol : float
    seed : int
    update : callable
        Maps sums to centres.
    """

    n_clusters: int
    fuzziness: float
    plain: bool
    max_iter: int
    tol: float
    seed: int
    update: Update


@dataclass(frozen=True)
class State(Message):
    """State of the coordinator between rounds; after the last round, the fit."""

    centres: Floats = array("centre of every cluster, in the agreed units", ("c", "d"))
    view_weights: Floats = array("weight alpha of every view", ("k",))
    masses: Floats = array("sum of the memberships to the power of m by cluster and view", ("c", "k"))


def agree(session: Session, part: Part, scale: FuzzyScale) -> messages.Agreement:
    """Agree on views, columns, centres and spreads, with one request per site and three sums.

    Raises
    ------
    SchemaMismatch
        Two sites describe a view differently.
    DataError
        A site's data cannot be clustered, no site has a view, or a view is constant.
    """
    described = session.ask(part.describe, Nothing())
    schema = agree_schemas(
        {
            site: MultiViewSchema(answer.views, answer.columns, cast("Mapping[str, tuple[Kind, ...]]", answer.kinds))
            for site, answer in described.items()
        }
    )
    layout = messages.Layout(tuple(schema.views), {view: tuple(schema.columns[view]) for view in schema.views})
    sizes = list(layout.sizes.values())
    orders = session.sum(part.column_orders, layout)
    units = 2.0 ** np.rint(orders.orders / np.maximum(orders.sites, 1.0))
    totals = session.sum(part.column_totals, messages.Measured(layout.views, layout.columns, units))
    _check_held(layout, totals.patients_by_view)
    observed = np.repeat(totals.patients_by_view, sizes)
    centre = totals.total / observed * units
    centred = messages.Centred(layout.views, layout.columns, units, centre)
    squares = session.sum(part.column_squares, centred).squares
    agreed = messages.Agreement(
        layout.views,
        layout.columns,
        centre,
        find_spread(squares, observed, units, layout, scale),
        {view: tuple(str(kind) for kind in schema.kinds[view]) for view in layout.views},
        totals.patients_by_view,
        totals.n_patients,
    )
    session.ask(part.prepare, agreed.standards)
    return agreed


def find_spread(squares: Floats, observed: Floats, units: Floats, layout: messages.Layout, scale: FuzzyScale) -> Floats:
    """Return the divisor of each column, which makes the mean squared length of the patients in each view 1.

    Parameters
    ----------
    squares : array of shape (d,)
        Sums of squared deviations from the means, in `units`.
    observed : array of shape (d,)
        Patients with an entry.
    units : array of shape (d,)
    layout : Layout
    scale : {"feature", "view"}
        Columns of a view have equal weight, or weight by their variance.

    Raises
    ------
    DataError
        No column of a view varies.

    Examples
    --------
    >>> layout = messages.Layout(("b",), {"b": ("x", "y")})
    >>> find_spread(np.array([6.0, 8.0]), np.full(2, 2.0), np.ones(2), layout, "view").round(3).tolist()
    [2.646, 2.646]
    """
    varies = squares > MIN_SQUARES
    deviation = np.sqrt(np.where(varies, squares / observed, 1.0)) * units
    spread = np.empty_like(deviation)
    for view, at in zip(layout.views, view_columns(list(layout.sizes.values())), strict=True):
        if not varies[at].any():
            raise DataError("all columns of the view are constant", where=f"view {view!r}", hint="Leave the view out.")
        if scale == "feature":
            spread[at] = deviation[at] * np.sqrt(varies[at].sum())
        else:
            largest = deviation[at][varies[at]].max()
            spread[at] = largest * np.sqrt(np.square(deviation[at][varies[at]] / largest).sum())
    return spread


def climb(session: Session, part: Part, plan: Plan, agreed: messages.Agreement, start: int) -> Rounds[State]:
    """Alternate memberships at the sites and centres at the coordinator until the objective converges."""
    sizes, k = list(agreed.sizes.values()), len(agreed.views)

    def begin() -> State:
        centres = draw_centres(plan.n_clusters, sizes, np.random.default_rng([plan.seed, start]))
        return State(centres, np.full(k, 1.0 / k), np.zeros((plan.n_clusters, k)))

    rounds = session.rounds(plan.max_iter, State, begin, name=f"start-{start}")
    for number in rounds:
        state, first = rounds.state, number == 1
        fuzziness = START_FUZZINESS if first else plan.fuzziness
        request = messages.Clusters(state.centres, state.view_weights, fuzziness, plan.plain)
        answer = session.sum(part.sum_memberships, request)
        sums = Sums(answer.moments, np.maximum(answer.masses, 0.0), np.maximum(answer.dispersions, 0.0))
        rounds.record(objective=objective(sums.dispersions, state.view_weights) / agreed.n_patients)
        weights = state.view_weights if first else weigh_views(sums.dispersions, agreed.patients_by_view)
        rounds.state = State(plan.update(sums, state.centres, sizes), weights, sums.masses)
        if _is_settled(rounds, plan.tol):
            rounds.stop()
    return rounds


def last_objective(rounds: Rounds[State]) -> float:
    """Return the objective per patient in the last round of a loop."""
    return rounds.history[-1]["objective"]


def _is_settled(rounds: Rounds[State], tol: float) -> bool:
    """Return True if the relative change of the objective is below `tol` in two consecutive rounds after the first."""
    values = [entry["objective"] for entry in rounds.history[1:]] + [rounds.metrics["objective"]]
    pairs = itertools.pairwise(values[-3:])
    return len(values) >= 3 and all(abs(new - old) <= tol * max(abs(old), 1e-300) for old, new in pairs)


def _check_held(layout: messages.Layout, patients: Floats) -> None:
    for view, n in zip(layout.views, patients, strict=True):
        if n < 0.5:
            raise DataError(
                "no participating site has the view",
                where=f"view {view!r}",
                hint="Reconnect its site, or leave the view out of the study.",
            )
