"""Write formula_values.json: fits of formulas by R and statsmodels on the pooled data of test_formula.py.

Run as ``python tests/oracles/formula_values.py`` where R, statsmodels and patsy are installed; the tests read the file
alone. Bases are those of R's package splines and of patsy.
"""

import csv
import json
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".json")
N_PATIENTS = 400
STAGES = ("I", "II", "III")
# Name: family, formula here, formula in R.
CASES = {
    "splines": (
        "binomial",
        "died ~ age + C(stage, ref='II') + ns(bmi, knots=[23, 26, 29], boundary=[19, 34]) + age:sex + log(creatinine)",
        (
            'died ~ age + relevel(stage, "II") + ns(bmi, knots = c(23, 26, 29), Boundary.knots = c(19, 34)) + age:sex'
            " + log(creatinine)"
        ),
    ),
    "offset": (
        "poisson",
        "visits ~ age * sex + bs(bmi, knots=[24, 28], boundary=[10, 45]) + offset(log(days))",
        "visits ~ age * sex + bs(bmi, knots = c(24, 28), Boundary.knots = c(10, 45)) + offset(log(days))",
    ),
    "powers": (
        "gaussian",
        "pressure ~ power(age, 2) + sqrt(creatinine) + power(bmi, -1) + centre(age, 60):scale(bmi, 26, 4)",
        "pressure ~ I(age^2) + sqrt(creatinine) + I(bmi^-1) + I((age - 60) * (bmi - 26) / 4)",
    ),
    "crossed": ("gaussian", "pressure ~ (age + stage + sex)**2", "pressure ~ (age + stage + sex)^2"),
    "nested": ("binomial", "died ~ age:stage", "died ~ age:stage"),
    "without intercept": ("gaussian", "pressure ~ age + bmi - 1", "pressure ~ age + bmi - 1"),
    "cells": ("poisson", "visits ~ 0 + stage:sex", "visits ~ 0 + stage:sex"),
    "inner": (
        "gamma",
        "cost ~ ns(log(creatinine), knots=[0], boundary=[-0.8, 0.8]) + C(rooms, levels=[1, 2, 3], ref=2)",
        "cost ~ ns(log(creatinine), knots = 0, Boundary.knots = c(-0.8, 0.8)) + relevel(factor(rooms), '2')",
    ),
}
PLACES = [-3.0, -1.0, 0.1, 0.5, 1.2, 2.4, 3.9, 4.0, 5.5]
KNOTS, BOUNDARY = [1.0, 2.0, 3.0], (0.0, 4.0)


def draw():
    """Return the columns of the patients by name, and the outcomes."""
    rng = np.random.default_rng(29)
    age, bmi, creatinine = (
        rng.normal(60, 11, N_PATIENTS),
        rng.normal(26, 4, N_PATIENTS),
        rng.lognormal(0, 0.4, N_PATIENTS),
    )
    stage, sex = rng.integers(3, size=N_PATIENTS), rng.integers(2, size=N_PATIENTS)
    days, rooms = rng.uniform(20, 400, N_PATIENTS), rng.integers(1, 4, N_PATIENTS).astype(float)
    predictor = 0.03 * (age - 60) + 0.5 * np.log(creatinine) + 0.3 * sex - 0.2 * (stage == 1) - 0.02 * (bmi - 26) ** 2
    columns = {"age": age, "bmi": bmi, "creatinine": creatinine, "days": days, "rooms": rooms}
    outcomes = {
        "died": (rng.random(N_PATIENTS) < 1 / (1 + np.exp(0.5 - predictor))).astype(int),
        "visits": rng.poisson(np.exp(predictor) * days / 100),
        "pressure": 120 + 5 * predictor + rng.normal(size=N_PATIENTS),
        "cost": rng.gamma(2.0, np.exp(predictor) / 2.0),
    }
    return columns, stage, sex, outcomes


