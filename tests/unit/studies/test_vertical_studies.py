"""Studies of different views of the same patients: reading, the card, and what stands for held-out patients."""

import json
import pickle
import warnings

import numpy as np
import pytest

import multicentre as mc
from multicentre.clustering import FedMSGL
from multicentre.clustering.metrics import adjusted_rand, clustering_scores
from multicentre.data import MultiViewData
from multicentre.errors import ConfigurationError, DataError, DisclosureWarning, RefusedByPolicy
from multicentre.estimator.base import find_estimator
from multicentre.estimator.registry import METHODS
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.card import disclosure_card
from multicentre.studies import run_study
from multicentre.studies.comparison import compare
from multicentre.studies.disclosure_cards import complete_card, describe_method
from multicentre.studies.label_columns import read_label_columns
from multicentre.studies.policy_conflicts import check_policies, find_objections
from multicentre.studies.site_data import read_sites
from multicentre.studies.site_patients import SiteData
from multicentre.studies.study import make_estimator
from multicentre.studies.study_file import read_study, study_from_mapping
from multicentre.studies.vertical import compare_views, join_views, show_alignment
from support.vertical_studies import STUDY, write_departments

VERTICAL = ("fed-msgl", "fed-msgl-as-printed", "fed-msgl-as-published", "fed-mvl")
MEMORY = {"lab": {}, "radiology": {}, "ward": {}}


def study_of(parameters=None, *, sites=MEMORY, **tables):
    about = {"name": "x", "method": "fed-msgl"}
    return study_from_mapping({"study": about, "parameters": parameters or {}, "sites": sites, **tables})


def is_vertical(method):
    return study_from_mapping({"study": {"name": "x", "method": method}, "sites": MEMORY}).is_vertical


def card_of(study):
    estimator = make_estimator(study)
    protection = "masked" if study.privacy.secure_sum else "unmasked"
    card = disclosure_card(estimator.site_part, protection=protection, requested=estimator.planned_steps())
    return complete_card(card, study, estimator)


@pytest.fixture(scope="module")
def departments():
    drawn = mc.datasets.simulate_views(66, 2, (9, 8, 7), random_state=4)
    sites = mc.datasets.lose_records(mc.datasets.split_views(drawn), 0.05, random_state=0)
    groups = dict(zip(drawn.data.ids.tolist(), drawn.labels.tolist(), strict=True))
    labels = tuple(groups[one] for one in sites["view_2"].ids)
    return {name: SiteData(data, labels if name == "view_2" else None) for name, data in sites.items()}


@pytest.fixture(scope="module")
def fitted(departments):
    data = {name: site.data for name, site in departments.items()}
    return FedMSGL(2).fit(mc.Federation.in_process(data))


def test_methods_say_by_what_records_are_aligned():
    for name in VERTICAL:
        assert find_estimator(name).aligned_by.method == "alignment", name
        assert find_estimator(name).site_part.method == name
    assert tuple(name for name in METHODS if is_vertical(name)) == VERTICAL
    for name in ("fed-mv-ppca", "fed-mvfcm", "fed-mvfpc", "fed-cox", "dpfact", "log-rank"):
        assert find_estimator(name).aligned_by is None, name
        assert find_estimator(name).site_part.method == name


def test_labels_may_be_at_one_site_and_views_need_not_fit_together(tmp_path):
    sites = read_sites(read_study(write_departments(tmp_path)))
    assert [site.labels is None for site in sites.values()] == [True, True, False]
    assert set(sites["ward"].labels) == {"cluster_1", "cluster_2", "cluster_3"}
    assert "diagnosis" not in sites["ward"].data.columns["scores"]
    text = STUDY.replace("blood =", "scores =").replace("image =", "scores =")
    sites = read_sites(read_study(write_departments(tmp_path, text=text)))
    assert [len(site.data.columns["scores"]) for site in sites.values()] == [12, 8, 10]


