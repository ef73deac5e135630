"""
Every site and scanner
======================

A model can rank cases equally well everywhere and still be wrong in one place: a new scanner darkens the image, every
probability rises, and the AUC does not notice. An audit by site and scanner does, and says whether one calibrator
serves all of them.
"""

# %%
# Eight hospitals send slides to one model. Two of them scan with a new scanner, on which the odds come out too high by a
# factor of two and a half. The order of the cases is untouched.

import numpy as np
from scipy.special import expit

from scalecal import audit

rng = np.random.default_rng(2)
sites = np.array(list("ABCDEFGH"))
site = rng.choice(sites, 4000, p=[0.2, 0.18, 0.15, 0.15, 0.12, 0.1, 0.07, 0.03])
scanner = np.where(np.isin(site, ["C", "F"]), "new", "old")
z = rng.normal(-1.0, 1.5, size=4000)
between = dict(zip(sites, rng.normal(0.0, 0.15, size=8), strict=True))
true_logit = z + np.array([between[name] for name in site])
y = (rng.random(4000) < expit(true_logit)).astype(int)
p = expit(z + np.log(2.5) * (scanner == "new"))

# %%
# Each level has a row of its own, with the same numbers as a stratum.

result = audit(y, p, by={"site": site, "scanner": scanner})
columns = ["name", "n", "events", "oe", "oe_low", "oe_high", "slope", "auc"]
print(result.to_frame()[columns].round(2).to_string(index=False))

# %%
# AUC is alike on both scanners, O:E is not. What is said of each column allows for the number of levels that were
# compared; the interval for a further site is that of its true O:E.

for text in result.sentences[4:]:
    print(text, end="\n\n")

# %%
# The forest plot of the page, here from the same facts: every site with its interval, the mean of the sites, and the
# prediction interval for a further one.

import matplotlib.pyplot as plt

by_site = result.by[0]
fig, axis = plt.subplots(figsize=(7, 4), layout="constrained")
names = []
for row, level in enumerate(by_site["levels"]):
    colour = "C1" if level["stands_out"] else "C0"
    axis.plot([level["oe_low"], level["oe_high"]], [row, row], color=colour)
    axis.scatter(level["oe"], row, s=level["n"] / 6, marker="s", color=colour)
    names.append(f"{level['name']} (n = {level['n']})")
spread = by_site["spread"]["oe"]
row = len(names)
axis.plot([spread["low"], spread["high"]], [row, row], color="0.1", lw=6)
axis.plot(
    [spread["new_low"], spread["new_high"]], [row + 1, row + 1], "--", color="0.1"
)
axis.axvline(1.0, color="0.7", zorder=0)
axis.set_xscale("log")
axis.set_xticks([0.5, 0.6, 0.8, 1.0, 1.2], ["0.5", "0.6", "0.8", "1", "1.2"])
axis.minorticks_off()
axis.set_yticks(range(row + 2), [*names, "mean of the sites", "a further site"])
axis.invert_yaxis()
axis.set(
    xlabel="observed over expected events",
    title="Two sites share the new scanner",
)
