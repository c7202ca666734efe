"""Write categorical_values.json: multinomial and ordinal models by R on the pooled data of test_categorical.py.

Run as ``python tests/oracles/categorical_values.py`` where R and its packages nnet and ordinal are installed; the tests
read the file alone. Ordinal models are those of ``ordinal::clm``: ``MASS::polr`` has the same errors, but
differentiates numerically and is exact to fewer digits.
"""

import csv
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".json")
N_PATIENTS = 500
COLUMNS = ["age", "creatinine", "sex"]


def draw():
    """Return three covariates, and outcomes of four unordered and of four ordered classes."""
    rng = np.random.default_rng(23)
    age, creatinine = rng.normal(60.0, 12.0, N_PATIENTS), rng.lognormal(0.0, 0.4, N_PATIENTS)
    sex = (rng.random(N_PATIENTS) < 0.4).astype(float)
    slopes = np.array([[0.03, 0.5, -0.2], [-0.02, 1.0, 0.4], [0.01, -0.5, 0.8]])
    X = np.column_stack([age, creatinine, sex])
    predictors = np.column_stack([np.zeros(N_PATIENTS), (X - [60.0, 1.0, 0.4]) @ slopes.T - [0.0, 0.5, 1.0]])
    unordered = (predictors + rng.gumbel(size=predictors.shape)).argmax(axis=1)
    latent = (X - [60.0, 1.0, 0.4]) @ np.array([0.03, 0.8, -0.4]) + rng.logistic(size=N_PATIENTS)
    return X, unordered, np.digitize(latent, [-1.0, 0.5, 2.0])


R_SCRIPT = """
library(nnet); library(ordinal)
data <- read.csv("columns.csv")
formula <- "~ age + creatinine + sex"
values <- function(x) paste0("[", paste(format(x, digits = 17), collapse = ", "), "]")
# nnet is exact in the covariates' units only if they are of size 1, so that coefficients are transformed back.
scaled <- data
centre <- sapply(data[1:3], mean); spread <- sapply(data[1:3], sd)
for (name in names(centre)) scaled[[name]] <- (data[[name]] - centre[name]) / spread[name]
fit <- multinom(as.formula(paste("factor(unordered)", formula)), scaled, reltol = 1e-20, abstol = 1e-20, maxit = 5000,
                trace = FALSE, Hess = TRUE)
block <- diag(c(1, 1 / spread)); block[1, -1] <- -centre / spread
matrix <- kronecker(diag(3), block)
coefficients <- matrix %*% as.vector(t(coef(fit)))
covariance <- matrix %*% solve(fit$Hessian) %*% t(matrix)
null <- multinom(factor(unordered) ~ 1, data, reltol = 1e-20, abstol = 1e-20, trace = FALSE)
lines <- c(sprintf('"multinomial": {"coefficients": %s, "errors": %s, "log_likelihood": %s, "null": %s, "aic": %s}',
                   values(coefficients), values(sqrt(diag(covariance))), format(as.numeric(logLik(fit)), digits = 17),
                   format(as.numeric(logLik(null)), digits = 17), format(AIC(fit), digits = 17)))
for (link in c("logit", "probit")) {
  fit <- clm(as.formula(paste("factor(ordered)", formula)), data = data, link = link,
             control = clm.control(gradTol = 1e-12, maxIter = 200))
  lines <- c(lines, sprintf('"%s": {"coefficients": %s, "errors": %s, "log_likelihood": %s, "aic": %s, "bic": %s}',
                            link, values(coef(fit)), values(sqrt(diag(vcov(fit)))),
                            format(as.numeric(logLik(fit)), digits = 17), format(AIC(fit), digits = 17),
                            format(BIC(fit), digits = 17)))
}
lines <- c(lines, sprintf('"versions": "%s, nnet %s, ordinal %s"', R.version.string, packageVersion("nnet"),
                          packageVersion("ordinal")))
cat("{", paste(lines, collapse = ", "), "}")
"""


def main():
    X, unordered, ordered = draw()
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "columns.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*COLUMNS, "unordered", "ordered"])
            writer.writerows(np.column_stack([X, unordered, ordered]).tolist())
        (Path(folder) / "script.R").write_text(R_SCRIPT, encoding="utf-8")
        done = subprocess.run(["Rscript", "script.R"], cwd=folder, capture_output=True, check=True, text=True)
    FILE.write_text(json.dumps(json.loads(done.stdout), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
