"""The data sets by name: planted and structureless ones of the paper's sizes, and real ones where they are at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from multicentre.data import EventTensor
from multicentre.datasets import load_mimic3_demo, load_synpuf500, simulate_paper_tensor, simulate_planted
from multicentre.datasets.labelled import LabelledEvents, SimulatedEvents
from multicentre_papers.dpfact import published
from multicentre_papers.dpfact.plan import Plan

# Phenotypes of the real data sets. They are small and do not support more.
MAX_OF_RANK = 10


@dataclass(frozen=True)
class Sample:
    """A data set of the learning curves.

    Parameters
    ----------
    name, label : str
    stands_for : str
        Data set of the paper whose size, step and ``mu`` it takes.
    draw : callable from Plan and seed to LabelledEvents
    """

    name: str
    label: str
    stands_for: str
    draw: Callable[[Plan, int], LabelledEvents]

    @property
    def is_real(self) -> bool:
        """True for a sample loaded from files, of which the seed changes only the starts."""
        return self.name in ("mimic3_demo", "synpuf500")

    def rank(self, plan: Plan) -> int:
        """Return the number of phenotypes."""
        return min(plan.curve_rank, MAX_OF_RANK) if self.is_real else plan.curve_rank

    def epochs(self, plan: Plan) -> int:
        """Return the number of rounds."""
        return plan.cms_epochs if self.stands_for == published.CMS and not self.is_real else plan.curve_epochs


def draw_planted(plan: Plan, seed: int, n_patients: int | None = None) -> SimulatedEvents:
    """Draw planted events with MIMIC-III's codes and six sites; of the plan's number of patients by default."""
    return simulate_planted(n_patients or plan.n_patients, n_phenotypes=plan.rank, random_state=seed)


def split_at_random(tensor: EventTensor, n_sites: int, seed: int) -> dict[str, EventTensor]:
    """Spread patients at random over sites of equal sizes, as the paper does (section 5.4.5).

    Examples
    --------
    >>> tensor = EventTensor([[0, 0, 0], [1, 0, 0]], [1, 1], {"procedure": ["p"], "diagnosis": ["d"]})
    >>> {name: len(site) for name, site in split_at_random(tensor, 2, seed=0).items()}
    {'centre-1': 1, 'centre-2': 1}
    """
    parts = np.array_split(np.random.default_rng(seed).permutation(len(tensor)), n_sites)
    return {f"centre-{number}": tensor.take(np.sort(rows)) for number, rows in enumerate(parts, start=1)}


def _draw_cms(plan: Plan, seed: int) -> SimulatedEvents:
    _, procedures, diagnoses = published.SIZES[published.CMS]
    sizes = {"procedure": procedures, "diagnosis": diagnoses}
    return simulate_planted(plan.n_cms_patients, sizes, 50, 5, seed, windows=1.85, site_skew=0.0)


def _draw_synthetic(plan: Plan, seed: int) -> LabelledEvents:
    return simulate_paper_tensor(random_state=seed)


def _load_mimic(plan: Plan, seed: int) -> LabelledEvents:
    return load_mimic3_demo()


def _load_synpuf(plan: Plan, seed: int) -> LabelledEvents:
    labelled = load_synpuf500()
    parts = np.array_split(np.random.default_rng(0).permutation(len(labelled)), published.N_SITES)
    sites = np.empty(len(labelled), dtype="<U8")
    for number, rows in enumerate(parts, start=1):
        sites[rows] = f"centre-{number}"
    return LabelledEvents(labelled.tensor, sites, labelled.name, labelled.description, labelled.licence)


SAMPLES: Mapping[str, Sample] = {
    one.name: one
    for one in (
        Sample("mimic-like", "planted, MIMIC-III's codes", published.MIMIC, draw_planted),
        Sample("cms-like", "planted, CMS's codes", published.CMS, _draw_cms),
        Sample("synthetic", "the paper's synthetic set (no structure)", published.SYNTHETIC, _draw_synthetic),
        Sample("mimic3_demo", "MIMIC-III demo (real patients)", published.MIMIC, _load_mimic),
        Sample("synpuf500", "DE-SynPUF, part of a sample (synthetic beneficiaries)", published.CMS, _load_synpuf),
    )
}
