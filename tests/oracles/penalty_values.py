"""Write penalty_values.json: coefficients of R's glmnet on the pooled data of test_penalties.py.

Run as ``python tests/oracles/penalty_values.py`` where R and its package glmnet are installed; the tests read the file
alone.
"""

import csv
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".json")
N_PATIENTS, N_COLUMNS = 400, 6
LAMBDAS = (0.2, 0.05, 0.01, 0.002)
SHARES = (1.0, 0.4)


def draw():
    """Return correlated columns, and an outcome per family."""
    rng = np.random.default_rng(31)
    X = rng.normal(size=(N_PATIENTS, N_COLUMNS)) * np.array([1.0, 10.0, 0.1, 1.0, 3.0, 1.0])
    X[:, 3] += 0.8 * X[:, 0]
    predictor = 0.8 * X[:, 0] - 0.05 * X[:, 1] + 0.1 * X[:, 4]
    number = 20.0 + 5.0 * predictor + 4.0 * rng.normal(size=N_PATIENTS)
    outcomes = {
        # glmnet divides a gaussian outcome by its standard deviation, and its ridge penalty is in these units.
        "gaussian": number / number.std(),
        "binomial": (rng.random(N_PATIENTS) < 1.0 / (1.0 + np.exp(0.5 - predictor))).astype(int),
        "poisson": rng.poisson(np.exp(0.5 * predictor)),
    }
    return X, outcomes


R_SCRIPT = """
library(glmnet)
data <- as.matrix(read.csv("columns.csv"))
X <- data[, 1:6]
lines <- c()
for (name in c("gaussian", "binomial", "poisson")) {
  for (share in c(SHARES)) {
    fit <- glmnet(X, data[, name], family = name, alpha = share, lambda = c(LAMBDAS), thresh = 1e-20, maxit = 1e7)
    listed <- function(x) paste0("[", paste(format(x, digits = 17), collapse = ", "), "]")
    values <- apply(as.matrix(coef(fit)), 2, listed)
    lines <- c(lines, sprintf('"%s %s": [%s]', name, share, paste(values, collapse = ", ")))
  }
}
lines <- c(lines, sprintf('"versions": "%s, glmnet %s"', R.version.string, packageVersion("glmnet")))
cat("{", paste(lines, collapse = ", "), "}")
"""


def run_r(X, outcomes):
    """Return coefficients by family and share of the lasso."""
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "columns.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*(f"x{place}" for place in range(N_COLUMNS)), *outcomes])
            writer.writerows(np.column_stack([X, *outcomes.values()]).tolist())
        script = R_SCRIPT.replace("SHARES", ", ".join(map(str, SHARES)))
        script = script.replace("LAMBDAS", ", ".join(map(str, LAMBDAS)))
        (Path(folder) / "script.R").write_text(script, encoding="utf-8")
        done = subprocess.run(["Rscript", "script.R"], cwd=folder, capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    FILE.write_text(json.dumps(run_r(*draw()), indent=1) + "\n", encoding="utf-8")
