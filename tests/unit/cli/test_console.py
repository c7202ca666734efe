"""Progress and text tables."""

import errno
import io
import sys
import warnings

import pytest
import typer
from rich.console import Console
from rich.progress import Progress

from multicentre.cli import console
from multicentre.cli.console import handle_errors, program
from multicentre.cli.progress import Bars, Lines
from multicentre.cli.summary import describe_comparison, describe_left_out, describe_releases


def test_lines_tell_the_rounds_of_this_process(capsys):
    lines = Lines()
    for done, last in [(0, 3), (3, 5), (5, 5)]:
        lines.rounds_began("fit", 9, done)
        lines.round_ended("fit", last, {})
        lines.rounds_ended("fit", last)
    lines.site_awaited("lyon", "not connected")
    lines.site_lost("lyon", "no answer")
    lines.sites_left_out({"oslo": "a warning says so"})
    printed = capsys.readouterr()
    assert printed.out == ""
    rounds = ["fit: rounds 1 to 3", "fit: rounds 4 to 5"]
    assert printed.err.splitlines() == [*rounds, "waiting for lyon: not connected", "lost lyon: no answer"]


def test_bars_follow_the_rounds():
    page = io.StringIO()
    with Progress(console=Console(file=page, width=80), auto_refresh=False) as progress:
        bars = Bars(progress)
        bars.rounds_began("fit", 8, 2)
        assert progress.tasks[0].completed == 2
        bars.round_ended("fit", 3, {})
        assert progress.tasks[0].completed == 3
        assert not progress.tasks[0].finished
        bars.rounds_ended("fit", 4)
        assert progress.tasks[0].finished
        bars.site_awaited("lyon", "not connected")
        bars.site_lost("lyon", "[bold] no answer")
        bars.sites_left_out({"oslo": "a warning says so"})
    assert "waiting for lyon: not connected" in page.getvalue()
    assert "lost lyon: [bold] no answer" in page.getvalue()
    assert "oslo" not in page.getvalue()


def test_sites_left_out_are_one_line_with_equal_reasons_once():
    facts = {"sites": [{}] * 1000, "left_out": {f"s{i:04}": "too few patients" for i in range(147)}}
    assert describe_left_out(facts) == [
        "Fitted without 147 of 1,000 sites, which refused (s0000, s0001 and 145 more: too few patients)"
    ]
    assert describe_left_out({"sites": [{}], "left_out": {}}) == []


def test_comparison_table_leaves_gaps_and_tells_why():
    row = {"name": "mae", "label": "MAE", "better": "lower", "federated": 0.51234, "pooled": None}
    comparison = {
        "metrics": [{**row, "site_alone": {"lyon": 1.0, "oslo": 2.0, "rome": None}}, {**row, "site_alone": {}}],
        "notes": {"pooled": "too few"},
        "patients_held_out": 12,
    }
    lines = describe_comparison(comparison).splitlines()
    assert "12 held-out" in lines[0]
    assert lines[3].split() == ["MAE", "0.512", "-", "1.500", "(2)", "lower"]
    assert lines[4].split()[3] == "-"
    assert lines[-1] == "pooled: too few"


def test_releases_are_one_row_a_step():
    row = {"step": "fit", "protection": "masked", "times": 4, "numbers": 40, "bytes": 320, "patients_min": 12}
    released = [{**row, "site": "lyon", "field": "a"}, {**row, "site": "lyon", "field": "b", "patients_min": None}]
    released.append({**row, "site": "oslo", "field": "a", "patients_min": 11, "numbers": 60})
    head, *_, last = describe_releases(released).splitlines()
    assert "2 sites: 960 bytes" in head
    assert last.split() == ["fit", "4", "70", "480", "11", "masked"]


def test_records_are_shown_where_a_site_cannot_count_patients():
    row = {"site": "lyon", "step": "fit", "protection": "masked", "times": 1, "numbers": 1, "bytes": 8, "field": "a"}
    told = [{**row, "records_min": 40, "patients_min": None}, {**row, "records_min": 30, "patients_min": 12}]
    lines = describe_releases(told).splitlines()
    assert "fewest records" in lines[1]
    assert lines[-1].split() == ["fit", "1", "2", "16", "30", "masked"]
    lines = describe_releases(told[1:]).splitlines()
    assert "fewest patients" in lines[1]
    assert lines[-1].split()[-2] == "12"


def test_a_warning_of_many_fits_is_one_note(capsys):
    @handle_errors
    def fit():
        for patients in (4, 4, 5, 4):
            warnings.warn(f"{patients} patients left out", UserWarning, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        fit()
    assert capsys.readouterr().err.splitlines() == ["Note: 4 patients left out", "Note: 5 patients left out"]


@pytest.mark.parametrize(("on_path", "entered"), [(True, "multicentre"), (False, ".venv/bin/multicentre")])
def test_the_next_command_is_one_that_the_reader_can_enter(on_path, entered, tmp_path, monkeypatch):
    if on_path:
        (tmp_path / "multicentre").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [".venv/bin/multicentre", "demo"])
    assert program() == entered


def test_an_internal_error_without_a_place_for_its_traceback_prints_it(monkeypatch, capsys):
    def nowhere(*_, **__):
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory")

    @handle_errors
    def divide():
        raise ZeroDivisionError

    monkeypatch.setattr(console.tempfile, "NamedTemporaryFile", nowhere)
    with pytest.raises(typer.Exit) as ended:
        divide()
    assert ended.value.exit_code == 70
    printed = capsys.readouterr().err
    assert "Internal error in multicentre: ZeroDivisionError. The traceback follows:\nTraceback" in printed
    assert "in divide" in printed
