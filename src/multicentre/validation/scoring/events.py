"""Scores of phenotype models on coded events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.core.consortium import Consortium
from multicentre.core.messages import Message, Nothing, arrays, count, flag, texts
from multicentre.core.session import Session
from multicentre.core.steps import Release, SitePart, step
from multicentre.data.events.tensor import EventTensor
from multicentre.errors import DataError, MessageError, SchemaMismatch
from multicentre.phenotyping.fitted.model import N_SWEEPS
from multicentre.phenotyping.kernels.hals import hadamard_gram, predict_entries
from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre.phenotyping.kernels.patients import fit_memberships
from multicentre.phenotyping.kernels.poisson import fit_rates
from multicentre.validation.scoring.judging import (
    MAX_FIXED,
    RECORDS,
    ScoringPart,
    SiteScores,
    judge,
    limited,
    request_site_scores,
    total,
    unfixed,
)
from multicentre.validation.scoring.scores import Scores

Floats = NDArray[np.float64]

# As N_RATE_STEPS of phenotyping.dpfact.estimator: memberships are fitted in the same way as by ``transform``.
N_RATE_STEPS = 100

# The matrix of products of phenotypes, r x r, then takes at most 8 MB in doubles.
MAX_PHENOTYPES = 1000

# As MAX_VALUE of judging.py; a product of ten such entries is below the largest double, 1.8e308.
LARGEST = 1e30


@dataclass(frozen=True)
class Factors(Message):
    """Factors of every mode, and the rule that fits a patient's memberships to them."""

    codes: dict[str, tuple[str, ...]] = texts("codes of every mode", keyed=True)
    factors: dict[str, Floats] = arrays("factor of every mode", ("codes", "r"))
    nonnegative: bool = flag("memberships are at least 0")
    rates: bool = flag("memberships are fitted under the Poisson likelihood")
    cap: int = count("upper limit of counts; 0 for none")

    @property
    def rank(self) -> int:
        """Number of phenotypes."""
        return int(next(iter(self.factors.values())).shape[1])

    def valid_for(self, data: EventTensor) -> Self:
        """Return the factors after a check against the patients' data.

        Raises
        ------
        MessageError
            The factors do not match the codes.
        SchemaMismatch
            The data have other modes.
        """
        self.checked()
        if tuple(self.codes) != data.modes:
            raise SchemaMismatch(
                f"modes must be {', '.join(self.codes)}; got {', '.join(data.modes)}",
                where="modes",
                hint="Use the same modes in the same order at every site.",
            )
        if set(self.factors) != set(self.codes) or not 1 <= self.rank <= MAX_PHENOTYPES or self.cap < 0:
            raise MessageError(
                f"factors must be one per mode, with 1 to {MAX_PHENOTYPES} phenotypes and a cap of at least 0; "
                f"got {len(self.factors)} factors with {self.rank} phenotypes and cap {self.cap}",
                where="Factors",
            )
        for mode, names in self.codes.items():
            if self.factors[mode].shape != (len(names), self.rank) or len(set(names)) != len(names) or not names:
                raise MessageError(
                    f"a factor must have one row per distinct code and {self.rank} columns; "
                    f"got shape {self.factors[mode].shape} for {len(names)} codes",
                    where=f"Factors.factors[{mode}]",
                )
            if np.abs(self.factors[mode]).max() > LARGEST:
                raise MessageError(
                    f"entries must be at most {LARGEST:g} in absolute value; at least one is larger",
                    where=f"Factors.factors[{mode}]",
                )
            if self.rates and (self.factors[mode] < 0).any():
                raise MessageError(
                    f"rates must be at least 0; got {self.factors[mode].min():g}", where=f"Factors.factors[{mode}]"
                )
        return self

    def fit(self, tensor: SparseTensor, factors: Sequence[Floats]) -> Floats:
        """Fit patients' memberships, shape (n, r), in the same way as the method's ``transform``."""
        start = np.ones((tensor.shape[0], self.rank))
        if self.rates:
            return fit_rates(tensor, list(factors), start, N_RATE_STEPS)
        counts = np.minimum(tensor.counts, float(self.cap)) if self.cap else tensor.counts
        limited = SparseTensor(tensor.coordinates, counts, tensor.shape)
        return fit_memberships(limited, factors, start, n_sweeps=N_SWEEPS, nonnegative=self.nonnegative)


