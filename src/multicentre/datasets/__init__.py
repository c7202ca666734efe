"""Public and simulated data sets, and functions that split a data set over the centres of a simulated study."""

from multicentre.datasets.base import DatasetStatus, fetch, list_datasets
from multicentre.datasets.duplicated import (
    DuplicatedTruth,
    SimulatedDuplicates,
    draw_duplicated_truth,
    published_covariance,
    simulate_duplicated,
)
from multicentre.datasets.example_study import write_example_study
from multicentre.datasets.labelled import (
    LabelledEvents,
    LabelledMultiView,
    PlantedTruth,
    SimulatedEvents,
    SimulatedMultiView,
    SimulatedTruth,
)
from multicentre.datasets.partitions import (
    censor_by_site,
    split_by_column,
    split_by_label,
    split_by_time,
    split_dirichlet,
    split_iid,
    split_sizes,
)
from multicentre.datasets.public_survival import (
    LeakageWarning,
    load_gbsg,
    load_lifelines,
    load_metabric,
    load_support2,
    load_tcga_brca,
)
from multicentre.datasets.public_tables import load_heart4, load_mimic3_demo, load_record_linkage, load_synpuf500
from multicentre.datasets.public_views import (
    load_bbcsport,
    load_breast_tcga,
    load_caltech101_7,
    load_handwritten,
    load_orl,
    load_orl4,
    load_sonar,
    load_wisconsin,
)
from multicentre.datasets.scenarios import cross_validation_splits, split_scenario
from multicentre.datasets.simulated_events import simulate_paper_tensor, simulate_planted
from multicentre.datasets.simulated_survival import SurvivalTruth, simulate_survival
from multicentre.datasets.simulated_views import (
    SimulatedSubspaces,
    SubspaceTruth,
    lose_records,
    simulate_sd,
    simulate_views,
    split_views,
)

__all__ = [
    "DatasetStatus",
    "DuplicatedTruth",
    "LabelledEvents",
    "LabelledMultiView",
    "LeakageWarning",
    "PlantedTruth",
    "SimulatedDuplicates",
    "SimulatedEvents",
    "SimulatedMultiView",
    "SimulatedSubspaces",
    "SimulatedTruth",
    "SubspaceTruth",
    "SurvivalTruth",
    "censor_by_site",
    "cross_validation_splits",
    "draw_duplicated_truth",
    "fetch",
    "list_datasets",
    "load_bbcsport",
    "load_breast_tcga",
    "load_caltech101_7",
    "load_gbsg",
    "load_handwritten",
    "load_heart4",
    "load_lifelines",
    "load_metabric",
    "load_mimic3_demo",
    "load_orl",
    "load_orl4",
    "load_record_linkage",
    "load_sonar",
    "load_support2",
    "load_synpuf500",
    "load_tcga_brca",
    "load_wisconsin",
    "lose_records",
    "published_covariance",
    "simulate_duplicated",
    "simulate_paper_tensor",
    "simulate_planted",
    "simulate_sd",
    "simulate_survival",
    "simulate_views",
    "split_by_column",
    "split_by_label",
    "split_by_time",
    "split_dirichlet",
    "split_iid",
    "split_scenario",
    "split_sizes",
    "split_views",
    "write_example_study",
]
