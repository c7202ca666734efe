"""Public and simulated data sets, and how to spread one over the centres of a simulated study."""

from multicentre.datasets.base import DatasetStatus, fetch, list_datasets
from multicentre.datasets.labelled import LabelledMultiView, SimulatedMultiView, SimulatedTruth
from multicentre.datasets.public import load_breast_tcga, load_handwritten, load_wisconsin
from multicentre.datasets.scenarios import cross_validation_splits, split_scenario
from multicentre.datasets.simulated import simulate_sd

__all__ = [
    "DatasetStatus",
    "LabelledMultiView",
    "SimulatedMultiView",
    "SimulatedTruth",
    "cross_validation_splits",
    "fetch",
    "list_datasets",
    "load_breast_tcga",
    "load_handwritten",
    "load_wisconsin",
    "simulate_sd",
    "split_scenario",
]
