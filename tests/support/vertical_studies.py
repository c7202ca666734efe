"""Files of a study whose departments hold different views of the same patients."""

from pathlib import Path

import numpy as np

from multicentre.datasets import simulate_views

SITES = ("lab", "radiology", "ward")
STUDY = """\
[study]
name = "departments"
method = "fed-msgl"
seed = 1

[parameters]
n_clusters = 3

[data]
id_column = "patient"
label_column = "diagnosis"

[sites.lab]
blood = "lab.csv"

[sites.radiology]
image = "radiology.csv"

[sites.ward]
scores = "ward.csv"

[privacy]
secure_sum = true
"""


def write_departments(folder: Path, n_patients=90, text=STUDY, *, labelled=("ward",), born=()) -> Path:
    """Write a CSV file a site, rows in an order of its own and a patient or two lacking, and the study."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = simulate_views(n_patients, sizes=(12, 8, 10), random_state=1)
    random = np.random.default_rng(5)
    for number, (site, view) in enumerate(zip(SITES, drawn.data.views, strict=True)):
        values, rows = drawn.data.array(view), random.permutation(n_patients)[: n_patients - number]
        aside = [name for name, at in (("diagnosis", labelled), ("born", born)) if site in at]
        lines = [",".join(["patient", *(f"c{j}" for j in range(values.shape[1])), *aside])]
        for row in rows:
            texts = {"diagnosis": drawn.labels[row], "born": f"{row + 1:06d}"}
            lines.append(",".join([f"p{row}", *map(repr, values[row].tolist()), *(texts[name] for name in aside)]))
        (folder / f"{site}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path
