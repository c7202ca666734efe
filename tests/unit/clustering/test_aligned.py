"""What estimators over aligned records share: who is in which cluster, for those alone who hold the key."""

from typing import Any, ClassVar

import numpy as np
import pytest

import multicentre as mc
from multicentre.clustering.aligned import AlignedClusterer
from multicentre.core.messages import Nothing
from multicentre.core.steps import Release, SitePart, step
from multicentre.data.identifiers import IDENTIFIER
from multicentre.errors import ConfigurationError, DataError, IntegrityError
from multicentre.linkage.alignment import align
from multicentre.linkage.pseudonyms import PseudonymKey

PEOPLE = [f"p{number:02d}" for number in range(30)]
GROUP = np.arange(30) % 2


class Parity(Release):
    """Nothing."""

    concerns_patients: ClassVar[bool] = False


class ParityPart(SitePart):
    """Answers."""

    method: ClassVar[str] = "parity"

    @step(releases=Parity, when="once")
    def answer(self, request: Nothing) -> Parity:
        """Answer."""
        return Parity()


class ParityClusterer(AlignedClusterer):
    """Puts patients at even and at odd places of the common order into two clusters."""

    site_part: ClassVar[type[SitePart]] = ParityPart

    def __init__(self, person_key: str = IDENTIFIER, incomplete: bool = False) -> None:
        self.person_key = person_key
        self.incomplete = incomplete

    def _fit(self, federation: Any) -> None:
        federation.ask(ParityPart.answer, Nothing())
        self.history_ = []
        self.labels_ = np.arange(len(self.pseudonyms_)) % 2


def site(names, **identifiers):
    X = np.arange(len(names), dtype=np.float64)[:, None]
    if identifiers:
        return mc.data.MultiViewData({"x": X}).with_identifier(identifiers)
    return mc.data.MultiViewData({"x": X}, ids=names)


def fit(sites=None, model=None, **options):
    given = {"a": site(PEOPLE), "b": site(PEOPLE[::-1])} if sites is None else sites
    with mc.Federation.in_process(given, **options) as federation:
        return (model or ParityClusterer()).fit(federation)


def test_clusters_go_with_patients_wherever_they_stand():
    model = fit()
    found = model.labels_for(PEOPLE)
    assert sorted(found) == [0] * 15 + [1] * 15
    assert model.labels_for(PEOPLE[::-1]).tolist() == found[::-1].tolist()
    assert model.labels_for(site(PEOPLE)).tolist() == found.tolist()
    assert sorted(model.places_for(PEOPLE)) == list(range(30))


def test_names_are_read_as_the_sites_read_them():
    model = fit()
    assert model.labels_for([" P-03 ", "p03"]).tolist() == [model.labels_for(["p03"])[0]] * 2


def test_strangers_and_the_nameless_have_no_cluster():
    model = fit()
    assert model.labels_for(["p00", "q1", None, "", "unknown"])[1:].tolist() == [-1] * 4
    assert model.labels_for([]).tolist() == []


def test_another_key_finds_nobody():
    model = fit()
    with pytest.warns(UserWarning, match="another key"):
        assert set(model.labels_for(PEOPLE, key=PseudonymKey.generate())) == {-1}
    assert set(model.labels_for(PEOPLE, key=PseudonymKey.simulated("study"))) == {0, 1}


def test_a_drawn_key_finds_those_whom_the_simulations_key_does_not():
    key = PseudonymKey.generate()
    model = fit(pseudonym_key=key)
    with pytest.warns(UserWarning, match="another key"):
        assert set(model.labels_for(PEOPLE)) == {-1}
    assert sorted(model.labels_for(PEOPLE, key=key)) == [0] * 15 + [1] * 15
    assert sorted(model.hold_key(key).labels_for(PEOPLE)) == [0] * 15 + [1] * 15


def test_a_key_that_is_held_is_saved_nowhere(tmp_path):
    key = PseudonymKey.generate()
    model = fit(pseudonym_key=key).hold_key(key)
    assert "_key" not in model.__getstate__()
    model.save(tmp_path)
    secret = key._secret.reveal()
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        assert secret not in content
        assert secret.hex().encode() not in content


def test_a_number_is_no_name():
    with pytest.raises(DataError, match="text"):
        fit().labels_for([3, 4])


def test_patients_without_names_cannot_be_looked_up():
    with pytest.raises(DataError, match="ids="):
        fit().labels_for(mc.data.MultiViewData({"x": np.ones((3, 1))}))


