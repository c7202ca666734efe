"""A masked sum equals the plain one, and shows nothing else."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.federation.engine import Call, Mask
from multicentre.federation.errors import (
    ConfigurationError,
    DisclosureRefused,
    MessageError,
    QuorumLost,
    RefusedByPolicy,
)
from multicentre.federation.messages import Nothing, array, arrays, count, number
from multicentre.federation.steps import Release, SitePart, step
from multicentre.privacy.secure_sum import (
    MaskingKeys,
    MaskingSeal,
    PublicKeys,
    flatten,
    from_ring,
    mask_stream,
    to_ring,
    unflatten,
)
from toy_method import Guess, MeanSite, federate, toy_sites

ASK = Guess(np.zeros(3), 0)


@dataclass(frozen=True)
class Mixed(Release):
    """Every kind of summand."""

    square: np.ndarray = array("x", ("a", "b"), bound=1e10)
    short: np.ndarray = array("x", ("a",), dtype="i4", bound=2.0**31)
    single: np.ndarray = array("x", (), dtype="f4", bound=1e10)
    views: dict = arrays("x", ("p",), bound=1e10)
    n: int = count("x")
    amount: float = number("x", finite=False, bound=1e10)


class MixedSite(SitePart):
    """Answers with what a test laid down."""

    method = "mixed"
    holds = Mixed

    @step(releases=Mixed, summed=True)
    def answer(self, ask: Nothing) -> Mixed:
        """Answer."""
        return self.data


def mixed(**changes):
    values = {
        "square": np.array([[1.5, -2.25]]),
        "short": np.array([3], "i4"),
        "single": np.array(0.5, "f4"),
        "views": {"a|b": np.array([1e5, -1.0]), "c": np.empty(0)},
        "n": 30,
        "amount": -0.125,
    }
    return Mixed(**values | changes, patients=30)


def masked_sum(*answers, **options):
    sites = {f"site-{i}": answer for i, answer in enumerate(answers)}
    return federate(sites, secure_sum=True, **options).begin(MixedSite).sum(MixedSite.answer, Nothing())


@given(
    npst.arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(0, 8)), elements=st.floats(-5e9, 5e9, width=64)),
)
@settings(max_examples=60, deadline=None)
def test_the_masked_sum_equals_the_plain_one_to_the_declared_error(rows):
    n_sites, exact = len(rows), rows.astype(np.longdouble).sum(axis=0)
    total = from_ring(np.add.reduce([to_ring(row, n_sites) for row in rows]))
    spacing = np.spacing(np.abs(total)) / 2
    assert np.all(np.abs(total - exact) <= n_sites * 2.0**-25 + spacing)


@given(st.integers(2, 50), st.floats(0, 1))
def test_no_sum_within_the_range_can_overflow(n_sites, part):
    limit = 2.0**39 / n_sites
    for value in (np.nextafter(limit, 0), np.nextafter(limit, 0) * part):
        for sign in (1, -1):
            summand = to_ring(np.array([sign * value]), n_sites)
            total = int(summand.view(np.int64)[0]) * n_sites
            assert -(2**63) <= total < 2**63
            assert from_ring(np.add.reduce([summand] * n_sites))[0] == pytest.approx(
                n_sites * sign * value, rel=1e-12, abs=1e-5
            )


@pytest.mark.parametrize("value", [2.0**39 / 3, -(2.0**39) / 3, 1e300, np.inf, -np.inf, np.nan])
def test_a_value_beyond_the_range_is_refused(value):
    with pytest.raises(DisclosureRefused, match=r"lyon: a value is beyond the 1\.83e\+11 that a sum of 3 sites"):
        to_ring(np.array([0.0, value]), 3, place="lyon")


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), 1e12])
def test_a_site_refuses_a_value_that_the_ring_cannot_hold(amount):
    with pytest.raises(DisclosureRefused, match=r"^site-1, answer: a value is beyond"):
        masked_sum(mixed(), mixed(amount=amount))


@pytest.mark.parametrize("strict", [False, True])
def test_every_kind_of_field_comes_back_summed(strict):
    total = masked_sum(mixed(), mixed(n=12, views={"c": np.empty(0), "a|b": np.array([0.0, 7.0])}), strict=strict)
    assert total.square.tolist() == [[3.0, -4.5]]
    assert (total.short.tolist(), total.short.dtype) == ([6], np.dtype("i4"))
    assert (float(total.single), total.single.shape, total.single.dtype) == (1.0, (), np.dtype("f4"))
    assert total.views["a|b"].tolist() == [1e5, 6.0]
    assert total.views["c"].shape == (0,)
    assert (total.n, type(total.n), total.amount) == (42, int, -0.25)


def test_flattening_is_undone():
    release = mixed()
    values, layout = flatten(release)
    back = unflatten(Mixed, values, layout)
    assert flatten(back)[0].tolist() == values.tolist()
    assert flatten(back)[1] == layout


def test_a_sum_beyond_its_type_is_said():
    big = mixed(short=np.array([2**31 - 1], "i4"))
    with pytest.raises(MessageError, match=r"Mixed\.short: a sum is beyond what dtype i4"):
        masked_sum(big, big)


@pytest.mark.parametrize(
    "other",
    [{"views": {"c": np.empty(0)}}, {"square": np.ones((1, 3))}, {"views": {"a|b": np.ones(1), "c": np.ones(1)}}],
)
def test_summands_of_different_shape_are_refused(other):
    with pytest.raises(ConfigurationError, match="answered with different shapes"):
        masked_sum(mixed(), mixed(**other))


def test_one_site_cannot_have_a_secure_sum():
    with pytest.raises(ConfigurationError, match="at least two sites"):
        masked_sum(mixed())


def test_a_crowd_too_small_for_the_policy_is_refused():
    policy = mc.Policy(min_sites_in_sum=3)
    with pytest.raises(RefusedByPolicy, match="a sum of 2 sites is too small a crowd"):
        masked_sum(mixed(), mixed(), policy=policy)
    assert masked_sum(mixed(), mixed(), mixed(), policy=policy).n == 90


def test_secure_sums_only_lets_sums_pass_and_nothing_else():
    federation = federate(secure_sum=True, policy=mc.Policy(secure_sums_only=True)).begin(MeanSite)
    assert federation.sum(MeanSite.residuals, ASK).n == 93
    with pytest.raises(RefusedByPolicy, match=r"^site-0, size, secure_sums_only: only masked sums"):
        federation.ask(MeanSite.size, ASK)
    plain = federate(policy=mc.Policy(secure_sums_only=True)).begin(MeanSite)
    with pytest.raises(RefusedByPolicy, match="only masked sums"):
        plain.sum(MeanSite.residuals, ASK)


@pytest.mark.parametrize("since", [0, 1])
def test_a_site_lost_while_keys_are_agreed_does_not_confuse_the_sum(since):
    federation = federate(secure_sum=True, quorum=2, faults=Faults(lose={"site-1": since})).begin(MeanSite)
    if since == 0:
        assert federation.sum(MeanSite.residuals, ASK).n == 62
        return
    with pytest.raises(QuorumLost, match=r"^site-1: the sites were lost while keys were agreed; nothing was asked"):
        federation.sum(MeanSite.residuals, ASK)
    assert federation.sum(MeanSite.residuals, ASK).n == 62


def test_a_site_lost_after_keys_were_agreed_ends_the_sum():
    federation = federate(secure_sum=True, quorum=2, faults=Faults(lose={"site-1": 2})).begin(MeanSite)
    with pytest.raises(QuorumLost, match=r"^site-1: .*nothing of the sum can be read.*Resume the run"):
        federation.sum(MeanSite.residuals, ASK)
    assert federation.sum(MeanSite.residuals, ASK).n == 62


def test_a_site_lost_between_two_sums_has_the_others_agree_anew():
    federation = federate(secure_sum=True, quorum=2, faults=Faults(lose={"site-1": 3})).begin(MeanSite)
    assert federation.sum(MeanSite.residuals, ASK).n == 93
    assert len(federation.ask(MeanSite.size, ASK)) == 2
    assert federation.sum(MeanSite.residuals, ASK).n == 62


def agreed(*names):
    parts = {name: MaskingKeys(name, None) for name in names}
    keys = PublicKeys({name: part.advertise(Nothing()).key for name, part in parts.items()})
    for part in parts.values():
        part.agree(keys)
    return parts


def asked(sequence=0, peers=("a", "b", "c"), session="0.1"):
    return Call("study", session, sequence, MixedSite.answer, Nothing(), peers, Mask(session, 0, len(peers)))


def test_pairs_share_a_secret_and_sessions_do_not():
    one, two = agreed("a", "b", "c"), agreed("a", "b", "c")
    assert one["a"].shared["b"] == one["b"].shared["a"]
    secrets = {s for parts in (one, two) for part in parts.values() for s in part.shared.values()}
    assert len(secrets) == 6
    assert "a" not in one["a"].shared


def test_streams_differ_by_call_session_and_pair():
    shared = agreed("a", "b", "c")["a"].shared
    calls = [asked(0), asked(1), asked(0, session="0.2")]
    streams = {mask_stream(secret, call, 4).tobytes() for secret in shared.values() for call in calls}
    assert len(streams) == 6
    assert mask_stream(shared["b"], asked(), 4).tobytes() == mask_stream(shared["b"], asked(), 9)[:4].tobytes()


def test_a_number_of_a_call_cannot_be_used_twice():
    keys = agreed("a", "b", "c")["a"]
    MaskingSeal().protect(asked(3), mixed(), keys)
    for sequence in (3, 2):
        with pytest.raises(ConfigurationError, match="were used before"):
            MaskingSeal().protect(asked(sequence), mixed(n=31), keys)
    MaskingSeal().protect(asked(4), mixed(), keys)


@pytest.mark.parametrize("peers", [(), ("a",), ("a", "b"), ("a", "b", "c", "d"), ("a", "b", "c", "c"), ("b", "c")])
def test_a_sum_over_other_sites_than_agreed_is_refused(peers):
    with pytest.raises(ConfigurationError, match="keys were not agreed"):
        MaskingSeal().protect(asked(peers=peers), mixed(), agreed("a", "b", "c")["a"])


@pytest.mark.parametrize("peers", [("a", "a"), ("a",)])
def test_without_keys_nothing_leaves_unmasked(peers):
    with pytest.raises(ConfigurationError, match="keys were not agreed"):
        MaskingSeal().protect(asked(peers=peers), mixed(), MaskingKeys("a", None))


def test_keys_are_never_written_down(tmp_path):
    federation = federate(toy_sites(), secure_sum=True, folder=tmp_path).begin(MeanSite)
    federation.sum(MeanSite.residuals, ASK)
    runtimes = federation._engine._runtimes.values()
    secrets = [s for r in runtimes for p in r._parts.values() if isinstance(p, MaskingKeys) for s in p.shared.values()]
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert len(secrets) == 6
    assert written
    assert not any(secret in written or secret.hex().encode() in written for secret in secrets)
