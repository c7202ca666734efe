"""Public and simulated data sets, and how to spread one over the centres of a simulated study."""

from multicentre.datasets.base import DatasetStatus, fetch, list_datasets
from multicentre.datasets.events import LabelledEvents, PlantedTruth, SimulatedEvents
from multicentre.datasets.labelled import LabelledMultiView, SimulatedMultiView, SimulatedTruth
from multicentre.datasets.public import load_breast_tcga, load_handwritten, load_wisconsin
from multicentre.datasets.public_events import load_mimic3_demo, load_synpuf500
from multicentre.datasets.scenarios import cross_validation_splits, split_scenario
from multicentre.datasets.simulated import simulate_sd
from multicentre.datasets.simulated_events import simulate_paper_tensor, simulate_planted

__all__ = [
    "DatasetStatus",
    "LabelledEvents",
    "LabelledMultiView",
    "PlantedTruth",
    "SimulatedEvents",
    "SimulatedMultiView",
    "SimulatedTruth",
    "cross_validation_splits",
    "fetch",
    "list_datasets",
    "load_breast_tcga",
    "load_handwritten",
    "load_mimic3_demo",
    "load_synpuf500",
    "load_wisconsin",
    "simulate_paper_tensor",
    "simulate_planted",
    "simulate_sd",
    "split_scenario",
]
