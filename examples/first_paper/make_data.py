"""Write the files of three simulated hospitals, and a study over them, to a folder.

Usage: python examples/first_paper/make_data.py FOLDER
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd

HOSPITALS = {"lyon": 420, "oslo": 260, "turin": 340}


def simulate_patients(hospital: str, n: int, seed: int) -> pd.DataFrame:
    """Return simulated patients of a hospital, one row each."""
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
            "age": np.where(rng.random(n) < 0.02, np.nan, age),
            "sex": sex,
            "creatinine": creatinine,
            "months": np.minimum(months, followed).round(2).clip(0.01),
            "died": (months <= followed).astype(int),
            "readmitted": readmitted.astype(int),
        }
    )


def main(folder: Path) -> None:
    """Write one CSV file per hospital, and the study file."""
    for seed, (hospital, n) in enumerate(HOSPITALS.items()):
        (folder / hospital).mkdir(parents=True, exist_ok=True)
        simulate_patients(hospital, n, seed).to_csv(folder / hospital / "patients.csv", index=False)
    shutil.copy(Path(__file__).with_name("study.toml"), folder / "study.toml")
    print(f"Wrote {len(HOSPITALS)} hospitals and study.toml to {folder}. Next: multicentre run {folder / 'study.toml'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
