"""Agreement of the sites on modes, codes and tensor sizes before the first round of a factorisation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, Nothing, array, count, number, texts
from multicentre.core.session import Session
from multicentre.core.steps import Acknowledgement, Release, SitePart, step
from multicentre.data.events.tensor import EventTensor
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch
from multicentre.phenotyping.kernels import effective_counts as counting
from multicentre.phenotyping.kernels.effective_counts import fewest_patients
from multicentre.phenotyping.kernels.mttkrp import SparseTensor

Floats = NDArray[np.float64]
Codes = Mapping[str, Sequence[str]]
# Bounds of numbers in messages: 4 million patients per site, and 2**18 events for each of them.
PATIENTS = 2.0**22
# PATIENTS times 2**18 events: 2**22 * 2**18 = 2**40.
COUNTS = 2.0**40
# Threshold of named codes under any policy with a minimum: the default of `min_code_patients`.
MIN_NAMED = 10


@dataclass(frozen=True)
class ModeNames(Release):
    """Names of a site's modes; nothing about any patient."""

    modes: tuple[str, ...] = texts("names of the modes", public=True)


@dataclass(frozen=True)
class Fewest(Message):
    """Wanted minimum of patients per named code."""

    fewest: int = count("patients that a code must have; at most the threshold of the site", unit="patients")


@dataclass(frozen=True)
class CodeNames(Release):
    """Codes that enough of a site's patients have."""

    codes: dict[str, tuple[str, ...]] = texts("codes that at least the threshold of patients have", keyed=True)


@dataclass(frozen=True)
class Universe(Message):
    """Codes to count."""

    codes: dict[str, tuple[str, ...]] = texts("codes of every mode", keyed=True)


@dataclass(frozen=True)
class CodeCounts(Release):
    """Patients by code, modes one after the other."""

    patients_by_code: Floats = array("patients with the code", ("c",), unit="patients", bound=PATIENTS, counts=True)


@dataclass(frozen=True)
class Vocabulary(Message):
    """The codes that the sites agreed on, in alphabetical order."""

    codes: dict[str, tuple[str, ...]] = texts("codes of every mode", keyed=True)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of codes of every mode."""
        return {mode: len(names) for mode, names in self.codes.items()}


@dataclass(frozen=True)
class Sizes(Release):
    """Sizes of a site's tensor, as terms of sums over sites."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_entries: float = number("entries above zero", bound=COUNTS)
    total: float = number("sum of the entries", bound=COUNTS)
    squares: float = number("sum of the squared entries", bound=COUNTS)


@dataclass(frozen=True)
class TensorMemory(Message):
    """State of a site between rounds, common to all factorisations."""

    codes: dict[str, tuple[str, ...]] = texts("agreed codes of every mode", keyed=True)


