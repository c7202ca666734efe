"""The run folder: it appears whole, and its name is free."""

import json
import re

import numpy as np
import pytest

from multicentre.errors import ConfigurationError, IntegrityError
from multicentre.studies import run_folder as folders
from multicentre.studies.run_folder import RunFolder
from multicentre.studies.serialisation import to_plain
from multicentre.studies.study_file import study_from_mapping


@pytest.fixture
def study(tmp_path):
    content = {"study": {"name": "Été / 7", "method": "toy", "output": str(tmp_path)}, "sites": {"lyon": {}}}
    return study_from_mapping(content)


def test_folder_is_whole_and_names_do_not_collide(study, tmp_path):
    paths = [RunFolder.create(study, {"status": "running"}, {"lyon": "00"}).path for _ in range(3)]
    assert len(set(paths)) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)
    assert re.fullmatch(r"Été-7-\d{8}-\d{6}", paths[0].name)
    for path in paths:
        folder = RunFolder.open(path)
        assert folder.metadata == {"status": "running"}
        assert folder.study == study
        assert set(folder.read("environment.json")) == {"python", "multicentre", "platform", "packages"}


def test_failure_leaves_nothing(study, tmp_path, monkeypatch):
    def fail():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "describe_environment", fail)
    with pytest.raises(ConfigurationError, match="No space left"):
        RunFolder.create(study, {}, {})
    assert list(tmp_path.iterdir()) == []


def test_update_keeps_the_other_facts(study):
    folder = RunFolder.create(study, {"status": "running", "seed": 1}, {})
    folder.update(status="finished")
    assert folder.metadata == {"status": "finished", "seed": 1}


def test_history_has_a_row_a_round(study):
    folder = RunFolder.create(study, {}, {})
    folder.write_history([{"round": 1.0, "loss": 0.1}, {"round": 2.0, "change": 3.0}])
    assert (folder.path / "history.csv").read_text() == "round,loss,change\n1.0,0.1,\n2.0,,3.0\n"


def test_damaged_and_absent_files(study, tmp_path):
    folder = RunFolder.create(study, {}, {})
    (folder.path / "run.json").write_text("[1")
    with pytest.raises(IntegrityError, match="failed to read the file"):
        folder.update(status="x")
    (folder.path / "run.json").write_text("[1]")
    with pytest.raises(IntegrityError, match="must contain an object"):
        folder.update(status="x")
    with pytest.raises(ConfigurationError, match="path must be a run folder"):
        RunFolder.open(tmp_path)


def test_plain_values_are_json():
    value = {"a": np.arange(2), 1: (np.float32(0.5), np.inf), "none": None, "t": np.bool_(True)}
    assert json.loads(json.dumps(to_plain(value), allow_nan=False)) == {
        "a": [0, 1],
        "1": [0.5, None],
        "none": None,
        "t": True,
    }
