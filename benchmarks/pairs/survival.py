"""Survival methods beside lifelines and scikit-survival on the pooled patients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from pairing import Pair, Pairs, Way
from peers.process import Peer

import multicentre as mc
from multicentre_papers import baselines
from pairs.sites import N_SITES, divide, fit

N_COLUMNS, N_NEW = 10, 1_000
GPL = "scikit-survival"
survival = mc.survival


def pairs(quick: bool) -> Pairs:
    """Yield curves and Cox models of many patients, then trees of fewer."""
    n = 1_000 if quick else 20_000
    with Patients(n) as patients:
        yield curves(patients)
        yield cox(patients)
    # scikit-survival's trees take time in proportion to patients times distinct times.
    n, n_trees = (400, 5) if quick else (2_000, 50)
    with Patients(n) as patients:
        yield forests(patients, n_trees)
        yield boosting(patients, n_trees)


class Patients(Peer):
    """Simulated patients, the sites that hold them, and new patients; scikit-survival's process has the same."""

    def __init__(self, n: int) -> None:
        everyone = mc.datasets.simulate_survival(n + N_NEW, N_COLUMNS, 0)
        self.data, self.new = everyone.take(np.arange(n)), everyone.take(np.arange(n, n + N_NEW))
        self.sites = divide(self.data)
        self.text = f"{n:,} patients, {N_COLUMNS} columns, {N_SITES} sites"
        super().__init__(
            "scikit_survival.py",
            X=self.data.X,
            times=self.data.time,
            events=self.data.event,
            new_X=self.new.X,
            new_times=self.new.time,
            new_events=self.new.event,
        )

    def ways(self, make: Callable[[], Any]) -> list[Way]:
        """Return the unmasked and the masked fit of an estimator."""
        return [
            Way("unmasked", lambda: fit(make(), self.sites, masked=False)),
            Way("masked", lambda: fit(make(), self.sites, masked=True)),
        ]

    def gpl(self, task: str, *arguments: Any, name: str = GPL) -> Way:
        """Return scikit-survival's way."""
        return Way(name, lambda: self.run(task, *arguments), "sksurv")

    def frame(self) -> pd.DataFrame:
        """Return the patients as lifelines receives them."""
        frame = pd.DataFrame(self.data.X, columns=list(self.data.columns))
        return frame.assign(time=self.data.time, event=self.data.event)


def cox(patients: Patients) -> Pair:
    """Pair the Cox model of one shared baseline, which all ways fit to the same times."""
    frame = patients.frame()

    def lifelines() -> list[float]:
        from lifelines import CoxPHFitter

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(CoxPHFitter().fit(frame, "time", "event").params_)

    def compare(ours: Any, peer: list[float]) -> dict[str, float]:
        return {"largest difference, standard errors": np.max(np.abs(ours.coef_ - peer) / ours.standard_errors_)}

    return Pair(
        "Cox regression",
        patients.text,
        patients.ways(lambda: survival.FedCox("exact")),
        [Way("lifelines", lifelines, "lifelines"), patients.gpl("cox")],
        compare,
    )


def curves(patients: Patients) -> Pair:
    """Pair Kaplan-Meier curves; ours has the times of a grid."""

    def lifelines() -> Any:
        from lifelines import KaplanMeierFitter

        return KaplanMeierFitter().fit(patients.data.time, patients.data.event)

    return Pair(
        "Kaplan-Meier curve",
        patients.text,
        patients.ways(survival.KaplanMeier),
        [Way("lifelines", lifelines, "lifelines"), patients.gpl("kaplan-meier")],
    )


def forests(patients: Patients, n_trees: int) -> Pair:
    """Pair forests of the same number of trees and the same leaves."""
    rsf, surf = (patients.ways(lambda kind=kind: kind(n_trees)) for kind in (survival.FedRSF, baselines.FedSurF))
    ours = [Way(f"{kind}, {way.name}", way.run) for kind, ways in (("FedRSF", rsf), ("FedSurF", surf)) for way in ways]
    return Pair(
        f"Survival forest, {n_trees} trees",
        patients.text,
        ours,
        [patients.gpl("forest", n_trees, name=f"{GPL}, RandomSurvivalForest")],
        concordances(patients),
    )


def boosting(patients: Patients, n_trees: int) -> Pair:
    """Pair boosted hazards, and FedSurvBoost, with gradient boosting."""
    hazard = patients.ways(lambda: survival.FedHazardBoost(n_trees, early_stopping=False))
    boost = patients.ways(lambda: survival.FedSurvBoost("tree", n_estimators=max(2, n_trees // 2)))
    ours = [
        Way(f"{kind}, {way.name}", way.run)
        for kind, ways in (("FedHazardBoost", hazard), ("FedSurvBoost", boost))
        for way in ways
    ]
    return Pair(
        f"Boosting, {n_trees} trees of depth 2 (FedSurvBoost: {max(2, n_trees // 2)} rounds)",
        patients.text,
        ours,
        [patients.gpl("boosting", n_trees, 2, name=f"{GPL}, GradientBoostingSurvivalAnalysis")],
        concordances(patients),
    )


def concordances(patients: Patients) -> Callable[[Any, float], dict[str, float]]:
    """Return a comparison of concordances on new patients."""
    return lambda ours, peer: {"concordance, ours": ours.score(patients.new), "concordance, peer": peer}
