"""Disclosure card of a method: the fields that would leave a site, how often, and under which protection.

A card begins with the strongest caveat and three sentences: the content that leaves, the number of patients behind it,
and who can read it. They are derived from the fields, the policy and the plan of noise, in the same way for every
method.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from multicentre.core.calls import Protection
from multicentre.core.messages import Declaration, Length, lengths_of
from multicentre.core.noise_plan import Noise, Plan
from multicentre.core.steps import SitePart, Step
from multicentre.privacy.allowed_methods import provider_of
from multicentre.privacy.card_text import (
    Kind,
    Letter,
    Line,
    describe_content,
    describe_counts,
    describe_readers,
    find_caveats,
)
from multicentre.privacy.guarantee import Guarantee, guarantee_of_plan
from multicentre.privacy.minimum_counts import EPSILON
from multicentre.privacy.patient_counts import HOW_TO_NAME, Counted
from multicentre.privacy.policy import Policy, needed_permission
from multicentre.privacy.secure_sum.fixed_point import sum_terms

__all__ = ["DisclosureCard", "Letter", "Line", "disclosure_card"]

_COLUMNS = {
    "analysis": "analysis",
    "step": "step",
    "when": "how often",
    "field": "field",
    "shape": "shape",
    "seen": "who can see it",
    "span": "range, rounding of the sum",
    "noise": "noise",
}
# Letters for lengths whose own letter has another meaning on a joined card.
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
REFUSES = "refuses this study"
"""Words of a note that a policy objects; they are shown with the caveat."""
_ROWS = ("rows", "the patients' rows")
_UNEXPLAINED = Length("not explained by the method")
_RECORDS = (
    f"a site cannot determine which of its records belong to the same patient, so it counts records. {HOW_TO_NAME}"
)
_FIELDS = (
    "with its keys of masked sums, the site releases its views, and the columns in which fewer than {least} records "
    "have an entry, to the coordinator and the other sites. A view or column that fewer than {n_sites} sites have is "
    "refused (min_sites_in_sum); a level, code, group or bin may come from one site."
)
_NOISE_HIDES = (
    "noise replaces the minimum of patients while the combined noised answers of the site are within epsilon "
    f"{EPSILON:g}."
)
_SHARE = (
    "the minimum in totals stands in for the site's own (min_patients_in_share): a sum over at least {n_sites} sites "
    "hides its few {counted}. All other sites together can compute its share, and so can a coordinator whose requests "
    "leave the other sites nothing to add."
)
_CHECKED = (
    "min_patients_in_total is checked by the coordinator's process, which receives the number of {counted} behind each "
    "value as a masked sum."
)


@dataclass(frozen=True)
class DisclosureCard:
    """Fields that a method would release from a site, with their protection.

    Attributes
    ----------
    method : str
    lines : tuple of Line
        Fields that leave.
    steps : tuple of (str, str)
        Name and purpose of each step that releases them.
    remembered : tuple of (str, str)
        Name and description of what the site stores between rounds.
    min_patients : int
        Smallest number of patients behind a value.
    warnings : tuple of str
        Further notes for the steward, in addition to the caveats that follow from the fields.
    noised : bool
        True if the card is for a plan of noise.
    individual : tuple of str
        Steps whose values are about single patients. No minimum protects these; they leave only if a policy permits.
    counted : {"patients", "records"}
        Unit of minimum and noise: patients, or records if a site cannot assign them to patients.
    letters : tuple of Letter
        Meanings of the letters in the shapes.
    n_sites : int, optional
        Number of participating sites.
    guarantee : str
        Privacy unit of the noise, with epsilon and delta; empty without noise.
    providers : tuple of str
        Distribution and version that provide the site parts here; empty if no single installed distribution does.
    min_in_share : int, optional
        Smallest number of patients behind a share of a masked total; None if `min_patients` applies to it too.
    """

    method: str
    lines: tuple[Line, ...]
    steps: tuple[tuple[str, str], ...]
    remembered: tuple[tuple[str, str], ...]
    min_patients: int
    warnings: tuple[str, ...]
    noised: bool = False
    individual: tuple[str, ...] = ()
    counted: Counted = "patients"
    letters: tuple[Letter, ...] = ()
    n_sites: int | None = None
    guarantee: str = ""
    providers: tuple[str, ...] = ()
    min_in_share: int | None = None

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats for the steward who signs the card, the strongest first."""
        return tuple(find_caveats(self.lines, self.min_patients, self.counted, self.n_sites, self.guarantee))

    @property
    def sentences(self) -> tuple[str, str, str]:
        """Sentences on the content, the number of patients behind it, and its readers."""
        how_many = describe_counts(
            self.lines, self.min_patients, self.counted, self.guarantee, min_in_share=self.min_in_share
        )
        return describe_content(self.lines), how_many, describe_readers(self.lines)

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats after the first, and warnings."""
        return (*self.caveats[1:], *self.warnings)

    @property
    def remembers(self) -> str:
        """Content that the site stores between rounds, with the fields that release the same content."""
        return "; ".join(dict.fromkeys(self._remembered(name, what) for name, what in self.remembered))

    @property
    def used_letters(self) -> tuple[Letter, ...]:
        """Letters of the shapes on the card, each once, with its method if two methods use it differently."""
        used = {letter for line in self.lines for letter in line.letters}
        letters = [one for one in self.letters if one.letter in used]
        meanings = {letter: {one.what for one in letters if one.letter == letter} for letter in used}
        distinct = (one if len(meanings[one.letter]) > 1 else one.without_method() for one in letters)
        return tuple(sorted(dict.fromkeys(distinct), key=lambda one: (one.letter.lower(), one.letter)))

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain values, for JSON."""
        plain = {name: value for name, value in asdict(self).items() if name != "remembered"}
        return {
            **plain,
            "caveat": next(iter(self.caveats), ""),
            "sentences": self.sentences,
            "letters": tuple(asdict(one) for one in self.used_letters),
            "remembers": self.remembers,
            "warnings": self.notes,
        }

    def of_analysis(self, name: str) -> DisclosureCard:
        """Return the card as part of a study with several analyses: every field names its analysis."""
        return replace(self, lines=tuple(replace(line, analysis=name) for line in self.lines))

    def with_letters(self, changes: Mapping[str, str]) -> DisclosureCard:
        """Return the card with other letters in its shapes."""
        lines = tuple(line.with_letters(changes) for line in self.lines)
        letters = tuple(replace(one, letter=changes.get(one.letter, one.letter)) for one in self.letters)
        return replace(self, lines=lines, letters=letters)

    def joined(self, *others: DisclosureCard) -> DisclosureCard:
        """Return one card for several methods that run in sequence."""
        cards = _with_own_letters((self, *others))
        return DisclosureCard(
            method=", ".join(dict.fromkeys(card.method for card in cards)),
            lines=_each_once(card.lines for card in cards),
            steps=_each_once(card.steps for card in cards),
            remembered=_each_once(card.remembered for card in cards),
            min_patients=min(card.min_patients for card in cards),
            warnings=_each_once(card.warnings for card in cards),
            noised=any(card.noised for card in cards),
            individual=_each_once(card.individual for card in cards),
            counted="records" if any(card.counted == "records" for card in cards) else "patients",
            letters=_each_once(card.letters for card in cards),
            n_sites=min((card.n_sites for card in cards if card.n_sites is not None), default=None),
            guarantee="; ".join(dict.fromkeys(card.guarantee for card in cards if card.guarantee)),
            providers=_each_once(card.providers for card in cards),
            min_in_share=min((card.min_in_share for card in cards if card.min_in_share is not None), default=None),
        )

    def __str__(self) -> str:
        return self.text(fields=True)

    def text(self, *, fields: bool) -> str:
        """Return the card as text; without its fields, it states their number.

        Parameters
        ----------
        fields : bool
            Print the table of the fields, their meanings and letters, what the site stores, and the notes.
        """
        return self._whole() if fields else self._head()

    def _head(self) -> str:
        """Return the caveat, the three sentences, and the number of fields, steps and notes."""
        refused = sum(not line.answered for line in self.lines)
        steps = len({(line.analysis, line.step) for line in self.lines})
        count = f"{len(self.lines)} fields of {steps} steps may leave"
        count += f", {refused} of them refused by the policy" if refused else ""
        objections = [f"Note: {note}" for note in self.notes if REFUSES in note]
        caveats = [f"Caveat: {caveat}" for caveat in self.caveats[:1]]
        lines = [*caveats, *objections, *self.sentences, f"{count}."]
        return "\n".join(lines)

    def _whole(self) -> str:
        columns = {head: [getattr(line, name) for line in self.lines] for name, head in _COLUMNS.items()}
        letters = self.used_letters
        explained = {
            "letter": [one.letter for one in letters],
            "meaning": [one.meaning for one in letters],
            "number": [one.number for one in letters],
        }
        parts = [
            [f"Disclosure card of {self.method}"],
            [f"Caveat: {caveat}" for caveat in self.caveats[:1]],
            list(self.sentences),
            _table(explained),
            _table(columns),
            [f"  {_place(line)}: {line.what}" for line in self.lines],
            [f"Provided by {', '.join(self.providers)}."] if self.providers else [],
            [f"Stored at the site between rounds: {self.remembers}.", *(f"Note: {note}" for note in self.notes)],
        ]
        return "\n\n".join("\n".join(part) for part in parts if part)

    def _remembered(self, name: str, what: str) -> str:
        same = [line for line in self.lines if name == line.name or what == line.what]
        released = dict.fromkeys(f"{line.step}.{line.name}" for line in same)
        return f"{what} (also released: {', '.join(released)})" if released else what