def test_labels_that_no_site_has_are_missed(tmp_path):
    with pytest.raises(DataError, match="at least one site's files must have the label column 'diagnosis'; none has"):
        read_sites(read_study(write_departments(tmp_path, labelled=())))


def test_sites_of_a_horizontal_study_all_need_labels(tmp_path):
    text = STUDY.replace("fed-msgl", "fed-mv-ppca").replace("n_clusters", "n_components")
    with pytest.raises(DataError, match="must have the label column 'diagnosis'; none has") as caught:
        read_sites(read_study(write_departments(tmp_path, text=text)))
    assert caught.value.where == "at 2 of 3 sites (lab, radiology)"


def with_identifiers(text=STUDY):
    return text.replace("[sites.lab]", 'identifiers = ["born"]\n\n[sites.lab]', 1)


def test_identifiers_are_read_as_text_and_name_the_person(tmp_path):
    path = write_departments(tmp_path, text=with_identifiers(), born=("lab", "radiology", "ward"))
    study = read_study(path)
    sites = read_sites(study)
    for site in sites.values():
        assert site.data.identifier.names == ("born",)
        assert site.data.identifier.column("born") == [f"{int(one[1:]) + 1:06d}" for one in site.data.ids]
        assert all("born" not in columns for columns in site.data.columns.values())
    assert make_estimator(study).person_key == "born"
    data = {name: site.data for name, site in sites.items()}
    model = make_estimator(study).fit(mc.Federation.in_process(data))
    assert model.alignment_counts_["at_site"] == {"lab": 90, "radiology": 89, "ward": 88}


def test_identifiers_that_are_missing_or_contradict_are_refused(tmp_path):
    path = write_departments(tmp_path, text=with_identifiers(), born=("lab", "ward"))
    with pytest.raises(DataError, match="must have this column of identifiers; none has") as caught:
        read_sites(read_study(path))
    assert caught.value.where == "radiology, column 'born'"
    (tmp_path / "radiology.csv").write_text("patient,c0,born\np1,2.5,0017\np2,2.0,\n")
    (tmp_path / "more.csv").write_text("patient,d0,born\np1,2.5,17\np2,2.0,0019\n")
    path.write_text(with_identifiers().replace('image = "radiology.csv"', 'image = "radiology.csv"\nmore = "more.csv"'))
    with pytest.raises(DataError, match="must have the same identifier in all files; 1 patients do not"):
        read_sites(read_study(path))
    with pytest.raises(ConfigurationError, match="columns of views must not be identifiers; got 'born'"):
        study_of(data={"identifiers": ["born"], "views": {"blood": ["born", "c0"]}})


def test_identifiers_come_from_whichever_file_has_them(tmp_path):
    (tmp_path / "a.csv").write_text("patient,x,born\n1,0.5,\n2,1.5,007\n")
    (tmp_path / "b.csv").write_text("patient,y,born\n2,0.5,007\n1,1.5,008\n")
    about = {"id_column": "patient", "identifiers": ["born"]}
    study = study_from_mapping(
        {
            "study": {"name": "x", "method": "fed-mv-ppca"},
            "data": about,
            "sites": {"lyon": {"a": "a.csv", "b": "b.csv"}},
        },
        folder=tmp_path,
    )
    data = read_sites(study)["lyon"].data
    assert data.identifier.column("born") == ["008", "007"]
    assert data.columns == {"a": ("x",), "b": ("y",)}


def test_of_two_files_with_labels_the_first_is_believed(tmp_path):
    (tmp_path / "a.csv").write_text("patient,x,group\n1,0.5,ill\n2,1.5,\n")
    (tmp_path / "b.csv").write_text("patient,y,group\n2,0.5,well\n1,1.5,well\n")
    beside = read_label_columns({"a": tmp_path / "a.csv", "b": tmp_path / "b.csv"}, "patient", ["group"])
    assert beside.groups(["1", "2"], "group") == ("ill", "well")


def test_nobody_can_be_held_out():
    with pytest.raises(ConfigurationError, match="validation must be omitted for a method that clusters") as caught:
        study_of(validation={"folds": 3})
    assert caught.value.where == "validation"