class TensorPart(SitePart):
    """Base of the site parts of factorisations: name and count codes, and hold the tensor over the agreed ones.

    Sums are exact, however few patients of the site have a code or a phenotype. Unmasked, the guard refuses a sum if
    fewer patients than the policy requires contribute to one of its cells. Contributing patients are counted in
    :mod:`~multicentre.phenotyping.kernels.effective_counts`.
    """

    holds: ClassVar[type] = EventTensor
    remembers: ClassVar[type[Message]] = TensorMemory
    lengths: ClassVar[Lengths] = {"c": "codes of a mode"}
    data: EventTensor
    state: TensorMemory | None = None
    _tensor: SparseTensor | None = None
    _behind: int | None = None
    _behind_places: int | None = None

    @step(releases=ModeNames, when="once")
    def describe(self, request: Nothing) -> ModeNames:
        """Return the names of the modes, so that errors can name a site that differs."""
        return ModeNames(self.data.modes, patients=len(self.data))

    @step(releases=CodeNames, when="once")
    def name_codes(self, request: Fewest) -> CodeNames:
        """Return the codes that enough patients have, for fits without a public list.

        Under a policy with a minimum there is one threshold for all requests: names at many thresholds would give
        the number of patients of every code.
        """
        named_codes, fewest, least = {}, len(self.data), self._least_named(request)
        for mode, names in self.data.codes.items():
            behind = self.data.patients_by_code(mode)
            is_frequent = behind >= least
            named_codes[mode] = tuple(name for name, frequent in zip(names, is_frequent, strict=True) if frequent)
            fewest = min(fewest, int(behind[is_frequent].min(initial=fewest)))
        return CodeNames(named_codes, patients=fewest)

    @step(releases=CodeCounts, when="once", summed=True)
    def count_codes(self, request: Universe) -> CodeCounts:
        """Count the patients of every code."""
        counts = self._patients_by_code(request)
        return CodeCounts(counts, patients=self.n_contributing(len(self.data), counts))

    @step(releases=Sizes, when="once", summed=True)
    def sum_sizes(self, request: Nothing) -> Sizes:
        """Count patients and entries, and sum the entries and their squares, for the errors of a fit."""
        tensor = self.tensor
        if not tensor.nnz:
            raise DataError(
                "at least one patient must have an agreed code; got none",
                where="codes",
                hint="Compare the site's code systems and spelling with the list, or leave the site out.",
            )
        total, squares = float(tensor.counts.sum()), float(tensor.norm_squared)
        return Sizes(float(len(self.data)), float(tensor.nnz), total, squares, patients=self.behind_totals())

    @property
    def memory(self) -> TensorMemory:
        """Agreed codes.

        Raises
        ------
        ConfigurationError
            The site was not prepared.
        """
        if self.state is None:
            raise ConfigurationError(
                "the site must agree on codes before this step; got no agreement",
                where=self.method,
                hint="Begin the fit again.",
            )
        return self.state

    @property
    def tensor(self) -> SparseTensor:
        """The site's counts over the agreed codes."""
        if self._tensor is None:
            aligned = self.data.align(self.memory.codes)
            self._tensor = SparseTensor(aligned.coordinates, aligned.counts, aligned.shape)
        return self._tensor

    def behind(self) -> int:
        """Return the fewest patients with one of the codes; all patients if masks or noise hide each of them."""
        if self.noised or self.masked:
            return len(self.data)
        if self._behind is None:
            tensor = self.tensor
            counts = [
                _patients_by_position(tensor.coordinates, axis, size)
                for axis, size in enumerate(tensor.shape[1:], start=1)
            ]
            self._behind = fewest_patients(np.concatenate(counts), len(self.data))
        return self._behind

    def behind_totals(self) -> int:
        """Return the fewest patients behind a code, or in effect behind the sums of counts and of their squares."""
        if self.noised or self.masked:
            return len(self.data)
        tensor = self.tensor
        totals = [counting.patient_sums(tensor, values) for values in (tensor.counts, np.square(tensor.counts))]
        return min(self.behind(), fewest_patients(counting.effective_numbers(np.column_stack(totals)), len(self.data)))

    def behind_places(self) -> int:
        """Return the fewest patients who share a combination of codes; all if masks or noise hide each of them.

        Factors of the coordinator can select any combination, so weighted sums count as based on these patients.
        """
        if self.noised or self.masked:
            return len(self.data)
        if self._behind_places is None:
            self._behind_places = counting.fewest_in_place(self.tensor)
        return self._behind_places

    def behind_cells(
        self,
        memberships: Floats,
        factors: Sequence[Floats] = (),
        modes: Iterable[int] = (),
        *,
        values: Floats | None = None,
        gram: bool = True,
    ) -> int:
        """Return the fewest patients behind a cell of sums that memberships and factors weight; all under a mask.

        Parameters
        ----------
        memberships : array of shape (n, r)
        factors : sequence of arrays of shape (codes, r), optional
            Factors of all code modes, for the products with the tensor.
        modes : iterable of int, optional
            Modes, counted from 1, whose products are released.
        values : array of shape (nnz,), optional
            Values in place of the tensor's counts.
        gram : bool, default True
            Products of two memberships are also released; otherwise at most sums of one.
        """
        if self.noised or self.masked:
            return len(self.data)
        columns = fewest_patients(counting.effective_numbers(memberships), len(self.data))
        pair_patients = counting.fewest_in_gram(memberships) if gram else columns
        matrices = [memberships, *factors]
        cells = [counting.fewest_in_products(self.tensor, matrices, mode, values) for mode in modes]
        return min(self.behind_places(), pair_patients, *cells)

    def _least_named(self, request: Fewest) -> int:
        if self.least_behind <= 1:
            return max(request.fewest, 1)
        least = max(self.least_behind, MIN_NAMED)
        if request.fewest > least:
            raise ConfigurationError(
                f"min_code_patients must be at most {least}, the number of patients from which the site names a code; "
                f"got {request.fewest}",
                where=f"site {self.site}, min_code_patients",
                hint="Keep the most frequent codes with n_codes, set a vocabulary, or raise min_patients of the "
                "policy.",
            )
        return least

    def _patients_by_code(self, request: Universe) -> Floats:
        counts = []
        for mode, names in request.codes.items():
            patients_of_code = dict(
                zip(self.data.codes.get(mode, ()), self.data.patients_by_code(mode).tolist(), strict=True)
            )
            counts.append(np.array([float(patients_of_code.get(name, 0)) for name in names]))
        return np.concatenate(counts)


