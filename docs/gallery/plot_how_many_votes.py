"""
How many votes do I need?
=========================

Reading every case five times is expensive. To predict how one reader would vote, a model needs labels for all cases and
votes for some of them. How many are enough?
"""

# %%
# A probe is fitted to half of the mitotic figures; on the other half it gives logits out of sample. Of these, half
# again have labels and may have votes; the rest judges.

import numpy as np
from scipy.special import expit

from scalecal import LinearProbe
from scalecal.datasets import load_atnorm_md
from scalecal.metrics import vote_nll
from scalecal.panel import fit_panel, fit_panel_from_summary
from scalecal.splits import split
from scalecal.votes import fleiss_kappa

data = load_atnorm_md()
part = split(data.y, shares=(0.5, 0.25, 0.25), seed=0)
train, known, test = (
    data.take(part == name) for name in ("train", "val", "test")
)
probe = LinearProbe(random_state=0).fit(train.X, train.y)
logits, test_logits = (
    probe.decision_function(known.X),
    probe.decision_function(test.X),
)

# %%
# For each number of voted figures, drawn several times, a panel is fitted to all labels and the votes of those few.
# What counts is how well it then predicts single votes on figures it has not seen.

rng = np.random.default_rng(0)


def score(panel):
    """Vote NLL on the test figures."""
    return vote_nll(
        test.votes, expit(panel.reader_logit(test_logits)), n_raters=test.n_raters
    )


sizes = [10, 25, 50, 100, 250, len(known)]
scores = {}
for n in sizes:
    scores[n] = []
    for _ in range(1 if n == len(known) else 8):
        votes = np.full(len(known), np.nan)
        voted = rng.choice(len(known), n, replace=False)
        votes[voted] = known.votes[voted]
        panel = fit_panel(
            logits, known.y, votes, n_raters=5, panel_size=5, interval=False
        )
        scores[n].append(score(panel))
    print(f"votes on {n:3d} figures: vote NLL {np.mean(scores[n]):.4f}")

# %%
# Two other sources need no votes at all. The label's probability is one, though it answers another question. The other
# is the readers' kappa with their share of positive votes, as a paper on the same task would report them: they are almost
# as informative as the votes.

kappa = fleiss_kappa(train.votes, train.n_raters)
positive = float(np.mean(train.votes / train.n_raters))
published = fit_panel_from_summary(logits, known.y, 5, kappa, positive)
labels_only = vote_nll(
    test.votes, expit(published.label_logit(test_logits)), n_raters=test.n_raters
)
print(
    f"labels only: {labels_only:.4f}; kappa {kappa:.2f} and share {positive:.2f}: {score(published):.4f}"
)

# %%
# A few dozen voted figures give most of the gain from votes on all of them. ``scalecal plan votes`` asks the same
# question before a study, by simulation.

import matplotlib.pyplot as plt

fig, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
for n in sizes:
    axis.scatter(
        np.full(len(scores[n]), n), scores[n], s=14, color="C0", alpha=0.45, lw=0
    )
axis.plot(
    sizes,
    [np.mean(scores[n]) for n in sizes],
    "o-",
    color="C0",
    label="labels, and votes on some",
)
axis.axhline(labels_only, color="C1", lw=1.5, label="labels only")
axis.axhline(
    score(published),
    color="C2",
    lw=1.5,
    ls="--",
    label="labels, published kappa and share",
)
axis.set(
    xscale="log",
    xlabel="figures with five votes",
    ylabel="vote NLL on other figures (lower is better)",
)
axis.set_xticks(sizes, [str(n) for n in sizes])
axis.minorticks_off()
axis.legend()
