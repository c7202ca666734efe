"""Whether groups of several sites' patients survive alike."""

from multicentre.survival.curves.log_rank.estimator import LogRank

__all__ = ["LogRank"]
