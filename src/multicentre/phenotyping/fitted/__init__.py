"""What a fitted factorisation can do: memberships, errors on patients that the fit did not see, tables."""

from multicentre.phenotyping.fitted.model import PhenotypeModel

__all__ = ["PhenotypeModel"]
