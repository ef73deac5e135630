# Reference values for tests/inference/test_levels.py, by R's metafor:
#   Rscript scripts/level_references.R > tests/inference/level_references.json
# Random effects by DerSimonian and Laird, with Hartung and Knapp's standard error; score test of the levels'
# intercepts and slopes beside one recalibration line, by stats::anova (Rao).
suppressMessages(library(metafor))
number <- function(x) paste0("[", paste(formatC(x, digits = 17, format = "g"), collapse = ", "), "]")
effects <- list(
  spread = list(y = c(-0.4, 0.1, 0.3, -0.1, 0.6), v = c(0.02, 0.03, 0.01, 0.05, 0.02)),
  equal = list(y = c(0.01, -0.02, 0.03, 0.02), v = c(0.1, 0.2, 0.1, 0.3)),
  many = list(y = sin(1:12) / 3, v = 0.01 + 0.1 * (cos(1:12))^2)
)
parts <- sapply(names(effects), function(name) {
  one <- effects[[name]]
  fit <- rma(yi = one$y, vi = one$v, method = "DL", test = "knha", control = list(adhoc = "no"))
  sprintf('    "%s": {"values": %s, "variances": %s, "mean": %.15g, "low": %.15g, "high": %.15g, "tau2": %.15g}',
          name, number(one$y), number(one$v), fit$b[1], fit$ci.lb, fit$ci.ub, fit$tau2)
})
i <- 1:240
z <- 2 * sin(i)
level <- factor(i %% 4)
y <- as.numeric(((i * 7919) %% 100) / 100 < plogis(0.2 + 0.8 * z + 0.7 * (level == 2)))
common <- glm(y ~ z, family = binomial, control = list(epsilon = 1e-14))
apart <- glm(y ~ z * level, family = binomial)
rao <- anova(common, apart, test = "Rao")
cat(sprintf('{\n  "made_by": "%s, metafor %s",\n', R.version.string, packageVersion("metafor")))
cat(sprintf('  "effects": {\n%s\n  },\n', paste(parts, collapse = ",\n")))
cat(sprintf('  "score": {"z": %s, "y": %s, "statistic": %.12g, "p": %.12g}\n}\n',
            number(z), number(y), rao$Rao[2], rao[["Pr(>Chi)"]][2]))
