"""scikit-survival's side of ``survival_trees.py``: times its trees on patients from a file, and prints them as JSON."""

import json
import sys
import time

import numpy as np
from sksurv.ensemble import RandomSurvivalForest
from sksurv.tree import SurvivalTree
from sksurv.util import Surv


def main(path: str, n_runs: int, n_estimators: int) -> None:
    with np.load(path) as file:
        X, y = file["X"], Surv.from_arrays(file["events"], file["times"])
    leaves = {"min_samples_leaf": 15, "min_samples_split": 30, "random_state": 0}
    forest = RandomSurvivalForest(n_estimators, max_features="sqrt", n_jobs=1, **leaves)
    seconds = {
        "tree, sqrt(d) columns": least_seconds(SurvivalTree(max_features="sqrt", **leaves), X, y, n_runs),
        "tree, all columns": least_seconds(SurvivalTree(**leaves), X, y, 1),
        "forest of 100": least_seconds(forest, X, y, 1) * 100 / n_estimators,
    }
    print(json.dumps(seconds))


def least_seconds(model, X, y, n_runs):
    seconds = []
    for _ in range(n_runs):
        began = time.process_time()
        model.fit(X, y)
        seconds.append(time.process_time() - began)
    return min(seconds)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
