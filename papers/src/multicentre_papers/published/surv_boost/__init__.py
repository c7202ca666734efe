"""FedSurvBoost as its authors' code runs."""
