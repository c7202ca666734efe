# Called by survival_of_r.py: log-rank tests, Cox models and their tests of proportional hazards, stratified by site.
suppressPackageStartupMessages({library(survival); library(jsonlite)})
arguments <- commandArgs(trailingOnly = TRUE)

log_rank <- function(formula, data) {
  test <- survdiff(formula, data = data)
  by_group <- function(x) if (is.matrix(x)) rowSums(x) else as.vector(x)
  list(statistic = test$chisq, df = length(by_group(test$obs)) - 1, p = test$pvalue,
       observed = by_group(test$obs), expected = by_group(test$exp))
}

found <- list(versions = list(survival = as.character(packageVersion("survival"))))
for (name in c("continuous", "tied")) {
  data <- read.csv(file.path(arguments[1], paste0(name, ".csv")))
  fit <- coxph(Surv(time, event) ~ a + b + c + strata(site), data = data, control = coxph.control(eps = 1e-11, toler.chol = 1e-13, iter.max = 50))
  tests <- lapply(c(km = "km", rank = "rank", identity = "identity", log = "log"), function(transform) {
    table <- cox.zph(fit, transform = transform)$table
    list(statistic = as.vector(table[, "chisq"]), df = as.vector(table[, "df"]), p = as.vector(table[, "p"]))
  })
  found[[name]] <- list(
    two_groups = log_rank(Surv(time, event) ~ a + strata(site), data),
    three_groups = log_rank(Surv(time, event) ~ group + strata(site), data),
    coefficients = as.vector(coef(fit)), proportionality = tests)
}
writeLines(toJSON(found, digits = 16, auto_unbox = TRUE, pretty = TRUE), arguments[2])
