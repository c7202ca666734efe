"""Estimates by site that a study names: part of the terms, on the card, in the run folder, over real sites too."""

import json

import pandas as pd
import pytest

import multicentre as mc
from multicentre.core.calls import Call
from multicentre.core.steps import Nothing
from multicentre.errors import ConfigurationError
from multicentre.regression.site import RegressionSite
from multicentre.studies.by_site import check_by_site, estimates_by_site
from multicentre.studies.disclosure_cards import study_card
from multicentre.studies.runner import run_study
from multicentre.studies.site_data import read_sites
from multicentre.studies.study_file import read_study
from multicentre.studies.terms import digest_of
from multicentre_sites.deployment.study_permissions import permissions_of
from support.likelihood_cases import CASES, federate, table_of
from support.remote_sites import ByHand, RequestHandlers
from support.several_analyses import write_several

BLOCKS = """
[[analysis]]
name = "cox"
method = "fed-cox"
by_site = ["arm"]

[[analysis]]
name = "relapse"
method = "fed-logistic-regression"
by_site = ["arm", "age"]
"""


@pytest.fixture
def study(tmp_path):
    return read_study(write_several(tmp_path, BLOCKS))


def by_site_of(folder, name):
    return pd.read_csv(folder.path / "analyses" / name / "results" / "by-site.csv")


@pytest.mark.slow
def test_a_simulated_run_draws_the_sites_with_their_meta_analysis(study, tmp_path):
    folder = run_study(study.with_output(tmp_path / "runs"))
    assert by_site_of(folder, "cox")["column"].unique().tolist() == ["arm"]
    assert by_site_of(folder, "relapse")["column"].unique().tolist() == ["age", "arm"]
    figures = json.loads((folder.path / "analyses" / "cox" / "figures.json").read_text())
    (forest,) = [figure for figure in figures if figure["title"] == "Hazard ratio of arm, site by site"]
    pooled = ["all sites, one fit", "fixed effect", "random effects", "new site"]
    assert forest["rows"] == ["lyon", "oslo", "porto", *pooled]
    assert "I squared" in forest["caption"]
    assert folder.metadata["analyses"][0]["tables"][-1] == "by-site"


@pytest.mark.filterwarnings("ignore:the fit has no predictions")  # porto has too few events for a baseline
def test_all_coefficients_leave_a_site_with_its_sums_and_the_card_says_so(study, tmp_path):
    """The coordinator's process computes them all; the results hold those that the study names."""
    (note,) = [note for note in study_card(study).warnings if note.startswith("by_site: ") and "of arm and" in note]
    assert "can compute all coefficients at this site" in note
    data = {site: each.of_type(mc.data.SurvivalData).data for site, each in read_sites(study).items()}
    alone = mc.survival.FedCox().fit(mc.Federation.in_process(data)).fit_each_site()["lyon"]
    assert {"arm", "age"} <= set(alone.to_frame().index)


def test_the_variables_are_terms_and_on_the_card(study, tmp_path):
    without = read_study(write_several(tmp_path, BLOCKS.replace('by_site = ["arm"]', "")))
    assert digest_of(study) != digest_of(without)


def test_a_site_permits_unmasked_sums_of_the_analysis_that_names_variables(study, tmp_path):
    """Only a fit to this site alone has no mask; without by_site, every sum of the study has one."""
    call = Call("x", "0.1", 0, RegressionSite.sum_derivatives, Nothing(), ("lyon",), None)
    assert permissions_of(study).objection(call) == ("", "")
    without = read_study(write_several(tmp_path, BLOCKS.replace('by_site = ["arm", "age"]', "")))
    assert permissions_of(without).objection(call)[0] == "study, secure_sum"


def test_a_method_without_coefficients_is_named(tmp_path):
    table = '[[analysis]]\nname = "t"\nmethod = "describe"\nby_site = ["arm"]\n'
    with pytest.raises(ConfigurationError, match="by_site must belong to an analysis with coefficients"):
        study_card(read_study(write_several(tmp_path, table)))


@pytest.mark.parametrize("name", ["multinomial", "ordinal"])
def test_coefficients_of_classes_are_drawn_for_each_class(name):
    case = CASES[name]
    check_by_site(type(case.make()))
    model = case.make().fit(federate(table_of(case.outcome), case.outcome))
    table, figures = estimates_by_site(model, ["age"])
    classes = ("mild", "severe") if name == "multinomial" else ("",)
    assert len(figures) == len(classes)
    assert len(table) == 3 * len(classes)
    assert all(label in figure.to_dict()["title"] for label, figure in zip(classes, figures, strict=True))


@pytest.mark.slow
def test_remote_sites_give_the_numbers_of_the_simulation(study, tmp_path):
    here = run_study(study.with_output(tmp_path / "here"))
    sites = read_sites(study)
    for name in ("cox", "relapse"):
        holds = {"cox": mc.data.SurvivalData, "relapse": mc.data.TableData}[name]
        data = {site: each.of_type(holds).data for site, each in sites.items()}
        handlers = RequestHandlers(data, tmp_path / f"remote-{name}")
        method = mc.survival.FedCox() if name == "cox" else mc.regression.FedLogisticRegression()
        with mc.Federation.over(ByHand(handlers.handles), study="several") as federation:
            remote = method.fit(federation).by_site().to_frame()
        expected = by_site_of(here, name).set_index(["site", "column"])["estimate"]
        found = remote.set_index(["site", "column"])["estimate"].loc[expected.index]
        pd.testing.assert_series_equal(found, expected, rtol=1e-5)