def _patients_by_position(coordinates: NDArray[np.int32], axis: int, size: int) -> NDArray[np.int64]:
    pairs = np.unique(coordinates[:, 0].astype(np.int64) * size + coordinates[:, axis])
    return np.bincount(pairs % size, minlength=size)


def count_rare_codes(data: EventTensor, codes: Codes) -> tuple[tuple[float, float, float, float], Floats]:
    """Count what a list of codes leaves out of a site's tensor.

    Returns
    -------
    counts : (float, float, float, float)
        Entries, entries that are left out, codes that at least one patient has, and those that are left out.
    by_patient : array of shape (n, 2)
        Entries of each patient, and those that are left out.

    Examples
    --------
    >>> data = EventTensor([[0, 0, 0], [1, 0, 1]], [1.0, 2.0], {"procedure": ["p1"], "diagnosis": ["d1", "d2"]})
    >>> count_rare_codes(data, {"procedure": ["p1"], "diagnosis": ["d1"]})[0]
    (2.0, 1.0, 3.0, 1.0)
    """
    is_listed = np.ones(data.nnz, dtype=bool)
    n_codes = n_codes_left_out = 0
    for axis, (mode, names) in enumerate(data.codes.items(), start=1):
        on_list = np.isin(names, list(codes[mode])) if names else np.zeros(0, dtype=bool)
        is_listed &= on_list[data.coordinates[:, axis]]
        has_patient = data.patients_by_code(mode) > 0
        n_codes += int(has_patient.sum())
        n_codes_left_out += int((has_patient & ~on_list).sum())
    every, missing = (
        np.bincount(data.coordinates[chosen, 0], minlength=len(data)) for chosen in (slice(None), ~is_listed)
    )
    counts = (float(data.nnz), float(missing.sum()), float(n_codes), float(n_codes_left_out))
    return counts, np.column_stack([every, missing]).astype(np.float64)


def agree_on_modes(session: Session, part: type[TensorPart]) -> tuple[str, ...]:
    """Return the modes that all sites share; the error names a site that differs.

    Raises
    ------
    SchemaMismatch
        A site has other modes than the first, or the same in another order.
    """
    described = session.ask(part.describe, Nothing())
    (first, answer), *others = described.items()
    for site, other in others:
        if other.modes != answer.modes:
            raise SchemaMismatch(
                f"modes must be those of {first}, {', '.join(answer.modes)}; got {', '.join(other.modes)}",
                where=f"site {site}",
                hint="Use the same modes in the same order at every site.",
            )
    return answer.modes


def agree_on_codes(
    session: Session,
    part: type[TensorPart],
    *,
    vocabulary: Codes | None = None,
    n_codes: Mapping[str, int] | None = None,
    fewest: int = 10,
    count: Callable[[Universe], Floats] | None = None,
) -> Vocabulary:
    """Agree on the codes of every mode.

    Parameters
    ----------
    session : Session
    part : type
        Site part of the method.
    vocabulary : mapping from str to sequence of str, optional
        A public list. Without it each site names the codes of at least `fewest` of its patients.
    n_codes : mapping from str to int, optional
        Number of codes to keep per mode: those with the most patients.
    fewest : int, default 10
        Number of its patients from which a site names a code.
    count : callable, optional
        Returns the frequency of the codes, shape (c,); by default the sum over sites of patients by code.

    Raises
    ------
    SchemaMismatch
        The sites' modes differ, or they are not those of the list.
    DataError
        A mode has no code that may be used.
    """
    modes = agree_on_modes(session, part)
    candidates = _candidate_codes(session, part, modes, vocabulary, fewest)
    if n_codes:
        _check_wanted(n_codes, modes)
        if any(n_codes.get(mode, len(candidates[mode])) < len(candidates[mode]) for mode in modes):
            universe = Universe(candidates)
            counts = count(universe) if count else session.sum(part.count_codes, universe).patients_by_code
            candidates = _most_frequent(candidates, counts, n_codes)
    return Vocabulary(candidates)


def steps_of_agreement(vocabulary: Codes | None, n_codes: Mapping[str, int] | None) -> frozenset[str]:
    """Return the names of the steps that :func:`agree_on_codes` needs, without noise.

    Examples
    --------
    >>> sorted(steps_of_agreement(None, {"diagnosis": 100}))
    ['count_codes', 'name_codes']
    """
    named = {"name_codes"} if vocabulary is None else set()
    return frozenset(named | ({"count_codes"} if n_codes else set()))


