"""Integrated Brier score of federated survival methods and their mixtures, next to pooled peers.

Sections:

- report: METABRIC, SUPPORT (2500 patients), TCGA-BRCA, GBSG and Rotterdam, from the folder of data (``multicentre
  datasets``). Peers: Cox, random survival forest and gradient boosting of scikit-survival, and xgboost's Cox model.
- choose: data sets of SurvSet (``--folder``, its folder of pickles), on which defaults were chosen. No peers.

Federated methods are fitted over one site with exact sums: their fits are the same for any split of the patients. Every
method has the same training and test patients in a split, four fifths and one fifth.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from measuring import pin_threads, show, write_json
from sklearn.model_selection import train_test_split

import multicentre as mc
from multicentre.data.concatenate import concatenate
from multicentre.errors import MulticentreError
from multicentre.survival.learners.cohort import Cohort
from multicentre.survival.scores.brier import brier_times, integrated_brier_score
from multicentre.survival.times import at_times

Data = mc.data.SurvivalData
Curves = Callable[[np.ndarray, np.ndarray], np.ndarray]
OPEN = mc.Policy(min_patients=0)
MAX_PATIENTS = 2500
N_FOLDS = 5
# Sets of SurvSet on which the members of a stack, its shrinkage and the default weights were chosen.
CHOSEN_ON = (
    "pbc", "whas500", "uis", "colon", "follic", "prostate", "veteran", "actg", "LeukSurv", "TRACE", "smarto", "rhc",
    "dataOvarian1", "flchain", "Framingham",
)  # fmt: skip


def members() -> list[Any]:
    """Return the members of the stacks."""
    survival = mc.survival
    return [
        survival.FedCox("grid", alpha=1.0, missing="mean"),
        survival.FedRSF(min_samples_leaf=5),
        survival.FedHazardBoost(100, early_stopping=False),
    ]


def ours() -> dict[str, Callable[[mc.Federation], Any]]:
    """Return the federated methods by name."""
    survival, folds = mc.survival, mc.validation.HashGroupKFold(N_FOLDS)
    return {
        "FedCox": members()[0].fit,
        "FedRSF": survival.FedRSF().fit,
        "FedRSF, leaves of 5": members()[1].fit,
        "FedHazardBoost, 200 trees": survival.FedHazardBoost(early_stopping=False).fit,
        "FedHazardBoost": survival.FedHazardBoost().fit,
        "FedStack, equal": lambda federation: survival.FedStack([one.fit(federation) for one in members()]).fit(
            federation
        ),
        "FedStack, chosen": survival.FedStack(members(), weights="brier", cv=folds).fit,
    }


def fit_by_a_quarter(training: Data) -> Any:
    """Return a stack whose weights minimise the score of a held-out quarter, without penalty; members see all."""
    fitting, held_out = mc.survival.split_held_out({"all": training})

    def fits(data: Mapping[str, Data]) -> list[Any]:
        with mc.Federation.in_process(data, policy=OPEN, secure_sum=False) as federation:
            return [one.fit(federation) for one in members()]

    with mc.Federation.in_process(held_out, policy=OPEN, secure_sum=False) as federation:
        weights = mc.survival.FedStack(fits(fitting), weights="brier", shrinkage=0.0).fit(federation).weights_
    with mc.Federation.in_process({"all": training}, policy=OPEN, secure_sum=False) as federation:
        return mc.survival.FedStack(fits({"all": training}), weights=weights).fit(federation)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", choices=["report", "choose"])
    parser.add_argument("--folder", type=Path, help="pickles of SurvSet, for choose")
    parser.add_argument("--sets", nargs="*", help="data sets; all by default")
    parser.add_argument("--splits", type=int, default=5, help="training and test splits of every data set")
    parser.add_argument("--json", type=Path, help="also write the figures here, and continue from them")
    given = parser.parse_args()
    pin_threads()
    loaders = reported() if given.section == "report" else chosen_on(given.folder)
    peers = fit_peers if given.section == "report" else None
    rows: list[dict[str, Any]] = json.loads(given.json.read_text()) if given.json and given.json.exists() else []
    done = {(row["set"], row["split"]) for row in rows}
    for name, load in loaders.items():
        if given.sets and name not in given.sets:
            continue
        try:
            data = at_most(load())
        except MulticentreError as error:
            print(f"left out: {name}: {error}")
            continue
        for split in range(given.splits):
            if (name, split) not in done:
                rows += measure(name, data, split, peers)
                write_json(given.json, rows)
    report(rows)


def reported() -> dict[str, Callable[[], Data]]:
    """Return the loaders of the data sets on which figures are reported."""
    return {
        "METABRIC": mc.datasets.load_metabric,
        "SUPPORT": mc.datasets.load_support2,
        "TCGA-BRCA": lambda: concatenate(mc.datasets.load_tcga_brca()),
        "GBSG": lambda: mc.datasets.load_gbsg()["gbsg"],
        "Rotterdam": lambda: mc.datasets.load_gbsg()["rotterdam"],
    }


def chosen_on(folder: Path) -> dict[str, Callable[[], Data]]:
    """Return the loaders of data sets of SurvSet."""
    return {name: lambda name=name: from_pickle(folder / f"{name}.pickle") for name in CHOSEN_ON}


def from_pickle(path: Path) -> Data:
    """Return a data set of SurvSet: numbers with missing entries filled, and a column per level of five patients."""
    table = pd.read_pickle(path)  # noqa: S301  # files of a package that the user installed
    columns = [pd.to_numeric(table[name]).astype(float) for name in table if name.startswith("num_")]
    for name in (name for name in table if name.startswith("fac_")):
        levels = pd.get_dummies(table[name].astype(str), prefix=name, dtype=float)
        levels = levels.iloc[:, 1:] if levels.shape[1] == 2 else levels
        columns += [levels[level] for level in levels if levels[level].sum() >= 5]
    X = pd.concat(columns, axis=1)
    used = (table["time"] > 0).to_numpy()
    X = X[used].fillna(X.mean())
    X = X.loc[:, X.nunique() > 1]
    return Data(X.to_numpy(), table["time"][used].to_numpy(float), table["event"][used].to_numpy(int))


def at_most(data: Data) -> Data:
    """Return at most 2500 patients, drawn with a fixed seed, with an identifier each."""
    if len(data) > MAX_PATIENTS:
        data = data.take(np.sort(np.random.default_rng(0).choice(len(data), MAX_PATIENTS, replace=False)))
    data = data.take(np.flatnonzero(data.time > 0))
    return data.with_identifier([f"p{row}" for row in range(len(data))])


def measure(
    name: str, data: Data, split: int, peers: Callable[[Data], Mapping[str, Curves]] | None
) -> list[dict[str, Any]]:
    """Return the integrated Brier score of every method on one split."""
    kept, held = train_test_split(np.arange(len(data)), test_size=0.2, random_state=split, stratify=data.event > 0)
    training, test = data.take(np.sort(kept)), data.take(np.sort(held))
    curves: dict[str, Curves] = {}
    seconds: dict[str, float] = {}
    horizon, mean = np.inf, np.nan_to_num(np.nanmean(training.X, axis=0))
    for method, fit in ours().items():
        began = time.process_time()
        with mc.Federation.in_process({"all": training}, policy=OPEN, secure_sum=False) as federation:
            fitted = fit(federation)
        seconds[method], horizon = time.process_time() - began, min(horizon, float(fitted.times_[-1]))
        curves[method] = lambda X, times, model=fitted.model_: at_times(model.survival(X), model.times, times)
    quarter = fit_by_a_quarter(training).model_
    curves["FedStack, by a quarter"] = lambda X, times: at_times(quarter.survival(X), quarter.times, times)
    filled = Data(np.where(np.isnan(training.X), mean, training.X), training.time, training.event)
    if peers is not None:
        began = time.process_time()
        fits = peers(filled)
        curves |= fits
        seconds |= dict.fromkeys(fits, (time.process_time() - began) / len(fits))
    times = brier_times(test.time, training.time, training.event == 1, horizon)
    outcomes = test.time, test.event == 1, training.time, training.event == 1
    X = np.where(np.isnan(test.X), mean, test.X)
    print(name, split, {method: round(value, 1) for method, value in seconds.items()}, flush=True)
    return [
        {"set": name, "split": split, "method": method, "ibs": integrated_brier_score(of(X, times), times, *outcomes)}
        for method, of in curves.items()
    ]


def fit_peers(data: Data) -> dict[str, Curves]:
    """Return the curves of pooled peers: packages' defaults, and for forests and boosting a second setting."""
    import xgboost
    from sksurv.ensemble import GradientBoostingSurvivalAnalysis, RandomSurvivalForest
    from sksurv.linear_model import CoxPHSurvivalAnalysis
    from sksurv.util import Surv

    y = Surv.from_arrays(data.event == 1, data.time)
    slow = {"n_estimators": 200, "learning_rate": 0.05, "max_depth": 2, "subsample": 0.5}
    peers = {
        "Cox (scikit-survival)": CoxPHSurvivalAnalysis(alpha=1.0),
        "forest (scikit-survival)": RandomSurvivalForest(random_state=0),
        "forest, leaves of 15 (scikit-survival)": RandomSurvivalForest(min_samples_leaf=15, random_state=0),
        "boosting (scikit-survival)": GradientBoostingSurvivalAnalysis(random_state=0),
        "boosting, slow (scikit-survival)": GradientBoostingSurvivalAnalysis(random_state=0, **slow),
    }
    curves: dict[str, Curves] = {}
    for name, peer in peers.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = peer.fit(data.X, y)
        curves[name] = lambda X, times, fitted=fitted: np.array(
            [curve(np.clip(times, *curve.domain)) for curve in fitted.predict_survival_function(X)]
        )
    labels = np.where(data.event == 1, data.time, -data.time)
    parameters = {"objective": "survival:cox", "eta": 0.05, "max_depth": 3, "subsample": 0.7, "nthread": 1, "seed": 0}
    booster = xgboost.train(parameters, xgboost.DMatrix(data.X, labels), 100)
    curves["xgboost"] = breslow(booster, data, xgboost.DMatrix)
    return curves


