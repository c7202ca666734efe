"""Lines, letters and sentences of a disclosure card.

The sentences at the head of a card are derived from its fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from multicentre.privacy.patient_counts import Counted

Kind = Literal["individual", "time", "total", "number", "flag", "text"]
_ARRAY = " array"
_BY_NAME = "[by name]"


@dataclass(frozen=True)
class Line:
    """Line of a card: one field that would leave.

    Attributes
    ----------
    span : str
        Range of one site's value and largest rounding error of the sum, if it leaves masked.
    noise : str
        Distribution and scale of the noise, and the largest change of the field by one patient without noise.
    kind : {"individual", "time", "total", "number", "flag", "text"}
        Value about single patients, recorded time, share of a total over all sites, or a number, yes-or-no answer or
        text of the site.
    summed : bool
        True if it leaves as a share of a total over all sites.
    masked : bool
        True if that share is masked.
    answered : bool
        True if the policy permits the step.
    min_in_total : int
        Smallest number of patients of all sites behind a total that is revealed; 0 for no minimum.
    purpose : str
        Purpose of the step.
    analysis : str
        Name of the analysis that requests the step; empty if the card is for a method or a single analysis.
    """

    step: str
    when: str
    field: str
    what: str
    shape: str
    unit: str
    seen: str
    span: str = ""
    noise: str = ""
    kind: Kind = "number"
    summed: bool = False
    masked: bool = False
    answered: bool = True
    min_in_total: int = 0
    purpose: str = ""
    analysis: str = ""

    @property
    def name(self) -> str:
        """Name of the field in its message."""
        return self.field.removesuffix(_BY_NAME)

    @property
    def letters(self) -> tuple[str, ...]:
        """Letters in the shape."""
        sides = self.shape.removesuffix(_ARRAY).split(" x ") if self.shape.endswith(_ARRAY) else []
        return tuple(side for side in sides if side and not side.isdigit())

    def with_letters(self, changes: Mapping[str, str]) -> Self:
        """Return the line with other letters in its shape."""
        if not self.shape.endswith(_ARRAY):
            return self
        sides = [changes.get(side, side) for side in self.shape.removesuffix(_ARRAY).split(" x ")]
        return dataclasses.replace(self, shape=f"{' x '.join(sides)}{_ARRAY}")


@dataclass(frozen=True)
class Letter:
    """Meaning of one letter in the shapes of arrays.

    Attributes
    ----------
    number : str
        Length, if the study fixes it.
    method : str
        Method that uses the letter with this meaning.
    """

    letter: str
    what: str
    number: str = ""
    method: str = ""

    @property
    def meaning(self) -> str:
        """Meaning as printed on the card."""
        return f"{self.what} ({self.method})" if self.method else self.what

    def without_method(self) -> Self:
        """Return the letter without its method, for a meaning that is the same in all methods of a card."""
        return dataclasses.replace(self, method="")


ONE_SITE = "a sum over one site equals the answer of that site."
TWO_SITES = (
    "a sum of two sites reveals to each site the other's share, by subtraction. min_sites_in_sum = 3 in a policy "
    "prevents this."
)
UNMASKED = (
    "sums are computed by the coordinator's process, so anybody who controls it can read each site's value. "
    "Masked sums (secure_sum = true) prevent this."
)
_ONE_PATIENT = 1  # a minimum of one patient has no effect
_TWO = 2  # each of two sites can compute the other's share of a sum


def find_caveats(
    lines: Sequence[Line], min_patients: int, counted: Counted, n_sites: int | None, guarantee: str
) -> Iterator[str]:
    """Yield the caveats of the protection of the fields, the strongest first.

    Parameters
    ----------
    lines : sequence of Line
        Fields on the card.
    min_patients : int
        The policy's minimum of patients behind a value.
    counted : {"patients", "records"}
        Unit of the minimum.
    n_sites : int, optional
        Number of participating sites.
    guarantee : str
        Privacy unit of the noise, with epsilon and delta; empty without noise.
    """
    lines = [line for line in lines if line.answered]
    single = [line for line in lines if line.kind == "individual" and not line.noise]
    lines_with_minimum = [line for line in lines if _needs_crowd(line)]
    totals = [line for line in lines_with_minimum if line.kind == "total"]
    one = counted[:-1]
    if single:
        yield f"values about single patients leave ({_steps(single)}): no minimum number of patients protects them."
    if lines_with_minimum and min_patients <= _ONE_PATIENT:
        yield f"the policy has no minimum (min_patients = {min_patients}): a value may be that of one {one}."
    if guarantee and not guarantee.startswith(f"one {one} "):
        yield f"noise hides {guarantee.partition(' (')[0]}, not a whole {one}."
    if n_sites == 1 and _totals(lines):
        yield ONE_SITE
    if any(not line.masked for line in _totals(lines)):
        yield UNMASKED
    if min_patients > _ONE_PATIENT and any(line.masked and line.min_in_total <= _ONE_PATIENT for line in totals):
        yield (
            f"a cell of a masked total may be the value of one {one}: the minimum of {min_patients} {counted} applies "
            "to the whole share of this site."
        )
    if n_sites == _TWO and _totals(lines):
        yield TWO_SITES


def describe_content(lines: Sequence[Line]) -> str:
    """Return the sentence on the kinds of fields that leave."""
    answered = [line for line in lines if line.answered]
    kinds = {kind: [line for line in answered if line.kind == kind] for kind in _KINDS}
    present = {kind: of_kind for kind, of_kind in kinds.items() if of_kind}
    shared_kinds = [_KINDS[kind].format(steps=_steps(present[kind])) for kind in present if kind in _SHARED]
    site_kinds = [_KINDS[kind] for kind in present if kind not in _SHARED]
    if texts := kinds["text"]:
        site_kinds[-1] += f" ({', '.join(dict.fromkeys(line.what for line in texts))})"
    clauses = [*shared_kinds, *([f"{_listed(site_kinds)} of this site only"] if site_kinds else [])]
    sentence = f"This site releases {'; '.join(clauses)}." if clauses else _NOTHING
    refused = _steps(line for line in lines if not line.answered)
    return f"{sentence} It refuses {refused}, which its policy does not permit." if refused else sentence


def describe_counts(
    lines: Sequence[Line], min_patients: int, counted: Counted, guarantee: str, *, min_in_share: int | None = None
) -> str:
    """Return the sentence on the number of patients behind the fields."""
    lines = [line for line in lines if line.answered]
    lines_with_minimum = [line for line in lines if _needs_crowd(line)]
    noised = any(line.noise for line in lines)
    clauses = [_minimum(lines_with_minimum, min_patients, counted, noised=noised)] if lines_with_minimum else []
    if min_in_share is not None and any(line.masked for line in lines_with_minimum):
        clauses.append(f"its share of a masked total has at least {min_in_share} (min_patients_in_share)")
    for least in sorted({line.min_in_total for line in _totals(lines_with_minimum) if line.min_in_total}):
        masked = any(line.masked for line in _totals(lines_with_minimum))
        total = (
            f"a total, or a cell of a table, is revealed only with at least {least} {counted} of all sites behind it"
        )
        unmasked = f"an unmasked share of a total leaves only with at least {least} {counted} behind it"
        clauses.append(f"{total if masked else unmasked} (min_patients_in_total)")
    if noised:
        subject = "other values disclose" if lines_with_minimum else "each value discloses"
        clauses.append(f"noise bounds what {subject} about {guarantee}")
    if single := [line for line in lines if line.kind == "individual" and not line.noise]:
        clauses.append(f"the values of {_steps(single)} are about single patients, whom no minimum protects")
    if not clauses:
        return "No field depends on patients."
    return _sentence(clauses)


def describe_readers(lines: Sequence[Line]) -> str:
    """Return the sentence on who can read the fields."""
    lines = [line for line in lines if line.answered]
    masked = any(line.masked for line in lines)
    has_unmasked = any(not line.masked for line in _totals(lines))
    has_site_values = any(not line.summed for line in lines)
    clauses = []
    if masked:
        clauses.append(
            "nobody can read this site's share of a masked total, unless enough other sites collude with the "
            "coordinator"
        )
    if has_unmasked:
        clauses.append("the coordinator's process receives this site's share of each unmasked total and can read it")
    site_values = ["the values of this site only"] if has_site_values else []
    if readable := [*(["the totals"] if masked else []), *site_values]:
        clauses.append(f"the coordinator reads {_listed(readable)}")
    if not clauses:
        return "No value can be read."
    clauses.append("the other sites and the readers of the results receive results computed from these")
    return _sentence(clauses)


_NOTHING = "This site releases no values of its patients."
_SHARED = ("individual", "time", "total")
_KINDS: dict[Kind, str] = {
    "individual": "values about single patients or pairs of patients ({steps})",
    "time": "times of events as they were recorded ({steps})",
    "total": "its shares of totals (sums and counts over patients, added over all sites)",
    "number": "numbers",
    "flag": "yes-or-no answers",
    "text": "texts",
}


def _minimum(lines_with_minimum: Sequence[Line], min_patients: int, counted: Counted, *, noised: bool) -> str:
    if min_patients <= _ONE_PATIENT:
        return f"the policy has no minimum number of {counted}"
    subject = "a value without noise" if noised else "each value"
    sentence = f"{subject} has at least {min_patients} {counted} of this site behind it, or none"
    has_masked = any(line.masked for line in lines_with_minimum)
    return f"{sentence} (a masked share of a total as a whole, not each of its cells)" if has_masked else sentence


def _needs_crowd(line: Line) -> bool:
    """Return whether a field is protected only by a minimum of patients."""
    return line.kind != "individual" and not line.noise


def _totals(lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if line.summed]


def _steps(lines: Iterable[Line]) -> str:
    return ", ".join(dict.fromkeys(line.step for line in lines))


def _sentence(clauses: Sequence[str]) -> str:
    joined = "; ".join(clauses)
    return f"{joined[0].upper()}{joined[1:]}."


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
