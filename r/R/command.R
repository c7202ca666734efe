# Calls of the command line of multicentre.

#' Path of the command line: the option "multicentre.command", or `multicentre` on the search path.
command <- function() {
  path <- getOption("multicentre.command", Sys.which("multicentre")[[1]])
  if (!nzchar(path)) {
    stop(
      "The command `multicentre` must be on the search path; it was not found. ",
      "Install the Python package, or set options(multicentre.command = \"/path/to/multicentre\").",
      call. = FALSE
    )
  }
  path
}

#' Run a command and return its JSON output; an error of the command becomes an R error with its message and status.
call_command <- function(arguments, quiet = TRUE) {
  # Progress and notes go to standard error, so that standard output holds JSON only.
  done <- processx::run(
    command(), c(arguments, "--json"),
    error_on_status = FALSE,
    stderr_callback = if (quiet) NULL else function(text, process) cat(text, file = stderr())
  )
  if (done$status != 0) {
    stop(structure(
      class = c("multicentre_error", "error", "condition"),
      list(message = error_text(done), status = done$status, call = NULL)
    ))
  }
  jsonlite::fromJSON(done$stdout, simplifyVector = TRUE, simplifyDataFrame = FALSE)
}

error_text <- function(done) {
  stated <- tryCatch(jsonlite::fromJSON(done$stdout)$error, error = function(unreadable) NULL)
  text <- if (is.character(stated)) stated else if (is.list(stated)) stated$message else NULL
  if (is.null(text)) text <- trimws(done$stderr)
  paste0(text, " (multicentre ended with status ", done$status, ")")
}

#' Check the installation of multicentre.
doctor <- function() {
  found <- call_command("doctor")
  checks <- do.call(rbind, lapply(found$checks, as.data.frame))
  checks[c("name", "ok", "detail", "needed")]
}

#' Fields that a study would release.
disclosure_card <- function(study) {
  call_command(c("card", path.expand(study)))
}