def test_files_of_aligned_patients_need_a_column_that_identifies_them(tmp_path):
    path = write_departments(tmp_path, text=STUDY.replace('id_column = "patient"\n', ""))
    with pytest.raises(ConfigurationError, match='id_column = "patient"') as caught:
        read_study(path)
    assert caught.value.where.endswith("data.id_column")
    path.write_text(with_identifiers().replace('id_column = "patient"\n', ""))
    assert read_study(path).data.identifiers == ("born",)
    horizontal = path.read_text().replace('identifiers = ["born"]', "").replace("fed-msgl", "fed-mv-ppca")
    path.write_text(horizontal.replace("n_clusters", "n_components"))
    assert read_study(path).data.id_column is None


def test_card_of_masked_sums_says_what_the_coordinator_sees():
    card = card_of(study_of({"n_clusters": 3}))
    steps = [name for name, _ in card.steps]
    assert card.method == "alignment, fed-msgl"
    assert [name for name in steps if name != "code"] == [
        "count_records", "send_pseudonyms", "agree", "describe", "relate",
    ]  # fmt: skip
    assert {line.step for line in card.lines} == set(steps)
    told = "\n".join(card.warnings)
    for words in (
        "keyed pseudonym of every patient",
        "a key derived from the study's name (for simulations only: anyone can compute it)",
        "similarities of patients",
        "no site's share",
        "learns which of its patients are at all other sites",
        "parameters of the fit: n_clusters = 3, ",
        "contains, per patient: pseudonym, cluster, embedding, affinity to others.",
        "no patient: send_fingerprint, confirm, and the keys of masked sums",
        "values about single patients and pairs of them are released without noise",
    ):
        assert words in told
    assert "list_relations" not in told
    assert "sums of many patients are exact." not in told
    assert "two sites" not in told
    assert "rotation" not in told
    assert "all patients of all sites" not in told


def test_card_warns_of_two_sites_of_rounds_and_of_the_union():
    two = {"lab": {}, "ward": {}}
    parameters = {"max_iter": 3, "incomplete": True, "person_key": "born"}
    told = "\n".join(card_of(study_of(parameters, sites=two)).warnings)
    assert "with two sites, that sum protects little" in told
    assert "refine sends every site, of all patients of all sites: consensus" in told
    assert "every site receives the pseudonyms of all patients" in told
    assert "patients are at all other sites" not in told
    assert "the identifier 'born' is read" in told
    key = {"pseudonym_key": "key.toml"}
    assert "under the key of pseudonyms" in "\n".join(card_of(study_of(privacy=key)).warnings)


@pytest.mark.parametrize(
    ("relations", "shown", "absent", "words"),
    [
        (
            "summed",
            {"send_pseudonyms"},
            {"relate", "list_relations"},
            'list_relations, list_codes: not on this card, since no site\'s policy has relations = "listed"',
        ),
        ("listed", {"list_relations"}, {"relate"}, "the most similar patients of the site"),
        ("dense", {"list_relations"}, {"relate"}, "the most similar patients of the site"),
        ("none", set(), {"relate", "list_relations"}, "not on this card"),
    ],
)
def test_card_in_clear_follows_the_policies(relations, shown, absent, words):
    study = study_of(privacy={"secure_sum": False, "policy": {"relations": relations}})
    card = card_of(study)
    steps = {name for name, _ in card.steps}
    assert shown <= steps
    assert not absent & steps
    assert words in "\n".join(card.warnings)
    assert shown <= set(card.individual)
    assert not absent & set(card.individual)


def test_one_site_that_allows_a_step_keeps_it_on_the_card():
    study = study_of(privacy={"secure_sum": False, "sites": {"ward": {"relations": "listed"}}})
    assert "list_relations" in dict(card_of(study).steps)


def test_the_card_asks_for_one_way_to_agree_on_an_order():
    for incomplete, asked, other in ((False, "agree", "agree_incomplete"), (True, "agree_incomplete", "agree")):
        steps = dict(card_of(study_of({"incomplete": incomplete})).steps)
        assert asked in steps
        assert other not in steps
        assert ("count_shared" in steps) == incomplete


