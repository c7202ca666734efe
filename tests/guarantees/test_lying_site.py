"""A site that answers beyond what its release declares: nothing is computed from it, and the error names the sender.

Unmasked, every answer is held against its declaration on arrival, whatever engine carried it. Masked, no single answer
can be read: a total that no honest values add up to is refused, and no honest site is named for it.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing, array, arrays, count, number
from multicentre.core.noise_plan import Noise, Plan, Planned
from multicentre.core.range_checks import ROOM, check_ranges, check_total
from multicentre.core.steps import Release, SitePart, step
from multicentre.core.wire import decode, encode
from multicentre.engines.remote import engine as remote
from multicentre.engines.remote.packing import Reply, Request
from multicentre.errors import (
    ConfigurationError,
    DisclosureRefused,
    IntegrityError,
    MessageError,
)
from multicentre.privacy.secure_sum.messages import Boxes
from support.engines import with_engine
from support.lying_engine import Lying
from support.remote_sites import ByHand, RequestHandlers
from support.toy_method import FedMean, Guess, Size, toy_sites

LIAR = "site-1"


@dataclass(frozen=True)
class Tallies(Release):
    """Fields of every kind that can be beyond its range."""

    total: np.ndarray = array("sum of a column", ("d",), bound=1000.0)
    cells: np.ndarray = array("patients by bin", ("b",), bound=1e6, counts=True)
    by_view: dict = arrays("sums by view", ("c",), bound=1000.0)
    mean_age: float = number("mean age", bound=130.0)
    n_patients: float = number("patients", unit="patients")
    n: int = count("patients")
    exponent: int = count("exponent", bound=1024.0, signed=True)
    smoothed: float = number("sum with noise", bound=100.0, sensitivity=1.0)


class TallySite(SitePart):
    """Answers honestly, as a sum or by itself."""

    method = "tallies"
    holds = np.ndarray

    def _tallies(self):
        n, rows = len(self.data), self.data
        by_view = {"a": rows[:, :2].sum(axis=0), "b": rows[:, 2:].sum(axis=0)}
        cells = np.array([float(n), 0.0])
        return Tallies(rows.sum(axis=0), cells, by_view, 61.0, float(n), n, -3, 5.0, patients=n)

    @step(releases=Tallies, when="once")
    def tell(self, request: Nothing) -> Tallies:
        """Answer for the site alone."""
        return self._tallies()


@dataclass(frozen=True)
class Sums(Release):
    """The same as a sum."""

    total: np.ndarray = array("sum of a column", ("d",), bound=1000.0)
    cells: np.ndarray = array("patients by bin", ("b",), bound=1e6, counts=True)
    n: int = count("patients")


class SumSite(SitePart):
    """Answers with terms of a sum."""

    method = "lying-sums"
    holds = np.ndarray

    @step(releases=Sums, when="once", summed=True)
    def add(self, request: Nothing) -> Sums:
        """Add up."""
        n = len(self.data)
        return Sums(self.data.sum(axis=0), np.array([float(n), 0.0]), n, patients=n)


def federate(says, site=LIAR, **options):
    """Return toy sites of which one lies."""
    federation = mc.Federation.in_process(toy_sites(), **options)
    return with_engine(federation, Lying(federation.engine, site, says))


def with_values(**values):
    """Return what replaces fields of the answers that have them."""

    def says(call, honest):
        return dataclasses.replace(honest, **{name: v for name, v in values.items() if hasattr(honest, name)})

    return says


LIES = {
    "too large a number": {"mean_age": 131.0},
    "a number far beyond": {"mean_age": 1e30},
    "an entry above": {"total": np.array([0.0, 1000.1, 0.0])},
    "an entry below": {"total": np.array([0.0, -1e18, 0.0])},
    "an entry of a view": {"by_view": {"a": np.zeros(2), "b": np.array([2000.0])}},
    "a cell below 0": {"cells": np.array([30.0, -1.0])},
    "a cell beyond": {"cells": np.array([30.0, 1e7])},
    "too many patients": {"n_patients": 1e30},
    "fewer patients than none": {"n_patients": -1.0},
    "a count below 0": {"n": -1},
    "a count beyond": {"n": 2**41},
    "a count beyond 64 bits": {"n": 2**64},
    "an exponent beyond": {"exponent": -1025},
    "a number that is not finite": {"mean_age": float("nan")},
    "an infinite number": {"n_patients": float("inf")},
    "an entry that is not finite": {"total": np.array([0.0, np.inf, 0.0])},
    "another dtype": {"total": np.zeros(3, dtype=np.float32)},
    "another number of sides": {"total": np.zeros((3, 1))},
    "a text for a number": {"mean_age": "61"},
    "nothing": {"n": None},
}
each_lie = pytest.mark.parametrize("lie", LIES.values(), ids=LIES)


def can_be_written(lie):
    """Return whether the wire format writes a lie; what it does not write, it does not read either."""
    try:
        encode(dataclasses.replace(TallySite("lyon", np.zeros((20, 3)))._tallies(), **lie))
    except MessageError:
        return False
    return True


def test_honest_answers_arrive():
    with federate(lambda call, honest: honest) as federation:
        answers = federation.begin(TallySite).ask(TallySite.tell, Nothing())
    assert [answer.exponent for answer in answers.values()] == [-3] * 3


@each_lie
@pytest.mark.parametrize("willing", [False, True])
def test_an_answer_beyond_its_declaration_is_refused_and_its_sender_named(lie, willing):
    """Not even a question that goes on without sites that refuse goes on without a site that lies."""
    with federate(with_values(**lie)) as federation, pytest.raises(MessageError) as raised:
        federation.begin(TallySite).ask(TallySite.tell, Nothing(), skip_refusals=willing)
    assert raised.value.where.startswith(LIAR)
    assert next(iter(lie)) in raised.value.where


@pytest.mark.parametrize("answer", [None, "text", Nothing(), Size(3.0)], ids=["none", "text", "no release", "another"])
def test_an_answer_of_another_kind_is_refused_and_its_sender_named(answer):
    with federate(lambda call, honest: answer) as federation, pytest.raises(MessageError, match=rf"^{LIAR}, tell"):
        federation.begin(TallySite).ask(TallySite.tell, Nothing())


@pytest.mark.parametrize(
    "lie", [{"total": np.full(3, 1e30)}, {"n": -1}, {"n": 2**62}, {"cells": np.array([-1.0, 0.0])}], ids=str
)
def test_no_term_of_an_unmasked_sum_is_added_before_it_was_checked(lie):
    """A sum that overflowed blamed nobody, and the next step blamed whoever refused what followed from it."""
    with (
        federate(with_values(**lie), secure_sum=False) as federation,
        pytest.raises(MessageError, match=rf"^{LIAR}, Sums\."),
    ):
        federation.begin(SumSite).sum(SumSite.add, Nothing())


def test_a_fit_names_the_liar_and_not_the_honest_site_that_would_have_refused_next():
    """The means would be far beyond the range of the others' next answers."""
    lie = with_values(total=np.full(3, 1e40))
    with federate(lie, secure_sum=False) as federation, pytest.raises(MessageError) as raised:
        FedMean().fit(federation)
    assert raised.value.where.startswith(LIAR)
    assert "site-0" not in str(raised.value)
    assert "site-2" not in str(raised.value)


