"""Fed-mv-PPCA as it was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.session import Session
from multicentre.multiview.agreement import Scale
from multicentre.multiview.ppca import messages as sent
from multicentre.multiview.ppca import rounds as loops
from multicentre.multiview.ppca.checks import check_parameters
from multicentre.multiview.ppca.estimator import FedMvPPCA
from multicentre.multiview.ppca.maths.model import Parameters
from multicentre.multiview.ppca.maths.prior import Prior
from multicentre.multiview.ppca.maths.problem import Noise
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre_papers.published.ppca.rounds import fit_local
from multicentre_papers.published.ppca.site import AsPublishedSite


def check_published(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless each of the estimator's parameters is of its kind."""
    check_parameters({**FedMvPPCA().get_params(deep=False), **given})
    if not isinstance(given["faithful"], bool | np.bool_):
        raise ConfigurationError(f"faithful must be True or False; got {given['faithful']!r}", where="faithful")


class FedMvPPCAAsPublished(FedMvPPCA):
    """Fed-mv-PPCA by the published alternation of local fits and a global law, with its errata corrected.

    For comparison with the publication only: the between-centre variances shrink to zero. Use
    :class:`multicentre.multiview.FedMvPPCA` instead.

    Parameters
    ----------
    n_components : int or sequence of int, default 2
        Latent dimensions, the paper's ``q``. If a sequence, the value with the lowest WAIC is selected.
    max_iter : int, default 100
        The paper's ``R``. All rounds are run.
    n_local_iter : int, default 15
        The paper's ``I``: local iterations per round.
    scale, noise, waic, ddof, small_views
        As in :class:`multicentre.multiview.FedMvPPCA`.
    faithful : bool, default False
        Start each round from a draw of the global law, as printed, instead of its centre.
    random_state : int, default 0
        Seed of starts and draws.

    Attributes
    ----------
    converged_ : bool
        True: the number of rounds is fixed.
    history_ : list of dict
        Log posterior per patient, round by round.

    References
    ----------
    I. Balelli, S. Silva, M. Lorenzi, "A Probabilistic Framework for Modeling the Variability Across Federated Datasets
    of Heterogeneous Multi-View Observations", IPMI 2021.
    """

    site_part: ClassVar[type[MvPPCASite]] = AsPublishedSite
    _check = staticmethod(check_published)

    def __init__(
        self,
        n_components: int | Sequence[int] = 2,
        *,
        max_iter: int = 100,
        n_local_iter: int = 15,
        scale: Scale = "view",
        noise: Noise = "isotropic",
        waic: bool = False,
        ddof: int = 1,
        small_views: bool = False,
        faithful: bool = False,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            n_components,
            max_iter=max_iter,
            n_local_iter=n_local_iter,
            scale=scale,
            noise=noise,
            waic=waic,
            ddof=ddof,
            small_views=small_views,
            random_state=random_state,
        )
        self.faithful = faithful

    def asked_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may ask of a site."""
        return (super().asked_steps() - {"fit_shared"}) | {"fit_local"}

    def _run(self, session: Session, plan: loops.Plan, start: sent.Shared) -> tuple[Parameters, Prior | None]:
        prior, rounds = fit_local(session, plan, start, faithful=self.faithful)
        self._note(rounds, settled=True)
        return prior.centre(plan.layout), prior
