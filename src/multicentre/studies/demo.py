"""The study that ``multicentre demo`` runs: six simulated centres of the Wisconsin breast cancer data."""

from __future__ import annotations

from pathlib import Path

from multicentre.datasets import load_wisconsin, split_scenario
from multicentre.federation.progress import Listener
from multicentre.studies.folder import RunFolder
from multicentre.studies.runner import run_study
from multicentre.studies.sites import SiteData
from multicentre.studies.study import Study

N_SITES = 6


def run_demo(output: str | Path = "runs", *, seed: int = 0, listener: Listener | None = None) -> RunFolder:
    """Fit Fed-mv-PPCA over six centres that differ in their patients and in the views they measured.

    Parameters
    ----------
    output : path
        Where the run folder goes.
    seed : int
        Which patients go to which centre, which are held out, and where the fit starts.
    listener : Listener, optional
        Hears of rounds.
    """
    centres = split_scenario(load_wisconsin(), "G/K", n_sites=N_SITES, seed=seed)
    sites = {name: SiteData(one.data, tuple(str(label) for label in one.labels)) for name, one in centres.items()}
    return run_study(demo_study(Path(output), seed, list(sites)), sites=sites, listener=listener)


def demo_study(output: Path, seed: int, sites: list[str]) -> Study:
    """Return the study of the demonstration."""
    return Study.from_mapping(
        {
            "study": {
                "name": "demo",
                "method": "fed-mv-ppca",
                "seed": seed,
                "output": str(output),
                "description": "Breast cancer Wisconsin over simulated centres; some see one diagnosis only, "
                "some lack a view.",
            },
            "parameters": {"n_components": 4, "scale": "feature"},
            "sites": {site: {} for site in sites},
        }
    )
