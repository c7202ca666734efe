"""TRIP: phenotypes from the sparse tensors of many sites, after Kim et al. (KDD 2017)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from multicentre.core.messages import Nothing
from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.core.steps import SitePart
from multicentre.estimator.parameters import SEED, Flag, Integer, ParameterRanges, Real, Where
from multicentre.phenotyping.agreement import (
    Sizes,
    Vocabulary,
    agree_on_codes,
    check_codes,
    check_rank,
    steps_of_agreement,
)
from multicentre.phenotyping.fitted.fit_sums import MEMBER_SHARE, FitSums
from multicentre.phenotyping.fitted.model import PhenotypeModel
from multicentre.phenotyping.kernels.factors import Factors, draw_factors, normalise_columns, relative_change
from multicentre.phenotyping.kernels.mttkrp import Floats, SparseTensor
from multicentre_papers.baselines.trip import messages
from multicentre_papers.baselines.trip.maths import agree_on_factors, penalty_of_round
from multicentre_papers.baselines.trip.site import TRIPSite

# The default penalty is a twentieth of the sum of squared counts per site and phenotype.
PENALTY_DIVISOR = 20.0


class TRIP(PhenotypeModel):
    """Federated tensor factorisation by the alternating direction method of multipliers.

    Every site fits separate factors; a penalty and multipliers draw them to the consensus, which the coordinator
    averages. Per mode the coordinator sends the consensus, and each site returns its factor and its multiplier as terms
    of sums. That is 3 numbers per code, phenotype, site and round; :class:`DPFact` with ``solver="stat"`` needs 2.
    TRIP is a comparison method: it has no differential privacy. The rank-one bias tensor of the authors' release is
    left out.

    Parameters
    ----------
    rank : int, default 20
        Number of phenotypes; at most the number of codes of every mode.
    penalty : float, optional
        ``w`` of the first round, above 0. It competes with the curvature of a site: twice the squared length of the
        memberships in a phenotype, which grows with the number of patients. It must be tuned. If it is far too small,
        the sites converge to different factors; if it is far too large, the factors stay at their initial values. By
        default a twentieth of the sum of all squared counts, divided by the numbers of sites and phenotypes.
    growth : float, default 1.1
        Factor by which the penalty grows per round, up to 1e10. Growth ends the fit regardless of its quality; 1 keeps
        the penalty constant.
    distinct : float, default 0
        ``lambda_q``: weight of ``||B'B - I||^2`` in the first mode, which keeps phenotypes distinct. One B is that of
        the previous round, so the update is a Sylvester equation.
    cap : int, optional
        Upper limit of the counts in the fit, in `reconstruction_errors_` and in later fits of memberships.
        :meth:`assess` compares with the original counts, as for other methods. The authors' release uses 3.
    max_iter : int, default 100
        Maximum number of rounds.
    tol : float, default 1e-4
        The rounds end when the relative change of the consensus is below this.
    nonnegative : bool, default True
        Project the consensus onto Z >= 0 and fit memberships within A >= 0; the factors of the sites stay free. The
        authors leave all of them free; negative weights make the tables of codes unreadable.
    n_sweeps : int, default 5
        Coordinate descent sweeps for non-negative memberships.
    vocabulary : mapping of str to sequence of str, optional
        Public list of codes per mode. Without it, every site names the codes that at least `min_code_patients` of its
        patients have.
    n_codes : mapping of str to int, optional
        Number of codes to keep per mode: those with the most patients.
    min_code_patients : int, default 10
        Without a `vocabulary`: a site names a code that at least this number of its patients have. A code that one site
        names counts at all sites, regardless of its number of patients there. Under a policy with a minimum, a site
        uses the larger of 10 and its `min_patients`, and refuses a larger number.
    track_errors : bool, default False
        Request both errors after every round, for learning curves.
    random_state : int, default 0
        Seed of the initial factors: U(0, 1), scaled to columns of unit length; the same at every site.

    Attributes
    ----------
    history_ : list of dict
        One entry per round: relative change of the consensus (``change``), relative distance of the sites' mean factors
        to it (``gap``), and ``penalty``. With `track_errors` also ``rmse`` and ``rmse_at_entries``.

    References
    ----------
    .. [1] Y. Kim, J. Sun, H. Yu, X. Jiang, "Federated Tensor Factorization for Computational Phenotyping", KDD 2017.

    Examples
    --------
    >>> import multicentre as mc
    >>> from multicentre_papers.baselines import TRIP
    >>> events = mc.datasets.simulate_planted(600, n_sites=3, random_state=0)
    >>> sites = {name: events.tensor.take(events.sites == name) for name in set(events.sites)}
    >>> TRIP(3, tol=0.5).fit(mc.Federation.in_process(sites)).converged_
    True
    """

    site_part: ClassVar[type[SitePart]] = TRIPSite
    parameter_ranges: ClassVar[ParameterRanges] = {
        **dict.fromkeys(("rank", "max_iter", "n_sweeps"), Integer(1)),
        "penalty": (None, Real(0, open="low")),
        "growth": Real(1),
        **dict.fromkeys(("distinct", "tol"), Real(0)),
        "cap": (None, Integer(1)),
        **dict.fromkeys(("nonnegative", "track_errors"), Flag()),
        **dict.fromkeys(
            ("vocabulary", "n_codes"), (None, Where("a mapping", lambda value: isinstance(value, Mapping)))
        ),
        "min_code_patients": Integer(0),
        "random_state": SEED,
    }

    def __init__(
        self,
        rank: int = 20,
        *,
        penalty: float | None = None,
        growth: float = 1.1,
        distinct: float = 0.0,
        cap: int | None = None,
        max_iter: int = 100,
        tol: float = 1e-4,
        nonnegative: bool = True,
        n_sweeps: int = 5,
        vocabulary: Mapping[str, Sequence[str]] | None = None,
        n_codes: Mapping[str, int] | None = None,
        min_code_patients: int = 10,
        track_errors: bool = False,
        random_state: int = 0,
    ) -> None:
        self.rank = rank
        self.penalty = penalty
        self.growth = growth
        self.distinct = distinct
        self.cap = cap
        self.max_iter = max_iter
        self.tol = tol
        self.nonnegative = nonnegative
        self.n_sweeps = n_sweeps
        self.vocabulary = vocabulary
        self.n_codes = n_codes
        self.min_code_patients = min_code_patients
        self.track_errors = track_errors
        self.random_state = random_state

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters can request from a site."""
        always = frozenset({"describe", "agree", "begin", "sum_sizes", "fit_near_consensus", "sum_errors"})
        return always | steps_of_agreement(self.vocabulary, self.n_codes)

    def bytes_per_round(self) -> tuple[int, int]:
        """Return the bytes of matrices that one round sends to a site and receives from it."""
        factors = sum(factor.nbytes for factor in self.factors_.values())
        return factors, 2 * factors

    def _fit(self, session: Session) -> None:
        before = copy.deepcopy(session.traffic)
        vocabulary = session.once("codes", Vocabulary, lambda: self._agree(session))
        sizes = session.once("sizes", Sizes, lambda: session.sum(TRIPSite.sum_sizes, Nothing()))
        start = session.once("start", messages.Draw, lambda: self._start(session, vocabulary, sizes))
        rounds = self._run(session, start)
        self._note_rounds(rounds, settled=rounds.stopped, max_iter=self.max_iter, tol=self.tol)
        self._describe(session, rounds.state.factors, vocabulary)
        self._note_traffic(session, before)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_codes(self.vocabulary, self.n_codes)

    def _agree(self, session: Session) -> Vocabulary:
        vocabulary = agree_on_codes(
            session,
            TRIPSite,
            vocabulary=self.vocabulary,
            n_codes=self.n_codes,
            fewest=int(self.min_code_patients),
        )
        check_rank(self.rank, vocabulary.sizes)
        session.ask(TRIPSite.agree, messages.Prepared(vocabulary.codes, int(self.cap or 0)))
        return vocabulary

    def _start(self, session: Session, vocabulary: Vocabulary, sizes: Sizes) -> messages.Draw:
        factors = draw_factors(vocabulary.sizes, int(self.rank), int(self.random_state))
        begin = messages.Begin(
            factors,
            distinct=float(self.distinct),
            nonnegative=self.nonnegative,
            n_sweeps=int(self.n_sweeps),
        )
        session.ask(TRIPSite.begin, begin)
        default = sizes.squares / (PENALTY_DIVISOR * len(session.sites) * self.rank)
        return messages.Draw(factors, float(default if self.penalty is None else self.penalty))

    def _run(self, session: Session, start: messages.Draw) -> Rounds[messages.Consensus]:
        rounds = session.rounds(int(self.max_iter), messages.Consensus, lambda: messages.Consensus(start.factors))
        for number in rounds:
            before = rounds.state
            penalty = penalty_of_round(start.penalty, self.growth, number)
            terms = session.sum(TRIPSite.fit_near_consensus, messages.Draw(before.factors, penalty))
            agreed = agree_on_factors(
                terms.factors, terms.multipliers, terms.sites, penalty, nonnegative=self.nonnegative
            )
            # Restore the order of the agreed codes: a masked sum has its modes in alphabetical order.
            factors = {mode: agreed[mode] for mode in before.factors}
            mean = {mode: terms.factors[mode] / terms.sites for mode in factors}
            rounds.state = messages.Consensus(factors)
            rounds.record(
                change=relative_change(factors, before.factors), gap=relative_change(mean, factors), penalty=penalty
            )
            if self.track_errors:
                rounds.record(**self._errors_of_round(session, factors))
            if rounds.metrics["change"] < self.tol:
                rounds.stop()
        return rounds

    def _errors_of_round(self, session: Session, factors: Factors) -> dict[str, float]:
        errors = self._request_errors(session, _unit_columns(factors))
        return {
            "rmse": float(np.sqrt(max(errors.error, 0.0) / errors.n_entries)),
            "rmse_at_entries": float(np.sqrt(errors.error_at_entries / errors.n_entries)),
        }

    def _request_errors(self, session: Session, factors: dict[str, Floats]) -> FitSums:
        return session.sum(TRIPSite.sum_errors, messages.Final(factors, MEMBER_SHARE, 2 * int(self.n_sweeps)))

    def _describe(self, session: Session, factors: Factors, vocabulary: Vocabulary) -> None:
        units = _unit_columns(factors)
        self._take_fit(units, vocabulary.codes, self._request_errors(session, units))

    def _memberships(self, tensor: SparseTensor) -> Floats:
        if self.cap is not None:
            tensor = SparseTensor(tensor.coordinates, np.minimum(tensor.counts, float(self.cap)), tensor.shape)
        return super()._memberships(tensor)


def _unit_columns(factors: Factors) -> dict[str, Floats]:
    return {mode: normalise_columns(factor)[0] for mode, factor in factors.items()}