@pytest.mark.slow
def test_the_card_lists_what_a_run_asks(departments):
    for parameters in ({}, {"incomplete": True}, {"max_iter": 2}, {"landmarks": 20}):
        parameters = {"n_clusters": 2, "landmarks": None, **parameters}
        listed = {"relations": "listed" if "incomplete" in parameters else "summed"}
        for privacy in ({"policy": listed}, {"secure_sum": False, "policy": {"relations": "dense"}}):
            study = study_of(parameters, sites={name: {} for name in departments}, privacy=privacy)
            data = {name: site.data for name, site in departments.items()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DisclosureWarning)
                federation = mc.Federation.in_process(data, policy=study.policies, secure_sum=study.privacy.secure_sum)
                make_estimator(study).fit(federation)
            asked = {
                entry["step"]
                for ledger in federation.ledgers.values()
                for entry in ledger.entries
                if any(field["records"] is not None for field in entry["fields"])
            }
            unasked = set() if study.privacy.secure_sum else {"count_shared"}
            assert {name for name, _ in card_of(study).steps} - unasked == asked, parameters


def test_card_of_factors_tells_its_own_terms():
    study = study_from_mapping(
        {
            "study": {"name": "x", "method": "fed-mvl"},
            "parameters": {"n_clusters": 3},
            "sites": MEMORY,
        }
    )
    told = "\n".join(card_of(study).warnings)
    assert "contains, per patient: pseudonym, cluster, embedding." in told
    assert "n_clusters = 3, orthogonality_penalty = 3.0, max_iter = 35, tol = 0.001." in told
    assert "send_fingerprint, confirm, begin, and" in told


def test_objections_are_those_of_the_guard():
    estimator = FedMSGL(3)
    unmasked, masked = study_of(privacy={"secure_sum": False}), study_of()

    def objections(study, estimator=estimator, **terms):
        return [(found.key, found.reason) for found in find_objections(study, estimator, mc.Policy(**terms))]

    assert objections(masked) == objections(unmasked, relations="listed") == []
    assert objections(unmasked) == [("relations", 'it would have to say relations = "listed"')]
    assert objections(masked, relations="none") == [("relations", 'it would have to say relations = "summed"')]
    pooled = [("secure_sums_only", "only masked sums may leave, and pseudonyms are not sums")]
    assert objections(masked, secure_sums_only=True) == pooled
    union = FedMSGL(3, incomplete=True)
    assert objections(masked, union) == [("relations", 'it would have to say relations = "listed"')]
    assert objections(masked, union, relations="listed") == []
    assert objections(masked, methods=("fed-msgl",)) == [("methods", "the method alignment is not allowed")]
    assert objections(masked, min_sites_in_sum=4) == [("min_sites_in_sum", "a masked sum needs 4 sites")]
    assert objections(masked, epsilon=1.0)[0][0] == "epsilon"
    assert objections(unmasked, mc.multiview.FedMvPPCA(2), relations="none") == []


def test_a_run_that_a_policy_refuses_asks_nothing(departments, tmp_path):
    content = {
        "study": {"name": "x", "method": "fed-msgl", "output": "runs"},
        "sites": {name: {} for name in departments},
        "privacy": {
            "secure_sum": False,
            "sites": {"view_2": {"methods": ["alignment"]}, "view_3": {"relations": "none"}},
        },
    }
    study = study_from_mapping(content, folder=tmp_path)
    with pytest.raises(RefusedByPolicy, match='would have to say relations = "listed"') as caught:
        run_study(study, sites=departments)
    assert caught.value.where == "view_1, policy, relations"
    assert "secure_sum = true" in caught.value.hint
    assert caught.value.__notes__ == [
        "view_2, policy, methods: the method fed-msgl is not allowed",
        'view_2, policy, relations: it would have to say relations = "listed"',
        'view_3, policy, relations: it would have to say relations = "summed"',
        'view_3, policy, relations: it would have to say relations = "listed"',
    ]
    assert not (tmp_path / "runs").exists()
    check_policies(study_of(), FedMSGL(3))
    with pytest.raises(RefusedByPolicy) as caught:
        check_policies(study_of(), FedMSGL(3, incomplete=True))
    assert "secure_sum" not in caught.value.hint


