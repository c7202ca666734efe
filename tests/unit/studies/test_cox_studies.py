"""Studies of a Cox model with a formula, weights, an offset and clusters: run, compared, selected and resumed."""

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.studies import RunFolder, read_study, resume_run, run_study
from multicentre.survival import FedCox
from support.studies_toy import Interrupts

STUDY = """
[study]
name = "hips"
method = "fed-cox"

[parameters]
times = "{times}"
formula = "ns(age, df=3) * sex + offset(log(rate))"
weights = "w"
weight_type = "probability"
errors = "cluster"
cluster = "ward"

[data]
one_row_per_patient = true
where = "age >= 45"

[data.survival]
time = "days"
event = "died"
columns = ["age", "sex", "rate", "w", "ward"]
categories = {{sex = ["f", "m"]}}
references = {{sex = "f"}}

[run]
compare = {compare}
"""
SITES = ("lyon", "oslo", "turin")


def draw(place):
    rng = np.random.default_rng(place)
    age, rate = rng.normal(60, 10, 200).round(1), rng.uniform(0.5, 2.0, 200).round(3)
    time, end = rng.exponential(100 * np.exp(-0.04 * (age - 60)) / rate), rng.exponential(150, 200)
    table = {"age": age, "sex": rng.choice(["f", "m"], 200), "rate": rate, "w": rng.integers(1, 4, 200)}
    outcome = {"days": np.minimum(time, end).round(1) + 0.1, "died": (time <= end).astype(int)}
    return pd.DataFrame({**table, "ward": rng.integers(0, 9, 200), **outcome})


def write(folder, *, times="stratified", compare="false"):
    folder.mkdir(exist_ok=True)
    text = STUDY.format(times=times, compare=compare)
    for place, name in enumerate(SITES):
        draw(place).to_csv(folder / f"{name}.csv", index=False)
        text += f'[sites.{name}]\nfile = "{name}.csv"\n'
    (folder / "study.toml").write_text(text)
    return read_study(folder / "study.toml")


def model_of(run):
    with np.load(RunFolder.open(run.path).path / "model" / "model.npz", allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


@pytest.mark.parametrize(("times", "compare"), [("stratified", "true"), ("grid", "false")])
def test_a_study_is_the_fit_of_the_selected_patients(tmp_path, times, compare):
    run = run_study(write(tmp_path, times=times, compare=compare))
    tables = {name: draw(place).query("age >= 45") for place, name in enumerate(SITES)}
    data = {
        name: mc.data.SurvivalData.from_frame(
            table, time="days", event="died", categories={"sex": ["f", "m"]}, references={"sex": "f"}
        )
        for name, table in tables.items()
    }
    options = {"weights": "w", "weight_type": "probability", "errors": "cluster", "cluster": "ward"}
    formula = "ns(age, df=3) * sex + offset(log(rate))"
    expected = FedCox(times, formula=formula, **options).fit(mc.Federation.in_process(data))
    np.testing.assert_allclose(model_of(run)["standard_errors_"], expected.standard_errors_, rtol=1e-6)
    if compare == "true":
        metrics = run.read("comparison.json")["metrics"]
        assert all(metric["federated"] == pytest.approx(metric["pooled"], rel=1e-6) for metric in metrics)


@pytest.mark.slow
@pytest.mark.parametrize("times", ["stratified", "grid"])
def test_an_interrupted_run_resumes_to_the_same_model(tmp_path, times):
    whole = run_study(write(tmp_path / "whole", times=times))
    with pytest.raises(KeyboardInterrupt):
        run_study(write(tmp_path / "broken", times=times), listener=Interrupts(2))
    (path,) = (tmp_path / "broken" / "runs").iterdir()
    first, second = model_of(whole), model_of(resume_run(path))
    assert first.keys() == second.keys()
    for name, values in first.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(values, second[name], rtol=1e-7, atol=1e-7, err_msg=name)
