"""Write survival_of_r.json: what R's survival package finds on the pooled data of test_survival_of_r.py.

Run as ``PYTHONPATH=tests python tests/oracles/survival_of_r.py`` where R and its survival package (3 or later) are
installed; the tests read the file alone.
"""

import subprocess
import tempfile
from pathlib import Path

import numpy as np

from oracles.fed_cox_values import draw

FILE = Path(__file__).with_suffix(".json")


def patients(*, ties):
    """Return columns, times, events, sites and a group of three levels of 240 patients."""
    X, time, event, site = draw(ties=ties)
    return X, time, event, site, np.digitize(X[:, 1], [58.0, 62.0])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, ties in (("continuous", False), ("tied", True)):
            X, time, event, site, group = patients(ties=ties)
            table = np.column_stack([X, time, event, site, group])
            header = "a,b,c,time,event,site,group"
            np.savetxt(f"{folder}/{name}.csv", table, delimiter=",", header=header, comments="", fmt="%.17g")
        subprocess.run(["Rscript", FILE.with_suffix(".R"), folder, FILE], check=True)


if __name__ == "__main__":
    main()
