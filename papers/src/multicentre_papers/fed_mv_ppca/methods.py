"""The methods of the table, each with its budget."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from multicentre.multiview.ppca.estimator import FedMvPPCA
from multicentre_papers.baselines.vae.estimator import FederatedAutoEncoder, FedMCVAE, FedVAE
from multicentre_papers.fed_mv_ppca import published
from multicentre_papers.fed_mv_ppca.plan import LEARNING_RATE, Cell, Plan
from multicentre_papers.published.ppca.estimator import FedMvPPCAAsPublished

Model = FedMvPPCA | FederatedAutoEncoder
POOLED = "pooled rows"
PPCA = ("Fed-mv-PPCA (paper)", "Fed-mv-PPCA (invariant)", "Fed-mv-PPCA (hierarchical)")
PAPER, INVARIANT, HIERARCHICAL = PPCA
RIVALS = (published.VAE, published.MCVAE)
NO_MISSING_VIEWS = "VAE and mc-VAE are not run in K and G/K: their training takes patients with every view only."
SAME_OPTIMUM = (
    "The lead over the auto-encoders is one at this budget: the best linear auto-encoder is as good as probabilistic "
    "PCA, and more steps of training bring VAE and mc-VAE near it."
)
NO_TORCH = "VAE and mc-VAE are not run: torch is not installed (pip install 'multicentre[deep]')."


@dataclass(frozen=True)
class Candidate:
    """A method of the table.

    Parameters
    ----------
    name : str
        Name in the table.
    build : callable
        From plan, latent dimensions and seed to an estimator.
    """

    name: str
    build: Callable[[Plan, int, int], Model]

    def takes(self, cell: Cell) -> bool:
        """Return whether the method can be fitted in this cell."""
        return self.name not in RIVALS or "K" not in cell.scenario


def candidates() -> tuple[Candidate, ...]:
    """Return the methods that can be run here."""
    ppca = (
        Candidate(PAPER, build_ppca("paper")),
        Candidate(INVARIANT, build_ppca("invariant")),
        Candidate(HIERARCHICAL, build_ppca("hierarchical")),
        Candidate(POOLED, build_ppca("invariant")),
    )
    if not has_torch():
        return ppca
    rivals = ((published.VAE, FedVAE), (published.MCVAE, FedMCVAE))
    return (*ppca, *(Candidate(name, _autoencoder(kind)) for name, kind in rivals))


def remarks() -> tuple[str, ...]:
    """Return the notes on the auto-encoders."""
    return (NO_MISSING_VIEWS, SAME_OPTIMUM) if has_torch() else (NO_TORCH,)


def has_torch() -> bool:
    """Return whether torch is installed, which the auto-encoders need."""
    return importlib.util.find_spec("torch") is not None


def build_ppca(method: Literal["paper", "invariant", "hierarchical"]) -> Callable[[Plan, int, int], FedMvPPCA]:
    """Return a function from plan, latent dimensions and seed to Fed-mv-PPCA as published, or by a method of ours."""

    def build(plan: Plan, q: int, seed: int) -> FedMvPPCA:
        budget: dict[str, Any] = {"max_iter": plan.n_rounds, "random_state": seed}
        if method != "invariant":  # which has no local iterations
            budget["n_local_iter"] = plan.n_local_iter
        if method == "paper":
            return FedMvPPCAAsPublished(q, scale="none", **budget)
        return FedMvPPCA(q, method=method, scale="none", **budget)

    return build


def _autoencoder(kind: type[FedVAE] | type[FedMCVAE]) -> Callable[[Plan, int, int], Model]:
    def build(plan: Plan, q: int, seed: int) -> Model:
        return kind(
            q,
            max_iter=plan.autoencoder_rounds,
            n_local_iter=plan.n_local_iter,
            learning_rate=LEARNING_RATE,
            scale="none",
            random_state=seed,
        )

    return build
