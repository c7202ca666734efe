"""Fitted survival models as checked arrays: what sites and coordinator send each other, and what is saved."""

from multicentre.survival.models.base import SurvivalModel
from multicentre.survival.models.cox import CoxModel
from multicentre.survival.models.mixture import Mixture
from multicentre.survival.models.trees import Trees

__all__ = ["KINDS", "CoxModel", "Mixture", "SurvivalModel", "Trees"]

KINDS: dict[str, type[SurvivalModel]] = {kind.__name__: kind for kind in (CoxModel, Mixture, Trees)}
