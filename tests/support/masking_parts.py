"""The site parts of masked sums, message by message: what tests put in the coordinator's place."""

import dataclasses

import numpy as np

from multicentre.core.calls import Call, Mark, Mask
from multicentre.core.messages import Nothing
from multicentre.privacy.secure_sum.identity import Identity
from multicentre.privacy.secure_sum.messages import BoxesFor, Invitation, Recovering, Unmasking
from multicentre.privacy.secure_sum.rounds import _stacked
from multicentre.privacy.secure_sum.site import MAX_SUMS, MaskingKeys, MaskingSeal
from multicentre.privacy.secure_sum.unmasking import list_digest, open_answers
from support.mixed_method import MixedSite, mixed

SITES = ("a", "b", "c")
FIVE = ("a", "b", "c", "d", "e")
IDENTITIES = {name: Identity.generate() for name in FIVE}
PUBLIC = {name: identity.public for name, identity in IDENTITIES.items()}


def invitation(sites=SITES, threshold=2, n_sums=2, agreement="first", **changes):
    given = {"study": "study", "session": "0.1", "n_colluding": 0, **changes}
    return Invitation(**given, agreement=agreement, sites=tuple(sites), threshold=threshold, n_sums=n_sums)


RUN = "2e" * 32


def masking_keys(name, identity=None, peers=PUBLIC, run=RUN, **options):
    """Return the keys of one site in a run."""
    part = MaskingKeys(name, identity or IDENTITIES[name], peers, **options)
    part.run = run
    return part


def parts_of(names=SITES, **options):
    return {name: masking_keys(name, **options) for name in names}


def advertised(terms=None, parts=None):
    terms = terms or invitation()
    parts = parts or parts_of(terms.sites)
    return terms, parts, _stacked(terms, {name: parts[name].advertise(terms) for name in terms.sites})


def shared(terms=None, parts=None):
    terms, parts, public = advertised(terms, parts)
    sent = np.stack([parts[name].share(public).boxes for name in terms.sites])
    return terms, parts, public, {name: BoxesFor(terms.agreement, sent[:, j]) for j, name in enumerate(terms.sites)}


def agreed(terms=None, parts=None):
    terms, parts, _, boxes = shared(terms, parts)
    for name, box in boxes.items():
        parts[name].accept(box)
    return terms, parts


def chained(sites=SITES, agreement="first"):
    """Return terms and parts of an agreement that needs every site."""
    terms = invitation(sites, threshold=len(sites), n_sums=MAX_SUMS, agreement=agreement)
    terms, parts, public = advertised(terms)
    for part in parts.values():
        part.agree(public)
    return terms, parts


TRANSCRIPT = "1f" * 32


def asked(number=0, peers=SITES, **changes):
    call = Call(
        "study",
        "0.1",
        5,
        MixedSite.answer,
        Nothing(),
        peers,
        Mask("first", number, 2),
        mark=Mark(TRANSCRIPT, TRANSCRIPT),
    )
    return dataclasses.replace(call, **changes)


def protect(parts, name="a", call=None, answer=None, seal=None):
    seal = seal or MaskingSeal(IDENTITIES[name], PUBLIC)
    return seal.protect(call or asked(), answer or mixed(), parts[name])


def answered(terms=None, parts=None):
    """Return the parts after every site has masked every sum."""
    terms, parts = agreed(terms, parts)
    for part in parts.values():
        for number in range(terms.n_sums):
            part._agreement.masks(number, "answer", TRANSCRIPT)
    return terms, parts


def unmask(parts, name, survivors, number=0):
    """Return the answer of one site to a list, encrypted."""
    return parts[name].unmask(Unmasking("first", number, tuple(survivors)))


def opened(terms, parts, answers, survivors, number=0):
    """Return what the answers of some sites to one list disclose."""
    keys_digest = next(iter(parts.values()))._agreement._keys_digest
    digest = list_digest(terms, number, tuple(survivors), keys_digest)
    return open_answers(terms.sites, terms.threshold, answers, digest)


def unmasked(terms, parts, survivors, number=0, by=None):
    """Return what each site discloses that receives one list."""
    answers = {name: unmask(parts, name, survivors, number) for name in (survivors if by is None else by)}
    return opened(terms, parts, answers, survivors, number)


def recover_masks(parts, name, lost, number=0):
    return parts[name].recover_masks(Recovering("first", number, tuple(lost)))
