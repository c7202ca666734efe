"""Commands: what they print, where, and with which exit status."""

import csv
import io
import json
import sys
import types
from importlib.metadata import distribution
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from multicentre import __version__, errors
from multicentre.cli import app
from multicentre.cli import progress as drawing
from multicentre.estimator.registry import METHODS
from multicentre.privacy.ledger import Ledger
from multicentre.studies import RunFolder, read_study
from multicentre_sites.deployment import site_connection
from support import studies_toy
from support.coordinators import make_consortium
from support.studies_toy import STUDY, TOY, Interrupts, write_study


@pytest.fixture(autouse=True)
def _toy(monkeypatch, tmp_path):
    monkeypatch.setitem(METHODS, "toy", TOY)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def call(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def told(*arguments):
    """Return what a command with --json prints, which must be all of standard output."""
    result = call(*arguments, "--json")
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def finished(tmp_path):
    status, printed = told("run", write_study(tmp_path, STUDY + "\n[privacy]\nsecure_sum = false\n"))
    assert status == 0
    return Path(printed["folder"])


def commands(group, path=()):
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


@pytest.mark.slow
def test_help_texts_are_not_cut_off():
    for path in commands(get_command(app)):
        lines = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).stdout.splitlines()
        assert all(len(line) <= 80 and "\N{HORIZONTAL ELLIPSIS}" not in line for line in lines), path
        shortened = [line for line in lines if line.endswith("...") and "Usage:" not in line]
        assert shortened == [], path


def test_version_help_and_usage():
    assert call("--version").stdout == f"{__version__}\n"
    assert call("--help").exit_code == 0
    assert call("nonsense").exit_code == 2
    assert call("run").exit_code == 2
    assert call("run", "study.toml", "--resume", "run").exit_code == 2
    assert call("run", "--resume", "run", "--output", "x").exit_code == 2


@pytest.mark.slow
def test_every_command_speaks_json():
    names = ["demo", "run", "card", "audit", "budget", "secret new", "secret check", "report", "doctor", "reproduce"]
    names += ["ledger show", "ledger verify", "ledger compare", "ledger repair", "ledger export"]
    names += ["datasets list", "datasets fetch", "datasets example", "docs"]
    for name in names:
        assert "--json" in call(*name.split(), "--help").stdout, name


@pytest.mark.slow
def test_run_prints_tables_and_where_the_report_is(tmp_path):
    result = call("run", write_study(tmp_path), "--output", tmp_path / "elsewhere")
    assert result.exit_code == 0, result.output
    (folder,) = (tmp_path / "elsewhere").iterdir()
    assert f"Report: {folder / 'report.html'}" in result.stdout
    assert (folder / "report.html").stat().st_size > 0
    assert "error, b" in result.stdout
    assert "porto: no site has the view b" in result.stdout
    assert "fit: rounds 1 to 6" in result.stderr
    assert "rounds 1 to" not in result.stdout


@pytest.mark.slow
def test_run_json(finished):
    assert RunFolder.open(finished).metadata["status"] == "finished"


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        (STUDY.replace("method =", "metod ="), 3, "MC301"),
        (STUDY.replace("site-0/a.csv", "site-0/c.csv"), 3, "MC302"),
        (STUDY + '[privacy]\npolicy = {methods = ["fed-vae"]}\n', 4, "MC401"),
        (STUDY + "[privacy]\npolicy = {min_patients = 31}\n", 5, "MC501"),
    ],
)
def test_errors_have_their_exit_status(tmp_path, text, status, code):
    found, printed = told("run", write_study(tmp_path, text))
    assert found == status
    assert printed["error"]["exit_code"] == status
    assert printed["error"]["code"] == code


SMALL = "[privacy]\nsecure_sum = false\nsites = {oslo = {min_patients = 36}, porto = {min_patients = 36}}\n"


def test_sites_that_refuse_are_all_in_the_json_and_named_once_in_the_message(tmp_path):
    few = "the site has fewer patients than its policy's minimum of 36"
    study = write_study(tmp_path, STUDY + SMALL)
    status, printed = told("run", study)
    assert (status, printed["error"]["refusals"]) == (5, {"oslo": few, "porto": few})
    assert printed["error"]["message"].startswith(f"refused by 2 of 3 sites (oslo, porto): {few}. ")
    assert "refusing_sites" in printed["error"]["hint"]


@pytest.mark.slow
@pytest.mark.filterwarnings("always::multicentre.errors.LeftOutWarning")
def test_a_run_without_sites_that_refuse_says_so(tmp_path):
    terms = '[run]\nrefusing_sites = "leave_out"\n'
    result = call("run", write_study(tmp_path, STUDY + SMALL + terms))
    assert result.exit_code == 0
    assert "Note: the result is without 2 of 3 sites, which refuse (oslo, porto: " in result.stderr
    assert "Fitted without 2 of 3 sites, which refused (oslo, porto: " in result.stdout


