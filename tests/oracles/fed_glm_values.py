"""Write fed_glm_values.json: what statsmodels and R find on the pooled data of test_fed_glm.py.

Run as ``python tests/oracles/fed_glm_values.py`` where statsmodels, R and its package sandwich are installed; the tests
read the file alone. Robust errors and likelihoods are R's: statsmodels has no factor n / (n - p) in HC1 of a GLM, uses
the observed information for links that are not canonical, and another variance in the gaussian likelihood with a
logarithmic link.
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
FAMILIES = {
    "gaussian": ("identity", "log"),
    "binomial": ("logit", "probit", "cloglog"),
    "poisson": ("log",),
    "gamma": ("log",),
}


def draw():
    """Return columns age, creatinine, sex, log of years, number of patients and ward, and an outcome per family."""
    rng = np.random.default_rng(11)
    age, creatinine = rng.normal(60.0, 12.0, N_PATIENTS), rng.lognormal(0.0, 0.4, N_PATIENTS)
    sex = (rng.random(N_PATIENTS) < 0.4).astype(float)
    log_years = np.log(rng.uniform(0.5, 4.0, N_PATIENTS))
    count = rng.integers(1, 4, N_PATIENTS).astype(float)
    ward = rng.integers(25, size=N_PATIENTS).astype(float)
    predictor = 0.02 * (age - 60.0) + 0.6 * (creatinine - 1.0) - 0.3 * sex + 0.3 * rng.normal(size=25)[ward.astype(int)]
    outcomes = {
        "gaussian": np.exp(1.0 + 0.3 * predictor) + 0.4 * rng.normal(size=N_PATIENTS),
        "binomial": (rng.random(N_PATIENTS) < 1.0 / (1.0 + np.exp(0.7 - predictor))).astype(int),
        "poisson": rng.poisson(np.exp(0.2 + predictor + log_years)),
        "gamma": rng.gamma(2.0, np.exp(predictor) / 2.0),
    }
    return np.column_stack([age, creatinine, sex, log_years, count, ward]), outcomes


R_SCRIPT = """
library(sandwich)
data <- read.csv("columns.csv")
families <- list(gaussian = gaussian(), binomial = binomial(), poisson = poisson(), gamma = Gamma("log"))
control <- glm.control(epsilon = 1e-14, maxit = 100)
values <- function(x) paste0("[", paste(format(x, digits = 17), collapse = ", "), "]")
lines <- c()
for (name in names(families)) {
  fit <- glm(data[[name]] ~ age + creatinine + sex, families[[name]], data, control = control)
  variances <- list(HC0 = vcovHC(fit, "HC0"), HC1 = vcovHC(fit, "HC1"),
                    cluster = vcovCL(fit, cluster = data$ward, type = "HC1"))
  for (kind in names(variances)) {
    lines <- c(lines, sprintf('"%s-%s": %s', name, kind, values(sqrt(diag(variances[[kind]])))))
  }
}
log_link <- glm(gaussian ~ age + creatinine + sex, gaussian("log"), data, start = c(1, 0, 0, 0), control = control)
lines <- c(lines, sprintf('"gaussian-log likelihood": %s', format(as.numeric(logLik(log_link)), digits = 17)))
lines <- c(lines, sprintf('"versions": "%s, sandwich %s"', R.version.string, packageVersion("sandwich")))
cat("{", paste(lines, collapse = ", "), "}")
"""


def run_r(columns, outcomes):
    """Return robust standard errors by R's package sandwich, by family and kind."""
    names = ["age", "creatinine", "sex", "log_years", "count", "ward", *outcomes]
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "columns.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(names)
            writer.writerows(np.column_stack([columns, *outcomes.values()]).tolist())
        (Path(folder) / "script.R").write_text(R_SCRIPT, encoding="utf-8")
        done = subprocess.run(["Rscript", "script.R"], cwd=folder, capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    import statsmodels.api as sm

    links = {
        "identity": sm.families.links.Identity(),
        "log": sm.families.links.Log(),
        "logit": sm.families.links.Logit(),
        "probit": sm.families.links.Probit(),
        "cloglog": sm.families.links.CLogLog(),
    }
    families = {
        "gaussian": sm.families.Gaussian,
        "binomial": sm.families.Binomial,
        "poisson": sm.families.Poisson,
        "gamma": sm.families.Gamma,
    }
    columns, outcomes = draw()
    design = sm.add_constant(columns[:, :3])
    values = {"version": version("statsmodels")}

    def fit(family, link, *, offset=None, weights=None, **errors):
        model = sm.GLM(
            outcomes[family], design, family=families[family](links[link]), offset=offset, freq_weights=weights
        )
        return model.fit(tol=1e-14, maxiter=200, **errors)

    def record(name, fitted):
        values[name] = {
            "coefficients": fitted.params.tolist(),
            "errors": fitted.bse.tolist(),
            "deviance": fitted.deviance,
            "null_deviance": fitted.null_deviance,
            "dispersion": fitted.scale,
            "log_likelihood": fitted.llf,
            "aic": fitted.aic,
        }

    for family, names in FAMILIES.items():
        for link in names:
            record(f"{family}-{link}", fit(family, link))
        record(f"{family}-weights", fit(family, names[0], weights=columns[:, 4]))
    record("poisson-offset", fit("poisson", "log", offset=columns[:, 3]))
    effects = sm.Logit(outcomes["binomial"], design).fit(disp=0, tol=1e-14, method="newton").get_margeff()
    values["margins"] = {"effects": effects.margeff.tolist(), "errors": effects.margeff_se.tolist()}
    predicted = fit("poisson", "log").get_prediction(design[:5]).summary_frame()
    values["predicted"] = predicted[["mean", "mean_ci_lower", "mean_ci_upper"]].to_numpy().tolist()
    ols = sm.OLS(outcomes["gaussian"], design).fit()
    new = ols.get_prediction(design[:5]).summary_frame()
    values["least-squares"] = {
        "p_values": ols.pvalues.tolist(),
        "intervals": ols.conf_int().tolist(),
        "new": new[["obs_ci_lower", "obs_ci_upper"]].to_numpy().tolist(),
    }
    values["R"] = run_r(columns, outcomes)
    FILE.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