def factors_of(model: Any) -> Factors:
    """Return the message for fitted phenotypes."""
    params = model.get_params(deep=False)
    return Factors(
        codes={mode: tuple(names) for mode, names in model.codes_.items()},
        factors={mode: np.ascontiguousarray(factor) for mode, factor in model.factors_.items()},
        nonnegative=bool(model.nonnegative),
        rates=params.get("solver") == "poisson",
        cap=int(params.get("cap") or 0),
    )


Integers = NDArray[np.int64]

# A fifth of the codes is hidden per patient, as in five-fold cross-validation.
N_PARTS = 5

# As SMALLEST of phenotyping.kernels.poisson; the logarithm of a predicted 0 is then -23.
MIN_RATE = 1e-10

ENTRY_TERMS = ("counts", "squares", "errors")

DEVIANCE_TERMS = ("predicted", "logs", "cross")

TERMS = (*ENTRY_TERMS, *DEVIANCE_TERMS)

# 2^31 patients (RECORDS) with 2^19 hidden cells each; the sum over 8 sites is exact in a double (2^53).
MAX_CELLS = 2.0**50


@dataclass(frozen=True)
class EntrySums(Release):
    """Sums over hidden cells, as integers, so that they do not depend on the distribution of patients over sites."""

    n_patients: int = count("patients", unit="patients", bound=RECORDS)
    cells: int = count("hidden cells, including zeros", bound=MAX_CELLS)
    entries: int = count("hidden cells above zero", bound=RECORDS)
    n_outside: int = count("entries of codes that are not in the model", bound=RECORDS)
    n_inside: int = count("entries of codes that are in the model", bound=RECORDS)
    counts: int = count("sum of the counts o, times 2^24", bound=MAX_FIXED)
    squares: int = count("sum of o^2, times 2^24", bound=MAX_FIXED)
    errors: int = count("sum over all hidden cells of (o - x)^2, times 2^24", bound=MAX_FIXED)


@dataclass(frozen=True)
class DevianceSums(Release):
    """Further sums over hidden cells, for the deviance only: its logarithms depend on counts above one."""

    predicted: int = count("sum over all hidden cells of the predictions x, times 2^24", bound=MAX_FIXED)
    logs: int = count("sum of o log o over the counts o, times 2^24", bound=MAX_FIXED, signed=True)
    cross: int = count("sum of o log x, times 2^24", bound=MAX_FIXED, signed=True)


