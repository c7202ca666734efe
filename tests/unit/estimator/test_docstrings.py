"""Documentation that ``help()`` shows for estimators."""

import inspect

import multicentre as mc


def test_an_overriding_method_shows_the_sections_of_the_method_that_it_overrides():
    text = inspect.getdoc(mc.validation.RegressorValidation.assess)
    assert text.startswith("Return R squared on local records.")
    assert "training_labels : sequence of str, optional" in text
    assert text.count("Parameters\n") == 1


def test_a_method_with_sections_shows_its_own_sections_only():
    text = inspect.getdoc(mc.survival.SurvivalEvaluation.assess)
    assert text.count("Parameters\n") == 1
    assert "censoring distribution" in text
