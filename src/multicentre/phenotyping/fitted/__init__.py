"""Fitted factorisations: memberships, errors on held-out patients and tables."""

from multicentre.phenotyping.fitted.model import PhenotypeModel, Phenotypes

__all__ = ["PhenotypeModel", "Phenotypes"]
