"""Fitted survival models as checked arrays, which can be sent and saved."""

from multicentre.survival.models.base import SurvivalModel
from multicentre.survival.models.cox import CoxModel
from multicentre.survival.models.derived import Mixture, Recalibrated, Regridded
from multicentre.survival.models.hazard import HazardModel
from multicentre.survival.models.network import Network
from multicentre.survival.models.trees import Trees

__all__ = [
    "KINDS",
    "CoxModel",
    "HazardModel",
    "Mixture",
    "Network",
    "Recalibrated",
    "Regridded",
    "SurvivalModel",
    "Trees",
]

KINDS: dict[str, type[SurvivalModel]] = {
    kind.__name__: kind for kind in (CoxModel, HazardModel, Mixture, Network, Recalibrated, Regridded, Trees)
}
