"""One selection of records for all analyses of a study, at simulated and at real sites."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import multicentre as mc
from multicentre.cli.summary import describe_run
from multicentre.errors import ConfigurationError, DataError, RefusedByPolicy
from multicentre.formula.site import DESIGN_STEPS
from multicentre.privacy.policy import NEW_SITE
from multicentre.reports import render_report
from multicentre.studies import read_study, run_study
from multicentre.studies.disclosure_cards import study_card
from multicentre.studies.policy_conflicts import refused_at_new_sites
from multicentre.studies.study import make_estimator
from multicentre.studies.subgroups import REGRESSIONS
from multicentre.studies.terms import digest_of
from multicentre.validation.folds.subgroups import divide_into_subgroups
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.site_folder import read_site
from support.real_sites import NAMES, Hospitals
from support.remote_sites import ByHand

N = 120
STUDY = """
[study]
name = "one-cohort"
[data]
id_column = "patient"
where = "age >= 18 and ward == 'A'"
complete = "all"
[data.survival]
time = "months"
event = "died"
unit = "months"
columns = ["age", "creatinine"]
[run]
compare = false
[[analysis]]
name = "curve"
method = "kaplan-meier"
[[analysis]]
name = "cox"
method = "fed-cox"
"""


def write_study(folder, text=STUDY, n_missing=4):
    """Write files in which one site lacks a few values, some patients are children, and some are in another ward."""
    for seed, name in enumerate(NAMES):
        rng = np.random.default_rng(seed)
        age, creatinine = rng.normal(60, 9, N).round(1), rng.lognormal(0, 0.4, N).round(3)
        age[:15], ward = 12, np.where(np.arange(N) % 8 == 7, "B", "A")
        time = rng.exponential(20 * np.exp(-0.02 * (age - 60))).round(3) + 0.001
        if name == "porto":
            creatinine[20 : 20 + n_missing] = np.nan
        columns = {"patient": [f"{name}-{row}" for row in range(N)], "age": age, "creatinine": creatinine, "ward": ward}
        table = pd.DataFrame({**columns, "months": time, "died": (rng.random(N) < 0.7).astype(int)})
        table.to_csv(folder / f"{name}.csv", index=False)
        text += f'[sites.{name}]\nfile = "{name}.csv"\n'
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


def over_sites(tmp_path, path):
    """Run a study over sites with the settings that a new site gets."""
    hospitals = Hospitals(tmp_path / "hospitals", path)
    connect = lambda: ByHand({name: partial(hospitals.answer, name) for name in hospitals.names})  # noqa: E731
    return run_study(read_study(path).with_output(tmp_path / "remote"), connect=connect)


def statuses(folder):
    return {entry["name"]: entry["status"] for entry in folder.metadata["analyses"]}


def sections(folder):
    page = render_report(folder.path)
    return [line.split(". ", 1)[1] for line in page.splitlines() if line.startswith("<h2>") and "Site" not in line]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:analysis cox has no result")
def test_a_study_has_the_same_statuses_sections_and_numbers_at_real_sites(tmp_path):
    """Contract: a simulation predicts the run over real sites, also if sites refuse an analysis."""
    for number, text in enumerate((STUDY, STUDY.replace('complete = "all"\n', ""))):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = write_study(folder, text)
        here, there = run_study(read_study(path).with_output(folder / "here")), over_sites(folder, path)
        expected = {"curve": "finished", "cox": "refused" if number else "finished"}
        assert statuses(here) == statuses(there) == expected
        assert sections(here) == sections(there)
        assert here.metadata["flow"] == there.metadata["flow"]
        for name in [name for name, status in expected.items() if status == "finished"]:
            models = [one.path / "analyses" / name / "model" / "model.npz" for one in (here, there)]
            with np.load(models[0]) as first, np.load(models[1]) as second:
                for key in first:
                    np.testing.assert_array_equal(first[key], second[key])


@pytest.mark.slow
def test_records_are_left_out_once_and_counted_by_reason(tmp_path):
    folder = run_study(read_study(write_study(tmp_path, n_missing=12)).with_output(tmp_path / "runs"))
    n_children, n_elsewhere = 15 * 3, (N // 8 - 1) * 3  # one of the children's rows is also of the other ward
    flow = folder.metadata["flow"]
    sizes = {entry["n_patients"] for entry in folder.metadata["analyses"]}
    assert flow["assessed"] == 3 * N
    assert sum(flow["excluded"].values()) == n_children + n_elsewhere + flow["excluded"]["missing creatinine"]
    assert 5 <= flow["excluded"]["missing creatinine"] <= 12
    assert sizes == {flow["analysed"]}
    text = describe_run(folder)
    assert text.startswith("Flow of patients")
    assert "left out: condition not met: age >= 18 and ward == 'A'" in text
    page = render_report(folder.path)
    assert "Flow of patients" in page
    assert "Left out: missing creatinine" in page


@pytest.mark.slow
def test_small_numbers_of_the_flow_are_not_published(tmp_path):
    folder = run_study(read_study(write_study(tmp_path, n_missing=3)).with_output(tmp_path / "runs"))
    flow = folder.metadata["flow"]
    assert flow["excluded"]["missing creatinine"] is None
    assert flow["excluded"]["condition not met: age >= 18 and ward == 'A'"] is None  # the small one would follow
    assert flow["sites"] == {}  # the other sites' numbers and the total would give those of the third


def test_terms_are_part_of_what_a_site_approves(tmp_path):
    path = write_study(tmp_path)
    study = read_study(path)
    for old, new in (("age >= 18", "age >= 21"), ('"all"', '["age"]')):
        path.write_text(path.read_text().replace(old, new))
        assert digest_of(read_study(path)) != digest_of(study)
    assert "where age >= 18 and ward == 'A' and with all variables recorded" in study_card(study).warnings[0]
    assert "count_flow" in json.dumps(study_card(study).to_dict())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ward == 'A'", "ward = 'A'", r"data\.where.*expected a comparison"),
        ('complete = "all"', 'complete = ["creatinin"]', r"creatinin.*creatinine"),
        ("[data.survival]", '[data.survival]\ncategories = {ward = ["B", "C"]}', "must compare its levels"),
    ],
)
def test_faulty_terms_are_refused_before_a_request(tmp_path, old, new, message):
    path = write_study(tmp_path, STUDY.replace(old, new))
    with pytest.raises(ConfigurationError, match=message):
        run_study(read_study(path).with_output(tmp_path / "runs"))


def test_a_site_without_a_record_that_meets_the_condition_is_named(tmp_path):
    path = write_study(tmp_path, STUDY.replace("age >= 18", "age >= 200"))
    with pytest.raises(DataError, match=r"lyon.*at least one record must remain"):
        run_study(read_study(path).with_output(tmp_path / "runs"))


SUBGROUPS = (
    STUDY.replace("where = \"age >= 18 and ward == 'A'\"\n", "")
    .replace(
        'columns = ["age", "creatinine"]', 'columns = ["age", "creatinine", "ward"]\ncategories = {ward = ["A", "B"]}'
    )
    .replace("[run]", 'references = {ward = "A"}\n[run]')
    + """
