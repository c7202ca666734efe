"""Write robust_categorical_values.json: robust errors of multinomial and ordinal models by statsmodels and R's MASS.

Run as ``python tests/oracles/robust_categorical_values.py`` where statsmodels, R and MASS are installed; the tests read
the file alone. ``MASS::polr`` fits the model with weights; the products of scores are summed in R from its densities.
"""

import csv
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from oracles.categorical_values import draw

FILE = Path(__file__).with_suffix(".json")
N_CLUSTERS = 60


def draw_design():
    """Return clusters of patients, and a probability weight for each."""
    rng = np.random.default_rng(41)
    X, _, _ = draw()
    return rng.integers(0, N_CLUSTERS, len(X)).astype(float), np.round(rng.uniform(0.5, 3.0, len(X)), 2)


def fit_by_statsmodels():
    """Return errors of MNLogit and of OrderedModel: without and with clusters."""
    import statsmodels
    from statsmodels.discrete.discrete_model import MNLogit
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    (X, unordered, ordered), (cluster, _) = draw(), draw_design()
    scale = np.diag(1.0 / X.std(axis=0))
    scaled, values = (X - X.mean(axis=0)) @ scale, {"statsmodels": statsmodels.__version__}
    kinds = {
        "HC0": {"cov_type": "HC0"},
        "cluster": {"cov_type": "cluster", "cov_kwds": {"groups": cluster.astype(int)}},
    }
    for name, kind in kinds.items():
        fit = MNLogit(unordered, np.column_stack([np.ones(len(X)), scaled])).fit(
            method="newton", tol=1e-14, maxiter=100, disp=0, **kind
        )
        errors = fit.bse.T[:, 1:] @ scale
        values[f"multinomial {name}"] = errors.tolist()
        fit = OrderedModel(ordered, scaled, distr="logit").fit(method="bfgs", gtol=1e-9, maxiter=500, disp=0, **kind)
        values[f"ordinal {name}"] = (fit.bse[: X.shape[1]] @ scale).tolist()
    return values


R_SCRIPT = """
library(MASS)
data <- read.csv("columns.csv")
values <- function(x) paste0("[", paste(format(x, digits = 17), collapse = ", "), "]")
X <- scale(as.matrix(data[1:3])); spread <- attr(X, "scaled:scale"); y <- data$ordered + 1; k <- 3
fit <- polr(factor(ordered) ~ X, data, weights = data$weight, Hess = TRUE,
            control = list(reltol = 1e-16, maxit = 1000))
score <- function(theta) {
  eta <- as.vector(X %*% theta[1:3]); ends <- c(-Inf, theta[4:6], Inf)
  upper <- ends[y + 1] - eta; lower <- ends[y] - eta
  share <- plogis(upper) - plogis(lower)
  above <- dlogis(upper) / share; below <- dlogis(lower) / share
  at <- sapply(1:k, function(j) (y == j) * above - (y == j + 1) * below)
  cbind(-X * (above - below), at)
}
theta <- c(coef(fit), fit$zeta)
total <- function(theta) colSums(score(theta) * data$weight)
jacobian <- function(theta, h = 1e-5) sapply(seq_along(theta), function(j) {
  e <- replace(0 * theta, j, h); (total(theta + e) - total(theta - e)) / (2 * h) })
for (round in 1:5) theta <- theta - solve(jacobian(theta), total(theta))  # polr ends at the tolerance of optim
bread <- solve(-jacobian(theta))
scores <- score(theta) * data$weight
of <- function(meat) sqrt(diag(bread %*% meat %*% bread))[1:3] / spread
summed <- rowsum(scores, data$cluster)
known <- polr(factor(ordered) ~ age + creatinine + sex + offset(weight / 2), data, Hess = TRUE,
              control = list(reltol = 1e-16, maxit = 1000))
null <- polr(factor(ordered) ~ 1 + offset(weight / 2), data, control = list(reltol = 1e-16, maxit = 1000))
cat(sprintf('{"offset coefficients": %s, "offset errors": %s, "offset log-likelihood": %s, "offset null": %s,',
            values(coef(known)), values(sqrt(diag(vcov(known)))[1:3]), values(as.numeric(logLik(known))),
            values(as.numeric(logLik(null)))))
cat(sprintf('"MASS": "%s, MASS %s", "weighted coefficients": %s, "weighted HC0": %s, "weighted cluster": %s}',
            R.version.string, packageVersion("MASS"), values(theta[1:3] / spread), values(of(crossprod(scores))),
            values(of(crossprod(summed)))))
"""


def fit_by_mass():
    """Return coefficients and errors of a weighted proportional odds model, without small-sample factors."""
    (X, _, ordered), (cluster, weight) = draw(), draw_design()
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "columns.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["age", "creatinine", "sex", "ordered", "cluster", "weight"])
            writer.writerows(np.column_stack([X, ordered, cluster, weight]).tolist())
        (Path(folder) / "script.R").write_text(R_SCRIPT, encoding="utf-8")
        done = subprocess.run(["Rscript", "script.R"], cwd=folder, capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    FILE.write_text(json.dumps(fit_by_statsmodels() | fit_by_mass(), indent=1) + "\n", encoding="utf-8")
