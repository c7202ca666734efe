"""Fitted survival models as checked arrays, which can be sent and saved."""

from multicentre.survival.fitted_models.base import SurvivalModel
from multicentre.survival.fitted_models.cox import CoxModel
from multicentre.survival.fitted_models.derived import Designed, Mixture, Named, Recalibrated, Regridded
from multicentre.survival.fitted_models.hazard import HazardModel
from multicentre.survival.fitted_models.network import Network
from multicentre.survival.fitted_models.trees import Trees

__all__ = [
    "EVALUATED_KINDS",
    "KINDS",
    "CoxModel",
    "Designed",
    "HazardModel",
    "Mixture",
    "Named",
    "Network",
    "Recalibrated",
    "Regridded",
    "SurvivalModel",
    "Trees",
]

KINDS: dict[str, type[SurvivalModel]] = {
    kind.__name__: kind for kind in (CoxModel, HazardModel, Mixture, Network, Recalibrated, Regridded, Trees)
}
# Models that can be evaluated; a model of named columns or of a formula is not part of another.
EVALUATED_KINDS: dict[str, type[SurvivalModel]] = {**KINDS, "Designed": Designed, "Named": Named}
