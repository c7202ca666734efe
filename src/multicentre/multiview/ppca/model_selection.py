"""Choice of the number of latent dimensions: one fit per candidate, compared by WAIC, without test data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sklearn.base import clone

from multicentre.estimator.figures import Lines
from multicentre.federation.consortium import Consortium
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.tie_breaking import first_least
from multicentre.multiview.ppca.estimator import FedMvPPCA
from multicentre.multiview.ppca.figures import criteria
from multicentre.multiview.ppca.maths.selection import compute_bic, count_parameters


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
        return _least(self.waic)

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
        Sites whose patients are fitted; each fit also asks them for the terms of the WAIC.
    candidates : iterable of int
        Numbers of latent dimensions to try.
    estimator : FedMvPPCA, optional
        Estimator whose other parameters are used. The default is ``FedMvPPCA()``.

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
    >>> sites = mc.datasets.split_scenario(mc.datasets.simulate_sd(seed=1), "IID", n_sites=3, seed=0)
    >>> federation = mc.Federation.in_process({name: site.data for name, site in sites.items()})
    >>> select_n_components(federation, [4, 5, 6]).n_components
    5
    """
    fits: dict[int, FedMvPPCA] = {}
    for q in candidates:
        fits[q] = clone(estimator or FedMvPPCA()).set_params(n_components=q, waic=True).fit(federation)
    if not fits:
        raise ConfigurationError(
            "candidates must hold at least one number; got none",
            where="candidates",
            hint="Use numbers such as range(1, 8).",
        )
    waic = {q: fit.waic_ for q, fit in fits.items()}
    return ComponentSelection(
        waic=waic,
        bic={q: _bic(fit) for q, fit in fits.items()},
        mae={q: fit.training_["mae"] for q, fit in fits.items()},
        best=fits[_least(waic)],
    )


def _least(criterion: Mapping[int, float]) -> int:
    return list(criterion)[int(first_least(list(criterion.values())))]


def _bic(fit: FedMvPPCA) -> float:
    n_noise = fit.layout.n_features if fit.noise == "diagonal" else None
    n_parameters = count_parameters(fit.layout, fit.n_components_, n_noise=n_noise)
    return compute_bic(fit.training_["log_likelihood"] * fit.n_patients_, n_parameters, fit.n_patients_)
