"""Every model of effects has what similar models have, or says why not, on its page and in a study's error."""

import importlib.util
from pathlib import Path

import pytest

from multicentre.errors import ConfigurationError
from multicentre.studies import read_study
from multicentre.studies.study import make_estimator
from multicentre.survival import FedMixedCox
from support.likelihood_cases import CASES

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("capabilities", ROOT / "docs" / "capabilities.py")
capabilities = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(capabilities)


def test_every_likelihood_method_is_in_the_table():
    listed = {model.__name__ for model in capabilities.MODELS}
    assert {type(case.make()).__name__ for case in CASES.values()} <= listed


@pytest.mark.parametrize("model", capabilities.MODELS, ids=lambda model: model.__name__)
def test_a_model_lacks_what_it_says_and_nothing_else(model):
    lacking = {capability for capability in capabilities.CAPABILITIES if not capabilities.has(model, capability)}
    unknown = set(model.lacks) - set(capabilities.CAPABILITIES)
    assert lacking == set(model.lacks) - unknown
    assert not unknown


def test_the_page_has_the_table_of_the_classes():
    assert capabilities.PAGE.read_text(encoding="utf-8") == capabilities.page()


STUDY = """
[study]
name = "hips"
method = "fed-mixed-cox"
[parameters]
weights = "stage"
[data.survival]
time = "days"
event = "died"
columns = ["age", "stage"]
[sites.lyon]
file = "lyon.csv"
[sites.oslo]
file = "oslo.csv"
"""


def test_a_study_that_sets_what_a_method_lacks_is_told_the_reason(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="weights") as caught:
        make_estimator(read_study(path))
    assert caught.value.hint.endswith(f"weights: {FedMixedCox.lacks['weights']}.")
