# Runs of studies, and the tables of their results.

#' Run a study and return its run.
run_study <- function(study = NULL, output = NULL, resume = NULL, coordinator = NULL, analyst = NULL, quiet = FALSE) {
  if (is.null(study) == is.null(resume)) {
    stop("Give either `study` (a study file) or `resume` (the folder of an interrupted run).", call. = FALSE)
  }
  options <- list("--resume" = resume, "--output" = output, "--coordinator" = coordinator, "--analyst" = analyst)
  options <- options[!vapply(options, is.null, logical(1))]
  arguments <- c(
    "run",
    if (!is.null(study)) path.expand(study),
    unlist(Map(c, names(options), lapply(options, path.expand)), use.names = FALSE)
  )
  open_run(call_command(arguments, quiet = quiet)$folder)
}

#' Open the folder of a finished run.
open_run <- function(folder) {
  file <- file.path(folder, "run.json")
  if (!file.exists(file)) {
    stop("`folder` must be the folder of a run, with run.json; got ", folder, ".", call. = FALSE)
  }
  record <- read_json(file)
  analyses <- record$analyses
  if (length(analyses) == 0) {
    analyses <- list(c(list(name = record$study, folder = "."), record[c("method", "status", "message", "answer", "model")]))
  }
  names(analyses) <- vapply(analyses, `[[`, character(1), "name")
  structure(list(folder = normalizePath(folder), record = record, analyses = analyses), class = "multicentre_run")
}

#' Tables of an analysis as data frames.
result_tables <- function(run, analysis = NULL) {
  folder <- file.path(run$folder, pick(run, analysis)$folder, "results")
  files <- sort(list.files(folder, pattern = "[.]csv$", full.names = TRUE))
  # Names such as "(intercept)" or "arm=new" are values, and columns keep the names that they have in the files.
  tables <- lapply(files, read.csv, check.names = FALSE, stringsAsFactors = FALSE)
  setNames(tables, sub("[.]csv$", "", basename(files)))
}

#' The analysis of a name; the only one without a name.
pick <- function(run, analysis) {
  if (is.null(analysis) && length(run$analyses) == 1) {
    return(run$analyses[[1]])
  }
  if (is.null(analysis) || !analysis %in% names(run$analyses)) {
    stop("`analysis` must be one of ", paste(names(run$analyses), collapse = ", "), ".", call. = FALSE)
  }
  run$analyses[[analysis]]
}

summary.multicentre_run <- function(object, ...) {
  data.frame(
    analysis = names(object$analyses),
    method = vapply(object$analyses, `[[`, character(1), "method"),
    status = vapply(object$analyses, `[[`, character(1), "status"),
    answer = vapply(object$analyses, `[[`, character(1), "answer"),
    row.names = NULL
  )
}

print.multicentre_run <- function(x, ...) {
  record <- x$record
  cat("Study ", record$study, ": ", length(record$sites), " sites, ", record$status, "\n", sep = "")
  for (analysis in x$analyses) {
    text <- if (nzchar(analysis$answer)) analysis$answer else analysis$status
    # The model in force belongs to its result.
    text <- paste(c(paste0(analysis$name, ": ", text), analysis$model), collapse = " ")
    cat(strwrap(text, width = 80, exdent = 2), sep = "\n")
  }
  cat("Report: ", file.path(x$folder, "report.html"), "\n", sep = "")
  invisible(x)
}
