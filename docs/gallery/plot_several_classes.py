"""
Several classes
===============

With more than two classes, the question is the same: when the model gives its first choice 80 %, is it right
four times out of five? And when readers vote on three classes, do their votes agree with the probabilities?
"""

# %%
# Three classes, five readers per case, simulated so that the truth is known. The probe is made over-confident.

import numpy as np

from scalecal import audit, calibrate
from scalecal.datasets import simulate

data = simulate(
    800, n_classes=3, n_raters=5, dim=12, spread=2.5, n_train=200, seed=1
)
test = data.take(data.split == "test")
true = data.label_probability[data.split == "test"]
logits = 2.2 * np.log(true)
p = np.exp(logits - logits.max(axis=1, keepdims=True))
p /= p.sum(axis=1, keepdims=True)

# %%
# ``probs`` has a column per class, and so have the votes.

before = audit(test.y, p, votes=test.votes, n_resamples=100)
print(before.verdict["headline"])

# %%
# Calibrators keep the classes together: the probabilities of a case still sum to one.

result = calibrate(test.y, p, n_resamples=100)
print(
    result.chosen,
    "| ECE before:",
    round(before["overall"]["ece"], 3),
    "after:",
    round(result.after["overall"]["ece"], 3),
)

# %%
# One diagram for each class, before and after. Here the truth is known, so it is drawn instead of labels:
# each dot is a case.

import matplotlib.pyplot as plt

recalibrated = result.predictions.p
fig, axes = plt.subplots(
    2, 3, figsize=(8, 5.4), sharex=True, sharey=True, layout="constrained"
)
for row, probs, colour, name in zip(
    axes, (p, recalibrated), ("C1", "C0"), ("before", "after"), strict=True
):
    for k, axis in enumerate(row):
        axis.plot([0, 1], [0, 1], color="0.7", lw=1, zorder=0)
        axis.scatter(probs[:, k], true[:, k], s=5, lw=0, alpha=0.5, color=colour)
        axis.set_title(f"{name}, class {k}")
        axis.set_aspect("equal")
    row[0].set_ylabel("true probability")
for axis in axes[1]:
    axis.set_xlabel("the model says")
