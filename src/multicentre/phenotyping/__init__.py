"""Phenotypes from patients' coded events: sparse tensors factorised over many sites."""

from multicentre.phenotyping.dpfact import DPFact
from multicentre.phenotyping.fitted.communication import communication_table
from multicentre.phenotyping.fitted.repeats import privacy_curve, seed_stability
from multicentre.phenotyping.outcome import PhenotypeOutcome
from multicentre.phenotyping.scores import factor_match_score, null_match_score
from multicentre.phenotyping.tables import PhenotypeTable

__all__ = [
    "DPFact",
    "PhenotypeOutcome",
    "PhenotypeTable",
    "communication_table",
    "factor_match_score",
    "null_match_score",
    "privacy_curve",
    "seed_stability",
]
