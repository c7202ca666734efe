library(testthat)
library(multicentre)

test_check("multicentre")
