"""The rounds of DPFact as published.

One round consists of:

1. The coordinator sends the global factors to every site.
2. Each site descends from its local factors over its entries above zero, pulled to the global ones, and returns its
   factors, noised if the fit has an epsilon.
3. The global factors move towards the mean of the sites (equation 19).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.phenotyping.dpfact.maths.local import move_to_mean
from multicentre.phenotyping.dpfact.messages import Factors
from multicentre.phenotyping.dpfact.rounds import Plan, Turned, repeat
from multicentre_papers.published.dpfact.messages import PassEntries
from multicentre_papers.published.dpfact.site import AsPublishedSite

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PublishedPlan(Plan):
    """Values that stay fixed during a fit.

    Parameters
    ----------
    learning_rate : float
        The paper's ``eta``.
    noise_sd : float
        Standard deviation of the published noise; 0 for none.
    """

    learning_rate: float
    noise_sd: float


def fit_entries(session: Session, plan: PublishedPlan, start: Factors) -> Rounds[Factors]:
    """Run the published algorithm (equations 13 to 19) on the entries above zero."""
    return repeat(session, plan, start, pass_entries, refit=False, part=AsPublishedSite)


def pass_entries(session: Session, plan: Plan, factors: dict[str, Floats], number: int) -> Turned:
    """Run one round."""
    assert isinstance(plan, PublishedPlan)  # fit_entries passes no other
    request = PassEntries(
        factors,
        n_passes=plan.n_passes,
        step=plan.learning_rate,
        elastic_penalty=plan.elastic_penalty,
        shrinkage=plan.sparsity,
        nonnegative=plan.nonnegative,
        round_number=number,
        noise_sd=plan.noise_sd,
    )
    total = session.sum(AsPublishedSite.pass_entries, request)
    means = {mode: factor / total.sites for mode, factor in total.factors.items()}
    return {mode: move_to_mean(factor, means[mode], plan.weight) for mode, factor in factors.items()}, {}
