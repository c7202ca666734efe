"""CP-ALS: alternating least squares on pooled patients."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from multicentre.data.events.tensor import EventTensor
from multicentre.federation.errors import ConfigurationError
from multicentre.phenotyping.fitted.checks import check_flags, check_numbers, check_whole
from multicentre.phenotyping.kernels.mttkrp import Floats, SparseTensor
from multicentre_papers.baselines.cp.maths import sweep_modes
from multicentre_papers.baselines.cp.pooled import PooledPhenotypes

_WHOLE = {"rank": 1, "max_iter": 1, "n_sweeps": 1, "random_state": 0}


class CPALS(PooledPhenotypes):
    """CANDECOMP/PARAFAC by alternating least squares, of patients in one place.

    What the same model gives when the sites' rows may be pooled: a yardstick for federated fits, not a federation. Each
    pass solves for the memberships, then for the factor of every mode, with all others held, over all cells.

    Parameters
    ----------
    rank : int, default 20
        Phenotypes; at most the number of codes of every mode.
    nonnegative : bool, default False
        Keep memberships and factors at or above 0 by coordinate descent (HALS). Without it the normal equations are
        solved, as in the paper's comparison, and signs of phenotypes mean nothing.
    init : {"random"} or mapping of str to array of shape (codes, r), default "random"
        Where the factors begin: drawn from U(0, 1), or given by mode (those of another fit, say).
    max_iter : int, default 100
        Passes over the modes.
    tol : float, default 1e-4
        Passes end when ``1 - ||O - X|| / ||O||`` changes by less; 0 runs all of them.
    n_sweeps : int, default 5
        Sweeps of coordinate descent for each factor (``nonnegative=True``).
    random_state : int, default 0
        Seed of the start.

    References
    ----------
    .. [1] T. G. Kolda, B. W. Bader, "Tensor Decompositions and Applications", SIAM Review 51, 2009, section 3.4.
    .. [2] A. Cichocki, A.-H. Phan, "Fast Local Algorithms for Large Scale Nonnegative Matrix and Tensor
       Factorizations", IEICE Transactions on Fundamentals E92-A, 2009.

    Examples
    --------
    >>> codes = {"procedure": ["p1", "p2"], "diagnosis": ["d1", "d2"]}
    >>> tensor = EventTensor([[0, 0, 0], [1, 1, 1], [2, 1, 1]], [2.0, 1.0, 1.0], codes)
    >>> fit = CPALS(2, nonnegative=True).fit(tensor)
    >>> fit.memberships_.round(3).tolist()
    [[2.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """

    def __init__(
        self,
        rank: int = 20,
        *,
        nonnegative: bool = False,
        init: str | Mapping[str, ArrayLike] = "random",
        max_iter: int = 100,
        tol: float = 1e-4,
        n_sweeps: int = 5,
        random_state: int = 0,
    ) -> None:
        self.rank = rank
        self.nonnegative = nonnegative
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.n_sweeps = n_sweeps
        self.random_state = random_state

    def _check(self) -> None:
        given = self.get_params(deep=False)
        check_whole(given, _WHOLE)
        check_numbers(given, least={"tol": 0.0})
        check_flags(given, "nonnegative")

    def _factorise(self, data: EventTensor, tensor: SparseTensor) -> Sequence[Floats]:
        factors: Sequence[Floats] = [np.ones((len(data), self.rank)), *self._start(data)]
        fit, self.converged_ = 0.0, False
        for number in range(self.max_iter):
            factors, error = sweep_modes(tensor, factors, nonnegative=self.nonnegative, n_sweeps=self.n_sweeps)
            self._note(tensor, factors, error)
            before, fit = fit, 1.0 - float(np.sqrt(error / tensor.norm_squared))
            if number and abs(fit - before) < self.tol:
                self.converged_ = True
                break
        if not self.converged_ and self.tol:
            warnings.warn(
                f"the passes ended at max_iter={self.max_iter} before the fit settled to tol={self.tol:g}.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return factors

    def _start(self, data: EventTensor) -> list[Floats]:
        generator = np.random.default_rng(self.random_state)
        if self.init == "random":
            return [generator.random((len(names), self.rank)) for names in data.codes.values()]
        given = self.init if isinstance(self.init, Mapping) else {}
        start = {mode: np.array(factor, dtype=np.float64) for mode, factor in given.items()}
        expected = {mode: (len(names), self.rank) for mode, names in data.codes.items()}
        if {mode: factor.shape for mode, factor in start.items()} != expected:
            raise ConfigurationError(
                "the start does not fit the tensor",
                where="init",
                hint='Use "random", or give one array a mode with a row for each code and a column for each phenotype.',
            )
        return [start[mode] for mode in data.codes]
