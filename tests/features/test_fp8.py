"""Precision fp8: the rounding, the measurement beforehand, and what the manifest keeps of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from scalecal.checks import InputError
from scalecal.features import fp8
from scalecal.io.feature_folder import read_manifest
from tests.features.made import TinyNetwork, contents, open_tiles, run, tiny_encoder, write_tiles


def rounded_product(a: Any, a_scale: Any, b: Any, b_scale: Any, bias: Any) -> torch.Tensor:
    """The product of the rounded numbers, in double precision."""
    product = (a.double() * a_scale) @ (b.double() * b_scale).T
    return (product if bias is None else product + bias).to(torch.bfloat16)


@pytest.fixture
def on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp8, "scaled_product", rounded_product)
    monkeypatch.setattr("scalecal.features.encoding.check_fp8", lambda _: None)


class WithLinear(TinyNetwork):
    def __init__(self, error: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.widen, self.back = torch.nn.Linear(8, 32), torch.nn.Linear(32, 32)
        self.last = torch.nn.Linear(32, 8)
        with torch.no_grad():
            self.back.weight *= 10.0**error

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        # Sums of large numbers of either sign: rounding shows the more the larger they are.
        hidden = self.widen(torch.tanh(self.layer(batch)).mean(dim=(2, 3)))
        return self.last(torch.tanh(hidden + self.back(hidden) - self.back.weight.sum(1)))


def test_linear_layers_are_rounded_and_no_others(on_any_device: None) -> None:  # noqa: ARG001
    class Own(torch.nn.Linear):
        pass

    torch.manual_seed(0)
    plain = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.Linear(32, 30), Own(30, 16), torch.nn.Linear(16, 16)
    ).requires_grad_(False)
    rounded = fp8.with_fp8(plain)
    changed = [type(layer) is not type(was) for layer, was in zip(rounded, plain, strict=True)]
    assert changed == [True, False, False, True]
    assert [layer.weight is was.weight for layer, was in zip(rounded, plain, strict=True)] == [
        True
    ] * 4
    rows = torch.randn(100, 64) * torch.logspace(-4, 4, 100)[:, None]
    exact, found = plain[0](rows), rounded[0](rows.reshape(4, 25, 64)).reshape(100, -1).float()
    error = (found - exact).norm(dim=1) / exact.norm(dim=1)
    assert 1e-3 < error.mean() < 0.05, "every row has its own scale, whatever its size"


@pytest.mark.parametrize("noise", [0.0, 1e-2, 1.0])
def test_displacement_is_what_it_says(noise: float) -> None:
    rng = np.random.default_rng(0)
    exact = rng.normal(size=(40, 6))
    moved = exact + noise * rng.normal(size=exact.shape)
    labels = (exact[:, 0] > 0).astype(np.int64)
    figures = fp8.displacement(exact, moved, labels)
    apart = [
        [np.linalg.norm(e[i] - np.delete(e, i, 0), axis=1) for i in range(40)]
        for e in (exact, moved)
    ]
    ranks = [spearmanr(a, b).statistic for a, b in zip(*apart, strict=True)]
    assert figures["neighbours"] == pytest.approx(np.mean(ranks))
    lengths = np.linalg.norm(moved - exact, axis=1) / np.linalg.norm(exact, axis=1)
    assert figures["distance"] == pytest.approx(np.median(lengths))
    assert (figures["probability"] > 0) == (noise > 0)
    assert "probability" not in fp8.displacement(exact, moved, np.zeros(40, np.int64))


@pytest.mark.parametrize(
    "figures", [{"distance": 0.2}, {"neighbours": 0.9}, {"probability": 0.1}, {"distance": np.nan}]
)
def test_what_moved_too_far_is_refused(figures: dict[str, float]) -> None:
    whole = {"images": 512.0, "distance": 0.01, "neighbours": 0.999}
    fp8.check_displacement(whole)
    (name,) = figures
    with pytest.raises(InputError, match=f"512 of these images too far: {name} .* allowed is at"):
        fp8.check_displacement({**whole, **figures})


def test_cards_without_such_numbers_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    images = open_tiles(write_tiles(tmp_path / "t", 2))
    with pytest.raises(InputError, match="'fp8' needs a CUDA card, but the device is 'cpu'"):
        run(images, tmp_path / "f", precision="fp8")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A100")
    with pytest.raises(InputError, match=r"compute capability 9.0 .* here are A100 and torch"):
        fp8.check_fp8("cuda")


def test_manifest_keeps_the_figures_and_a_later_run_does_not_measure_again(
    tmp_path: Path,
    on_any_device: None,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images = open_tiles(write_tiles(tmp_path / "t", 23))
    encoder = replace(tiny_encoder(), module=WithLinear().eval().requires_grad_(False))
    options: dict[str, Any] = {"precision": "fp8", "device": "cpu:0"}
    run(images, tmp_path / "f", encoder, **options)
    manifest = read_manifest(tmp_path / "f")
    assert manifest["precision"] == "fp8"
    assert set(manifest["fp8"]) == {"images", "distance", "neighbours", "probability"}
    assert manifest["fp8"]["images"] == 23
    assert 0 < manifest["fp8"]["distance"] < 0.1
    whole = contents(tmp_path / "f")
    monkeypatch.setattr("scalecal.features.extraction._measured", None)
    run(images, tmp_path / "f", encoder, **options)
    assert contents(tmp_path / "f") == whole


def test_an_encoder_that_cannot_bear_it_is_refused(
    tmp_path: Path,
    on_any_device: None,  # noqa: ARG001
) -> None:
    images = open_tiles(write_tiles(tmp_path / "t", 23))
    encoder = replace(tiny_encoder(), module=WithLinear(error=3).eval().requires_grad_(False))
    with pytest.raises(InputError, match="too far"):
        run(images, tmp_path / "f", encoder, precision="fp8", device="cpu:0")
    assert not (tmp_path / "f").exists()
