"""How good predictions of survival are: concordance, Brier score, area under the curve, calibration."""
