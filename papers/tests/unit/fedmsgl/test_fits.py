"""Fits of stand-ins: who gets which data, and that clusters come back in the order of the patients."""

import dataclasses

import numpy as np
import pytest

from multicentre.datasets import simulate_views
from multicentre.errors import DataError
from multicentre_papers.fedmsgl import fits
from multicentre_papers.fedmsgl.contenders import Contender
from multicentre_papers.fedmsgl.plan import QUICK

DRAWN = simulate_views(40, 2, (6, 5), noise=0.1, random_state=3)
TRUTH = dict(zip(DRAWN.data.ids.tolist(), DRAWN.labels.tolist(), strict=True))


class Knowing:
    """A model that was told the groups, and has patients in an order of its own."""

    def __init__(self, seed):
        self.seed, self.seen = seed, None

    def fit(self, seen):
        self.seen = seen
        self.order = sorted(TRUTH, key=lambda one: int(one) * 17 % 41)
        self.labels_ = np.array([int(TRUTH[one] == "cluster_2") for one in self.order])
        self.embedding_ = np.eye(2)[self.labels_] + 1e-3 * np.arange(40)[:, None]
        return self

    def labels_for(self, ids):
        return np.array([self.labels_[self.order.index(one)] for one in ids])

    def predict(self, data):
        return np.array([int(TRUTH[one] == "cluster_2") for one in data.ids.tolist()])


class Pooled(Knowing):
    def fit(self, seen):
        super().fit(seen)
        self.labels_ = self.predict(DRAWN.data)
        return self


class Failing(Knowing):
    def fit(self, seen):
        raise DataError("too few patients", where="here", hint="More.")


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    """Hand sites' data straight to the stand-ins."""
    monkeypatch.setattr(fits, "fit", lambda model, sites: model.fit(sites))


def ran(kind, sharing, plan=QUICK, n_runs=2, **facts):
    made = []

    def make(n_clusters, settings, seed):
        assert n_clusters == 2
        made.append(kind(seed))
        return made[-1]

    contender = Contender("stand-in", make, sharing, **facts)
    return fits.runs(contender, DRAWN, {}, range(n_runs), plan), made


def test_vertical_methods_get_views_and_horizontal_ones_patients():
    rows, made = ran(Knowing, "views")
    assert list(made[0].seen) == ["view_1", "view_2"]
    assert [model.seed for model in made] == [0, 1]
    assert [row["acc"] for row in rows] == [1.0, 1.0]
    rows, made = ran(Knowing, "patients")
    assert [(len(site), site.views) for site in made[0].seen.values()] == [(8, ("view_1", "view_2"))] * 5
    assert [row["acc"] for row in rows] == [1.0, 1.0]


def test_pooled_methods_get_all_views_or_one_at_a_time():
    rows, made = ran(Pooled, "nothing")
    assert made[0].seen is DRAWN.data
    assert rows[0]["nmi"] == 1.0
    rows, made = ran(Pooled, "nothing, each view")
    assert list(made[0].seen) == ["view_2"]
    assert rows[0]["n_found"] == 2.0


def test_each_view_alone_is_scored_and_the_scores_averaged():
    class Half(Pooled):
        def fit(self, seen):
            super().fit(seen)
            self.labels_ = self.labels_ if "view_1" in seen else np.zeros(40, dtype=int)
            return self

    (row,) = ran(Half, "nothing, each view", n_runs=1)[0]
    assert row["acc"] == 0.75
    assert row["n_found"] == 1.5


def test_above_a_size_runs_of_our_own_share_a_fit_and_keep_the_order_of_patients():
    large = dataclasses.replace(QUICK, small=39)
    rows, made = ran(Knowing, "views", large, 3, ours=True)
    assert len(made) == 1
    assert [row["acc"] for row in rows] == [1.0, 1.0, 1.0]
    assert len(ran(Knowing, "views", QUICK, 3, ours=True)[1]) == 3
    assert len(ran(Knowing, "views", large, 3)[1]) == 3


def test_a_method_that_cannot_be_run_says_why():
    (row,), _ = ran(Failing, "nothing")
    assert "too few patients" in row["skipped"]
    assert "acc" not in row


def test_patients_who_were_not_clustered_are_not_counted():
    found = np.where(np.arange(40) < 30, (DRAWN.labels == "cluster_2").astype(int), -1)
    figures = fits.match(DRAWN, found)
    assert (figures["acc"], figures["n_found"]) == (1.0, 2)
