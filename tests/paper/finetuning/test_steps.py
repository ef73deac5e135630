"""What reaches the loss, and what a step does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from scalecal.datasets.image_sets import ImageSet  # noqa: E402
from scalecal.paper import finetuning  # noqa: E402
from scalecal.paper.finetuning import (  # noqa: E402  # noqa: E402
    LABEL_KINDS,
    Stepper,
    divide,
    epoch_order,
    finetune,
    labelled_cases,
    training_targets,
)
from tests.paper.finetuning.made import SMALL, N  # noqa: E402


def test_targets_follow_the_formulas() -> None:
    votes = np.array([0, 2, 3, 4, 6, 7])
    counts = np.column_stack([7 - votes, votes])
    y = (votes >= 4).astype(np.int64)
    expected = {
        "hard": [0, 0, 0, 1, 1, 1],
        "vanilla": [0.05, 0.05, 0.05, 0.95, 0.95, 0.95],
        "linear": [0.05 + 0.9 * v / 7 for v in votes],
        "piecewise": [0.0, 0.4 * 2 / 3, 0.4, 0.5, 0.6 + 0.4 * 2 / 3, 1.0],
        "nonlinear": [1 / (1 + np.exp(-5 * (v / 7 - 0.5))) for v in votes],
    }
    assert set(expected) == set(LABEL_KINDS)
    for name, positive in expected.items():
        found = training_targets(name, y, counts, 2)
        np.testing.assert_allclose(found[:, 1], positive, atol=1e-12)
        np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_targets_of_more_than_two_classes() -> None:
    counts = np.array([[3, 0, 0], [1, 1, 1]])
    found = training_targets("linear", np.array([0, 1]), counts, 3)
    np.testing.assert_allclose(found, [[0.9 + 0.1 / 3, 0.1 / 3, 0.1 / 3], [1 / 3] * 3])


def test_one_step_is_adam_on_the_soft_cross_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetuning, "WEIGHT_DECAY", 0.03)
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(5, 3)), rng.normal(size=(2, 3))
    positive = rng.uniform(size=5)
    q = np.column_stack([1 - positive, positive])
    layer = torch.nn.Linear(3, 2, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(w))
    stepper = Stepper(layer, "fp32", "cpu")
    target = torch.from_numpy(q).float()
    losses = [float(stepper(torch.from_numpy(x), target, 0.01)) for _ in range(2)]

    q = q.astype(np.float32).astype(np.float64)
    first = second = np.zeros_like(w)
    for t in (1, 2):
        z = x @ w.T
        p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        assert losses[t - 1] == pytest.approx(-(q * np.log(p)).sum(axis=1).mean(), rel=1e-5)
        gradient = (p - q).T @ x / len(x) + 0.03 * w
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        w = w - 0.01 * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(layer.weight.detach().numpy(), w, rtol=1e-4)


def test_the_labels_of_the_kind_reach_the_loss(
    images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The targets of every step are those of the images in it, in the order of the epoch."""
    seen: list[np.ndarray] = []

    def step(_: Stepper, x: torch.Tensor, q: torch.Tensor, rate: float) -> torch.Tensor:
        assert rate == 1e-3
        assert len(x) == len(q)
        seen.append(q.numpy().copy())
        return torch.zeros(())

    monkeypatch.setattr(Stepper, "__call__", step)
    finetune(images, tmp_path / "run", labels=["nonlinear"], seeds=[3], **{**SMALL, "epochs": 1})
    _, cases = labelled_cases(images)
    parts = divide(cases, 3)
    order = epoch_order(parts.train, 3, 0)
    share = (np.flatnonzero(np.ones(N)) % 8)[order] / 7
    np.testing.assert_allclose(
        np.concatenate(seen)[:, 1], 1 / (1 + np.exp(-5 * (share - 0.5))), 1e-6
    )
