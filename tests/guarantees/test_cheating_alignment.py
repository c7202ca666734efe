"""A coordinator that does not keep to the alignment of records learns nothing, and no site works on another order."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.alignment import messages as sent
from multicentre.alignment.alignment import align
from multicentre.alignment.site import AlignmentPart
from multicentre.federation.errors import ConfigurationError, DataError, RefusedByPolicy
from multicentre.federation.messages import Nothing, array
from multicentre.federation.steps import Release, SitePart, step
from multicentre.persons import Persons, describe_persons

PEOPLE = [f"p{number:02d}" for number in range(40)]


def begin(*, people=None, policy=None):
    people = people or {"a": PEOPLE, "b": PEOPLE, "c": PEOPLE}
    sites = {name: mc.data.MultiViewData({"x": np.eye(len(ids))}, ids=ids) for name, ids in people.items()}
    federation = mc.Federation.in_process(sites, policy=policy)
    told = Persons(**describe_persons(federation, "identifier", "identifier", "iso", None))
    return federation.begin(AlignmentPart), told


def pseudonyms(opened, told):
    return opened.ask(AlignmentPart.tell_pseudonyms, told)["a"].pseudonyms


def agreeing(told, order, *, incomplete=False):
    terms = {name: getattr(told, name) for name in Persons.declarations()}
    return sent.Agreeing(**terms, pseudonyms=order, incomplete=incomplete)


def test_an_order_that_one_site_alone_was_told_is_not_worked_on():
    opened, told = begin()
    order = pseudonyms(opened, told)
    seals = opened.ask(AlignmentPart.agree, agreeing(told, order[:30]), to=["a"])
    seals |= opened.ask(AlignmentPart.agree, agreeing(told, order[10:]), to=["b", "c"])
    with pytest.raises(RefusedByPolicy, match="sealed another order"):
        opened.ask(AlignmentPart.confirm, sent.Seals({site: answer.seal for site, answer in seals.items()}))
    chosen = opened.select((0,), ["a", "b", "c"])
    with pytest.raises(DataError, match="no record here is in the folds"):
        chosen.begin(Shower).ask(Shower.show, Nothing())


def test_one_site_s_seal_does_not_do_for_another():
    opened, told = begin()
    seals = opened.ask(AlignmentPart.agree, agreeing(told, pseudonyms(opened, told)))
    forged = dict.fromkeys(seals, seals["a"].seal)
    with pytest.raises(RefusedByPolicy, match="sealed another order"):
        opened.ask(AlignmentPart.confirm, sent.Seals(forged))


def test_the_seals_of_all_sites_that_take_part_are_wanted():
    opened, told = begin()
    seals = opened.ask(AlignmentPart.agree, agreeing(told, pseudonyms(opened, told)))
    with pytest.raises(RefusedByPolicy, match="seal of a site that takes part is missing"):
        opened.ask(AlignmentPart.confirm, sent.Seals({"a": seals["a"].seal}))


@pytest.mark.parametrize("spoil", ["unsorted", "repeated", "strangers"])
def test_orders_that_are_none(spoil):
    opened, told = begin()
    order = pseudonyms(opened, told)
    orders = {
        "unsorted": order[::-1].copy(),
        "repeated": np.repeat(order, 2, axis=0),
        "strangers": np.vstack([order, np.full((1, 16), 255, dtype=np.uint8)]),
    }
    with pytest.raises((ConfigurationError, RefusedByPolicy), match=r"ascending|not at this site"):
        opened.ask(AlignmentPart.agree, agreeing(told, orders[spoil]))


def test_few_patients_cannot_be_singled_out():
    opened, told = begin()
    with pytest.raises(DataError, match="fewer than 10 of this site's patients"):
        opened.ask(AlignmentPart.agree, agreeing(told, pseudonyms(opened, told)[:9]))


def test_strangers_in_an_incomplete_order_do_not_hide_that_the_patients_are_few():
    opened, told = begin()
    strangers = np.arange(16 * 50, dtype=np.uint8).reshape(50, 16)
    mixed = np.unique(np.vstack([pseudonyms(opened, told)[:3], strangers]), axis=0)
    with pytest.raises(DataError, match="fewer than 10 of this site's patients"):
        opened.ask(AlignmentPart.agree, agreeing(told, mixed, incomplete=True))


def test_a_session_has_one_order():
    opened, told = begin()
    order = pseudonyms(opened, told)
    opened.ask(AlignmentPart.agree, agreeing(told, order))
    with pytest.raises(ConfigurationError, match="aligned already"):
        opened.ask(AlignmentPart.agree, agreeing(told, order[:30]))


def test_pseudonyms_of_two_studies_cannot_be_laid_side_by_side():
    opened, told = begin()
    other = dataclasses.replace(told, study="another")
    one, two = pseudonyms(opened, told), pseudonyms(opened, other)
    assert not set(map(bytes, one)) & set(map(bytes, two))


def test_a_policy_that_lets_masked_sums_alone_out_lets_no_pseudonym_out():
    sites = {name: mc.data.MultiViewData({"x": np.eye(40)}, ids=PEOPLE) for name in "abc"}
    policy = mc.Policy(secure_sums_only=True)
    with pytest.raises(RefusedByPolicy, match="only masked sums"):
        align(mc.Federation.in_process(sites, policy=policy, secure_sum=True))


@dataclasses.dataclass(frozen=True)
class Rows(Release):
    """Rows."""

    rows: np.ndarray = array("rows", ("n",))


class Shower(SitePart):
    """Shows who is there; for tests."""

    method = "shower"

    @step(releases=Rows)
    def show(self, ask: Nothing) -> Rows:
        """Show."""
        return Rows(np.argmax(self.data.array("x"), axis=1).astype(float), patients=len(self.data))
