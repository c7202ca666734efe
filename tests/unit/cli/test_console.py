"""Progress and text tables."""

import io

from rich.console import Console
from rich.progress import Progress

from multicentre.cli.progress import Bars, Lines
from multicentre.cli.summary import describe_comparison, describe_releases


def test_lines_tell_the_rounds_of_this_process(capsys):
    lines = Lines()
    for done, last in [(0, 3), (3, 5), (5, 5)]:
        lines.rounds_began("fit", 9, done)
        lines.round_ended("fit", last, {})
        lines.rounds_ended("fit", last)
    lines.site_awaited("lyon", "not connected")
    lines.site_lost("lyon", "no answer")
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
    assert "waiting for lyon: not connected" in page.getvalue()
    assert "lost lyon: [bold] no answer" in page.getvalue()


def test_comparison_table_leaves_gaps_and_tells_why():
    row = {"name": "mae", "label": "MAE", "better": "lower", "federated": 0.51234, "pooled": None}
    comparison = {
        "figures": [{**row, "site_alone": {"lyon": 1.0, "oslo": 2.0, "rome": None}}, {**row, "site_alone": {}}],
        "notes": {"pooled": "too few"},
        "patients_held_out": 12,
    }
    lines = describe_comparison(comparison).splitlines()
    assert "12 held-out" in lines[0]
    assert lines[3].split() == ["MAE", "0.5123", "-", "1.5", "(2)", "lower"]
    assert lines[4].split()[3] == "-"
    assert lines[-1] == "pooled: too few"


def test_releases_are_one_row_a_step():
    row = {"step": "fit", "protection": "masked", "times": 4, "numbers": 40, "bytes": 320, "patients_min": 12}
    released = [{**row, "site": "lyon", "field": "a"}, {**row, "site": "lyon", "field": "b", "patients_min": None}]
    released.append({**row, "site": "oslo", "field": "a", "patients_min": 11, "numbers": 60})
    head, *_, last = describe_releases(released).splitlines()
    assert "2 sites: 960 bytes" in head
    assert last.split() == ["fit", "4", "70", "480", "11", "masked"]