class EventPart(ScoringPart):
    """Site part that scores factorisations of events."""

    method: ClassVar[str] = "score-events"
    revision: ClassVar[int] = 2
    holds: ClassVar[type] = EventTensor
    kinds: ClassVar[Mapping[str, type[Any]]] = {"Factors": Factors}
    data: EventTensor
    model: Factors

    @step(releases=EntrySums, when="at the end", summed=True)
    def sum_entries(self, request: Nothing) -> EntrySums:
        """Predict every patient's hidden cells from the other cells, and sum the errors."""
        sums, behind = self._sums(ENTRY_TERMS)
        facts = (self.n_records, self.n_cells, self.n_entries, self.data.nnz - self.aligned.nnz, self.aligned.nnz)
        return EntrySums(*facts, **sums, patients=min(behind, self.behind(np.array([self._n_with_outside_code]))))

    @step(releases=DevianceSums, when="at the end", summed=True)
    def sum_deviances(self, request: Nothing) -> DevianceSums:
        """Sum the further terms of the deviance."""
        sums, behind = self._sums(DEVIANCE_TERMS)
        return DevianceSums(**sums, patients=behind)

    def site_score(self, name: str) -> tuple[float, int]:
        """Return a score of the site's records and the number of patients that it is based on."""
        sums, behind = self._sums(TERMS if name == "explained_deviance" else ENTRY_TERMS)
        return score_of(name, {term: unfixed(total) for term, total in sums.items()}, self.n_cells), behind

    @cached_property
    def aligned(self) -> EventTensor:
        """Patients' data, restricted to the model's codes."""
        return self.data.align(self.model.codes)

    @cached_property
    def hidden(self) -> tuple[Integers, Integers]:
        """Part (of five) of every code of the first mode, and the hidden part of every patient."""
        mode = self.data.modes[0]
        n_codes = len(self.model.codes[mode])
        if n_codes < 2:
            raise DataError(
                f"the mode {mode} must have at least 2 codes, of which a fifth is hidden; got {n_codes}", where="codes"
            )
        random = self.generator(0, int(self.data.digest()[:16], 16))
        n_parts = min(N_PARTS, n_codes)
        return random.permutation(n_codes) % n_parts, random.integers(n_parts, size=len(self.data))

    @property
    def n_cells(self) -> int:
        """Number of hidden cells."""
        parts, hidden_part = self.hidden
        others = int(np.prod([len(names) for names in list(self.model.codes.values())[1:]], dtype=np.int64))
        return int(np.bincount(parts, minlength=int(parts.max()) + 1)[hidden_part].sum()) * others

    @property
    def n_entries(self) -> int:
        """Number of hidden cells above zero."""
        return int(self._is_hidden.sum())

    @property
    def _is_hidden(self) -> NDArray[np.bool_]:
        parts, hidden_part = self.hidden
        places = self.aligned.coordinates
        return np.asarray(parts[places[:, 1]] == hidden_part[places[:, 0]])

    @cached_property
    def terms(self) -> dict[str, Floats]:
        """Every patient's term of each sum, by name of the sum, shape (n,)."""
        parts, hidden_part = self.hidden
        all_terms = {name: np.zeros(len(self.data)) for name in TERMS}
        for part in range(int(parts.max()) + 1):
            rows = np.flatnonzero(hidden_part == part)
            if len(rows):
                with np.errstate(over="ignore", invalid="ignore"):
                    terms = self._terms_of(rows, parts == part)
                for name, values in terms.items():
                    all_terms[name][rows] = limited(values)
        return all_terms

    def _terms_of(self, rows: Integers, hides: NDArray[np.bool_]) -> dict[str, Floats]:
        """Return the terms of patients with the same hidden codes."""
        first, *others = (self.model.factors[mode] for mode in self.model.codes)
        aligned = self.aligned.take(rows)
        observed, target = (_restricted(aligned, codes) for codes in (~hides, hides))
        memberships = self.model.fit(observed, [first[~hides], *others])
        factors = [memberships, first[hides], *others]
        predicted = predict_entries(target, factors) if target.nnz else np.zeros(0)
        gram, mass = hadamard_gram(factors[1:]), np.prod([factor.sum(axis=0) for factor in factors[1:]], axis=0)
        counts, patient = target.counts, target.coordinates[:, 0]

        def by_patient(values: Floats) -> Floats:
            return np.bincount(patient, weights=values, minlength=len(rows)).astype(np.float64)

        squares = np.einsum("nr,rs,ns->n", memberships, gram, memberships)
        return {
            "counts": by_patient(counts),
            "squares": by_patient(counts**2),
            "errors": np.maximum(by_patient(counts**2 - 2 * counts * predicted) + squares, 0.0),
            "predicted": memberships @ mass,
            "logs": by_patient(counts * np.log(counts)),
            "cross": by_patient(counts * np.log(np.maximum(predicted, MIN_RATE))),
        }

    def _sums(self, names: Sequence[str]) -> tuple[dict[str, int], int]:
        """Return sums, and the fewest patients that a sum is based on or with a hidden entry; all if masked."""
        sums = {name: self.summed(self.terms[name]) for name in names}
        fewest = min(self._n_with_hidden_entry, *(behind for _, behind in sums.values()))
        return {name: total for name, (total, _) in sums.items()}, self.n_records if self.masked else fewest

    @property
    def _n_with_hidden_entry(self) -> int:
        """Number of patients with a hidden entry."""
        return len(np.unique(self.aligned.coordinates[self._is_hidden, 0]))

    @property
    def _n_with_outside_code(self) -> int:
        """Number of patients with an entry of a code that is not in the model."""
        modes = [np.isin(names, self.model.codes[mode]) for mode, names in self.data.codes.items()]
        in_model = np.all([codes[self.data.coordinates[:, axis]] for axis, codes in enumerate(modes, start=1)], axis=0)
        return len(np.unique(self.data.coordinates[~in_model, 0]))


