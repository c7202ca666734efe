"""A method whose one release is clipped and noised: the mean of rows of norm at most 1, under differential privacy."""

from dataclasses import dataclass

import numpy as np

import multicentre as mc
from multicentre.core.messages import Nothing, array, number
from multicentre.core.noise_plan import Noise, Plan, Planned
from multicentre.core.steps import Release, SitePart, step
from multicentre.estimator.base import FederatedEstimator
from multicentre.privacy.conversions import rho_of_epsilon

PATIENTS = 2.0**22


@dataclass(frozen=True)
class ClippedSum(Release):
    """Sums over patients, each of whom moves a sum by at most one."""

    total: np.ndarray = array("sum of the rows, each of norm at most 1", ("d",), bound=PATIENTS, sensitivity=1.0)
    patients_counted: float = number("patients", bound=PATIENTS, sensitivity=1.0)


def clip(rows):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        return rows / np.maximum(norms, 1.0)


class ClippedSite(SitePart):
    """Holds rows."""

    method = "toy-private-mean"
    holds = np.ndarray

    @step(releases=ClippedSum, when="once", summed=True)
    def clipped_sum(self, request: Nothing) -> ClippedSum:
        """Sum rows of norm at most 1."""
        return ClippedSum(clip(np.asarray(self.data)).sum(axis=0), float(len(self.data)), patients=len(self.data))

    @step(releases=ClippedSum, when="once")
    def clipped_rows(self, request: Nothing) -> ClippedSum:
        """Tell the same sum of this site alone."""
        return ClippedSum(clip(np.asarray(self.data)).sum(axis=0), float(len(self.data)), patients=len(self.data))


class PrivateMean(FederatedEstimator):
    """The mean of clipped rows."""

    site_part = ClippedSite

    def __init__(self, epsilon=None, delta=1e-5, times=1):
        self.epsilon = epsilon
        self.delta = delta
        self.times = times

    def privacy_plan(self):
        if self.epsilon is None:
            return None
        return plan_of(rho_of_epsilon(self.epsilon, self.delta), times=self.times, delta=self.delta)

    def _fit(self, federation):
        self.history_ = []
        for number_ in range(self.times):
            sums = federation.once(
                f"sums-{number_}", ClippedSum, lambda: federation.sum(ClippedSite.clipped_sum, Nothing())
            )
            self.mean_ = sums.total / sums.patients_counted
            self.sums_ = sums

    def _state(self):
        return {"mean": self.mean_}, {}

    def _restore(self, arrays, facts):
        self.mean_ = arrays["mean"]

    def assess(self, data, labels=None, *, training=None, training_labels=None):
        return {}


def plan_of(rho, *, times=1, delta=1e-5, step=ClippedSite.clipped_sum, mechanism="gaussian"):
    """Return a plan that spends rho, half on each field."""
    multiplier = (rho / times) ** -0.5
    return Plan((Planned(step, Noise(mechanism, {"total": multiplier, "patients_counted": multiplier}), times),), delta)


def private_sites(n_sites=3, rows=200, d=4, seed=0):
    random = np.random.default_rng(seed)
    return {f"site-{i}": random.standard_normal((rows, d)) + 0.3 for i in range(n_sites)}


def federate_privately(sites=None, **options):
    return mc.Federation.in_process(sites or private_sites(), **{"one_row_per_patient": True, **options})
