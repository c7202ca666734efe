"""Studies whose parameters hold a formula: from files to a model, resumed after an interruption."""

import numpy as np
import pandas as pd
import pytest

from multicentre.errors import SchemaMismatch
from multicentre.studies import RunFolder, read_study, resume_run, run_study
from support.studies_toy import Interrupts

STUDY = """
[study]
name = "stages"
method = "{method}"

[parameters]
formula = "{formula}"
{more}

[data]
one_row_per_patient = true

[data.table]
outcome = "died"
classes = ["no", "yes"]
columns = ["age", "dose", "stage"]
categories = {{stage = ["I", "II", "III"]}}
references = {{stage = "I"}}

[run]
compare = {compare}
"""
FORMULA = "died ~ age * C(stage, ref='II') + ns(dose, df=3)"


def write(folder, *, method="fed-logistic-regression", formula=FORMULA, more="", compare="false"):
    rng = np.random.default_rng(2)
    text = STUDY.format(method=method, formula=formula, more=more, compare=compare)
    folder.mkdir(exist_ok=True)
    for name in ("lyon", "oslo", "turin"):
        age, dose = rng.normal(60, 10, 150).round(1), rng.lognormal(size=150).round(3)
        died = rng.random(150) < 1 / (1 + np.exp(-0.06 * (age - 60) - np.log(dose)))
        table = {"age": age, "dose": dose, "stage": rng.choice(["I", "II", "III"], 150)}
        pd.DataFrame({**table, "died": np.where(died, "yes", "no")}).to_csv(folder / f"{name}.csv", index=False)
        text += f'[sites.{name}]\nfile = "{name}.csv"\n'
    (folder / "study.toml").write_text(text)
    return read_study(folder / "study.toml")


@pytest.mark.parametrize("compare", ["false", pytest.param("true", marks=pytest.mark.slow)])
def test_a_formula_in_a_study_file_gives_a_model_with_its_terms(tmp_path, compare):
    run = run_study(write(tmp_path, compare=compare))
    rows = [row[0] for row in run.read("figures.json")[0]["rows"]]
    assert rows[:5] == ["(intercept)", "age", "stage=I", "stage=III", "ns(dose, df=3)"]
    assert len(rows) == 7  # one row for the spline, two for the product with a category
    if compare == "true":
        metrics = run.read("comparison.json")["metrics"]
        assert all(metric["federated"] == pytest.approx(metric["pooled"], rel=1e-6) for metric in metrics)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fed-logistic-regression", "fed-glm-cv"])
def test_an_interrupted_run_with_a_formula_resumes_to_the_same_model(tmp_path, method):
    options = {"method": method}
    if method == "fed-glm-cv":
        options["more"] = 'family = "binomial"\nalphas = 3\ncv = 3'
    whole = run_study(write(tmp_path / "whole", **options))
    with pytest.raises(KeyboardInterrupt):
        run_study(write(tmp_path / "broken", **options), listener=Interrupts(2))
    (path,) = (tmp_path / "broken" / "runs").iterdir()
    resumed = resume_run(path)
    models = []
    for folder in (whole, resumed):
        with np.load(RunFolder.open(folder.path).path / "model" / "model.npz", allow_pickle=False) as arrays:
            models.append({name: arrays[name] for name in arrays.files})
    assert models[0].keys() == models[1].keys()
    for name, values in models[0].items():
        np.testing.assert_allclose(values, models[1][name], rtol=1e-7, atol=1e-7, err_msg=name)


def test_the_outcome_of_the_formula_must_be_that_of_the_study(tmp_path):
    with pytest.raises(SchemaMismatch, match="must be that of the data, died; got alive"):
        run_study(write(tmp_path, formula="alive ~ age"))
