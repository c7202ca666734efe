"""Which phenotypes go with an outcome, by logistic regression over many sites."""

from multicentre.phenotyping.prediction.checks import SeparationWarning
from multicentre.phenotyping.prediction.estimator import PhenotypeOutcome
from multicentre.phenotyping.prediction.phenotypes import PhenotypeFactors

__all__ = ["PhenotypeFactors", "PhenotypeOutcome", "SeparationWarning"]