def _candidate_codes(
    session: Session, part: type[TensorPart], modes: tuple[str, ...], vocabulary: Codes | None, fewest: int
) -> dict[str, tuple[str, ...]]:
    if vocabulary is not None:
        if set(vocabulary) != set(modes):
            raise SchemaMismatch(
                f"vocabulary must have the modes {', '.join(modes)}; got {', '.join(vocabulary)}",
                where="vocabulary",
                hint="Set a list of codes for each mode of the sites, and for no other.",
            )
        return {mode: tuple(sorted(set(vocabulary[mode]))) for mode in modes}
    named = session.ask(part.name_codes, Fewest(fewest))
    named_codes = {
        mode: tuple(sorted(set(itertools.chain.from_iterable(answer.codes[mode] for answer in named.values()))))
        for mode in modes
    }
    for mode, names in named_codes.items():
        if not names:
            raise DataError(
                f"at least one code must have {fewest} patients at a site; got none",
                where=f"mode {mode!r}",
                hint="Roll the codes up to broader groups; with many small hospitals, set a public list of codes as "
                "vocabulary, so that no site names a code; or lower min_code_patients where every policy allows it.",
            )
    return named_codes


def _check_wanted(n_codes: Mapping[str, int], modes: tuple[str, ...]) -> None:
    if not set(n_codes) <= set(modes) or any(number < 1 for number in n_codes.values()):
        raise ConfigurationError(
            f"n_codes must be integers of at least 1 for modes among {', '.join(modes)}; got {dict(n_codes)}",
            where="n_codes",
            hint="Set n_codes={mode: number}.",
        )


def _most_frequent(candidates: Codes, counts: Floats, n_codes: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    frequent, start = {}, 0
    for mode, names in candidates.items():
        mine = counts[start : start + len(names)]
        start += len(names)
        first = np.argsort(-mine, kind="stable")[: n_codes.get(mode, len(names))]
        frequent[mode] = tuple(names[place] for place in np.sort(first))
    return frequent


def check_rank(rank: int, sizes: Mapping[str, int]) -> None:
    """Raise ConfigurationError when there are more phenotypes than codes of some mode.

    Parameters
    ----------
    rank : int
    sizes : mapping of str to int
        Number of codes of every mode.

    Examples
    --------
    >>> check_rank(2, {"procedure": 2, "diagnosis": 5})
    """
    mode, size = min(sizes.items(), key=lambda item: item[1])
    if rank > size:
        raise ConfigurationError(
            f"rank must be at most {size}, the number of codes of mode {mode!r}; got {rank}",
            where="rank",
            hint="Use fewer phenotypes, or keep more codes.",
        )


def check_codes(vocabulary: Mapping[str, object] | None, n_codes: Mapping[str, object] | None) -> None:
    """Raise ConfigurationError unless codes are in lists by mode, and numbers of codes are positive integers by mode.

    Parameters
    ----------
    vocabulary : mapping of str to sequence of str, optional
        Codes by mode.
    n_codes : mapping of str to int, optional
        Numbers of codes to keep by mode.

    Examples
    --------
    >>> check_codes({"procedure": ["p1"], "diagnosis": ["d1"]}, {"diagnosis": 1})
    """
    if vocabulary is not None:
        _check_mapping(vocabulary, "vocabulary", "Set a list of codes for each mode: {'diagnosis': ['icd9cm-dx:42']}.")
        for mode, names in vocabulary.items():
            if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
                raise ConfigurationError(
                    "codes must be a list of strings; got another type",
                    where=f"vocabulary, mode {mode!r}",
                    hint="Put codes in quotes.",
                )
    if n_codes is not None:
        _check_mapping(n_codes, "n_codes", "Set a number for each mode: {'diagnosis': 300}.")
        for mode, n in n_codes.items():
            if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
                raise ConfigurationError(
                    f"n_codes must be integers of at least 1; got {n!r}", where=f"n_codes, mode {mode!r}"
                )


def _check_mapping(value: object, name: str, hint: str) -> None:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} must be a mapping; got {type(value).__name__}", where=name, hint=hint)


def prepare_tensor(part: TensorPart, memory: TensorMemory) -> Acknowledgement:
    """Store the agreement, in place of an earlier one.

    Patients' records are not read: a failed acknowledgement would reveal something about them without noise.
    """
    previous = part.state
    if previous is not None and previous.codes != memory.codes:
        raise ConfigurationError(
            "codes must be those that the site agreed on; got different codes", where="agree", hint="Begin a new fit."
        )
    part.state, part._tensor, part._behind, part._behind_places = memory, None, None, None
    return Acknowledgement()
