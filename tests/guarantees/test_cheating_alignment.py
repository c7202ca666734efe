"""A coordinator that does not keep to the alignment of records learns nothing, and no site works on another order."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing, array
from multicentre.core.steps import Release, SitePart, step
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, RefusedByPolicy
from multicentre.linkage.alignment import messages
from multicentre.linkage.alignment.alignment import align
from multicentre.linkage.alignment.site import AlignmentPart
from multicentre.linkage.persons import Persons, describe_persons
from support.lying import put_to

PEOPLE = [f"p{number:02d}" for number in range(40)]


LISTED = mc.Policy(relations="listed")


def begin(*, people=None, policy=LISTED, secure_sum=False):
    people = people or {"a": PEOPLE, "b": PEOPLE, "c": PEOPLE}
    sites = {name: mc.data.MultiViewData({"x": np.eye(len(ids))}, ids=ids) for name, ids in people.items()}
    federation = mc.Federation.in_process(sites, policy=policy, secure_sum=secure_sum)
    told = Persons(**describe_persons(federation, "identifier", "identifier", "iso", None))
    return federation.begin(AlignmentPart), told


def pseudonyms(opened, told):
    return opened.ask(AlignmentPart.send_pseudonyms, told)["a"].pseudonyms


def agreeing(told, order):
    terms = {name: getattr(told, name) for name in Persons.declarations()}
    return messages.Agreeing(**terms, pseudonyms=order)


def test_an_order_that_only_one_site_received_is_refused():
    opened, told = begin()
    order = pseudonyms(opened, told)
    seals = put_to(opened, AlignmentPart.agree, agreeing(told, order[:30]), "a", "abc")
    seals |= put_to(opened, AlignmentPart.agree, agreeing(told, order[10:]), "bc", "abc")
    forged = messages.Seals({site: answer.seal for site, answer in seals.items()})
    with pytest.raises(RefusedByPolicy, match="must seal the same order"):
        put_to(opened, AlignmentPart.confirm, forged, "abc")
    chosen = opened.select((0,), ["a", "b", "c"])
    with pytest.raises(DataError, match="must hold at least one record of this site"):
        chosen.begin(Shower).ask(Shower.show, Nothing())


def test_one_site_s_seal_does_not_do_for_another():
    opened, told = begin()
    seals = opened.ask(AlignmentPart.agree, agreeing(told, pseudonyms(opened, told)))
    forged = dict.fromkeys(seals, seals["a"].seal)
    with pytest.raises(RefusedByPolicy, match="must seal the same order"):
        opened.ask(AlignmentPart.confirm, messages.Seals(forged))


def test_the_seals_of_all_participating_sites_are_required():
    opened, told = begin()
    seals = opened.ask(AlignmentPart.agree, agreeing(told, pseudonyms(opened, told)))
    with pytest.raises(RefusedByPolicy, match="at least one is missing"):
        opened.ask(AlignmentPart.confirm, messages.Seals({"a": seals["a"].seal}))


@pytest.mark.parametrize("spoil", ["unsorted", "repeated", "strangers"])
def test_orders_that_are_none(spoil):
    opened, told = begin()
    order = pseudonyms(opened, told)
    orders = {
        "unsorted": order[::-1].copy(),
        "repeated": np.repeat(order, 2, axis=0),
        "strangers": np.vstack([order, np.full((1, 16), 255, dtype=np.uint8)]),
    }
    with pytest.raises((ConfigurationError, RefusedByPolicy), match=r"ascending|only patients of this site"):
        opened.ask(AlignmentPart.agree, agreeing(told, orders[spoil]))


def test_few_patients_cannot_be_singled_out():
    opened, told = begin()
    with pytest.raises(DataError, match="the order must contain at least 10 of this site's patients"):
        opened.ask(AlignmentPart.agree, agreeing(told, pseudonyms(opened, told)[:9]))


def test_strangers_in_an_incomplete_order_do_not_hide_that_the_patients_are_few():
    opened, told = begin()
    strangers = np.arange(16 * 50, dtype=np.uint8).reshape(50, 16)
    mixed = np.unique(np.vstack([pseudonyms(opened, told)[:3], strangers]), axis=0)
    with pytest.raises(DataError, match="the order must contain at least 10 of this site's patients"):
        opened.ask(AlignmentPart.agree_incomplete, agreeing(told, mixed))


def test_a_session_has_one_order():
    opened, told = begin()
    order = pseudonyms(opened, told)
    opened.ask(AlignmentPart.agree, agreeing(told, order))
    with pytest.raises(
        ConfigurationError, match="pseudonyms must be requested before an order, and records aligned once"
    ):
        opened.ask(AlignmentPart.agree, agreeing(told, order[:30]))


def test_pseudonyms_of_two_studies_cannot_be_matched():
    opened, told = begin()
    other = dataclasses.replace(told, study="another")
    one, two = pseudonyms(opened, told), pseudonyms(opened, other)
    assert not set(map(bytes, one)) & set(map(bytes, two))


def test_secure_sums_only_refuses_pseudonyms():
    sites = {name: mc.data.MultiViewData({"x": np.eye(40)}, ids=PEOPLE) for name in "abc"}
    policy = mc.Policy(secure_sums_only=True)
    with pytest.raises(RefusedByPolicy, match="answers of this site must be masked sums"):
        align(mc.Federation.in_process(sites, policy=policy, secure_sum=True))


@dataclasses.dataclass(frozen=True)
class Rows(Release):
    """Rows."""

    rows: np.ndarray = array("rows", ("n",))


class Shower(SitePart):
    """Shows who is there; for tests."""

    method = "shower"

    @step(releases=Rows, addressed="each")
    def show(self, request: Nothing) -> Rows:
        """Show."""
        return Rows(np.argmax(self.data.array("x"), axis=1).astype(float), patients=len(self.data))


def aligned_by_hand(opened, told, order):
    """Carry an alignment through as a coordinator of its own mind may, and return the records."""
    opened.ask(AlignmentPart.send_pseudonyms, told)
    seals = opened.ask(AlignmentPart.agree, agreeing(told, order))
    opened.ask(AlignmentPart.confirm, messages.Seals({site: answer.seal for site, answer in seals.items()}))
    return opened.select((0,), ["a", "b", "c"])


def show(chosen, **options):
    return getattr(chosen, "federation", chosen).begin(Shower).ask(Shower.show, Nothing(), **options)


def test_an_order_is_taken_in_after_the_site_told_its_own_patients_alone():
    opened, told = begin()
    order = pseudonyms(opened, told)
    other = opened.federation.begin(AlignmentPart)
    with pytest.raises(ConfigurationError, match="must be requested before an order"):
        other.ask(AlignmentPart.agree, agreeing(told, order))


def test_a_site_that_lets_nothing_out_seals_nothing_either():
    opened, told = begin(policy={"a": mc.Policy(), "b": mc.Policy(), "c": mc.Policy(relations="none")})
    order = put_to(opened, AlignmentPart.send_pseudonyms, told, "a")["a"].pseudonyms
    with pytest.raises(RefusedByPolicy, match="relations"):
        put_to(opened, AlignmentPart.agree, agreeing(told, order), "c")


def test_two_alignments_that_differ_by_one_patient_are_not_both_used():
    opened, told = begin()
    order = pseudonyms(opened, told)
    assert len(show(aligned_by_hand(opened, told, order))["a"].rows) == 40
    second = begin_again(opened)
    with pytest.raises(DisclosureRefused, match="must equal those of earlier answers, or differ"):
        show(aligned_by_hand(second, told, order[1:]))
    third = begin_again(opened)
    assert len(show(aligned_by_hand(third, told, order[12:]))["a"].rows) == 28


def test_all_records_and_all_but_one_are_not_both_used():
    opened, told = begin()
    show(opened)
    with pytest.raises(DisclosureRefused, match="must equal those of earlier answers, or differ"):
        show(aligned_by_hand(begin_again(opened), told, pseudonyms(opened, told)[1:]))


def test_a_site_answers_for_aligned_records_among_those_that_sealed_their_order_alone():
    opened, told = begin()
    order = pseudonyms(opened, told)
    seals = put_to(opened, AlignmentPart.agree, agreeing(told, order[:30]), "ab")
    put_to(opened, AlignmentPart.confirm, messages.Seals({s: answer.seal for s, answer in seals.items()}), "ab")
    chosen = opened.select((0,), ["a", "b", "c"])
    with pytest.raises(RefusedByPolicy, match="that sealed their order"):
        show(chosen)
    assert set(show(chosen, to=["a", "b"])) == {"a", "b"}


def test_a_plan_of_noise_is_refused_where_patients_are_at_every_site():
    pytest.importorskip("opendp")
    sites = {
        name: mc.data.MultiViewData({"x": np.random.default_rng(0).normal(size=(40, 2))}, ids=PEOPLE) for name in "abc"
    }
    reference = {"x": {"centre": [0.0, 0.0], "spread": [1.0, 1.0]}}
    aligned = align(mc.Federation.in_process(sites, secure_sum=True))
    with pytest.raises(RefusedByPolicy, match="must be about patients who are at one site each"):
        mc.multiview.FedMvPPCA(1, epsilon=5.0, reference=reference).fit(aligned.federation)


def begin_again(opened):
    return opened.federation.begin(AlignmentPart)
