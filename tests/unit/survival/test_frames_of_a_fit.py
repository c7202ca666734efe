"""A fitted model reads a table like that of the fit, after it was saved too; it knows references and their levels."""

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.data import SurvivalData, TableData
from multicentre.errors import DataError, SchemaMismatch
from multicentre.estimator.base import FederatedEstimator
from multicentre_papers import baselines

SURVIVAL = {
    "cox": lambda: mc.survival.FedCox(missing="mean"),
    "rsf": lambda: mc.survival.FedRSF(3, random_state=0),
}
TABLES = {
    "xgb": lambda: mc.boosting.FedXGBClassifier(4, max_depth=2),
    "adaboost": lambda: baselines.AdaBoostF(n_estimators=4),
}
DECLARED = {"categories": {"stage": ["I", "II", "III"], "sex": ["f", "m"]}, "references": {"stage": "I", "sex": "f"}}


def draw_frame(seed, n=240):
    random = np.random.default_rng(seed)
    stage, sex = random.choice(["I", "II", "III"], n), random.choice(["f", "m"], n)
    risk = (stage == "III") + 0.5 * (sex == "m")
    return pd.DataFrame(
        {
            "age": random.normal(60, 8, n).round(),
            "stage": np.where(random.uniform(size=n) < 0.1, None, stage),
            "sex": sex,
            "t": random.exponential(np.exp(-risk)) * 20,
            "died": (random.uniform(size=n) < 0.2 + 0.3 * risk).astype(int),
        }
    )


FRAMES = {name: draw_frame(seed) for seed, name in enumerate(["lyon", "oslo"])}
NEW = draw_frame(7)


def survival(frame, **how):
    return SurvivalData.from_frame(frame, time="t", event="died", **DECLARED | how)


def table(frame, **how):
    return TableData.from_frame(frame.drop(columns="t"), outcome="died", **DECLARED | how)


def fit(make, read):
    return make().fit(mc.Federation.in_process({name: read(frame) for name, frame in FRAMES.items()}))


@pytest.mark.parametrize(
    ("make", "read"),
    [*((make, survival) for make in SURVIVAL.values()), *((make, table) for make in TABLES.values())],
    ids=[*SURVIVAL, *TABLES],
)
def test_a_frame_like_that_of_the_fit_is_predicted_and_by_the_saved_model_too(make, read, tmp_path):
    model = fit(make, read)
    model.save(tmp_path)
    expected = model.predict(read(NEW))
    features = NEW[["stage", "sex", "age"]]
    for each in (model, FederatedEstimator.load(tmp_path)):
        assert each.feature_names_in_ == ("age", "stage=II", "stage=III", "sex=m")
        np.testing.assert_array_equal(each.predict(features), expected)
        np.testing.assert_array_equal(each.predict(features[features["stage"] == "I"]), expected[NEW["stage"] == "I"])
        with pytest.raises(DataError, match="1 of 240 entries of 'stage' is a level that was not declared"):
            each.predict(features.assign(stage=["IV", *NEW["stage"][1:]]))
        other_references = read(NEW, categories={"stage": ["III", "II", "I"], "sex": ["m", "f"]})
        np.testing.assert_array_equal(each.predict(other_references), expected)
        with pytest.raises(DataError, match="X must have the levels of the categories of the fit"):
            each.predict(read(NEW, categories={"stage": ["I", "II", "III", "IV"], "sex": ["f", "m"]}))


@pytest.mark.parametrize("make", [*SURVIVAL.values(), *TABLES.values()], ids=[*SURVIVAL, *TABLES])
def test_sites_with_other_references_are_refused_although_columns_are_the_same(make):
    read = survival if make in SURVIVAL.values() else table
    other = {"categories": {"stage": ["0", "II", "III"], "sex": ["f", "m"]}, "references": {"stage": "0", "sex": "f"}}
    sites = {"lyon": read(FRAMES["lyon"]), "oslo": read(FRAMES["oslo"].replace({"stage": {"I": "0"}}), **other)}
    assert sites["lyon"].columns == sites["oslo"].columns
    with pytest.raises(SchemaMismatch, match=r"levels must be those of lyon.*stage=0, stage=I"):
        make().fit(mc.Federation.in_process(sites))
