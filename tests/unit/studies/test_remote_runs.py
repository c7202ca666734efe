"""A study over sites that are other processes: its run folder, what it refuses, and how it is taken up."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multicentre.engines.faults import Faults, Faulty
from multicentre.engines.remote.engine import RemoteEngine
from multicentre.errors import ConfigurationError, IntegrityError, RefusedByPolicy, SchemaMismatch
from multicentre.reports import write_report
from multicentre.studies import read_study, resume_run, run_study
from support.real_sites import NAMES, Hospitals
from support.remote_sites import ByHand

pytestmark = pytest.mark.filterwarnings("ignore:the rounds ended at max_iter")
STUDY = """
[study]
name = "remote"
method = "fed-mv-ppca"
seed = 1
[parameters]
n_components = 2
max_iter = 4
[data]
id_column = "patient"
[privacy]
secure_sum = true
[run]
compare = false
"""


def write_tables(folder, names=NAMES, columns=("iron", "salt", "zinc")):
    rng = np.random.default_rng(0)
    lines = []
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for view, own in {"blood": columns, "scan": ("area", "depth", "edge")}.items():
            table = pd.DataFrame(rng.normal(size=(40, len(own))), columns=list(own))
            table.insert(0, "patient", [f"{name}-{row}" for row in range(40)])
            table.to_csv(folder / name / f"{view}.csv", index=False)
        lines.append(f'[sites.{name}]\nblood = "{name}/blood.csv"\nscan = "{name}/scan.csv"\n')
    path = folder / "study.toml"
    path.write_text(STUDY + "\n".join(lines))
    return path


@pytest.fixture
def study(tmp_path):
    return write_tables(tmp_path / "tables")


@pytest.fixture
def hospitals(tmp_path, study):
    return Hospitals(tmp_path / "hospitals", study)


@pytest.fixture
def connect(hospitals):
    return lambda: ByHand({name: partial(hospitals.answer, name) for name in hospitals.names})


@pytest.fixture
def interrupted(monkeypatch):
    """Have the analyst's run broken off at its tenth exchange, once."""
    whole = RemoteEngine.exchange
    faulty = {}

    def exchange(self, calls, time_limit_s):
        engine = faulty.setdefault("engine", Faulty(_Plain(self, whole), Faults(interrupt_at=10)))
        return engine.exchange(calls, time_limit_s)

    monkeypatch.setattr(RemoteEngine, "exchange", exchange)
    yield
    monkeypatch.setattr(RemoteEngine, "exchange", whole)


class _Plain:
    def __init__(self, engine, exchange):
        self.sites, self.exchange = engine.sites, partial(exchange, engine)


def models(folder):
    with np.load(folder.path / "model" / "model.npz") as members:
        return {name: values.tobytes() for name, values in members.items()}


@pytest.mark.slow
def test_the_run_folder_holds_the_model_of_one_process_and_no_row(study, connect, tmp_path):
    chosen = read_study(study)
    remote = run_study(chosen.with_output(tmp_path / "remote"), connect=connect)
    assert models(remote) == models(run_study(chosen.with_output(tmp_path / "here")))
    facts = remote.metadata
    assert (facts["status"], facts["engine"], facts["simulated"], facts["lost"]) == ("finished", "flower", False, [])
    assert [site["patients"] for site in facts["sites"]] == [None, None, None]
    assert facts["versions"].keys() == set(NAMES)
    assert not remote.ledgers()
    page = write_report(remote.path).read_text()
    assert "No patient's row left its site" in page
    assert "Simulated federation" not in page


@pytest.mark.slow
def test_a_run_that_is_taken_up_has_the_same_bits(study, connect, tmp_path, interrupted, monkeypatch):
    chosen = read_study(study)
    with pytest.raises(KeyboardInterrupt) as broken:
        run_study(chosen.with_output(tmp_path / "remote"), connect=connect, coordinator=Path("our hub"))
    (folder,) = (tmp_path / "remote").iterdir()
    assert broken.value.__notes__[-1].endswith(f"--resume {folder} --coordinator 'our hub'")
    monkeypatch.undo()
    assert models(resume_run(folder, connect=connect)) == models(run_study(chosen.with_output(tmp_path / "here")))


def test_a_run_is_taken_up_where_it_began(study, connect, tmp_path, interrupted):
    with pytest.raises(KeyboardInterrupt):
        run_study(read_study(study).with_output(tmp_path / "remote"), connect=connect)
    (folder,) = (tmp_path / "remote").iterdir()
    with pytest.raises(ConfigurationError, match="--coordinator"):
        resume_run(folder)


@pytest.mark.slow
def test_other_data_are_not_taken_up(study, hospitals, connect, tmp_path, interrupted, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        run_study(read_study(study).with_output(tmp_path / "remote"), connect=connect)
    monkeypatch.undo()
    table = pd.read_csv(study.parent / "oslo" / "blood.csv")
    table.assign(iron=table["iron"] + 1).to_csv(study.parent / "oslo" / "blood.csv", index=False)
    hospitals.handlers.clear()
    (folder,) = (tmp_path / "remote").iterdir()
    with pytest.raises(IntegrityError, match=r"oslo.*must be unchanged since the start of the run"):
        resume_run(folder, connect=connect)


def test_a_study_that_was_not_approved_leaves_no_folder(study, connect, tmp_path):
    other = study.with_name("other.toml")
    other.write_text(study.read_text().replace("n_components = 2", "n_components = 3"))
    with pytest.raises(RefusedByPolicy, match="must be those that are approved"):
        run_study(read_study(other).with_output(tmp_path / "remote"), connect=connect)
    assert not list((tmp_path / "remote").iterdir())


def test_sites_that_describe_their_data_differently_are_told_apart(tmp_path):
    study = write_tables(tmp_path / "tables")
    table = pd.read_csv(study.parent / "porto" / "blood.csv").rename(columns={"zinc": "copper"})
    table.to_csv(study.parent / "porto" / "blood.csv", index=False)
    hospitals = Hospitals(tmp_path / "hospitals", study)
    with pytest.raises(SchemaMismatch, match="porto"):
        run_study(
            read_study(study).with_output(tmp_path / "remote"),
            connect=lambda: ByHand({name: partial(hospitals.answer, name) for name in NAMES}),
        )
