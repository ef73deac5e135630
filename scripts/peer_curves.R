# Flexible calibration curve of R's rms, for comparison: lrm(y ~ rcs(qlogis(p), 5)), and ICI, E50, E90, Emax from it.
#
#     Rscript scripts/peer_curves.R tests/inference/peer_curves.json

curve_values <- function(y, p, knots = 5) {
  suppressPackageStartupMessages(library(rms))
  z <- qlogis(p)
  # tol and eps tighter than usual, so that values agree to more digits than are compared
  fit <- lrm(y ~ rcs(z, knots), tol = 1e-12, eps = 1e-12, maxit = 100)
  value <- unname(predict(fit, type = "fitted"))
  error <- abs(value - p)
  list(
    y = y, p = p, knots = unname(as.numeric(fit$Design$parms$z)), value = value,
    ici = mean(error), e50 = unname(quantile(error, 0.5)), e90 = unname(quantile(error, 0.9)), emax = max(error)
  )
}

curve_cases <- function() {
  set.seed(25)
  out <- list()
  for (spec in list(
    list(name = "too extreme", n = 300, shift = 0, slope = 0.6, knots = 5),
    list(name = "rare", n = 900, shift = -2.5, slope = 1.3, knots = 4),
    list(name = "line of three knots", n = 200, shift = 0.7, slope = 1, knots = 3)
  )) {
    z <- round(rnorm(spec$n, spec$shift, 1.5), 3)
    p <- round(plogis(z), 6)
    y <- rbinom(spec$n, 1, plogis(0.2 + spec$slope * z + 0.3 * sin(z)))
    out[[spec$name]] <- curve_values(y, p, spec$knots)
  }
  out
}

if (sys.nframe() == 0) {
  target <- commandArgs(trailingOnly = TRUE)[1]
  versions <- list(R = as.character(getRversion()), rms = as.character(packageVersion("rms")))
  jsonlite::write_json(list(versions = versions, cases = curve_cases()), target, digits = 9, auto_unbox = TRUE)
}
