"""Methods on times to an event in few lines, and the files of a study that uses one, for tests of studies."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from multicentre.core.messages import Nothing, array, number
from multicentre.core.noise_plan import Noise, Plan, Planned
from multicentre.core.steps import Release, SitePart, step
from multicentre.data import SurvivalData
from multicentre.datasets import simulate_survival
from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.registry import Registered
from multicentre.privacy.conversions import rho_of_epsilon
from multicentre.survival.agreement.rounds import Needs, agree
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.estimator import SurvivalEstimator
from multicentre.survival.fitted_models.cox import CoxModel
from multicentre.survival.times import nelson_aalen

TOY = Registered("support.survival_toy:FedMeanDifference")


@dataclass(frozen=True)
class Tables(Release):
    """Events and departures by bin, and the columns of those with an event."""

    events: np.ndarray = array("events by bin", ("K",), unit="patients", bound=2.0**24)
    leaving: np.ndarray = array("patients by bin of their time", ("e",), unit="patients", bound=2.0**24)
    with_event: np.ndarray = array("sum of scaled columns over patients with an event", ("d",), bound=2.0**24)


class TablesSite(SurvivalPart):
    """Holds times to an event."""

    method = "toy-survival"

    @step(releases=Tables, when="once", summed=True)
    def sum_tables(self, request: Nothing) -> Tables:
        """Count by bin, and sum the columns of those with an event."""
        patients = self.patients
        n_times = len(self.agreed.times)
        events = np.bincount(patients.bins[patients.happened], minlength=n_times)[:n_times].astype(float)
        leaving = np.bincount(patients.bins, minlength=n_times + 1).astype(float)
        total = patients.standardised[patients.happened].sum(axis=0)
        return Tables(events, leaving, total, patients=self.behind(np.concatenate([events, leaving])))


class FedMeanDifference(SurvivalEstimator):
    """Proportional hazards whose log ratios are the mean scaled columns of those with an event."""

    site_part = TablesSite

    def __init__(self, n_times=8):
        self.n_times = n_times

    def _fit(self, federation):
        agreement = agree(federation, TablesSite, Needs(n_times=self.n_times), "mean")
        self.agreed_, self.missing_values_ = agreement.agreed, agreement.missing
        sums = federation.once("tables", Tables, lambda: federation.sum(TablesSite.sum_tables, Nothing()))
        at_risk = sums.leaving[::-1].cumsum()[::-1][:-1]
        self.model_ = CoxModel(
            self.agreed_.times,
            sums.with_event / max(sums.events.sum(), 1.0) / self.agreed_.spread,
            self.agreed_.centre,
            nelson_aalen(sums.events, np.maximum(at_risk, sums.events)),
            patients=0,
        )
        self.history_ = [{"round": 1}]


@dataclass(frozen=True)
class ColumnSum(Release):
    """A sum over patients, each of whom moves it by at most one."""

    total: np.ndarray = array("sum of clipped columns", ("d",), bound=2.0**22, sensitivity=1.0)
    patients_counted: float = number("patients", bound=2.0**22, sensitivity=1.0)


class PrivateSite(SitePart):
    """Holds times to an event."""

    method = "toy-private-survival"
    holds = SurvivalData

    @step(releases=ColumnSum, when="once", summed=True)
    def sum_columns(self, request: Nothing) -> ColumnSum:
        """Sum columns and times of the patients, each clipped to norm 1."""
        rows = np.column_stack([np.nan_to_num(self.data.X), self.data.time])
        clipped = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        return ColumnSum(clipped.sum(axis=0), float(len(rows)), patients=len(rows))


class FedPrivateMean(FederatedEstimator):
    """The mean of clipped columns and times, with noise."""

    site_part = PrivateSite

    def __init__(self, epsilon=2.0):
        self.epsilon = epsilon

    def privacy_plan(self):
        multiplier = rho_of_epsilon(self.epsilon, 1e-5) ** -0.5
        noise = Noise("gaussian", {"total": multiplier, "patients_counted": multiplier})
        return Plan((Planned(PrivateSite.sum_columns, noise, 1),), 1e-5)

    def _fit(self, federation):
        sums = federation.once("sums", ColumnSum, lambda: federation.sum(PrivateSite.sum_columns, Nothing()))
        self.mean_, self.history_ = sums.total / sums.patients_counted, [{"round": 1}]

    def _state(self):
        return {"mean": self.mean_}, {}

    def _restore(self, arrays, facts):
        self.mean_ = arrays["mean"]

    def assess(self, data, labels=None, *, training=None, training_labels=None):
        return {}


STUDY = """\
[study]
name = "Breast cancer"
method = "toy-survival"
seed = 5

[data]
id_column = "patient"

[data.survival]
time = "months"
event = "died"
unit = "months"
columns = ["age", "grade", "size"]
categories = {grade = ["I", "II"]}
references = {grade = "I"}

[sites.lyon]
file = "lyon.csv"

[sites.oslo]
file = "oslo.csv"

[sites.porto]
file = "porto.csv"
"""


def write_study(folder: Path, text: str = STUDY, n: int = 80) -> Path:
    """Write the files of a study and return the study's path."""
    for seed, site in enumerate(("lyon", "oslo", "porto")):
        data = simulate_survival(n, 3, seed)
        frame = pd.DataFrame(
            {
                "patient": [f"0{row}" for row in range(n)],
                "age": 60 + 8 * data.X[:, 0],
                "grade": np.where(data.X[:, 2] > 0, "II", "I"),
                "size": data.X[:, 1],
                "months": data.time,
                "died": data.event,
                "note": "free text",
            }
        )
        frame.to_csv(folder / f"{site}.csv", index=False)
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path
