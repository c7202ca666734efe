# Data frames in the form of broom: one row per term, or one row per fit.

# Table of coefficients of a method, and the column that holds the standard error of its `coefficient`.
coefficient_table <- function(tables) {
  of_terms <- Filter(function(table) all(c("name", "coefficient", "standard_error") %in% names(table)), tables)
  if (length(of_terms) == 0) NULL else of_terms[[1]]
}

# Bounds of the 95 % interval of `coefficient`: those of the table, which are t intervals in linear regression.
coefficient_bounds <- function(table) {
  bounds <- as.matrix(table[c("lower", "upper")])
  # A table of hazard ratios holds the bounds of the ratio.
  if ("hazard_ratio" %in% names(table)) log(bounds) else bounds
}

#' One row per term.
tidy.multicentre_run <- function(x, analysis = NULL, exponentiate = FALSE, ...) {
  table <- coefficient_table(result_tables(x, analysis))
  if (is.null(table)) {
    stop("tidy() needs an analysis with coefficients; use result_tables() for others.", call. = FALSE)
  }
  estimates <- cbind(table$coefficient, coefficient_bounds(table))
  if (exponentiate) estimates <- exp(estimates)
  data.frame(
    term = table$name,
    estimate = estimates[, 1],
    std.error = table$standard_error,
    statistic = table$coefficient / table$standard_error,
    p.value = table$p_value,
    conf.low = estimates[, 2],
    conf.high = estimates[, 3]
  )
}

# Patients of an analysis: the total that it released, or else the sum over the sites, NA if a site states none.
patients_of <- function(record, analysis) {
  if (!is.null(analysis$n_patients)) {
    return(as.numeric(analysis$n_patients))
  }
  counts <- vapply(record$sites, function(site) if (is.null(site$patients)) NA_real_ else as.numeric(site$patients), 1)
  sum(counts)
}

#' One row per fit.
glance.multicentre_run <- function(x, analysis = NULL, ...) {
  chosen <- pick(x, analysis)
  tests <- result_tables(x, analysis)$tests
  row <- data.frame(
    analysis = chosen$name,
    method = chosen$method,
    status = chosen$status,
    sites = length(x$record$sites),
    patients = patients_of(x$record, chosen)
  )
  if (!is.null(tests)) {
    for (i in seq_len(nrow(tests))) {
      row[[paste0("p.value.", tests$test[i])]] <- tests$p_value[i]
    }
  }
  row
}

# The generics of broom are in `generics`; they are registered if that package is installed, at its load.
.onLoad <- function(libname, pkgname) {
  register <- function(...) {
    for (generic in c("tidy", "glance")) {
      method <- get(paste0(generic, ".multicentre_run"), envir = asNamespace("multicentre"))
      registerS3method(generic, "multicentre_run", method, envir = asNamespace("generics"))
    }
  }
  if (requireNamespace("generics", quietly = TRUE)) register()
  setHook(packageEvent("generics", "onLoad"), register)
}
