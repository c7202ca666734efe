"""From files on disk to a run folder, and what is left when a run breaks off."""

import csv
import json
from dataclasses import replace
from functools import wraps

import numpy as np
import pytest

from multicentre.cli.summary import describe_run
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    IntegrityError,
    LeftOutWarning,
    QuorumLost,
    RefusedByPolicy,
)
from multicentre.estimator.registry import METHODS
from multicentre.privacy.ledger import read_ledger, verify_ledger
from multicentre.reports import write_report
from multicentre.studies import RunFolder, read_study, resume_run, run_study
from multicentre.studies.site_data import read_sites
from support import events_toy, studies_toy
from support.studies_toy import STUDY, TOY, Interrupts, write_study


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)
    monkeypatch.setitem(METHODS, "toy-events", events_toy.TOY)


def with_privacy(text):
    return f"{STUDY}\n[privacy]\n{text}\n"


UNMASKED = with_privacy("secure_sum = false")


def model_of(folder):
    with np.load(folder.path / "model" / "model.npz", allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def runs(tmp_path):
    return sorted((tmp_path / "runs").iterdir()) if (tmp_path / "runs").exists() else []


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_run_leaves_a_whole_folder(tmp_path, secure):
    text = STUDY if secure else UNMASKED
    folder = run_study(read_study(write_study(tmp_path, text)))
    assert runs(tmp_path) == [folder.path]
    assert {path.name for path in folder.path.iterdir()} >= {
        "study.toml", "run.json", "environment.json", "model", "history.csv", "comparison.json", "disclosure.json",
        "figures.json", "sites",
    }  # fmt: skip
    assert not (folder.path / "checkpoints").exists()
    facts = folder.metadata
    assert (facts["status"], facts["rounds"], facts["seed"]) == ("finished", 6, 5)
    assert facts["protection"] == ("masked" if secure else "unmasked")
    assert facts["bytes_from_sites"] > 0 < facts["bytes_to_sites"]
    assert facts["calls_per_site"] == 6 + 2 * secure
    # 12 patients of lyon lack view b: enough to be told; porto lacks the view altogether.
    assert facts["sites"][0] == {"name": "lyon", "patients": 40, "records": 40, "parts": {"a": 40, "b": 28}}
    assert facts["sites"][2]["parts"] == {"a": 35}
    assert [entry["name"] for entry in facts["headline"]] == ["error", "error, a", "error, b"]
    with (folder.path / "history.csv").open() as file:
        assert [float(row["round"]) for row in csv.DictReader(file)] == [1, 2, 3, 4, 5, 6]
    metrics = folder.read("comparison.json")["metrics"]
    assert metrics[0]["federated"] == pytest.approx(metrics[0]["pooled"], rel=1e-6)
    assert folder.read("figures.json")[0]["rows"] == [["case"], ["control"]]


def test_ledgers_agree_with_the_disclosure_summary(tmp_path):
    folder = run_study(read_study(write_study(tmp_path, UNMASKED)))
    disclosure = folder.read("disclosure.json")
    for site, path in folder.ledgers().items():
        head = verify_ledger(path)
        assert disclosure["ledgers"][site] == {"entries": head.entries, "hash": head.hash}
        entries = list(read_ledger(path))
        rows = [row for row in disclosure["released"] if row["site"] == site]
        assert sum(row["bytes"] for row in rows) == sum(f["bytes"] for entry in entries for f in entry["fields"])
        assert {row["times"] for row in rows} == {6}
    # The comparison's own fits are not among them.
    assert all(head["entries"] == 6 for head in disclosure["ledgers"].values())
    assert disclosure["card"]["method"] == "toy"


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("stop", [Interrupts(3), Interrupts(2, "compare: pooled")], ids=["fit", "comparison"])
def test_interrupted_run_resumes_to_the_same_model(tmp_path, secure, stop):
    text = STUDY if secure else UNMASKED
    whole = run_study(read_study(write_study(tmp_path / "whole", text)))
    study = read_study(write_study(tmp_path / "broken", text))
    with pytest.raises(KeyboardInterrupt) as caught:
        run_study(study, listener=stop)
    (path,) = runs(tmp_path / "broken")
    assert any(f"--resume {path}" in note for note in caught.value.__notes__)
    before = RunFolder.open(path).metadata
    assert before["status"] == "interrupted"
    # Round 3 was answered; whether the coordinator kept it is no matter for the result.
    listener = Interrupts(-1)
    resumed = resume_run(path, listener=listener)
    assert resumed.metadata["status"] == "finished"
    assert resumed.metadata["calls_per_site"] > before["calls_per_site"] or stop.fit != "fit"
    assert listener.heard[0] == ("fit", 6 if stop.fit != "fit" else 3)
    left, right = model_of(whole), model_of(resumed)
    assert left.keys() == right.keys()
    assert all(np.array_equal(left[name], right[name]) for name in left)
    assert json.loads((whole.path / "model" / "model.json").read_text()) == json.loads(
        (resumed.path / "model" / "model.json").read_text()
    )
    assert whole.read("comparison.json") == resumed.read("comparison.json")
    for ledger in resumed.ledgers().values():
        verify_ledger(ledger)


def test_killed_run_resumes(tmp_path):
    """A kill leaves the status at "running" and may tear the last line of a ledger."""
    with pytest.raises(KeyboardInterrupt):
        run_study(read_study(write_study(tmp_path, UNMASKED)), listener=Interrupts(3))
    (path,) = runs(tmp_path)
    folder = RunFolder.open(path)
    folder.update(status="running", calls_per_site=0)
    with folder.ledgers()["lyon"].open("ab") as file:
        file.write(b'{"entry":')
    assert resume_run(path).metadata["status"] == "finished"
    assert verify_ledger(folder.ledgers()["lyon"]).entries == 7


def test_resume_refuses_other_data_and_finished_runs(tmp_path):
    study = read_study(write_study(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        run_study(study, listener=Interrupts(3))
    (path,) = runs(tmp_path)
    file = tmp_path / "site-1" / "a.csv"
    text = file.read_text()
    file.write_text(text.replace("case", "control"))  # labels are no data
    finished = resume_run(path)
    with pytest.raises(ConfigurationError, match="finished"):
        resume_run(finished.path)
    finished.update(status="interrupted")
    header, first, *others = text.splitlines()
    file.write_text("\n".join([header, first.replace(",", ",1", 1), *others]) + "\n")
    with pytest.raises(IntegrityError, match="data must be unchanged since the start") as caught:
        resume_run(path)
    assert caught.value.where == "oslo"


def test_a_run_that_another_process_holds_is_left_alone(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_study(read_study(write_study(tmp_path)), listener=Interrupts(3))
    (path,) = runs(tmp_path)
    folder = RunFolder.open(path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with folder.held(), pytest.raises(ConfigurationError, match="another process"):
        resume_run(path)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    assert resume_run(path).metadata["status"] == "finished"


def test_changed_ledger_stops_a_resume_and_is_kept(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_study(read_study(write_study(tmp_path)), listener=Interrupts(3))
    (path,) = runs(tmp_path)
    ledger = path / "sites" / "lyon" / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"patients":40', '"patients":41', 1))
    before = ledger.read_text()
    with pytest.raises(IntegrityError):
        resume_run(path)
    assert ledger.read_text() == before


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("method = ", "metod = ", ConfigurationError),
        ("n_rounds", "n_roundz", ConfigurationError),
        ("site-1/b.csv", "site-1/c.csv", DataError),
        ("[sites.oslo]", '[sites."../oslo"]', ConfigurationError),
    ],
    ids=["key", "parameter", "file", "name"],
)
def test_bad_study_or_data_leaves_nothing(tmp_path, old, new, kind):
    path = write_study(tmp_path, STUDY.replace(old, new))
    with pytest.raises(kind):
        run_study(read_study(path))
    assert runs(tmp_path) == []
    assert {one.name for one in tmp_path.iterdir()} <= {"study.toml", "site-0", "site-1", "site-2", "runs"}


def test_patient_values_stay_out_of_messages(tmp_path):
    path = write_study(tmp_path)
    file = tmp_path / "site-0" / "a.csv"
    lines = file.read_text().splitlines()
    lines[5] = "0004,secret-77,1.0,case"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="'x'") as caught:
        run_study(read_study(path))
    assert "secret-77" not in str(caught.value)
    assert "lyon" in caught.value.where


def test_guard_refusal_keeps_the_ledger(tmp_path):
    text = with_privacy(
        "secure_sum = false\n[privacy.policy]\nmin_patients = 20\n[privacy.sites.oslo]\nmin_patients = 31"
    )
    with pytest.raises(DisclosureRefused) as caught:
        run_study(read_study(write_study(tmp_path, text)))
    assert caught.value.exit_code == 5
    (path,) = runs(tmp_path)
    folder = RunFolder.open(path)
    facts = folder.metadata
    assert facts["status"] == "failed"
    assert "oslo" in facts["message"]
    # 28 of lyon's 40 have view b, so the 12 others would show; oslo's 30 are below its own minimum.
    assert facts["sites"][0]["parts"] == {"a": 40, "b": None}
    assert facts["sites"][1]["patients"] is None
    entries = list(read_ledger(folder.ledgers()["oslo"]))
    assert [entry["event"] for entry in entries] == ["refusal"]
    assert folder.read("disclosure.json")["refused"][0]["site"] == "oslo"


def test_policy_refusal(tmp_path):
    text = with_privacy('[privacy.sites.lyon]\nmethods = ["fed-vae"]')
    with pytest.raises(RefusedByPolicy):
        run_study(read_study(write_study(tmp_path, text)))
    assert RunFolder.open(runs(tmp_path)[0]).metadata["status"] == "failed"


def test_error_before_anything_left_removes_the_folder(tmp_path):
    text = STUDY.replace("n_rounds = 6", 'n_rounds = 6\nviews = ["nobody"]')
    with pytest.raises(DataError, match="nobody"):
        run_study(read_study(write_study(tmp_path, text)))
    # zeros about a view that nobody has did leave the sites, and that is on record
    assert RunFolder.open(runs(tmp_path)[0]).metadata["status"] == "failed"
    text = STUDY.replace("n_rounds = 6", 'n_rounds = "six"')
    with pytest.raises(TypeError):
        run_study(read_study(write_study(tmp_path / "second", text)))
    assert runs(tmp_path / "second") == []


@pytest.mark.slow
def test_broken_step_can_be_resumed_and_its_text_stays_at_the_site(tmp_path, monkeypatch):
    study = read_study(write_study(tmp_path))
    whole = run_study(study)
    with monkeypatch.context() as patch:
        patch.setattr(studies_toy.np, "nansum", _fails_after(4, studies_toy.np.nansum))
        with pytest.raises(QuorumLost, match=r"failed \(") as caught:
            run_study(study)
    assert caught.value.exit_code == 6
    (path,) = (one for one in runs(tmp_path) if one != whole.path)
    folder = RunFolder.open(path)
    assert folder.metadata["status"] == "interrupted"
    assert "secret-77" not in folder.metadata["message"]
    assert "secret-77" in (path / "sites" / "problems.log").read_text()
    resumed = resume_run(path)
    assert all(np.array_equal(model_of(whole)[name], array) for name, array in model_of(resumed).items())


def _fails_after(times, function):
    calls = iter(range(10**6))

    def wrapped(*args, **kwargs):
        if next(calls) >= times:
            raise ZeroDivisionError("secret-77")
        return function(*args, **kwargs)

    return wrapped


def test_data_in_memory_are_run_and_resumed(tmp_path):
    study = read_study(write_study(tmp_path))
    sites = read_sites(study)
    study = study.model_copy(update={"sites": {name: {} for name in sites}})
    with pytest.raises(KeyboardInterrupt) as caught:
        run_study(study, sites=sites, listener=Interrupts(2))
    assert any("in memory" in note for note in caught.value.__notes__)
    (path,) = runs(tmp_path)
    with pytest.raises(DataError, match="must name a file"):
        resume_run(path)
    assert resume_run(path, sites=sites).metadata["status"] == "finished"


@pytest.mark.filterwarnings("ignore:.*no longer take part:multicentre.errors.LeftOutWarning")
def test_lost_site_is_named_when_the_quorum_allows(tmp_path, monkeypatch):
    text = with_privacy("policy = {min_sites_in_sum = 2}") + "[run]\nquorum = 2\ncompare = false\n"
    study = read_study(write_study(tmp_path, text))
    original = studies_toy.ViewMeansSite.residuals.run

    @wraps(original)
    def run(part, request):
        if part.site == "porto" and part.state is not None:
            raise ZeroDivisionError
        return original(part, request)

    monkeypatch.setattr(studies_toy.ViewMeansSite, "residuals", replace(studies_toy.ViewMeansSite.residuals, run=run))
    listener = Interrupts(-1)
    folder = run_study(study, listener=listener)
    assert folder.metadata["lost"] == ["porto"]
    assert folder.metadata["losses"]["porto"].startswith(
        "fit: porto: the step residuals of toy failed (ZeroDivisionError)"
    )
    assert folder.metadata["headline"] == []
    assert not (folder.path / "comparison.json").exists()
    assert any(site == "porto" and "fit: " in str(reason) for site, reason in listener.heard)


SMALL = '[run]\nrefusing_sites = "leave_out"\n[privacy.sites.porto]\nmin_patients = 36\n'
FEW = "the site has fewer patients than its policy's minimum of 36"


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_a_small_site_is_left_out_and_every_output_says_so(tmp_path, secure):
    text = f"{STUDY}\n[privacy]\nsecure_sum = {str(secure).lower()}\n{SMALL}"
    with pytest.warns(LeftOutWarning, match=rf"without 1 of 3 sites, which refuse \(porto: {FEW}\)"):
        folder = run_study(read_study(write_study(tmp_path, text)))
    assert folder.metadata["left_out"] == {"porto": FEW}
    assert (folder.metadata["status"], folder.metadata["lost"], folder.metadata["losses"]) == ("finished", [], {})
    assert "porto" not in folder.read("comparison.json")["metrics"][0]["site_alone"]
    assert json.loads((folder.path / "model" / "model.json").read_text())["left_out"] == {"porto": FEW}
    page = write_report(folder.path).read_text(encoding="utf-8")
    assert "Without 1 of 3 sites, which refuse." in page
    assert "toy · 2 of 3 sites" in page
    assert f"Fitted without 1 of 3 sites, which refused (porto: {FEW})" in describe_run(folder)
    two = STUDY.partition("[sites.porto]")[0] + f"\n[privacy]\nsecure_sum = {str(secure).lower()}\n"
    without = run_study(read_study(write_study(tmp_path / "two", two)))
    assert {name: values.tobytes() for name, values in model_of(folder).items()} == {
        name: values.tobytes() for name, values in model_of(without).items()
    }


@pytest.mark.slow
def test_a_run_without_a_small_site_resumes_to_the_same_model(tmp_path):
    text = f"{STUDY}\n{SMALL}"
    with pytest.warns(LeftOutWarning):
        whole = run_study(read_study(write_study(tmp_path / "whole", text)))
    study = read_study(write_study(tmp_path / "broken", text))
    with pytest.warns(LeftOutWarning), pytest.raises(KeyboardInterrupt):
        run_study(study, listener=Interrupts(3))
    (path,) = runs(tmp_path / "broken")
    assert RunFolder.open(path).metadata["left_out"] == {"porto": f"fit: {FEW}"}
    with pytest.warns(LeftOutWarning):
        folder = resume_run(path)
    assert folder.metadata["left_out"] == {"porto": FEW}
    assert {name: values.tobytes() for name, values in model_of(folder).items()} == {
        name: values.tobytes() for name, values in model_of(whole).items()
    }
    events = [entry["event"] for entry in read_ledger(folder.ledgers()["porto"])]
    assert events.count("refusal") == 1


def test_study_of_events_leaves_a_whole_folder_and_a_report(tmp_path):
    text = events_toy.STUDY + "\n[privacy.policy]\nmin_patients = 31\n\n[privacy.sites.oslo]\nmin_patients = 5\n"
    folder = run_study(read_study(events_toy.write_study(tmp_path, text)))
    assert folder.metadata["status"] == "finished"
    assert folder.metadata["sites"] == [
        {"name": name, "patients": n, "records": n, "parts": {"procedure": n, "diagnosis": n}}
        for name, n in (("lyon", 40), ("oslo", 30), ("porto", 35))
    ]
    metrics = folder.read("comparison.json")
    assert metrics["patients_held_out"] == 25
    assert metrics["metrics"][0]["federated"] == pytest.approx(metrics["metrics"][0]["pooled"])
    assert metrics["metrics"][0]["site_alone"].keys() == {"lyon", "oslo", "porto"}
    page = write_report(folder.path).read_text(encoding="utf-8")
    assert "with procedure" in page
    assert "data.events.modes.diagnosis" in page


def test_study_of_events_knows_its_data_and_its_policies(tmp_path):
    text = events_toy.STUDY + '\n[privacy.sites.oslo]\ncolumns = ["diagnosis", "icd9cm-proc:3891"]\n'
    path = events_toy.write_study(tmp_path, text)
    finished = run_study(read_study(path))
    finished.update(status="interrupted")
    assert resume_run(finished.path).metadata["status"] == "finished"
    finished.update(status="interrupted")
    file = tmp_path / "site-1" / "outcomes.csv"
    file.write_text(file.read_text().replace(",1\n", ",0\n", 1))
    with pytest.raises(IntegrityError) as caught:
        resume_run(finished.path)
    assert caught.value.where == "oslo"


def test_policy_that_leaves_a_mode_without_codes_is_told(tmp_path):
    text = events_toy.STUDY + '\n[privacy.sites.oslo]\ncolumns = ["diagnosis"]\n'
    with pytest.raises(ConfigurationError, match="'procedure': at least one code per mode must remain") as caught:
        run_study(read_study(events_toy.write_study(tmp_path, text)))
    assert caught.value.where == "oslo, policy, columns"
