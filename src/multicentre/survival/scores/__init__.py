"""Scores of survival predictions: concordance, Brier score, area under the curve, calibration."""
