"""Masked sums at the coordinator.

Sums need a key agreement, which consists of:

1. The sites send signed public keys (one exchange).
2. If every site is needed for a sum, the sites receive the keys of all others (one exchange). Such an agreement serves
   1,024 sums. If losses are tolerated, the sites instead send each other encrypted shares of the seeds of their keys
   (two exchanges). Such an agreement serves a batch of sums.

One sum consists of:

1. The sites send masked values, which the coordinator adds (one exchange). If every site is needed, the masks cancel
   and the sum can be read.
2. If losses are tolerated, the sites sign the list of the sites whose values are in the sum (one exchange).
3. They send what removes the masks (one exchange). If sites were lost in between, the others replace what those had to
   send (one further exchange).
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from multicentre.federation.engine import Mask, Protection
from multicentre.federation.errors import ConfigurationError, IntegrityError, MessageError, QuorumLost, name_some
from multicentre.federation.messages import Message
from multicentre.federation.noise import Plan
from multicentre.federation.ranges import check_total
from multicentre.federation.session import Session
from multicentre.federation.steps import R, Release, SitePart, Step
from multicentre.federation.totals import check_behind
from multicentre.privacy.secure_sum.fixed_point import Ring, decode_release, plan_grids
from multicentre.privacy.secure_sum.messages import (
    Advertisement,
    Advertisements,
    Boxes,
    BoxesFor,
    Confirming,
    Invitation,
    Masked,
    Recovered,
    Recovering,
    Unmasking,
)
from multicentre.privacy.secure_sum.recoverable import shape_of_boxes
from multicentre.privacy.secure_sum.recovery import Told, remove_masks
from multicentre.privacy.secure_sum.site import MOST_SUMS, MaskingKeys

N_SUMS = 16
GROWTH = 3
MOST_AT_ONCE = 256
_MOST_SHOWN = 100  # letters of a layout in an error; a line on a screen


@dataclass
class Agreed:
    """What the coordinator knows of an agreement, how many of its sums are spent, and how many went before it."""

    terms: Invitation
    public: Advertisements
    before: int = 0
    spent: int = 0
    summed: int = 0

    def serves(self, sites: tuple[str, ...]) -> bool:
        """Whether it has masks left for a sum over exactly these sites."""
        return self.terms.sites == sites and self.spent < self.terms.n_sums


class MaskedSummation:
    """Adds masked summands and reads the sum.

    Parameters
    ----------
    n_sums : int, default 16
        Where losses are tolerated: number of sums of a fit's first agreement. Each further one is for three times as
        many as there were so far, at most 256: a fit of hundreds of sums agrees a few times, a short one makes few keys
        in vain.
    n_colluding : int, default 0
        So many of the sites may show the coordinator what they hold.

    Notes
    -----
    A sum needs ``max(quorum, (n + n_colluding) // 2 + 1)`` of the n sites. Where that is all of them nothing can be
    recovered, and shares are neither made nor sent. A sum of two sites shows each the other's share.
    """

    protection: Protection = "masked"

    def __init__(self, *, n_sums: int = N_SUMS, n_colluding: int = 0) -> None:
        self._n_sums = n_sums
        self._n_colluding = n_colluding
        self._agreed: WeakKeyDictionary[Session, Agreed] = WeakKeyDictionary()

    def prepare(self, part: type[SitePart], n_sites: int, plan: Plan | None) -> None:
        """Check that every sum which the part declares fits the ring, its noise included.

        Raises
        ------
        ConfigurationError
            A range over so many sites does not fit, or there is one site only.
        """
        noises = {planned.step.name: planned.noise for planned in plan.releases} if plan else {}
        for step in part.steps().values():
            if step.summed:
                if n_sites < 2:
                    raise ConfigurationError("a secure sum needs at least two sites", where="secure_sum")
                plan_grids(step.releases, n_sites, noises.get(step.name))

    def total(self, session: Session, step: Step[Any, Any, R], ask: Message) -> R:
        """Return the sum over the values of all sites that answered; none of them can be read alone.

        Raises
        ------
        QuorumLost
            Fewer sites are left than the sum needs, at whichever exchange; nothing of it can be read.
        IntegrityError
            A site's keys, signature, seed or shares are not what they have to be, the sites were asked different
            things in this session, or the masks do not cancel.
        DisclosureRefused
            Fewer patients stand behind the sum than the policy of a site wants behind a total.
        """
        agreed = self._agreement(session)
        terms, number = agreed.terms, agreed.spent
        agreed.spent += 1
        counted = session.holds_totals(step)
        answers = session.collect(step, ask, mask=_mask(terms, number, counted=counted))
        survivors = tuple(answers)
        _check_enough(terms, survivors, "answered")
        agreed.summed = len(survivors)
        total, layout, transcript = _added(answers, step)
        noise = session.noise_of(step)
        if terms.recovers:
            label = terms.label(number, step.name, transcript)
            told = _unmasked(session, terms, number, survivors)
            remove_masks(total, terms, agreed.public, label, told)
        grids = plan_grids(step.releases, len(terms.sites), noise)
        release, behind = decode_release(step.releases, total, layout, grids, counted=counted)
        check_total(release, survivors, noise)
        check_behind(step.releases, behind, session.least_in_total)
        return release

    def noise_spread(self, session: Session) -> float:
        """Each site's share is made so that those of the fewest honest sites suffice; the others' come on top."""
        agreed = self._agreed.get(session)
        if agreed is None:
            return 1.0
        return math.sqrt(agreed.summed / _mask(agreed.terms, 0).sharers)

    def _agreement(self, session: Session) -> Agreed:
        agreed = self._agreed.get(session)
        taken = 0 if agreed is None else agreed.before + agreed.spent
        while agreed is None or not agreed.serves(session.sites):
            agreed = self._agree(session, taken)
        self._agreed[session] = agreed
        return agreed

    def _agree(self, session: Session, taken: int) -> Agreed | None:
        terms = self._terms(session, taken)
        answers = session.collect(MaskingKeys.advertise, terms)
        if tuple(answers) != terms.sites:
            return None
        public = _stacked(terms, answers)
        if not terms.recovers:
            session.collect(MaskingKeys.agree, public)
            return Agreed(terms, public, taken)
        boxes = session.collect(MaskingKeys.share, public)
        if tuple(boxes) == terms.sites:
            session.collect(MaskingKeys.accept, _delivered(terms, boxes))
        return Agreed(terms, public, taken)

    def _terms(self, session: Session, taken: int) -> Invitation:
        sites = session.sites
        if len(sites) < 2:
            raise QuorumLost(
                "one site is left, and a sum of one is its own answer",
                where=", ".join(sites),
                mend="Bring the others back and resume the run.",
            )
        threshold = min(max(session.needed, (len(sites) + self._n_colluding) // 2 + 1), len(sites))
        n_sums = max(self._n_sums, min(GROWTH * taken, MOST_AT_ONCE)) if threshold < len(sites) else MOST_SUMS
        name = secrets.token_hex(8)
        return Invitation(session.terms.study, session.name, name, sites, threshold, n_sums, self._n_colluding)


def _mask(terms: Invitation, number: int, *, counted: bool = False) -> Mask:
    return Mask(terms.agreement, number, terms.threshold, terms.n_colluding, counted)


def _stacked(terms: Invitation, answers: Mapping[str, Advertisement]) -> Advertisements:
    for site, answer in answers.items():
        if answer.keys.shape[0] != terms.n_keys:
            raise MessageError("there is not one key for each sum", where=site)
    told = list(answers.values())
    return Advertisements(
        terms.agreement,
        np.stack([answer.channel for answer in told]),
        np.stack([answer.keys for answer in told]),
        np.stack([answer.checks for answer in told]),
        np.stack([answer.signature for answer in told]),
        tuple(answer.held for answer in told),
    )


def _delivered(terms: Invitation, boxes: Mapping[str, Boxes]) -> dict[str, BoxesFor]:
    expected = shape_of_boxes(terms)
    if differing := [site for site, answer in boxes.items() if answer.boxes.shape != expected]:
        shape = boxes[differing[0]].boxes.shape
        raise MessageError(
            f"the shares must have shape {expected}; got {shape}", where=f"{name_some(differing)}, share"
        )
    sent = np.stack([answer.boxes for answer in boxes.values()])
    return {site: BoxesFor(terms.agreement, sent[:, j]) for j, site in enumerate(terms.sites)}


def _added(answers: Mapping[str, Release], step: Step[Any, Any, Any]) -> tuple[Ring, str, str]:
    """Return the sum of the masked values, what stands where in it, and the transcript that all sites hold."""
    masked = [answer for answer in answers.values() if isinstance(answer, Masked)]
    if unmasked := [site for site, answer in answers.items() if not isinstance(answer, Masked)]:
        raise MessageError("the answer must be masked; it is not", where=f"{name_some(unmasked)}, {step.name}")
    _check_transcripts({site: answer.transcript for site, answer in zip(answers, masked, strict=True)})
    layouts: dict[tuple[str, int], list[str]] = {}
    for site, answer in zip(answers, masked, strict=True):
        layouts.setdefault((answer.layout, len(answer.vector)), []).append(site)
    if len(layouts) > 1:
        described = "; ".join(f"{name_some(sites)}: {_shown(layout)}" for (layout, _), sites in layouts.items())
        raise ConfigurationError(f"the sites answered with different shapes ({described})", where=step.name)
    total = masked[0].vector.copy()
    for answer in masked[1:]:
        total += answer.vector
    return total, masked[0].layout, masked[0].transcript


def _check_transcripts(transcripts: Mapping[str, str]) -> None:
    """Raise IntegrityError where transcripts differ; it names the sites that differ from most others.

    Where no transcript is that of more than half of the sites, nobody can tell who differs, and all are named.
    """
    most_common, n_sites = Counter(transcripts.values()).most_common(1)[0]
    if n_sites < len(transcripts):
        has_majority = 2 * n_sites > len(transcripts)
        differing = [site for site, transcript in transcripts.items() if transcript != most_common or not has_majority]
        found = "these were asked other things than the rest" if has_majority else "no more than half of them were"
        raise IntegrityError(
            f"the sites must be asked the same things in a session; {found}, and nothing of the sum can be read",
            where=name_some(differing),
            mend="Compare the sites' ledgers (multicentre ledger compare), and start the run again.",
        )


def _shown(layout: str) -> str:
    """Return a layout that another machine sent as a short text that moves no cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in layout)[:_MOST_SHOWN]


