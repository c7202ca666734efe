"""Write site_effects_values.json: statsmodels and R's lme4 and survival on the pooled data of test_site_effects.py.

Run as ``python tests/oracles/site_effects_values.py`` where statsmodels and R with the packages lme4 and survival are
installed; the tests read the file only. Optimisers run to tolerances far below their defaults.
"""

import csv
import json
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".json")
N_PATIENTS, N_SITES = 600, 8
FAMILIES = ("gaussian", "binomial", "poisson", "gamma")
COLUMNS = ("age", "dose", "sex")


def draw():
    """Return covariates, the site of each patient, an outcome per family, and follow-up times with events."""
    rng = np.random.default_rng(23)
    site = rng.integers(N_SITES, size=N_PATIENTS)
    age, dose = rng.normal(60.0, 12.0, N_PATIENTS), rng.normal(2.0, 1.0, N_PATIENTS)
    sex = (rng.random(N_PATIENTS) < 0.4).astype(float)
    intercept, slope = 0.7 * rng.normal(size=N_SITES), 0.4 * rng.normal(size=N_SITES)
    fixed = 0.02 * (age - 60.0) + 0.5 * (dose - 2.0) - 0.3 * sex
    predictor = fixed + intercept[site] + slope[site] * (dose - 2.0)
    outcomes = {
        "gaussian": 5.0 + predictor + rng.normal(size=N_PATIENTS),
        "binomial": (rng.random(N_PATIENTS) < 1.0 / (1.0 + np.exp(0.4 - predictor))).astype(int),
        "poisson": rng.poisson(np.exp(0.2 + 0.7 * predictor)),
        "gamma": rng.gamma(2.0, np.exp(predictor) / 2.0),
    }
    residuals = rng.normal(size=N_PATIENTS)
    means = np.bincount(site, residuals) / np.bincount(site)
    outcomes["alike"] = 5.0 + fixed + residuals - means[site]  # less variance between sites than by chance
    time = rng.exponential(np.exp(-fixed - intercept[site]))
    end = rng.uniform(0.2, 3.0, N_PATIENTS)
    event = (time <= end).astype(int)
    follow_up = np.minimum(time, end)
    outcomes |= {"time": follow_up, "month": np.ceil(8.0 * follow_up), "event": event}
    return np.column_stack([age, dose, sex]), site, outcomes


R_SCRIPT = """
library(lme4)
library(survival)
data <- read.csv("columns.csv")
data$site <- factor(data$site)
tight <- list(maxfun = 100000, rhobeg = 0.02, rhoend = 1e-10)
control <- lmerControl(optimizer = "bobyqa", optCtrl = tight)
glmer_control <- glmerControl(optimizer = "bobyqa", optCtrl = tight, tolPwrss = 1e-12)
values <- function(x) paste0("[", paste(format(as.numeric(x), digits = 17), collapse = ", "), "]")
lines <- c()
add <- function(name, ...) {
  fields <- list(...)
  texts <- sapply(names(fields), function(field) sprintf('"%s": %s', field, values(fields[[field]])))
  lines <<- c(lines, sprintf('"%s": {%s}', name, paste(texts, collapse = ", ")))
}
# Standard errors from second derivatives of the Laplace likelihood by coefficients and variances, as vcov(fit), but by
# Richardson extrapolation: the differences that lme4 takes are off by up to 0.6 % for the counts here.
curved_errors <- function(fit) {
  theta <- getME(fit, "theta")
  hessian <- numDeriv::hessian(update(fit, devFunOnly = TRUE), c(theta, fixef(fit)))
  sqrt(diag(solve(hessian / 2)))[-seq_along(theta)]
}
mixed <- function(name, fit, errors = sqrt(diag(as.matrix(vcov(fit))))) {
  effects <- ranef(fit, condVar = TRUE)$site
  add(name, coefficients = fixef(fit), errors = errors, log_likelihood = logLik(fit),
      variances = as.numeric(VarCorr(fit)$site), residual = sigma(fit)^2, effects = as.matrix(effects),
      effect_errors = sqrt(apply(attr(effects, "postVar"), 3, diag)), aic = AIC(fit))
}
for (reml in c(TRUE, FALSE)) {
  kind <- if (reml) "REML" else "ML"
  mixed(paste0("lmer-", kind), lmer(gaussian ~ age + dose + sex + (1 | site), data, REML = reml, control = control))
  mixed(paste0("lmer-slope-", kind),
        lmer(gaussian ~ age + dose + sex + (1 + dose | site), data, REML = reml, control = control))
  mixed(paste0("lmer-alike-", kind), lmer(alike ~ age + dose + sex + (1 | site), data, REML = reml, control = control))
}
for (family in c("binomial", "poisson")) {
  for (effects in c("(1 | site)", "(1 + dose | site)")) {
    fit <- glmer(as.formula(paste(family, "~ age + dose + sex +", effects)), data, family = family,
                 control = glmer_control)
    name <- paste0("glmer-", if (effects == "(1 | site)") "" else "slope-", family)
    mixed(name, fit, curved_errors(fit))
  }
}
tight_cox <- coxph.control(eps = 1e-12, toler.inf = 1e-7, iter.max = 200, outer.max = 200)
for (when in c("time", "month")) {
  for (shape in c("gamma", "gaussian")) {
    # sparse = FALSE: the whole information of the sites' effects, not only its diagonal.
    fit_with <- function(options) {
      term <- paste0("frailty(site, distribution = '", shape, "', sparse = FALSE, ", options, ")")
      coxph(as.formula(paste0("Surv(", when, ", event) ~ age + dose + sex +", term)), data, ties = "breslow",
            control = tight_cox)
    }
    fit <- fit_with("eps = 1e-10")
    if (shape == "gamma") {
      # coxph ends the search for theta where the likelihood is flat; this one is to eight digits of its square root.
      likelihood <- function(theta) fit_with(sprintf("theta = %.17g", theta))$history[[1]]$c.loglik
      best <- optimize(likelihood, c(0.01, 1), maximum = TRUE, tol = 1e-10)
      fit <- fit_with(sprintf("theta = %.17g", best$maximum))
    }
    integrated <- fit$history[[1]]$c.loglik
    add(paste0("frailty-", shape, "-", when), coefficients = coef(fit)[1:3], errors = sqrt(diag(fit$var))[1:3],
        theta = fit$history[[1]]$theta, effects = coef(fit)[-(1:3)], log_likelihood = fit$loglik,
        integrated = if (is.null(integrated)) 0 else integrated)
  }
  fit <- coxph(as.formula(paste0("Surv(", when, ", event) ~ age + dose + sex + site")), data, ties = "breslow",
               control = tight_cox)
  add(paste0("fixed-", when), coefficients = coef(fit), errors = sqrt(diag(vcov(fit))), log_likelihood = fit$loglik)
}
fit <- coxph(Surv(month, event) ~ age + dose + sex, data, ties = "breslow", control = tight_cox)
add("none-month", coefficients = coef(fit), errors = sqrt(diag(vcov(fit))), log_likelihood = fit$loglik)
lines <- c(lines, sprintf('"versions": "%s, lme4 %s, survival %s"', R.version.string, packageVersion("lme4"),
                          packageVersion("survival")))
cat("{", paste(lines, collapse = ",\\n "), "}")
"""


