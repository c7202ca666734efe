"""How well factorisations agree with one another, and how far they lie from the data."""

from multicentre.phenotyping.scores.errors import TensorErrors
from multicentre.phenotyping.scores.matching import (
    FactorMatch,
    Stability,
    factor_match_score,
    null_match_score,
    permuted_match_score,
    stability,
)

__all__ = [
    "FactorMatch",
    "Stability",
    "TensorErrors",
    "factor_match_score",
    "null_match_score",
    "permuted_match_score",
    "stability",
]
