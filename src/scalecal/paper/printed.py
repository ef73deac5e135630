"""What the paper printed, as data: shown beside what was measured, never expected.

Numbers are transcribed from the tables of "SCALE: Synthetic Calibration via Agreement Labeling in
Embedding Space" (Liu and Hassanpour). ECE as a fraction, AUC and accuracy in per cent, as printed.
`FACTS` lists statements of the paper that public sources contradict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scalecal.runs.methods import METHODS

__all__ = [
    "ENCODER_LABELS",
    "FACTS",
    "FINE_TUNED_LABELS",
    "GENERAL_DATASETS",
    "NUMBERS",
    "PAIRWISE",
    "REPLICATION",
    "SMOOTHINGS",
    "Fact",
    "encoder_label",
    "method_label",
    "printed",
]

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


REPLICATION: Mapping[str, tuple[Pair, Pair, Pair, Pair]] = {
    "resnet-hard": ((84.5, 0.9), (84.7, 0.8), (9.1, 1.5), (8.9, 1.4)),
    "resnet-vanilla-ls": ((85.4, 0.7), (85.6, 0.6), (3.4, 0.7), (3.2, 0.6)),
    "resnet-linear": ((85.9, 0.8), (86.1, 0.9), (5.5, 0.8), (5.3, 0.7)),
    "resnet-piecewise": ((86.2, 0.5), (86.4, 0.4), (3.1, 0.5), (2.9, 0.4)),
    "resnet-nonlinear": ((86.1, 0.8), (86.3, 0.7), (3.0, 0.7), (2.8, 0.6)),
}
"""Method -> AUC of the paper's replication, AUC of Wei et al. (2022), ECE of both; in per cent."""

_AUDIT: Mapping[str, Pair] = {
    # high- and medium-agreement ECE of the uncalibrated probe
    "gigapath": (0.035, 0.065),
    "uni": (0.018, 0.045),
    "conch": (0.032, 0.058),
    "chief": (0.028, 0.055),
    "ctranspath": (0.019, 0.048),
    "phikon": (0.030, 0.060),
    "plip": (0.025, 0.075),
    "resnet50": (0.024, 0.055),
}

_MAIN_METHODS = ("none", "temperature", "vanilla-ls", "real-piecewise", "scale")
_MAIN_COLUMNS = (("ece", "overall"), ("ece", "low"), ("auc", "overall"), ("accuracy", "overall"))
_MAIN: Mapping[str, tuple[tuple[float, ...], ...]] = {
    # overall ECE, low ECE, AUC, accuracy, then their standard deviations; in the methods' order
    "gigapath": (
        (0.045, 0.111, 93.5, 89.9, 0.004, 0.013, 0.5, 0.5),
        (0.040, 0.095, 93.5, 89.9, 0.004, 0.011, 0.5, 0.5),
        (0.039, 0.085, 93.4, 89.8, 0.004, 0.010, 0.4, 0.4),
        (0.037, 0.070, 93.6, 90.0, 0.003, 0.008, 0.5, 0.6),
        (0.039, 0.078, 93.5, 89.9, 0.003, 0.008, 0.5, 0.6),
    ),
    "uni": (
        (0.022, 0.150, 91.2, 87.2, 0.002, 0.022, 0.6, 0.6),
        (0.020, 0.140, 91.2, 87.2, 0.002, 0.020, 0.6, 0.6),
        (0.019, 0.116, 91.3, 87.3, 0.002, 0.013, 0.5, 0.6),
        (0.018, 0.092, 91.1, 87.1, 0.002, 0.012, 0.3, 0.6),
        (0.019, 0.100, 91.2, 87.2, 0.002, 0.013, 0.3, 0.6),
    ),
    "conch": (
        (0.045, 0.170, 92.1, 88.1, 0.004, 0.024, 0.6, 0.4),
        (0.041, 0.160, 92.1, 88.1, 0.005, 0.025, 0.6, 0.4),
        (0.040, 0.133, 92.0, 88.0, 0.004, 0.019, 0.4, 0.7),
        (0.038, 0.105, 92.2, 88.2, 0.003, 0.012, 0.4, 0.5),
        (0.040, 0.115, 92.0, 88.0, 0.003, 0.012, 0.6, 0.4),
    ),
    "chief": (
        (0.038, 0.198, 90.5, 86.5, 0.004, 0.023, 0.4, 0.5),
        (0.035, 0.185, 90.5, 86.5, 0.003, 0.026, 0.4, 0.4),
        (0.034, 0.159, 90.6, 86.6, 0.004, 0.018, 0.3, 0.5),
        (0.032, 0.130, 90.4, 86.4, 0.003, 0.014, 0.5, 0.6),
        (0.034, 0.142, 90.5, 86.5, 0.003, 0.022, 0.6, 0.5),
    ),
    "ctranspath": (
        (0.023, 0.180, 89.8, 85.8, 0.002, 0.019, 0.6, 0.4),
        (0.021, 0.168, 89.8, 85.8, 0.002, 0.018, 0.6, 0.7),
        (0.020, 0.145, 89.9, 85.9, 0.002, 0.017, 0.5, 0.6),
        (0.019, 0.118, 89.7, 85.7, 0.002, 0.013, 0.6, 0.5),
        (0.020, 0.130, 89.9, 85.9, 0.002, 0.015, 0.4, 0.7),
    ),
    "phikon": (
        (0.039, 0.210, 90.1, 86.1, 0.004, 0.032, 0.5, 0.6),
        (0.036, 0.195, 90.1, 86.1, 0.005, 0.031, 0.5, 0.5),
        (0.035, 0.169, 90.0, 86.0, 0.003, 0.024, 0.5, 0.4),
        (0.033, 0.140, 90.2, 86.2, 0.003, 0.017, 0.5, 0.5),
        (0.035, 0.152, 90.1, 86.1, 0.004, 0.023, 0.5, 0.6),
    ),
    "plip": (
        (0.033, 0.310, 88.3, 84.3, 0.003, 0.043, 0.4, 0.4),
        (0.028, 0.280, 88.3, 84.3, 0.002, 0.040, 0.4, 0.5),
        (0.027, 0.251, 88.4, 84.4, 0.002, 0.029, 0.3, 0.6),
        (0.025, 0.215, 88.2, 84.2, 0.002, 0.030, 0.5, 0.6),
        (0.027, 0.232, 88.3, 84.3, 0.003, 0.035, 0.6, 0.5),
    ),
    "resnet50": (
        (0.031, 0.195, 87.5, 83.5, 0.004, 0.024, 0.3, 0.4),
        (0.027, 0.178, 87.5, 83.5, 0.002, 0.024, 0.3, 0.5),
        (0.026, 0.149, 87.4, 83.4, 0.002, 0.023, 0.4, 0.6),
        (0.024, 0.118, 87.6, 83.6, 0.002, 0.016, 0.3, 0.5),
        (0.026, 0.130, 87.5, 83.5, 0.003, 0.013, 0.3, 0.6),
    ),
}

