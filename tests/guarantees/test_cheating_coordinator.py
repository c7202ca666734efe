"""A coordinator that names other survivors to some sites than to others reads nothing."""

import numpy as np
import pytest
from scipy import stats

from multicentre.errors import IntegrityError
from multicentre.privacy.secure_sum import recoverable
from multicentre.privacy.secure_sum.mask import add_streams, key_pair, pair_key, seed_of_sum, self_mask_key
from multicentre.privacy.secure_sum.shares import combine_shares
from support.masking_parts import FIVE, TRANSCRIPT, agreed, invitation, opened, recover_masks, unmask

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
        self.mask_shares = {site: {} for site in FIVE}
        self.told, self.answers = {}, {}

    def _masked(self, site):
        vector = self.values[site].copy()
        add_streams(vector, self.parts[site]._agreement.masks(0, "answer", TRANSCRIPT))
        return vector

    def tell(self, lists):
        """Send each site its own list."""
        self.told = lists
        self.answers = {site: unmask(self.parts, site, told) for site, told in lists.items()}

    def open(self, sites, told):
        """Open the answers of some sites as if all of them had received one list."""
        self.take(opened(self.terms, self.parts, {site: self.answers[site] for site in sites}, told))

    def take(self, contents):
        """Use what sites disclose."""
        for site, disclosed in contents.items():
            self.seeds[site] = disclosed.seed.tobytes()
            for lost, share in zip([one for one in FIVE if one not in self.told[site]], disclosed.shares, strict=True):
                self.shares[lost][FIVE.index(site)] = share

    def recover(self):
        """Ask each site for its shares of the self-masks of all others on its list."""
        for site, told in self.told.items():
            others = [one for one in told if one != site]
            for other, share in zip(others, recover_masks(self.parts, site, others).shares, strict=True):
                self.mask_shares[other][FIVE.index(site)] = share
        for site, shares in self.mask_shares.items():
            if len(shares) >= THRESHOLD:
                self.seeds[site] = seed_of_sum(combine_shares(shares, THRESHOLD), 0)

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
    """The attack itself works on sites that do not encrypt their answers, so its failure below means something."""
    monkeypatch.setattr(recoverable, "seal_answer", lambda content, *others: content)
    spy = Eavesdropper()
    spy.tell(LISTS)
    spy.take(spy.answers)
    assert all(set(TARGETS) <= set(told) for told in LISTS.values())
    assert all(len(spy.shares[site]) >= THRESHOLD for site in "cde")
    assert np.array_equal(spy.total(TARGETS), spy.truth(TARGETS))


@pytest.mark.parametrize("recovers", [False, True])
def test_sites_that_were_told_different_lists_disclose_nothing(recovers):
    """Neither by opening their answers in any way, nor together with all shares of self-masks that sites send."""
    spy = Eavesdropper()
    spy.tell(LISTS)
    for told in set(LISTS.values()):
        for sites in (FIVE, [site for site in FIVE if site in told], "abe", "abd", "abc"):
            with pytest.raises(IntegrityError, match="at least 3 sites must have received the same list of survivors"):
                spy.open(sites, told)
    assert not spy.seeds
    assert not any(spy.shares.values())
    if recovers:
        spy.recover()
        assert set(spy.seeds) == set(TARGETS)
    for targets in (TARGETS, "a", "abc", FIVE):
        assert_noise(spy.total(targets))


def test_with_one_list_for_enough_of_them_the_sum_over_it_is_read_and_no_smaller_one():
    """Three sites are told of the same three; the other two of lists that together would uncover a and b."""
    spy = Eavesdropper()
    spy.tell({"a": "abc", "b": "abc", "c": "abc", "d": "abd", "e": "abe"})
    spy.open("abc", "abc")
    for site in "de":
        with pytest.raises(IntegrityError):
            spy.open(["a", "b", site], spy.told[site])
    assert np.array_equal(spy.total("abc"), spy.truth("abc"))
    spy.recover()
    for targets in ("ab", "a", "bc", "abcd", FIVE):
        assert_noise(spy.total(targets))
    assert np.array_equal(spy.total("abc"), spy.truth("abc"))