subgroups = ["ward"]
[[analysis]]
name = "adults"
method = "fed-cox"
where = "age >= 18 and ward == 'A'"
"""
)


def fitted(frame, columns):
    """Return coefficients and standard errors of a pooled Cox model with the sites as strata."""
    sites = {
        name: mc.data.SurvivalData(each[columns].to_numpy(), each["months"], each["died"], columns=columns)
        for name, each in frame.groupby("site")
    }
    policy = mc.Policy(min_patients=1)
    model = mc.survival.FedCox().fit(mc.Federation.in_process(sites, policy=policy, secure_sum=False))
    return model.to_frame()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*carries no information")
@pytest.mark.filterwarnings("ignore:.*events per site")
def test_subgroups_are_fits_to_their_records_and_have_a_test_of_interaction(tmp_path):
    path = write_study(tmp_path, SUBGROUPS)
    frame = pd.concat([pd.read_csv(tmp_path / f"{name}.csv").assign(site=name) for name in NAMES]).dropna()
    here, there = run_study(read_study(path).with_output(tmp_path / "here")), over_sites(tmp_path, path)
    for folder in (here, there):
        table, forest = (
            one
            for one in json.loads((folder.path / "analyses/cox/figures.json").read_text())
            if one["title"] in ("Subgroups", "Estimates in subgroups")
        )
        estimates, values = [], []
        for ward, row in zip("AB", table["rows"], strict=True):
            expected = fitted(frame[frame["ward"] == ward], ["age", "creatinine"]).loc["age"]
            assert row[:3] == [f"ward = {ward}", "age", int((frame["ward"] == ward).sum())]
            assert row[3] == pytest.approx(np.exp(expected["coefficient"]), rel=1e-6)
            estimates.append(expected["coefficient"])
            values.append(expected["standard_error"] ** 2)
        z = (estimates[0] - estimates[1]) / np.sqrt(sum(values))
        assert table["rows"][0][6] == pytest.approx(2 * stats.norm.sf(abs(z)), rel=1e-5)
        assert forest["rows"] == ["ward = A", "ward = B"]
        adults = frame[(frame["age"] >= 18) & (frame["ward"] == "A")]
        model = json.loads((folder.path / "analyses/adults/model/model.json").read_text())
        entry = next(one for one in folder.metadata["analyses"] if one["name"] == "adults")
        assert model
        assert entry["n_patients"] == len(adults)


@pytest.mark.parametrize("method", REGRESSIONS)
def test_a_regression_in_subgroups_has_the_steps_of_a_formula_on_its_card(method, tmp_path):
    """Each level is fitted with a formula that leaves the category out, which real sites must permit."""
    parts = read_study(write_study(tmp_path, SUBGROUPS)).split()
    steps = {}
    for name in ("cox", "adults"):  # of these, only the first is repeated
        about = parts[name].about.model_copy(update={"method": method})
        steps[name] = make_estimator(parts[name].model_copy(update={"about": about})).planned_steps()
    assert steps["cox"] >= DESIGN_STEPS
    assert not steps["adults"] & DESIGN_STEPS


@pytest.mark.slow
def test_other_conditions_are_refused(tmp_path):
    """A hostile coordinator cannot divide a site's records by a condition of its own."""
    path = write_study(tmp_path, SUBGROUPS)
    hospitals = Hospitals(tmp_path / "hospitals", path)
    with hospitals.federation() as federation:
        for conditions in (["age == 61.5"], ["ward == 'A'"]):
            with pytest.raises(RefusedByPolicy, match="conditions must be those that the study states"):
                divide_into_subgroups(federation, conditions)
        groups = divide_into_subgroups(federation, ["`ward` == 'A'", "`ward` == 'B'"])
        assert [group.absent for group in groups] == [(), ()]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('subgroups = ["ward"]', 'subgroups = ["age"]', "at least two declared levels"),
        ('method = "fed-cox"\n\nsubgroups', 'method = "kaplan-meier"\n\nsubgroups', "must be of a regression"),
        ("ward == 'A'\"", "ward == 'C'\"", "must compare its levels"),
    ],
)
def test_faulty_subgroups_are_refused_when_the_study_is_read(tmp_path, old, new, message):
    assert old in SUBGROUPS
    with pytest.raises(ConfigurationError, match=message):
        read_study(write_study(tmp_path, SUBGROUPS.replace(old, new)))


def test_the_policy_of_a_simulation_is_that_of_a_new_site(tmp_path):
    study = read_study(write_study(tmp_path))
    written = read_site(make_site("lyon", tmp_path / "lyon").folder).policy_for(study.name)
    assert replace(written, cohorts=None) == NEW_SITE
    assert replace(study.policies["lyon"], min_difference=NEW_SITE.min_difference) == NEW_SITE
    assert study.policies["lyon"].difference_of(have_ids=True) == NEW_SITE.min_difference
    assert refused_at_new_sites(study) == []


def test_a_simulation_under_looser_rules_says_what_new_sites_would_refuse(tmp_path):
    text = STUDY.replace('id_column = "patient"', "one_row_per_patient = true")
    study = read_study(write_study(tmp_path, text + "\n[privacy]\npolicy = {min_patients = 3}\n"))
    reasons = " ".join(refused_at_new_sites(study))
    assert "records need ids" in reasons
    assert "min_patients: the simulation has 3, new sites have 10" in reasons