def test_card_of_a_study_promises_what_holds_at_every_site(tmp_path):
    path = write_study(tmp_path, STUDY + "[privacy.sites.oslo]\nmin_patients = 20\n")
    _, printed = told("card", path)
    assert printed["min_patients"] == 10


def test_policy_that_allows_no_column_names_the_site(tmp_path):
    status, printed = told("run", write_study(tmp_path, STUDY + '[privacy.sites.oslo]\ncolumns = ["zz"]\n'))
    assert status == 3
    assert printed["error"]["where"] == "oslo, policy, columns"
    assert not (tmp_path / "runs").exists()


def test_ledger_of_nothing(tmp_path):
    assert told("ledger", "show", tmp_path / "nowhere")[0] == 3


@pytest.mark.slow
def test_interrupt_tells_how_to_resume(tmp_path, monkeypatch):
    path = write_study(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(drawing, "Lines", lambda: Interrupts(3))
        result = call("run", path)
    assert result.exit_code == 130
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"multicentre run --resume {folder}" in result.stderr
    resumed = call("run", "--resume", folder)
    assert resumed.exit_code == 0
    assert "fit: rounds 4 to 6" in resumed.stderr


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_over_real_sites_is_taken_up_by_the_coordinator_that_it_began_at(tmp_path, monkeypatch, resumed):
    def interrupted(*_):
        raise KeyboardInterrupt

    make_consortium(tmp_path / "our-hub")
    monkeypatch.setattr(site_connection, "connect_sites", interrupted)
    result = call("run", write_study(tmp_path), "--coordinator", tmp_path / "our-hub")
    (folder,) = (tmp_path / "runs").iterdir()
    if resumed:
        result = call("run", "--resume", folder, "--coordinator", tmp_path / "our-hub")
    assert f"multicentre run --resume {folder} --coordinator {tmp_path / 'our-hub'}" in result.stderr


@pytest.mark.slow
def test_lost_sites_and_bugs(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("a patient's value")

    def disconnected(*_, **__):
        raise ConnectionResetError("a patient's value")

    path = write_study(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(studies_toy.np, "nansum", disconnected)
        status, printed = told("run", path)
    assert status == 6
    assert printed["error"]["notes"][-1].startswith("Resume it with")
    with monkeypatch.context() as patch:
        patch.setattr(studies_toy.np, "nansum", broken)
        status, printed = told("run", path)
    assert (status, printed["error"]["code"]) == (70, "MC603")
    monkeypatch.setattr(studies_toy.FedViewMeans, "figures", broken)
    result = call("run", path)
    assert result.exit_code == 70
    assert "a patient's value" not in result.output
    (trace,) = tmp_path.glob("multicentre-*.log")
    assert str(trace) in result.stderr
    assert "a patient's value" in trace.read_text()


@pytest.mark.slow
def test_ledger_commands(finished, tmp_path):
    status, heads = told("ledger", "verify", finished)
    assert status == 0
    assert heads.keys() == {"lyon", "oslo", "porto"}
    status, shown = told("ledger", "show", finished, "--site", "lyon")
    assert len(shown["lyon"]) == heads["lyon"]["entries"] == 6
    text = call("ledger", "show", finished / "sites" / "lyon" / "ledger.jsonl").stdout
    assert text.startswith("lyon: 6 entries")
    assert text.count("residuals") == 6
    rows = list(csv.DictReader(io.StringIO(call("ledger", "export", finished).stdout)))
    assert {row["site"] for row in rows} == heads.keys()
    file = tmp_path / "out.csv"
    assert told("ledger", "export", finished, "--output", file) == (0, {"entries": 18, "output": str(file)})
    assert list(csv.DictReader(io.StringIO(file.read_text()))) == rows
    assert told("ledger", "show", finished, "--site", "rome")[0] == 3


@pytest.mark.slow
def test_ledgers_of_a_run_are_compared(finished, tmp_path):
    status, found = told("ledger", "compare", finished)
    assert (status, found["sites"], found["differences"]) == (0, ["lyon", "oslo", "porto"], [])
    assert found["n_calls"] == 6


def test_a_ledger_of_a_site_folder_has_the_name_of_the_site(tmp_path):
    facts = {"study": "pilot", "session": "0.1", "call": 0, "method": "toy", "step": "agree", "fields": []}
    paths = [tmp_path / site / "ledgers" / "pilot.jsonl" for site in ("lyon", "oslo")]
    for path in paths:
        path.parent.mkdir(parents=True)
        Ledger(path).append("release", facts | {"request": "0a"})
    assert told("ledger", "verify", paths[0])[1].keys() == {"lyon"}
    assert told("ledger", "compare", *paths)[1]["sites"] == ["lyon", "oslo"]


def test_ledgers_that_differ_are_told_apart(tmp_path):
    facts = {"study": "pilot", "session": "0.1", "call": 0, "method": "toy", "step": "agree", "peers": ["lyon", "oslo"]}
    for site, request in (("lyon", "0a"), ("oslo", "0a"), ("rome", "0b")):
        Ledger(tmp_path / f"{site}.jsonl").append("release", facts | {"request": request, "fields": []})
    named = {site: f"{site}={tmp_path / site}.jsonl" for site in ("lyon", "oslo", "rome")}
    assert told("ledger", "compare", named["lyon"], named["oslo"])[0] == 0
    result = call("ledger", "compare", *named.values())
    assert result.exit_code == 8
    assert "lyon, oslo, rome: 1 calls in at least two ledgers, 1 differences" in result.stdout
    lines = result.stdout.splitlines()[-2:]
    assert [line.split() for line in lines] == [
        ["pilot", "0.1", "0", "toy.agree", "request", "lyon,", "oslo", "0a"],
        ["pilot", "0.1", "0", "toy.agree", "request", "rome", "0b"],
    ]
    assert "The sites received different requests." in result.stderr
    assert call("ledger", "compare", named["lyon"]).exit_code == 3
    result = CliRunner().invoke(app, ["ledger", "compare", *named.values(), "--json"])
    assert (result.exit_code, json.loads(result.stdout)["differences"][0]["kind"]) == (8, "request")


def test_a_torn_ledger_is_mended(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.append("release", {"step": "describe"})
    with path.open("a") as file:
        file.write('{"entry":2,"ti')
    assert told("ledger", "verify", path)[0] == 8
    status, head = told("ledger", "repair", path)
    assert status == 0
    assert head["entries"] == 2
    status, verified = told("ledger", "verify", path)
    assert status == 0
    assert verified[tmp_path.name] == {**head, "key": None, "known_key": False, "witnesses": 0}


def test_ledger_tells_releases_refusals_and_the_rest_apart(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    facts = {"method": "toy", "step": "fit", "protection": "unmasked"}
    ledger.append("release", {**facts, "fields": []})
    ledger.append("refusal", {**facts, "reason": "too few patients"})
    ledger.append("repaired", {"bytes": 3})
    field = {"field": "sums[a]", "shape": [2, 3], "bytes": 48, "records": 40, "patients": 12, "sha256": ""}
    ledger.append("release", {**facts, "fields": [field, {**field, "field": "sums[b]", "records": 0, "patients": 0}]})
    ledger.append("release", {**facts, "fields": [{**field, "patients": None}]})
    done, refused, mended, released, unknown = call("ledger", "show", path).stdout.splitlines()[3:8]
    assert "REFUSED: too few patients" in refused
    assert not any("REFUSED" in line for line in (done, mended, released))
    assert "repaired" in mended
    assert released.split()[2:] == ["toy", "fit", "sums", "12", "40", "12", "unmasked"]
    assert unknown.split()[2:] == ["toy", "fit", "sums", "6", "40", "-", "unmasked"]


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["changed", "cut"])
def test_ledger_verify_notices(finished, damage):
    path = finished / "sites" / "oslo" / "ledger.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    changed = [lines[0].replace('"records":30', '"records":40'), *lines[1:]]
    path.write_text("".join(changed if damage == "changed" else lines[:-1]))
    status, printed = told("ledger", "verify", finished)
    assert status == 8
    assert "oslo" in printed["error"]["where"]


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ("{epsilon = 1.0}", "it has a privacy budget, and the study adds no noise"),
        ("{secure_sums_only = true}", "only masked sums may leave"),
        ('{methods = ["other"]}', "the method toy is not allowed"),
    ],
)
def test_card_of_a_study_says_whose_policy_refuses_it(terms, reason, tmp_path):
    study = write_study(tmp_path)
    study.write_text(study.read_text() + f"\n[privacy]\nsecure_sum = false\npolicy = {terms}\n")
    warnings = json.loads(call("card", study, "--json").stdout)["warnings"]
    assert sum(reason in warning for warning in warnings) == 3


def test_card_of_method_and_of_study(tmp_path):
    method = told("card", "toy")[1]
    assert (method["method"], method["min_patients"]) == ("toy", 10)
    path = write_study(tmp_path, STUDY + "[privacy]\nsecure_sum = true\npolicy = {min_patients = 25}\n")
    study = told("card", path)[1]
    assert study["min_patients"] == 25
    assert {line["seen"] for line in study["lines"]} == {"nobody; only the sum"}
    assert "sum of the residuals" in call("card", path, "--fields").stdout
    assert "sum of the residuals" not in call("card", path).stdout
    assert told("card", "fed-mv-pca")[0] == 3


@pytest.mark.slow
def test_report_is_written_anew(finished):
    (finished / "report.html").unlink()
    assert told("report", finished) == (0, {"report": str(finished / "report.html")})
    assert (finished / "report.html").is_file()
    assert told("report", finished.parent)[0] == 3


def test_datasets():
    assert "wisconsin" in [one["name"] for one in told("datasets", "list")[1]]
    assert "bundled with scikit-learn" in call("datasets", "fetch", "wisconsin").stdout
    assert told("datasets", "fetch", "nothing")[0] == 3
    assert call("datasets", "list").stdout.startswith("name")


def test_the_example_study_is_valid(tmp_path):
    status, written = told("datasets", "example", tmp_path)
    study = read_study(written["study"])
    assert status == 0
    assert [name for name in study.sites if (tmp_path / name / "patients.csv").exists()] == ["lyon", "porto", "turin"]


def test_doctor(tmp_path, monkeypatch):
    status, found = told("doctor", "--output", tmp_path / "new" / "runs")
    assert status == 0
    checks = {check["name"]: check for check in found["checks"]}
    assert checks["output"]["ok"]
    assert not (tmp_path / "new").exists()
    extras = {f"extra {name}" for name in distribution("multicentre").metadata.get_all("Provides-Extra")}
    assert {"python", "multicentre", "numpy", "clock"} | extras <= checks.keys()
    assert all(checks[extra]["detail"] for extra in extras)
    assert "ok" in call("doctor").stdout
    monkeypatch.setattr("multicentre.studies.installation.declared_packages", lambda *_: {"": ("no-such-package",)})
    status, found = told("doctor")
    assert status == 3
    assert not found["ok"]


def test_reproduce(tmp_path, monkeypatch):
    (tmp_path / "toy_paper.py").write_text(
        "class Result(dict):\n    def to_dict(self):\n        return dict(self)\n\n"
        "def reproduce(quick, output, listener):\n    return Result(quick=quick, output=str(output))\n"
    )
    package = types.ModuleType("multicentre_papers")
    package.__path__, package.PAPERS = [str(tmp_path)], ("toy-paper",)
    monkeypatch.setitem(sys.modules, "multicentre_papers", package)
    status, found = told("reproduce", "toy-paper", "--quick", "--output", tmp_path)
    assert (status, found["result"]) == (0, {"quick": True, "output": str(tmp_path)})
    status, found = told("reproduce", "toy-papr")
    assert status == 3
    assert "toy-paper" in found["error"]["hint"]
    sys.modules.pop("multicentre_papers.toy_paper", None)


def test_reproduce_names_the_package_that_brings_the_papers(monkeypatch):
    monkeypatch.setitem(sys.modules, "multicentre_papers", None)
    status, found = told("reproduce", "dpfact")
    assert status == 3
    assert "pip install ./papers" in found["error"]["hint"]


def test_every_family_of_errors_has_a_documented_status():
    documented = (Path(__file__).resolve().parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MulticentreError)
    ]
    for kind in kinds:
        assert f"| {kind.exit_code} |" in documented, kind


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* patients have missing values:UserWarning")
def test_demo_answers_in_sentences_and_ends_with_its_report(tmp_path):
    result = call("demo", "--output", tmp_path)
    assert result.exit_code == 0, result.output
    assert "1,980 simulated patients of 6 simulated hospitals" in result.stdout
    for words in (
        "by Treatment: standard",
        "Median survival of Treatment",
        "Hazard ratio of Treatment",
        "Odds ratio of",
    ):
        assert words in " ".join(result.stdout.split())
    assert "arm" not in result.stdout.split()
    (report,) = tmp_path.glob("*/report.html")
    assert f"Report: {report}" in result.stdout
    page = report.read_text(encoding="utf-8")
    assert all(words in page for words in ("Simulated federation", "Table 1.", "Creatinine (mg/dL)", "ghent"))
    assert (tmp_path / "demo-hospitals" / "study.toml").is_file()


def test_no_help_prints_a_backslash():
    from typer.main import get_command

    from multicentre.cli import app

    waiting = [([], get_command(app))]
    while waiting:
        names, command = waiting.pop()
        waiting += [([*names, name], one) for name, one in getattr(command, "commands", {}).items()]
        result = CliRunner().invoke(app, [*names, "--help"])
        assert result.exit_code == 0
        assert "\\" not in result.output, names
