"""Figures 2 to 4 of the paper on fold-stratified cross-validation, and what hashes, pilots and real records add."""

from multicentre_papers.stratified_cv.runner import reproduce

__all__ = ["reproduce"]
