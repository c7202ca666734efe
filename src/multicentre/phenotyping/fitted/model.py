"""What fitted phenotypes can do with patients that their holder has, and how a fit takes what the sites summed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from multicentre.data.events.tensor import EventTensor
from multicentre.estimator.base import Arrays, FederatedEstimator, Metric
from multicentre.estimator.figures import Figure
from multicentre.federation.rounds import Rounds
from multicentre.federation.session import Session
from multicentre.federation.terms import Traffic
from multicentre.phenotyping.fitted.checks import FitSums, tell_errors, warn_of_absent
from multicentre.phenotyping.fitted.communication import traffic_since
from multicentre.phenotyping.fitted.figures import show_fit
from multicentre.phenotyping.kernels.factors import normalise_columns
from multicentre.phenotyping.kernels.hals import squared_error, squared_error_at_entries
from multicentre.phenotyping.kernels.mttkrp import Floats, SparseTensor
from multicentre.phenotyping.kernels.patients import fit_memberships
from multicentre.phenotyping.scores import TensorErrors
from multicentre.phenotyping.tables import PhenotypeTable, Titles, share_of_patients, tabulate_phenotypes

N_SWEEPS = 20
_FACTOR = "factor/"
_OPTIONAL = ("members_",)


class Phenotypes:
    """Phenotypes: for each, one weight a code of every mode; what every fit of them offers, pooled or federated.

    A patient's expected count of codes (j, k) is ``sum over r of a_r B_jr C_kr`` with memberships ``a`` of its own.

    Attributes
    ----------
    factors_ : dict of str to array of shape (codes, r)
        Factor matrix of every mode; columns have unit length, phenotypes are in order of weight.
    codes_ : dict of str to tuple of str
        Codes of every mode.
    weights_ : array of shape (r,)
        Length of each phenotype's memberships over all patients, ``lambda`` of the paper.
    members_ : array of shape (r,) or None
        Patients of whose own total the phenotype makes up a tenth or more.
    n_patients_ : float
        Patients of all sites.
    errors_ : TensorErrors or None
        Errors of the fit over all patients, beside those of the model that says zero; None where they were not asked.
    """

    metrics: ClassVar[Mapping[str, Metric]] = {
        "explained": Metric(
            "explained counts",
            "higher",
            "share",
            "held out: 1 - squared error over all cells / that of a model of zeros",
        ),
        "rmse": Metric(
            "error at the counts",
            "lower",
            "counts",
            "root mean squared error at held-out cells above zero; alone it says little, for zeros count too",
        ),
        "auc": Metric(
            "outcome, area under the curve",
            "higher",
            "probability",
            "how well memberships of held-out patients rank their outcome, by logistic regression on the others",
        ),
    }
    factors_: dict[str, Floats]
    codes_: dict[str, tuple[str, ...]]
    weights_: Floats
    members_: Floats | None
    n_patients_: float
    errors_: TensorErrors | None = None
    nonnegative: bool

    @property
    def rank_(self) -> int:
        """Number of phenotypes."""
        check_is_fitted(self, "factors_")
        return len(self.weights_)

    def transform(self, data: EventTensor) -> Floats:
        """Return the memberships of patients in the phenotypes, fitted to each patient's own counts.

        Parameters
        ----------
        data : EventTensor
            Patients of any vocabulary; codes that the model does not know are left out.

        Returns
        -------
        array of shape (n, r)

        Raises
        ------
        DataError
            The modes differ.
        """
        check_is_fitted(self, "factors_")
        return self._memberships(self._tensor(data))

    def assess(
        self,
        data: EventTensor,
        labels: Sequence[str] | None = None,
        *,
        training: EventTensor | None = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return how well the phenotypes describe patients that the fit did not see, and rank their outcome.

        A code that the model does not know counts as said to be zero, so that models of other codes can be compared.

        Parameters
        ----------
        data : EventTensor
        labels : sequence of {"0", "1"}, optional
            Their outcomes.
        training : EventTensor, optional
            Patients from whom the logistic regression learns.
        training_labels : sequence of {"0", "1"}, optional
            Their outcomes.
        """
        check_is_fitted(self, "factors_")
        tensor = self._tensor(data)
        memberships = self._memberships(tensor)
        everything = [memberships, *self.factors_.values()]
        whole = float(data.counts @ data.counts)
        unknown = whole - tensor.norm_squared
        at_entries = squared_error_at_entries(tensor, everything) + unknown
        found = {
            "explained": 1.0 - (squared_error(tensor, everything) + unknown) / max(whole, np.finfo(np.float64).tiny),
            "rmse": float(np.sqrt(at_entries / max(data.nnz, 1))),
        }
        if labels is not None and training is not None and training_labels is not None:
            outcome, learnt = np.asarray(labels) == "1", np.asarray(training_labels) == "1"
            if len(set(outcome)) == len(set(learnt)) == 2:
                found["auc"] = rank_outcome(self.transform(training), learnt, memberships, outcome)
        return found

    def phenotypes(self, n_codes: int = 10, titles: Titles = None) -> PhenotypeTable:
        """Return the phenotypes as a table: weight, share of the patients, and the leading codes of every mode.

        Parameters
        ----------
        n_codes : int, default 10
            At most so many codes a mode and phenotype.
        titles : mapping of str to str or True, optional
            Titles by code; True: those that the extra ``codes`` knows. A code without title stands for itself.
        """
        check_is_fitted(self, "factors_")
        return tabulate_phenotypes(
            self.factors_,
            self.codes_,
            self.weights_,
            prevalence=share_of_patients(self.members_, self.n_patients_, self.rank_),
            n_codes=n_codes,
            titles=titles,
        )

    def _tensor(self, data: EventTensor) -> SparseTensor:
        aligned = data.align(self.codes_)
        return SparseTensor(aligned.coordinates, aligned.counts, aligned.shape)

    def _memberships(self, tensor: SparseTensor) -> Floats:
        factors = list(self.factors_.values())
        start = np.ones((tensor.shape[0], self.rank_))
        return fit_memberships(tensor, factors, start, n_sweeps=N_SWEEPS, nonnegative=self.nonnegative)

    def _set_factors(
        self, factors: Mapping[str, Floats], weights: Floats, codes: Mapping[str, tuple[str, ...]]
    ) -> NDArray[np.intp]:
        """Take the fitted phenotypes in order of weight; return that order.

        What columns are longer than 1 goes into the weights.
        """
        units, lengths = {}, []
        for mode, factor in factors.items():
            units[mode], length = normalise_columns(factor)
            lengths.append(length)
        weights = weights * np.prod(lengths, axis=0)
        order = np.argsort(-weights, kind="stable")
        self.factors_ = {mode: np.ascontiguousarray(factor[:, order]) for mode, factor in units.items()}
        self.weights_ = weights[order]
        self.codes_ = dict(codes)
        return order


