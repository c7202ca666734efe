"""Write grouped_hazard_values.json: a grouped proportional hazards model by R's glm, a row per patient and interval.

Run as ``python tests/oracles/grouped_hazard_values.py`` where R is installed; the tests read the file alone.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".json")
R_SCRIPT = """
rows <- read.csv("rows.csv")
fit <- glm(died ~ 0 + factor(interval) + age + dose, binomial("cloglog"), rows, weights = weight,
           control = list(epsilon = 1e-14, maxit = 100))
values <- function(x) paste0("[", paste(format(unname(x), digits = 17), collapse = ", "), "]")
cat(sprintf('{"R": "%s", "coefficients": %s, "log_likelihood": %s}', R.version.string, values(coef(fit)),
            format(-fit$deviance / 2, digits = 17)))
"""


def draw():
    """Return covariates, the interval of death (3 if alive), and a frequency weight of each patient."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 2))
    time = rng.exponential(np.exp(0.5 - X @ np.log([2.0, 0.75])))
    return X, np.digitize(time, [0.3, 0.8, 1.5]), rng.integers(1, 4, 1500)


def fit_by_r():
    """Return coefficients and log-likelihood of the binomial model."""
    rows = []
    for x, last, weight in zip(*draw(), strict=True):
        rows += [(j, *x.tolist(), int(j == last), weight) for j in range(min(last, 2) + 1)]
    with tempfile.TemporaryDirectory() as folder:
        lines = [",".join(map(repr, map(float, row))) for row in rows]
        (Path(folder) / "rows.csv").write_text("\n".join(["interval,age,dose,died,weight", *lines]), encoding="utf-8")
        (Path(folder) / "script.R").write_text(R_SCRIPT, encoding="utf-8")
        done = subprocess.run(["Rscript", "script.R"], cwd=folder, capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    FILE.write_text(json.dumps(fit_by_r(), indent=1) + "\n", encoding="utf-8")