def test_terms_that_differ_in_shape_name_the_sites_on_either_side():
    lie = with_values(total=np.zeros(2))
    with (
        federate(lie, secure_sum=False) as federation,
        pytest.raises(MessageError, match=rf"^Sums\.total: .*different shapes \(site-0, site-2: 3; {LIAR}: 2\)"),
    ):
        federation.begin(SumSite).sum(SumSite.add, Nothing())


def test_a_site_refuses_what_it_would_send_beyond_its_range_masked_or_not():
    for secure_sum in (False, True):
        sites = toy_sites()
        sites[LIAR] = sites[LIAR] + 1e6
        with mc.Federation.in_process(sites, secure_sum=secure_sum) as federation:
            with pytest.raises(DisclosureRefused, match=r"beyond the declared range of 1e\+03") as raised:
                federation.begin(SumSite).sum(SumSite.add, Nothing())
            assert raised.value.where.startswith(LIAR)


class TestMasked:
    """The offset that a site adds to its masked values is an offset of the total, and nobody sees whose it is."""

    @staticmethod
    def shifted(place, by):
        def says(call, honest):
            if call.mask is None or call.step.part is not SumSite:
                return honest
            vector = honest.vector.copy()
            vector[[place]] += np.array([by], dtype=np.int64).view(np.uint64)
            return dataclasses.replace(honest, vector=vector)

        return says

    # The layout is three sums, two cells, a count and the zero that shows that masks cancel. Sums have 51 fraction bits
    # (3 x 1000 x 2**51 is below 2**63), cells 41.
    @pytest.mark.parametrize(
        ("place", "by", "field"),
        [
            (0, 2**62 + 2**61 + 2**60, "total"),
            (1, -(2**62 + 2**61 + 2**60), "total"),
            (3, 2**62 + 2**61 + 2**60, "cells"),
            (4, -(2**41), "cells"),
            (5, 2**62, "n"),
            (5, -(2**20), "n"),
        ],
    )
    def test_a_total_beyond_all_ranges_is_refused_and_no_site_alone_is_blamed(self, place, by, field):
        with federate(self.shifted(place, by)) as federation, pytest.raises(IntegrityError) as raised:
            federation.begin(SumSite).sum(SumSite.add, Nothing())
        assert raised.value.where == f"Sums.{field}"
        assert "site-0, site-1, site-2" in raised.value.what
        assert "masks hide which" in raised.value.hint

    def test_an_honest_site_that_refuses_later_says_that_another_may_be_the_cause(self):
        """Within the ranges of all together a wrong term cannot be seen, and the next ask follows from it."""

        @dataclass(frozen=True)
        class Centred(Release):
            """Sums of the distances to a guess."""

            total: np.ndarray = array("sum of the distances", ("d",), bound=1000.0)

        class CentredSite(SitePart):
            """Holds rows of numbers."""

            method = "centred"
            holds = np.ndarray

            @step(releases=Centred, when="every round", summed=True)
            def add(self, request: Guess) -> Centred:
                """Add up."""
                return Centred((self.data - request.mean).sum(axis=0), patients=len(self.data))

        def says(call, honest):
            if call.mask is None or call.step.part is not CentredSite:
                return honest
            vector = honest.vector.copy()
            vector[:3] += np.uint64(2500 * 2**51)  # 51 fraction bits: 2,500 more than the site's own sum
            return dataclasses.replace(honest, vector=vector)

        with federate(says) as federation:
            fit = federation.begin(CentredSite)
            total = fit.sum(CentredSite.add, Guess(np.zeros(3), 0)).total
            assert (total > 2500).all()  # and below the 3 x 1,000 that three sites may add up to
            with pytest.raises(DisclosureRefused) as raised:
                fit.sum(CentredSite.add, Guess(total / 10, 0))
        assert "another site may have sent a wrong value in an earlier sum" in raised.value.hint

    def test_a_number_of_patients_that_cannot_be_true_is_refused(self):
        """Patients behind each value stand last in the masked vector, where a policy has them counted."""
        options = {"policy": mc.Policy(min_patients_in_total=20)}
        for by in (-(2**20), 2**50):
            with federate(self.shifted(-1, by), **options) as federation, pytest.raises(IntegrityError) as raised:
                federation.begin(SumSite).sum(SumSite.add, Nothing())
            assert raised.value.where == "Sums.n"
            assert "site-" not in raised.value.where

    def test_answers_of_another_layout_name_the_sites_on_either_side(self):
        def says(call, honest):
            return honest if call.mask is None else dataclasses.replace(honest, layout='{"sides":{"b":2,"d":4}}\x1b[2K')

        with (
            federate(says) as federation,
            pytest.raises(ConfigurationError, match=rf"the same shapes; got site-0, site-2: .*; {LIAR}: ") as raised,
        ):
            federation.begin(SumSite).sum(SumSite.add, Nothing())
        assert str(raised.value).isprintable()

    def test_an_answer_without_a_mask_names_its_sender(self):
        def says(call, honest):
            return honest if call.mask is None else Sums(np.zeros(3), np.zeros(2), 1)

        with federate(says) as federation, pytest.raises(MessageError, match=rf"^{LIAR}, add: .*must be masked"):
            federation.begin(SumSite).sum(SumSite.add, Nothing())

    def test_of_two_sites_whose_transcripts_differ_both_are_named(self):
        """The forger is the first of two: there is no majority, and the honest site must not stand there alone."""

        def says(call, honest):
            return honest if call.mask is None else dataclasses.replace(honest, transcript="f" * 64)

        federation = mc.Federation.in_process(toy_sites(2), secure_sum=True)
        federation = with_engine(federation, Lying(federation.engine, "site-0", says))
        with federation, pytest.raises(IntegrityError, match="no more than half of them did") as raised:
            federation.begin(SumSite).sum(SumSite.add, Nothing())
        assert raised.value.where == "site-0, site-1"

    @pytest.mark.parametrize("shape", [(1, 1), (3, 1), (0, 0), (4, 48)])
    def test_shares_of_another_shape_name_their_sender(self, shape):
        def says(call, honest):
            wrong = np.zeros(shape, dtype=np.uint8)
            return dataclasses.replace(honest, boxes=wrong) if isinstance(honest, Boxes) else honest

        with (
            federate(says, quorum=2) as federation,
            pytest.raises(MessageError, match=r"boxes must have shape \(3, 288\)") as raised,
        ):
            federation.begin(SumSite).sum(SumSite.add, Nothing())
        assert raised.value.where.startswith(LIAR)


