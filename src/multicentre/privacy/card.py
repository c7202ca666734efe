"""The disclosure card: before any run, every field that would leave a site, how often, and under which protection."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from multicentre.federation.engine import Protection
from multicentre.federation.steps import SitePart, Step
from multicentre.privacy.policy import Policy


@dataclass(frozen=True)
class Line:
    """One field that would leave."""

    step: str
    when: str
    field: str
    what: str
    shape: str
    unit: str
    seen: str


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
    """

    method: str
    lines: tuple[Line, ...]
    steps: tuple[tuple[str, str], ...]
    remembers: str
    min_patients: int
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        rows = [("step", "how often", "field", "shape", "who can see it")]
        rows += [(line.step, line.when, line.field, line.shape, line.seen) for line in self.lines]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        meanings = [f"  {line.step}.{line.field}: {line.what}" for line in self.lines]
        notes = [f"Note: {warning}" for warning in self.warnings]
        head = f"What {self.method} lets out of a site (each value rests on at least {self.min_patients} patients)"
        return "\n".join([head, "", *table, "", *meanings, "", f"Stays at the site: {self.remembers}", *notes])


def disclosure_card(
    part: type[SitePart], *, protection: Protection = "clear", n_sites: int | None = None, policy: Policy | None = None
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
    steps = [step for step in part.steps().values() if step.releases.concerns_patients]
    lines = [line for step in steps for line in _lines(step, protection)]
    remembered = [declaration.what for declaration in part.remembers.declarations().values()]
    return DisclosureCard(
        method=part.method,
        lines=tuple(lines),
        steps=tuple((step.name, step.purpose) for step in steps),
        remembers="; ".join(["the patients' rows", *remembered]),
        min_patients=(policy or Policy()).min_patients,
        warnings=tuple(_warnings(protection, n_sites)),
    )


def _lines(step: Step[Any, Any, Any], protection: Protection) -> list[Line]:
    return [
        Line(
            step.name,
            step.when,
            f"{name}[by name]" if declaration.keyed else name,
            declaration.what,
            declaration.dimensions,
            declaration.unit,
            _seen(step, protection),
        )
        for name, declaration in step.releases.declarations().items()
    ]


def _seen(step: Step[Any, Any, Any], protection: Protection) -> str:
    if not step.summed:
        return "coordinator, site by site"
    return "nobody; the sum alone" if protection == "masked" else "coordinator's process, which adds"


def _warnings(protection: Protection, n_sites: int | None) -> list[str]:
    warnings = []
    if protection == "clear":
        warnings.append(
            "sums are taken by the coordinator's process: whoever controls it could read one site's summand. "
            "Masked sums (secure_sum = true) prevent that."
        )
    if n_sites == 1:
        warnings.append("a sum of one site is that site's own answer.")
    if n_sites == 2:
        warnings.append("a sum of two sites shows each of them the other's share.")
    warnings.append("no differential privacy: sums of many patients are exact.")
    return warnings
