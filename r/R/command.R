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
  if (!nzchar(Sys.which(path.expand(path)))) {
    stop("The option \"multicentre.command\" must name a program; got \"", path, "\", which does not exist or is not ",
         "executable. Set options(multicentre.command = \"/path/to/multicentre\").", call. = FALSE)
  }
  path.expand(path)
}

#' Environment of the command line, without the library folders that R's start script adds to LD_LIBRARY_PATH: with
#' them Python would load the system's library of Python instead of the one it was built with.
command_environment <- function() {
  script <- file.path(R.home("etc"), "ldpaths")
  folders <- strsplit(Sys.getenv("LD_LIBRARY_PATH"), ":", fixed = TRUE)[[1]]
  if (!length(folders) || !file.exists(script)) return(NULL)
  print_added <- "LD_LIBRARY_PATH=; . \"$0\"; printf %s \"$LD_LIBRARY_PATH\""
  added <- processx::run("sh", c("-c", print_added, script))$stdout
  before <- setdiff(folders, strsplit(added, ":", fixed = TRUE)[[1]])
  c("current", LD_LIBRARY_PATH = paste(before, collapse = ":"))
}

#' Run a command and return its JSON output; an error of the command becomes an R error with its message and status.
call_command <- function(arguments, quiet = TRUE) {
  # Progress and notes go to standard error, so that standard output holds JSON only.
  done <- processx::run(
    command(), c(arguments, "--json"),
    error_on_status = FALSE,
    env = command_environment(),
    stderr_callback = if (quiet) NULL else function(text, process) cat(text, file = stderr())
  )
  if (done$status != 0) {
    stop(structure(
      class = c("multicentre_error", "error", "condition"),
      list(message = error_text(done), status = done$status, call = NULL)
    ))
  }
  read_json(done$stdout)
}

#' JSON of a file or a text. Characters that move the cursor of a terminal, or turn the direction of its text, become
#' blanks: parts come from other parties.
read_json <- function(json) {
  content <- jsonlite::fromJSON(json, simplifyVector = TRUE, simplifyDataFrame = FALSE)
  rapply(content, harmless, classes = "character", how = "replace")
}

harmless <- function(text) gsub("(?![\\n\\t])[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}]", " ", text, perl = TRUE)

error_text <- function(done) {
  stated <- tryCatch(jsonlite::fromJSON(done$stdout)$error, error = function(unreadable) NULL)
  text <- if (is.character(stated)) stated else if (is.list(stated)) stated$message else NULL
  if (is.null(text)) text <- trimws(done$stderr)
  paste0(harmless(text), " (multicentre ended with status ", done$status, ")")
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