SMOOTHINGS: Mapping[str, tuple[str, str]] = {
    "linear": ("real-linear", "scale-linear"),
    "piecewise": ("real-piecewise", "scale"),
    "nonlinear": ("real-nonlinear", "scale-nonlinear"),
}
"""Smoothing function -> method with real agreement, method with synthetic agreement."""

PAIRWISE: Mapping[str, tuple[float, float, float, float]] = {
    "linear": (0.143, 0.154, 0.011, 0.77),
    "piecewise": (0.123, 0.135, 0.011, 0.83),
    "nonlinear": (0.127, 0.141, 0.014, 0.78),
}
"""Smoothing -> low-agreement ECE of real agreement, of SCALE, their gap, share recovered."""

_GENERAL_METHODS = ("none", "vanilla-ls", "scale")
_GENERAL: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    # ECE of none, vanilla LS and SCALE, AUC of SCALE, then the standard deviations
    "pcam": {
        "gigapath": (0.052, 0.046, 0.041, 96.2, 0.005, 0.005, 0.004, 0.3),
        "uni": (0.038, 0.034, 0.030, 95.8, 0.004, 0.003, 0.003, 0.3),
        "conch": (0.048, 0.043, 0.038, 95.5, 0.005, 0.004, 0.004, 0.3),
        "chief": (0.045, 0.040, 0.036, 94.8, 0.004, 0.004, 0.004, 0.3),
        "ctranspath": (0.035, 0.031, 0.028, 93.5, 0.004, 0.003, 0.003, 0.3),
        "phikon": (0.042, 0.038, 0.034, 94.2, 0.004, 0.004, 0.003, 0.3),
        "plip": (0.058, 0.051, 0.045, 93.0, 0.006, 0.005, 0.004, 0.3),
        "resnet50": (0.040, 0.036, 0.033, 92.5, 0.004, 0.004, 0.003, 0.3),
    },
    "breakhis": {
        "gigapath": (0.048, 0.043, 0.039, 94.5, 0.005, 0.004, 0.004, 0.4),
        "uni": (0.042, 0.038, 0.035, 93.8, 0.004, 0.004, 0.004, 0.4),
        "conch": (0.050, 0.045, 0.041, 93.2, 0.005, 0.005, 0.004, 0.4),
        "chief": (0.055, 0.049, 0.045, 92.5, 0.006, 0.005, 0.005, 0.4),
        "ctranspath": (0.046, 0.041, 0.038, 91.8, 0.005, 0.004, 0.004, 0.5),
        "phikon": (0.051, 0.046, 0.042, 92.0, 0.005, 0.005, 0.004, 0.4),
        "plip": (0.062, 0.055, 0.050, 90.5, 0.006, 0.006, 0.005, 0.5),
        "resnet50": (0.058, 0.052, 0.048, 89.8, 0.006, 0.005, 0.005, 0.5),
    },
}

_RANDOM_ANCHORS: Mapping[str, float] = {
    # low-agreement ECE of SCALE with random anchors
    "gigapath": 0.081,
    "uni": 0.106,
    "conch": 0.122,
    "chief": 0.149,
    "ctranspath": 0.136,
    "phikon": 0.159,
    "plip": 0.240,
    "resnet50": 0.138,
}

GENERAL_DATASETS = tuple(_GENERAL)
"""The paper's data sets without several readers."""


def _numbers() -> dict[tuple[str, ...], Pair]:
    out: dict[tuple[str, ...], Pair] = {}
    for encoder, rows in _MAIN.items():
        for method, row in zip(_MAIN_METHODS, rows, strict=True):
            for j, column in enumerate(_MAIN_COLUMNS):
                out["mhist", encoder, method, *column] = (row[j], row[j + 4])
        for stratum, ece in zip(("high", "medium"), _AUDIT[encoder], strict=True):
            out["mhist", encoder, "none", "ece", stratum] = (ece, float("nan"))
        random = _RANDOM_ANCHORS[encoder]
        out["mhist", encoder, "scale-random", "ece", "low"] = (random, float("nan"))
    for dataset, table in _GENERAL.items():
        for encoder, row in table.items():
            for j, method in enumerate(_GENERAL_METHODS):
                out[dataset, encoder, method, "ece", "overall"] = (row[j], row[j + 4])
            out[dataset, encoder, "scale", "auc", "overall"] = (row[3], row[7])
    return out


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
