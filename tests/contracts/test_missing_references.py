"""Contract: every likelihood model names the categories whose levels add up to one, and the parameter that mends it."""

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.errors import DataError

CATEGORIES = {"arm": ["x", "y"], "sex": ["f", "m"]}
MODELS = {
    "glm": mc.regression.FedLogisticRegression(),
    "mixed": mc.regression.FedGLMM("binomial"),
    "multinomial": mc.regression.FedMultinomialRegression(),
    "cox": mc.survival.FedCox(),
}


def sites(is_survival, **parameters):
    hospitals = {}
    for number, site in enumerate(("lyon", "porto", "turin")):
        rng, n = np.random.default_rng(number), 120
        frame = pd.DataFrame({"age": rng.normal(60, 9, n), "arm": rng.choice(["x", "y"], n)})
        frame["sex"], frame["time"] = rng.choice(["f", "m"], n), rng.exponential(2, n)
        frame["dead"] = (rng.random(n) < 0.5) * 1
        options = {"columns": ["age", "arm", "sex"], "categories": CATEGORIES, **parameters}
        if is_survival:
            hospitals[site] = mc.data.SurvivalData.from_frame(frame, time="time", event="dead", **options)
        else:
            hospitals[site] = mc.data.TableData.from_frame(frame, outcome="dead", **options)
    return mc.Federation.in_process(hospitals)


@pytest.mark.parametrize("name", MODELS)
def test_a_category_without_a_reference_is_named_with_its_remedy(name):
    model = MODELS[name]
    with pytest.raises(DataError, match=r"arm=x, arm=y, sex=f, sex=m") as error:
        model.fit(sites(name == "cox"))
    assert 'references = {arm = "x", sex = "f"}' in error.value.hint
    model.fit(sites(name == "cox", references={"arm": "x", "sex": "f"}))
