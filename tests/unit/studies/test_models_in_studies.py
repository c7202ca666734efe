"""Studies with fitted models as parameters: paths in the file, digests in the terms, refusals of changed models."""

import dataclasses
import hashlib
import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import multicentre as mc
from multicentre.cli import app
from multicentre.datasets import simulate_survival
from multicentre.errors import ConfigurationError, IntegrityError
from multicentre.estimator.base import FederatedEstimator
from multicentre.studies import read_study, resume_run, run_study, runner
from multicentre.studies.disclosure_cards import study_card
from multicentre.studies.run_folder import RunFolder
from multicentre.studies.saved_models import ModelParameter
from multicentre.studies.site_data import read_sites
from multicentre.studies.study import make_estimator
from multicentre.studies.terms import digest_of, study_terms
from multicentre.survival.evaluation.site import EvaluationSite
from multicentre.survival.fitted_models.base import pack
from multicentre_sites.deployment.analyst_link import Order
from multicentre_sites.deployment.analyst_run import read_order
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.study_permissions import permissions_of
from support.survival_toy import STUDY, write_study

TERMS = "\n[run]\ncompare = false\n\n[parameters]\n"
EVALUATION = STUDY.replace("toy-survival", "survival-evaluation") + TERMS + 'model = "models/cox"\nat = [12, 36]\n'
STACK = STUDY.replace("toy-survival", "fed-stack") + TERMS + 'estimators = ["models/cox", "models/boosting"]\n'


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a folder with two models of other patients, in the columns of the study."""
    folder = tmp_path_factory.mktemp("fits")
    # Another number of patients makes other patients of the same seeds.
    study = read_study(write_study(folder, STUDY.replace("toy-survival", "fed-cox"), n=120))
    federation = mc.Federation.in_process({name: site.data for name, site in read_sites(study).items()})
    mc.survival.FedCox().fit(federation).save(folder / "models" / "cox")
    mc.survival.FedHazardBoost(n_estimators=3, random_state=0).fit(federation).save(folder / "models" / "boosting")
    return folder / "models"


@pytest.fixture
def folder(tmp_path, models):
    shutil.copytree(models, tmp_path / "models")
    return tmp_path


def model_digest(path):
    """Return the SHA-256 of a saved survival model as sites receive it."""
    packed = pack(FederatedEstimator.load(path).model_)
    return hashlib.sha256(b"SurvivalModel\0" + packed).hexdigest()


def change(path):
    """Replace the model in a folder by another fit of the same method."""
    model = mc.survival.FedCox.load(path)
    model.model_ = dataclasses.replace(model.model_, coefficients=model.model_.coefficients + 0.5)
    model.save(path)


def interrupted(monkeypatch, study):
    """Interrupt a run of the study before its results are written, and return its folder."""

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner, "finish_analysis", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_study(study)
    (path,) = study.about.output.iterdir()
    return path


def test_an_evaluation_of_a_saved_model_is_that_of_the_estimator_in_python(folder):
    study = read_study(write_study(folder, EVALUATION))
    run = run_study(study)
    cox = mc.survival.FedCox.load(folder / "models" / "cox")
    sites = {name: site.data for name, site in read_sites(study).items()}
    expected = mc.survival.SurvivalEvaluation(cox, at=[12, 36]).fit(mc.Federation.in_process(sites))
    actual = mc.survival.SurvivalEvaluation.load(run.path / "model")
    assert actual.concordance_ == expected.concordance_
    assert actual.ibs_ == expected.ibs_
    assert run.metadata["status"] == "finished"


def test_a_stack_of_saved_models_is_that_of_the_estimator_in_python(folder):
    study = read_study(write_study(folder, STACK))
    run = run_study(study)
    fits = [mc.survival.FedCox.load(folder / "models/cox"), mc.survival.FedHazardBoost.load(folder / "models/boosting")]
    sites = {name: site.data for name, site in read_sites(study).items()}
    expected = mc.survival.FedStack(fits).fit(mc.Federation.in_process(sites))
    np.testing.assert_array_equal(mc.survival.FedStack.load(run.path / "model").weights_, expected.weights_)


@pytest.mark.slow
@pytest.mark.parametrize("text", [EVALUATION, STACK], ids=["evaluation", "stack"])
def test_the_comparison_keeps_the_models_fitted(folder, text):
    run = run_study(read_study(write_study(folder, text.replace("compare = false", "compare = true"))))
    comparison = json.loads((run.path / "comparison.json").read_text())
    metrics = {row["name"]: row for row in comparison["metrics"]}
    assert 0.5 < metrics["concordance"]["federated"] < 1
    assert metrics["concordance"]["federated"] == pytest.approx(metrics["concordance"]["pooled"], abs=0.01)


def test_the_terms_hold_the_digest_and_no_path(folder):
    study = read_study(write_study(folder, EVALUATION))
    stated = model_digest(folder / "models" / "cox")
    assert study_terms(study)["parameters"] == {"model": {"sha256": stated}, "at": [12, 36]}
    shutil.move(folder / "models", folder / "elsewhere")
    moved = read_study(write_study(folder, EVALUATION.replace("models/", "elsewhere/")))
    assert digest_of(moved) == digest_of(study)
    change(folder / "elsewhere" / "cox")
    changed = read_study(folder / "study.toml")
    assert digest_of(changed) != digest_of(study)
    assert study_terms(read_study(write_study(folder, STACK.replace("models/", "elsewhere/"))))["parameters"] == {
        "estimators": [{"sha256": model_digest(folder / "elsewhere" / name)} for name in ("cox", "boosting")]
    }


def test_every_ledger_and_the_card_record_the_digest(folder):
    study = read_study(write_study(folder, EVALUATION))
    run = run_study(study)
    digest = study_terms(study)["parameters"]["model"]["sha256"]
    for ledger in run.ledgers().values():
        assert digest_of(study) in ledger.read_text()
    assert digest in " ".join(run.read("disclosure.json")["card"]["warnings"])
    shown = CliRunner().invoke(app, ["card", str(folder / "study.toml")])
    assert digest in shown.output.replace("\n", "").replace(" ", "")


def test_a_study_with_models_survives_its_writing(folder):
    study = read_study(write_study(folder, STACK))
    (folder / "frozen").mkdir()
    (folder / "frozen" / "study.toml").write_text(study.to_toml(), encoding="utf-8")
    frozen = read_study(folder / "frozen" / "study.toml")
    assert frozen == study
    assert digest_of(frozen) == digest_of(study)


def test_a_model_that_changes_after_the_terms_were_read_is_refused(folder):
    study = read_study(write_study(folder, EVALUATION))
    agreed = digest_of(study)
    change(folder / "models" / "cox")
    with pytest.raises(IntegrityError, match=r"the model must have SHA-256 [0-9a-f]{64}, as in") as caught:
        run_study(study)
    assert caught.value.where == f"parameters.model, {folder / 'models' / 'cox'}"
    assert not (folder / "runs").exists()
    assert digest_of(study) == agreed


def test_a_run_resumes_with_its_model_only(folder, monkeypatch):
    path = interrupted(monkeypatch, read_study(write_study(folder, EVALUATION)))
    shutil.copytree(folder / "models", folder / "copy")
    change(folder / "models" / "cox")
    with pytest.raises(IntegrityError, match=r"original study; parameters\.model\.sha256 was "):
        resume_run(path)
    shutil.rmtree(folder / "models")
    with pytest.raises(ConfigurationError, match="must be a readable file or folder"):
        resume_run(path)
    shutil.move(folder / "copy", folder / "models")
    assert resume_run(path).metadata["status"] == "finished"
    assert RunFolder.open(path).metadata["status"] == "finished"


def test_a_damaged_or_missing_model_is_named(folder):
    study = read_study(write_study(folder, EVALUATION))
    arrays = folder / "models" / "cox" / "model.npz"
    arrays.write_bytes(arrays.read_bytes()[:-1])
    with pytest.raises(IntegrityError, match="must match the digest") as caught:
        digest_of(study)
    assert caught.value.where.startswith("parameters.model, ")
    shutil.rmtree(folder / "models")
    with pytest.raises(ConfigurationError) as caught:
        make_estimator(study)
    assert caught.value.where.startswith(f"parameters.model, {folder / 'models' / 'cox'}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (EVALUATION.replace('"models/cox"', "3"), "a table of coefficients; got '3'"),
        (EVALUATION.replace('"models/cox"', '""'), "a table of coefficients; got ''"),
        (
            EVALUATION.replace('"models/cox"', '["models/cox"]'),
            "a table of coefficients; got \"['models/cox']\"",
        ),
        (
            STACK.replace('["models/cox", "models/boosting"]', '"models/cox"'),
            "a list of paths of models; got 'models/cox'",
        ),
        (EVALUATION.replace('"models/cox"', '{file = "models/cox", sha256 = "x"}'), "a table of coefficients; got"),
    ],
)
def test_values_other_than_paths_are_refused(tmp_path, text, expected):
    with pytest.raises(ConfigurationError) as caught:
        read_study(write_study(tmp_path, text))
    assert expected in caught.value.what
    assert "parameters." in caught.value.where


def test_a_saved_model_of_another_kind_is_refused_by_the_method(folder):
    sites = {name: simulate_survival(100, 3, seed) for seed, name in enumerate("ab")}
    curves = mc.survival.KaplanMeier().fit(mc.Federation.in_process(sites))
    shutil.rmtree(folder / "models" / "cox")
    curves.save(folder / "models" / "cox")
    for text in (EVALUATION, STACK):
        with pytest.raises(ConfigurationError, match="survival"):
            run_study(read_study(write_study(folder, text)))


def test_real_sites_refuse_models_that_the_study_does_not_fix(folder):
    """Sites and the coordinator's service read no path: a study and an order come from another person."""
    path = write_study(folder, EVALUATION)
    study = read_study(path)
    digest = model_digest(folder / "models" / "cox")
    with pytest.raises(ConfigurationError, match="must state the SHA-256 of its model") as caught:
        run_study(study, connect=lambda: None)
    assert digest in caught.value.hint
    shutil.rmtree(folder / "models")
    with pytest.raises(ConfigurationError, match="must state the SHA-256 of its model") as caught:
        recognise(str(path))
    assert "parameters.model" in caught.value.where
    with pytest.raises(ConfigurationError, match="an order must hold its models"):
        read_order(Order(None, "a" * 32, study.to_toml()), folder)
    with pytest.raises(ConfigurationError, match="a study over real sites must send one model"):
        recognise(str(write_study(folder, STACK)))


def test_a_site_approves_the_digest_without_the_file(folder):
    """The stated digest stands in for the model wherever a site reads the study, and is that of the terms."""
    digest = model_digest(folder / "models" / "cox")
    stated = EVALUATION.replace('"models/cox"', f'{{file = "models/cox", sha256 = "{digest}"}}')
    here = read_study(write_study(folder, stated))
    shutil.rmtree(folder / "models")
    at_site = recognise(str(folder / "study.toml")).study()
    assert digest_of(at_site) == digest_of(here)
    permissions = permissions_of(at_site)
    assert permissions.models == {EvaluationSite: frozenset({digest})}
    assert digest in str(study_card(at_site))


def test_the_digest_is_that_of_the_first_access(folder):
    model = ModelParameter("model", folder / "models" / "cox")
    assert isinstance(model.load(), mc.survival.FedCox)
    change(folder / "models" / "cox")
    with pytest.raises(IntegrityError, match="must have SHA-256"):
        model.load()
