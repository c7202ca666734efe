"""A method on multi-view data in few lines, and the files of a study that uses it, for tests of studies."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from multicentre.core.messages import Message, arrays, count
from multicentre.core.steps import Release, SitePart, step
from multicentre.data import MultiViewData
from multicentre.errors import DataError
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Table
from multicentre.estimator.registry import Registered

TOY = Registered("support.studies_toy:FedViewMeans")


@dataclass(frozen=True)
class Guess(Message):
    """Where the coordinator stands."""

    means: dict = arrays("mean of each column", ("d",))


@dataclass(frozen=True)
class Calls(Message):
    """What a site remembers, so that a resume that forgot it would show."""

    calls: int = count("how often the site was asked")


@dataclass(frozen=True)
class Residuals(Release):
    """Sums over the patients of a site."""

    total: dict = arrays("sum of the residuals", ("d",), bound=2.0**36)
    n: dict = count("patients", keyed=True)


class ViewMeansSite(SitePart):
    """Holds views."""

    method = "toy"
    holds = MultiViewData
    remembers = Calls

    @step(releases=Residuals, when="every round", summed=True)
    def residuals(self, request: Guess) -> Residuals:
        """Add up the residuals."""
        calls = self.state.calls if self.state else 0
        self.state = Calls(calls + 1)
        total, n = {}, {}
        for view, mean in request.means.items():
            has = view in self.data.views
            total[view] = np.nansum(self.data.array(view) - mean, axis=0) * 0.9**calls if has else 0.0 * mean
            n[view] = self.data.n_patients_by_view[view] if has else 0
        return Residuals(total, n, patients=n)


class FedViewMeans(FederatedEstimator):
    """Walks towards the mean of every view."""

    site_part = ViewMeansSite
    metrics: ClassVar = {"error": Metric("error", "lower", "units", "mean absolute distance to the mean")}

    def __init__(self, views=("a", "b"), n_columns=2, n_rounds=5, random_state=0):
        self.views = views
        self.n_columns = n_columns
        self.n_rounds = n_rounds
        self.random_state = random_state

    def _fit(self, federation):
        rounds = federation.rounds(
            self.n_rounds, Guess, lambda: Guess({view: np.zeros(self.n_columns) for view in self.views})
        )
        for _ in rounds:
            sums = federation.sum(ViewMeansSite.residuals, rounds.state)
            missing = [view for view in self.views if sums.n[view] == 0]
            if missing:
                raise DataError(f"no site has the view {missing[0]}")
            rounds.state = Guess({v: rounds.state.means[v] + 0.5 * sums.total[v] / sums.n[v] for v in self.views})
            rounds.record(first=rounds.state.means[self.views[0]][0])
        self.means_ = rounds.state.means
        self.history_ = rounds.history

    def _state(self):
        return dict(self.means_), {"views": list(self.views)}

    def _restore(self, arrays, facts):
        self.means_ = dict(arrays)

    def assess(self, data, labels=None, *, training=None, training_labels=None):
        parts = {f"error/{v}": float(np.nanmean(np.abs(data.array(v) - self.means_[v]))) for v in self.views}
        return {"error": float(np.mean(list(parts.values()))), "undescribed": 1.0, **parts}

    def figures(self, sites, labels):
        groups = sorted({group for each in labels.values() for group in each})
        return [Table("Groups", "Groups of the run.", "data", ["group"], [[group] for group in groups])]


class Interrupts:
    """A listener that presses Ctrl-C after a round of a fit."""

    def __init__(self, round_number, fit="fit"):
        self.round_number = round_number
        self.fit = fit
        self.heard = []

    def rounds_began(self, name, n_rounds, done):
        self.heard.append((name, done))

    def round_ended(self, name, number, metrics):
        if name == self.fit and number == self.round_number:
            raise KeyboardInterrupt

    def rounds_ended(self, name, number):
        pass

    def site_lost(self, site, reason):
        self.heard.append((site, reason))

    def sites_left_out(self, reasons):
        self.heard += reasons.items()


def write_sites(folder: Path, sizes=(40, 30, 35)) -> None:
    """Write a CSV file a view and site; the last site lacks view b, and some patients of the first do."""
    random = np.random.default_rng(3)
    for number, n in enumerate(sizes):
        site = folder / f"site-{number}"
        site.mkdir(parents=True)
        values = random.normal(number, 1.0, (n, 4))
        ids = [f"{number}{row:03d}" for row in range(n)]
        a = [f"{one},{x!r},{y!r},{'case' if j % 3 else 'control'}" for j, (one, (x, y)) in _rows(ids, values[:, :2])]
        b = [f"{one},{x!r},{y!r}" for j, (one, (x, y)) in _rows(ids, values[:, 2:]) if number or j >= 12]
        (site / "a.csv").write_text("\n".join(["patient,x,y,group", *a]) + "\n", encoding="utf-8")
        if number < len(sizes) - 1:
            (site / "b.csv").write_text("\n".join(["patient,u,v", *b]) + "\n", encoding="utf-8")


def _rows(ids, values):
    return enumerate(zip(ids, values.tolist(), strict=True))


STUDY = """\
[study]
name = "Ward 7"
method = "toy"
seed = 5

[parameters]
n_rounds = 6

[data]
id_column = "patient"
label_column = "group"

[sites.lyon]
a = "site-0/a.csv"
b = "site-0/b.csv"

[sites.oslo]
a = "site-1/a.csv"
b = "site-1/b.csv"

[sites.porto]
a = "site-2/a.csv"
"""


def write_study(folder: Path, text: str = STUDY) -> Path:
    """Write the files of a study and return the study's path."""
    write_sites(folder)
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path
