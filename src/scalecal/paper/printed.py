"""What the paper printed, as data: shown beside what was measured, never expected.

Numbers are transcribed from the tables of "SCALE: Synthetic Calibration via Agreement Labeling in
Embedding Space" (Liu and Hassanpour), most of them in ``printed.csv``. ECE as a fraction, AUC and
accuracy in per cent, as printed. `FACTS` lists statements of the paper that public sources contradict.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scalecal.probes.methods import METHODS

Pair = tuple[float, float]  # mean and standard deviation over ten seeds

ENCODER_LABELS: Mapping[str, str] = {
    "gigapath": "GigaPath",
    "uni": "UNI",
    "conch": "CONCH",
    "chief": "CHIEF",
    "ctranspath": "CTransPath",
    "phikon": "Phikon",
    "plip": "PLIP",
    "resnet50": "ResNet-50",
}
"""The paper's eight encoders, in its order."""

FINE_TUNED_LABELS: Mapping[str, str] = {
    "resnet-hard": "Baseline",
    "resnet-vanilla-ls": "Vanilla LS",
    "resnet-linear": "Agree-Linear",
    "resnet-piecewise": "Agree-Piecewise",
    "resnet-nonlinear": "Agree-Nonlinear",
}
"""Labels of the end-to-end networks, in the paper's order."""


def encoder_label(name: str) -> str:
    """Return an encoder's name as the paper writes it; other names stay as they are."""
    return ENCODER_LABELS.get(name, name)


def method_label(name: str) -> str:
    """Return a method's label; a name that is not known stays as it is.

    Examples
    --------
    >>> method_label("none"), method_label("resnet-hard"), method_label("mine")
    ('No calibration', 'Baseline', 'mine')
    """
    if name in METHODS:
        return METHODS[name].label
    return FINE_TUNED_LABELS.get(name, name)


SEEDS = 10
"""Seeds of the paper's experiments, and of those of Wei et al. (2022)."""

REPLICATION: Mapping[str, tuple[Pair, Pair, Pair, Pair]] = {
    "resnet-hard": ((84.5, 0.9), (84.7, 0.8), (9.1, 1.5), (8.9, 1.4)),
    "resnet-vanilla-ls": ((85.4, 0.7), (85.6, 0.6), (3.4, 0.7), (3.2, 0.6)),
    "resnet-linear": ((85.9, 0.8), (86.1, 0.9), (5.5, 0.8), (5.3, 0.7)),
    "resnet-piecewise": ((86.2, 0.5), (86.4, 0.4), (3.1, 0.5), (2.9, 0.4)),
    "resnet-nonlinear": ((86.1, 0.8), (86.3, 0.7), (3.0, 0.7), (2.8, 0.6)),
}
"""Method -> AUC of the paper's replication, AUC of Wei et al. (2022), ECE of both; in per cent."""

SMOOTHINGS: Mapping[str, tuple[str, str]] = {
    "linear": ("real-linear", "scale-linear"),
    "piecewise": ("real-piecewise", "scale"),
    "nonlinear": ("real-nonlinear", "scale-nonlinear"),
}
"""Smoothing function -> method with real agreement, method with synthetic agreement."""

SWEEP_SIZES = ("5", "10", "20", "50", "100", "all")
"""Numbers K of anchors per class that the paper compares."""

PAIRWISE: Mapping[str, tuple[float, float, float, float]] = {
    "linear": (0.143, 0.154, 0.011, 0.77),
    "piecewise": (0.123, 0.135, 0.011, 0.83),
    "nonlinear": (0.127, 0.141, 0.014, 0.78),
}
"""Smoothing -> low-agreement ECE of real agreement, of SCALE, their gap, share recovered."""

GENERAL_DATASETS = ("pcam", "breakhis")
"""The paper's data sets without several readers."""


def _numbers() -> dict[tuple[str, ...], Pair]:
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    return {tuple(key): (float(mean), float(sd or "nan")) for *key, mean, sd in rows}


NUMBERS: Mapping[tuple[str, ...], Pair] = _numbers()
"""(data set, encoder, method, metric, stratum) -> mean and standard deviation as printed."""


def printed(dataset: str, encoder: str, method: str, metric: str, stratum: str = "overall") -> Pair:
    """Return what the paper printed, mean and standard deviation; NaN where it printed nothing.

    Examples
    --------
    >>> printed("mhist", "uni", "scale", "ece", "low"), printed("mhist", "mine", "scale", "auc")
    ((0.1, 0.013), (nan, nan))
    """
    return NUMBERS.get((dataset, encoder, method, metric, stratum), (float("nan"), float("nan")))


@dataclass(frozen=True)
class Fact:
    """A statement of the paper beside what public sources say."""

    id: str
    claim: str
    paper: str
    public: str
    source: str
    n: int


FACTS: tuple[Fact, ...] = (
    Fact(
        "fact-strata",
        "MHIST's test set has 652 high-, 161 medium- and 164 low-agreement images",
        "652 / 161 / 164",
        "627 / 186 / 164",
        "Counted in MHIST's annotations.csv (agreement of 7, 6, 5, 4: 323, 304, 186, 164).",
        977,
    ),
    Fact(
        "fact-licence-mhist",
        "MHIST is under CC BY 4.0",
        "CC BY 4.0",
        "Dataset Research Use Agreement",
        "MHIST is handed out on a form under its own research agreement; it may not be passed on.",
        1,
    ),
    Fact(
        "fact-licence-uni",
        "UNI is under Apache 2.0",
        "Apache 2.0",
        "CC-BY-NC-ND 4.0, gated",
        "UNI's model card.",
        1,
    ),
    Fact(
        "fact-licence-phikon",
        "Phikon is under Apache 2.0",
        "Apache 2.0",
        "Owkin non-commercial",
        "Phikon's model card.",
        1,
    ),
    Fact(
        "fact-licence-chief",
        "CHIEF is under Apache 2.0",
        "Apache 2.0",
        "AGPL-3.0, weights on request",
        "CHIEF's repository.",
        1,
    ),
)
"""What the paper says and public sources contradict."""
