"""
Few cases
=========

A calibration error measured on few cases is mostly noise: a model that is perfectly calibrated shows one, too. The
*noise floor* says how large.
"""

# %%
# Take a model that is perfect: every label is drawn with exactly the probability that the model says. Its true
# calibration error is zero. What does ECE say?

import numpy as np

from scalecal.metrics import ece, noise_floor

rng = np.random.default_rng(0)
sizes = [20, 40, 80, 160, 320, 640, 1280]
seen, floors = [], []
for n in sizes:
    p = rng.beta(0.7, 0.9, size=n)
    seen.append([ece((rng.random(n) < p).astype(int), p) for _ in range(40)])
    floors.append(noise_floor(p))
for n, values, floor in zip(sizes, seen, floors, strict=True):
    print(
        f"{n:5d} cases: a perfect model shows {np.mean(values):.3f}; the floor says {floor:.3f}"
    )

# %%
# So an ECE of 0.10 is good news on 40 cases and bad news on 1,000. An audit therefore says what it cannot tell.
# Here are 60 nodules, read by three radiologists, and a logistic regression:

from sklearn.linear_model import LogisticRegression

from scalecal import audit
from scalecal.datasets import load_lidc

data = load_lidc()
order = rng.permutation(len(data))
train, test = data.take(order[:500]), data.take(order[500:560])
model = LogisticRegression().fit(train.X, train.y)
small = audit(test.y, model.predict_proba(test.X)[:, 1], n_resamples=300)
for answer in small.verdict["answers"]:
    print(answer["question"], answer["heading"] + ".", answer["text"])

# %%
# ``scalecal plan`` estimates how many cases would settle it. The picture: the grey line is the floor, the dots are
# forty perfect models for each size.

import matplotlib.pyplot as plt

fig, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for n, values in zip(sizes, seen, strict=True):
    axis.scatter(
        n * rng.uniform(0.94, 1.06, len(values)),
        values,
        s=9,
        color="C0",
        alpha=0.6,
        lw=0,
    )
axis.plot(sizes, floors, color="0.4", lw=2)
axis.annotate(
    "noise floor",
    (sizes[1], floors[1]),
    (sizes[1] * 1.15, floors[1] + 0.02),
    color="0.3",
)
row = small["overall"]
axis.scatter([row["n"]], [row["ece"]], marker="D", s=70, color="C1", zorder=3)
axis.annotate(
    "60 real nodules", (row["n"], row["ece"]), (37, row["ece"] - 0.06), color="C1"
)
axis.set(
    xscale="log",
    xlabel="cases",
    ylabel="ECE",
    ylim=(0, None),
    title="Perfectly calibrated models, audited",
)
axis.set_xticks(sizes, [f"{n:,}" for n in sizes])
axis.minorticks_off()
