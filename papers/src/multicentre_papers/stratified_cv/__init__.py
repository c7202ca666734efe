"""Reproduction of figures 2 to 4 of the paper on fold-stratified cross-validation, with further exercises."""

from multicentre_papers.stratified_cv.runner import reproduce

__all__ = ["reproduce"]
