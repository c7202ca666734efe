# The example study that multicentre makes, run once for all tests. Without the command line there is nothing to test.
available <- nzchar(getOption("multicentre.command", Sys.which("multicentre")[[1]]))
folder <- tempfile("first-paper")

example_run <- local({
  run <- NULL
  function() {
    skip_if_not(available, "the command `multicentre` is not installed")
    if (is.null(run)) {
      make <- Sys.getenv("MULTICENTRE_EXAMPLE")
      skip_if(make == "", "MULTICENTRE_EXAMPLE must name the folder of a study")
      run <<- run_study(file.path(make, "study.toml"), output = folder, quiet = TRUE)
    }
    run
  }
})

test_that("a study gives one table per result file", {
  run <- example_run()
  tables <- result_tables(run, "cox")
  expect_setequal(names(tables), c("hazard-ratios", "tests", "terms"))
  expect_true("arm=new" %in% tables[["hazard-ratios"]]$name)
  expect_equal(run$record$status, "finished")
})

test_that("tidy and glance follow broom", {
  run <- example_run()
  skip_if_not_installed("generics")
  cox <- generics::tidy(run, "cox", exponentiate = TRUE)
  stored <- result_tables(run, "cox")[["hazard-ratios"]]
  expect_named(cox, c("term", "estimate", "std.error", "statistic", "p.value", "conf.low", "conf.high"))
  expect_equal(cox$estimate, stored$hazard_ratio)
  expect_equal(cox$conf.low, stored$lower, tolerance = 1e-6)
  readmission <- generics::tidy(run, "readmission")
  stored <- result_tables(run, "readmission")$coefficients
  expect_equal(readmission$conf.low, stored$lower)
  expect_equal(readmission$conf.high, stored$upper)
  expect_equal(2 * stats::pnorm(-abs(cox$statistic)), cox$p.value, tolerance = 1e-6)
  expect_equal(generics::glance(run, "cox")$patients, pick(run, "cox")$n_patients)
  expect_error(generics::tidy(run, "table-1"), "coefficients")
})

test_that("texts of other parties move no cursor and turn no text", {
  made <- tempfile()
  dir.create(made)
  record <- '{"study": "s\\u001b[2J", "sites": [{}], "status": "finished", "method": "m", "answer": "a \\u202e\\u001b[1A", "model": null}'
  writeLines(record, file.path(made, "run.json"))
  expect_false(any(grepl("[\u001b\u202e]", capture.output(print(open_run(made))))))
})

test_that("the summary holds the answer of every analysis", {
  run <- example_run()
  expect_equal(nrow(summary(run)), 5)
  expect_match(summary(run)$answer[4], "Hazard ratio of arm=new")
  expect_output(print(run), "Report: ")
})

test_that("survival curves and coefficients are drawn", {
  run <- example_run()
  file <- tempfile(fileext = ".pdf")
  grDevices::pdf(file)
  for (analysis in c("survival", "cox", "readmission")) expect_invisible(plot(run, analysis))
  expect_error(plot(run, "table-1"), "neither")
  grDevices::dev.off()
  expect_gt(file.size(file), 3000)
})

test_that("errors say what was expected", {
  expect_error(run_study(), "Give either")
  expect_error(open_run(tempdir()), "run.json")
  expect_error(result_tables(example_run()), "must be one of")
})

test_that("an error of the command line is an R error with its status", {
  skip_if_not(available, "the command `multicentre` is not installed")
  error <- expect_error(run_study(tempfile(fileext = ".toml"), quiet = TRUE), class = "multicentre_error")
  expect_equal(error$status, 3)
  expect_match(conditionMessage(error), "status 3")
})

test_that("installation and disclosure card are lists of R", {
  skip_if_not(available, "the command `multicentre` is not installed")
  checks <- doctor()
  expect_true(checks$ok[checks$name == "numpy"])
  make <- Sys.getenv("MULTICENTRE_EXAMPLE")
  skip_if(make == "", "MULTICENTRE_EXAMPLE must name the folder of a study")
  expect_type(disclosure_card(file.path(make, "study.toml")), "list")
})

test_that("a command that does not exist is named", {
  before <- options(multicentre.command = "no-such-program")
  on.exit(options(before))
  expect_error(doctor(), "must name a program; got \"no-such-program\"")
})

test_that("library folders that R adds are not passed on, and those of the user are", {
  skip_if_not(file.exists(file.path(R.home("etc"), "ldpaths")), "R's start script adds no library folders")
  before <- Sys.getenv("LD_LIBRARY_PATH")
  on.exit(Sys.setenv(LD_LIBRARY_PATH = before))
  Sys.setenv(LD_LIBRARY_PATH = paste(file.path(R.home(), "lib"), "/opt/libraries", sep = ":"))
  expect_equal(multicentre:::command_environment()[["LD_LIBRARY_PATH"]], "/opt/libraries")
})