def _with_own_letters(cards: Sequence[DisclosureCard]) -> list[DisclosureCard]:
    """Return cards of which no two use a letter with different meanings; a later card takes an unused letter."""
    taken: dict[str, str] = {}
    renamed = []
    for card in cards:
        changes = {}
        for one in sorted(card.letters, key=lambda letter: letter.letter):
            free = (letter for letter in _LETTERS if letter not in taken)
            is_free = taken.get(one.letter, one.what) == one.what
            same = next((letter for letter, what in taken.items() if what == one.what), "")
            letter = one.letter if is_free else same or next(free, one.letter)
            changes[one.letter] = letter
            taken.setdefault(letter, one.what)
        renamed.append(card.with_letters(changes))
    return renamed


def disclosure_card(
    part: type[SitePart],
    *,
    protection: Protection = "masked",
    n_sites: int | None = None,
    policy: Policy | None = None,
    plan: Plan | None = None,
    sites_per_patient: int = 1,
    requested: Collection[str] | None = None,
    counted: Counted = "patients",
    parameters: Mapping[str, Any] | None = None,
) -> DisclosureCard:
    """Return the disclosure card of a method.

    Parameters
    ----------
    part : type
        The method's site part.
    protection : {"masked", "unmasked"}
        Protection of summands.
    n_sites : int, optional
        Number of participating sites; one or two sites add a caveat.
    policy : Policy, optional
        Policy of the site; by default the default policy.
    plan : Plan, optional
        Noise of every release. The card then contains the fields of the plan, and those that concern no patient.
    sites_per_patient : int, default 1
        Number of sites at which one patient may have records.
    requested : collection of str, optional
        Names of the steps that will be requested; by default all steps of the part.
    counted : {"patients", "records"}, default "patients"
        Unit of the counts: "patients" if every site can assign its records to patients.
    parameters : mapping, optional
        Parameters of the estimator; some determine the length of an array.

    Returns
    -------
    DisclosureCard

    Examples
    --------
    >>> from multicentre.multiview.ppca.site import MvPPCASite
    >>> card = disclosure_card(MvPPCASite, protection="masked", n_sites=3)
    >>> card.lines[0].step, card.lines[0].field, card.lines[0].seen
    ('describe', 'views', 'coordinator, site by site')
    >>> {line.seen for line in card.lines if line.step == "fit_shared"}
    {'nobody; only the sum'}
    >>> card.caveats[0].partition(":")[0]
    'a cell of a masked total may be the value of one patient'
    """
    offered = [step for name, step in part.steps().items() if requested is None or name in requested]
    steps = [step for step in offered if step.releases.concerns_patients and _is_planned(step, plan)]
    policy = policy or Policy()
    terms = _Terms(protection, n_sites, policy, plan, counted)
    promise = None if plan is None else guarantee_of_plan(plan, protection, sites_per_patient, counted)
    return DisclosureCard(
        method=part.method,
        lines=tuple(line for step in steps for line in _lines(step, terms)),
        steps=tuple((step.name, step.purpose) for step in steps),
        remembered=(_ROWS, *((name, one.what) for name, one in part.remembers.declarations().items())),
        min_patients=policy.min_patients,
        warnings=tuple(_warnings(part, terms, promise)),
        noised=plan is not None,
        individual=tuple(step.name for step in steps if step.releases.individual),
        counted=counted,
        letters=tuple(_letters(part, steps, parameters or {})),
        n_sites=n_sites,
        guarantee="" if promise is None else _guaranteed(promise),
        providers=() if (provider := provider_of(part)) is None else (str(provider),),
        min_in_share=policy.min_patients_in_share if terms.min_in_total and protection == "masked" else None,
    )


