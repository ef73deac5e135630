"""Calibrators against probmetrics and venn-abers: the same probabilities, and what they cost.

Run: pip install probmetrics numba venn-abers; python -m benchmarks.peer_calibrators [cases]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, log_softmax, softmax

from benchmarks.timing import cpu_seconds
from scalecal.calibrators import CALIBRATORS

Float = np.ndarray
PRIOR = "ours has Platt's prior targets, theirs stops at a tolerance of 1e-4"
EXACT = "the same"
MATRIX = "the same loss, theirs (single precision) {:.0e} above its minimum"


def two_classes(n: int) -> tuple[Float, Float]:
    """Logits and labels whose log-odds are an increasing quadratic in them."""
    rng = np.random.default_rng(0)
    z = 1.5 * rng.standard_normal(n)
    return z, (rng.random(n) < expit(0.6 * z + 0.03 * z**2 - 0.2)).astype(np.int64)


def five_classes(n: int) -> tuple[Float, Float]:
    """Logits and labels, the logits 1.7 times too large and some classes taken for one another."""
    rng = np.random.default_rng(1)
    z = 2.0 * rng.standard_normal((n, 5))
    truth = softmax(z + 0.15 * z @ rng.standard_normal((5, 5)), axis=1)
    y = (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return 1.7 * z, np.minimum(y, 4)


def as_probs(z: Float) -> Float:
    return np.column_stack([expit(-z), expit(z)]) if z.ndim == 1 else softmax(z, axis=1)


def matrix_loss(matrix: Float, shift: Float, fitted: Any, z: Float, y: Float) -> float:
    """The penalised loss of structured matrix scaling, as both define it."""
    n, c = z.shape
    own = softmax(z / fitted.temperature_, axis=1)
    p = (1 - fitted.uniform_) * own + fitted.uniform_ / c
    out = log_softmax(np.log(p) @ matrix.T + shift, axis=1)
    change, diagonal = matrix - np.eye(c), np.diag(matrix) - 1.0
    held = shift @ shift + diagonal @ diagonal + (c - 1) * ((change**2).sum() - diagonal @ diagonal)
    return float(-out[np.arange(n), y].mean() + c / n * held)


def row(
    name: str, peer: str, make: Callable[[], Any], cases: tuple[Float, Float], note: str
) -> str:
    """Fit both to the same cases and apply both to them; compare probabilities and CPU time."""
    z, y = cases
    probs = as_probs(z)

    def ours() -> Float:
        return CALIBRATORS[name]().fit(z, y).predict_proba(z)

    def theirs() -> Float:
        calibrator = make()
        calibrator.fit(probs, y)
        answer = calibrator.predict_proba(probs)
        return np.asarray(answer[0] if isinstance(answer, tuple) else answer)

    apart = np.abs(ours() - theirs()).max()
    if note == MATRIX:
        fitted, other = CALIBRATORS[name]().fit(z, y), make().fit(probs, y).W_
        least = matrix_loss(fitted.matrix_, fitted.intercept_, fitted, z, y)
        note = note.format(matrix_loss(other[:, :-1], other[:, -1], fitted, z, y) - least)
    spent, peers = cpu_seconds(ours), cpu_seconds(theirs)
    classes = 2 if z.ndim == 1 else z.shape[1]
    return (
        f"| {name} | {peer} | {classes} | {len(z):,} | {apart:.1e} | {spent:.4f} | {peers:.4f} "
        f"| {peers / spent:.1f} | {note} |"
    )


def main(n: int = 100_000) -> None:
    """Print one row a pair: largest difference of a probability, CPU seconds, and how many times ours."""
    try:
        import torch
        from probmetrics.calibrators import ETSCalibrator, get_calibrator

        with np.errstate():  # it turns numpy's warnings off for good
            import venn_abers
    except ImportError as error:
        print(f"Calibrators against their peers: not run, {error}\n")
        return
    torch.set_num_threads(1)
    two, many = two_classes(n), five_classes(n)
    few = five_classes(n // 50)
    pairs: list[tuple[str, str, Callable[[], Any], tuple[Float, Float], str]] = [
        ("temperature", "probmetrics temp-scaling", lambda: get_calibrator("temp-scaling"), two, EXACT),
        ("temperature", "probmetrics temp-scaling", lambda: get_calibrator("temp-scaling"), many, EXACT),
        ("platt", "probmetrics affine-scaling", lambda: get_calibrator("affine-scaling"), two, PRIOR),
        ("quadratic", "probmetrics quadratic-scaling", lambda: get_calibrator("quadratic-scaling"),
         two, f"{PRIOR}; increasing here without being made so"),
        ("ensemble-temperature", "probmetrics ETS (ce)", lambda: ETSCalibrator(loss="ce"), two, EXACT),
        ("ensemble-temperature", "probmetrics ETS (ce)", lambda: ETSCalibrator(loss="ce"), many, EXACT),
        ("structured-matrix", "probmetrics sms", lambda: get_calibrator("sms"), many, MATRIX),
        ("structured-matrix", "probmetrics sms", lambda: get_calibrator("sms"), few, MATRIX),
        ("venn-abers", "venn-abers VennAbers", venn_abers.VennAbers, two, EXACT),
        ("venn-abers", "probmetrics ivap", lambda: get_calibrator("ivap"), many, EXACT),
    ]  # fmt: skip
    print(
        "### Calibrators against probmetrics and venn-abers: fitted and applied to the same cases\n"
    )
    print("| scalecal | peer | classes | cases | largest difference | CPU s | peer's | times | |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---|")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for pair in pairs:
            print(row(*pair), flush=True)
    print()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
