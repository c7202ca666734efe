"""Progress of fits: one line that is updated in a terminal and in a notebook, and one line per fit elsewhere."""

import io
import sys
import types

import multicentre as mc
from multicentre import progress as module


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run_rounds(progress, monkeypatch):
    monkeypatch.setattr(module, "_INTERVAL_S", 0.0)
    progress.rounds_began("0.1-fit", 4, 0)
    for number in (1, 2):
        progress.round_ended("0.1-fit", number, {"loss": 1 / number, "other": 0.0})
    progress.site_awaited("lyon", "not connected")
    progress.site_lost("lyon", "no answer")
    progress.rounds_ended("0.1-fit", 2)


LAST = ["waiting for lyon: not connected", "lost lyon: no answer", "fit: 2 rounds, loss 0.5"]


def test_terminal_line_is_updated_and_its_rest_is_overwritten(monkeypatch):
    page = Terminal()
    run_rounds(mc.Progress(page), monkeypatch)
    drawn = page.getvalue().replace("\n", "").split("\r")[1:]
    assert {len(line) for line in drawn} == {79}
    assert [line.rstrip() for line in drawn] == [
        "fit: round 0 of at most 4 [....................]",
        "fit: round 1 of at most 4 [#####...............], loss 1",
        "fit: round 2 of at most 4 [##########..........], loss 0.5",
        *LAST,
    ]
    assert page.getvalue().count("\n") == 3


def test_a_log_gets_a_line_per_fit(monkeypatch):
    page = io.StringIO()
    progress = mc.Progress(page)
    run_rounds(progress, monkeypatch)
    assert page.getvalue().splitlines() == LAST
    progress.rounds_began("fit", 4, 4)
    progress.rounds_ended("fit", 4)
    assert page.getvalue().splitlines() == LAST, "a fit that was finished before prints nothing"


def test_notebook_line_is_replaced_in_place(monkeypatch):
    shown = []

    class Handle:
        def update(self, content, raw):
            assert raw
            shown[-1] = content["text/plain"]

    def display(content, raw, display_id):
        assert raw
        assert display_id
        shown.append(content["text/plain"])
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    run_rounds(mc.Progress(), monkeypatch)
    assert shown == LAST


def test_a_shell_without_kernel_is_a_terminal(monkeypatch, capsys):
    shell = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    run_rounds(mc.Progress(), monkeypatch)
    assert capsys.readouterr().err.splitlines() == LAST


def test_rounds_within_the_interval_are_not_drawn(monkeypatch):
    monkeypatch.setattr(module, "_INTERVAL_S", 1e9)
    page = Terminal()
    progress = mc.Progress(page)
    progress.rounds_began("fit", 1000, 0)
    for number in range(1000):
        progress.round_ended("fit", number + 1, {})
    progress.rounds_ended("fit", 1000)
    assert page.getvalue().count("\r") == 2
