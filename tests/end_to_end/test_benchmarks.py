"""All pairs of `make bench` run at small sizes, and our results agree with those of the other packages."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).resolve().parents[2] / "benchmarks" / "run.py"
# Fits to the same data agree to rounding, or to lifelines' tolerance.
NEAR = {"largest difference, standard errors": 1e-3, "largest relative difference": 1e-8}


@pytest.mark.slow
def test_all_pairs_run_at_small_sizes(tmp_path):
    path = tmp_path / "rows.json"
    command = [sys.executable, str(RUNNER), "--quick", "--json", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    groups = {"tensors", "views", "clusters", "survival", "boosting", "regression", "rounds", "sums"}
    assert {row["group"] for row in (*results["rows"], *results["absent"])} == groups
    # These have peers that the tests need anyway, or are their own peers.
    assert {row["group"] for row in results["rows"]} >= {"sums", "clusters", "boosting", "views"}
    for row in results["rows"]:
        for name, limit in NEAR.items():
            assert row["figures"].get(name, 0.0) < limit, row
