"""Choice of the covariate that cuts folds: counts over sites, and a pilot at each site."""

from multicentre.validation.stratifier.suggest import suggest_stratifier
from multicentre.validation.stratifier.suggestion import Candidate, Suggestion

__all__ = ["Candidate", "Suggestion", "suggest_stratifier"]
