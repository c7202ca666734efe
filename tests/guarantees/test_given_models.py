"""Attacks by a given model: it singles out a patient, or is exchanged for another one after the approval."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.calls import Call
from multicentre.core.wire import encode
from multicentre.errors import DisclosureRefused
from multicentre.studies.study_file import study_from_mapping
from multicentre.validation import ClassifierValidation, RegressorValidation, model_from_mapping
from multicentre.validation.external.site import GivenClassPart
from multicentre.validation.scoring.judging import Scored
from multicentre.validation.scoring.tables import table_model
from multicentre_sites.deployment.study_permissions import permissions_of

SITES = ("graz", "lyon", "oslo")
SCORE = {"family": "binomial", "intercept": -1.0, "coefficients": {"age": 0.5}}


def federation(outcome="class", *, secure_sum=True):
    """Three sites; only one patient of graz has the rare level."""
    rng = np.random.default_rng(0)
    sites = {}
    for site in SITES:
        X = np.column_stack([rng.normal(size=200), np.zeros(200)])
        X[0, 1] = float(site == "graz")
        y = rng.integers(0, 2, 200) if outcome == "class" else rng.normal(size=200)
        sites[site] = mc.data.TableData(X, y, columns=["age", "rare"], outcome=outcome)
    return mc.Federation.in_process(sites, secure_sum=secure_sum)


@pytest.mark.parametrize("secure_sum", [True, False])
@pytest.mark.parametrize("share", [0.0, 1e-3])
def test_a_model_that_differs_for_one_patient_is_refused_at_the_site_of_the_patient(secure_sum, share):
    """A small slope that all patients have does not hide the one who is far from the rest."""
    hostile = model_from_mapping({"family": "binomial", "coefficients": {"rare": 9.0, "age": share}})
    with pytest.raises(DisclosureRefused) as caught:
        ClassifierValidation(hostile).fit(federation(secure_sum=secure_sum))
    assert "graz" in str(caught.value.refusals or caught.value)


@pytest.mark.parametrize("secure_sum", [True, False])
def test_a_number_that_differs_for_one_patient_is_refused_at_the_site_of_the_patient(secure_sum):
    hostile = model_from_mapping({"family": "gaussian", "coefficients": {"rare": 9.0}})
    with pytest.raises(DisclosureRefused):
        RegressorValidation(hostile).fit(federation("number", secure_sum=secure_sum))


def test_no_bin_and_no_threshold_stands_for_fewer_records_than_the_minimum():
    """A model whose predictions differ for all patients, with one of them alone beyond a threshold."""
    hostile = model_from_mapping({"family": "binomial", "coefficients": {"rare": 4.0, "age": 0.5}})
    validation = ClassifierValidation(hostile, thresholds=[0.9, 0.95]).fit(federation())
    counts = validation.evaluation_.collected.counts[0].sum(axis=0)
    assert counts.min() >= 10
    assert len(validation.evaluation_.thresholds) == 0  # nobody else is beyond them
    assert validation.evaluation_.calibration_curve()["n_records"].min() >= 10


def approved():
    return study_from_mapping(
        {
            "study": {"name": "score", "method": "validate"},
            "parameters": {"model": SCORE},
            "data": {"table": {"outcome": "dead", "columns": ["age"]}},
            "sites": {site: {} for site in SITES},
        }
    )


def sent(content):
    model = table_model(model_from_mapping(content))
    judged = Scored(type(model).__name__, np.frombuffer(encode(model), dtype=np.uint8))
    return Call("score", "fit", 1, GivenClassPart.judge, judged, SITES)


def test_a_site_refuses_every_model_but_the_approved_one():
    permissions = permissions_of(approved())
    assert permissions.objection(sent(SCORE)) == ("", "")
    for changed in ({"intercept": -1.0000001}, {"coefficients": {"age": 0.5, "rare": 9.0}}, {"link": "probit"}):
        where, reason = permissions.objection(sent({**SCORE, **changed}))
        assert where == "study, model"
        assert "must be one of those that the study states" in reason
    other_kind = dataclasses.replace(sent(SCORE).request, kind="ScoredFormulaModel")
    assert permissions.objection(dataclasses.replace(sent(SCORE), request=other_kind))[0] == "study, model"
