"""
A decision curve
================

Calibration is not an end in itself. If nodules are followed up from a probability of 20 % on, a model that says 25 %
when the truth is 5 % sends people to needless scans. A decision curve expresses this in one unit: true positives minus
false positives, weighted as the threshold implies.
"""

# %%
# Naive Bayes on lung nodules, original and recalibrated; the test patients are new.

from sklearn.naive_bayes import GaussianNB

from scalecal import audit, calibrate
from scalecal.datasets import load_lidc
from scalecal.splits import split

data = load_lidc()
part = split(data.y, groups=data.groups, shares=(0.5, 0.0, 0.5), seed=0)
train, test = data.take(part == "train"), data.take(part == "test")
p = GaussianNB().fit(train.X, train.y).predict_proba(test.X)[:, 1]
before = audit(test.y, p, groups=test.groups, n_resamples=300)
result = calibrate(test.y, p, groups=test.groups, n_resamples=300)

# %%
# Every audit has its curve, with intervals over patients. The gain is over the better of two policies that need no
# model: follow up everyone, or no one.

curve = result.evaluation.decision_curve()
at = curve[curve["threshold"].isin([0.1, 0.2, 0.5])]
print(
    at[
        [
            "threshold",
            "treated",
            "net_benefit",
            "treat_all",
            "gain",
            "gain_low",
            "gain_high",
        ]
    ]
    .round(3)
    .to_string(index=False)
)

# %%
# The recalibrated model is worth using at thresholds where the original is not.

import matplotlib.pyplot as plt

fig, axis = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
first = before.decision_curve()
axis.plot(
    curve["threshold"],
    curve["treat_all"],
    color="0.6",
    lw=1.2,
    label="follow up everyone",
)
axis.axhline(0, color="0.2", lw=1.2, label="follow up no one")
axis.fill_between(
    curve["threshold"],
    curve["net_benefit_low"],
    curve["net_benefit_high"],
    color="C0",
    alpha=0.15,
    lw=0,
)
axis.plot(
    first["threshold"],
    first["net_benefit"],
    color="C1",
    lw=2,
    label="original model",
)
axis.plot(
    curve["threshold"],
    curve["net_benefit"],
    color="C0",
    lw=2,
    label="recalibrated",
)
top = float(curve["net_benefit_high"].max())
axis.set(
    ylim=(-0.25 * top, 1.08 * top),
    xlim=(0, 1),
    xlabel="follow up from this probability on",
    ylabel="net benefit",
)
axis.legend()
