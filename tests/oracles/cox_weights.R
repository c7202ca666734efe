# Called by cox_weights.py: Cox models with offset, weights and clusters on the pooled patients.
suppressPackageStartupMessages({library(survival); library(jsonlite)})
arguments <- commandArgs(trailingOnly = TRUE)
control <- coxph.control(eps = 1e-12, toler.chol = 1e-13, iter.max = 50)

results <- function(fit) {
  robust <- if (is.null(fit$naive.var)) NULL else as.vector(sqrt(diag(fit$var)))
  model <- if (is.null(fit$naive.var)) fit$var else fit$naive.var
  zph <- function(transform) as.vector(cox.zph(fit, transform = transform)$table[, "chisq"])
  list(identity = zph("identity"), log = zph("log"), coefficients = as.vector(coef(fit)), errors = as.vector(sqrt(diag(model))), robust_errors = robust,
       log_likelihoods = fit$loglik)
}

found <- list(versions = list(survival = as.character(packageVersion("survival"))))
for (name in c("continuous", "tied")) {
  data <- read.csv(file.path(arguments[1], paste0(name, ".csv")))
  for (ties in c("efron", "breslow")) {
    fit <- function(formula, ...) {
      results(do.call(coxph, list(formula, data = data, ties = ties, control = control, ...)))
    }
    by_baseline <- function(formula) list(
      offset = fit(update(formula, . ~ . + offset(o))),
      frequency = fit(formula, weights = as.numeric(data$w), robust = FALSE),
      probability = fit(formula, weights = data$p, robust = TRUE),
      cluster = fit(update(formula, . ~ . + cluster(ward))),
      all = fit(update(formula, . ~ . + offset(o) + cluster(ward)), weights = data$p)
    )
    stratified <- Surv(time, event) ~ a + b + c + strata(site)
    shared <- Surv(time, event) ~ a + b + c
    found[[name]][[ties]] <- list(stratified = by_baseline(stratified), shared = by_baseline(shared))
  }
  whole <- coxph(Surv(time, event) ~ a + b + c + offset(o), data = data, weights = p, ties = "breslow", control = control)
  curves <- survfit(whole, newdata = data[1:5, ])
  found[[name]]$hazards <- list(time = curves$time, cumulative = t(curves$cumhaz))
}
writeLines(toJSON(found, digits = 16, auto_unbox = TRUE, pretty = TRUE), arguments[2])
