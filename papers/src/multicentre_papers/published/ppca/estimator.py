"""Fed-mv-PPCA as it was published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from multicentre.core.session import Session
from multicentre.estimator.parameters import Applicable, Flag, ParameterRanges
from multicentre.multiview.agreement import ViewScale
from multicentre.multiview.ppca import messages
from multicentre.multiview.ppca import rounds as loops
from multicentre.multiview.ppca.estimator import FedMvPPCA
from multicentre.multiview.ppca.maths.model import NoiseModel, Parameters
from multicentre.multiview.ppca.maths.prior import Prior
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre_papers.published.ppca.rounds import fit_local
from multicentre_papers.published.ppca.site import AsPublishedSite


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
    scale : {"view", "feature", "none"}, default "view"
        Divide the centred columns by one number per view, one per column, or do not scale.
    noise : {"isotropic", "diagonal"}, default "isotropic"
        Noise variance: one per view, or one per column.
    waic : bool, default False
        Sum the WAIC after the fit.
    ddof : {0, 1}, default 1
        Between-centre squares are divided by the number of sites minus `ddof`; the paper uses 0.
    small_views : bool, default False
        Permit at least as many latent dimensions as the smallest view has columns.
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

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> from multicentre_papers.published import FedMvPPCAAsPublished
    >>> rng = np.random.default_rng(0)
    >>> def site(n):
    ...     latent = rng.normal(size=(n, 1))
    ...     views = {name: latent + 0.3 * rng.normal(size=(n, 3)) for name in ("blood", "image")}
    ...     return mc.data.MultiViewData(views)
    >>> sites = {name: site(40) for name in ("lyon", "nice", "lille")}
    >>> model = FedMvPPCAAsPublished(1, max_iter=2).fit(mc.Federation.in_process(sites))
    >>> model.n_iter_
    2
    """

    site_part: ClassVar[type[MvPPCASite]] = AsPublishedSite
    compares: ClassVar[bool] = False
    applicable: ClassVar[Applicable] = {}
    parameter_ranges: ClassVar[ParameterRanges] = {
        "n_components": FedMvPPCA.parameter_ranges["n_components"],
        "max_iter": FedMvPPCA.parameter_ranges["max_iter"],
        "n_local_iter": FedMvPPCA.parameter_ranges["n_local_iter"],
        "scale": FedMvPPCA.parameter_ranges["scale"],
        "noise": FedMvPPCA.parameter_ranges["noise"],
        "waic": FedMvPPCA.parameter_ranges["waic"],
        "ddof": FedMvPPCA.parameter_ranges["ddof"],
        "small_views": FedMvPPCA.parameter_ranges["small_views"],
        "faithful": Flag(),
        "random_state": FedMvPPCA.parameter_ranges["random_state"],
    }

    def __init__(
        self,
        n_components: int | Sequence[int] = 2,
        *,
        max_iter: int = 100,
        n_local_iter: int = 15,
        scale: ViewScale = "view",
        noise: NoiseModel = "isotropic",
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

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may request from a site."""
        return (super().planned_steps() - {"fit_shared"}) | {"fit_local"}

    def _run(self, session: Session, plan: loops.Plan, start: messages.Shared) -> tuple[Parameters, Prior | None]:
        prior, rounds = fit_local(session, plan, start, faithful=self.faithful)
        self._note(rounds, settled=True)
        return prior.centre(plan.layout), prior
