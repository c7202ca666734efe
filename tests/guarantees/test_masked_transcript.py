"""What the coordinator receives under secure sums looks like noise, whatever the sites hold, until it is the sum."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from multicentre.core.calls import Lost
from multicentre.core.messages import Message
from multicentre.engines.faults import Faults
from multicentre.privacy.secure_sum.fixed_point import plan_grids, rounding, to_ring
from multicentre.privacy.secure_sum.mask import add_streams, key_pair, pair_key, seed_of_sum, self_mask_key
from multicentre.privacy.secure_sum.messages import Masked
from multicentre.privacy.secure_sum.shares import combine_shares
from multicentre.privacy.secure_sum.unmasking import digest_of, list_digest, open_answers
from support.engines import with_engine
from support.toy_method import FedMean, Guess, MeanSite, Residuals, federate

D, N_SITES, N_SUMS, THRESHOLD = 400, 4, 30, 3
M = D + 3  # the columns, two counts, and the zero by which the sum is known to be without masks
SITES = tuple(f"site-{i}" for i in range(N_SITES))
GRIDS = plan_grids(Residuals, N_SITES)


class Wiretap:
    """Wraps an engine and keeps every message that passes to or from the coordinator."""

    def __init__(self, engine):
        self.engine, self.heard, self.told = engine, [], []
        self.sites, self.run_command, self.close = engine.sites, engine.run_command, engine.close

    def exchange(self, calls, time_limit_s):
        outcomes = self.engine.exchange(calls, time_limit_s)
        self.heard += [(next(iter(calls.values())).step.name, site, outcome) for site, outcome in outcomes.items()]
        self.told += [(call.step.name, site, call.request) for site, call in calls.items()]
        return outcomes


def transcript(n_sums=N_SUMS, **options):
    rng = np.random.default_rng(8)
    federation = federate({site: rng.integers(0, 3, (20, D)).astype(float) for site in SITES}, **options)
    tap = Wiretap(federation.engine)
    federation = with_engine(federation, tap)
    session = federation.begin(MeanSite)
    for number in range(n_sums):
        session.sum(MeanSite.residuals, Guess(np.zeros(D), number))
    return tap


@pytest.fixture(scope="module")
def unmasked():
    return transcript(secure_sum=False)


@pytest.fixture(scope="module")
def every_site_needed():
    return transcript()


@pytest.fixture(scope="module")
def recoverable():
    return transcript(quorum=THRESHOLD)


@pytest.fixture(params=["every_site_needed", "recoverable"])
def masked(request):
    return request.getfixturevalue(request.param)


def vectors(tap):
    """Return what was masked, shape (sums, sites, numbers)."""
    seen = [outcome.vector for step, _, outcome in tap.heard if step == "residuals"]
    return np.array(seen).reshape(N_SUMS, N_SITES, M)


def truths(unmasked):
    """Return the ring numbers that the masked ones hide."""
    rows = [out for step, _, out in unmasked.heard if step == "residuals"]
    found = np.empty((len(rows), M), np.uint64)
    for row, out in zip(found, rows, strict=True):
        to_ring(out.total, GRIDS["total"], row[:D])
        row[D:] = [out.n, out.calls, 0]
    return found.reshape(N_SUMS, N_SITES, M)


def assert_uniform(numbers):
    assert stats.kstest(numbers.ravel() / 2.0**64, "uniform").pvalue > 1e-7


def test_only_masked_summands_and_keys_reach_the_coordinator(every_site_needed, recoverable):
    kinds = [{(s, type(outcome).__name__) for s, _, outcome in tap.heard} for tap in (every_site_needed, recoverable)]
    assert kinds[0] == {("advertise", "Advertisement"), ("agree", "Acknowledgement"), ("residuals", "Masked")}
    assert kinds[1] == {("advertise", "Advertisement"), ("share", "Boxes"), ("accept", "Acknowledgement")} | {
        ("residuals", "Masked"),
        ("unmask", "Unmasked"),
    }


def test_masked_summands_do_not_carry_counts(masked):
    assert all(isinstance(outcome, Message) for *_, outcome in masked.heard)
    assert all(outcome.patients == {} for *_, outcome in masked.heard)


def test_every_byte_of_the_masked_summands_is_uniform(masked):
    seen = vectors(masked).view(np.uint8).reshape(-1, 8)
    for position in range(8):
        counts = np.bincount(seen[:, position], minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-7
    assert_uniform(vectors(masked))


def test_masked_summands_are_not_correlated_with_the_clear_ones(masked, unmasked):
    noise = vectors(masked).reshape(-1, M)
    truth = truths(unmasked).reshape(-1, M)
    pairs = zip(noise.view(np.int64).astype(float), truth.view(np.int64).astype(float), strict=True)
    correlation = [np.corrcoef(one[:D], other[:D])[0, 1] for one, other in pairs]
    assert np.max(np.abs(correlation)) < 6.0 / np.sqrt(D)
    assert abs(np.mean(correlation)) < 6.0 / np.sqrt(D * len(noise))
    assert not np.isin(noise, truth).any()


def test_two_masked_summands_never_share_a_stream(masked):
    seen = vectors(masked)
    assert_uniform(seen[1:, 0] - seen[:-1, 0])
    assert len(np.unique(seen)) == seen.size


def test_any_sum_short_of_all_sites_still_looks_like_noise(every_site_needed, unmasked):
    seen = vectors(every_site_needed)
    for size in (1, 2, 3):
        for some in combinations(range(N_SITES), size):
            assert_uniform(np.add.reduce(seen[:, some], axis=1))
    assert np.array_equal(np.add.reduce(seen, axis=1), np.add.reduce(truths(unmasked), axis=1))


def test_before_it_is_unmasked_even_the_sum_of_all_looks_like_noise(recoverable):
    for size in (1, 2, 3, 4):
        assert_uniform(np.add.reduce(vectors(recoverable)[:, :size], axis=1))


def seeds_of(tap, invitations):
    """Return the seeds of all sums, shape (sums, sites, 16), as the coordinator opens the answers."""
    publics = [request for step, _, request in tap.told if step == "share"][::N_SITES]
    answers = [outcome for step, _, outcome in tap.heard if step == "unmask"]
    seeds = np.empty((N_SUMS, N_SITES, 16), np.uint8)
    for number in range(N_SUMS):
        of_sum = dict(zip(SITES, answers[N_SITES * number : N_SITES * (number + 1)], strict=True))
        seeds[number] = [
            one.seed for one in disclosed(of_sum, invitations[number // 16], publics[number // 16], number)
        ]
    return seeds


def disclosed(answers, terms, public, number, survivors=SITES):
    digest = list_digest(terms, number % 16, survivors, digest_of(public))
    return open_answers(terms.sites, terms.threshold, answers, digest).values()


def without_own_masks(tap, sites):
    """Return every sum's masked vectors, those of `sites` without the masks of their own."""
    invitations = [request for step, _, request in tap.told if step == "advertise"][::N_SITES]
    seeds = seeds_of(tap, invitations)
    transcripts = [outcome.transcript for step, _, outcome in tap.heard if step == "residuals"][::N_SITES]
    seen = vectors(tap)
    for number, j in ((number, j) for number in range(N_SUMS) for j in sites):
        label = invitations[number // 16].label(number % 16, "residuals", transcripts[number])
        add_streams(seen[number, j], [(self_mask_key(seeds[number, j].tobytes(), label), -1)])
    return seen


def test_a_seed_short_of_all_the_sum_still_looks_like_noise(recoverable, unmasked):
    for some in combinations(range(N_SITES), N_SITES - 1):
        assert_uniform(np.add.reduce(without_own_masks(recoverable, some), axis=1))
    total = np.add.reduce(without_own_masks(recoverable, range(N_SITES)), axis=1)
    assert np.array_equal(total, np.add.reduce(truths(unmasked), axis=1))


def test_with_all_seeds_single_summands_and_sums_of_some_still_look_like_noise(recoverable):
    seen = without_own_masks(recoverable, range(N_SITES))
    for size in (1, 2, 3):
        for some in combinations(range(N_SITES), size):
            assert_uniform(np.add.reduce(seen[:, some], axis=1))


@pytest.mark.parametrize(("phase", "step"), [("residuals", "unmask"), ("unmask", "recover_masks")])
def test_a_share_short_of_the_threshold_the_sum_over_a_loss_still_looks_like_noise(phase, step, unmasked):
    tap = transcript(1, quorum=THRESHOLD, faults=Faults(lose={"site-3": phase}))
    requests = {step: request for step, _, request in tap.told}
    terms, public = requests["advertise"], requests["share"]
    answered = next(out for s, _, out in tap.heard if s == "residuals")
    label = terms.label(0, "residuals", answered.transcript)
    arrived = {site: out.vector for s, site, out in tap.heard if s == "residuals" and not isinstance(out, Lost)}
    answers = {site: out for s, site, out in tap.heard if s == "unmask" and not isinstance(out, Lost)}
    opened = disclosed(answers, terms, public, 0, tuple(arrived))
    seeds = {site: out.seed.tobytes() for site, out in zip(answers, opened, strict=True)}
    recovered = [out for s, _, out in tap.heard if s == "recover_masks" and not isinstance(out, Lost)]
    shares = [out.shares[0] for out in (opened if step == "unmask" else recovered)]
    masked = np.add.reduce(list(arrived.values()))
    add_streams(masked, [(self_mask_key(seed, label), -1) for seed in seeds.values()])
    assert_uniform(masked)

    def read(holders):
        total, seed = masked.copy(), combine_shares({h: shares[h] for h in holders}, len(holders))
        keys = [public.keys[j, 0].tobytes() for j in range(N_SITES)]
        lost = [pair_key(key_pair(seed), keys[j], "site-3", site, label) for j, site in enumerate(SITES[:3])]
        add_streams(total, lost if phase == "residuals" else [(self_mask_key(seed_of_sum(seed, 0), label), -1)])
        return total

    assert len(shares) == THRESHOLD
    for holders in combinations(range(THRESHOLD), THRESHOLD - 1):
        assert_uniform(read(holders))
    assert np.array_equal(read(range(THRESHOLD)), np.add.reduce(truths(unmasked)[0][: len(arrived)]))


@pytest.mark.parametrize("step", ["share", "unmask"])
def test_shares_and_seeds_look_like_noise_to_the_coordinator(recoverable, step):
    field = {"share": "boxes", "unmask": "sealed"}[step]
    found = [np.atleast_2d(getattr(outcome, field)) for heard, _, outcome in recoverable.heard if heard == step]
    rows = np.concatenate([row for rows in found for row in rows if row.any()])
    assert len(rows) > 1500
    assert stats.chisquare(np.bincount(rows, minlength=256)).pvalue > 1e-7


@pytest.mark.parametrize("lost", [False, True])
def test_two_data_sets_of_one_sum_have_the_same_transcript(lost):
    """For every other data set with the same sum there are masks, as likely as the true ones, that show the same.

    Moving d from lyon to nice and the stream of that one pair by as much leaves every masked value as it was. Of a lost
    site's pairs the coordinator knows the streams, so these are taken off first; the pair that moves is never known.
    """
    rng = np.random.default_rng(5)
    names = ("lyon", "metz", "nice")
    data = {name: rng.integers(0, 2**40, 50, dtype=np.uint64) for name in names}
    moved = rng.integers(0, 2**40, 50, dtype=np.uint64)
    other = {**data, "lyon": data["lyon"] + moved, "nice": data["nice"] - moved}
    pairs = {name: key_pair(rng.bytes(16)) for name in names}
    views = []
    for values, shift in ((data, np.uint64(0)), (other, moved)):
        view = {}
        for name in ("lyon", "nice") if lost else names:
            vector = values[name].copy()
            for peer in names:
                if peer != name and not (lost and peer == "metz"):
                    public = pairs[peer].public_key().public_bytes_raw()
                    key, sign = pair_key(pairs[name], public, name, peer, ("a sum",))
                    add_streams(vector, [(key, sign)])
                    if {name, peer} == {"lyon", "nice"}:
                        vector -= shift * np.array(sign).astype(np.uint64)
            view[name] = vector
        views.append(view)
    for name in views[0]:
        assert np.array_equal(views[0][name], views[1][name])
        assert not np.array_equal(views[0][name], data[name])
    assert np.array_equal(sum(views[0].values()), sum(data[name] for name in views[0]))


def test_the_sum_of_all_is_what_the_method_gets():
    unmasked, masked = (FedMean().fit(federate(secure_sum=secure)) for secure in (False, True))
    allowed = 4 * rounding(plan_grids(Residuals, 3)["total"], 3)
    assert 0 < np.abs(unmasked.mean_ - masked.mean_).max() < allowed
    assert issubclass(Masked, Message)
