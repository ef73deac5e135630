"""The same numbers as public libraries, and where they differ, how.

Libraries that are not installed are skipped; the reference loops in the other files are not.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from scalecal.metrics import ece, smece

# One case at p = 1 and one just below it, erring to opposite sides: in one bin they cancel.
AT_ONE = np.array([0, 1]), np.array([1.0, 0.95])
TOGETHER, APART = 0.475, 0.525


def _import(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, exc_type=ImportError)


@pytest.fixture
def inner(rng):
    """Probabilities away from every edge, so that conventions do not matter."""
    p = (rng.integers(0, 15, 500) + rng.uniform(0.05, 0.95, 500)) / 15
    return (rng.random(500) < p**1.3).astype(int), p


def _torchmetrics_ece(y, p):
    functional = _import("torchmetrics.functional.classification")
    import torch

    return functional.binary_calibration_error(torch.tensor(p), torch.tensor(y), n_bins=15).item()


def _netcal_ece(y, p):
    metrics = _import("netcal.metrics")
    return float(metrics.ECE(15).measure(p, y))


def _sklearn_ece(y, p):
    from sklearn.calibration import calibration_curve

    share, mean = calibration_curve(y, p, n_bins=15)
    # The curve does not give its counts: take them with its own right-closed bins.
    index = np.searchsorted(np.linspace(0, 1, 16)[1:-1], p)
    return float(np.bincount(index)[np.bincount(index) > 0] @ np.abs(share - mean) / len(p))


PEERS = {"torchmetrics": _torchmetrics_ece, "netcal": _netcal_ece, "scikit-learn": _sklearn_ece}


@pytest.mark.parametrize("peer", PEERS)
def test_ece_away_from_edges(peer, inner):
    assert ece(*inner) == pytest.approx(PEERS[peer](*inner), abs=1e-6)


@pytest.mark.parametrize(
    ("peer", "value"), [("torchmetrics", APART), ("netcal", TOGETHER), ("scikit-learn", TOGETHER)]
)
def test_where_each_library_puts_one(peer, value):
    """Torchmetrics gives p = 1 a bin of its own, the sixteenth of fifteen; the others do not."""
    assert ece(*AT_ONE) == pytest.approx(TOGETHER)
    assert PEERS[peer](*AT_ONE) == pytest.approx(value)


def test_scikit_learn_closes_bins_on_the_other_side():
    # At the edge 0.6 of 15 bins: we count it with the case above, scikit-learn with the one below.
    y, p = np.array([1, 0, 0]), np.array([0.6, 0.59, 0.61])
    assert ece(y, p) == pytest.approx((0.59 + abs(0.6 - 1 + 0.61)) / 3)
    assert _sklearn_ece(y, p) == pytest.approx((abs(0.59 + 0.6 - 1) + 0.61) / 3)


def test_top_label_against_torchmetrics(three):
    functional = _import("torchmetrics.functional.classification")
    import torch

    y, p = three
    found = functional.multiclass_calibration_error(
        torch.tensor(p), torch.tensor(y), num_classes=3, n_bins=15
    )
    assert ece(y, p) == pytest.approx(found.item(), abs=1e-6)


@pytest.mark.parametrize(
    ("shape", "tolerance"),
    [
        ((1.0, 1.0), 0.01),
        ((4.0, 2.0), 0.01),
        # Relplot's mesh counts its two end points in full instead of by half, which shows where
        # scores pile up at 0 and 1; test_smoothed holds these against a direct sum.
        ((0.3, 0.3), 0.06),
    ],
)
@pytest.mark.parametrize("n", [300, 20_000])
def test_smece_against_relplot(shape, tolerance, n, rng):
    relplot = _import("relplot")
    p = rng.beta(*shape, n)
    y = (rng.random(n) < p**1.4).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert smece(y, p) == pytest.approx(relplot.smECE(p, y), rel=tolerance)
