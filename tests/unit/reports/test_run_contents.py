import pytest

from multicentre.errors import ConfigurationError
from multicentre.reports.run_contents import NEEDED, read_run
from support.report_samples import make_run, write_json, write_run


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run")


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"nowhere: path must be a run folder.*multicentre run"):
        read_run(tmp_path / "nowhere")


@pytest.mark.parametrize("name", NEEDED)
def test_a_missing_file_is_named_with_what_to_do(folder, name):
    (folder / name).unlink()
    with pytest.raises(ConfigurationError, match=rf"must contain {name}.*Run the study again"):
        read_run(folder)


@pytest.mark.parametrize("name", [*NEEDED, "figures.json", "comparison.json"])
def test_a_file_that_cannot_be_parsed_is_named(folder, name):
    (folder / name).write_text("= {", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=rf"{name}: the file must be valid"):
        read_run(folder)


def test_a_run_that_has_not_ended_is_not_reported(folder):
    write_json(folder, "run.json", make_run() | {"status": "running", "ended": None})
    with pytest.raises(ConfigurationError, match=r"must have ended.*multicentre run --resume"):
        read_run(folder)


def test_a_file_that_is_not_text_is_named(folder):
    (folder / "study.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match=r"study.toml: the file must be readable text"):
        read_run(folder)


def test_a_wrong_field_is_named_without_its_value(folder):
    run = make_run()
    run["sites"][1]["patients"] = "secret"
    write_json(folder, "run.json", run)
    with pytest.raises(ConfigurationError, match=r"run.json, sites.1.patients") as caught:
        read_run(folder)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("figure", [{"kind": "Film"}, {"title": "no kind"}, {"kind": "Table", "title": "half"}])
def test_a_figure_of_another_kind_is_refused(folder, figure):
    write_json(folder, "figures.json", [figure])
    with pytest.raises(ConfigurationError, match="figure 1 must be of a kind"):
        read_run(folder)


def test_a_history_with_words_is_refused(folder):
    (folder / "history.csv").write_text("round,change\n1,much\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"history.csv: every row must contain only numbers"):
        read_run(folder)


def test_an_empty_history_is_no_error(folder):
    (folder / "history.csv").write_text("", encoding="utf-8")
    assert read_run(folder).analyses[0].history == {}
