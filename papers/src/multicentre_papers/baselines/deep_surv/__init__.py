"""FedDeepSurv: network for the log hazard ratio, trained at the sites and averaged by the coordinator."""

from multicentre_papers.baselines.deep_surv.estimator import FedDeepSurv

__all__ = ["FedDeepSurv"]
