"""
Votes
=====

Five pathologists looked at each mitotic figure and called it normal or atypical. The label is what most of them
said. Their votes say more: they distinguish an easy case from one that splits the panel, and so should a model.
"""

# %%
# The embeddings and votes of AtNorM-MD come with the package. A logistic regression is fitted to four fifths of the
# figures and predicts the last fifth, five times: plain cross-validation.

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from scalecal import audit, calibrate
from scalecal.datasets import load_atnorm_md

data = load_atnorm_md()
folds = StratifiedKFold(5, shuffle=True, random_state=0)
p = cross_val_predict(
    LogisticRegression(max_iter=300),
    data.X,
    data.y,
    cv=folds,
    method="predict_proba",
)[:, 1]

# %%
# Two questions can be asked of a case: is it atypical by the panel's majority, and would one pathologist call it so?
# The majority of five is more predictable than one of the five, so one number cannot answer both. Labels judge ``p``,
# votes judge ``p_reader``.

readers = {"votes": data.votes, "n_raters": data.n_raters}
uncalibrated = audit(data.y, p, **readers, n_resamples=100)
result = calibrate(data.y, p, **readers, method="platt", n_resamples=100)
before, after = result.before["overall"], result.after["overall"]
print("before:", uncalibrated.verdict["headline"])
print("after:", result.evaluation.verdict["headline"])
print("share called atypical by the majority:", round(float(np.mean(data.y)), 3))
print("share of all votes for atypical:", round(float(before["vote_share"]), 3))
print(
    f"vote NLL (lower is better): {before['vote_nll']:.3f} before, {after['vote_nll']:.3f} after"
)

# %%
# Cases are also split by how hard the model thinks they are. On easy cases readers should agree with it more often.

for row in result.after.difficulty:
    print(
        f"{row['name']:>6}: {row['n']:4d} figures; it says {row['vote_confidence']:.2f} for its side, votes say {row['vote_agreement']:.2f}"
    )

# %%
# The picture asks the readers: of the figures for which the model says x, which share of all votes was "atypical"?
# The original probability is far from the votes at either end. The recalibrated reader probability is close to them.

import matplotlib.pyplot as plt

share = data.votes / data.n_raters
answers = {
    "p, original": (p, "C1"),
    "p_reader, recalibrated": (result.predictions.p_reader, "C0"),
}
fig, axis = plt.subplots(figsize=(5.6, 4.8), layout="constrained")
axis.plot([0, 0.6], [0, 0.6], color="0.7", lw=1, zorder=0)
for name, (said, colour) in answers.items():
    parts = np.array_split(np.argsort(said), 8)
    axis.plot(
        [said[i].mean() for i in parts],
        [share[i].mean() for i in parts],
        "o-",
        color=colour,
        label=name,
    )
axis.set(
    xlabel="the model says",
    ylabel="share of votes for atypical",
    title="What the model says, and what readers say",
)
axis.legend()
axis.set_aspect("equal")
