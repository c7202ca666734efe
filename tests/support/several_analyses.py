"""A study of several analyses over three small hospitals."""

from pathlib import Path

import numpy as np
import pandas as pd

SITES = ("lyon", "oslo", "porto")
DATA = """
[data]
id_column = "patient"
[data.survival]
time = "months"
event = "died"
unit = "months"
columns = ["age", "arm"]
[data.table]
outcome = "relapse"
columns = ["age", "arm"]
[run]
compare = false
"""
BLOCKS = """
[[analysis]]
name = "table-1"
title = "Patients"
method = "describe"
[analysis.parameters]
by = "arm"
categorical = ["arm"]
quartiles = false

[[analysis]]
name = "test"
method = "log-rank"
[analysis.parameters]
group = "arm"

[[analysis]]
name = "cox"
question = "Does age shorten survival?"
method = "fed-cox"

[[analysis]]
name = "relapse"
method = "fed-logistic-regression"
"""


def write_patients(folder: Path, n_patients: int = 60) -> str:
    """Write a file for each hospital, and return the tables of the sites of a study."""
    rng = np.random.default_rng(4)
    lines = []
    for name in SITES:
        age, arm = rng.normal(60, 10, n_patients).round(1), rng.integers(0, 2, n_patients)
        time = rng.exponential(30 * np.exp(-0.04 * (age - 60) + 0.5 * arm))
        end = rng.uniform(5, 60, n_patients)
        relapse = rng.random(n_patients) < 1 / (1 + np.exp(-0.08 * (age - 60)))
        columns = {"patient": [f"{name}-{row}" for row in range(n_patients)], "age": age, "arm": arm}
        columns |= {"months": np.minimum(time, end).round(2), "died": (time <= end).astype(int)}
        pd.DataFrame({**columns, "relapse": relapse.astype(int)}).to_csv(folder / f"{name}.csv", index=False)
        lines.append(f'[sites.{name}]\nfile = "{name}.csv"\n')
    return "".join(lines)


def write_several(folder: Path, blocks: str = BLOCKS, more: str = "") -> Path:
    """Write the study with its data, and return its path."""
    path = folder / "study.toml"
    path.write_text(f'[study]\nname = "several"\n{blocks}{DATA}{more}{write_patients(folder)}')
    return path


def write_single(folder: Path, method: str, parameters: str = "") -> Path:
    """Write a study of one method over the same data, and return its path."""
    head = f'[study]\nname = "several"\nmethod = "{method}"\n[parameters]\n{parameters}\n'
    table = DATA.replace(DATA[DATA.index("[data.table]") : DATA.index("[run]")], "")
    path = folder / f"{method}.toml"
    path.write_text(f"{head}{table}{write_patients(folder)}")
    return path
