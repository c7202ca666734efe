"""A formula that leaves a category out, or changes its reference, works in every use of the model."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

import multicentre as mc
from multicentre.validation.scoring.tables import table_model

LEVELS = {"sex": ["f", "m"], "ward": ["a", "b", "c"]}
FORMULAS = ["age + sex", 'age + C(sex, ref="m") + ward', 'age * C(ward, ref="c")', "age"]


def table(n, references=None, seed=0, gaps=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"age": rng.normal(60, 10, n), "sex": rng.choice(["f", "m"], n), "ward": rng.choice(["a", "b", "c"], n)}
    )
    frame["died"] = (rng.random(n) < 1 / (1 + np.exp(-0.08 * (frame.age - 60) - 0.7 * (frame.sex == "m")))).astype(int)
    frame.loc[: gaps - 1, "ward"] = None
    data = mc.data.TableData.from_frame(
        frame, outcome="died", columns=["age", "sex", "ward"], categories=LEVELS, references=references
    )
    return frame, data


@pytest.fixture(scope="module")
def models():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sites = {name: table(150, {"sex": "f", "ward": "a"}, seed)[1] for seed, name in enumerate("abc")}
        federation = mc.Federation.in_process(sites)
        return {one: mc.regression.FedLogisticRegression(formula=one).fit(federation) for one in FORMULAS}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("references", [{"sex": "f", "ward": "a"}, {"sex": "m", "ward": "b"}, None], ids=str)
@pytest.mark.parametrize("formula", FORMULAS)
def test_every_use_reads_the_columns_by_name(models, formula, references):
    model, (frame, held) = models[formula], table(200, references, seed=9)
    chances = model.predict_proba(frame)[:, 1]
    assert model.predict_proba(held)[:, 1] == pytest.approx(chances)
    assert model.assess(held)["auc"] == pytest.approx(roc_auc_score(frame.died, chances))
    assert model.assess(held)["log_loss"] == pytest.approx(log_loss(frame.died, chances))
    assert model.score(held) == pytest.approx(accuracy_score(frame.died, chances > 0.5))
    assert table_model(model).valid_for(held).chances(held)[:, 1] == pytest.approx(chances)


@pytest.mark.slow
def test_data_without_the_category_are_enough(models):
    frame, held = table(50, {"sex": "f", "ward": "a"}, seed=9)
    few = held.keep_columns(["age", "sex"])
    model = models["age + sex"]
    assert model.predict_proba(few) == pytest.approx(model.predict_proba(frame))
    assert table_model(model).valid_for(few).chances(few) == pytest.approx(model.predict_proba(frame))
    with pytest.raises(mc.errors.SchemaMismatch, match="it lacks sex=m"):
        model.predict(held.keep_columns(["age", "ward"]))


@pytest.mark.slow
def test_gaps_in_a_category_outside_the_formula_leave_no_record_out(models):
    frame, held = table(80, {"sex": "f", "ward": "a"}, seed=9, gaps=20)
    chances = models["age + sex"].predict_proba(frame)[:, 1]
    assert models["age + sex"].assess(held)["log_loss"] == pytest.approx(log_loss(frame.died, chances))
    other = 'age + C(sex, ref="m") + ward'
    with pytest.warns(UserWarning, match="20 of 80 patients have missing values"):
        scored = models[other].score(held)
    rest = frame.iloc[20:]
    assert scored == pytest.approx(accuracy_score(rest.died, models[other].predict_proba(rest)[:, 1] > 0.5))
