"""Association of phenotypes with an outcome, by logistic regression over many sites."""

from multicentre.phenotyping.outcome.estimator import PhenotypeOutcome
from multicentre.phenotyping.outcome.phenotypes import PhenotypeFactors

__all__ = ["PhenotypeFactors", "PhenotypeOutcome"]