class TestNoise:
    """Noise may take an answer beyond its range and a count below 0; not further than its law does."""

    noise = Noise("gaussian", {"total": 10.0})

    @dataclass(frozen=True)
    class Noised(Release):
        """A count of patients that gets noise."""

        total: float = number("patients", unit="patients", bound=100.0, sensitivity=1.0)

    @pytest.mark.parametrize("value", [-150.0, 100.0 + 10.0 * ROOM["gaussian"]])
    def test_noise_has_room(self, value):
        check_ranges(self.Noised(value), self.noise)
        with pytest.raises(MessageError):
            check_ranges(self.Noised(value))

    @pytest.mark.parametrize("value", [100.1 + 10.0 * ROOM["gaussian"], -1e9])
    def test_what_no_noise_explains_is_refused(self, value):
        with pytest.raises(MessageError, match="beyond the declared range of 100"):
            check_ranges(self.Noised(value), self.noise)

    def test_totals_have_the_room_of_all_sites(self):
        check_total(self.Noised(300.0 + 3 * 160.0), "abc", self.noise)
        with pytest.raises(IntegrityError, match="the total over a, b, c is beyond"):
            check_total(self.Noised(301.0 + 3 * 160.0), "abc", self.noise)

    def test_a_noised_answer_of_a_liar_is_refused(self):
        class NoisedSite(SitePart):
            """Answers with noise."""

            method = "noised-tally"
            holds = np.ndarray

            @step(releases=self.Noised, when="once")
            def tell(self, request: Nothing) -> TestNoise.Noised:
                """Answer."""
                return TestNoise.Noised(float(len(self.data)), patients=len(self.data))

        plan = Plan((Planned(NoisedSite.tell, self.noise),))
        with federate(lambda call, honest: honest) as federation:
            assert len(federation.begin(NoisedSite, plan=plan).ask(NoisedSite.tell, Nothing())) == 3
        with federate(with_values(total=500.0)) as federation, pytest.raises(MessageError, match=rf"^{LIAR}, Noised"):
            federation.begin(NoisedSite, plan=plan).ask(NoisedSite.tell, Nothing())


