"""An analyst receives the record of a run's events while the coordinator's service carries it out."""

import json

import pytest

from multicentre.studies.run_events import EVENTS
from multicentre_sites.deployment import analyst_run
from multicentre_sites.deployment.analyst_run import Relay


class Sent:
    """A link that stores what it would send."""

    def __init__(self):
        self.lines, self.files = [], []

    def report(self, line):
        self.lines.append(line)

    def send(self, header, body=b""):
        self.files.append((header, body))


@pytest.fixture
def link(tmp_path):
    run = tmp_path / "hips-20261126-221919"
    run.mkdir()
    (run / "run.json").write_text("{}")
    (run / EVENTS).write_text('{"event": "run_began"}\n')
    return Sent()


def test_the_record_is_sent_at_most_every_few_seconds(link, tmp_path, monkeypatch):
    relay = Relay(link, tmp_path)
    for number in range(5):
        relay.round_ended("fit", number, {})
    assert link.files == [({"kind": "file", "path": EVENTS}, (next(tmp_path.glob(f"*/{EVENTS}"))).read_bytes())]
    monkeypatch.setattr(analyst_run, "_EVENTS_S", 0.0)
    relay.rounds_ended("fit", 5)
    assert len(link.files) == 2
    assert link.lines == ["fit: 5 rounds"]


def test_a_missing_record_does_not_end_the_run(tmp_path):
    link = Sent()
    Relay(link, tmp_path).rounds_began("fit", 5, 0)
    assert link.files == []


def test_the_record_of_a_whole_run_is_json(link, tmp_path):
    Relay(link, tmp_path).rounds_began("fit", 5, 0)
    assert json.loads(link.files[0][1]) == {"event": "run_began"}
