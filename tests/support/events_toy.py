"""A method on tensors of events in few lines, and the files of a study that uses it, for tests of studies."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from multicentre.core.messages import Message, array, number, texts
from multicentre.core.noise_plan import Noise, Plan, Planned
from multicentre.core.steps import Release, SitePart, step
from multicentre.data import EventTensor
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.registry import Registered
from multicentre.privacy.conversions import rho_of_epsilon

TOY = Registered("support.events_toy:FedCodeShares")
CODES = {
    "procedure": ("icd9cm-proc:3891", "icd9cm-proc:9604", "icd9cm-proc:9671"),
    "diagnosis": ("icd9cm-dx:0389", "icd9cm-dx:4280", "icd9cm-dx:5849"),
}


@dataclass(frozen=True)
class Codes(Message):
    """Codes to sum over."""

    codes: dict = texts("codes of every mode", keyed=True)


@dataclass(frozen=True)
class CodeSum(Release):
    """Sums over patients, each of whom moves a sum by at most one."""

    total: np.ndarray = array(
        "sum of the patients' codes, each of norm at most 1", ("c",), bound=2.0**22, sensitivity=1.0
    )
    patients_counted: float = number("patients", bound=2.0**22, sensitivity=1.0)


def clip(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)


def count_codes(tensor):
    """Return how often every patient has every code, modes side by side."""
    rows = np.zeros((len(tensor), sum(tensor.shape[1:])))
    for axis, border in enumerate(np.cumsum([0, *tensor.shape[1:-1]]), start=1):
        np.add.at(rows, (tensor.coordinates[:, 0], tensor.coordinates[:, axis] + border), tensor.counts)
    return rows


class CodeSumSite(SitePart):
    """Holds events."""

    method = "toy-events"
    holds = EventTensor

    @step(releases=CodeSum, when="once", summed=True)
    def sum_codes(self, request: Codes) -> CodeSum:
        """Sum the patients' codes."""
        rows = clip(count_codes(self.data.align(request.codes)))
        return CodeSum(rows.sum(axis=0), float(len(rows)), patients=len(rows))


class FedCodeShares(FederatedEstimator):
    """The mean of the patients' clipped counts of codes."""

    site_part = CodeSumSite
    metrics: ClassVar = {"error": Metric("error", "lower", "", "mean absolute distance to the mean")}

    def __init__(self, codes=None, epsilon=None):
        self.codes = codes
        self.epsilon = epsilon

    def privacy_plan(self):
        if self.epsilon is None:
            return None
        multiplier = rho_of_epsilon(self.epsilon, 1e-5) ** -0.5
        noise = Noise("gaussian", {"total": multiplier, "patients_counted": multiplier})
        return Plan((Planned(CodeSumSite.sum_codes, noise, 1),), 1e-5)

    def _fit(self, federation):
        asked = Codes({mode: tuple(names) for mode, names in (self.codes or CODES).items()})
        sums = federation.once("sums", CodeSum, lambda: federation.sum(CodeSumSite.sum_codes, asked))
        self.codes_, self.mean_, self.history_ = asked.codes, sums.total / sums.patients_counted, [{"round": 1}]

    def _state(self):
        return {"mean": self.mean_}, {}

    def _restore(self, arrays, facts):
        self.mean_ = arrays["mean"]

    def assess(self, data, labels=None, *, training=None, training_labels=None):
        rows = clip(count_codes(data.align(self.codes_)))
        metrics = {"error": float(np.abs(rows - self.mean_).mean()), "patients": float(len(data))}
        return metrics | ({} if labels is None else {"cases": float(labels.count("1"))})


STUDY = """\
[study]
name = "Intensive care"
method = "toy-events"
seed = 5

[data]
label_column = "died"

[data.events]
modes = {procedure = "icd9cm-proc", diagnosis = ["icd9cm-dx"]}
window_days = 30
patient = "subject"

[sites.lyon]
events = "site-0/events.csv"
outcomes = "site-0/outcomes.csv"

[sites.oslo]
events = "site-1/events.csv"
outcomes = "site-1/outcomes.csv"

[sites.porto]
events = "site-2/events.csv"
outcomes = "site-2/outcomes.csv"
"""


def write_events(folder: Path, sizes=(40, 30, 35)) -> None:
    """Write events and outcomes of every site; the first lacks a diagnosis that the others have."""
    random = np.random.default_rng(3)
    for number_, n in enumerate(sizes):
        site = folder / f"site-{number_}"
        site.mkdir(parents=True)
        drawn = [
            (row, random.integers(1, 29), name)
            for row in range(n)
            for mode, names in CODES.items()
            for name in random.choice(names[: 3 if number_ or mode == "procedure" else 2], random.integers(1, 4))
        ]
        events = [f"0{number_}{row:02d},2020-01-{day:02d},{name.replace(':', ',')}" for row, day, name in drawn]
        (site / "events.csv").write_text("\n".join(["subject,date,system,code", *events]) + "\n", encoding="utf-8")
        outcomes = [f"0{number_}{row:02d},{int(row % 3 == 0)}" for row in range(n)]
        (site / "outcomes.csv").write_text("\n".join(["subject,died", *outcomes]) + "\n", encoding="utf-8")


def write_study(folder: Path, text: str = STUDY) -> Path:
    """Write the files of a study and return the study's path."""
    write_events(folder)
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def random_events(n=40, n_codes=(4, 5), seed=0, **options) -> EventTensor:
    """Return a tensor with a handful of entries a patient."""
    random = np.random.default_rng(seed)
    cells = {(row, *(int(random.integers(size)) for size in n_codes)) for row in range(n) for _ in range(4)}
    codes = {f"mode-{axis}": [f"m{axis}:{code:02d}" for code in range(size)] for axis, size in enumerate(n_codes)}
    given = {"n_patients": n, "ids": range(n), "outcomes": random.integers(0, 2, n)} | options
    return EventTensor(sorted(cells), random.integers(1, 6, len(cells)), codes, **given)
