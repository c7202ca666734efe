"""Choice of the number of latent dimensions: one fit per candidate, compared by WAIC, without test data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multicentre.core.consortium import Consortium
from multicentre.errors import ConfigurationError
from multicentre.estimator.figures import Lines
from multicentre.multiview.ppca.estimator import FedMvPPCA, fit_candidates, waic_of
from multicentre.multiview.ppca.figures import criteria
from multicentre.multiview.ppca.fitted import bic_of
from multicentre.multiview.ppca.maths.selection import select_lowest

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ComponentSelection:
    """Criteria by number of latent dimensions.

    Attributes
    ----------
    waic : dict of int to float
        WAIC over all sites by number of latent dimensions; lower is better.
    bic : dict of int to float
        Bayesian information criterion of the same fits.
    mae : dict of int to float
        MAE of the training rows, for description only: it falls as dimensions are added.
    best : FedMvPPCA
        The fit with the lowest WAIC.
    """

    waic: dict[int, float]
    bic: dict[int, float]
    mae: dict[int, float]
    best: FedMvPPCA

    @property
    def n_components(self) -> int:
        """Number of latent dimensions with the lowest WAIC."""
        return select_lowest(self.waic)

    def to_frame(self) -> pd.DataFrame:
        """Return the criteria, one row per number of latent dimensions."""
        import pandas as pd

        frame = pd.DataFrame({"waic": self.waic, "bic": self.bic, "mae": self.mae})
        return frame.rename_axis(index="n_components")

    def figure(self) -> Lines:
        """Return WAIC and BIC over the number of latent dimensions (the paper's Figure 3)."""
        return criteria(self.waic, self.bic, self.n_components)


def select_n_components(
    federation: Consortium, candidates: Iterable[int], *, estimator: FedMvPPCA | None = None
) -> ComponentSelection:
    """Choose the number of latent dimensions by WAIC, from sums over sites and without test data.

    Parameters
    ----------
    federation : Federation
        Sites whose patients are fitted; each fit also requests the terms of the WAIC from them.
    candidates : iterable of int
        Numbers of latent dimensions to try. A warning is issued if the WAIC is lowest at the largest one.
    estimator : FedMvPPCA, optional
        Estimator whose other parameters are used. The default is ``FedMvPPCA()``. With its `max_components`, larger
        numbers are tried while the WAIC is lowest at the largest.

    Returns
    -------
    ComponentSelection
        WAIC, BIC and training error of each candidate, and the fit with the lowest WAIC.

    Raises
    ------
    ConfigurationError
        `candidates` is empty.
    DataError
        A site has too few patients for its parameters to be drawn (columns + dimensions + 2 are needed).

    Notes
    -----
    Each site draws its parameters given its rows under flat priors. Draws from the fitted global law would ignore the
    cost of the fit, and the largest candidate would be selected. Keep ``scale="view"``: one scale per column leaves
    unequal noise within a view, which further dimensions would explain.

    References
    ----------
    .. [1] A. Gelman, J. Hwang, A. Vehtari, "Understanding predictive information criteria for Bayesian models", 2014.

    Examples
    --------
    >>> import multicentre as mc
    >>> sites = mc.datasets.split_scenario(mc.datasets.simulate_sd(random_state=1), "IID", n_sites=3, random_state=0)
    >>> federation = mc.Federation.in_process({name: site.data for name, site in sites.items()})
    >>> mc.multiview.select_n_components(federation, [4, 5, 6]).n_components
    5
    """
    fits = fit_candidates(estimator or FedMvPPCA(), federation, candidates)
    if not fits:
        raise ConfigurationError(
            "candidates must be at least one number; got none",
            where="candidates",
            hint="Use numbers such as range(1, 8).",
        )
    waic = waic_of(fits)
    return ComponentSelection(
        waic=waic,
        bic={q: bic_of(fit) for q, fit in fits.items()},
        mae={q: fit.training_["mae"] for q, fit in fits.items()},
        best=fits[select_lowest(waic)],
    )
