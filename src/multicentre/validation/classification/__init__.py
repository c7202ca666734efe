"""Evaluation of a classifier on held-out records: discrimination, calibration and net benefit, from sums over sites."""
