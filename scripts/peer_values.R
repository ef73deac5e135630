# Values by R packages for one CSV of p, y, group: lines "name value". See peer_values.py.
suppressMessages({library(rms); library(pROC)})
arguments <- commandArgs(trailingOnly = TRUE)
data <- read.csv(arguments[1])
say <- function(name, value) cat(name, format(unname(value), digits = 15), "\n")
z <- qlogis(data$p)

values <- suppressWarnings(val.prob(data$p, data$y, pl = FALSE))
for (name in c("C (ROC)", "Brier", "Intercept", "Slope", "Emax", "E90", "Eavg"))
  say(paste0("rms.", gsub(" \\(ROC\\)", "", name)), values[name])

offset_fit <- glm(y ~ offset(z), family = binomial, data = data, epsilon = 1e-14)
say("glm.citl", coef(offset_fit))
say("glm.citl_se", sqrt(diag(vcov(offset_fit))))
line <- glm(y ~ z, family = binomial, data = data, epsilon = 1e-14)
say("glm.intercept", coef(line)[1])
say("glm.slope", coef(line)[2])
say("glm.slope_se", sqrt(diag(vcov(line)))[2])

curve <- roc(data$y, data$p, direction = "<", quiet = TRUE)
say("pROC.auc", as.numeric(auc(curve)))
say("pROC.delong_se", sqrt(var(curve, method = "delong")))

# rms: sandwich with groups (Huber, White), of the slope.
fit <- lrm(y ~ z, data = data, x = TRUE, y = TRUE)
say("rms.robcov_slope_se", sqrt(diag(robcov(fit, cluster = data$group)$var))[2])
say("rms.robcov_slope_se_alone", sqrt(diag(robcov(fit)$var))[2])

for (name in c("rms", "pROC")) cat("version", name, as.character(packageVersion(name)), "\n")
cat("version R", paste(R.version$major, R.version$minor, sep = "."), "\n")
