"""FedDeepSurv: network for the log hazard ratio, trained at the sites and averaged by the coordinator."""

from multicentre.survival.deep_surv.estimator import FedDeepSurv

__all__ = ["FedDeepSurv"]
