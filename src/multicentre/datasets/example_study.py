"""An example study: the files of simulated hospitals, and a study file over them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

# Sizes are those of middling and small hospitals; each has enough events for estimates by site.
HOSPITALS = {"lyon": 420, "porto": 260, "turin": 340, "ghent": 300, "krakow": 380, "uppsala": 280}


def write_example_study(folder: str | Path, n_hospitals: int = 3) -> Path:
    """Write the files of simulated hospitals, and a study file over them, to a folder.

    Patients received a standard or a new treatment. The true hazard ratio of the new treatment is exp(-0.45) = 0.64 in
    every hospital, adjusted for age and creatinine. About 5 in 100 patients of each hospital have no recorded age. No
    patient is real.

    Parameters
    ----------
    folder : path
        Receives ``<hospital>/patients.csv`` for each hospital, and ``study.toml``. Files of these names are replaced.
    n_hospitals : int, default 3
        Number of hospitals, from 2 to 6.

    Returns
    -------
    path
        The study file. ``multicentre run`` runs it; :func:`multicentre.studies.read_study` reads it.

    Examples
    --------
    >>> import tempfile
    >>> from multicentre.datasets import write_example_study
    >>> study = write_example_study(tempfile.mkdtemp())
    >>> sorted(path.parent.name for path in study.parent.glob("*/patients.csv"))
    ['lyon', 'porto', 'turin']
    """
    root = Path(folder)
    hospitals = dict(list(HOSPITALS.items())[:n_hospitals])
    for seed, (hospital, n) in enumerate(hospitals.items()):
        (root / hospital).mkdir(parents=True, exist_ok=True)
        simulate_patients(hospital, n, seed).to_csv(root / hospital / "patients.csv", index=False)
    analyses = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    sites = "".join(f'\n[sites.{hospital}]\nfile = "{hospital}/patients.csv"\n' for hospital in hospitals)
    (root / "study.toml").write_text(analyses + sites, encoding="utf-8")
    return root / "study.toml"


def simulate_patients(hospital: str, n: int, seed: int) -> pd.DataFrame:
    """Return simulated patients of a hospital, one row each.

    Parameters
    ----------
    hospital : str
        Beginning of the patients' identifiers.
    n : int
        Number of patients.
    seed : int
        Seed of the random numbers; hospitals with a larger seed have older patients, by one year each.
    """
    import pandas as pd

    rng = np.random.default_rng(seed)
    age = rng.normal(63 + seed, 11, n).round(1)
    sex = rng.choice(["f", "m"], n)
    arm = rng.choice(["standard", "new"], n)
    creatinine = np.exp(rng.normal(0.1, 0.4, n)).round(2)
    risk = 0.04 * (age - 63) - 0.45 * (arm == "new") + 0.5 * np.log(creatinine)
    months = rng.exponential(30 * np.exp(-risk))
    followed = rng.uniform(6, 48, n)
    readmitted = rng.random(n) < 1 / (1 + np.exp(1.2 - risk))
    return pd.DataFrame(
        {
            "patient": [f"{hospital}-{row}" for row in range(n)],
            "arm": arm,
            "age": np.where(rng.random(n) < 0.05, np.nan, age),
            "sex": sex,
            "creatinine": creatinine,
            "months": np.minimum(months, followed).round(2).clip(0.01),
            "died": (months <= followed).astype(int),
            "readmitted": readmitted.astype(int),
        }
    )
