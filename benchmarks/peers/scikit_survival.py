"""scikit-survival's side of the pairs of survival methods; a separate process because of its licence (GPL)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from sksurv.ensemble import GradientBoostingSurvivalAnalysis, RandomSurvivalForest
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.metrics import concordance_index_censored
from sksurv.nonparametric import kaplan_meier_estimator
from sksurv.util import Surv

from peers.process import serve


def main(path: str) -> None:
    """Serve fits to the patients of a file; models of risk return their concordance on its new patients."""
    with np.load(path) as file:
        data = dict(file)
    X, times, events = data["X"], data["times"], data["events"].astype(bool)
    y = Surv.from_arrays(events, times)

    def fit(model: Any) -> Callable[[], float]:
        model.fit(X, y)
        new = data["new_events"].astype(bool), data["new_times"]
        return lambda: float(concordance_index_censored(*new, model.predict(data["new_X"]))[0])

    leaves = {"min_samples_leaf": 15, "min_samples_split": 30}
    serve(
        {
            "cox": lambda: CoxPHSurvivalAnalysis(ties="efron").fit(X, y).coef_.tolist(),
            "kaplan-meier": lambda: float(kaplan_meier_estimator(events, times)[1][-1]),
            "forest": lambda n: fit(RandomSurvivalForest(n, max_features="sqrt", random_state=0, **leaves)),
            "boosting": lambda n, max_depth: fit(
                GradientBoostingSurvivalAnalysis(n_estimators=n, max_depth=max_depth, random_state=0)
            ),
        }
    )


if __name__ == "__main__":
    main(sys.argv[1])
