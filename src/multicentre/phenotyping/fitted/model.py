"""Fitted phenotypes: memberships, errors and tables for patients that the caller holds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from multicentre.core.rounds import Rounds
from multicentre.core.run_terms import Traffic
from multicentre.data.events.tensor import EventTensor
from multicentre.errors import IntegrityError
from multicentre.estimator.base import Metric
from multicentre.estimator.figures import Figure
from multicentre.estimator.saved import PLAIN, Arrays, Saved, SavedAttributes
from multicentre.phenotyping.fitted.communication import FitWithTraffic, communication_table
from multicentre.phenotyping.fitted.figures import (
    N_CODES,
    communication,
    leading_codes,
    learning_curves,
    promise,
    shares_of_phenotypes,
    site_profiles,
    weights,
)
from multicentre.phenotyping.fitted.fit_sums import FitSums, total_errors
from multicentre.phenotyping.kernels.factors import normalise_columns
from multicentre.phenotyping.kernels.hals import squared_error, squared_error_at_entries
from multicentre.phenotyping.kernels.mttkrp import Floats, SparseTensor
from multicentre.phenotyping.kernels.patients import fit_memberships
from multicentre.phenotyping.scores import TensorErrors
from multicentre.phenotyping.tables import PhenotypeTable, Titles, share_of_patients, tabulate_phenotypes

if TYPE_CHECKING:
    import pandas as pd

# Phenotypes in the summary: those with the largest weights.
N_SUMMARISED = 10
# Sweeps of coordinate descent for memberships of new patients: as many as a site uses for its final memberships.
N_SWEEPS = 20


class Phenotypes:
    """Fitted phenotypes, from pooled or federated data; a phenotype has one weight per code of every mode.

    A patient's expected count of codes (j, k) is ``sum over r of a_r B_jr C_kr`` with the patient's memberships ``a``.

    Attributes
    ----------
    factors_ : dict of str to array of shape (codes, r)
        Factor matrix of every mode; columns have unit length, phenotypes are in order of weight.
    rank_ : int
        Number of phenotypes.
    codes_ : dict of str to tuple of str
        Codes of every mode.
    weights_ : array of shape (r,)
        Euclidean norm of each phenotype's memberships over all patients, ``lambda`` of the paper.
    members_ : array of shape (r,) or None
        Number of patients with at least a tenth of their total count in the phenotype.
    n_patients_ : float
        Number of patients of all sites.
    reconstruction_errors_ : TensorErrors or None
        Errors of the fit over all patients, with those of a model that predicts zero; None if not requested.
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
            "root mean squared error at held-out cells above zero; zeros count only in the explained counts",
        ),
        "auc": Metric(
            "outcome, area under the curve",
            "higher",
            "probability",
            "ranking of held-out patients by a logistic regression on memberships, fitted to the training patients",
        ),
    }
    factors_: dict[str, Floats]
    codes_: dict[str, tuple[str, ...]]
    weights_: Floats
    members_: Floats | None
    n_patients_: float
    reconstruction_errors_: TensorErrors | None = None
    nonnegative: bool

    @property
    def rank_(self) -> int:
        """Number of phenotypes."""
        check_is_fitted(self, "factors_")
        return len(self.weights_)

    def transform(self, data: EventTensor) -> Floats:
        """Return the memberships of patients in the phenotypes, fitted to each patient's counts.

        Parameters
        ----------
        data : EventTensor
            Patients of any vocabulary; codes outside the model's vocabulary are ignored.

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
        """Return the errors on held-out patients, and the area under the curve for their outcome.

        The prediction of a code outside the vocabulary is zero, so that models of different codes are comparable.

        Parameters
        ----------
        data : EventTensor
        labels : sequence of {"0", "1"}, optional
            Their outcomes.
        training : EventTensor, optional
            Training patients of the logistic regression.
        training_labels : sequence of {"0", "1"}, optional
            Their outcomes.
        """
        check_is_fitted(self, "factors_")
        tensor = self._tensor(data)
        memberships = self._memberships(tensor)
        matrices = [memberships, *self.factors_.values()]
        total = float(data.counts @ data.counts)
        unexplained = total - tensor.norm_squared
        at_entries = squared_error_at_entries(tensor, matrices) + unexplained
        results = {
            "explained": 1.0 - (squared_error(tensor, matrices) + unexplained) / max(total, np.finfo(np.float64).tiny),
            "rmse": float(np.sqrt(at_entries / max(data.nnz, 1))),
        }
        if labels is not None and training is not None and training_labels is not None:
            outcome, training_outcome = np.asarray(labels) == "1", np.asarray(training_labels) == "1"
            if len(set(outcome)) == len(set(training_outcome)) == 2:
                results["auc"] = rank_outcome(self.transform(training), training_outcome, memberships, outcome)
        return results

    def phenotypes(self, n_codes: int = 10, titles: Titles = None) -> PhenotypeTable:
        """Return the phenotypes as a table: weight, share of the patients, and the leading codes of every mode.

        Parameters
        ----------
        n_codes : int, default 10
            Maximum number of codes per mode and phenotype.
        titles : mapping of str to str or True, optional
            Titles by code; True: the titles of the extra ``codes``. A code without a title is shown as it is.
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

    def to_frame(self, n_codes: int = 10, titles: Titles = None) -> pd.DataFrame:
        """Return the table of :meth:`phenotypes` with one row per phenotype, mode and code."""
        return self.phenotypes(n_codes, titles).to_frame()

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
        """Store the fitted phenotypes in order of weight; return that order.

        The lengths of the columns go into the weights.
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


class PhenotypeModel(Phenotypes, FitWithTraffic):
    """Phenotypes fitted over a federation.

    Attributes
    ----------
    converged_ : bool
        Whether the rounds ended by `tol`.
    """

    saved_attributes: ClassVar[SavedAttributes] = {
        "factors_": Saved(lambda factors: np.vstack(list(factors.values()))),
        # A list, since the order of the modes is that of the factors.
        "codes_": Saved(
            lambda codes: [[mode, list(names)] for mode, names in codes.items()],
            lambda pairs: {mode: tuple(names) for mode, names in pairs},
        ),
        "weights_": Saved(unpack=lambda weights: np.asarray(weights, dtype=np.float64)),
        "members_": PLAIN,
        "n_patients_": Saved(unpack=float),
        "reconstruction_errors_": Saved(
            lambda errors: errors and asdict(errors), lambda sums: sums and TensorErrors(**sums)
        ),
        "converged_": Saved(unpack=bool),
        "n_sites_": Saved(unpack=int),
        "traffic_": Saved(lambda traffic: traffic and asdict(traffic), lambda counts: counts and Traffic(**counts)),
    }
    converged_: bool

    def privacy_lines(self) -> list[tuple[str, str]]:
        """Return statements on the differential privacy of the fit with their subjects; empty without it."""
        check_is_fitted(self, "factors_")
        return [] if self.privacy_ is None else [("promise", str(self.privacy_))]

    def summary(self) -> pd.DataFrame:
        """Return the rank, the errors and the leading codes of the largest phenotypes, one row each."""
        import pandas as pd

        from multicentre.estimator.results import with_note

        frame = super().summary()
        rows: dict[str, object] = {"rank": self.rank_}
        if self.reconstruction_errors_ is not None:
            rows["root mean squared error"] = self.reconstruction_errors_.rmse
            rows["the same of a model of zeros"] = self.reconstruction_errors_.rmse_of_zero
        for phenotype in list(self.phenotypes(n_codes=1))[:N_SUMMARISED]:
            codes = ", ".join(entry.title for entries in phenotype.codes.values() for entry in entries)
            share = "" if phenotype.prevalence is None else f" ({100 * phenotype.prevalence:.0f} % of patients)"
            rows[f"phenotype {phenotype.number}{share}"] = codes
        details = pd.DataFrame({"value": list(rows.values())}, index=list(rows), dtype=object)
        return with_note(pd.concat([frame, details]), self._remarks(), model=self.describe_model())

    def result_tables(self) -> dict[str, pd.DataFrame]:
        """Return the leading codes of the phenotypes."""
        return {"phenotypes": self.to_frame()}

    def answer(self) -> str:
        """Return the number of phenotypes, and the leading codes of the largest."""
        largest = next(iter(self.phenotypes(n_codes=1)))
        codes = ", ".join(entry.title for entries in largest.codes.values() for entry in entries)
        share = "" if largest.prevalence is None else f", in {100 * largest.prevalence:.0f} % of patients"
        return f"{self.rank_} phenotypes of {self.n_patients_:,.0f} patients; the largest is led by {codes}{share}."

    def main_figure(self) -> Figure:
        """Return the weights of the phenotypes."""
        return weights(self.phenotypes(N_CODES, titles=True), noised=self.privacy_ is not None)

    def figures(self, sites: Mapping[str, EventTensor], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return figures and tables of the fit.

        Parameters
        ----------
        sites : mapping of str to EventTensor
            Simulated patients by site, possibly empty. After a differentially private fit nothing is computed from
            them: the guarantee covers only the releases of the fit.
        labels : mapping
            Not used, present for API consistency by convention.
        """
        check_is_fitted(self, "factors_")
        table = self.phenotypes(N_CODES, titles=True)
        figures = learning_curves(self.history_, self.reconstruction_errors_)
        if self.traffic_ is not None:
            figures.append(communication(communication_table(self)))
        if promises := self.privacy_lines():
            figures.append(promise(promises))
        figures += [weights(table, noised=self.privacy_ is not None), leading_codes(table)]
        if sites and self.privacy_ is None:
            memberships = {site: self.transform(data) for site, data in sites.items()}
            figures += [site_profiles(memberships), shares_of_phenotypes(memberships, table)]
        return figures

    def _note_rounds(self, rounds: Rounds[Any], *, settled: bool, max_iter: int, tol: float) -> None:
        """Store the results of the rounds; warn if they ended too early."""
        self.history_, self.converged_ = rounds.history, settled
        if not settled:
            warnings.warn(
                f"the rounds ended at max_iter={max_iter} before the factors settled to tol={tol:g}.",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _take_fit(
        self, factors: Mapping[str, Floats], codes: Mapping[str, tuple[str, ...]], sums: FitSums
    ) -> NDArray[np.intp]:
        """Store the fitted phenotypes and their sums over sites; return the order by weight."""
        order = self._set_factors(factors, np.sqrt(np.maximum(np.diagonal(sums.gram), 0.0)), codes)
        self.members_, self.n_patients_ = sums.members[order], sums.n_patients
        self.reconstruction_errors_ = total_errors(sums, {mode: len(names) for mode, names in codes.items()})
        warn_of_absent(self.weights_)
        return order

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        check_is_fitted(self, "factors_")
        return super()._state()

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        super()._restore(arrays, facts)
        # The files hold the factors of all modes one below the other, in the order of the codes.
        stacked = np.asarray(self.factors_, dtype=np.float64)
        sizes = [len(names) for names in self.codes_.values()]
        if stacked.shape != (sum(sizes), len(self.weights_)):
            expected = (sum(sizes), len(self.weights_))
            raise IntegrityError(f"the factors must be of shape {expected}; got {stacked.shape}", where="factors_")
        parts = np.split(stacked, np.cumsum(sizes)[:-1])
        self.factors_ = dict(zip(self.codes_, parts, strict=True))


class RareCodesWarning(UserWarning):
    """The minimum of patients per code leaves out much of the data."""


# Share of the entries from which the codes that are left out are worth a warning.
LARGE_SHARE = 0.1


def warn_of_rare_codes(entries: float, codes: float, least: int) -> None:
    """Warn if the minimum of patients per code leaves out more than a tenth of the entries.

    Parameters
    ----------
    entries : float
        Share of the entries that are left out.
    codes : float
        Share of an average site's codes that are left out.
    least : int
        Minimum of patients per code and site.

    Examples
    --------
    >>> warn_of_rare_codes(0.01, 0.3, 10)
    """
    if entries > LARGE_SHARE:
        warnings.warn(
            f"{100 * entries:.0f} % of the entries and {100 * codes:.0f} % of an average site's codes are left out, "
            f"because no site has enough patients with them (min_code_patients={least}, or more by a site's policy). "
            "Roll codes up to broader groups (mc.data.roll_up_to_prefix), or set a public list as vocabulary. With "
            "many small hospitals set both vocabulary and n_codes, which keeps the codes that most patients of all "
            "sites have.",
            RareCodesWarning,
            stacklevel=6,
        )


def warn_of_absent(weights: NDArray[np.float64]) -> None:
    """Warn of phenotypes that no patient has.

    Examples
    --------
    >>> warn_of_absent(np.array([2.0, 1.0]))
    """
    n_absent = int((weights <= 0).sum())
    if n_absent:
        warnings.warn(
            f"{n_absent} of {len(weights)} phenotypes have no patient: lower sparsity, or use a smaller rank.",
            UserWarning,
            stacklevel=6,
        )


def rank_outcome(
    memberships: Floats, outcome: NDArray[np.bool_], held_out: Floats, held_out_outcome: NDArray[np.bool_]
) -> float:
    """Return the area under the curve, on held-out patients, of a logistic regression on memberships.

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
    classifier = LogisticRegression(max_iter=1000).fit(memberships / spread, outcome)
    return float(roc_auc_score(held_out_outcome, classifier.decision_function(held_out / spread)))
