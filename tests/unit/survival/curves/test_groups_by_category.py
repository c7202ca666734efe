"""One declaration of a category serves models and curves alike: a reference is a group, a missing level is in none."""

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.data import SurvivalData
from multicentre.errors import ConfigurationError
from multicentre.survival import AalenJohansen, KaplanMeier, LogRank
from multicentre.survival.curves.tables.groups import find_groups, find_members

LEVELS = {"stage": ["I", "II", "III"]}
N_MISSING = 20


def draw_frame(seed, n=180):
    random = np.random.default_rng(seed)
    stage = random.choice(["I", "II", "III"], n)
    time = random.exponential(10.0 / (1.0 + 0.5 * (stage == "III")), n).round(1)
    frame = pd.DataFrame({"stage": stage, "t": time, "died": random.integers(0, 2, n)})
    frame.loc[: N_MISSING - 1, "stage"] = None
    return frame


FRAMES = {name: draw_frame(seed) for seed, name in enumerate(["lyon", "oslo", "turin"])}
POOLED = pd.concat(FRAMES.values(), ignore_index=True)


def federate(policy=None, **how):
    sites = {
        name: SurvivalData.from_frame(frame, time="t", event="died", categories=LEVELS, **how)
        for name, frame in FRAMES.items()
    }
    return mc.Federation.in_process(sites, policy=policy or mc.Policy(exact_times=True))


@pytest.mark.parametrize("reference", ["I", "III"])
@pytest.mark.parametrize("stratify", [False, True])
def test_a_test_with_a_reference_is_that_of_all_levels(reference, stratify):
    whole = LogRank("stage", times=None if stratify else "exact", stratify_by_site=stratify).fit(federate())
    dropped = LogRank("stage", times=None if stratify else "exact", stratify_by_site=stratify)
    dropped.fit(federate(references={"stage": reference}))
    assert dropped.groups_ == whole.groups_ == ("I", "II", "III")
    assert dropped.degrees_of_freedom_ == 2
    assert dropped.n_left_out_ == whole.n_left_out_ == 3 * N_MISSING
    assert dropped.statistic_ == pytest.approx(whole.statistic_, rel=1e-9)


def test_the_test_is_that_of_the_patients_whose_level_is_known():
    compare = pytest.importorskip("sksurv.compare")
    known = POOLED[POOLED["stage"].notna()]
    outcome = np.array(list(zip(known["died"] == 1, known["t"], strict=True)), dtype=[("died", bool), ("t", float)])
    expected, _ = compare.compare_survival(outcome, known["stage"].to_numpy())
    found = LogRank("stage", stratify_by_site=False, times="exact").fit(federate(references={"stage": "II"}))
    assert found.statistic_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", [KaplanMeier, AalenJohansen])
def test_curves_have_the_reference_as_a_group(kind, tmp_path):
    model = kind("stage", times=[5.0, 10.0, 20.0]).fit(federate(references={"stage": "I"}))
    counts = POOLED["stage"].value_counts()
    assert model.n_patients_ == {level: counts[level] for level in ("I", "II", "III")}
    model.save(tmp_path)
    again = kind.load(tmp_path)
    assert again.n_patients_ == model.n_patients_
    data = SurvivalData.from_frame(POOLED, time="t", event="died", categories=LEVELS, references={"stage": "I"})
    assert again.assess(data)["distance"] == pytest.approx(0.0, abs=1e-9)


def test_two_levels_without_columns_are_no_groups():
    policy = mc.Policy(columns=["stage=II"])
    with pytest.raises(ConfigurationError, match="at most one level may have no column; got 2: stage=I, stage=III"):
        LogRank("stage").fit(federate(policy))


def test_a_reference_is_everyone_whose_level_is_known_and_another():
    X = np.array([[1.0, 0.0], [0.0, 0.0], [np.nan, np.nan], [0.0, 1.0]])
    columns, levels = ("stage=II", "stage=III"), ("stage=I", "stage=II", "stage=III")
    groups = find_groups("stage", None, columns, levels)
    members = find_members(X, columns, groups.columns, np.array(groups.levels), levels)
    assert members.tolist() == [1, 0, -1, 2]
    with pytest.raises(ConfigurationError, match="must be a column or category"):
        find_members(X, columns, groups.columns, np.array(groups.levels))
