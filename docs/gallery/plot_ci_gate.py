"""
A gate for continuous integration
=================================

A model is trained again every week. Before it replaces the one in use, its calibration should be held to conditions
that were agreed upon beforehand, automatically.
"""

# %%
# Two versions of a model, audited on the same nodules, with the radiologists' votes.

from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from scalecal import audit
from scalecal.datasets import load_lidc
from scalecal.splits import split

data = load_lidc()
part = split(data.y, groups=data.groups, shares=(0.5, 0.0, 0.5), seed=0)
train, test = data.take(part == "train"), data.take(part == "test")
versions = {
    "logistic regression": LogisticRegression(),
    "naive Bayes": GaussianNB(),
}
audits = {}
for name, model in versions.items():
    p = model.fit(train.X, train.y).predict_proba(test.X)[:, 1]
    audits[name] = audit(
        test.y,
        p,
        votes=test.votes,
        n_raters=test.n_raters,
        groups=test.groups,
        n_resamples=200,
    )

# %%
# The first condition is the verdict. Others name a column of the audit and, unless they apply to all cases, a stratum.
# An undefined number fails as well, so that too few cases cannot pass the gate.

conditions = ["verdict = attention", "slope < 0.8", "nll > 0.45"]
for name, audited in audits.items():
    failures = audited.failures(conditions)
    print(name, "passes" if not failures else "fails:")
    for failure in failures:
        print("   ", failure)

# %%
# On the command line the same conditions make the exit code 3, which stops a pipeline:
#
# .. code-block:: sh
#
#    scalecal audit predictions.csv --fail-if "verdict = attention" --fail-if "slope < 0.8" --quiet
#
# The picture shows how far each version is from some limits.

import matplotlib.pyplot as plt

limits = {
    "excess": ("overall", 0.05),
    "nll": ("overall", 0.45),
    "null_rank": ("low", 0.95),
}
fig, axes = plt.subplots(
    1, 3, figsize=(8.6, 2.7), sharey=True, layout="constrained"
)
for axis, (column, (stratum, limit)) in zip(axes, limits.items(), strict=True):
    values = [audited[stratum][column] for audited in audits.values()]
    colours = ["C1" if value > limit else "C2" for value in values]
    axis.barh(list(audits), values, color=colours, height=0.5)
    axis.axvline(limit, color="0.1", lw=1.5)
    axis.set(title=f"{stratum}: {column}", xlim=(0, 1.3 * max(limit, *values)))
    axis.text(limit, 1.42, " limit", color="0.1", va="top")
    axis.set_ylim(-0.5, 1.5)
