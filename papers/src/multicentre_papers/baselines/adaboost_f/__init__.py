"""Boosting of classes over sites: AdaBoost.F, DistBoost.F and PreWeak.F."""