def breslow(booster: Any, data: Data, matrix: Callable[[np.ndarray], Any]) -> Curves:
    """Return the curves of a boosted Cox model, with Breslow's baseline hazard of the training patients."""
    log_risk = booster.predict(matrix(data.X), output_margin=True).astype(float)
    cohort = Cohort.of(log_risk[:, None], data.time, data.event == 1, np.ones(len(data)))

    def curves(X: np.ndarray, times: np.ndarray) -> np.ndarray:
        baseline = cohort.baseline(cohort.rows[:, 0], times)
        risk = booster.predict(matrix(X), output_margin=True).astype(float)
        return np.exp(-np.exp(risk)[:, None] * baseline)

    return curves


def report(rows: list[dict[str, Any]]) -> None:
    """Print the mean score of every method by data set, and its difference from the chosen stack."""
    table = pd.DataFrame(rows).pivot_table(index="method", columns=["set", "split"], values="ibs", sort=False)
    by_set = table.T.groupby(level=0, sort=False).mean().T
    cells = []
    for method in table.index:
        texts = []
        for best in ("FedStack, equal", "FedStack, chosen"):
            gains = table.loc[method] - table.loc[best]
            of_sets = gains.groupby(level=0).mean()
            error = gains.std() / len(gains) ** 0.5
            texts.append(f"{gains.mean():+.4f} ± {error:.4f}, {(gains > 0).sum()}/{len(gains)}, {(of_sets > 0).sum()}")
        means = [f"{value:.4f}" for value in (*by_set.loc[method], by_set.loc[method].mean())]
        cells.append([method, *means, *texts])
    headings = ["method", *by_set.columns, "mean", "minus equal stack ± SE, splits, sets", "minus chosen stack"]
    show("Integrated Brier score on held-out patients (lower is better)", headings, cells)


if __name__ == "__main__":
    main()
