"""``multicentre watch``: the state of a run from its folder, live and by line, and the end of the run."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest
from typer.testing import CliRunner

from multicentre.cli import app, watch
from multicentre.cli.run_view import describe_event, describe_state
from multicentre.core.rounds import Listener
from multicentre.core.storage import held, is_held
from multicentre.estimator.registry import METHODS
from multicentre.studies import read_study, resume_run, run_study
from multicentre.studies.listeners import LabelledListener
from multicentre.studies.run_events import EVENTS, EventRecorder
from multicentre.studies.run_state import RunReader, RunState, find_run
from support.studies_toy import STUDY, TOY, Interrupts, write_study

BEGAN = {
    "time": "2026-11-26T10:00:00+00:00",
    "event": "run_began",
    "study": "hips",
    "method": "toy",
    "engine": "flower",
    "protection": "masked",
    "sites": ["lyon", "oslo", "porto"],
    "analyses": [],
    "noised": False,
    "sites_per_patient": 1,
    "resumed": False,
}


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)


@pytest.fixture
def study(tmp_path):
    return read_study(write_study(tmp_path, STUDY + "\n[privacy]\nsecure_sum = false\n[run]\ncompare = false\n"))


def call(*arguments):
    return CliRunner().invoke(app, ["watch", *map(str, arguments)])


def event(kind, **facts):
    return {"time": "2026-11-26T10:00:05+00:00", "event": kind, **facts}


def state_after(*events):
    state = RunState()
    for one in (BEGAN, *events):
        state.apply(one)
    return state


def test_state_of_a_finished_run_is_that_of_its_records(study):
    run = run_study(study)
    reader = RunReader(run.path)
    events = reader.read()
    state = reader.state
    assert (state.status, state.exit_code, state.study) == ("finished", 0, study.name)
    assert state.loops["fit"].number == 6
    assert state.loops["fit"].ended
    assert state.calls == run.metadata["calls_per_site"]
    assert state.bytes_from_sites == run.metadata["bytes_from_sites"]
    released = run.read("disclosure.json")["released"]
    assert state.releases.n_bytes == sum(row["bytes"] for row in released)
    assert state.releases.numbers == sum(row["numbers"] for row in released)
    fewest = min(row["patients_min"] for row in released if row["patients_min"])
    assert min(row.fewest for row in state.releases.rows.values() if row.fewest) == fewest
    history = [float(line.split(",")[1]) for line in (run.path / "history.csv").read_text().splitlines()[1:]]
    assert state.loops["fit"].values == history
    assert [one["event"] for one in events if one["event"].startswith("run")] == ["run_began", "run_ended"]
    assert reader.read() == []


def test_an_interrupted_and_resumed_run_goes_on_in_the_same_record(study):
    with pytest.raises(KeyboardInterrupt):
        run_study(study, listener=Interrupts(2))
    path = find_run(study.about.output)
    reader = RunReader(path)
    reader.read()
    assert (reader.state.status, reader.state.exit_code) == ("interrupted", 130)
    resume_run(path)
    reader.read()
    assert (reader.state.status, reader.state.loops["fit"].number) == ("finished", 6)
    assert len(reader.state.loops["fit"].values) == 6


def test_watch_prints_the_present_state_and_json(study):
    path = run_study(study).path
    once = call(path, "--once")
    assert once.exit_code == 0
    assert all(len(line) <= 80 for line in once.stdout.splitlines())
    assert "\x1b" not in once.stdout
    for words in (study.name, "finished", "ended after round 6", "3 of 3 answer", "no patient's row", "residuals"):
        assert words in once.stdout
    content = json.loads(call(path, "--once", "--json").stdout)
    assert content["status"] == "finished"
    assert content["released"]["residuals"]["numbers"] > 0
    assert json.loads(call(study.about.output, "--json").stdout)["status"] == "finished"


def test_piped_watch_prints_a_line_per_change_and_ends_with_the_run(study):
    path = run_study(study).path
    result = call(path)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert "began" in lines[0]
    assert lines[-1].endswith("finished")
    assert sum("fit: round " in line for line in lines) == 6


def test_watch_follows_a_run_in_progress(study, monkeypatch):
    monkeypatch.setattr(watch, "_POLL_S", 0.01)
    seen, goes_on = threading.Event(), threading.Event()

    class Slow(Interrupts):
        def round_ended(self, name, number, metrics):
            if number == 2:
                seen.set()
                goes_on.wait(20)

    thread = threading.Thread(target=run_study, args=(study,), kwargs={"listener": Slow(99)})
    thread.start()
    assert seen.wait(20)
    reader = RunReader(find_run(study.about.output))
    reader.read()
    assert (reader.state.status, reader.state.loops["fit"].number) == ("running", 2)
    assert reader.state.releases.rows["residuals"].times
    goes_on.set()
    result = call(reader.folder)
    thread.join()
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].endswith("finished")


def test_watch_ends_with_the_status_of_a_run_that_failed(tmp_path):
    recorder = EventRecorder(Interrupts(9))
    recorder.open(tmp_path)
    recorder.write("run_began", **{name: value for name, value in BEGAN.items() if name not in ("time", "event")})
    recorder.write("run_ended", status="interrupted", message="2 of 3 sites answered", exit_code=6)
    result = call(tmp_path)
    assert result.exit_code == 6
    assert "interrupted: 2 of 3 sites answered" in result.stdout


def test_a_killed_process_is_recognised(tmp_path):
    (tmp_path / EVENTS).write_text(json.dumps(BEGAN) + "\n")
    reader = RunReader(tmp_path)
    with held(tmp_path / "run.lock"):
        assert is_held(tmp_path / "run.lock")
        reader.read()
        reader.read()
        assert reader.state.status == "running"
    assert not is_held(tmp_path / "run.lock")
    reader.read()
    assert reader.state.status == "stopped"
    result = call(tmp_path)
    assert result.exit_code == 130
    assert "--resume" in result.stdout
    assert not is_held(tmp_path / "no.lock")
    assert not (tmp_path / "no.lock").exists()


def test_a_folder_that_is_removed_meanwhile_is_named(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / EVENTS).write_text(json.dumps(BEGAN) + "\n")
    reader = RunReader(folder)
    (folder / EVENTS).unlink()
    folder.rmdir()
    with pytest.raises(Exception, match="ended before a site sent a result"):
        reader.read()


def test_sites_that_are_lost_awaited_and_left_out():
    state = state_after(event("site_awaited", site="oslo", reason="not connected"))
    assert state.answering == ["lyon", "porto"]
    rounds = event("round_ended", loop="fit", round=1, metrics={"loss": 2.0})
    assert state_after(event("site_awaited", site="oslo", reason="-"), rounds).answering == list(BEGAN["sites"])
    lost = event("site_lost", site="oslo", reason="no answer")
    state = state_after(lost, event("sites_left_out", reasons={"porto": "min_patients"}), rounds)
    assert state.answering == ["lyon"]
    text = describe_state(state)
    assert "1 of 3 answer" in text
    assert "lost oslo: no answer" in text
    assert "left out porto: min_patients" in text


def test_loops_side_by_side_keep_their_rounds_and_objectives_apart(tmp_path):
    recorder = EventRecorder(Listener())
    recorder.open(tmp_path)
    listener = LabelledListener(recorder, "fit")
    for name in ("0.1.1-rounds", "0.1.2-rounds"):
        listener.rounds_began(name, 9, 0)
    for number in (1, 2):
        listener.round_ended("0.1.1-rounds", number, {"loss": 10.0 - number})
        listener.round_ended("0.1.2-rounds", number, {"loss": 20.0 - number})
    listener.rounds_ended("0.1.1-rounds", 2)
    listener.rounds_began("0.1.3-rounds", 9, 0)  # takes the place of the first one
    reader = RunReader(tmp_path)
    reader.read()
    loops = {loop.name: (loop.number, loop.values, loop.ended) for loop in reader.state.loops.values()}
    assert loops == {"fit 2": (2, [19.0, 18.0], False), "fit": (0, [], False)}
    assert reader.state.loop.name == "fit"
    listener.round_ended("0.1.2-rounds", 3, {"loss": 17.0})
    reader.read()
    assert (reader.state.loop.name, reader.state.loop.change) == ("fit 2", -1.0)


def test_a_fit_that_begins_again_keeps_its_label(tmp_path):
    recorder = EventRecorder(Listener())
    recorder.open(tmp_path)
    listener = LabelledListener(recorder, "fit")
    listener.rounds_began("0.1-rounds", 9, 0)
    listener.sites_left_out({"porto": "min_patients"})
    listener.rounds_began("0.2-rounds", 9, 0)
    reader = RunReader(tmp_path)
    reader.read()
    assert list(reader.state.loops) == ["fit"]


def test_objective_is_drawn_in_ascii_where_needed():
    rounds = [event("round_ended", loop="fit", round=i, metrics={"loss": 1.0 / i, "n": None}) for i in range(1, 60)]
    state = state_after(event("rounds_began", loop="fit", rounds=80, done=0), *rounds)
    text = describe_state(state, blocks=False)
    assert text.isascii()
    assert "fit: 59 of at most 80" in text
    assert "change -0.000292" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_hostile_names_cannot_move_the_cursor():
    state = state_after(event("site_lost", site="oslo\x1b[2Jfinished", reason="\u202eno"))
    text = describe_state(state) + describe_event(event("site_lost", site="o\x1b[2J", reason="\r0"), state)
    assert not set("\x1b\u202e\r") & set(text)


def test_damaged_events_are_skipped(tmp_path):
    lines = ["[]", "{", '{"event": 3}', '{"time": 1, "event": "round_ended"}', json.dumps(BEGAN), "half a li"]
    (tmp_path / EVENTS).write_text("\n".join(lines))
    reader = RunReader(tmp_path)
    reader.read()
    assert reader.state.study == "hips"
    with (tmp_path / EVENTS).open("a") as file:
        file.write("ne\n" + json.dumps(event("run_ended", status="finished", message="", exit_code=0)) + "\n")
    reader.read()
    assert reader.state.status == "finished"


def test_values_of_another_kind_in_events_and_ledgers_do_not_end_the_display(tmp_path):
    events = [event(["round_ended"]), {**BEGAN, "sites": [["lyon"], 3]}, event("rounds_ended", loop=None, round=2)]
    (tmp_path / EVENTS).write_text("".join(json.dumps(one) + "\n" for one in events))
    ledger = tmp_path / "sites" / "lyon" / "ledger.jsonl"
    ledger.parent.mkdir(parents=True)
    fields = [5, "x", [1], {"a": 1}, [{"shape": 3}], [{"shape": [2], "bytes": 16, "patients": 40}]]
    entries = [{"event": "release", "step": f"step {k}", "fields": one} for k, one in enumerate(fields)]
    ledger.write_text("".join(json.dumps(one) + "\n" for one in entries))
    reader = RunReader(tmp_path)
    reader.read()
    assert reader.state.releases.numbers == 2
    text = describe_state(reader.state)
    assert "step 5" in text
    assert "hips" in text


def test_a_full_disk_does_not_end_the_run(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    heard = Interrupts(9)
    recorder = EventRecorder(heard)
    recorder.open(tmp_path)
    monkeypatch.setattr(os, "write", fail)
    recorder.site_lost("oslo", "no answer")
    assert heard.heard == [("oslo", "no answer")]


def test_the_record_is_private_and_not_a_link(tmp_path):
    recorder = EventRecorder(Interrupts(9))
    recorder.open(tmp_path)
    recorder.site_lost("oslo", "no answer")
    assert (tmp_path / EVENTS).stat().st_mode & 0o777 == 0o600
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / EVENTS).symlink_to(tmp_path / "target")
    recorder.open(tmp_path / "other")
    recorder.site_lost("oslo", "no answer")
    assert not (tmp_path / "target").exists()


def test_watch_needs_a_run(tmp_path):
    result = call(tmp_path)
    assert result.exit_code == 3
    assert "contains no run" in result.stderr
    (tmp_path / "run.json").write_text("{}")
    assert EVENTS in call(tmp_path).stderr


@pytest.mark.slow
def test_live_view_at_a_terminal_has_no_colour(study):
    pty = pytest.importorskip("pty")
    path = run_study(study).path
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "80", "LINES": "40"}
    command = [sys.executable, "-m", "multicentre", "watch", str(path)]
    process = subprocess.Popen(command, stdout=slave, env=environment)
    os.close(slave)
    printed, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        try:
            piece = os.read(master, 65536)
        except OSError:  # Linux reports the end of the terminal so
            break
        if not piece:
            break
        printed += piece
    assert process.wait(20) == 0
    assert b"ended after round 6" in printed
    assert b"\x1b[3" not in printed  # codes of colours begin so
