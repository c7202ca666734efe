"""Write negative_binomial_values.json: negative binomial models by R on the pooled data of test_negative_binomial.py.

Run as ``python tests/oracles/negative_binomial_values.py`` where R and its packages MASS and sandwich are installed;
the tests read the file alone.
"""

import csv
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".json")
N_PATIENTS = 400
COLUMNS = ["age", "creatinine", "sex", "log_years", "count", "ward"]


def draw():
    """Return covariates, logarithm of years, number of patients and ward, and counts that vary more than Poisson's."""
    rng = np.random.default_rng(41)
    age, creatinine = rng.normal(60.0, 12.0, N_PATIENTS), rng.lognormal(0.0, 0.4, N_PATIENTS)
    sex = (rng.random(N_PATIENTS) < 0.4).astype(float)
    log_years = np.log(rng.uniform(0.5, 4.0, N_PATIENTS))
    count = rng.integers(1, 4, N_PATIENTS).astype(float)
    ward = rng.integers(25, size=N_PATIENTS).astype(float)
    mean = np.exp(0.2 + 0.02 * (age - 60.0) + 0.6 * (creatinine - 1.0) - 0.3 * sex + log_years)
    outcome = rng.poisson(mean * rng.gamma(1.5, 1.0 / 1.5, N_PATIENTS)).astype(float)
    return np.column_stack([age, creatinine, sex, log_years, count, ward]), outcome


R_SCRIPT = """
library(MASS); library(sandwich)
data <- read.csv("columns.csv")
control <- glm.control(epsilon = 1e-14, maxit = 200)
values <- function(x) paste0("[", paste(format(x, digits = 17), collapse = ", "), "]")
number <- function(x) format(as.numeric(x), digits = 17)
fits <- list(
  plain = glm.nb(visits ~ age + creatinine + sex, data, control = control),
  offset = glm.nb(visits ~ age + creatinine + sex + offset(log_years), data, control = control),
  weights = glm.nb(visits ~ age + creatinine + sex, data, weights = count, control = control)
)
nulls <- list(
  plain = glm.nb(visits ~ 1, data, control = control),
  offset = glm.nb(visits ~ 1 + offset(log_years), data, control = control),
  weights = glm.nb(visits ~ 1, data, weights = count, control = control)
)
lines <- c()
# glm.nb takes the error of theta from the step before the last; this one is at the maximum.
exact_error <- function(fit, weights) {
  attr(theta.ml(fit$y, fitted(fit), sum(weights), weights, limit = 100, eps = 1e-12), "SE")
}
for (name in names(fits)) {
  fit <- fits[[name]]
  error <- exact_error(fit, if (name == "weights") data$count else rep(1, nrow(data)))
  lines <- c(lines, sprintf(
    '"%s": {"coefficients": %s, "errors": %s, "theta": %s, "theta_error": %s, "log_likelihood": %s, "aic": %s,
     "deviance": %s, "null_deviance": %s, "null_log_likelihood": %s}',
    name, values(coef(fit)), values(summary(fit)$coefficients[, 2]), number(fit$theta), number(error),
    number(logLik(fit)), number(AIC(fit)), number(fit$deviance), number(fit$null.deviance),
    number(logLik(nulls[[name]]))))
}
fit <- fits$plain
variances <- list(HC0 = vcovHC(fit, "HC0"), HC1 = vcovHC(fit, "HC1"),
                  cluster = vcovCL(fit, cluster = data$ward, type = "HC1"))
for (kind in names(variances)) {
  lines <- c(lines, sprintf('"%s": %s', kind, values(sqrt(diag(variances[[kind]])))))
}
poisson <- glm(visits ~ age + creatinine + sex, poisson(), data, control = control)
lines <- c(lines, sprintf('"pearson": %s', number(sum(residuals(poisson, "pearson")^2) / poisson$df.residual)))
lines <- c(lines, sprintf('"versions": "%s, MASS %s, sandwich %s"', R.version.string, packageVersion("MASS"),
                          packageVersion("sandwich")))
cat("{", paste(lines, collapse = ", "), "}")
"""


def main():
    X, outcome = draw()
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "columns.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*COLUMNS, "visits"])
            writer.writerows(np.column_stack([X, outcome]).tolist())
        (Path(folder) / "script.R").write_text(R_SCRIPT, encoding="utf-8")
        done = subprocess.run(["Rscript", "script.R"], cwd=folder, capture_output=True, check=True, text=True)
    FILE.write_text(json.dumps(json.loads(done.stdout), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
