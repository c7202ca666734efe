"""CP-SGD: stochastic gradient descent over the entries above zero of pooled patients."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np

from multicentre.data.events.tensor import EventTensor
from multicentre.federation.errors import ConfigurationError
from multicentre.phenotyping.fitted.checks import MaskedLossWarning, check_flags, check_numbers, check_whole
from multicentre.phenotyping.kernels.factors import draw_scaled
from multicentre.phenotyping.kernels.hals import squared_error
from multicentre.phenotyping.kernels.mttkrp import Floats, SparseTensor
from multicentre.phenotyping.kernels.psgd import pass_entries, require_finite_descent
from multicentre_papers.baselines.cp.maths import order_by_patient
from multicentre_papers.baselines.cp.pooled import PooledPhenotypes

_WHOLE = {"rank": 1, "max_epochs": 1, "random_state": 0}


class CPSGD(PooledPhenotypes):
    """CANDECOMP/PARAFAC by stochastic gradient descent over entries, of patients in one place.

    The paper's descent (equations 13, 16 and 17) with one site, no elastic term and no group lasso: a yardstick, not a
    federation. It minimises the squared error at the entries above zero alone, for which a constant tensor is nearly
    best: it memorises entries, is far worse than the zero model over all cells, and learns no phenotypes. It is there
    to be compared with; `history_` has both errors. Every fit warns of it.

    Parameters
    ----------
    rank : int, default 20
        Phenotypes; at most the number of codes of every mode.
    learning_rate : float, default 0.01
        The paper's ``eta``.
    max_epochs : int, default 50
        Passes over the entries; all are run.
    shuffle : {"entries", "patients"}, default "entries"
        What is put in random order anew for every pass: entries, or patients with their entries side by side, which is
        several times quicker.
    nonnegative : bool, default True
        Keep memberships and factors at or above 0. The paper does not.
    random_state : int, default 0
        Seed of start and order. The start is U(0, c), with c such that the mean prediction is the mean entry.

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
    >>> codes = {"procedure": ["p1", "p2"], "diagnosis": ["d1", "d2"]}
    >>> tensor = EventTensor([[0, 0, 0], [1, 1, 1], [2, 1, 1]], [2.0, 1.0, 1.0], codes)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     fit = CPSGD(2, learning_rate=0.1).fit(tensor)
    >>> fit.history_[-1]["rmse_at_entries"] < 0.1 * fit.history_[0]["rmse_at_entries"]
    True
    """

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

    def _check(self) -> None:
        given = self.get_params(deep=False)
        check_whole(given, _WHOLE)
        check_numbers(given, above={"learning_rate": 0.0})
        check_flags(given, "nonnegative")
        if self.shuffle not in ("entries", "patients"):
            raise ConfigurationError(
                f"{self.shuffle!r} is not known", where="shuffle", hint="Use one of entries, patients."
            )
        warnings.warn(
            "CPSGD looks at entries above zero alone, for which a constant tensor is nearly best, so it learns no "
            "phenotypes. It is for comparison; use CPALS or DPFact.",
            MaskedLossWarning,
            stacklevel=3,
        )

    def _factorise(self, data: EventTensor, tensor: SparseTensor) -> Sequence[Floats]:
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