def test_card_of_a_method_tells_of_all_ways():
    told = "\n".join(describe_method(FedMSGL).warnings)
    for words in ("keyed pseudonym", "relate", "up to a rotation", "list_relations", "with two sites"):
        assert words in told
    plain = mc.multiview.FedMvPPCA
    assert describe_method(plain) == plain.disclosure_card()
    study = study_from_mapping({"study": {"name": "x", "method": "fed-mv-ppca"}, "sites": MEMORY})
    card = disclosure_card(plain.site_part)
    assert complete_card(card, study, plain(2)) == card


def test_views_are_joined_at_their_patients(departments, fitted):
    joined = join_views(fitted, {name: site.data for name, site in departments.items()})
    assert len(joined) == len(fitted.labels_)
    assert joined.views == ("view_1/view_1", "view_2/view_2", "view_3/view_3")
    for name, site in departments.items():
        row_of = {one: row for row, one in enumerate(site.data.ids.tolist())}
        rows = [row_of[one] for one in joined.ids.tolist()]
        np.testing.assert_array_equal(joined.array(f"{name}/{name}"), site.data.array(name)[rows])
    np.testing.assert_array_equal(fitted.places_for(joined), np.arange(len(joined)))


def test_every_fit_is_looked_at_on_the_same_patients(departments, fitted):
    found = compare_views(FedMSGL(2), departments, fitted=fitted)
    assert (found.notes, found.held_out, found.n_held_out) == ({}, False, len(fitted.labels_))
    labelled = departments["view_2"]
    here = fitted.labels_for(labelled.data) >= 0
    groups = np.array(labelled.labels)[here]
    federated = fitted.labels_for(labelled.data)[here]
    expected = clustering_scores(groups, federated)
    assert {name: found.federated[name] for name in expected} == expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DisclosureWarning)
        dense = mc.Policy(min_patients=1, relations="dense")
        alone = FedMSGL(2).fit(mc.Federation.in_process({"view_1": departments["view_1"].data}, policy=dense))
    own = alone.labels_for(labelled.data)[here]
    assert found.site_alone["view_1"]["acc"] == clustering_scores(groups, own)["acc"]
    assert found.site_alone["view_1"]["agreement"] == pytest.approx(adjusted_rand(federated, own))
    assert found.federated["agreement"] == 1.0
    assert found.federated["acc"] == found.pooled["acc"] >= found.site_alone["view_1"]["acc"]
    assert "agreement" not in found.pooled


def test_without_labels_fits_are_compared_with_the_pooled_one(departments, fitted):
    unlabelled = {name: SiteData(site.data) for name, site in departments.items()}
    found = compare_views(FedMSGL(2), unlabelled, fitted=fitted)
    assert found.federated == {"agreement": 1.0}
    assert found.pooled == {}
    rows = found.to_dict(FedMSGL.metrics)
    assert [row["label"] for row in rows["metrics"]] == ["Agreement with the pooled fit"]
    assert (rows["patients_held_out"], rows["patients_of_all_fits"]) == (None, len(fitted.labels_))


@pytest.mark.slow
def test_fits_that_cannot_be_made_are_noted(departments, fitted):
    tiny = MultiViewData({"bad": np.array([[1.0], [4.0], [2.0]])}, ids=departments["view_1"].data.ids[:3])
    found = compare_views(FedMSGL(30), {**departments, "tiny": SiteData(tiny)}, fitted=fitted)
    assert found.site_alone.keys() == set(departments)
    assert "n_clusters must be below the number of patients, 3" in found.notes["tiny"]
    assert found.n_held_out == 3 - int((fitted.places_for(tiny) < 0).sum())
    unfit = compare(FedMSGL(500), departments)
    assert (unfit.federated, unfit.pooled, unfit.site_alone) == ({}, {}, {})
    assert "n_clusters must be below the number of patients" in unfit.notes["federated"]