R_SCRIPT = """
library(splines)
data <- read.csv("columns.csv")
data$stage <- factor(data$stage); data$sex <- factor(data$sex)
families <- list(gaussian = gaussian(), binomial = binomial(), poisson = poisson(), gamma = Gamma("log"))
# A step of Fisher scoring shortens the error of a gamma fit by a factor only: all 60 are taken.
control <- glm.control(epsilon = 1e-30, maxit = 60)
values <- function(x) paste0("[", paste(format(x, digits = 17), collapse = ", "), "]")
lines <- c()
cases <- read.csv("cases.csv")
for (i in seq_len(nrow(cases))) {
  fit <- suppressWarnings(
    glm(as.formula(cases$formula[i]), families[[cases$family[i]]], data, control = control)
  )
  wald <- sapply(seq_along(attr(terms(fit), "term.labels")), function(term) {
    of_term <- which(attr(model.matrix(fit), "assign") == term)
    drop(coef(fit)[of_term] %*% solve(vcov(fit)[of_term, of_term], coef(fit)[of_term]))
  })
  lines <- c(lines, sprintf(
    '"%s": {"coefficients": %s, "errors": %s, "deviance": %s, "null_deviance": %s, "wald": %s}',
    cases$name[i], values(unname(coef(fit))), values(unname(sqrt(diag(vcov(fit))))),
    format(fit$deviance, digits = 17), format(fit$null.deviance, digits = 17), values(wald)))
}
x <- c(PLACES)
for (kind in c("ns", "bs")) {
  basis <- suppressWarnings(get(kind)(x, knots = c(KNOTS), Boundary.knots = c(BOUNDARY)))
  lines <- c(lines, sprintf('"%s": %s', kind, values(as.vector(t(basis)))))
}
linear <- suppressWarnings(bs(x, knots = c(KNOTS), Boundary.knots = c(BOUNDARY), degree = 1))
lines <- c(lines, sprintf('"linear bs": %s', values(as.vector(t(linear)))))
lines <- c(lines, sprintf('"versions": "%s"', R.version.string))
cat("{", paste(lines, collapse = ", "), "}")
"""


def run_r(columns, stage, sex, outcomes):
    """Return coefficients and standard errors by R, and bases of its package splines."""
    texts = {"stage": np.array(STAGES)[stage], "sex": np.array(["f", "m"])[sex]}
    table = {**columns, **texts, **outcomes}
    listed = {"PLACES": PLACES, "KNOTS": KNOTS, "BOUNDARY": BOUNDARY}
    script = R_SCRIPT
    for name, numbers in listed.items():
        script = script.replace(name, ", ".join(map(str, numbers)))
    with tempfile.TemporaryDirectory() as folder:
        rows = [list(table), *zip(*table.values(), strict=True)]
        cases = [["name", "family", "formula"], *([name, case[0], case[2]] for name, case in CASES.items())]
        for name, lines in (("columns.csv", rows), ("cases.csv", cases)):
            with (Path(folder) / name).open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows(lines)
        (Path(folder) / "script.R").write_text(script, encoding="utf-8")
        done = subprocess.run(["Rscript", "script.R"], cwd=folder, capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


def run_statsmodels(columns, stage, sex, outcomes):
    """Return marginal effects of a formula by statsmodels, and the cardinal spline of patsy."""
    import pandas as pd
    import patsy
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    frame = pd.DataFrame({**columns, **outcomes, "stage": np.array(STAGES)[stage], "sex": np.array(["f", "m"])[sex]})
    formula = "died ~ C(stage, Treatment('II')) + np.log(creatinine) + bmi"
    fit = smf.glm(formula, frame, family=sm.families.Binomial()).fit(tol=1e-14, maxiter=100)
    basis = patsy.dmatrix(
        "cr(x, knots=knots, lower_bound=low, upper_bound=high) - 1",
        {"x": np.array(PLACES), "knots": KNOTS, "low": BOUNDARY[0], "high": BOUNDARY[1]},
    )
    return {
        "statsmodels": {"coefficients": fit.params.tolist(), "errors": fit.bse.tolist()},
        "cr": np.asarray(basis)[:, 1:].ravel().tolist(),
        "python versions": f"statsmodels {version('statsmodels')}, patsy {version('patsy')}",
    }


if __name__ == "__main__":
    drawn = draw()
    FILE.write_text(json.dumps({**run_r(*drawn), **run_statsmodels(*drawn)}, indent=1) + "\n", encoding="utf-8")
