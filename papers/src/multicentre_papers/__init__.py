"""Reproductions of five papers, the algorithms as they were published, and the methods they were compared with."""

from __future__ import annotations

__version__ = "0.1.0"

PAPERS = ("dpfact", "fed-mv-ppca", "fedmsgl", "fedsurvboost", "stratified-cv")
