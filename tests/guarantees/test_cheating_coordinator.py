"""A coordinator that names other survivors to some sites than to others reads nothing."""

import numpy as np
import pytest
from scipy import stats

from multicentre.errors import IntegrityError, RefusedByPolicy
from multicentre.privacy.secure_sum.mask import add_streams, key_pair, pair_key, self_mask_key
from multicentre.privacy.secure_sum.recoverable import SurvivorLists
from multicentre.privacy.secure_sum.recovery import combine_shares
from support.masking_parts import FIVE, TRANSCRIPT, agreed, confirm, invitation, recover_masks, unmask

D, THRESHOLD, TARGETS = 2000, 3, "ab"
# Every site hears of three survivors, itself among them. Of each of c, d, e three others hear that it was lost.
LISTS = {"a": "abe", "b": "abd", "c": "abc", "d": "abd", "e": "abe"}


class Eavesdropper:
    """What a cheating coordinator holds of one sum among five sites, of which any three can unmask it."""

    def __init__(self):
        self.terms, self.parts = agreed(invitation(FIVE, THRESHOLD, n_sums=1))
        self.label = self.terms.label(0, "answer", TRANSCRIPT)
        self.values = {site: np.random.default_rng(j).integers(0, 2**40, D, np.uint64) for j, site in enumerate(FIVE)}
        self.keys = {site: self.parts[site]._agreement._public.keys[j, 0].tobytes() for j, site in enumerate(FIVE)}
        self.masked = {site: self._masked(site) for site in FIVE}
        self.seeds, self.shares = {}, {site: {} for site in FIVE}
        self.signed = {}

    def _masked(self, site):
        vector = self.values[site].copy()
        add_streams(vector, self.parts[site]._agreement.masks(0, "answer", TRANSCRIPT))
        return vector

    def have_signed(self, lists):
        self.signed = {site: (told, confirm(self.parts, site, told)) for site, told in lists.items()}

    def signatures_of(self, told):
        signed = {site: signature for site, (heard, signature) in self.signed.items() if heard == told}
        return np.stack([signed.get(site, np.zeros(64, np.uint8)) for site in FIVE])

    def every_signature(self):
        return np.stack([self.signed[site][1] for site in FIVE])

    def ask(self, site, told, signatures):
        answer = unmask(self.parts, site, signatures)
        self.seeds[site] = answer.seed.tobytes()
        for lost, share in zip([one for one in FIVE if one not in told], answer.shares, strict=True):
            self.shares[lost][FIVE.index(site)] = share

    def total(self, targets):
        """Return the sum over the targets, without the masks of theirs that can be worked out."""
        total = np.add.reduce([self.masked[site] for site in targets])
        add_streams(
            total, [(self_mask_key(self.seeds[site], self.label), -1) for site in targets if site in self.seeds]
        )
        for lost in (site for site in FIVE if site not in targets and len(self.shares[site]) >= THRESHOLD):
            private = key_pair(combine_shares(self.shares[lost], THRESHOLD))
            add_streams(total, [pair_key(private, self.keys[site], lost, site, self.label) for site in targets])
        return total

    def truth(self, targets):
        return np.add.reduce([self.values[site] for site in targets])


def assert_noise(numbers):
    assert stats.kstest(numbers / 2.0**64, "uniform").pvalue > 1e-7


def test_if_nobody_held_the_lists_together_two_summands_would_be_read(monkeypatch):
    """The attack itself works on sites that check their own list alone, so its failure below means something."""
    monkeypatch.setattr(SurvivorLists, "_has_enough", lambda lists, told: True)
    spy = Eavesdropper()
    spy.have_signed(LISTS)
    for site, told in LISTS.items():
        spy.ask(site, told, spy.signatures_of(told))
    assert all(set(TARGETS) <= set(told) for told in LISTS.values())
    assert all(len(spy.shares[site]) >= THRESHOLD for site in "cde")
    assert np.array_equal(spy.total(TARGETS), spy.truth(TARGETS))


def test_sites_that_were_told_different_lists_disclose_nothing():
    spy = Eavesdropper()
    spy.have_signed(LISTS)
    for site, told in LISTS.items():
        for signatures in (spy.signatures_of(told), spy.every_signature()):
            with pytest.raises(IntegrityError, match="at least 3 sites must have signed the same list of survivors"):
                spy.ask(site, told, signatures)
        with pytest.raises(RefusedByPolicy, match="shares must be requested once, after the sum was unmasked"):
            recover_masks(spy.parts, site, TARGETS)
    assert not spy.seeds
    assert not any(spy.shares.values())
    for targets in (TARGETS, "a", "abc", FIVE):
        assert_noise(spy.total(targets))


def test_with_one_list_for_enough_of_them_the_sum_over_it_is_read_and_no_smaller_one():
    """Three sites are told of the same three; the other two of lists that together would uncover a and b."""
    spy = Eavesdropper()
    spy.have_signed({"a": "abc", "b": "abc", "c": "abc", "d": "abd", "e": "abe"})
    for site, (told, _) in spy.signed.items():
        if told == "abc":
            spy.ask(site, told, spy.signatures_of(told))
        else:
            with pytest.raises(IntegrityError):
                spy.ask(site, told, spy.signatures_of(told))
    assert np.array_equal(spy.total("abc"), spy.truth("abc"))
    for targets in ("ab", "a", "bc", "abcd", FIVE):
        assert_noise(spy.total(targets))