@dataclass(frozen=True)
class _Terms:
    """Terms under which the fields of a card leave."""

    protection: Protection
    n_sites: int | None
    policy: Policy
    plan: Plan | None
    counted: Counted

    @property
    def min_in_total(self) -> int:
        """The policy's minimum in totals; noise replaces it."""
        return 0 if self.plan else self.policy.min_patients_in_total


def _place(line: Line) -> str:
    """Return step and field of a line, after its analysis if the card has several."""
    return f"{line.analysis and line.analysis + ', '}{line.step}.{line.field}"


def _is_planned(step: Step[Any, Any, Any], plan: Plan | None) -> bool:
    planned = plan is None or any(step.name == release.step.name for release in plan.releases)
    return planned or not step.releases.tells_of_patients()


def _lines(step: Step[Any, Any, Any], terms: _Terms) -> list[Line]:
    noise = terms.plan.noise_of(step, 0) if terms.plan else None
    masked = step.summed and terms.protection == "masked"
    spans = _spans(step, terms.n_sites, noise) if masked else {}
    where = f"{'in the sum' if masked else 'at each site'} (one {terms.counted[:-1]}:"
    declarations = step.releases.declarations()
    needed = [needed_permission(step, one, terms.protection) for one in declarations.values()]
    answered = not any(terms.policy.lacks(permission) for permission in needed if permission)
    least = terms.min_in_total if step.summed else 0
    return [
        Line(
            step.name,
            step.when,
            f"{name}[by name]" if declaration.keyed else name,
            _meaning(declaration, least),
            declaration.dimensions,
            declaration.unit,
            _seen(step, terms.protection),
            spans.get(name, ""),
            _noise_of(name, declaration.sensitivity, noise, where),
            kind=_kind(step, declaration),
            summed=step.summed,
            masked=masked,
            answered=answered,
            min_in_total=least,
            purpose=step.purpose,
        )
        for name, declaration in declarations.items()
    ]