def test_sites_are_aligned_by_the_identifiers_that_the_parameters_name():
    born = [f"19{50 + number}-02-03" for number in range(30)]
    sites = {"a": site(PEOPLE, card=PEOPLE, born=born), "b": site(PEOPLE, card=PEOPLE[::-1], born=born[::-1])}
    one = fit(sites, ParityClusterer("card"))
    assert sorted(one.labels_for(PEOPLE)) == [0] * 15 + [1] * 15
    assert sorted(one.labels_for(sites["a"])) == [0] * 15 + [1] * 15
    with pytest.raises(DataError, match="person_key"):
        fit(sites, ParityClusterer("ward"))


def test_patients_whom_a_site_lacks_are_left_out_or_taken_in():
    sites = {"a": site(PEOPLE[:25]), "b": site(PEOPLE[5:])}
    common = fit(sites)
    assert len(common.labels_) == 20
    assert (common.labels_for(PEOPLE) < 0).tolist() == [row < 5 or row >= 25 for row in range(30)]
    assert common.alignment_counts_["at_site"] == {"a": 25, "b": 25}
    assert common.alignment_counts_["aligned"] == {"a": 20, "b": 20}
    taken = fit(sites, ParityClusterer(incomplete=True), policy=mc.Policy(relations="listed"))
    assert len(taken.labels_) == 30


def test_what_was_aligned_already_is_not_aligned_anew():
    with mc.Federation.in_process({"a": site(PEOPLE), "b": site(PEOPLE)}) as federation:
        aligned = align(federation)
        model = ParityClusterer()
        assert model.aligned(aligned) is aligned
        model.fit(aligned)
        calls = federation.traffic.calls["send_pseudonyms"]
        model.fit(aligned)
        assert federation.traffic.calls["send_pseudonyms"] == calls == 1
    assert model.pseudonyms_.tobytes() == aligned.pseudonyms.tobytes()


@pytest.mark.parametrize("given", [np.eye(3), {"a": 1}, None])
def test_something_else_than_a_federation_is_named(given):
    with pytest.raises(ConfigurationError, match="federation"):
        ParityClusterer().fit(given)


def test_clusters_are_compared_with_groups_that_are_known():
    model = fit()
    data = mc.data.MultiViewData({"x": np.ones((30, 1))}, ids=PEOPLE)
    own = model.labels_for(PEOPLE)
    assert model.assess(data, [f"group {label}" for label in own])["acc"] == 1.0
    assert model.assess(data) == {}
    assert set(model.assess(data, own.astype(str))) == set(model.metrics)
    some = mc.data.MultiViewData({"x": np.ones((4, 1))}, ids=["p00", "p01", "q1", "q2"])
    groups = [*own[:2].astype(str), "x", "y"]
    assert model.assess(some, groups)["acc"] == 1.0
    strangers = mc.data.MultiViewData({"x": np.ones((2, 1))}, ids=["q1", "q2"])
    with pytest.raises(DataError, match="patients of the fit"), pytest.warns(UserWarning, match="another key"):
        model.assess(strangers, ["x", "y"])


def test_a_model_comes_back_with_the_terms_of_its_pseudonyms():
    born = [f"19{50 + number}-02-03" for number in range(30)]
    sites = {"a": site(PEOPLE, born=born), "b": site(PEOPLE, born=born)}
    with mc.Federation.in_process(sites, study="hips") as federation:
        model = ParityClusterer("born").fit(align(federation, person_key="born", kind="date", date_order={"b": "iso"}))
    arrays, facts = model._state()
    other = ParityClusterer("born")
    other._restore(arrays, facts)
    assert other.labels_for(born).tolist() == model.labels_for(born).tolist()
    turned = ["/".join(reversed(date.split("-"))) for date in born]
    assert other.labels_for(turned, date_order="dmy").tolist() == model.labels_for(born).tolist()
    assert other.alignment_counts_ == model.alignment_counts_


def test_models_of_other_packages_are_not_loaded(tmp_path):
    fit().save(tmp_path)
    with pytest.raises(IntegrityError, match="one of an installed method"):
        AlignedClusterer.load(tmp_path)


def test_the_card_tells_of_the_alignment_too():
    steps = {line.step for line in ParityClusterer.disclosure_card().lines}
    assert {"count_records", "send_pseudonyms", "agree"} <= steps
