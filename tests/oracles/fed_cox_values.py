"""Write fed_cox_values.json: what lifelines and statsmodels find on the pooled data of test_fed_cox.py.

Run as ``python tests/oracles/fed_cox_values.py`` where both are installed; the tests read the file alone.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".json")
N_SITES = 3


def draw(*, ties):
    """Return columns, times, events and sites of 240 patients; with ties, times in tenths."""
    rng = np.random.default_rng(7)
    site = rng.integers(N_SITES, size=240)
    X = rng.normal(size=(240, 3)) * [1.0, 5.0, 0.2] + [0.0, 60.0, 1.0]
    X[:, 0] = X[:, 0] > 0.3
    hazard = 0.6 * X[:, 0] + 0.05 * (X[:, 1] - 60.0) - 1.5 * (X[:, 2] - 1.0) + 0.4 * site
    time = rng.exponential(np.exp(-hazard)) ** 0.8
    end = rng.uniform(0.3, 3.0, size=240)
    followed = np.minimum(time, end)
    return X, np.ceil(10 * followed) / 10 if ties else followed, (time <= end).astype(int), site


def main() -> None:
    import pandas as pd
    from lifelines import CoxPHFitter
    from lifelines.statistics import proportional_hazard_test
    from statsmodels.duration.hazard_regression import PHReg

    found = {"versions": {name: version(name) for name in ("lifelines", "statsmodels")}}
    for name, ties in (("continuous", False), ("tied", True)):
        X, time, event, site = draw(ties=ties)
        frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(time=time, event=event, site=site)
        exact = {"precision": 1e-14}
        alone = frame.drop(columns="site")
        pooled = CoxPHFitter().fit(alone, "time", "event", fit_options=exact)
        robust = CoxPHFitter().fit(alone, "time", "event", robust=True, fit_options=exact)
        strata = CoxPHFitter().fit(frame, "time", "event", strata=["site"], fit_options=exact)
        tests = {
            transform: proportional_hazard_test(pooled, alone, time_transform=transform).test_statistic.tolist()
            for transform in ("identity", "rank", "log")
        }
        breslow = PHReg(time, X, status=event, ties="breslow").fit(disp=0)
        efron = PHReg(time, X, status=event, ties="efron", strata=site).fit(disp=0)
        found[name] = {
            "coefficients": pooled.params_.tolist(),
            "errors": pooled.standard_errors_.tolist(),
            "log_likelihood": pooled.log_likelihood_,
            "likelihood_ratio": pooled.log_likelihood_ratio_test().test_statistic,
            "robust_errors": robust.standard_errors_.tolist(),
            "proportionality": tests,
            "stratified": strata.params_.tolist(),
            "stratified_errors": strata.standard_errors_.tolist(),
            "breslow": breslow.params.tolist(),
            "breslow_errors": breslow.bse.tolist(),
            "statsmodels_stratified": efron.params.tolist(),
        }
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