def _kind(step: Step[Any, Any, Any], declaration: Declaration) -> Kind:
    if step.releases.individual:
        return "individual"
    if declaration.permission == "exact_times":
        return "time"
    if step.summed:
        return "total"
    return {"flag": "flag", "text": "text", "texts": "text"}.get(declaration.kind, "number")  # type: ignore[return-value]


def _letters(part: type[SitePart], steps: Iterable[Step[Any, Any, Any]], parameters: Mapping[str, Any]) -> list[Letter]:
    lengths = lengths_of(part)
    shapes = [one.shape for step in steps for one in step.releases.declarations().values()]
    letters = dict.fromkeys(side for shape in shapes for side in shape if isinstance(side, str))
    lengths_by_letter = {letter: lengths.get(letter, _UNEXPLAINED) for letter in letters}
    return [Letter(letter, one.what, one.number(parameters), part.method) for letter, one in lengths_by_letter.items()]


def _meaning(declaration: Declaration, least: int) -> str:
    if declaration.counts and least:
        return f"{declaration.what} (revealed only if each cell of the total is 0 or at least {least})"
    if not declaration.permission:
        return declaration.what
    name, _, level = declaration.permission.partition("=")
    value = f'"{level}"' if level else "true"
    return f"{declaration.what} (only if the policy sets {name} = {value})"


def _spans(step: Step[Any, Any, Any], n_sites: int | None, noise: Noise | None) -> dict[str, str]:
    terms = sum_terms(step.releases, n_sites or 2, noise)
    return {
        name: f"±{term.capacity:.2g}" + (f", ±{term.rounding:.0e}" if n_sites and term.rounding else "")
        for name, term in terms.items()
    }


def _noise_of(name: str, sensitivity: float | None, noise: Noise | None, where: str) -> str:
    if noise is None or sensitivity is None:
        return ""
    return f"{noise.mechanism} {noise.multipliers[name] * sensitivity:.3g} {where} {sensitivity:g})"


def _seen(step: Step[Any, Any, Any], protection: Protection) -> str:
    if not step.summed:
        return "coordinator, site by site"
    return "nobody; only the sum" if protection == "masked" else "coordinator's process, which adds"


def _warnings(part: type[SitePart], terms: _Terms, promise: Guarantee | None) -> Iterable[str]:
    if terms.min_in_total and terms.protection == "masked":
        yield _CHECKED.format(counted=terms.counted)
        if terms.policy.min_patients_in_share is not None:
            yield _SHARE.format(counted=terms.counted, n_sites=terms.policy.min_sites_in_sum)
    if part.sums_fields and terms.protection == "masked":
        yield _FIELDS.format(least=max(terms.policy.least_in_share, 1), n_sites=terms.policy.min_sites_in_sum)
    if promise is not None and terms.policy.min_patients:
        yield _NOISE_HIDES
    if terms.counted == "records":
        yield _RECORDS
    yield "no differential privacy: sums of many patients are exact." if promise is None else str(promise)


def _guaranteed(promise: Guarantee) -> str:
    return f"one {promise.unit} (epsilon {promise.epsilon:.3g}, delta {promise.delta:.3g})"


def _each_once(groups: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(one for group in groups for one in group))


def _table(columns: Mapping[str, list[str]]) -> list[str]:
    """Return the lines of a table; empty columns are left out."""
    columns_with_entries = [[head, *cells] for head, cells in columns.items() if any(cells)]
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns_with_entries]
    return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]
