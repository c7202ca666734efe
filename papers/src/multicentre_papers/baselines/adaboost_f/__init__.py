"""Federated boosting of classifiers: AdaBoost.F, DistBoost.F and PreWeak.F."""
