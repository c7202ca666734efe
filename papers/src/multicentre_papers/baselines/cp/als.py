"""CP-ALS: alternating least squares on pooled patients."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from multicentre.data.events.tensor import EventTensor
from multicentre.errors import ConfigurationError
from multicentre.estimator.parameters import SEED, Flag, Integer, ParameterRanges, Real
from multicentre.phenotyping.kernels.mttkrp import Floats, SparseTensor
from multicentre_papers.baselines.cp.maths import sweep_modes
from multicentre_papers.baselines.cp.pooled import PooledPhenotypes


class CPALS(PooledPhenotypes):
    """CANDECOMP/PARAFAC of pooled patients by alternating least squares.

    Pooled reference for federated fits of the same model. Each pass solves for the memberships and then for the factor
    of every mode. Each step keeps all other factors fixed and minimises the squared error over all cells.

    Parameters
    ----------
    rank : int, default 20
        Number of phenotypes; at most the number of codes of every mode.
    nonnegative : bool, default False
        Keep memberships and factors non-negative by coordinate descent (HALS). If False, the normal equations are
        solved, as in the paper's comparison; the signs of the phenotypes are then arbitrary.
    init : {"random"} or mapping of str to array of shape (codes, r), default "random"
        Initial factors: drawn from U(0, 1), or one array per mode (for example from another fit).
    max_iter : int, default 100
        Maximum number of passes over the modes.
    tol : float, default 1e-4
        The passes end when ``1 - ||O - X|| / ||O||`` changes by less than this; 0 runs all passes.
    n_sweeps : int, default 5
        Coordinate descent sweeps per factor (``nonnegative=True``).
    random_state : int, default 0
        Seed of the initial factors.

    References
    ----------
    .. [1] T. G. Kolda, B. W. Bader, "Tensor Decompositions and Applications", SIAM Review 51, 2009, section 3.4.
    .. [2] A. Cichocki, A.-H. Phan, "Fast Local Algorithms for Large Scale Nonnegative Matrix and Tensor
       Factorizations", IEICE Transactions on Fundamentals E92-A, 2009.

    Examples
    --------
    >>> import multicentre as mc
    >>> from multicentre_papers.baselines import CPALS
    >>> codes = {"procedure": ["p1", "p2"], "diagnosis": ["d1", "d2"]}
    >>> tensor = mc.data.EventTensor([[0, 0, 0], [1, 1, 1], [2, 1, 1]], [2.0, 1.0, 1.0], codes)
    >>> fit = CPALS(2, nonnegative=True).fit(tensor)
    >>> fit.memberships_.round(3).tolist()
    [[2.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """

    parameter_ranges: ClassVar[ParameterRanges] = {
        **dict.fromkeys(("rank", "max_iter", "n_sweeps"), Integer(1)),
        "nonnegative": Flag(),
        "tol": Real(0),
        "random_state": SEED,
    }

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
                f"The fit did not converge to tol={self.tol:g} within max_iter={self.max_iter} passes.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return factors

    def _start(self, data: EventTensor) -> list[Floats]:
        generator = np.random.default_rng(self.random_state)
        if self.init == "random":
            return [generator.random((len(names), self.rank)) for names in data.codes.values()]
        factors = self.init if isinstance(self.init, Mapping) else {}
        start = {mode: np.array(factor, dtype=np.float64) for mode, factor in factors.items()}
        expected = {mode: (len(names), self.rank) for mode, names in data.codes.items()}
        shapes = {mode: factor.shape for mode, factor in start.items()}
        if shapes != expected:
            raise ConfigurationError(
                f"init must be 'random' or arrays of the shapes {expected}; got {shapes or repr(self.init)}",
                where="init",
                hint="Pass one array per mode, with a row per code and a column per phenotype.",
            )
        return [start[mode] for mode in data.codes]
