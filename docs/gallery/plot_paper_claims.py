"""
The paper's claims, on data at hand
===================================

The SCALE paper makes claims about its method: smoothing labels by synthetic agreement improves calibration where
readers disagree. scalecal states each claim as a test with a rule, and says whether it holds on the data you have.
"""

# %%
# Here the data are lung nodules with five features, far from the paper's images. Every method is trained with three
# seeds, on the same splits by patient.

from scalecal.datasets import load_lidc
from scalecal.evaluation.evaluations import evaluate
from scalecal.paper.claims import judge_comparison
from scalecal.probes.methods import METHODS
from scalecal.runs.grid import run_grid

methods = ["none", "vanilla-ls", "scale", "real-piecewise"]
data = load_lidc()
grid = run_grid(data, methods=methods, seeds=3, preset="default", dataset="lidc")

# %%
# A claim holds, does not hold, or is inconclusive: the cases are too few to tell, which does not mean that it is false.
# Some of the claims that these data can decide:

judged = {claim["id"]: claim for claim in judge_comparison(data, grid)}
for claim in judged.values():
    if claim["n"] and (claim["main"] or claim["verdict"] == "holds"):
        print(
            f"{claim['verdict'].upper()}: {claim['claim']}. Paper: {claim['paper']}; here: {claim['measured']}."
        )

# %%
# One of them, in a picture: does SCALE lower the calibration error on cases that readers disagree about? Each dot is
# a seed. The grey part is what a *calibrated* model would show there, because the stratum was made from the label's own
# votes: inside it there is nothing to correct.

import matplotlib.pyplot as plt

results = evaluate(grid.cell).results
low = results[results["stratum"] == "low"]
fig, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
null = (
    low.loc[(low["metric"] == "null") & (low["method"] == "none"), "value"]
    .astype(float)
    .mean()
)
axis.axvspan(0, null, color="0.92", lw=0)
for k, method in enumerate(methods):
    mine = low[low["method"] == method]
    values = mine.loc[mine["metric"] == "ece", "value"].astype(float)
    axis.scatter(
        values,
        [k] * len(values),
        s=45,
        color="C1" if method == "scale" else "C0",
        zorder=2,
    )
axis.set_yticks(range(len(methods)), [METHODS[name].label for name in methods])
axis.set_ylim(len(methods) - 0.5, -0.5)
axis.set(
    xlabel="ECE where readers disagree (grey: a calibrated model)", xlim=(0, None)
)
