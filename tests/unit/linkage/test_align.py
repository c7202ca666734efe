"""Records of the same patients at several sites come into one order, and nobody learns who they are."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing, array
from multicentre.core.steps import Release, SitePart, step
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError, QuorumLost, RefusedByPolicy
from multicentre.linkage.alignment import align, find_places
from multicentre.linkage.alignment.site import as_names
from multicentre.linkage.pseudonyms import PseudonymKey

PEOPLE = [f"p{number:02d}" for number in range(30)]


def views(names, view="x", columns=None, **identifiers):
    """Return one site whose only column tells who stands in a row."""
    numbers = np.array([[float(name[1:]) if name and name[1:].isdigit() else -1.0] for name in columns or names])
    if identifiers:
        return mc.data.MultiViewData({view: numbers}).with_identifier(identifiers)
    return mc.data.MultiViewData({view: numbers}, ids=names)


def federate(sites, **options):
    return mc.Federation.in_process(sites, **options)


@dataclasses.dataclass(frozen=True)
class Rows(Release):
    """All that the part sees; for tests."""

    rows: np.ndarray = array("rows", ("n",))
    places: np.ndarray = array("places", ("n",), dtype="i8")


class Shower(SitePart):
    """Shows what a part over aligned records sees."""

    method = "shower"

    @step(releases=Rows)
    def show(self, request: Nothing) -> Rows:
        """Show all."""
        return Rows(self.data.array(self.data.views[0])[:, 0], self.common.places, patients=len(self.data))


def shown(aligned):
    opened = aligned.federation.begin(Shower)
    return opened.ask(Shower.show, Nothing())


@pytest.mark.parametrize("strict", [False, True])
def test_every_site_sees_the_same_patients_in_the_same_order(strict):
    rng = np.random.default_rng(0)
    sites = {name: views(list(rng.permutation(PEOPLE))) for name in ("lyon", "nice", "oslo")}
    found = shown(align(federate(sites, strict=strict)))
    assert sorted(found["lyon"].rows.tolist()) == list(range(30))
    assert found["lyon"].rows.tolist() == found["nice"].rows.tolist() == found["oslo"].rows.tolist()
    assert found["lyon"].places.tolist() == list(range(30))


def test_the_order_does_not_follow_from_the_names_and_changes_with_the_study():
    orders = [
        shown(align(federate({"a": views(PEOPLE), "b": views(PEOPLE)}, study=study)))["a"].rows.tolist()
        for study in ("one", "one", "two")
    ]
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != sorted(orders[0])


def test_patients_whom_another_site_lacks_are_left_out_and_counted():
    aligned = align(federate({"a": views(PEOPLE), "b": views([*PEOPLE[:25], "q98", "q99"])}))
    assert aligned.n_common == 25
    assert aligned.n_at_site == {"a": 30, "b": 27}
    assert aligned.n_unmatched == {"a": 5, "b": 2}
    assert set(shown(aligned)["b"].rows) == set(range(25))


def test_incomplete_keeps_all_patients_and_each_site_knows_its_places():
    sites = {"a": views(PEOPLE[:20]), "b": views(PEOPLE[10:])}
    with pytest.raises(RefusedByPolicy, match='relations = "listed"'):
        align(federate(sites), incomplete=True)
    aligned = align(federate(sites, policy=mc.Policy(relations="listed")), incomplete=True)
    found = shown(aligned)
    assert aligned.n_common == 30
    who = np.full(30, -1.0)
    for answer in found.values():
        agreed = who[answer.places]
        assert np.all((agreed == -1) | (agreed == answer.rows))
        who[answer.places] = answer.rows
    assert sorted(who) == list(range(30))


def test_repeated_and_missing_identifiers_are_left_out_and_counted_coarsely():
    names = [*PEOPLE, "p03", None, "p04"]
    site = views(names, identifier=names, columns=[*PEOPLE, "x9999", "x9999", "x9999"])
    with pytest.warns(UserWarning, match="up to 10 records have no readable identifier"):
        aligned = align(federate({"a": site, "b": views(PEOPLE)}))
    assert aligned.n_missing == {"a": 10, "b": 0}
    assert aligned.n_repeated == {"a": 10, "b": 0}
    assert sorted(shown(aligned)["a"].rows) == list(range(30))
    exact = mc.Policy(min_patients=0)
    with pytest.warns(UserWarning, match="up to 1 records"):
        assert align(federate({"a": site, "b": views(PEOPLE)}, policy=exact)).n_repeated == {"a": 2, "b": 0}


def test_identifiers_are_compared_as_they_are_normalised():
    written = [f" P-{name[1:]} " for name in PEOPLE]
    sites = {"a": views(PEOPLE, identifier=written), "b": views(PEOPLE, identifier=PEOPLE)}
    assert align(federate(sites)).n_common == 30


def test_birth_dates_in_the_orders_of_the_sites():
    dates = [f"19{50 + number}-02-0{1 + number % 9}" for number in range(30)]
    turned = ["/".join(reversed(date.split("-"))) for date in dates]
    sites = {"a": views(PEOPLE, born=dates), "b": views(PEOPLE, born=turned)}
    aligned = align(federate(sites), person_key="born", kind="date", date_order={"b": "dmy"})
    assert aligned.n_common == 30


def test_names_of_records_that_look_like_placeholders_are_names_all_the_same():
    numbers = ["1111", "2222", *PEOPLE]
    sites = {name: mc.data.MultiViewData({"x": np.arange(32.0)[:, None]}, ids=numbers) for name in "ab"}
    aligned = align(federate(sites))
    assert aligned.n_common == 32
    key = PseudonymKey.simulated("study")
    places = find_places(sites["a"], aligned.pseudonyms, aligned.persons, key)
    assert sorted(places) == list(range(32))
    assert shown(aligned)["a"].rows[places].tolist() == list(range(32))


def test_places_are_found_with_the_key_alone():
    aligned = align(federate({"a": views(PEOPLE), "b": views(PEOPLE)}))
    right, wrong = PseudonymKey.simulated("study"), PseudonymKey.simulated("other")
    places = find_places([*PEOPLE, "q1", None], aligned.pseudonyms, aligned.persons, right)
    assert shown(aligned)["a"].rows[places[:30]].tolist() == list(range(30))
    assert places[30:].tolist() == [-1, -1]
    assert set(find_places(PEOPLE, aligned.pseudonyms, aligned.persons, wrong)) == {-1}


def test_what_leaves_is_in_ascending_order_and_in_the_ledger_of_single_patients():
    federation = federate({"a": views(PEOPLE[::-1]), "b": views(PEOPLE)})
    names = as_names(align(federation).pseudonyms)
    assert np.all(names[1:] > names[:-1])
    entries = [entry for entry in federation.ledgers["a"].entries if entry.get("step") == "send_pseudonyms"]
    assert [field["patients"] for entry in entries for field in entry["fields"]] == [1]


def test_sites_with_different_keys_are_told_so():
    keys = {"a": PseudonymKey.generate(), "b": PseudonymKey.generate()}
    with pytest.raises(ConfigurationError, match="different keys"):
        align(federate({"a": views(PEOPLE), "b": views(PEOPLE)}, pseudonym_key=keys))


def test_sites_that_share_nobody():
    with pytest.raises(DataError, match="at least 2 patients must be at every site; got 0"):
        align(federate({"a": views(PEOPLE), "b": views([f"q{n}" for n in range(30)])}))


def test_too_few_common_patients_for_a_policy():
    sites = {"a": views(PEOPLE), "b": views([*PEOPLE[:6], *(f"q{n}" for n in range(6, 30))])}
    with pytest.raises(DataError, match="the order must contain at least 10 of this site's patients"):
        align(federate(sites))
    with pytest.warns(UserWarning, match="24 of 30 patients are not at all other sites"):
        assert align(federate(sites, policy=mc.Policy(min_patients=3))).n_common == 6


def test_a_policy_that_lets_nothing_out_about_single_patients():
    with pytest.raises(RefusedByPolicy, match='relations = "summed"'):
        align(federate({"a": views(PEOPLE), "b": views(PEOPLE)}, policy=mc.Policy(relations="none")))


def test_records_without_any_identifier():
    bare = mc.data.MultiViewData({"x": np.zeros((30, 1))})
    with pytest.raises(DataError, match="must have identifiers"):
        align(federate({"a": bare, "b": bare}))


def test_a_site_that_is_lost_on_the_way_is_left_out_where_the_quorum_allows(tmp_path):
    sites = {name: views(PEOPLE) for name in "abc"}
    aligned = align(federate(sites, quorum=2, faults=Faults(lose={"b": 2})))
    assert set(aligned.federation.sites) == {"a", "c"}
    with pytest.raises(QuorumLost):
        align(federate(sites, folder=tmp_path, faults=Faults(lose={"b": 2})))
    assert set(shown(align(federate(sites, folder=tmp_path)))) == set("abc")


def test_a_resumed_run_takes_the_order_up(tmp_path):
    sites = {name: views(PEOPLE) for name in "ab"}
    first = shown(align(federate(sites, folder=tmp_path)))["a"].rows
    again = federate(sites, folder=tmp_path)
    assert shown(align(again))["a"].rows.tolist() == first.tolist()
    assert again.traffic.calls["show"] == 1
    assert "agree" not in again.traffic.calls
