"""
Predictions only
================

You have a model's probabilities and the labels, nothing else: no votes, no embeddings. An audit says whether the
probabilities are well calibrated; :func:`scalecal.calibrate` recalibrates them and reports the cross-fitted gain.
"""

# %%
# The data are lung nodules that radiologists called malignant or not. The model is naive Bayes, which is known to
# be over-confident. Its test cases are of patients it has not seen.

from sklearn.naive_bayes import GaussianNB

from scalecal import audit, calibrate
from scalecal.datasets import load_lidc
from scalecal.splits import split

data = load_lidc()
part = split(data.y, groups=data.groups, shares=(0.5, 0.0, 0.5), seed=0)
train, test = data.take(part == "train"), data.take(part == "test")
p = GaussianNB().fit(train.X, train.y).predict_proba(test.X)[:, 1]

# %%
# The audit compares the calibration error with the *floor*: what a perfectly calibrated model would show on the
# same number of cases. Only the excess over the floor counts.

before = audit(test.y, p, groups=test.groups, n_resamples=300)
row = before["overall"]
print(before.verdict["headline"])
print(
    f"ECE {row['ece']:.3f} on {row['n']} cases; a calibrated model would show {row['floor']:.3f}"
)

# %%
# Several calibrators, and no calibration, are fitted to some folds and judged on the others. The results reported are of
# cases that had no part in the choice.

result = calibrate(test.y, p, groups=test.groups, n_resamples=300)
print("\n".join(result.sentences))

# %%
# ``result.recalibrator`` is for new cases.

print(result.recalibrator.predict([0.5, 0.9, 0.99, 0.999]).round(2))

# %%
# In the picture, points off the diagonal are miscalibrated, and significantly so if they are outside their grey bar.

import matplotlib.pyplot as plt

fig, axes = plt.subplots(1, 2, figsize=(8, 4), sharey=True, layout="constrained")
for axis, audited, title in zip(
    axes, (result.before, result.after), ("before", "after"), strict=True
):
    bins, bars = audited.reliability("overall")
    axis.plot([0, 1], [0, 1], color="0.7", lw=1, zorder=0)
    axis.vlines(bins.mean_p, bars.lo, bars.hi, color="0.85", lw=7, zorder=0)
    axis.scatter(
        bins.mean_p,
        bins.mean_y,
        s=8 + 2.0 * bins.n,
        color="C0" if title == "after" else "C1",
        alpha=0.9,
    )
    row = audited["overall"]
    axis.set(
        xlabel="the model says",
        title=f"{title}: ECE {row['ece']:.3f}, floor {row['floor']:.3f}",
    )
    axis.set_aspect("equal")
axes[0].set_ylabel("share that is malignant")
