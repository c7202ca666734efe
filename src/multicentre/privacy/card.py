"""The disclosure card: before any run, every field that would leave a site, how often, and under which protection."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from multicentre.federation.engine import Protection
from multicentre.federation.messages import Declaration
from multicentre.federation.noise import Noise, Plan
from multicentre.federation.steps import SitePart, Step
from multicentre.privacy.people import HOW_TO_NAME, Counted
from multicentre.privacy.policy import Policy
from multicentre.privacy.secure_sum.ring import sum_terms
from multicentre.privacy.statement import guarantee_of_plan

_COLUMNS = {
    "step": "step",
    "when": "how often",
    "field": "field",
    "shape": "shape",
    "seen": "who can see it",
    "span": "range, rounding of the sum",
    "noise": "noise",
}

_RECORDS = f"a site cannot tell which of its records are of one patient: what is counted are records. {HOW_TO_NAME}"


@dataclass(frozen=True)
class Line:
    """One field that would leave.

    Attributes
    ----------
    span : str
        Range of one site's value and largest rounding error of the sum, where it leaves masked.
    noise : str
        Law and scale of the noise, and how far one patient moves the field without it.
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


@dataclass(frozen=True)
class DisclosureCard:
    """All that a method would let out of a site.

    Attributes
    ----------
    method : str
    lines : tuple of Line
        Fields that leave.
    steps : tuple of (str, str)
        Name and purpose of each step that lets them out.
    remembers : str
        What stays at the site between rounds.
    min_patients : int
        Fewest patients that a value rests on.
    warnings : tuple of str
        What a steward should know besides.
    noised : bool
        Whether a plan of noise was given.
    individual : tuple of str
        Steps that tell of single patients, whom no minimum protects: they leave by a policy's permission alone.
    counted : {"patients", "records"}
        What minimum and noise are about: patients, or records where a site cannot tell whose they are.
    """

    method: str
    lines: tuple[Line, ...]
    steps: tuple[tuple[str, str], ...]
    remembers: str
    min_patients: int
    warnings: tuple[str, ...]
    noised: bool = False
    individual: tuple[str, ...] = ()
    counted: Counted = "patients"

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain values, for JSON."""
        return asdict(self)

    def joined(self, *others: DisclosureCard) -> DisclosureCard:
        """Return one card of what several methods, run one after the other, let out of a site."""
        cards = (self, *others)
        return DisclosureCard(
            method=", ".join(dict.fromkeys(card.method for card in cards)),
            lines=tuple(dict.fromkeys(line for card in cards for line in card.lines)),
            steps=tuple(dict.fromkeys(step for card in cards for step in card.steps)),
            remembers="; ".join(dict.fromkeys(card.remembers for card in cards)),
            min_patients=min(card.min_patients for card in cards),
            warnings=tuple(dict.fromkeys(warning for card in cards for warning in card.warnings)),
            noised=any(card.noised for card in cards),
            individual=tuple(dict.fromkeys(name for card in cards for name in card.individual)),
            counted="records" if any(card.counted == "records" for card in cards) else "patients",
        )

    def __str__(self) -> str:
        columns = {head: [getattr(line, name) for line in self.lines] for name, head in _COLUMNS.items()}
        shown = [[head, *cells] for head, cells in columns.items() if any(cells)]
        padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in shown]
        table = ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]
        meanings = [f"  {line.step}.{line.field}: {line.what}" for line in self.lines]
        notes = [f"Note: {warning}" for warning in self.warnings]
        crowd = f"each value rests on at least {self.min_patients} {self.counted}"
        if self.noised:
            crowd = (
                f"what carries no noise rests on at least {self.min_patients} {self.counted}, "
                "noise hides each in the rest"
            )
        if self.individual:
            crowd += f", but for those of {', '.join(self.individual)}, which tell of single patients"
        head = f"What {self.method} lets out of a site ({crowd})"
        return "\n".join([head, "", *table, "", *meanings, "", f"Stays at the site: {self.remembers}", *notes])


def disclosure_card(
    part: type[SitePart],
    *,
    protection: Protection = "clear",
    n_sites: int | None = None,
    policy: Policy | None = None,
    plan: Plan | None = None,
    sites_per_patient: int = 1,
    asked: Collection[str] | None = None,
    counted: Counted = "patients",
) -> DisclosureCard:
    """Return the disclosure card of a method.

    Parameters
    ----------
    part : type
        The method's site part.
    protection : {"clear", "masked"}
        How summands leave.
    n_sites : int, optional
        How many sites take part; of one or two is warned.
    policy : Policy, optional
        The site's policy; the default one otherwise.
    plan : Plan, optional
        The noise of every release; only what it names leaves then, and what tells of no patient.
    sites_per_patient : int, default 1
        At how many sites one patient may have records.
    asked : collection of str, optional
        Names of the steps that will be asked; all that the part offers otherwise.
    counted : {"patients", "records"}, default "patients"
        Whether every site can tell which of its records are of one patient.

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
    {'nobody; the sum alone'}
    """
    offered = [step for name, step in part.steps().items() if asked is None or name in asked]
    steps = [step for step in offered if step.releases.concerns_patients and _is_planned(step, plan)]
    policy = policy or Policy()
    least = 0 if plan else policy.min_patients_in_total  # noise takes its place
    lines = [line for step in steps for line in _lines(step, protection, n_sites, plan, least, counted)]
    notes = [*_warnings(protection, n_sites, least, counted), *([_RECORDS] if counted == "records" else [])]
    remembered = [declaration.what for declaration in part.remembers.declarations().values()]
    return DisclosureCard(
        method=part.method,
        lines=tuple(lines),
        steps=tuple((step.name, step.purpose) for step in steps),
        remembers="; ".join(["the patients' rows", *remembered]),
        min_patients=policy.min_patients,
        warnings=(*notes, _promise(plan, protection, sites_per_patient, counted)),
        noised=plan is not None,
        individual=tuple(step.name for step in steps if step.releases.individual),
        counted=counted,
    )


def _is_planned(step: Step[Any, Any, Any], plan: Plan | None) -> bool:
    planned = plan is None or any(step.name == release.step.name for release in plan.releases)
    return planned or not step.releases.tells_of_patients()


def _lines(
    step: Step[Any, Any, Any],
    protection: Protection,
    n_sites: int | None,
    plan: Plan | None,
    least: int,
    counted: Counted,
) -> list[Line]:
    noise = plan.noise_of(step, 0) if plan else None
    masked = step.summed and protection == "masked"
    spans = _spans(step, n_sites, noise) if masked else {}
    where = "in the sum" if masked else "at each site"
    return [
        Line(
            step.name,
            step.when,
            f"{name}[by name]" if declaration.keyed else name,
            _meaning(declaration, least if step.summed else 0),
            declaration.dimensions,
            declaration.unit,
            _seen(step, protection),
            spans.get(name, ""),
            _noise_of(name, declaration.sensitivity, noise, f"{where} (one {counted[:-1]}:"),
        )
        for name, declaration in step.releases.declarations().items()
    ]


def _meaning(declaration: Declaration, least: int) -> str:
    if declaration.counts and least:
        return f"{declaration.what} (revealed only if each cell of the total is 0 or at least {least})"
    if not declaration.permission:
        return declaration.what
    name, _, level = declaration.permission.partition("=")
    value = f'"{level}"' if level else "true"
    return f"{declaration.what} (only where the policy says {name} = {value})"


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
    return "nobody; the sum alone" if protection == "masked" else "coordinator's process, which adds"


def _warnings(protection: Protection, n_sites: int | None, least: int, counted: Counted) -> list[str]:
    warnings = [] if not least else [_of_totals(protection, least, counted)]
    if protection == "clear":
        warnings.append(
            "sums are taken by the coordinator's process: whoever controls it could read one site's summand. "
            "Masked sums (secure_sum = true) prevent that."
        )
    else:
        warnings.append(
            "under masks the minimum is of patients behind a site's summand: a cell of a total may rest on one patient."
        )
    if n_sites == 1:
        warnings.append("a sum of one site is that site's own answer.")
    if n_sites == 2:
        warnings.append(
            "a sum of two is no secret between the two: each takes its own share off it and holds the other's. "
            "A policy forbids it with min_sites_in_sum = 3."
        )
    return warnings


def _of_totals(protection: Protection, least: int, counted: Counted) -> str:
    if protection == "clear":
        return f"an unmasked summand leaves only with at least {least} {counted} behind it (min_patients_in_total)."
    return (
        f"a sum is revealed only if it rests on at least {least} {counted} of all sites (min_patients_in_total). The "
        f"coordinator's process checks this; it receives the number of {counted} behind each value as a masked sum."
    )


def _promise(plan: Plan | None, protection: Protection, sites_per_patient: int, counted: Counted) -> str:
    if plan is None:
        return "no differential privacy: sums of many patients are exact."
    return str(guarantee_of_plan(plan, protection, sites_per_patient, counted))
