"""
Your own encoder
================

Embeddings are arrays: one row per case. Which network made them, and with which library, does not matter, and no
deep-learning library is needed to use them. Is the new encoder significantly better than the old one?
"""

# %%
# The "old" encoder is an EfficientNet-Lite0, whose embeddings of 2,107 mitotic figures come with the package. The
# "new" one stands for yours: anything that turns a case into numbers. Here it keeps 24 numbers of the 1,280.

from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from scalecal import LinearProbe, audit, compare_audits
from scalecal.datasets import load_atnorm_md
from scalecal.metrics import COLUMNS
from scalecal.splits import split

data = load_atnorm_md()
X_old = data.X
encoder = make_pipeline(StandardScaler(), PCA(24, random_state=0))
part = split(data.y, shares=(0.6, 0.0, 0.4), seed=0)
train, test = part == "train", part == "test"
encoder.fit(X_old[train])
X_new = encoder.transform(X_old)

# %%
# The same probe on both, and two audits of the same test cases.

audits = {}
for name, X in (("old", X_old), ("new", X_new)):
    probe = LinearProbe(random_state=0).fit(X[train], data.y[train])
    p = probe.predict_proba(X[test])[:, 1]
    audits[name] = audit(
        data.y[test],
        p,
        votes=data.votes[test],
        n_raters=data.n_raters[test],
        n_resamples=200,
    )
    print(name, X.shape[1], "numbers per case:", audits[name].verdict["headline"])

# %%
# Differences are paired: both models saw the same cases, so the difficulty of the cases cancels out.

both = compare_audits(
    audits["old"], audits["new"], names=["old", "new"], n_resamples=500
)
table = both.differences
table = table[
    (table["stratum"] == "overall")
    & table["metric"].isin(["auc", "nll", "brier", "vote_nll", "ece"])
]
print(
    table[["metric", "a", "b", "difference", "low", "high"]]
    .round(3)
    .to_string(index=False)
)

# %%
# From files, one command for each encoder does it: save ``X``, ``y``, ``votes`` and ``n_raters`` with :func:`numpy.savez`, then
# ``scalecal compare embeddings.npz``.

import matplotlib.pyplot as plt

fig, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
for k, row in enumerate(table.itertuples()):
    sign = 1 if row.metric == "auc" else -1
    ends = sorted((sign * row.low, sign * row.high))
    clear = ends[0] > 0 or ends[1] < 0
    colour = "0.45" if not clear else "C2" if ends[0] > 0 else "C1"
    axis.plot(ends, [k, k], lw=3, color=colour, solid_capstyle="butt")
    axis.plot(sign * row.difference, k, "o", color=colour, ms=8)
axis.axvline(0, color="0.2", lw=1)
axis.set_yticks(
    range(len(table)), [COLUMNS[name].title for name in table["metric"]]
)
axis.set_ylim(len(table) - 0.5, -0.5)
axis.set(
    xlabel="worse   <   gain of the new encoder, with 95 % intervals   >   better",
    title="New against old",
)
