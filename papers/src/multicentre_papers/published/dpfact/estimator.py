"""DPFact as it was published, after Ma et al. (CIKM 2019)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.errors import ConfigurationError
from multicentre.estimator.parameters import Applicable, ParameterRanges, Real
from multicentre.phenotyping import DPFact
from multicentre.phenotyping.agreement import Sizes, Vocabulary, steps_of_agreement
from multicentre.phenotyping.dpfact import rounds as loops
from multicentre.phenotyping.dpfact.messages import Factors
from multicentre.phenotyping.dpfact.site import DPFactSite
from multicentre.phenotyping.fitted.fit_sums import FitSums
from multicentre_papers.entry_descent import MaskedLossWarning, draw_scaled
from multicentre_papers.published.dpfact.maths import claimed_epsilon, published_noise
from multicentre_papers.published.dpfact.messages import BeginDrawn
from multicentre_papers.published.dpfact.rounds import PublishedPlan, fit_entries
from multicentre_papers.published.dpfact.site import PUBLISHED_STEPS, AsPublishedSite

# Parameters with the ranges of DPFact.
_SHARED_PARAMETERS = (
    *(
        "rank",
        "sparsity",
        "max_iter",
        "n_passes",
        "elastic_penalty",
        "elastic_weight",
        "tol",
        "nonnegative",
        "vocabulary",
    ),
    *("n_codes", "min_code_patients", "track_errors", "epsilon", "delta", "random_state"),
)


class ClaimWarning(UserWarning):
    """A privacy claim lacks a valid proof."""


class DPFactAsPublished(DPFact):
    """DPFact by stochastic gradient descent over the entries above zero, as published, with its errata corrected.

    For comparison with the publication only: a constant tensor nearly minimises the loss, so that the fit finds no
    phenotypes. Use :class:`multicentre.phenotyping.DPFact` instead.

    Parameters
    ----------
    rank : int, default 20
        Number of phenotypes, the paper's ``R``; at most the number of codes of every mode.
    sparsity : float, default 0
        The paper's ``mu``, the weight of the group lasso.
    max_iter : int, default 30
        The paper's ``E``.
    n_passes : int, default 2
        Local passes per round, the paper's ``tau``.
    elastic_penalty : float, default 1
        The paper's ``gamma``, the weight of the elastic term.
    elastic_weight : float, default 0.9
        ``alpha``: fraction of the way to the mean of the sites that the global factors move; below 2.
    learning_rate : float, default 0.01
        The paper's ``eta``.
    tol : float, default 1e-4
        Rounds end when the factors change by less than this, relatively.
    nonnegative : bool, default True
        Keep factors at or above zero. The paper's algorithm does not.
    vocabulary : mapping of str to sequence of str, optional
        Codes by mode; by default those that the sites agree on.
    n_codes : mapping of str to int, optional
        Number of the most frequent codes per mode.
    min_code_patients : int, default 10
        Minimum number of patients per code, over all sites.
    track_errors : bool, default False
        Sum the reconstruction error in every round.
    epsilon : float, optional
        Add the published noise for this epsilon. Its proof does not hold: the fit is not differentially private.
    delta : float, default 1e-5
        The paper's ``delta``.
    paper_lipschitz : float, optional
        The paper's ``L``, a bound of gradients that the published proof takes for granted. Required with `epsilon`.
    random_state : int, default 0
        Seed of starts and orders; the noise never comes from it.

    Attributes
    ----------
    epsilon_claimed_ : float or None
        Epsilon of the paper's formula for the rounds that were run. It is not a guarantee.
    dp_valid_ : bool
        False.

    References
    ----------
    J. Ma, Q. Zhang, J. Lou, J. C. Ho, L. Xiong, X. Jiang, "Privacy-Preserving Tensor Factorization for Collaborative
    Health Data Analysis", CIKM 2019.

    Examples
    --------
    >>> import warnings
    >>> import multicentre as mc
    >>> from multicentre_papers.published import DPFactAsPublished
    >>> events = mc.datasets.simulate_planted(600, n_sites=3, random_state=0)
    >>> sites = {name: events.tensor.take(events.sites == name) for name in set(events.sites)}
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # a constant tensor nearly minimises the loss
    ...     model = DPFactAsPublished(3, max_iter=2).fit(mc.Federation.in_process(sites))
    >>> model.dp_valid_
    False
    """

    site_part: ClassVar[type[DPFactSite]] = AsPublishedSite
    applicable: ClassVar[Applicable] = {}
    parameter_ranges: ClassVar[ParameterRanges] = {
        **{name: DPFact.parameter_ranges[name] for name in _SHARED_PARAMETERS},
        "learning_rate": Real(0),
        "paper_lipschitz": (None, Real(0, open="low")),
    }

    def __init__(
        self,
        rank: int = 20,
        *,
        sparsity: float = 0.0,
        max_iter: int = 30,
        n_passes: int = 2,
        elastic_penalty: float = 1.0,
        elastic_weight: float = 0.9,
        learning_rate: float = 0.01,
        tol: float = 1e-4,
        nonnegative: bool = True,
        vocabulary: Mapping[str, Sequence[str]] | None = None,
        n_codes: Mapping[str, int] | None = None,
        min_code_patients: int = 10,
        track_errors: bool = False,
        epsilon: float | None = None,
        delta: float = 1e-5,
        paper_lipschitz: float | None = None,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            rank,
            sparsity=sparsity,
            max_iter=max_iter,
            n_passes=n_passes,
            elastic_penalty=elastic_penalty,
            elastic_weight=elastic_weight,
            tol=tol,
            nonnegative=nonnegative,
            vocabulary=vocabulary,
            n_codes=n_codes,
            min_code_patients=min_code_patients,
            track_errors=track_errors,
            epsilon=epsilon,
            delta=delta,
            random_state=random_state,
        )
        self.learning_rate = learning_rate
        self.paper_lipschitz = paper_lipschitz

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may ask of a site."""
        always = PUBLISHED_STEPS - {"name_codes", "count_codes"}
        return always | steps_of_agreement(self.vocabulary, self.n_codes)

    def bytes_per_round(self) -> tuple[int, int]:
        """Return the bytes of matrices that one round sends to a site and receives from it."""
        factors = sum(factor.nbytes for factor in self.factors_.values())
        return factors, factors + 8  # the number of sites is a term of the sum

    def privacy_lines(self) -> list[tuple[str, str]]:
        """Return the epsilon of the published formula; nothing without `epsilon`."""
        lines, claimed = super().privacy_lines(), self.epsilon_claimed_
        if claimed is not None:
            claim = f"the published formula claims epsilon {claimed:.3g}; its proof does not hold: nothing is promised"
            lines.append(("no promise", claim))
        return lines

    @property
    def epsilon_claimed_(self) -> float | None:
        """Epsilon of the paper's formula for the rounds that were run."""
        if self.epsilon is None:
            return None
        return claimed_epsilon(self.epsilon, planned_rounds=int(self.max_iter), n_rounds=self.n_iter_)

    @property
    def _is_private(self) -> bool:
        return False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.epsilon is not None and self.paper_lipschitz is None:
            raise ConfigurationError(
                "paper_lipschitz must be a number with an epsilon; got None",
                where="paper_lipschitz",
                hint="Set a bound of gradients, such as 1; no number makes the published proof hold.",
            )
        if self.epsilon is not None:
            warnings.warn(
                "the published noise promises nothing: the gradients have no bound, memberships and factors that "
                "change with the data move together, and a site's state outlives its release. The result is not "
                "differentially private.",
                ClaimWarning,
                stacklevel=3,
            )
        warnings.warn(
            "DPFactAsPublished minimises a loss over entries above zero only, for which a constant tensor is nearly "
            "best: it finds no phenotypes. It is for comparison; use DPFact.",
            MaskedLossWarning,
            stacklevel=3,
        )

    def _count_rare_codes(self, session: Session) -> None:
        """Leave these counts out, which the published method does not have."""

    def _plan(self, vocabulary: Vocabulary, site_size: float) -> PublishedPlan:
        plan = super()._plan(vocabulary, site_size)
        noise_sd = self._published_noise(len(vocabulary.codes))
        return PublishedPlan(**vars(plan), learning_rate=self.learning_rate, noise_sd=noise_sd)

    def _published_noise(self, n_modes: int) -> float:
        if self.epsilon is None:
            return 0.0
        assert self.paper_lipschitz is not None  # checked with the parameters
        return published_noise(
            self.epsilon,
            self.delta,
            n_modes=n_modes,
            n_rounds=int(self.max_iter),
            n_passes=int(self.n_passes),
            step=self.learning_rate,
            lipschitz=self.paper_lipschitz,
        )

    def _start(self, session: Session, plan: loops.Plan, sizes: Sizes) -> Factors:
        """Draw factors and memberships whose predictions have the mean of the entries above zero."""
        n_codes_of = plan.vocabulary.sizes
        generator = np.random.default_rng(plan.seed)
        mean = sizes.total / sizes.n_entries
        (_, *drawn), largest = draw_scaled((0, *n_codes_of.values()), plan.rank, mean, generator)
        start = Factors(dict(zip(n_codes_of, drawn, strict=True)))
        session.ask(AsPublishedSite.begin_drawn, BeginDrawn(start.factors, plan.seed, largest))
        return start

    def _run(self, session: Session, plan: loops.Plan, start: Factors) -> Rounds[Factors]:
        assert isinstance(plan, PublishedPlan)  # _plan makes no other
        return fit_entries(session, plan, start)

    def _errors(self, session: Session, plan: loops.Plan, factors: Mapping[str, loops.Floats]) -> FitSums:
        return loops.ask_for_errors(session, plan, factors, refit=False, keep=True, part=AsPublishedSite)

    def _note_rounds(self, rounds: Rounds[Any], *, settled: bool, max_iter: int, tol: float) -> None:
        # The published algorithm runs a fixed number of epochs: one that has not settled is no cause for a warning.
        super()._note_rounds(rounds, settled=True, max_iter=max_iter, tol=tol)
