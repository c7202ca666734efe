"""What the coordinator receives under secure sums looks like noise, whatever the sites hold."""

import numpy as np
import pytest
from scipy import stats

from multicentre.federation.messages import Message
from multicentre.privacy.secure_sum import Masked
from toy_method import FedMean, Guess, MeanSite, federate

D = 400


class Wiretap:
    """Wraps an engine and keeps every outcome that passes to the coordinator."""

    def __init__(self, engine):
        self.engine, self.heard = engine, []
        self.sites, self.upkeep, self.close = engine.sites, engine.upkeep, engine.close

    def exchange(self, calls, time_limit_s):
        outcomes = self.engine.exchange(calls, time_limit_s)
        self.heard += [(next(iter(calls.values())).step.name, site, outcome) for site, outcome in outcomes.items()]
        return outcomes


@pytest.fixture(scope="module")
def tapped():
    """The masked and the clear transcript of one step, asked thirty times of four sites."""
    rng = np.random.default_rng(8)
    sites = {f"site-{i}": rng.integers(0, 3, (20, D)).astype(float) for i in range(4)}
    heard = []
    for secure in (True, False):
        federation = federate(sites, secure_sum=secure)
        federation._engine = tap = Wiretap(federation._engine)
        session = federation.begin(MeanSite)
        for number in range(30):
            session.sum(MeanSite.residuals, Guess(np.zeros(D), number))
        heard.append(tap.heard)
    return heard


def vectors(heard):
    return np.array([outcome.vector for step, _, outcome in heard if step == "residuals"])


def test_only_masked_summands_and_keys_reach_the_coordinator(tapped):
    masked, _ = tapped
    kinds = {(step, type(outcome).__name__) for step, _, outcome in masked}
    assert kinds == {("advertise", "PublicKey"), ("agree", "Acknowledgement"), ("residuals", "Masked")}
    assert all(isinstance(outcome, Message) for _, _, outcome in masked)


def test_masked_summands_do_not_carry_counts(tapped):
    assert all(outcome.patients == {} for _, _, outcome in tapped[0])


def test_every_byte_of_the_masked_summands_is_uniform(tapped):
    seen = vectors(tapped[0]).view(np.uint8).reshape(-1, 8)
    for position in range(8):
        counts = np.bincount(seen[:, position], minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-7
    assert stats.kstest(vectors(tapped[0]).ravel() / 2.0**64, "uniform").pvalue > 1e-7


def test_masked_summands_are_not_correlated_with_the_clear_ones(tapped):
    masked, clear = tapped
    noise = vectors(masked).view(np.int64).astype(float)
    truth = np.array([np.append([out.calls, out.n], out.total) for step, _, out in clear if step == "residuals"])
    assert noise.shape == truth.shape == (120, D + 2)
    correlation = [np.corrcoef(noise[i, 2:], truth[i, 2:])[0, 1] for i in range(len(noise))]
    assert np.max(np.abs(correlation)) < 6.0 / np.sqrt(D)
    assert abs(np.mean(correlation)) < 6.0 / np.sqrt(D * len(noise))
    assert not np.isin(vectors(masked), np.rint(truth * 2.0**24).astype(np.int64).view(np.uint64)).any()


def test_two_masked_summands_never_share_a_stream(tapped):
    seen = vectors(tapped[0]).reshape(30, 4, -1)
    differences = (seen[1:, 0] - seen[:-1, 0]).ravel()
    assert stats.kstest(differences / 2.0**64, "uniform").pvalue > 1e-7
    assert len(np.unique(seen)) == seen.size


def test_any_sum_short_of_all_sites_still_looks_like_noise(tapped):
    seen = vectors(tapped[0]).reshape(30, 4, -1)
    for size in (1, 2, 3):
        assert stats.kstest(np.add.reduce(seen[:, :size], axis=1).ravel() / 2.0**64, "uniform").pvalue > 1e-7
    total = np.add.reduce(seen, axis=1).view(np.int64) / 2.0**24
    assert total[0, 1] == 80.0


def test_the_sum_of_all_is_what_the_method_gets():
    clear, masked = (FedMean().fit(federate(secure_sum=secure)) for secure in (False, True))
    assert np.abs(clear.mean_ - masked.mean_).max() < 4 * 3 * 2.0**-25
    assert issubclass(Masked, Message)
