"""CP-SGD: stochastic gradient descent over the positive entries of pooled patients."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from multicentre.data.events.tensor import EventTensor
from multicentre.estimator.parameters import SEED, Flag, Integer, OneOf, ParameterRanges, Real
from multicentre.phenotyping.kernels.hals import squared_error
from multicentre.phenotyping.kernels.mttkrp import Floats, SparseTensor
from multicentre_papers.baselines.cp.maths import order_by_patient
from multicentre_papers.baselines.cp.pooled import PooledPhenotypes
from multicentre_papers.entry_descent import MaskedLossWarning, draw_scaled, pass_entries, require_finite_descent


class CPSGD(PooledPhenotypes):
    """CANDECOMP/PARAFAC of pooled patients by stochastic gradient descent over entries.

    Pooled reference: the paper's descent (equations 13, 16 and 17) with one site, without elastic term and without
    group lasso. It minimises the squared error at the positive entries only, for which a constant tensor is nearly
    optimal. The fit memorises entries, is far worse than the zero model over all cells and recovers no phenotypes.
    Use it for comparison only; `history_` has both errors, and every fit warns.

    Parameters
    ----------
    rank : int, default 20
        Number of phenotypes; at most the number of codes of every mode.
    learning_rate : float, default 0.01
        The paper's ``eta``.
    max_epochs : int, default 50
        Number of passes over the entries.
    shuffle : {"entries", "patients"}, default "entries"
        Unit of the shuffle, drawn again for every pass: entries, or patients with their entries adjacent, which is
        several times faster.
    nonnegative : bool, default True
        Keep memberships and factors non-negative. The paper does not.
    random_state : int, default 0
        Seed of initial factors and order. Factors start at U(0, c), where c makes the mean prediction the mean entry.

    Warns
    -----
    MaskedLossWarning
        Always.

    References
    ----------
    .. [1] J. Ma, Q. Zhang, J. Lou, J. C. Ho, L. Xiong, X. Jiang, "Privacy-Preserving Tensor Factorization for
       Collaborative Health Data Analysis", CIKM 2019, section 5.2.

    Examples
    --------
    >>> import warnings
    >>> import multicentre as mc
    >>> from multicentre_papers.baselines import CPSGD
    >>> codes = {"procedure": ["p1", "p2"], "diagnosis": ["d1", "d2"]}
    >>> tensor = mc.data.EventTensor([[0, 0, 0], [1, 1, 1], [2, 1, 1]], [2.0, 1.0, 1.0], codes)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     fit = CPSGD(2, learning_rate=0.1).fit(tensor)
    >>> fit.history_[-1]["rmse_at_entries"] < 0.1 * fit.history_[0]["rmse_at_entries"]
    True
    """

    parameter_ranges: ClassVar[ParameterRanges] = {
        **dict.fromkeys(("rank", "max_epochs"), Integer(1)),
        "learning_rate": Real(0, open="low"),
        "shuffle": OneOf("entries", "patients"),
        "nonnegative": Flag(),
        "random_state": SEED,
    }

    def __init__(
        self,
        rank: int = 20,
        *,
        learning_rate: float = 0.01,
        max_epochs: int = 50,
        shuffle: Literal["entries", "patients"] = "entries",
        nonnegative: bool = True,
        random_state: int = 0,
    ) -> None:
        self.rank = rank
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.shuffle = shuffle
        self.nonnegative = nonnegative
        self.random_state = random_state

    def _factorise(self, data: EventTensor, tensor: SparseTensor) -> Sequence[Floats]:
        warnings.warn(
            "CPSGD minimises the error at positive entries only, for which a constant tensor is nearly optimal, so it "
            "recovers no phenotypes. Use CPALS or DPFact.",
            MaskedLossWarning,
            stacklevel=3,
        )
        generator = np.random.default_rng(self.random_state)
        (memberships, *factors), _ = draw_scaled(data.shape, self.rank, float(data.counts.mean()), generator)
        for _ in range(self.max_epochs):
            if self.shuffle == "entries":
                order = generator.permutation(tensor.nnz)
            else:
                order = order_by_patient(tensor.coordinates[:, 0], tensor.shape[0], generator)
            memberships, factors = pass_entries(
                tensor, order, memberships, factors, self.learning_rate, 0.0, factors, nonnegative=self.nonnegative
            )
            everything = [memberships, *factors]
            require_finite_descent(everything, "CPSGD")
            self._note(tensor, everything, squared_error(tensor, everything))
        self.converged_ = False
        return everything
