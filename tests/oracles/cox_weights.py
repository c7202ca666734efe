"""Write cox_weights.json: what R's survival package finds on the pooled data of test_cox_weights.py.

Run as ``PYTHONPATH=tests python tests/oracles/cox_weights.py`` where R and its survival package are installed; the
tests read the file alone.
"""

import subprocess
import tempfile
from pathlib import Path

import numpy as np

from oracles.fed_cox_values import draw

FILE = Path(__file__).with_suffix(".json")
COLUMNS = ("a", "b", "c", "o", "w", "p", "ward")


def patients(*, ties):
    """Return columns, offset, two kinds of weights and clusters of 240 patients, and times, events and sites."""
    X, time, event, site = draw(ties=ties)
    rng = np.random.default_rng(5)
    others = rng.normal(0.0, 0.5, 240), rng.integers(1, 5, 240), rng.uniform(0.2, 3.0, 240), rng.integers(0, 8, 240)
    ward = others[3] + 100 * site  # wards lie within sites
    return np.column_stack([X, *others[:3], ward]), time, event, site


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, ties in (("continuous", False), ("tied", True)):
            X, time, event, site = patients(ties=ties)
            header = ",".join((*COLUMNS, "time", "event", "site"))
            table = np.column_stack([X, time, event, site])
            np.savetxt(f"{folder}/{name}.csv", table, delimiter=",", header=header, comments="", fmt="%.17g")
        subprocess.run(["Rscript", FILE.with_suffix(".R"), folder, FILE], check=True)


if __name__ == "__main__":
    main()
