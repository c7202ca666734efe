# Fits of the page "From R and SAS". Run once; its output and values are checked in, and a test compares ours with them.
# Usage: python docs/guides/r/make_data.py FOLDER && Rscript docs/guides/r/compare.R FOLDER docs/guides/r

suppressPackageStartupMessages({
  library(survival); library(lme4); library(metafor); library(mice); library(tableone); library(jsonlite)
})
folder <- commandArgs(TRUE)[1]
out <- commandArgs(TRUE)[2]
options(width = 110, digits = 5)

patients <- read.csv(file.path(folder, "patients.csv"), stringsAsFactors = FALSE)
patients$arm <- factor(patients$arm, levels = c("standard", "new"))
patients$sex <- factor(patients$sex, levels = c("f", "m"))
diabetes <- read.csv(file.path(folder, "diabetes.csv"), stringsAsFactors = FALSE)

values <- list()
blocks <- character()
show <- function(name, code) {
  text <- capture.output(code)
  text <- sub("[ \t]+$", "", text)
  while (length(text) && text[1] == "") text <- text[-1]
  while (length(text) && text[length(text)] == "") text <- text[-length(text)]
  blocks[[name]] <<- paste(text, collapse = "\n")
}
# Values by name, in the order of the model.
columns <- function(table) list(names = rownames(table), estimate = unname(table[, 1]), error = unname(table[, 2]))

values$data <- list(
  n = nrow(patients), months = sum(patients$months), age = sum(patients$age, na.rm = TRUE),
  creatinine = sum(patients$creatinine), progression = sum(diabetes$progression), bmi = sum(diabetes$bmi)
)

# Table 1 ----------------------------------------------------------------------------------------------------------
variables <- c("age", "creatinine", "sex", "readmitted")
table1 <- CreateTableOne(variables, strata = "arm", data = patients, factorVars = "readmitted",
                         argsNormal = list(var.equal = FALSE), argsApprox = list(correct = FALSE))
show("table1", print(table1, smd = TRUE, showAllLevels = TRUE, noSpaces = TRUE))
show("table1-ranks", print(table1$ContTable, nonnormal = variables, noSpaces = TRUE))
by_arm <- table1$ContTable
columns_of <- function(what) sapply(variables[1:2], function(v) sapply(by_arm, function(d) d[v, what]), simplify = FALSE)
p <- list(numbers = attr(by_arm, "pValues"), levels = attr(table1$CatTable, "pValues"))
values$table1 <- list(
  mean = lapply(columns_of("mean"), unname), sd = lapply(columns_of("sd"), unname),
  q1 = lapply(columns_of("p25"), unname), median = lapply(columns_of("median"), unname),
  q3 = lapply(columns_of("p75"), unname),
  smd = as.list(ExtractSmd(table1)[, 1]),
  p = as.list(c(setNames(p$numbers$pNormal, rownames(p$numbers)), setNames(p$levels$pApprox, rownames(p$levels)))),
  rank_p = as.list(setNames(p$numbers$pNonNormal, rownames(p$numbers)))
)

# Survival ---------------------------------------------------------------------------------------------------------
curves <- survfit(Surv(months, died) ~ arm, data = patients)
at <- summary(curves, times = c(12, 24, 36))
show("survfit", {
  print(data.frame(group = at$strata, time = at$time, at.risk = at$n.risk, survival = at$surv, std.err = at$std.err),
        row.names = FALSE, digits = 4)
  print(quantile(curves, 0.5)$quantile)
})
values$survfit <- list(survival = at$surv, error = at$std.err, median = unname(quantile(curves, 0.5)$quantile[, 1]))

logrank <- survdiff(Surv(months, died) ~ arm + strata(site), data = patients)
show("survdiff", cat("chi-square", round(logrank$chisq, 4), "p", signif(logrank$pvalue, 4), "\n"))
values$survdiff <- list(statistic = logrank$chisq, p = logrank$pvalue)

cox <- coxph(Surv(months, died) ~ arm + age + sex + creatinine + strata(site), data = patients)
cox_table <- summary(cox)$coefficients[, c("coef", "se(coef)", "exp(coef)", "Pr(>|z|)")]
show("coxph", { print(cox_table, digits = 4); cat("n =", cox$n, " events =", cox$nevent, " log-lik =",
                                                  format(cox$loglik[2], digits = 8), "\n") })
values$coxph <- c(columns(cox_table), list(log_likelihood = cox$loglik[2], n = cox$n))

# Regression -------------------------------------------------------------------------------------------------------
logistic <- glm(readmitted ~ arm + age + sex + creatinine, family = binomial, data = patients)
show("glm", { print(summary(logistic)$coefficients, digits = 4)
              cat("deviance", round(deviance(logistic), 4), " AIC", round(AIC(logistic), 4), "\n") })
values$glm <- c(columns(summary(logistic)$coefficients), list(deviance = deviance(logistic), aic = AIC(logistic)))

mixed <- lmer(progression ~ age + bmi + bp + hdl + (1 | site), data = diabetes, REML = TRUE,
              control = lmerControl(optCtrl = list(ftol_abs = 1e-14, xtol_abs = 1e-12)))
variance <- as.data.frame(VarCorr(mixed))
show("lmer", { print(summary(mixed)$coefficients[, 1:2], digits = 5)
               cat("variance between sites", round(variance$vcov[1], 2), " residual", round(variance$vcov[2], 2), "\n") })
values$lmer <- c(columns(summary(mixed)$coefficients), list(between = variance$vcov[1], residual = variance$vcov[2]))

# Meta-analysis ----------------------------------------------------------------------------------------------------
sites <- sort(unique(diabetes$site))
alone <- t(sapply(sites, function(s) summary(lm(progression ~ age + bmi + bp + hdl,
                                                data = diabetes[diabetes$site == s, ]))$coefficients["bmi", 1:2]))
meta <- rma(yi = alone[, 1], sei = alone[, 2], slab = sites, method = "REML", test = "knha")
show("rma", { print(round(alone, 4))
              cat("random effects", round(meta$beta, 4), "  95 % interval", round(meta$ci.lb, 4), "to", round(meta$ci.ub, 4), "\n")
              cat("Q", round(meta$QE, 4), "  I^2", round(meta$I2, 2), "%   tau^2", round(meta$tau2, 4), "\n") })
values$rma <- list(estimate = unname(alone[, 1]), error = unname(alone[, 2]), random = meta$beta[1], lower = meta$ci.lb,
                   upper = meta$ci.ub, q = meta$QE, tau_squared = meta$tau2)

# Missing data -----------------------------------------------------------------------------------------------------
imputed <- mice(patients[, c("readmitted", "arm", "age", "sex", "creatinine")], m = 20, seed = 1, printFlag = FALSE)
pooled <- summary(pool(with(imputed, glm(readmitted ~ arm + age + sex + creatinine, family = binomial))))
show("mice", print(data.frame(term = pooled$term, estimate = pooled$estimate, std.error = pooled$std.error),
                   row.names = FALSE, digits = 4))
values$mice <- list(names = as.character(pooled$term), estimate = pooled$estimate, error = pooled$std.error)

versions <- c(R = as.character(getRversion()), sapply(c("survival", "lme4", "metafor", "mice", "tableone"),
                                                      function(p) as.character(packageVersion(p))))
values$versions <- as.list(versions)
values$output <- as.list(blocks)
write_json(values, file.path(out, "values.json"), auto_unbox = TRUE, digits = NA, pretty = TRUE)
