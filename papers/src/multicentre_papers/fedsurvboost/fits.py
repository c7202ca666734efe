"""Fits over simulated sites, with settings selected on training patients only."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from multicentre import survival
from multicentre.data.concatenate import concatenate
from multicentre.data.survival import SurvivalData
from multicentre.errors import MulticentreError
from multicentre.federation import Federation
from multicentre.privacy.policy import Policy
from multicentre.survival.estimator import SurvivalEstimator
from multicentre_papers.fedsurvboost.contenders import Contender, Settings
from multicentre_papers.fedsurvboost.measure import assess
from multicentre_papers.fedsurvboost.splits import Split, inside

Sites = Mapping[str, SurvivalData]
NO_MINIMUM = Policy(min_patients=0, max_parameters_per_patient=0)


class Bench:
    """Training patients of one split by site, with cached fits.

    Parameters
    ----------
    sites : mapping of str to SurvivalData
    seed : int
    """

    def __init__(self, sites: Sites, seed: int) -> None:
        self.sites = sites
        self.seed = seed
        self.training = concatenate(dict(sites))
        self._chosen: dict[str, Settings] = {}
        self._fitted: dict[str, SurvivalEstimator] = {}

    @cached_property
    def _within(self) -> Split:
        return inside(self.sites, self.seed)

    def chosen(self, contender: Contender) -> Settings:
        """Return the settings with the lowest integrated Brier score on a fifth of every site's training patients."""
        if contender.name not in self._chosen:
            self._chosen[contender.name] = self._choose(contender)
        return self._chosen[contender.name]

    def settings(self, contender: Contender) -> str:
        """Return the selected settings (of the parts, if there are any) as text."""
        if contender.parts:
            return "; ".join(f"{part.name}: {self.settings(part)}" for part in contender.parts)
        return ", ".join(f"{name}={value}" for name, value in self.chosen(contender).items())

    def fitted(self, contender: Contender) -> SurvivalEstimator:
        """Return the fit to all training patients with the selected settings."""
        if contender.name not in self._fitted:
            self._fitted[contender.name] = self._fit_whole(contender)
        return self._fitted[contender.name]

    def judge(self, contender: Contender, test: SurvivalData) -> dict[str, float]:
        """Return concordance and integrated Brier score on held-out patients; for separate fits, means over sites."""
        if not contender.per_site:
            return assess(self.fitted(contender), test, self.training)
        by_site = [self._assess_site(contender, name, test) for name in self.sites]
        complete = [metrics for metrics in by_site if len(metrics) == 2]
        return {name: float(np.mean([metrics[name] for metrics in complete])) for name in ("concordance", "ibs")}

    def _choose(self, contender: Contender) -> Settings:
        if len(contender.settings) == 1:
            return contender.settings[0]
        split, training = self._within, concatenate(dict(self._within.sites))
        scores = [
            assess(fit(contender, settings, split.sites, self.seed), split.test, training)["ibs"]
            for settings in contender.settings
        ]
        return contender.settings[int(np.argmin(scores))]

    def _fit_whole(self, contender: Contender) -> SurvivalEstimator:
        if not contender.parts:
            return fit(contender, self.chosen(contender), self.sites, self.seed)
        with Federation.in_process(self.sites, policy=NO_MINIMUM) as federation:
            return survival.FedStack([self.fitted(part) for part in contender.parts]).fit(federation)

    def _assess_site(self, contender: Contender, name: str, test: SurvivalData) -> dict[str, float]:
        try:
            fitted = fit(contender, self.chosen(contender), {name: self.sites[name]}, self.seed)
        except MulticentreError:
            return {}
        return assess(fitted, test, self.training)


def fit(contender: Contender, settings: Settings, sites: Sites, seed: int) -> SurvivalEstimator:
    """Return a fit over simulated sites with exact sums and no minimum number of patients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with Federation.in_process(sites, policy=NO_MINIMUM) as federation:
            return contender.make(settings, seed).fit(federation)
