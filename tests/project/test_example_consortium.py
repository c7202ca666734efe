"""The example consortium ends what it started, nothing else, and can always be cleared."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.waiting import GENEROUS_S

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "consortium" / "consortium.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("example_consortium", SCRIPT)
    module = sys.modules["example_consortium"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["example_consortium"]


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "consortium"


@pytest.mark.parametrize("began", ["another time", ""])
def test_a_process_that_has_the_number_of_one_that_ended_is_left_alone(example, folder, sleeper, capsys, began):
    example.begin(folder)
    example.note(folder, {"lyon": example.Started(sleeper.pid, began)})
    example.down(folder)
    assert sleeper.poll() is None
    assert not folder.exists()
    assert "0 processes ended" in capsys.readouterr().out


def test_what_was_started_is_ended(example, folder, sleeper, capsys):
    example.begin(folder)
    example.note(folder, {"lyon": example.Started(sleeper.pid, example.began(sleeper.pid))})
    example.down(folder)
    assert sleeper.wait(GENEROUS_S) == -signal.SIGTERM
    assert "1 processes ended" in capsys.readouterr().out


def test_a_process_that_does_not_listen_is_killed(example, folder, monkeypatch):
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(3600)"
    command = [sys.executable, "-c", deaf]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        monkeypatch.setattr(example, "STOP_S", 0.3)
        example.begin(folder)
        example.note(folder, {"lyon": example.Started(process.pid, example.began(process.pid))})
        example.down(folder)
        assert process.wait(GENEROUS_S) == -signal.SIGKILL


@pytest.fixture
def ledger(example, folder):
    """A consortium that has run a study."""
    example.begin(folder)
    path = folder / "lyon" / "ledgers" / "first-paper.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("{}\n")
    return path


@pytest.mark.parametrize("answer", [None, "", "n", "y", "Yes"], ids=["no terminal", "enter", "n", "y", "Yes"])
def test_ledgers_are_deleted_only_where_a_user_confirms_that(example, folder, ledger, answer, monkeypatch, capsys):
    questions = []
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: answer is not None))
    monkeypatch.setattr("builtins.input", lambda question: questions.append(question) or answer)
    example.down(folder)
    confirmed = answer in ("y", "Yes")
    assert folder.exists() is not confirmed
    assert len(questions) == (answer is not None)
    printed = capsys.readouterr().out
    assert str(ledger) in printed
    assert (example.how_to_delete(folder) in printed) is not confirmed


def test_a_report_is_kept_too(example, folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    example.begin(folder)
    report = folder / "runs" / "hospitals" / "first-paper-1" / "report.html"
    report.parent.mkdir(parents=True)
    report.touch()
    example.down(folder)
    assert report.exists()
    assert str(report) in capsys.readouterr().out


def test_ledgers_are_deleted_without_a_question_on_request(example, folder, ledger, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["consortium.py", "down", "--folder", str(folder), "--delete"])
    example.main()
    assert not folder.exists()


def test_what_was_kept_is_moved_aside_by_the_next_start(example, folder, ledger, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    example.down(folder)
    os.utime(folder / "processes.json", (1.8e9, 1.8e9))
    for n_before in range(3):
        example.begin(folder)
        assert [path.name for path in folder.iterdir()] == ["processes.json"]
        asides = sorted(path for path in folder.parent.iterdir() if path != folder)
        assert len(asides) == n_before + 1
        assert all(re.fullmatch(r"consortium-2027-01-1\d-\d{6}(-[23])?", path.name) for path in asides)
        assert all((path / "lyon" / "ledgers" / "first-paper.jsonl").read_text() == "{}\n" for path in asides)
        printed = capsys.readouterr().out
        assert example.how_to_delete(asides[-1]) in printed
        ledger.parent.mkdir(parents=True)
        ledger.write_text("{}\n")
        os.utime(folder / "processes.json", (1.8e9, 1.8e9))
    example.down(asides[0], delete=True)
    assert not asides[0].exists()
    assert ledger.exists()


def test_a_consortium_that_runs_is_not_moved(example, folder, ledger, sleeper):
    example.note(folder, {"lyon": example.Started(sleeper.pid, example.began(sleeper.pid))})
    with pytest.raises(SystemExit, match="was not ended") as told:
        example.begin(folder)
    assert str(told.value).endswith(example.how_to_end(folder))
    assert ledger.exists()
    assert sleeper.poll() is None


@pytest.mark.parametrize("with_proc", [True, False])
def test_when_a_process_began_is_told_while_it_runs(example, sleeper, monkeypatch, with_proc):
    if not with_proc:
        monkeypatch.setattr(example.Path, "exists", lambda _: False)
    first = example.began(sleeper.pid)
    assert first
    assert example.began(sleeper.pid) == first
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert example.began(sleeper.pid) == ""
    sleeper.wait()
    assert example.began(sleeper.pid) == ""


@pytest.mark.parametrize("made", [lambda folder: folder.mkdir(), lambda folder: None], ids=["empty", "missing"])
def test_up_begins_in_a_folder_that_is_missing_or_empty_with_its_marker(example, folder, made):
    made(folder)
    example.begin(folder)
    assert json.loads((folder / "processes.json").read_text()) == {}
    assert [path.name for path in folder.parent.iterdir()] == ["consortium"]


def test_what_was_interrupted_at_once_can_be_ended_and_begun_again(example, folder):
    example.begin(folder)
    with pytest.raises(SystemExit, match="was not ended") as told:
        example.begin(folder)
    assert "down --folder" in str(told.value)
    example.down(folder)
    example.begin(folder)


def test_an_empty_folder_is_removed(example, folder):
    folder.mkdir()
    example.down(folder)
    assert not folder.exists()


def test_ending_twice_is_no_error(example, folder, capsys):
    example.down(folder)
    assert "Nothing to end" in capsys.readouterr().out


def test_a_folder_of_somebody_else_is_neither_taken_nor_removed(example, folder):
    folder.mkdir()
    (folder / "letter.txt").write_text("keep me")
    with pytest.raises(SystemExit, match="no consortium of this example"):
        example.down(folder)
    with pytest.raises(SystemExit, match="--folder"):
        example.begin(folder)
    assert (folder / "letter.txt").exists()


def test_how_to_end_names_the_command_of_whoever_began(example, folder):
    assert example.how_to_end(ROOT / "build" / "consortium").startswith("make dissolve")
    assert "make" not in example.how_to_end(folder)
    assert str(folder) in example.how_to_end(folder)


def test_an_interrupted_start_says_how_to_end_it(example, folder, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(example, "write_study", interrupted)
    monkeypatch.setattr(sys, "argv", ["consortium.py", "up", "--folder", str(folder)])
    with pytest.raises(KeyboardInterrupt):
        example.main()
    assert example.how_to_end(folder) in capsys.readouterr().err
    example.down(folder)
