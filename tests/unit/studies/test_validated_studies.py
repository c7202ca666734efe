"""A study that asks for a cross-validation: what it writes, what its card shows, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest

from multicentre.errors import ConfigurationError
from multicentre.estimator.registry import PARTS, find_part
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.card import disclosure_card
from multicentre.reports import write_report
from multicentre.studies.cross_validation import make_splitter, validation_cards
from multicentre.studies.runner import run_study
from multicentre.studies.study_file import study_from_mapping


def study_of(folder, **validation):
    """Write three sites with shared people, and return the study of them."""
    rng = np.random.default_rng(0)
    born = pd.date_range("1950-01-01", periods=240, freq="31D")
    for site, first in (("lyon", 0), ("oslo", 70), ("rome", 140)):
        own = born[first : first + 100]
        dates = own.strftime("%d/%m/%Y") if site == "lyon" else own.strftime("%Y-%m-%d")
        x = rng.normal(size=100)
        table = pd.DataFrame({"born": dates, "x": x, "ill": (x + rng.normal(size=100) > 0).astype(int)})
        table.to_csv(folder / f"{site}.csv", index=False)
    content = {
        "study": {"name": "x", "method": "fed-xgb-classifier"},
        "parameters": {"n_estimators": 2, "max_depth": 2},
        "data": {"table": {"outcome": "ill"}, "identifiers": ["born"]},
        "sites": {site: {"file": f"{site}.csv"} for site in ("lyon", "oslo", "rome")},
        "run": {"compare": False},
        "validation": {"folds": 3, "kind": "date", "date_orders": {"lyon": "dmy"}, "scores": ["accuracy"]} | validation,
    }
    return study_from_mapping(content, folder=folder)


@pytest.mark.slow
def test_a_run_writes_scores_of_duplicate_safe_folds(tmp_path):
    key = PseudonymKey.generate()
    key.write(tmp_path / "study.key")
    study = study_of(tmp_path)
    study = study.model_copy(
        update={"privacy": study.privacy.model_copy(update={"pseudonym_key": tmp_path / "study.key"})}
    )
    folder = run_study(study)
    found = folder.read("cross-validation.json")
    assert found["duplicate_safe"]
    assert found["records_in_no_fold"] == [0]
    assert sum(found["folds"][0]) == sum(found["records"]) == 300
    assert len(found["scores"]["accuracy"]) == 3
    assert np.array(found["site_scores"]["accuracy"], dtype=float).shape == (3, 3)
    card = json.loads((folder.path / "disclosure.json").read_text())["card"]
    assert {"count_buckets", "count_right", "sum_gradients"} <= {name for name, _ in card["steps"]}
    released = {entry["step"] for entry in folder.read("disclosure.json")["released"]}
    assert released - {name for name, _ in card["steps"]} <= {"advertise", "send_digest", "describe_key"}
    page = write_report(folder.path).read_text(encoding="utf-8")
    assert "Scores of held-out patients, 3 folds" in page
    assert "Held-out validation: 3 folds (" in page
    assert folder.study.validation == study.validation


@pytest.mark.slow
def test_a_run_holds_each_site_out_and_combines_their_scores(tmp_path):
    terms = {"strategy": "site", "scores": ["roc_auc"], "date_orders": {}, "kind": "identifier"}
    study = study_of(tmp_path, **terms)
    content = study.model_dump(by_alias=True, exclude_none=True)
    content["privacy"]["policy"] = {"min_sites_in_sum": 2}  # two of three sites fit each model
    content["run"]["quorum"] = 2
    folder = run_study(study_from_mapping(content, folder=tmp_path))
    found = folder.read("cross-validation.json")
    assert list(found["held_out"]) == ["lyon", "oslo", "rome"]
    assert [scores["roc_auc"] for scores in found["held_out"].values()] == found["scores"]["roc_auc"]
    page = write_report(folder.path).read_text(encoding="utf-8")
    for words in ("Held-out sites: roc auc", "random effects", "new site", "prediction interval", "calibration slope"):
        assert words in page


def test_each_strategy_has_its_splitter(tmp_path):
    kinds = {
        "HashGroupKFold": {},
        "RepeatedHashGroupKFold": {"repeats": 2},
        "CovariateFoldKFold": {"strategy": "covariate", "covariate": "x"},
        "LeaveOneSiteOut": {"strategy": "site"},
        "FederatedKFold": {"strategy": "random", "allow_leakage": True},
    }
    for name, terms in kinds.items():
        study = study_of(tmp_path, **terms)
        splitter = make_splitter(study, study.validation)
        assert type(splitter).__name__ == name
        assert getattr(splitter, "person_key", "born") == "born"
        assert splitter.duplicate_safe == (name not in ("FederatedKFold", "LeaveOneSiteOut"))
        assert len(validation_cards(study, "patients")) == 2
    assert validation_cards(study.model_copy(update={"validation": None}), "patients") == []


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"strategy": "covariate"}, 'covariate must be given if and only if strategy = "covariate"'),
        ({"covariate": "x"}, 'covariate must be given if and only if strategy = "covariate"'),
        ({"strategy": "random"}, 'allow_leakage must be true for strategy = "random"; got false'),
        (
            {"strategy": "site", "allow_leakage": True, "repeats": 2},
            'repeats must be 1 unless strategy = "hash"; got 2',
        ),
        ({"date_orders": {"lyons": "dmy"}}, "lyon"),
        ({"date_orders": {"lyon": "american"}}, "the value must be 'iso', 'dmy', 'mdy' or 'ymd'"),
        ({"folds": 1}, "greater than or equal to 2"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, terms, said):
    with pytest.raises(ConfigurationError, match=said):
        study_of(tmp_path, **terms)


def test_the_card_says_what_a_cross_validation_changes(tmp_path):
    notes = " ".join(validation_cards(study_of(tmp_path, repeats=2), "patients")[0].warnings)
    for told in ("2 times 3 folds", "'born' is read and hashed", "study's name", "by_site"):
        assert told in notes
    assert "is off here" not in notes  # sites have the policy of a new site
    notes = " ".join(
        validation_cards(study_of(tmp_path, strategy="site", by_site=False, drop_shared=True), "patients")[0].warnings
    )
    assert "a fold for each site" in notes
    assert "which of its patients are also at another site" in notes
    assert "by_site" not in notes


def test_folds_of_people_need_to_know_who_they_are(tmp_path):
    study = study_of(tmp_path).model_dump(by_alias=True, exclude_none=True)
    del study["data"]["identifiers"]
    with pytest.raises(ConfigurationError, match="identifiers must be given for folds of persons"):
        study_from_mapping(study, folder=tmp_path)
    study["validation"]["person_key"] = "identifier"
    assert study_from_mapping(study, folder=tmp_path).validation.person_key == "identifier"


@pytest.mark.parametrize("name", PARTS)
def test_every_part_of_validation_has_a_card_under_its_own_name(name):
    assert find_part(name).method == name
    assert disclosure_card(find_part(name)).lines
