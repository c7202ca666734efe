"""docs/benchmarks.md and docs/scaling.md are what the stored results give, and the runner that stores them works."""

import importlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
STORED = sorted((BENCHMARKS / "results").glob("*.json"))


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def load(name):
    return importlib.import_module(name)


@pytest.mark.parametrize("page", ["benchmarks.md", "scaling.md"])
def test_page_is_what_the_results_give(page):
    pages = load("pages").PAGES
    path = next(path for path in pages if path.name == page)
    assert path.read_text(encoding="utf-8") == pages[path](), "run python benchmarks/pages.py"


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name)
def test_results_name_the_machine_and_versions_but_no_host_and_no_path(path):
    text = path.read_text(encoding="utf-8")
    machine = json.loads(text)["machine"]
    assert {"date", "processor", "cores", "memory_gib", "python", "packages"} <= set(machine)
    assert {"multicentre", "numpy"} <= set(machine["packages"])
    assert os.uname().nodename not in text
    assert not re.search(r'"(?:[^"]*\s)?/(?:home|root|work|tmp|Users|usr)/', text)


def test_every_method_of_the_library_has_scaling_curves():
    from multicentre.estimator.registry import METHODS

    expected = {name for name, one in METHODS.items() if one.distribution == "multicentre"}
    assert expected <= set(load("scaling_cases").CASES) <= METHODS.keys()


def test_ratio_is_taken_within_turns_and_a_first_turn_is_not_counted(monkeypatch):
    pairing = load("pairing")
    seconds = iter([100.0, 100.0, 1.0, 2.0, 10.0, 30.0, 4.0, 4.0])  # ours and the peer in the order of their calls

    def run():
        return pairing.Timed(next(seconds), None)

    pair = pairing.Pair("task", "data", [pairing.Way("ours", run)], [pairing.Way("peer", run)], unit="row", n_units=2)
    rows, absent = pairing.measure("group", pair, budget_s=1.0)
    # Even turns begin with the peer: (peer 1, ours 2), then (ours 10, peer 30), then (peer 4, ours 4).
    assert rows[0]["ratio"] == {"median": 1.0, "least": 0.5, "most": 3.0}
    assert rows[0]["ours_s"] == {"median": 4.0, "least": 2.0, "most": 10.0}
    assert rows[0]["turns"] == 3
    assert absent == []


def test_peer_that_is_not_installed_is_named():
    pairing = load("pairing")
    peers = [
        pairing.Way("other", lambda: None, "no_such_module"),
        pairing.Way("broken", lambda: importlib.import_module("its_dependency")),
    ]
    pair = pairing.Pair("task", "data", [pairing.Way("ours", lambda: None)], peers)
    rows, absent = pairing.measure("group", pair, budget_s=0.0)
    assert rows == []
    assert [(one["way"], one["reason"]) for one in absent] == [
        ("other", "no_such_module is not installed"),
        ("broken", "No module named 'its_dependency'"),
    ]


def test_runner_measures_and_stores_a_small_pair(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(load("pairing"), "MIN_TURNS", 1)
    path = tmp_path / "rows.json"
    load("run").run(["sums"], quick=True, path=path)
    rows = json.loads(path.read_text(encoding="utf-8"))["results"]["rows"]
    assert {row["group"] for row in rows} == {"sums"}
    assert {"masked", "masked, losses tolerated"} <= {row["ours"] for row in rows}
    assert all(row["ratio"]["least"] <= row["ratio"]["median"] <= row["ratio"]["most"] for row in rows)
    assert "5 sums of 10 numbers (3 sites)" in capsys.readouterr().out


def test_scaling_measures_a_small_fit():
    point = load("scaling").measure_point("kaplan-meier", 500, 3, 2, masked=True)
    assert point["seconds"] > 0
    assert point["calls"] >= 5
    assert point["bytes_from_site"] > 0


def test_curves_have_the_slope_of_a_power_and_are_continued_at_least_in_proportion():
    scaling_curves = load("scaling_curves")
    # The last point took two calls, and the others one.
    power = [{"size": s, "seconds": n * 3e-4 * s**1.5, "calls": n} for s, n in ((10, 1), (100, 1), (1000, 2))]
    np.testing.assert_allclose(scaling_curves.slopes(power), (1.5, 1.5))
    np.testing.assert_allclose(scaling_curves.extrapolate(power, 10_000), 3e-4 * 1e6)
    np.testing.assert_allclose(scaling_curves.extrapolate(power, 50), 3e-4 * 50**1.5)
    flat = [{"size": 10, "seconds": 1.0, "calls": 1}, {"size": 100, "seconds": 1.0, "calls": 1}]
    np.testing.assert_allclose(scaling_curves.extrapolate(flat, 1000), 10.0)


def test_points_beyond_the_limit_are_omitted_with_their_reason(monkeypatch):
    scaling = load("scaling")
    monkeypatch.setattr(scaling, "measure_point", lambda method, size, *rest, masked: {"seconds": 1e-3 * size})
    points = list(scaling.measure_curve("any", (1_000, 5_000, 10_000), lambda size: (size, 1, 1), masked=True))
    assert [point.get("seconds") for point in points] == [1.0, 5.0, None]
    assert points[-1] == {"size": 10_000, "omitted": "about 10 s expected"}


def test_study_over_many_hospitals_adds_calls_traffic_and_computing():
    far = load("far")
    network = far.Network(n_sites=3, call_s=0.4, superlink_s=0.3, megabytes_per_s=10.0)
    curve = [{"size": 100_000, "seconds": 7.0, "calls": 5}, {"size": 200_000, "seconds": 14.0, "calls": 5}]
    sites = [{"size": 250, "seconds": 1.0, "calls": 5}, {"size": 500, "seconds": 2.0, "calls": 5}]
    work = far.Work(10, 1e5, curve, sites, masked=True)
    flat = far.estimate(work, network)
    np.testing.assert_allclose(flat.calls_s, 10 * (0.4 + 0.1 * 497))
    np.testing.assert_allclose(flat.transfer_s, 500 * 1e6 / 1e7)
    np.testing.assert_allclose([flat.sites_s, flat.coordinators_s], [2.0 * 7.0, 2.0 * 2.0])
    np.testing.assert_allclose(flat.gigabytes, 0.5)
    regional = far.estimate(work, network, n_regions=20)
    np.testing.assert_allclose(regional.calls_s, 10 * (0.4 + 0.1 * 22 + 0.4 + 0.1 * 17))
    np.testing.assert_allclose(regional.gigabytes, 0.52)


def test_seconds_of_a_call_are_those_of_the_page_on_flower():
    network = load("far").read_network()
    text = (ROOT / "docs" / "flower-speed.md").read_text(encoding="utf-8")
    assert f"Target: {network.call_s:.2f} s per call" in text
    assert network.call(network.n_sites) == network.call_s < network.call(500)
