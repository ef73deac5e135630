"""Metrics against torchmetrics, netcal, probmetrics, scikit-learn and relplot."""

from __future__ import annotations

import numpy as np
from tests.conftest import guard_torchvision

from benchmarks.timing import Call, peer, ratio_table, time_table
from scalecal.metrics import auc, consistency, cox, ece, kuiper, smece, spiegelhalter

CASES = 10_000_000


def make_cases(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    p = 1.0 / (1.0 + np.exp(-2.0 * rng.standard_normal(n)))
    return (rng.random(n) < p).astype(np.int64), p


def torchmetrics_ece(y: np.ndarray, p: np.ndarray) -> Call:
    import torch
    from torchmetrics.functional.classification import binary_calibration_error

    torch.set_num_threads(1)
    preds, target = torch.from_numpy(p), torch.from_numpy(y)
    return lambda: binary_calibration_error(preds, target, n_bins=15)


def netcal_ece(y: np.ndarray, p: np.ndarray) -> Call:
    from netcal.metrics import ECE

    return lambda: ECE(15).measure(p, y)


def probmetrics_ece(y: np.ndarray, p: np.ndarray) -> Call:
    import torch
    from probmetrics.metrics import CalibrationError

    columns, target = torch.from_numpy(np.column_stack([1 - p, p])), torch.from_numpy(y)
    metric = CalibrationError(n_bins=15)
    return lambda: metric.compute_from_labels_probs(target, columns)


def sklearn_curve(y: np.ndarray, p: np.ndarray) -> Call:
    from sklearn.calibration import calibration_curve

    return lambda: calibration_curve(y, p, n_bins=15)


def sklearn_auc(y: np.ndarray, p: np.ndarray) -> Call:
    from sklearn.metrics import roc_auc_score

    return lambda: roc_auc_score(y, p)


def relplot_smece(y: np.ndarray, p: np.ndarray) -> Call:
    import relplot

    return lambda: relplot.smECE(p, y)


def main(n: int = CASES) -> None:
    guard_torchvision()
    y, p = make_cases(n)
    peers = {
        "torchmetrics": peer(lambda: torchmetrics_ece(y, p)),
        "netcal": peer(lambda: netcal_ece(y, p)),
        "probmetrics": peer(lambda: probmetrics_ece(y, p)),
        "scikit-learn calibration_curve": peer(lambda: sklearn_curve(y, p)),
    }
    print(ratio_table(f"ECE, 15 bins, n = {n:,}", lambda: ece(y, p), peers))
    peers = {"relplot": peer(lambda: relplot_smece(y, p))}
    print(ratio_table(f"smECE, n = {n:,}", lambda: smece(y, p), peers))
    few_y, few_p = make_cases(min(n, 1_000_000))
    peers = {"scikit-learn": peer(lambda: sklearn_auc(few_y, few_p))}
    print(ratio_table(f"AUC, n = {len(few_p):,}", lambda: auc(few_y, few_p), peers))
    y, p = make_cases(977)
    calls = {
        "consistency, 1,000 resamples": lambda: consistency(y, p),
        "Cox": lambda: cox(y, p),
        "Kuiper": lambda: kuiper(y, p),
        "Spiegelhalter": lambda: spiegelhalter(y, p),
    }
    print(time_table("Tests, n = 977", calls))


if __name__ == "__main__":
    main()
