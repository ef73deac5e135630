"""
Grouped by patient
==================

Forty tiles of one patient are not forty patients. If tiles are treated as independent, an audit raises false
alarms: it mistakes one unusual patient for a flaw of the model. Naming the patient of each tile prevents this.
"""

# %%
# Forty patients with twenty-five tiles each. The model is calibrated: of the patients to whom it gives 70 %, seven
# of ten are positive. But a patient's tiles share one label.

import numpy as np

from scalecal import audit

rng = np.random.default_rng(3)
patients, tiles = 40, 25
chance = rng.beta(1.5, 1.5, size=patients)
label = (rng.random(patients) < chance).astype(int)
patient = np.repeat(np.arange(patients), tiles)
p = np.clip(chance[patient] + rng.normal(0, 0.02, patients * tiles), 0.01, 0.99)
y = label[patient]

# %%
# The same numbers, audited twice.

alone = audit(y, p, n_resamples=1000)
grouped = audit(y, p, groups=patient, n_resamples=1000)
for name, result in (
    ("1,000 independent tiles", alone),
    ("tiles of 40 patients", grouped),
):
    row = result["overall"]
    print(
        f"{name}: ECE {row['ece']:.3f}, floor {row['floor']:.3f}. {result.verdict['headline']}"
    )

# %%
# The picture compares this model's ECE with those of calibrated models, by chance, under either assumption.

import matplotlib.pyplot as plt

fig, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
edges = np.linspace(0, 0.3, 76)
axis.hist(alone.audit.drawn[0], edges, color="C1", alpha=0.75, density=True)
axis.hist(grouped.audit.drawn[0], edges, color="C0", alpha=0.75, density=True)
axis.axvline(alone["overall"]["ece"], color="0.1", lw=2)
top = axis.get_ylim()[1]
axis.text(alone["overall"]["ece"] + 0.005, 0.9 * top, "this model", color="0.1")
axis.text(
    alone["overall"]["floor"] + 0.018,
    0.6 * top,
    "calibrated models,\nif tiles were\nindependent",
    color="C1",
)
axis.text(0.19, 0.22 * top, "calibrated models,\nof 40 patients", color="C0")
axis.set(xlabel="ECE", yticks=[], title="By chance alone")
axis.spines["left"].set_visible(False)
