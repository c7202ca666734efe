"""Write the data of "From R and SAS" as CSV files, for the R script.

Usage: python docs/guides/r/make_data.py FOLDER && Rscript docs/guides/r/compare.R FOLDER docs/guides/r
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

from multicentre.datasets import write_example_study


def read_patients(folder: Path) -> pd.DataFrame:
    """Return the patients of the example study, with their site."""
    study = write_example_study(folder / "study")
    frames = [pd.read_csv(file).assign(site=file.parent.name) for file in sorted(study.parent.glob("*/patients.csv"))]
    return pd.concat(frames, ignore_index=True)


def make_diabetes() -> pd.DataFrame:
    """Return the diabetes data of scikit-learn at six hospitals that score progression by their own standards."""
    frame = load_diabetes(as_frame=True, scaled=False).frame.rename(columns={"target": "progression", "s3": "hdl"})
    place = np.arange(len(frame)) % 6
    frame["site"] = np.array(["basel", "ghent", "lyon", "oslo", "turin", "vigo"])[place]
    frame["progression"] = frame["progression"] + 15.0 * (place - 2.5)
    return frame[["site", "progression", "age", "bmi", "bp", "hdl"]]


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    read_patients(target).to_csv(target / "patients.csv", index=False)
    make_diabetes().to_csv(target / "diabetes.csv", index=False)