def _restricted(tensor: EventTensor, codes: NDArray[np.bool_]) -> SparseTensor:
    """Restrict a tensor to some codes of the first mode."""
    chosen = codes[tensor.coordinates[:, 1]]
    places = tensor.coordinates[chosen].copy()
    places[:, 1] = (np.cumsum(codes) - 1)[places[:, 1]]
    shape = (len(tensor), int(codes.sum()), *tensor.shape[2:])
    return SparseTensor(places, tensor.counts[chosen], shape)


def score_of(name: str, sums: Mapping[str, float], n_cells: float) -> float:
    """Return a score from sums over hidden cells; NaN if no hidden cell is above zero.

    Parameters
    ----------
    name : {"neg_mean_squared_error", "explained_counts", "explained_deviance"}
    sums : mapping of str to float
        Sums with the names of ``TERMS``.
    n_cells : float

    Examples
    --------
    >>> sums = {"counts": 2.0, "squares": 4.0, "errors": 1.0, "predicted": 1.0, "logs": 2 * np.log(2), "cross": 0.0}
    >>> score_of("explained_counts", sums, 4), round(score_of("explained_deviance", sums, 4), 3)
    (0.75, 0.861)
    """
    if name == "neg_mean_squared_error":
        return -sums["errors"] / n_cells
    if not sums["counts"] > 0:
        return float("nan")
    if name == "explained_counts":
        return 1 - sums["errors"] / sums["squares"]
    of_model = sums["logs"] - sums["cross"] - sums["counts"] + sums["predicted"]
    of_mean = sums["logs"] - sums["counts"] * np.log(sums["counts"] / n_cells)
    return float(1 - of_model / of_mean) if of_mean > 0 else float("nan")


@dataclass(frozen=True)
class EventScores:
    """Scores of predictions of held-out patients' hidden cells from their other cells.

    ``neg_mean_squared_error`` covers all hidden cells, including zeros. ``explained_counts`` is 1 minus the squared
    error over that of a model of zeros. ``explained_deviance`` is 1 minus the Poisson deviance over that of the mean
    count. The fact ``share_unknown`` is the share of entries with a code that is not in the model; they are not scored.
    """

    names: tuple[str, ...] = ("neg_mean_squared_error", "explained_counts", "explained_deviance")
    part: type[SitePart] = EventPart
    usual: tuple[str, ...] = ("neg_mean_squared_error", "explained_counts")

    def __call__(self, model: Any, federation: Consortium, names: Sequence[str], *, by_site: bool) -> Scores:
        """Score fitted phenotypes via sums over hidden cells of all sites."""
        score = partial(self._score, names=names, by_site=by_site)
        return judge(federation, EventPart, factors_of(model), "Factors", score)

    def _score(self, opened: Session, names: Sequence[str], *, by_site: bool) -> Scores:
        entries = total(opened, EventPart.sum_entries, Nothing())
        sums = {name: unfixed(getattr(entries, name)) for name in ENTRY_TERMS}
        if "explained_deviance" in names:
            further = total(opened, EventPart.sum_deviances, Nothing())
            sums |= {name: unfixed(getattr(further, name)) for name in DEVIANCE_TERMS}
        values = {name: float(score_of(name, sums, entries.cells)) for name in names}
        site_scores = request_site_scores(opened, EventPart, names) if by_site else SiteScores()
        facts = {"share_unknown": entries.n_outside / max(entries.n_outside + entries.n_inside, 1)}
        n_patients = float(entries.n_patients)
        return Scores(values, n_patients, site_scores.scores, facts, site_scores.refused, opened.absent)


EVENTS = EventScores()
