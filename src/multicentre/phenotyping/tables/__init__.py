"""Phenotypes as people read them: for each, how heavy and how frequent it is, and the codes that make it up."""

from multicentre.phenotyping.tables.phenotype import CodeWeight, Phenotype
from multicentre.phenotyping.tables.table import (
    LEAST_SHOWN,
    PhenotypeTable,
    Titles,
    share_of_patients,
    tabulate_phenotypes,
)

__all__ = [
    "LEAST_SHOWN",
    "CodeWeight",
    "Phenotype",
    "PhenotypeTable",
    "Titles",
    "share_of_patients",
    "tabulate_phenotypes",
]
