"""Comparison methods of the five papers; not recommended for patient data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre_papers.baselines.adaboost_f.estimator import AdaBoostF, DistBoostF, PreWeakF
    from multicentre_papers.baselines.cp.als import CPALS
    from multicentre_papers.baselines.cp.sgd import CPSGD
    from multicentre_papers.baselines.deep_surv.estimator import FedDeepSurv
    from multicentre_papers.baselines.fedmvl.estimator import FedMVL
    from multicentre_papers.baselines.fuzzy.estimator import FedMVFCM, FedMVFPC
    from multicentre_papers.baselines.local_forests import LocalForests
    from multicentre_papers.baselines.pooled_clustering.cdmgc import CDMGC
    from multicentre_papers.baselines.pooled_clustering.fsmsc import FSMSC
    from multicentre_papers.baselines.pooled_clustering.plain import Plain
    from multicentre_papers.baselines.pooled_clustering.rcagl import RCAGL
    from multicentre_papers.baselines.pooled_clustering.sc import SC
    from multicentre_papers.baselines.pooled_clustering.sfmc import SFMC
    from multicentre_papers.baselines.surf.estimator import FedSurF
    from multicentre_papers.baselines.trip.estimator import TRIP
    from multicentre_papers.baselines.vae.estimator import FedMCVAE, FedVAE

__all__ = [
    "CDMGC",
    "CPALS",
    "CPSGD",
    "FSMSC",
    "RCAGL",
    "SC",
    "SFMC",
    "TRIP",
    "AdaBoostF",
    "DistBoostF",
    "FedDeepSurv",
    "FedMCVAE",
    "FedMVFCM",
    "FedMVFPC",
    "FedMVL",
    "FedSurF",
    "FedVAE",
    "LocalForests",
    "Plain",
    "PreWeakF",
]

_MODULES = {
    "AdaBoostF": "adaboost_f.estimator",
    "CDMGC": "pooled_clustering.cdmgc",
    "CPALS": "cp.als",
    "CPSGD": "cp.sgd",
    "DistBoostF": "adaboost_f.estimator",
    "FSMSC": "pooled_clustering.fsmsc",
    "FedDeepSurv": "deep_surv.estimator",
    "FedMCVAE": "vae.estimator",
    "FedMVFCM": "fuzzy.estimator",
    "FedMVFPC": "fuzzy.estimator",
    "FedMVL": "fedmvl.estimator",
    "FedSurF": "surf.estimator",
    "FedVAE": "vae.estimator",
    "LocalForests": "local_forests",
    "Plain": "pooled_clustering.plain",
    "PreWeakF": "adaboost_f.estimator",
    "RCAGL": "pooled_clustering.rcagl",
    "SC": "pooled_clustering.sc",
    "SFMC": "pooled_clustering.sfmc",
    "TRIP": "trip.estimator",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