class PhenotypeModel(Phenotypes, FederatedEstimator):
    """Phenotypes fitted over a federation.

    Attributes
    ----------
    n_iter_ : int
        Rounds of the fit.
    converged_ : bool
        Whether the rounds ended by `tol`.
    n_sites_ : int
        Sites that took part to the end.
    traffic_ : Traffic or None
        Calls and bytes of the fit by step, sites taken together; None where they were not counted.
    """

    n_iter_: int
    converged_: bool
    n_sites_: int = 0
    traffic_: Traffic | None = None

    def bytes_a_round(self) -> tuple[int, int] | None:
        """Return the bytes of matrices that one round sends to a site and has from it; None where not known."""
        return None

    def privacy_lines(self) -> list[tuple[str, str]]:
        """Return what can be said of the fit's differential privacy, each with its subject; nothing without it."""
        return [] if self.privacy_ is None else [("promise", str(self.privacy_))]

    def figures(self, sites: Mapping[str, EventTensor], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return figures and tables of the fit; see :meth:`FederatedEstimator.figures`. Labels are not used."""
        check_is_fitted(self, "factors_")
        return show_fit(self, sites)

    def _note_rounds(self, rounds: Rounds[Any], *, settled: bool, max_iter: int, tol: float) -> None:
        """Keep what the rounds told; warn where they ended too early."""
        self.history_, self.n_iter_, self.converged_ = rounds.history, rounds.number, settled
        if not settled:
            warnings.warn(
                f"the rounds ended at max_iter={max_iter} before the factors settled to tol={tol:g}.",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _take_fit(
        self, factors: Mapping[str, Floats], codes: Mapping[str, tuple[str, ...]], sums: FitSums
    ) -> NDArray[np.intp]:
        """Take the fitted phenotypes and what the sites summed of them; return the order by weight."""
        order = self._set_factors(factors, np.sqrt(np.maximum(np.diagonal(sums.gram), 0.0)), codes)
        self.members_, self.n_patients_ = sums.members[order], sums.n_patients
        self.errors_ = tell_errors(sums, {mode: len(names) for mode, names in codes.items()})
        warn_of_absent(self.weights_)
        return order

    def _note_traffic(self, session: Session, before: Traffic) -> None:
        """Keep what this fit sent, of all that the session sent since it was made."""
        self.n_sites_ = len(session.sites)
        self.traffic_ = traffic_since(before, session.traffic)

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        check_is_fitted(self, "factors_")
        arrays: dict[str, Any] = {_FACTOR + mode: factor for mode, factor in self.factors_.items()}
        arrays["weights"] = self.weights_
        arrays |= {name: getattr(self, name) for name in _OPTIONAL if getattr(self, name, None) is not None}
        facts = {
            "codes": {mode: list(names) for mode, names in self.codes_.items()},
            "n_patients": self.n_patients_,
            "n_rounds": self.n_iter_,
            "n_sites": self.n_sites_,
            "traffic": self.traffic_ and asdict(self.traffic_),
            "converged": self.converged_,
            "errors": self.errors_ and asdict(self.errors_),
        }
        return arrays, facts

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        self.codes_ = {mode: tuple(names) for mode, names in facts["codes"].items()}
        self.factors_ = {mode: np.asarray(arrays[_FACTOR + mode], dtype=np.float64) for mode in self.codes_}
        self.weights_ = np.asarray(arrays["weights"], dtype=np.float64)
        for name in _OPTIONAL:
            setattr(self, name, arrays.get(name))
        self.n_patients_ = float(facts["n_patients"])
        self.n_iter_, self.converged_ = int(facts["n_rounds"]), bool(facts["converged"])
        self.n_sites_, self.traffic_ = int(facts["n_sites"]), facts["traffic"] and Traffic(**facts["traffic"])
        self.errors_ = facts["errors"] and TensorErrors(**facts["errors"])


def rank_outcome(
    memberships: Floats, outcome: NDArray[np.bool_], held_out: Floats, held_out_outcome: NDArray[np.bool_]
) -> float:
    """Return the area under the curve of a logistic regression on memberships, learnt on one set and told on another.

    Columns are divided by their standard deviation, as in the paper's section 5.6.

    Examples
    --------
    >>> rows, outcome = np.array([[0.0], [1.0], [0.1], [0.9]]), np.array([False, True, False, True])
    >>> rank_outcome(rows, outcome, rows, outcome)
    1.0
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    spread = memberships.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    learnt = LogisticRegression(max_iter=1000).fit(memberships / spread, outcome)
    return float(roc_auc_score(held_out_outcome, learnt.decision_function(held_out / spread)))
