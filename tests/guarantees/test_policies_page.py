"""The six policies of docs/policies.md: each permits its first study, and refuses the second one as printed."""

import re
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.datasets import simulate_survival
from multicentre_papers import baselines

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
SECTION = re.compile(
    r"^## (?P<title>[^\n]+)$[^#]*?^```toml$\n(?P<policy>.+?)^```$[^#]*?^```text$\n(?P<refusal>.+?)^```$", re.M | re.S
)
SECTIONS = {match["title"]: match for match in SECTION.finditer(PAGE)}


def survival(sizes=(200, 180, 160)):
    return {
        site: simulate_survival(n_patients, n_columns=3, random_state=seed)
        for seed, (site, n_patients) in enumerate(zip(("graz", "lyon", "oslo"), sizes, strict=False))
    }


def tables():
    random = np.random.default_rng(0)
    sites = {}
    for site in ("graz", "lyon", "oslo"):
        age = random.normal(60, 10, (400, 1))
        died = random.random(400) < 1 / (1 + np.exp(2 - 0.05 * (age[:, 0] - 60)))
        sites[site] = mc.data.TableData(age, died.astype(int), columns=["age"], classes=["alive", "dead"])
    return sites


def aligned():
    random = np.random.default_rng(0)
    names = [f"patient-{number}" for number in range(60)]
    views = {"laboratory": "blood", "radiology": "image", "genetics": "expression"}
    return {site: mc.data.MultiViewData({view: random.normal(size=(60, 5))}, ids=names) for site, view in views.items()}


def logistic(epsilon=None):
    bounds = {"age": (20, 100)} if epsilon else None
    return mc.regression.FedGLM("binomial", epsilon=epsilon, bounds=bounds)


STUDIES = {
    "A first policy": ((survival, mc.survival.FedCox), (lambda: survival((200, 180, 8)), mc.survival.FedCox)),
    "Only sums of three or more hospitals": ((survival, mc.survival.FedCox), (survival, baselines.FedSurF)),
    "Only these methods and columns": ((survival, mc.survival.FedCox), (survival, mc.survival.FedRSF)),
    "A privacy budget": ((tables, lambda: logistic(0.8)), (tables, logistic)),
    "No values of single patients": ((survival, mc.survival.FedCox), (aligned, lambda: mc.clustering.FedMSGL(2))),
    "A hospital with few patients": (
        (lambda: survival((200, 180, 8)), mc.survival.FedCox),
        (lambda: survival((200, 8)), mc.survival.FedCox),
    ),
}


def fit(section, study):
    make_sites, make_model = study
    policy = mc.Policy(**tomllib.loads(section["policy"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with mc.Federation.in_process(make_sites(), policy=policy, one_row_per_patient=True) as federation:
            return make_model().fit(federation)


def test_the_page_has_six_policies():
    assert list(SECTIONS) == list(STUDIES)


@pytest.mark.parametrize("title", STUDIES)
def test_a_policy_permits_what_its_section_says(title):
    assert fit(SECTIONS[title], STUDIES[title][0])


@pytest.mark.parametrize("title", STUDIES)
def test_a_policy_refuses_what_its_section_says_in_these_words(title):
    with pytest.raises((mc.errors.RefusedByPolicy, mc.errors.DisclosureRefused)) as refusal:
        fit(SECTIONS[title], STUDIES[title][1])
    assert " ".join(SECTIONS[title]["refusal"].split()) == str(refusal.value)
