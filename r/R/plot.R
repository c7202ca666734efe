# Plots of survival curves and of ratios with their intervals, in base graphics.

plot.multicentre_run <- function(x, analysis = NULL, ...) {
  tables <- result_tables(x, analysis)
  curves <- tables$curves
  table <- coefficient_table(tables)
  heading <- pick(x, analysis)$name
  if (!is.null(curves) && all(c("time", "survival") %in% names(curves))) {
    plot_survival(curves, heading, type = if (are_steps(x, analysis)) "s" else "l", ...)
  } else if (!is.null(table)) {
    plot_forest(table, heading, ...)
  } else {
    stop("plot() draws survival curves and coefficients; this analysis has neither.", call. = FALSE)
  }
  invisible(x)
}

# Curves on a grid of times are interpolated linearly; curves at the recorded times are steps.
are_steps <- function(run, analysis) {
  file <- file.path(run$folder, pick(run, analysis)$folder, "figures.json")
  figures <- if (file.exists(file)) jsonlite::fromJSON(file, simplifyVector = FALSE) else list()
  curves <- Filter(function(figure) identical(figure$kind, "Curves"), figures)
  length(curves) == 0 || isTRUE(curves[[1]]$steps)
}

plot_survival <- function(curves, heading, type = "s", ...) {
  group <- if (is.null(curves$group)) rep("all", nrow(curves)) else curves$group
  groups <- unique(group)
  plot(
    range(0, curves$time), c(0, 1),
    type = "n", xlab = "Time", ylab = "Probability of survival", main = heading, ...
  )
  for (i in seq_along(groups)) {
    rows <- curves[group == groups[i], ]
    draw <- function(values, lty) {
      points(c(0, rows$time), c(1, values), type = type, lty = lty, col = i)
    }
    draw(rows$survival, 1)
    draw(rows$lower, 3)
    draw(rows$upper, 3)
  }
  legend("topright", legend = groups, col = seq_along(groups), lty = 1, bty = "n")
}

plot_forest <- function(table, heading, ...) {
  table <- table[table$name != "(intercept)", ]
  ratio <- intersect(c("hazard_ratio", "odds_ratio", "rate_ratio"), names(table))
  bounds <- coefficient_bounds(table)
  lower <- bounds[, 1]
  upper <- bounds[, 2]
  centre <- table$coefficient
  is_ratio <- length(ratio) > 0
  if (is_ratio) {
    centre <- exp(centre)
    lower <- exp(lower)
    upper <- exp(upper)
  }
  rows <- rev(seq_len(nrow(table)))
  margins <- par(mar = c(4, 2 + max(nchar(table$name)) / 2, 2, 1))
  on.exit(par(margins))
  plot(
    centre, rows,
    xlim = range(lower, upper, if (is_ratio) 1 else 0), ylim = c(0.5, nrow(table) + 0.5),
    log = if (is_ratio) "x" else "", pch = 15, yaxt = "n", ylab = "", main = heading,
    xlab = if (is_ratio) gsub("_", " ", ratio[1]) else "coefficient", ...
  )
  segments(lower, rows, upper, rows)
  abline(v = if (is_ratio) 1 else 0, lty = 3)
  axis(2, at = rows, labels = table$name, las = 1)
}