def run_r(columns, site, outcomes):
    """Return the fits of lme4 and survival by name."""
    names = [*COLUMNS, "site", *outcomes]
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "columns.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(names)
            writer.writerows(np.column_stack([columns, site, *outcomes.values()]).tolist())
        (Path(folder) / "script.R").write_text(R_SCRIPT, encoding="utf-8")
        done = subprocess.run(["Rscript", "script.R"], cwd=folder, capture_output=True, check=False, text=True)
    print(done.stderr)
    return json.loads(done.stdout)


def run_statsmodels(columns, site, outcomes):
    """Return fits with an indicator of each site by family."""
    import statsmodels.api as sm

    families = {
        "gaussian": sm.families.Gaussian(),
        "binomial": sm.families.Binomial(),
        "poisson": sm.families.Poisson(),
        "gamma": sm.families.Gamma(sm.families.links.Log()),
    }
    indicators = np.eye(N_SITES)[site]
    design = np.column_stack([columns, indicators])
    mean_of = np.concatenate([np.zeros(len(COLUMNS)), indicators.mean(axis=0)])
    values = {"version": version("statsmodels")}
    for name, family in families.items():
        fit = sm.GLM(outcomes[name], design, family=family).fit(tol=1e-14, maxiter=200)
        null = sm.GLM(outcomes[name], indicators, family=family).fit(tol=1e-14, maxiter=200)
        values[name] = {
            "coefficients": fit.params[:3].tolist(),
            "errors": fit.bse[:3].tolist(),
            "intercepts": fit.params[3:].tolist(),
            "intercept_errors": fit.bse[3:].tolist(),
            "mean_intercept": float(mean_of @ fit.params),
            "mean_intercept_error": float(np.sqrt(mean_of @ fit.cov_params() @ mean_of)),
            "deviance": fit.deviance,
            "null_deviance": null.deviance,
            "dispersion": fit.scale,
            "log_likelihood": fit.llf,
            "aic": fit.aic,
        }
    robust = sm.GLM(outcomes["binomial"], design, family=families["binomial"]).fit(
        tol=1e-14, maxiter=200, cov_type="HC0"
    )
    values["binomial"]["HC0"] = robust.bse[:3].tolist()
    effects = sm.Logit(outcomes["binomial"], design).fit(disp=0, tol=1e-14, method="newton").get_margeff()
    values["binomial"]["effects"], values["binomial"]["effect_errors"] = (
        effects.margeff[:3].tolist(),
        effects.margeff_se[:3].tolist(),
    )
    return values


def main() -> None:
    columns, site, outcomes = draw()
    values = {"statsmodels": run_statsmodels(columns, site, outcomes), "R": run_r(columns, site, outcomes)}
    FILE.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
