"""What a fitted factorisation can do: memberships, errors on patients that the fit did not see, tables."""

from multicentre.phenotyping.fitted.model import PhenotypeModel, Phenotypes

__all__ = ["PhenotypeModel", "Phenotypes"]
