"""
From one set to another
=======================

A model is calibrated on data like those it was built on. Elsewhere the scanner, the staining or the patients differ, and
only an audit shows whether its probabilities still hold. A few local cases are enough to recalibrate it.
"""

# %%
# CT scanners image the lung in slices, some thick, some thin. Here is a model built on thick slices, whose features
# include the number of slices in which a nodule is seen. It is audited on other patients with thick slices ("at home"),
# and on thin slices.

import numpy as np
from sklearn.linear_model import LogisticRegression

from scalecal import audit, calibrate
from scalecal.datasets import load_lidc
from scalecal.splits import split

data = load_lidc()
# Extent in millimetres over the number of slices; both features are logarithms.
thickness = 10 * np.exp(data.X[:, 3] - data.X[:, 4])
thick, thin = data.take(thickness > 1.5), data.take(thickness <= 1.5)
part = split(thick.y, groups=thick.groups, shares=(0.6, 0.0, 0.4), seed=0)
train, home = thick.take(part == "train"), thick.take(part == "test")
model = LogisticRegression(C=10).fit(train.X, train.y)


def predict(cases):
    """Probability of malignancy."""
    return model.predict_proba(cases.X)[:, 1]


at_home = audit(home.y, predict(home), groups=home.groups, n_resamples=300)
print(
    "at home:",
    at_home.verdict["headline"],
    f"AUC {at_home['overall']['auc']:.2f}",
)

# %%
# Elsewhere the ranking holds up well, and the probabilities do not: they are far too high.

part = split(thin.y, groups=thin.groups, shares=(0.4, 0.0, 0.6), seed=0)
local, rest = thin.take(part == "train"), thin.take(part == "test")
away = audit(rest.y, predict(rest), groups=rest.groups, n_resamples=300)
print("elsewhere:", away.verdict["headline"], f"AUC {away['overall']['auc']:.2f}")

# %%
# A calibrator fitted to the local cases corrects them without changing the model.

fitted = calibrate(local.y, predict(local), groups=local.groups, n_resamples=300)
recalibrated = audit(
    rest.y,
    fitted.recalibrator.predict(predict(rest)),
    groups=rest.groups,
    n_resamples=300,
)
print(
    f"after {fitted.chosen} on {len(local)} local nodules:",
    recalibrated.verdict["headline"],
)

# %%

import matplotlib.pyplot as plt

shown = {
    "at home": (at_home, "0.35"),
    "elsewhere": (away, "C1"),
    "elsewhere, recalibrated": (recalibrated, "C0"),
}
fig, axes = plt.subplots(
    1, 3, figsize=(9.6, 3.8), sharey=True, layout="constrained"
)
for axis, (name, (audited, colour)) in zip(axes, shown.items(), strict=True):
    bins, bars = audited.audit.reliability("overall")
    row = audited["overall"]
    axis.plot([0, 1], [0, 1], color="0.7", lw=1, zorder=0)
    axis.vlines(bins.mean_p, bars.lo, bars.hi, color="0.87", lw=7, zorder=0)
    axis.scatter(
        bins.mean_p, bins.mean_y, s=8 + 2.5 * bins.n, color=colour, alpha=0.9
    )
    axis.set(
        title=f"{name}: ECE {row['ece']:.2f}, floor {row['floor']:.2f}",
        xlabel="the model says",
    )
    axis.set_aspect("equal")
axes[0].set_ylabel("share that is malignant")