class TestLetters:
    """The same over letters, where the liar writes bytes."""

    @pytest.fixture(autouse=True)
    def _no_pauses(self, monkeypatch):
        monkeypatch.setattr(remote, "_PAUSES_S", (0.0,))
        monkeypatch.setattr(remote, "_CLOSING_S", 0.1)

    @staticmethod
    def federated(folder, kind, says, **options):
        sites = RequestHandlers(toy_sites(), folder)
        handles = dict(sites.handles)
        honest = handles[LIAR]

        def lie(letter):
            reply = Reply.unpack(honest(letter))
            if (
                Request.unpack(letter).kind != "call"
                or reply.kind != "answer"
                or kind.__name__.encode() not in reply.body
            ):
                return reply.pack()
            return dataclasses.replace(reply, body=encode(says(decode(kind, reply.body)))).pack()

        handles[LIAR] = lie
        return mc.Federation.over(ByHand(handles), study="letters", patience_s=0.05, **options)

    @pytest.mark.parametrize("name", [name for name, lie in LIES.items() if can_be_written(lie)])
    def test_an_answer_beyond_its_declaration_is_refused_and_its_sender_named(self, name, tmp_path):
        def says(honest):
            return dataclasses.replace(honest, **LIES[name])

        with self.federated(tmp_path, Tallies, says) as federation, pytest.raises(MessageError) as raised:
            federation.begin(TallySite).ask(TallySite.tell, Nothing())
        assert raised.value.where.startswith(LIAR)

    def test_a_term_of_an_unmasked_sum_is_refused_and_its_sender_named(self, tmp_path):
        def says(honest):
            return dataclasses.replace(honest, n=2**62)

        with (
            self.federated(tmp_path, Sums, says, secure_sum=False) as federation,
            pytest.raises(MessageError, match=rf"^{LIAR}, Sums\.n: "),
        ):
            federation.begin(SumSite).sum(SumSite.add, Nothing())
