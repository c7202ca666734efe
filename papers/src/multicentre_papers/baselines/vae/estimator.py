"""Federated VAE and mc-VAE: networks trained at the sites and averaged by the coordinator."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.estimator.parameters import SEED, Integer, OneOf, ParameterRanges, Real, Where
from multicentre.multiview.agreement import Agreement, ViewScale, agree
from multicentre_papers.baselines.vae.fitted import AutoEncoderModel
from multicentre_papers.baselines.vae.maths import draw_start
from multicentre_papers.baselines.vae.networks import require_torch
from multicentre_papers.baselines.vae.site import LocalTraining, Task


def _are_widths(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and all(Integer(1).accepts(width) for width in value)


class FederatedAutoEncoder(AutoEncoderModel):
    """Rounds of local training and averaging, for any arrangement of channels."""

    site_part: ClassVar[type[SitePart]] = LocalTraining
    parameter_ranges: ClassVar[ParameterRanges] = {
        **dict.fromkeys(("n_components", "max_iter", "n_local_iter"), Integer(1)),
        "hidden_layer_sizes": Where("a sequence of positive integers", _are_widths),
        "learning_rate": Real(0, open="low"),
        "proximal_penalty": Real(0),
        "scale": OneOf("view", "feature", "none"),
        "random_state": SEED,
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        hidden_layer_sizes: Sequence[int] = (),
        max_iter: int = 100,
        n_local_iter: int = 15,
        learning_rate: float = 1e-2,
        proximal_penalty: float = 0.0,
        scale: ViewScale = "view",
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.hidden_layer_sizes = hidden_layer_sizes
        self.max_iter = max_iter
        self.n_local_iter = n_local_iter
        self.learning_rate = learning_rate
        self.proximal_penalty = proximal_penalty
        self.scale = scale
        self.random_state = random_state

    def _fit(self, session: Session) -> None:
        require_torch()
        agreement = session.once("agreement", Agreement, lambda: agree(session, LocalTraining))
        self._set_units(agreement.schema, *agreement.units(self.scale), agreement.deviation)
        self.n_features_in_ = agreement.schema.n_features
        rounds = session.rounds(self.max_iter, Task, lambda: self._first_task(agreement))
        for number in rounds:
            sums = session.sum(LocalTraining.train, dataclasses.replace(rounds.state, round_number=number))
            n = sums.n_patients
            rounds.state = dataclasses.replace(
                rounds.state,
                matrices={name: total / n for name, total in sums.matrices.items()},
                vectors={name: total / n for name, total in sums.vectors.items()},
            )
            rounds.record(bound=sums.bound / n)
        errors = session.sum(LocalTraining.evaluate, rounds.state)
        self.model_ = rounds.state.model
        self.training_ = {"mae": errors.absolute / errors.entries}
        self.history_ = rounds.history

    def _first_task(self, agreement: Agreement) -> Task:
        start = draw_start(self.architecture, np.random.default_rng(self.random_state))
        return Task(
            agreement.stacking.views,
            agreement.stacking.sizes,
            centre=self._centre,
            spread=self._spread,
            deviation=self._deviation,
            channel_per_view=self.channel_per_view,
            n_components=self.n_components,
            hidden=np.array(self.hidden_layer_sizes, dtype=np.int64),
            matrices=dict(start.matrices),
            vectors=dict(start.vectors),
            n_steps=self.n_local_iter,
            learning_rate=self.learning_rate,
            proximal=self.proximal_penalty,
            seed=self.random_state,
            round_number=0,
        )


class FedVAE(FederatedAutoEncoder):
    """Federated variational auto-encoder of all views combined.

    The latent position z has q dimensions and a standard normal prior. A decoder returns the mean of every column, to
    which noise with a separate variance per column is added. An encoder returns the mean and the variances of
    q(z | row). In every round each site takes `n_local_iter` Adam steps on all its rows. The coordinator averages the
    parameters, weighted by patients: FedAvg, or FedProx if `proximal_penalty` is above 0. Only sums over sites reach
    the coordinator.

    Parameters
    ----------
    n_components : int, default 2
        Latent dimensions q, at least 1.
    hidden_layer_sizes : sequence of int, default ()
        Widths of the encoder's hidden layers (hyperbolic tangent); the decoder has them in reverse order. If empty,
        both maps are linear.
    max_iter : int, default 100
        Number of rounds, at least 1.
    n_local_iter : int, default 15
        Adam steps between averages; the moments are reset in every round.
    learning_rate : float, default 0.01
        Step length of Adam.
    proximal_penalty : float, default 0.0
        Weight mu of FedProx's ``mu / 2 * ||w - w_sent||^2``, added to the mean negative lower bound.
    scale : {"view", "feature", "none"}, default "view"
        Scaling of the centred columns: one divisor per view, one per column, or none. Centres and divisors follow from
        sums over sites.
    random_state : int, default 0
        Seed of the initial parameters and of the draws at the sites.

    Attributes
    ----------
    schema_ : MultiViewSchema
        Views and columns.
    model_ : Model
        Weights, offsets and log noise variances by name, in scaled columns.
    training_ : dict of str to float
        ``mae``: mean absolute error over the training rows of all sites, in standard deviations of the columns.
    history_ : list of dict
        One entry per round: ``bound``, the lower bound of the log-likelihood per patient (scaled columns) before it.
    n_features_in_ : int
        Number of columns of all views.

    Notes
    -----
    A missing view or entry at a site raises a DataError; FedMvPPCA accepts both. Training needs torch
    (``pip install 'multicentre[deep]'``); a fitted model works without it.

    References
    ----------
    Kingma and Welling, Auto-encoding variational Bayes, ICLR 2014. McMahan et al., Communication-efficient learning of
    deep networks from decentralized data, AISTATS 2017. Li et al., Federated optimization in heterogeneous networks,
    MLSys 2020. Compared method of Balelli, Silva and Lorenzi, IPMI 2021, section 4.

    Examples
    --------
    >>> from multicentre_papers.baselines.vae import FedVAE
    >>> FedVAE(n_components=5, proximal_penalty=0.1)
    FedVAE(n_components=5, proximal_penalty=0.1)
    """

    channel_per_view = False


class FedMCVAE(FederatedAutoEncoder):
    """Federated multi-channel variational auto-encoder with an encoder and a decoder per view.

    Every encoder's latent draw is decoded to all views; the lower bound is the mean over encoders. Parameters and
    attributes are those of :class:`FedVAE`. A patient's latent position is the mean over the encoders of the complete
    views, so a fitted model also accepts patients without some views. Training needs complete patients.

    References
    ----------
    Antelmi, Ayache, Robert and Lorenzi, Sparse multi-channel variational autoencoder for the joint analysis of
    heterogeneous data, ICML 2019, section 2 (without the dropout prior).

    Examples
    --------
    >>> from multicentre_papers.baselines.vae import FedMCVAE
    >>> FedMCVAE(n_components=5, hidden_layer_sizes=(20,))
    FedMCVAE(hidden_layer_sizes=(20,), n_components=5)
    """

    channel_per_view = True