def _unmasked(session: Session, terms: Invitation, number: int, survivors: tuple[str, ...]) -> Told:
    sum_ = (terms.agreement, number)
    confirmed = session.collect(MaskingKeys.confirm, Confirming(*sum_, survivors))
    _check_enough(terms, tuple(confirmed), "confirmed who is in the sum")
    signatures = np.zeros((len(terms.sites), 64), dtype=np.uint8)
    for site, answer in confirmed.items():
        signatures[terms.sites.index(site)] = answer.signature
    told = Told(survivors, session.collect(MaskingKeys.unmask, Unmasking(*sum_, signatures)))
    _check_enough(terms, tuple(told.unmasked), "helped to unmask the sum")
    return _with_lost(session, terms, number, told) if told.missing else told


def _with_lost(session: Session, terms: Invitation, number: int, told: Told) -> Told:
    recovered: dict[str, Recovered] = session.collect(
        MaskingKeys.recover_own, Recovering(terms.agreement, number, told.missing)
    )
    _check_enough(terms, tuple(recovered), "helped to unmask the sum")
    return Told(told.survivors, told.unmasked, recovered)


def _check_enough(terms: Invitation, sites: tuple[str, ...], did: str) -> None:
    if len(sites) < terms.threshold:
        raise QuorumLost(
            f"{len(sites)} of {len(terms.sites)} sites {did}, the masked sum needs {terms.threshold}; "
            "nothing of it can be read",
            where=", ".join(site for site in terms.sites if site not in sites),
            mend="Bring the sites back and resume the run.",
        )
