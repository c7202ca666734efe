"""DPFact: phenotypes from the sparse tensors of many sites, after Ma et al. (CIKM 2019)."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from multicentre.core.messages import Nothing
from multicentre.core.noise_plan import Plan as NoisePlan
from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.errors import ConfigurationError
from multicentre.estimator.parameters import SEED, Applicable, Flag, Integer, OneOf, Only, ParameterRanges, Real, Where
from multicentre.estimator.saved import PLAIN, SavedAttributes
from multicentre.phenotyping.agreement import (
    Sizes,
    Vocabulary,
    agree_on_codes,
    check_codes,
    check_rank,
    steps_of_agreement,
)
from multicentre.phenotyping.dpfact import messages, private_rounds
from multicentre.phenotyping.dpfact import rounds as loops
from multicentre.phenotyping.dpfact.maths.local import largest_weight, warn_of_overshooting
from multicentre.phenotyping.dpfact.private_rounds import FitMechanism, PrivateTerms
from multicentre.phenotyping.dpfact.site import DPFactSite
from multicentre.phenotyping.fitted.fit_sums import FitSums
from multicentre.phenotyping.fitted.model import PhenotypeModel, warn_of_rare_codes
from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre.phenotyping.kernels.poisson import fit_rates

if TYPE_CHECKING:
    import pandas as pd

# Multiplicative steps for memberships of new patients. More steps come closer to the minimum and take longer.
N_RATE_STEPS = 100
Solver = Literal["stat", "poisson", "easgd", "psgd"]
_ALWAYS = frozenset({"describe", "agree", "begin", "sum_sizes", "sum_errors", "profile"})
_START = frozenset({"sum_cooccurrence", "multiply_cooccurrence"})
_ROUNDS = {
    "stat": frozenset({"fit_memberships", "sum_products"}),
    "poisson": frozenset({"fit_rates", "sum_ratios"}),
    "easgd": frozenset({"fit_locally"}),
    "psgd": frozenset({"pass_patients"}),
}


def _descends(model: DPFact) -> bool:
    """Return whether a fit with noise descends over patients."""
    return model.epsilon is not None and model.mechanism == "bolt-on"


class DPFact(PhenotypeModel):
    """Federated nonnegative tensor factorisation of patients' events, with or without differential privacy.

    The tensor of site t, patients by codes of two modes or more, is close to a sum of `rank` phenotypes:
    ``o_ijk ~ sum_r a_ir B_jr C_kr`` (equations 3 and 5). Sites share the feature factors B and C; memberships a stay
    at the site. Only sums over sites reach the coordinator.

    Parameters
    ----------
    rank : int, default 20
        Number of phenotypes, the paper's ``R``; at most the number of codes of every mode.
    solver : {"stat", "poisson", "easgd", "psgd"}, default "stat"
        ``"stat"``: alternating least squares on the whole tensor, zeros counted; products and Gram matrices add up over
        sites, so the fit equals the pooled fit up to rounding. ``"poisson"``: the same under the Poisson likelihood, by
        multiplicative updates; slower. ``"easgd"``: sites fit local factors near the global
        ones, which are averaged (equations 8 and 19 on the whole tensor); few rounds. ``"psgd"``: passes of stochastic
        gradient descent over patients, each clipped.
    init : {"both", "cooccurrence", "random"}, default "both"
        Starts. ``"cooccurrence"``: the factorised sum of the sites' co-occurrences of codes. ``"random"``: factors from
        U(0, 1). ``"both"``: the former once and the latter ``n_starts - 1`` times; with `epsilon` the former only.
    n_starts : int, default 5
        Number of starts with ``init="both"`` and ``"random"``. Five rounds are run from each, and the one with the
        lowest loss is continued. Errors of local minima differ by several percent, for real codes more than for
        simulated ones. It is also the number of factorisations of the co-occurrences at the coordinator, which need no
        request. A fit with `epsilon` has no other, because every start that is tried at the sites would spend budget.
    sparsity : float, default 0
        ``mu_0`` of the group lasso (equation 9), by which phenotypes that a site lacks become zero there; multiplied by
        the root of the number of the site's patients. 0.06 recovered absent phenotypes of simulated data.
    max_iter : int, default 500
        Maximum number of rounds, the paper's ``E``, without those of the trials of starts. Real codes took 20 to 300
        rounds to the default `tol`.
    n_passes : int, default 2
        Local passes per round, the paper's ``tau`` (all but ``"stat"``).
    n_sweeps : int, default 5
        Sweeps of coordinate descent for each least-squares problem.
    elastic_penalty : float, default 1
        Penalty of ``"easgd"`` on the distance between local and global factors, in units of the mean curvature.
    elastic_weight : float, default 0.9
        ``alpha``: fraction of the way to the mean of the sites that the global factors move (equation 19, where it is
        eta gamma T); below 2, and up to 1 without overshooting.
    tol : float, default 1e-4
        Rounds end when the released factors change by less than this, relatively.
    nonnegative : bool, default True
        Keep factors at or above zero. The paper does not enforce it; tables of codes with negative weights are hard to
        interpret.
    vocabulary : mapping of str to sequence of str, optional
        Public list of codes by mode. Without it, sites name the codes that at least `min_code_patients` of their
        patients have.
    n_codes : mapping of str to int, optional
        Number of codes to keep by mode: those that most patients have.
    min_code_patients : int, default 10
        Without a `vocabulary`: a site names a code that at least this number of its patients have. A code that one site
        names is used at all sites, however few patients have it there. Under a policy with a minimum, a site uses 10 or
        its `min_patients`, whichever is larger, and refuses a larger number.
    track_errors : bool, default False
        Request both errors after every round, for learning curves.
    epsilon : float, optional
        Fit with (`epsilon`, `delta`)-differential privacy; needs `vocabulary`.
    delta : float, default 1e-5
        Probability with which `epsilon` may fail; well below one over the number of patients.
    mechanism : {"dp-als", "bolt-on"}, default "dp-als"
        ``"dp-als"``: ``"stat"`` with noised sums of clipped statistics (recommended). ``"bolt-on"``: ``"psgd"`` with
        noised factors after clipped passes over patients.
    unit : {"patient", "entry"}, default "patient"
        Privacy unit. The guarantee for a patient implies that for an entry; the noise is the same.
    n_private_rounds : int, default 1
        With `epsilon`: number of noised rounds after the start, each with one release per mode. More than two rounds
        leave too little of the budget for each.
    public_site_size : int, optional
        Approximate number of patients per site, from public knowledge and never from the data. ``"bolt-on"`` requires
        it for the learning rate. If it is set, a fit warns of too much noise before the first request.
    random_state : int, default 0
        Seed of starts and orders; the noise of differential privacy never comes from it.

    Attributes
    ----------
    history_ : list of dict
        By round: root mean squared error over all cells per root of the entries (``rmse``; ``"stat"``), relative change
        of the factors, and with `track_errors` the error at entries above zero.
    starts_ : list of dict
        By start that was tried: ``start`` (``"cooccurrence"`` or ``"random"``), ``loss`` after the trial (as in
        `history_`), ``rounds`` and ``is_chosen``; empty with a single start.
    rare_codes_ : dict of str to float or None
        ``entries``: share of the entries that the list of codes leaves out, over all sites. ``codes``: share of an
        average site's codes. None with a public `vocabulary`, and if a site refuses the counts.
    dp_valid_ : bool
        Whether the fit is differentially private: False without `epsilon`.
    noise_signal_ : float or None
        Patients per phenotype over the noise of a private fit, estimated from the first noised sum (``"bolt-on"`` from
        random factors: expected for `public_site_size`); None without `epsilon`. Below 100 the fit issues a
        `NoiseWarning`.

    Warns
    -----
    ConvergenceWarning
        The rounds ended at `max_iter`.
    RareCodesWarning
        Without `vocabulary` and `n_codes`, more than a tenth of the entries have a code that no site named.

    Notes
    -----
    In a private fit, ``weights_`` are computed from noised sums, in units of the clip (``"dp-als"``) or of the initial
    co-occurrences (``"bolt-on"``). ``n_patients_`` is NaN because it is not requested, and ``members_`` and
    ``reconstruction_errors_`` are None. All rounds are run, regardless of `tol`.

    References
    ----------
    .. [1] J. Ma, Q. Zhang, J. Lou, J. C. Ho, L. Xiong, X. Jiang, "Privacy-Preserving Tensor Factorization for
       Collaborative Health Data Analysis", CIKM 2019.

    Examples
    --------
    >>> import multicentre as mc
    >>> events = mc.datasets.simulate_planted(600, n_sites=3, random_state=0)
    >>> sites = {name: events.tensor.take(events.sites == name) for name in set(events.sites)}
    >>> model = mc.phenotyping.DPFact(rank=3, vocabulary=events.tensor.codes, tol=0.05)
    >>> model = model.fit(mc.Federation.in_process(sites))
    >>> model.weights_.shape, model.dp_valid_
    ((3,), False)
    """

    site_part: ClassVar[type[DPFactSite]] = DPFactSite
    parameter_ranges: ClassVar[ParameterRanges] = {
        "rank": Integer(1),
        "solver": OneOf("stat", "poisson", "easgd", "psgd"),
        "init": OneOf("both", "cooccurrence", "random"),
        **dict.fromkeys(("sparsity", "elastic_penalty", "tol"), Real(0)),
        **dict.fromkeys(("n_starts", "max_iter", "n_passes", "n_sweeps", "n_private_rounds"), Integer(1)),
        "elastic_weight": Real(0, largest_weight(1.0), open="both"),
        **dict.fromkeys(("nonnegative", "track_errors"), Flag()),
        **dict.fromkeys(
            ("vocabulary", "n_codes"), (None, Where("a mapping", lambda value: isinstance(value, Mapping)))
        ),
        "min_code_patients": Integer(0),
        "epsilon": (None, Real(0, open="low")),
        "delta": Real(0, 1, open="both"),
        "mechanism": OneOf("dp-als", "bolt-on"),
        "unit": OneOf("patient", "entry"),
        "public_site_size": (None, Integer(1)),
        "random_state": SEED,
    }
    applicable: ClassVar[Applicable] = {
        "sparsity": Only('solver other than "poisson"', lambda model: model.solver != "poisson"),
        "n_passes": Only(
            'solver "easgd" or "psgd"', lambda model: model.solver in ("easgd", "psgd") or _descends(model)
        ),
        **dict.fromkeys(
            ("elastic_penalty", "elastic_weight"), Only('solver="easgd"', lambda model: model.solver == "easgd")
        ),
        "min_code_patients": Only("vocabulary=None", lambda model: model.vocabulary is None),
        **dict.fromkeys(
            ("delta", "mechanism", "unit", "n_private_rounds", "public_site_size"),
            Only("epsilon", lambda model: model.epsilon is not None),
        ),
    }
    saved_attributes: ClassVar[SavedAttributes] = {
        **PhenotypeModel.saved_attributes,
        **dict.fromkeys(("noise_signal_", "starts_", "rare_codes_"), PLAIN),
    }
    noise_signal_: float | None
    starts_: list[dict[str, Any]]
    rare_codes_: dict[str, float] | None

    def __init__(
        self,
        rank: int = 20,
        *,
        solver: Solver = "stat",
        init: Literal["both", "cooccurrence", "random"] = "both",
        n_starts: int = 5,
        sparsity: float = 0.0,
        max_iter: int = 500,
        n_passes: int = 2,
        n_sweeps: int = 5,
        elastic_penalty: float = 1.0,
        elastic_weight: float = 0.9,
        tol: float = 1e-4,
        nonnegative: bool = True,
        vocabulary: Mapping[str, Sequence[str]] | None = None,
        n_codes: Mapping[str, int] | None = None,
        min_code_patients: int = 10,
        track_errors: bool = False,
        epsilon: float | None = None,
        delta: float = 1e-5,
        mechanism: FitMechanism = "dp-als",
        unit: Literal["patient", "entry"] = "patient",
        n_private_rounds: int = 1,
        public_site_size: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.rank = rank
        self.solver = solver
        self.init = init
        self.n_starts = n_starts
        self.sparsity = sparsity
        self.max_iter = max_iter
        self.n_passes = n_passes
        self.n_sweeps = n_sweeps
        self.elastic_penalty = elastic_penalty
        self.elastic_weight = elastic_weight
        self.tol = tol
        self.nonnegative = nonnegative
        self.vocabulary = vocabulary
        self.n_codes = n_codes
        self.min_code_patients = min_code_patients
        self.track_errors = track_errors
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism = mechanism
        self.unit = unit
        self.n_private_rounds = n_private_rounds
        self.public_site_size = public_site_size
        self.random_state = random_state

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may request from a site."""
        if self._is_private:
            return self._private_terms().planned_steps
        steps = _ALWAYS | _ROUNDS.get(self.solver, frozenset()) | steps_of_agreement(self.vocabulary, self.n_codes)
        if self.vocabulary is None:
            steps |= {"count_rare_codes"}
        return steps if self.init == "random" else steps | _START

    def privacy_plan(self) -> NoisePlan | None:
        """Return the noise of every release of a fit with `epsilon`; None without it."""
        return self._private_terms().plan if self._is_private else None

    @property
    def n_rounds_sent_(self) -> int:
        """Rounds of matrices that the fit exchanged, with those of the trials of starts."""
        return self.n_iter_ + sum(int(start["rounds"]) for start in self.starts_)

    def bytes_per_round(self) -> tuple[int, int] | None:
        """Return the bytes of matrices per round, to and from a site; None for a private fit."""
        check_is_fitted(self, "factors_")
        if self._is_private:
            return None
        factors = sum(factor.nbytes for factor in self.factors_.values())
        r = self.rank_
        more = {"stat": r**2 + 2, "poisson": r + 2, "easgd": r, "psgd": 0}[self.solver]
        n_requests = len(self.factors_) if self.solver == "psgd" else 1
        return n_requests * factors, factors + 8 * more

    def privacy_lines(self) -> list[tuple[str, str]]:
        """Return the guarantee of the fit and the size of the noise, with their subjects; empty without `epsilon`."""
        check_is_fitted(self, "factors_")
        lines = super().privacy_lines()
        signal = self.noise_signal_
        if signal is not None and math.isfinite(signal):
            ratio = (
                f"{max(signal, 0.0):.0f} per phenotype; {private_rounds.CLEAR_SIGNAL:.0f} or more suffice, below "
                f"{private_rounds.USABLE_SIGNAL:.0f} phenotypes cannot be distinguished from the noise"
            )
            lines.append(("patients over noise", ratio))
        return lines

    def profile_sites(self) -> pd.DataFrame:
        """Request the size of each phenotype at every site; the answers are not terms of a sum.

        Returns
        -------
        DataFrame
            Root mean square membership, one row per site and one column per phenotype (numbered from 1, by weight);
            missing if fewer than ten of the site's patients, or fewer than its policy requires, have the phenotype, and
            if the site refuses, with its reason in ``attrs["refused"]`` of the frame.

        Raises
        ------
        ConfigurationError
            The fit has an `epsilon`, whose noise does not cover these answers.
        NotFittedError
            The sites of the fit are not available.
        """
        import pandas as pd

        check_is_fitted(self, "factors_")
        if self.epsilon is not None:
            raise ConfigurationError(
                f"epsilon must be None for profile_sites; got {self.epsilon}",
                where="profile_sites",
                hint="Let each site look at model.transform of its own patients.",
            )
        answers = self.session.ask(self.site_part.profile, messages.Penalty(float(self.sparsity)), skip_refusals=True)
        lengths = {site: answer.lengths[self._order] for site, answer in answers.items()}
        frame = pd.DataFrame.from_dict(lengths, orient="index", columns=range(1, self.rank_ + 1))
        frame = frame.where(frame > 0).reindex(self.session.sites)
        frame.attrs["refused"] = answers.refused
        return frame.rename_axis(index="site", columns="phenotype")

    def _memberships(self, tensor: SparseTensor) -> loops.Floats:
        if self.solver != "poisson":
            return super()._memberships(tensor)
        start = np.ones((tensor.shape[0], self.rank_))
        return fit_rates(tensor, list(self.factors_.values()), start, N_RATE_STEPS)

    @property
    def dp_valid_(self) -> bool:
        """True if the fit is differentially private."""
        check_is_fitted(self, "factors_")
        return self.privacy_ is not None

    @property
    def _is_private(self) -> bool:
        return self.epsilon is not None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_codes(self.vocabulary, self.n_codes)
        if not self.nonnegative and self.solver != "stat":
            raise ConfigurationError(
                f"nonnegative must be True with solver={self.solver!r}; got {self.nonnegative}",
                where="nonnegative",
                hint="Only solver='stat' fits factors of any sign.",
            )
        warn_of_overshooting(self.elastic_weight)
        if self._is_private:
            private_rounds.check_parameters(self.get_params(deep=False))

    def _fit(self, session: Session) -> None:
        before = copy.deepcopy(session.traffic)
        self.noise_signal_, self.starts_, self.rare_codes_ = None, [], None
        if self._is_private:
            self._fit_private(session)
            self._note_traffic(session, before)
            return
        vocabulary = session.once("codes", Vocabulary, lambda: self._agree(session))
        self._count_rare_codes(session)
        sizes = session.once("sizes", Sizes, lambda: session.sum(self.site_part.sum_sizes, Nothing()))
        plan = self._plan(vocabulary, sizes.n_patients / len(session.sites))
        start = session.once("start", messages.Factors, lambda: self._start(session, plan, sizes))
        rounds = self._run(session, plan, start)
        self._note_rounds(rounds, settled=rounds.stopped, max_iter=self.max_iter, tol=self.tol)
        self._describe(session, plan, rounds.state.factors)
        self._note_traffic(session, before)

    def _agree(self, session: Session) -> Vocabulary:
        vocabulary = agree_on_codes(
            session,
            self.site_part,
            vocabulary=self.vocabulary,
            n_codes=self.n_codes,
            fewest=int(self.min_code_patients),
        )
        check_rank(self.rank, vocabulary.sizes)
        session.ask(self.site_part.agree, messages.Prepared(vocabulary.codes))
        return vocabulary

    def _count_rare_codes(self, session: Session) -> None:
        """Store the share of entries and codes that the sites' list of codes leaves out; warn of a large share."""
        if self.vocabulary is not None:
            return
        sums = session.once("rare-codes", messages.RareCodes, lambda: loops.ask_for_rare_codes(session))
        if sums.n_entries > 0:
            entries, codes = sums.n_entries_left_out / sums.n_entries, sums.n_codes_left_out / sums.n_codes
            self.rare_codes_ = {"entries": entries, "codes": codes}
            if self.n_codes is None:
                warn_of_rare_codes(entries, codes, int(self.min_code_patients))

    def _start(self, session: Session, plan: loops.Plan, sizes: Sizes) -> messages.Factors:
        from_cooccurrence = self.init != "random"
        n_trials = 1 if self.init == "cooccurrence" else plan.n_starts
        if n_trials == 1:
            return loops.begin(
                session, plan, loops.find_start(session, plan) if from_cooccurrence else loops.draw_start(plan)
            )
        trials = loops.choose_start(session, plan, loops.TURNS[self.solver], from_cooccurrence=from_cooccurrence)
        self._note_starts(trials)
        return loops.begin(session, plan, trials.state)

    def _note_starts(self, trials: Rounds[messages.Trial]) -> None:
        self.starts_ = [
            {
                "start": "random" if entry["random"] else "cooccurrence",
                "loss": entry["loss"],
                "rounds": int(entry["rounds"]),
                "is_chosen": entry["loss"] == trials.state.loss,
            }
            for entry in trials.history
        ]

    def _remarks(self) -> str:
        if not self.rare_codes_:
            return super()._remarks()
        entries, codes = (100 * self.rare_codes_[name] for name in ("entries", "codes"))
        share = f"Codes not on the list have {entries:.0f} % of the entries; they are {codes:.0f} % of a site's codes."
        return " ".join(filter(None, (super()._remarks(), share)))

    def _run(self, session: Session, plan: loops.Plan, start: messages.Factors) -> Rounds[messages.Factors]:
        return loops.repeat(session, plan, start, loops.TURNS[self.solver])

    def _fit_private(self, session: Session) -> None:
        result = private_rounds.fit(session, self._private_terms())
        self._set_factors(result.rounds.state.factors, result.rounds.state.weights, result.vocabulary.codes)
        self.history_ = result.rounds.history
        self.converged_ = True
        self.members_, self.reconstruction_errors_, self.n_patients_ = None, None, math.nan
        self.noise_signal_ = result.signal

    def _private_terms(self) -> PrivateTerms:
        parameters = self.get_params(deep=False)
        self._check_parameters()
        return PrivateTerms(
            **{name: parameters[name] for name in ("epsilon", "delta", "unit", "mechanism", "vocabulary", "n_codes")},
            rank=int(self.rank),
            from_cooccurrence=self.init != "random",
            n_starts=int(self.n_starts),
            n_rounds=int(self.n_private_rounds),
            n_passes=int(self.n_passes),
            n_sweeps=int(self.n_sweeps),
            site_size=self.public_site_size,
            seed=int(self.random_state),
        )

    def _describe(self, session: Session, plan: loops.Plan, factors: Mapping[str, loops.Floats]) -> None:
        self._order = self._take_fit(factors, plan.vocabulary.codes, self._errors(session, plan, factors))

    def _errors(self, session: Session, plan: loops.Plan, factors: Mapping[str, loops.Floats]) -> FitSums:
        return loops.ask_for_errors(session, plan, factors, keep=True)

    def _plan(self, vocabulary: Vocabulary, site_size: float) -> loops.Plan:
        return loops.Plan(
            vocabulary=vocabulary,
            rank=int(self.rank),
            n_starts=int(self.n_starts),
            max_iter=int(self.max_iter),
            tol=self.tol,
            n_passes=int(self.n_passes),
            n_sweeps=int(self.n_sweeps),
            sparsity=self.sparsity,
            elastic_penalty=self.elastic_penalty,
            weight=self.elastic_weight,
            nonnegative=self.nonnegative,
            track_errors=self.track_errors,
            poisson=self.solver == "poisson",
            site_size=site_size,
            seed=int(self.random_state),
        )
