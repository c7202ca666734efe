"""The rounds of Fed-mv-PPCA as published (Algorithm 1).

One round consists of:

1. The coordinator sends the global law of the sites' parameters to every site.
2. Each site fits its parameters by maximum a posteriori under that law.
3. The sums over sites of differences to the law, and of their squares, give the next law by maximum likelihood.

The joint density that the alternation increases is unbounded, so that it gives no criterion of convergence. All rounds
are run.
"""

from __future__ import annotations

import numpy as np

from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.multiview.ppca import messages
from multicentre.multiview.ppca.maths.model import Floats, Layout, Parameters
from multicentre.multiview.ppca.maths.prior import Prior, PriorSums, assemble_prior
from multicentre.multiview.ppca.rounds import Plan
from multicentre_papers.published.ppca.em import random_start
from multicentre_papers.published.ppca.messages import LocalRequest
from multicentre_papers.published.ppca.site import AsPublishedSite


def fit_local(
    session: Session, plan: Plan, first: messages.Shared, *, faithful: bool
) -> tuple[Prior, Rounds[messages.Global]]:
    """Alternate local fits and maximum likelihood of the global law, for all rounds.

    Parameters
    ----------
    session : Session
        Sites of the fit.
    plan : Plan
        Layout and parameters of the rounds.
    first : Shared
        First shared parameters. Their noise and loadings set the variances of the starting values.
    faithful : bool
        Start each round at the sites from a draw of the global law, as printed in the paper.
    """
    layout = plan.layout

    def begin() -> messages.Global:
        flat = Prior.flat(_draw_start(first, plan), layout, diagonal=plan.noise == "diagonal")
        return _state_of(flat, plan.n_components)

    rounds = session.rounds(plan.max_iter, messages.Global, begin, name="local")
    for number in rounds:
        request = LocalRequest(
            **messages.fields_of(rounds.state),
            first=number == 1,
            n_iterations=plan.n_local_iter,
            faithful=faithful,
            seed=plan.seed,
            round_number=number,
        )
        answer = session.sum(AsPublishedSite.fit_local, request)
        rounds.record(log_likelihood=answer.objective / max(answer.n_rows, 1.0))
        sums = PriorSums(**messages.fields_of(answer, PriorSums))
        rounds.state = _state_of(
            maximise_prior(sums, _prior_of(rounds.state), layout, ddof=plan.ddof), plan.n_components
        )
    return _prior_of(rounds.state), rounds


def _draw_start(first: messages.Shared, plan: Plan) -> Parameters:
    variances = np.add.reduceat(first.noise + (first.loadings**2).sum(axis=1), plan.layout.starts)
    drawn = random_start(
        plan.layout, plan.n_components, variances / np.asarray(plan.layout.sizes), np.random.default_rng(plan.seed)
    )
    return Parameters(drawn.loadings, first.mean, drawn.noise)


def _state_of(prior: Prior, q: int) -> messages.Global:
    return messages.Global(**messages.fields_of(prior), gauge_mean=np.zeros(q), gauge_axes=np.eye(q), undo=False)


def _prior_of(state: messages.Global) -> Prior:
    return Prior(**messages.fields_of(state, Prior))


def maximise_prior(sums: PriorSums, previous: Prior, layout: Layout, *, ddof: int = 0) -> Prior:
    """Maximise the likelihood of the global law given the parameters of the sites (equations 4 to 6).

    Parameters
    ----------
    sums : PriorSums
        Over sites; posterior variances in them are added to the squares.
    previous : Prior
        The prior to which the sums' differences refer.
    layout : Layout
    ddof : {0, 1}, default 0
        1 divides the squared deviations by C - 1, for the C sites with the view; advisable if C is 2 or 3.

    Returns
    -------
    Prior
        A view that no site has this round keeps its prior; a view that one site has gets a flat one.
    """
    sites = np.maximum(sums.sites, 1.0)
    step = np.column_stack([sums.loadings, sums.mean]) / sites[layout.view_of, None]
    sizes = np.asarray(layout.sizes, dtype=np.float64)
    correction = sites / np.maximum(sites - ddof, 1.0)

    def variance(squares: Floats, steps: Floats, spread: Floats, entries: Floats) -> Floats:
        deviation = np.maximum(squares - sites * np.add.reduceat(np.square(steps).sum(axis=1), layout.starts), 0.0)
        return np.asarray((correction * deviation + spread) / (sites * entries))

    variances = np.stack(
        [
            variance(sums.loadings_square, step[:, :-1], sums.loadings_spread, sizes * sums.loadings.shape[1]),
            variance(sums.mean_square, step[:, -1:], sums.mean_spread, sizes),
        ]
    )
    return assemble_prior(sums, previous, layout, step, variances)
