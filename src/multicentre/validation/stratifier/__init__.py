"""Which covariate to cut folds by: what the sites count of each, and a pilot inside every site."""

from multicentre.validation.stratifier.suggest import suggest_stratifier
from multicentre.validation.stratifier.suggestion import Candidate, Suggestion

__all__ = ["Candidate", "Suggestion", "suggest_stratifier"]
