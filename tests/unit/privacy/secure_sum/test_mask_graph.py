"""Among many sites, masks form a random graph: its security is computed, counted out, simulated and attacked."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.sparse.csgraph import connected_components

from multicentre.core.messages import Nothing
from multicentre.errors import IntegrityError, MessageError, RefusedByPolicy
from multicentre.privacy.secure_sum import agreement
from multicentre.privacy.secure_sum.fixed_point import decode_release, encode_release, plan_grids
from multicentre.privacy.secure_sum.identity import Identity
from multicentre.privacy.secure_sum.mask import add_streams
from multicentre.privacy.secure_sum.mask_graph import (
    COMPLETE_UP_TO,
    SECURITY_BITS,
    assumed_colluding,
    draw_picks,
    n_picks,
    neighbours,
    security_bits,
)
from multicentre.privacy.secure_sum.rounds import _stacked
from multicentre.privacy.secure_sum.site import MAX_SUMS, MaskingSeal
from support.masking_parts import RUN, TRANSCRIPT, invitation, masking_keys
from support.mixed_method import Mixed, MixedSite, begun, mixed

MANY, D = 51, 400
NAMES = tuple(f"site-{i:02d}" for i in range(MANY))
KEYS = {name: Identity.generate() for name in NAMES}
PUBLIC = {name: key.public for name, key in KEYS.items()}
TERMS = invitation(NAMES, threshold=MANY, n_sums=MAX_SUMS)


def advertised():
    parts = {name: masking_keys(name, KEYS[name], PUBLIC) for name in NAMES}
    answers = {name: part.advertise(TERMS) for name, part in parts.items()}
    return parts, answers, _stacked(TERMS, answers)


def masked(parts, values):
    """Return the masked values of each site, and the streams that each site shares with each peer."""
    vectors, streams = {}, {}
    for name, part in parts.items():
        peers = [NAMES[j] for j in neighbours(part._agreement._public.picks, NAMES.index(name))]
        keys = part._agreement.masks(0, "answer", TRANSCRIPT)
        streams[name] = dict(zip(peers, keys, strict=True))
        vectors[name] = values[name].copy()
        add_streams(vectors[name], keys)
    return vectors, streams


def numbers():
    rng = np.random.default_rng(7)
    return {name: rng.integers(0, 2**40, D, dtype=np.uint64) for name in NAMES}


def read(some, colluding, vectors, streams):
    """Return the sum over some sites without the masks that colluding sites know."""
    total = np.add.reduce([vectors[name] for name in some])
    for name in some:
        add_streams(total, [(key, -sign) for peer, (key, sign) in streams[name].items() if peer in colluding])
    return total


def assert_noise(total):
    assert stats.kstest(total / 2.0**64, "uniform").pvalue > 1e-7


def is_connected(picks, honest):
    n_sites = len(picks)
    graph = np.zeros((n_sites, n_sites), bool)
    for site in honest:
        graph[site, picks[site]] = True
    return connected_components((graph | graph.T)[np.ix_(honest, honest)], directed=False)[0] == 1


# The bound


@pytest.mark.parametrize(("n_sites", "picks", "colluding"), [(4, 1, 0), (5, 1, 0), (5, 1, 1), (5, 2, 1), (5, 1, 2)])
def test_counted_out_over_all_picks_the_bound_holds(n_sites, picks, colluding):
    honest = list(range(n_sites - colluding))
    choices = [list(itertools.combinations([j for j in range(n_sites) if j != i], picks)) for i in honest]
    none = [()] * colluding
    apart = [not is_connected([list(one) for one in (*drawn, *none)], honest) for drawn in itertools.product(*choices)]
    bound = 2.0 ** -security_bits(n_sites, picks, colluding)
    assert np.mean(apart) <= bound * (1 + 1e-12)
    assert np.mean(apart) >= bound / 3 or bound > 1  # a union bound, and no more than that


def test_for_two_honest_sites_the_bound_is_exact():
    assert security_bits(10, 3, 8) == pytest.approx(-2 * np.log2(6 / 9))


def test_simulated_colluders_read_a_part_about_as_rarely_as_computed():
    n_sites, picks, colluding, n_draws = 60, 3, 20, 400
    bound = 2.0 ** -security_bits(n_sites, picks, colluding)
    rng = np.random.default_rng(2)
    apart = 0
    for _ in range(n_draws):
        honest = rng.permutation(n_sites)[colluding:]
        apart += not is_connected([draw_picks(n_sites, i, picks) for i in range(n_sites)], honest)
    spread = np.sqrt(bound / n_draws)
    assert bound / 2 - 5 * spread < apart / n_draws < bound + 5 * spread
    assert apart > 5


@pytest.mark.parametrize("n_sites", [51, 60, 100, 200, 1000])
def test_as_few_picks_as_the_bound_allows(n_sites):
    picks, third = n_picks(n_sites), assumed_colluding(n_sites, 0)
    assert third == n_sites // 3
    assert security_bits(n_sites, picks, third) >= SECURITY_BITS > security_bits(n_sites, picks - 1, third)
    fewer = [security_bits(n_sites, picks, colluding) for colluding in range(third + 1)]
    assert fewer == sorted(fewer, reverse=True)


def test_more_stated_colluders_mean_more_picks_and_at_last_all_sites():
    assert n_picks(COMPLETE_UP_TO) == 0
    assert [n_picks(100, colluding) for colluding in (0, 33, 60, 90)] == [16, 16, 29, 0]
    assert security_bits(100, 29, 60) >= SECURITY_BITS


@pytest.mark.parametrize("n_sites", [51, 52, 60, 99])
def test_no_stated_number_of_colluders_weakens_the_masks(n_sites):
    """A coordinator could otherwise state a number for which few picks suffice, and read parts of the sum alone."""
    for stated in range(n_sites + 1):
        picks = n_picks(n_sites, stated)
        for colluding in range(min(stated, n_sites - 2) + 1) if picks else ():
            assert security_bits(n_sites, picks, colluding) >= SECURITY_BITS


def test_picks_are_uniform_and_never_the_site_itself():
    drawn = np.concatenate([draw_picks(51, 7, 14) for _ in range(3000)])
    counts = np.bincount(drawn, minlength=51)
    assert counts[7] == 0
    assert stats.chisquare(np.delete(counts, 7)).pvalue > 1e-7


def test_neighbours_are_mutual_and_ignore_places_that_cannot_be():
    picks = np.array([[1, 0], [9, -1], [0, 0], [3, 3]], np.int32)
    assert [neighbours(picks, j) for j in range(4)] == [[1, 2], [0], [0], []]


# Sums


def test_a_sum_over_many_sites_is_that_of_the_ring():
    answers = [mixed(n=10 + i, amount=i / 7) for i in range(MANY)]
    total = begun(*answers).sum(MixedSite.answer, Nothing())
    grids = plan_grids(Mixed, MANY)
    encoded = [encode_release(answer, grids, "") for answer in answers]
    expected, _ = decode_release(Mixed, np.add.reduce([vector for vector, _ in encoded]), encoded[0][1], grids)
    for (*_, one), (*_, other) in zip(total.items(), expected.items(), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_with_losses_tolerated_every_site_masks_against_every_other():
    """A coordinator that chose which sites count as lost could cut a site off from a few neighbours."""
    assert invitation(NAMES, threshold=MANY - 1).n_picks == 0 < TERMS.n_picks


# Attacks


def test_colluders_read_the_sum_of_the_honest_sites_and_no_part_of_it():
    parts, _, public = advertised()
    for part in parts.values():
        part.agree(public)
    values = numbers()
    vectors, streams = masked(parts, values)
    order = np.random.default_rng(1).permutation(NAMES).tolist()
    colluding, honest = set(order[: MANY // 3]), order[MANY // 3 :]
    total = read(honest, colluding, vectors, streams)
    assert np.array_equal(total, np.add.reduce([values[name] for name in honest]))
    assert not np.add.reduce([vectors[name] - values[name] for name in NAMES]).any()
    for size in (1, 2, 10, 33):
        for start in range(0, len(honest) - size + 1, size):
            assert_noise(read(honest[start : start + size], colluding, vectors, streams))


def test_if_others_chose_the_picks_one_site_would_be_read(monkeypatch):
    """The attack itself works on sites whose neighbours all collude, so its failure above means something."""
    n_colluding = MANY // 3

    def chosen(n_sites, position, picks):
        pool = range(n_colluding) if position == MANY - 1 else range(MANY - 1)
        return np.array([j for j in pool if j != position][:picks], np.int32)

    monkeypatch.setattr(agreement, "draw_picks", chosen)
    parts, _, public = advertised()
    for part in parts.values():
        part.agree(public)
    values = numbers()
    vectors, streams = masked(parts, values)
    colluding = set(NAMES[:n_colluding])
    assert np.array_equal(read([NAMES[-1]], colluding, vectors, streams), values[NAMES[-1]])


def test_picks_that_the_coordinator_changed_are_refused():
    parts, _, public = advertised()
    own, other = public.picks.copy(), public.picks.copy()
    own[3] = draw_picks(MANY, 3, own.shape[1])
    other[3, 0] = 3
    with pytest.raises(IntegrityError, match=r"^site-03: the keys and fields listed for this site"):
        parts["site-03"].agree(dataclasses.replace(public, picks=own))
    with pytest.raises(IntegrityError, match=r"^site-03: the keys must have a valid signature of this site"):
        parts["site-05"].agree(dataclasses.replace(public, picks=other))
    for wrong in (None, public.picks[:, 1:], public.picks[1:]):
        with pytest.raises(MessageError, match=r"there must be 14 picks for each of 51 sites|side n must be"):
            parts["site-05"].agree(dataclasses.replace(public, picks=wrong).checked())
    parts["site-05"].agree(public)


def test_the_picks_of_one_site_are_not_drawn_again_under_the_terms_that_others_signed():
    """A third of the sites are all that one site picks with a probability of 2^-30: too many for draws of that site."""
    seal = MaskingSeal(KEYS[NAMES[0]], PUBLIC)
    first, forgotten_and_new = seal.new_keys(NAMES[0]), seal.new_keys(NAMES[0])
    first.run = forgotten_and_new.run = RUN
    first.advertise(TERMS)
    with pytest.raises(RefusedByPolicy, match="a key agreement must be new"):
        forgotten_and_new.advertise(TERMS)
    forgotten_and_new.advertise(dataclasses.replace(TERMS, agreement="another"))


def test_a_site_that_sends_too_few_picks_is_refused():
    _, answers, _ = advertised()
    answers["site-04"] = dataclasses.replace(answers["site-04"], picks=answers["site-04"].picks[1:])
    with pytest.raises(MessageError, match="each site must pick 14 others"):
        _stacked(TERMS, answers)


def test_a_site_that_signs_different_picks_for_two_sites_spoils_the_sum_and_reads_nothing():
    parts, answers, public = advertised()
    again = answers["site-00"]
    # A mask also follows from the picks of the other site: those told otherwise did not pick the cheat.
    honest = [name for name in NAMES[1:] if 0 not in answers[name].picks][:2]
    picks = np.array([j for j in range(1, MANY) if j not in again.picks][: len(again.picks)], np.int32)
    contents = (again.channel.tobytes(), b"", b"", again.fields, picks)
    signature = KEYS["site-00"].sign(TERMS.signed_by("site-00", RUN, *contents))
    told_otherwise = dataclasses.replace(again, picks=picks, signature=np.frombuffer(signature, np.uint8))
    other = _stacked(TERMS, answers | {"site-00": told_otherwise})
    for name, part in parts.items():
        part.agree(other if name in honest else public)
    values = numbers()
    vectors, streams = masked(parts, values)
    assert_noise(np.add.reduce(list(vectors.values())))
    for name in NAMES[1:]:
        assert_noise(read([name], {"site-00"}, vectors, streams))


def test_the_page_states_the_computed_security():
    page = (Path(__file__).parents[4] / "docs" / "secure-sums.md").read_text()
    section = page.partition("## More than 50 sites")[2].partition("\n## ")[0]
    rows = [
        [int(cell) for cell in line.strip("| ").split("|")]
        for line in section.splitlines()
        if line.startswith(("| 51", "| 1", "| 2", "| 5"))
    ]
    assert [row[0] for row in rows] == [51, 100, 200, 500, 1000]
    for n_sites, picks, links, *bits in rows:
        assert picks == n_picks(n_sites)
        assert links == round((n_sites - 1) * (1 - (1 - picks / (n_sites - 1)) ** 2))
        colluding = [n_sites // 10, n_sites // 5, n_sites // 3, n_sites // 2]
        assert bits == [round(security_bits(n_sites, picks, one)) for one in colluding]
