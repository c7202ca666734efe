"""Fitted survival models as checked arrays, which can be sent and saved."""

from multicentre.survival.fitted_models.base import SurvivalModel
from multicentre.survival.fitted_models.cox import CoxModel
from multicentre.survival.fitted_models.derived import Mixture, Recalibrated, Regridded
from multicentre.survival.fitted_models.hazard import HazardModel
from multicentre.survival.fitted_models.network import Network
from multicentre.survival.fitted_models.trees import Trees

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
