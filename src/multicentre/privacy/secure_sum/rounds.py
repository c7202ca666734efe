"""Masked sums at the coordinator.

Sums need a key agreement, which consists of:

1. The sites send signed public keys (one exchange).
2. If every site is needed for a sum, the sites receive the keys of all others (one exchange). Such an agreement is
   valid for 1,024 sums. If losses are tolerated, the sites instead send each other encrypted shares of the seeds of
   their keys (two exchanges). Such an agreement is valid for a batch of sums.

One sum consists of:

1. The sites send masked values, which the coordinator adds (one exchange). If every site is needed, the masks cancel
   and the sum can be read.
2. If losses are tolerated, the sites receive the list of the sites whose values are in the sum, and send the seeds
   that remove the masks, encrypted (one exchange). The coordinator can decrypt them only if enough sites received the
   same list. If sites were lost in between, the others send shares of the missing seeds (one further exchange).
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from multicentre.core import side_by_side
from multicentre.core.calls import Mask, Protection
from multicentre.core.messages import Message
from multicentre.core.noise_plan import Plan
from multicentre.core.range_checks import check_total
from multicentre.core.session import Session
from multicentre.core.steps import R, Release, SitePart, Step
from multicentre.core.total_minimum import check_behind
from multicentre.errors import ConfigurationError, IntegrityError, MessageError, QuorumLost, name_some
from multicentre.privacy.secure_sum.fixed_point import Ring, decode_release, plan_grids, sum_terms
from multicentre.privacy.secure_sum.messages import (
    Advertisement,
    Advertisements,
    Boxes,
    BoxesFor,
    Invitation,
    Masked,
    Recovered,
    Recovering,
    Unmasked,
    Unmasking,
)
from multicentre.privacy.secure_sum.recoverable import shape_of_boxes
from multicentre.privacy.secure_sum.recovery import UnmaskingAnswers, remove_masks
from multicentre.privacy.secure_sum.site import MAX_SUMS, MaskingKeys
from multicentre.privacy.secure_sum.unmasking import digest_of, list_digest, open_answers

N_SUMS = 16  # enough for a short fit without a second agreement
GROWTH = 3  # a fit of 600 sums then needs five agreements
MAX_AT_ONCE = 256  # keys of 50 sites for 256 sums are below half a megabyte per site
_MAX_SHOWN = 100  # letters of a layout in an error: one line on a screen


@dataclass
class Prepared:
    """Key agreement at the coordinator, with the numbers of its used and open sums, and of the sums before it."""

    terms: Invitation
    public: Advertisements
    before: int = 0
    spent: int = 0
    summed: int = 0
    n_open: int = 0

    @contextmanager
    def summing(self) -> Iterator[None]:
        """Count a sum as open within the context."""
        self.n_open += 1
        try:
            yield
        finally:
            self.n_open -= 1

    def serves(self, sites: tuple[str, ...]) -> bool:
        """Return whether unused masks remain for a sum over exactly these sites."""
        return self.terms.sites == sites and self.spent < self.terms.n_sums


class MaskedSummation:
    """Masked sums over sites.

    Parameters
    ----------
    n_sums : int, default 16
        Number of sums of a fit's first agreement, if losses are tolerated. Each further agreement is for three times
        the number of sums before it, at most 256. A fit of hundreds of sums then needs few agreements, and a short fit
        generates few unused keys.
    n_colluding : int, default 0
        Number of sites that may collude with the coordinator.

    Notes
    -----
    A sum needs ``max(quorum, (n + n_colluding) // 2 + 1)`` of the n sites. If this is n, sums cannot be recovered, and
    shares are neither computed nor sent. A sum of two sites reveals to each site the other's share.
    """

    protection: Protection = "masked"

    def __init__(self, *, n_sums: int = N_SUMS, n_colluding: int = 0) -> None:
        self._n_sums = n_sums
        self._n_colluding = n_colluding
        self._agreed: WeakKeyDictionary[Session, Prepared] = WeakKeyDictionary()
        self._agreeing: WeakSet[Session] = WeakSet()

    def prepare(self, part: type[SitePart], n_sites: int, plan: Plan | None) -> None:
        """Check that every declared sum of the part fits 64 bits, including its noise.

        Raises
        ------
        ConfigurationError
            A range over this number of sites does not fit, or there is only one site.
        """
        noises = {planned.step.name: planned.noise for planned in plan.releases} if plan else {}
        for step in part.steps().values():
            if step.summed:
                if n_sites < 2:
                    raise ConfigurationError(
                        f"a secure sum must have at least 2 sites; got {n_sites}",
                        where="secure_sum",
                        hint="Add a site, or set secure_sum=False.",
                    )
                plan_grids(step.releases, n_sites, noises.get(step.name))

    def total(self, session: Session, step: Step[Any, Any, R], request: Message) -> R:
        """Return the sum over the values of all sites that answered; single values cannot be read.

        Raises
        ------
        QuorumLost
            At any exchange, fewer sites are left than the sum needs. The sum cannot be read.
        IntegrityError
            Keys, signature, seed or shares of a site are invalid, the sites received different requests in this
            session, or the masks do not cancel.
        DisclosureRefused
            The sum has fewer patients behind it than the policy of a site requires behind a total.
        """
        agreed = self._agreement(session)
        with agreed.summing():
            return self._total(session, step, request, agreed)

    def _total(self, session: Session, step: Step[Any, Any, R], request: Message, agreed: Prepared) -> R:
        terms, number = agreed.terms, agreed.spent
        agreed.spent += 1
        counted = session.checks_totals(step)
        answers = session.collect(step, request, mask=_mask(terms, number, counted=counted))
        survivors = tuple(answers)
        _check_enough(terms, survivors, "answered")
        agreed.summed = len(survivors)
        total, layout, transcript = _added(answers, step)
        noise = session.noise_of(step)
        if terms.recovers:
            label = terms.label(number, step.name, transcript)
            unmasking = _unmasked(session, terms, agreed.public, number, survivors)
            remove_masks(total, terms, agreed.public, label, unmasking)
        grids = plan_grids(step.releases, len(terms.sites), noise)
        release, behind = decode_release(step.releases, total, layout, grids, counted=counted)
        check_total(release, survivors, noise)
        check_behind(step.releases, behind, session.least_in_total)
        return release

    def noise_spread(self, session: Session) -> float:
        """Return the standard deviation of the noise relative to its plan.

        The shares of the smallest number of honest sites suffice for the planned noise; those of other sites are added.
        """
        agreed = self._agreed.get(session)
        if agreed is None:
            return 1.0
        return math.sqrt(agreed.summed / _mask(agreed.terms, 0).sharers)

    def rounding(self, session: Session, step: Step[Any, Any, Any]) -> Mapping[str, float]:
        """Return the largest rounding error of the fields of a step's sum; 0 for integers."""
        terms = sum_terms(step.releases, len(session.sites), session.noise_of(step))
        return {name: field.rounding for name, field in terms.items()}

    def _agreement(self, session: Session) -> Prepared:
        """Return an agreement with unused masks. Of sums side by side, one agrees, when no sum needs the earlier keys.

        Recovery of masks ends an agreement, so sums that may need it are computed one at a time.
        """

        def is_busy() -> bool:
            agreed = self._agreed.get(session)
            if session in self._agreeing or agreed is None or not agreed.n_open:
                return session in self._agreeing
            return agreed.terms.recovers or not agreed.serves(session.sites)

        side_by_side.wait_while(is_busy)
        agreed = self._agreed.get(session)
        n_used = 0 if agreed is None else agreed.before + agreed.spent
        self._agreeing.add(session)
        try:
            while agreed is None or not agreed.serves(session.sites):
                agreed = self._agree(session, n_used)
        finally:
            self._agreeing.discard(session)
        self._agreed[session] = agreed
        return agreed

    def _agree(self, session: Session, n_used: int) -> Prepared | None:
        terms = self._terms(session, n_used)
        answers = session.collect(MaskingKeys.advertise, terms)
        if tuple(answers) != terms.sites:
            return None
        public = _stacked(terms, answers)
        if not terms.recovers:
            session.collect(MaskingKeys.agree, public)
            return Prepared(terms, public, n_used)
        boxes = session.collect(MaskingKeys.share, public)
        if tuple(boxes) == terms.sites:
            session.collect(MaskingKeys.accept, _delivered(terms, boxes))
        return Prepared(terms, public, n_used)

    def _terms(self, session: Session, n_used: int) -> Invitation:
        sites = session.sites
        if len(sites) < 2:
            raise QuorumLost(
                f"a masked sum must have at least 2 sites; got {len(sites)}",
                where=", ".join(sites),
                hint="Reconnect the other sites and resume the run.",
            )
        threshold = min(max(session.needed, (len(sites) + self._n_colluding) // 2 + 1), len(sites))
        n_sums = max(self._n_sums, min(GROWTH * n_used, MAX_AT_ONCE)) if threshold < len(sites) else MAX_SUMS
        name = secrets.token_hex(8)
        return Invitation(session.terms.study, session.name, name, sites, threshold, n_sums, self._n_colluding)


def _mask(terms: Invitation, number: int, *, counted: bool = False) -> Mask:
    return Mask(terms.agreement, number, terms.threshold, terms.n_colluding, counted)


def _stacked(terms: Invitation, answers: Mapping[str, Advertisement]) -> Advertisements:
    for site, answer in answers.items():
        if answer.keys.shape[0] != terms.n_keys:
            raise MessageError(
                f"there must be {terms.n_keys} keys, one per sum; got {answer.keys.shape[0]}", where=site
            )
    in_order = list(answers.values())
    picks = [answer.picks for answer in in_order if answer.picks is not None and len(answer.picks) == terms.n_picks]
    if terms.n_picks and len(picks) < len(in_order):
        raise MessageError(f"each site must pick {terms.n_picks} others; one did not", where="advertise")
    return Advertisements(
        terms.agreement,
        np.stack([answer.channel for answer in in_order]),
        np.stack([answer.keys for answer in in_order]),
        np.stack([answer.checks for answer in in_order]),
        np.stack([answer.signature for answer in in_order]),
        tuple(answer.fields for answer in in_order),
        np.stack(picks) if terms.n_picks else None,
    )


def _delivered(terms: Invitation, boxes: Mapping[str, Boxes]) -> dict[str, BoxesFor]:
    expected = shape_of_boxes(terms)
    if differing := [site for site, answer in boxes.items() if answer.boxes.shape != expected]:
        shape = boxes[differing[0]].boxes.shape
        raise MessageError(f"boxes must have shape {expected}; got {shape}", where=f"{name_some(differing)}, share")
    sent = np.stack([answer.boxes for answer in boxes.values()])
    return {site: BoxesFor(terms.agreement, sent[:, j]) for j, site in enumerate(terms.sites)}


def _added(answers: Mapping[str, Release], step: Step[Any, Any, Any]) -> tuple[Ring, str, str]:
    """Return the sum of the masked values, its layout, and the common transcript of all sites."""
    masked = [answer for answer in answers.values() if isinstance(answer, Masked)]
    if unmasked := [site for site, answer in answers.items() if not isinstance(answer, Masked)]:
        raise MessageError(
            "the answer must be masked; got an unmasked one", where=f"{name_some(unmasked)}, {step.name}"
        )
    _check_transcripts({site: answer.transcript for site, answer in zip(answers, masked, strict=True)})
    layouts: dict[tuple[str, int], list[str]] = {}
    for site, answer in zip(answers, masked, strict=True):
        layouts.setdefault((answer.layout, len(answer.vector)), []).append(site)
    if len(layouts) > 1:
        described = "; ".join(f"{name_some(sites)}: {_printable(layout)}" for (layout, _), sites in layouts.items())
        raise ConfigurationError(
            f"the answers of all sites must have the same shapes; got {described}",
            where=step.name,
            hint="Use the same columns, classes and views at all sites.",
        )
    total = masked[0].vector.copy()
    for answer in masked[1:]:
        total += answer.vector
    return total, masked[0].layout, masked[0].transcript


def _check_transcripts(transcripts: Mapping[str, str]) -> None:
    """Raise IntegrityError if transcripts differ; the error names the sites that differ from most others.

    If no transcript is that of more than half of the sites, the error names all sites.
    """
    most_common, n_sites = Counter(transcripts.values()).most_common(1)[0]
    if n_sites < len(transcripts):
        has_majority = 2 * n_sites > len(transcripts)
        differing = [site for site, transcript in transcripts.items() if transcript != most_common or not has_majority]
        result = "these sites received different ones" if has_majority else "no more than half of them did"
        raise IntegrityError(
            f"all sites must receive the same requests in a session; {result}, and the sum cannot be read",
            where=name_some(differing),
            hint="Compare the sites' ledgers (multicentre ledger compare), and start the run again.",
        )


def _printable(layout: str) -> str:
    """Return a received layout as a short printable text."""
    return "".join(letter if letter.isprintable() else " " for letter in layout)[:_MAX_SHOWN]


def _unmasked(
    session: Session, terms: Invitation, public: Advertisements, number: int, survivors: tuple[str, ...]
) -> UnmaskingAnswers:
    unmasked = session.collect(MaskingKeys.unmask, Unmasking(terms.agreement, number, survivors))
    _check_enough(terms, tuple(unmasked), "sent their part of the unmasking")
    _check_shapes(terms, unmasked)
    digest = list_digest(terms, number, survivors, digest_of(public))
    answers = UnmaskingAnswers(survivors, open_answers(terms.sites, terms.threshold, unmasked, digest))
    return _with_lost(session, terms, number, answers) if answers.missing else answers


def _with_lost(session: Session, terms: Invitation, number: int, answers: UnmaskingAnswers) -> UnmaskingAnswers:
    recovered: dict[str, Recovered] = session.collect(
        MaskingKeys.recover_masks, Recovering(terms.agreement, number, answers.missing)
    )
    _check_enough(terms, tuple(recovered), "sent their part of the unmasking")
    return UnmaskingAnswers(answers.survivors, answers.unmasked, recovered)


def _check_shapes(terms: Invitation, unmasked: Mapping[str, Unmasked]) -> None:
    n_sites = len(terms.sites)
    if differing := [site for site, one in unmasked.items() if {len(one.shares), len(one.pads)} != {n_sites}]:
        raise MessageError(
            f"there must be one share and one pad for each of {n_sites} sites; got others",
            where=f"{name_some(differing)}, unmask",
        )


def _check_enough(terms: Invitation, sites: tuple[str, ...], action: str) -> None:
    if len(sites) < terms.threshold:
        raise QuorumLost(
            f"a masked sum must have answers of at least {terms.threshold} sites; {len(sites)} of {len(terms.sites)} "
            f"{action}, and the sum cannot be read",
            where=", ".join(site for site in terms.sites if site not in sites),
            hint="Reconnect these sites and resume the run.",
        )