def test_a_comparison_makes_its_own_fit_and_leaves_the_estimator_alone(departments):
    estimator = FedMSGL(2, incomplete=True)
    found = compare(estimator, departments)
    assert not hasattr(estimator, "labels_")
    everywhere = set.intersection(*(set(site.data.ids.tolist()) for site in departments.values()))
    assert found.n_held_out == len(everywhere) < 66
    assert found.federated["acc"] == pytest.approx(found.pooled["acc"], abs=0.05)


def test_too_few_common_patients_leave_nothing_to_compare(departments, fitted):
    other = MultiViewData({"z": np.eye(4)}, ids=["q1", "q2", "q3", departments["view_1"].data.ids[0]])
    with pytest.raises(DataError, match="at least 2 patients must be at every site; got 1"):
        compare_views(FedMSGL(2), {**departments, "other": SiteData(other)}, fitted=fitted)


def test_alignment_is_told_in_counts(fitted, departments):
    shown = show_alignment(fitted, 10)
    n = len(fitted.labels_)
    assert [list(row[:3]) for row in shown.rows] == [[name, 63, n] for name in departments]
    assert all(row[3] == 63 - n < 10 for row in shown.rows)
    assert all(row[4:] == [0.0, 0.0] for row in shown.rows)
    assert "patients who are at every site" in shown.caption


def test_patients_are_found_under_the_key_of_the_study(departments, tmp_path):
    key = PseudonymKey.generate()
    data = {name: site.data for name, site in departments.items()}
    model = FedMSGL(2).fit(mc.Federation.in_process(data, pseudonym_key=key))
    ids = data["view_1"].ids
    with pytest.warns(UserWarning, match="No record took part in the fit"):
        assert (model.labels_for(ids) == -1).all()
    expected = model.labels_for(ids, key=key)
    assert (model.hold_key(key).labels_for(ids) == expected).all()
    assert (expected >= 0).sum() == len(model.labels_)
    with pytest.warns(UserWarning, match="another key"):
        assert (pickle.loads(pickle.dumps(model)).labels_for(ids) == -1).all()
    model.save(tmp_path)
    again = FedMSGL.load(tmp_path)
    assert again.alignment_counts_ == model.alignment_counts_
    with pytest.warns(UserWarning, match="another key"):
        assert (again.labels_for(ids) == -1).all()
    json.dumps(again.alignment_counts_)


def test_run_under_a_key_of_its_own_finds_its_patients(departments, tmp_path):
    PseudonymKey.generate().write(tmp_path / "key.toml")
    content = {
        "study": {"name": "x", "method": "fed-msgl", "output": "runs"},
        "parameters": {"n_clusters": 2},
        "sites": {name: {} for name in departments},
        "privacy": {"pseudonym_key": "key.toml"},
    }
    folder = run_study(study_from_mapping(content, folder=tmp_path), sites=departments)
    assert folder.study.is_vertical
    facts = folder.metadata
    assert (facts["vertical"], facts["rounds"]) == (True, 0)
    metrics = {row["name"]: row for row in folder.read("comparison.json")["metrics"]}
    assert metrics["acc"]["federated"] == metrics["acc"]["pooled"] > 0.9
    assert folder.read("comparison.json")["patients_of_all_fits"] == facts["patients_aligned"]
    alignment = folder.read("figures.json")[0]
    assert (alignment["title"], len(alignment["rows"])) == ("Alignment", 3)
    assert folder.read("disclosure.json")["card"]["individual"][:3] == ["send_pseudonyms", "agree", "relate"]
    modes = {file.name: file.stat().st_mode & 0o777 for file in (folder.path / "model").iterdir()}
    assert modes == {"model.npz": 0o600, "model.json": 0o600}
