"""End-to-end networks: what reaches the loss, what a run writes, and that a killed run loses nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from scalecal.checks import InputError  # noqa: E402
from scalecal.datasets.images import ImageSet  # noqa: E402
from scalecal.datasets.registry import open_dataset  # noqa: E402
from scalecal.datasets.sources import FileSource  # noqa: E402
from scalecal.encoders.preprocessing import Preprocessing  # noqa: E402
from scalecal.experiments.cells import read_cell  # noqa: E402
from scalecal.experiments.finetuning import LABEL_KINDS, finetune  # noqa: E402
from scalecal.experiments.finetuning import run as run_module  # noqa: E402
from scalecal.experiments.finetuning.augmentation import (  # noqa: E402
    Augmentation,
    case_keys,
    uniforms,
)
from scalecal.experiments.finetuning.cases import parts_of, read_cases  # noqa: E402
from scalecal.experiments.finetuning.checkpoints import load_checkpoint  # noqa: E402
from scalecal.experiments.finetuning.labels import (  # noqa: E402
    smoothing_strengths,
    training_targets,
)
from scalecal.experiments.finetuning.network import (  # noqa: E402
    build_network,
    starting_weights,
)
from scalecal.experiments.finetuning.pixels import Pixels  # noqa: E402
from scalecal.experiments.finetuning.steps import Stepper  # noqa: E402
from scalecal.experiments.finetuning.training import Training, epoch_order  # noqa: E402
from scalecal.metrics import auc  # noqa: E402
from tests.datasets.trees import make_breakhis, make_mhist  # noqa: E402

N = 48
NO_JITTER: dict[str, Any] = {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0}
SMALL: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 8,
    "image_size": 32,
    "validation": 0.25,
    "device": "cpu",
    "progress": False,
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    """MHIST's layout with an easy task: polyps of class SSA are light, the others dark."""
    root = make_mhist(tmp_path_factory.mktemp("mhist"), N)
    rng = np.random.default_rng(0)
    for i, file in enumerate(sorted((root / "images").iterdir())):
        level = 170 if i % 8 >= 4 else 80
        pixels = rng.normal(level, 20, (32, 32, 3)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(file)
    return open_dataset("mhist", root, partial=True)


@pytest.fixture(scope="module")
def whole(images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run nobody interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    finetune(images, folder, labels=["hard", "piecewise"], seeds=1, **SMALL)
    return folder


# --------------------------------------------------------------------------- labels and loss


def test_targets_follow_the_formulas() -> None:
    votes = np.array([0, 2, 3, 4, 6, 7])
    counts = np.column_stack([7 - votes, votes])
    y = (votes >= 4).astype(np.int64)
    strengths = smoothing_strengths({})
    expected = {
        "hard": [0, 0, 0, 1, 1, 1],
        "vanilla": [0.05, 0.05, 0.05, 0.95, 0.95, 0.95],
        "linear": [0.05 + 0.9 * v / 7 for v in votes],
        "piecewise": [0.0, 0.4 * 2 / 3, 0.4, 0.5, 0.6 + 0.4 * 2 / 3, 1.0],
        "nonlinear": [1 / (1 + np.exp(-5 * (v / 7 - 0.5))) for v in votes],
    }
    assert set(expected) == set(LABEL_KINDS)
    for name, positive in expected.items():
        found = training_targets(name, y, counts, 2, strengths)
        np.testing.assert_allclose(found[:, 1], positive, atol=1e-12)
        np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_targets_of_more_than_two_classes() -> None:
    counts = np.array([[3, 0, 0], [1, 1, 1]])
    found = training_targets("linear", np.array([0, 1]), counts, 3, smoothing_strengths({}))
    np.testing.assert_allclose(found, [[0.9 + 0.1 / 3, 0.1 / 3, 0.1 / 3], [1 / 3] * 3])


def test_one_step_is_adam_on_the_soft_cross_entropy() -> None:
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(5, 3)), rng.normal(size=(2, 3))
    positive = rng.uniform(size=5)
    q = np.column_stack([1 - positive, positive])
    layer = torch.nn.Linear(3, 2, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(w))
    stepper = Stepper(layer, learning_rate=0.1, weight_decay=0.03, precision="fp32", device="cpu")
    stepper.set_learning_rate(0.01)
    losses = [float(stepper(torch.from_numpy(x), torch.from_numpy(q).float())) for _ in range(2)]

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


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_an_optimiser_that_was_put_away_goes_on_as_if_nothing_happened(precision: str) -> None:
    rng = np.random.default_rng(4)
    x = torch.from_numpy(rng.normal(size=(8, 3)).astype(np.float32))
    q = torch.from_numpy(rng.dirichlet([1, 1], 8).astype(np.float32))

    def made() -> tuple[torch.nn.Module, Stepper]:
        layer = torch.nn.Linear(3, 2)
        torch.nn.init.ones_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        options: dict[str, Any] = {"learning_rate": 0.1, "weight_decay": 0.0, "device": "cpu"}
        return layer, Stepper(layer, precision=precision, **options)

    layer, stepper = made()
    for _ in range(3):
        stepper(x, q)
    tensors = {name: tensor.clone() for name, tensor in stepper.tensors().items()}
    scaler = json.loads(json.dumps(stepper.scaler()))
    again, other = made()
    again.load_state_dict(layer.state_dict())
    other.load(tensors, scaler)
    for _ in range(2):
        stepper(x, q)
        other(x, q)
    assert torch.equal(layer.weight, again.weight)
    assert torch.equal(layer.bias, again.bias)
    assert stepper.scaler() == other.scaler()


def test_the_labels_of_the_kind_reach_the_loss(
    images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The targets of every step are those of the images in it, in the order of the epoch."""
    seen: list[np.ndarray] = []

    def step(_: Stepper, x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        assert len(x) == len(q)
        seen.append(q.numpy().copy())
        return torch.zeros(())

    monkeypatch.setattr(Stepper, "__call__", step)
    finetune(images, tmp_path / "run", labels=["nonlinear"], seeds=[3], **{**SMALL, "epochs": 1})
    cases = read_cases(images)
    parts = parts_of(cases, 3, validation=0.25, test=0.2)
    order = epoch_order(parts.train, 3, 0)
    share = (np.flatnonzero(np.ones(N)) % 8)[order] / 7
    np.testing.assert_allclose(
        np.concatenate(seen)[:, 1], 1 / (1 + np.exp(-5 * (share - 0.5))), 1e-6
    )


# --------------------------------------------------------------------------- augmentation


def test_randomness_belongs_to_the_case() -> None:
    keys = case_keys([f"case {i}" for i in range(4000)])
    assert len(np.unique(keys)) == 4000
    u = uniforms(keys, seed=3, epoch=9, n=7)
    some = np.array([17, 5, 3999])
    np.testing.assert_array_equal(uniforms(keys[some], seed=3, epoch=9, n=7), u[some])
    for column in u.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
    others = [uniforms(keys, 4, 9, 7), uniforms(keys, 3, 10, 7)]
    related = np.corrcoef(np.column_stack([u, *others]).T) - np.eye(21)
    assert np.abs(related).max() < 5 / np.sqrt(4000)


def test_colour_jitter_is_torchvisions() -> None:
    import torchvision.transforms.functional as reference

    rng = np.random.default_rng(2)
    pixels = rng.integers(0, 256, (6, 9, 7, 3), dtype=np.uint8)
    pixels[0] = 128  # grey has no hue
    pixels[1, 0] = [[255, 0, 0]] * 7
    draws = rng.uniform(size=(6, 7))
    jitter = Augmentation(False, False, 0.5, 0.4, 1.5, 0.3)
    found = jitter(torch.from_numpy(pixels), draws)
    for i in range(6):
        x = torch.from_numpy(pixels[i]).permute(2, 0, 1).float() / 255
        x = reference.adjust_brightness(x, 0.5 + draws[i, 3])
        x = reference.adjust_contrast(x, 0.6 + 0.8 * draws[i, 4])
        x = reference.adjust_saturation(x, 2.5 * draws[i, 5])
        x = reference.adjust_hue(x, 0.6 * draws[i, 6] - 0.3)
        torch.testing.assert_close(found[i], x, atol=2e-5, rtol=0)


def test_flips_and_turns() -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (4, 5, 5, 3), dtype=np.uint8)
    draws = np.full((4, 7), 0.9)
    draws[0, 0], draws[1, 1], draws[2, 2], draws[3, 2] = 0.2, 0.2, 0.3, 0.0
    found = Augmentation(True, True, **NO_JITTER)(torch.from_numpy(pixels), draws).numpy() * 255
    expected = [
        np.rot90(pixels[0][:, ::-1], 3),
        np.rot90(pixels[1][::-1], 3),
        np.rot90(pixels[2], 1),
        pixels[3],
    ]
    for image, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(image, wanted.transpose(2, 0, 1), atol=1e-4)


def test_bad_augmentation() -> None:
    with pytest.raises(InputError, match="hue must be at most"):
        Augmentation(True, True, 0.0, 0.0, 0.0, 0.7)
    with pytest.raises(InputError, match="contrast must be a number >= 0, got -1"):
        Augmentation(True, True, 0.0, -1, 0.0, 0.0)


# --------------------------------------------------------------------------- images and parts


def test_images_held_or_decoded_on_the_fly_are_the_same(images: ImageSet) -> None:
    square = Preprocessing(resize=24, crop=16, interpolation="bilinear")
    rows = np.array([3, 4, 5, 20, 1, 0])
    blocks = [np.array([5, 0]), np.array([2]), np.array([1, 3, 4]), np.array([0]), np.array([4])]
    held = Pixels(images, rows, square, device="cpu", memory=1.0, workers=2)
    fly = Pixels(images, rows, square, device="cpu", memory=0.0, workers=2)
    assert held.held is not None
    assert fly.held is None
    for block, a, b in zip(blocks, held.blocks(blocks), fly.blocks(blocks), strict=True):
        assert a.shape == (len(block), 16, 16, 3)
        assert torch.equal(a, b)
        first = square.pixels(Image.fromarray(images.read_one(int(rows[block[0]]))))
        np.testing.assert_array_equal(a[0].numpy(), first)


def test_parts_keep_the_published_test_set_and_whole_patients(
    images: ImageSet, tmp_path: Path
) -> None:
    cases = read_cases(images)
    one, two = (parts_of(cases, seed, validation=0.25, test=0.2) for seed in (0, 1))
    np.testing.assert_array_equal(one.test, np.flatnonzero(cases.part == "test"))
    np.testing.assert_array_equal(one.test, two.test)
    assert not np.array_equal(one.val, two.val)
    for parts in (one, two):
        every = np.concatenate([parts.train, parts.val, parts.test])
        assert sorted(every) == list(range(N))
        assert len(parts.val) == 8

    grouped = read_cases(open_dataset("breakhis", make_breakhis(tmp_path), partial=True))
    assert grouped.groups is not None
    parts = parts_of(grouped, 0, validation=0.2, test=0.3)
    found = [set(grouped.groups[p]) for p in (parts.train, parts.val, parts.test)]
    assert all(found)
    assert sum(map(len, found)) == len(set.union(*found))


# --------------------------------------------------------------------------- whole runs


def test_learns_an_easy_task(images: ImageSet, tmp_path: Path) -> None:
    options = {**SMALL, **NO_JITTER, "epochs": 6}
    cell = finetune(images, tmp_path / "run", labels=["hard"], seeds=1, **options).cell
    index, p = cell.predictions["resnet-hard", 0]
    assert auc(cell.y[index], p) > 0.95


def test_folder_of_a_run(images: ImageSet, whole: Path) -> None:
    cell = read_cell(whole)
    assert cell.methods == ["resnet-hard", "resnet-piecewise"]
    assert cell.name == "mhist/resnet18"
    test = images.table[images.table["split"] == "test"]
    assert cell.ids.tolist() == test["id"].tolist()
    assert cell.counts is not None
    np.testing.assert_array_equal(cell.counts[:, 1], test["votes"].to_numpy(dtype=int))
    assert cell.paths is not None
    assert cell.paths[0].startswith("images/")
    for index, p in cell.predictions.values():
        np.testing.assert_array_equal(index, np.arange(len(test)))
        assert ((p >= 0) & (p <= 1)).all()
    told = json.loads((whole / "run.json").read_text())
    assert told["kind"] == "finetune"
    assert told["seeds"] == [0]
    expected = {**SMALL, "learning_rate": 1e-3, "decay": 0.91, "weight_decay": 1e-4, "hue": 0.2}
    expected |= {"omega": 0.4, "epsilon": 0.1, "phi": 5.0, "weights": "random", "keep": "best"}
    del expected["progress"]
    assert {name: told["options"][name] for name in expected} == expected
    # Every parameter that decides a number is on record.
    import inspect

    free = {"images", "out", "labels", "seeds", "workers", "memory", "checkpoint_seconds"}
    free |= {"progress", "command"}
    assert set(inspect.signature(finetune).parameters) - free == set(told["options"])
    assert not list(whole.glob("checkpoints/*"))


def test_a_killed_run_goes_on_to_the_same_bytes(
    images: ImageSet, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, save = tmp_path / "run", Training.save
    kills = 0

    def save_and_die(self: Training, path: Path) -> None:
        nonlocal kills
        save(self, path)
        kills += 1
        raise KeyboardInterrupt

    monkeypatch.setattr(Training, "save", save_and_die)
    for _ in range(10):
        try:
            finetune(
                images, out, labels=["hard", "piecewise"], seeds=1, checkpoint_seconds=0, **SMALL
            )
            break
        except KeyboardInterrupt:
            (file,) = (out / "checkpoints").iterdir()
            loaded = load_checkpoint(file)
            assert loaded is not None
            assert len(loaded[1]["history"]) in (1, 2)
    assert kills == 4  # after the first two of three epochs, for both networks
    for name in ("predictions.parquet", "cases.parquet", "training.csv", "run.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_finished_networks_are_kept_and_others_may_be_added(
    images: ImageSet, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_cell(whole).predictions
    trained: list[str] = []
    train = run_module.train

    def noted(training: Training, checkpoint: Path, **options: Any) -> Any:
        trained.append(checkpoint.name)
        return train(training, checkpoint, **options)

    monkeypatch.setattr(run_module, "train", noted)
    again = finetune(images, whole, labels=["hard"], seeds=1, **SMALL).cell
    assert not trained
    assert again.methods == ["resnet-hard", "resnet-piecewise"]
    for key, (_, p) in again.predictions.items():
        np.testing.assert_array_equal(p, before[key][1])


def test_other_settings_are_refused_by_name(images: ImageSet, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"begun with other settings: decay was 0.91, now 0.5\. "):
        finetune(images, whole, seeds=1, decay=0.5, **SMALL)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds other files"):
        finetune(images, tmp_path, seeds=1, **SMALL)


def test_patience_stops_and_the_best_epoch_predicts(images: ImageSet, tmp_path: Path) -> None:
    # At such a rate the first epochs cannot all be improvements.
    options = {**SMALL, "epochs": 12, "patience": 1, "learning_rate": 0.02}
    finetune(images, tmp_path / "run", labels=["hard"], seeds=1, **options)
    result = json.loads((tmp_path / "run/finished/resnet-hard-seed0.json").read_text())
    nll = [epoch["val_nll"] for epoch in result["history"]]
    assert result["kept_epoch"] == int(np.argmin(nll)) + 1
    assert len(nll) == result["kept_epoch"] + 1 or len(nll) == 12


def test_pretrained_weights_keep_all_but_the_last_layer(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    donor = build_network("resnet18", 5, 7, starting_weights("resnet18", None)).state_dict()
    file = tmp_path / "donor.safetensors"
    save_file(donor, file)
    start = starting_weights("resnet18", str(file))
    assert start.source == "donor.safetensors"
    found = build_network("resnet18", 2, 0, start).state_dict()
    for name, tensor in donor.items():
        if name.startswith("fc."):
            assert found[name].shape[0] == 2
        else:
            assert torch.equal(found[name], tensor)
    save_file({k: v for k, v in donor.items() if "layer4.1" not in k}, file)
    with pytest.raises(InputError, match="does not fit resnet18: 10 weights missing"):
        build_network("resnet18", 2, 0, starting_weights("resnet18", str(file)))


def test_initial_weights_come_from_the_seed_alone() -> None:
    start = starting_weights("resnet18", None)
    torch.manual_seed(5)
    one = build_network("resnet18", 2, 1, start).state_dict()
    state = torch.get_rng_state()
    two = build_network("resnet18", 2, 1, start).state_dict()
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(one[name], two[name]) for name in one)
    other = build_network("resnet18", 2, 2, start).state_dict()
    assert not torch.equal(one["conv1.weight"], other["conv1.weight"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ["soft"]}, "unknown label kind 'soft'. Known: hard, vanilla"),
        ({"network": "vgg"}, "unknown network 'vgg'. Known: resnet18"),
        ({"keep": "last", "patience": 3}, "patience stops by the validation loss"),
        ({"decay": 1.5}, "decay must be above 0 and at most 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a number above 0"),
        ({"batch_size": 1}, "batch_size must be at least 2"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"seeds": 0}, "at least one seed"),
        ({"weights": "no/such.pth"}, "No weight file at"),
        ({"validation": 1.0}, "share must lie strictly between 0 and 1"),
    ],
)
def test_bad_input(images: ImageSet, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        finetune(images, tmp_path / "run", **{"seeds": 1, **SMALL, **options})
    assert not (tmp_path / "run").exists()


def test_agreement_labels_need_votes(tmp_path: Path) -> None:
    images = open_dataset("breakhis", make_breakhis(tmp_path / "data"), partial=True)
    with pytest.raises(InputError, match="linear labels need readers' votes"):
        finetune(images, tmp_path / "run", labels=["hard", "linear"], seeds=1, **SMALL)


def test_a_loss_that_is_no_number_stops_the_run(images: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="training went astray in epoch 1"):
        finetune(
            images, tmp_path / "run", labels=["hard"], seeds=1, **{**SMALL, "learning_rate": 1e30}
        )


def test_command(images: ImageSet, whole: Path, tmp_path: Path) -> None:
    import shutil

    from typer.testing import CliRunner

    import scalecal.cli.finetune  # noqa: F401
    from scalecal.cli.app import app

    assert isinstance(images.source, FileSource)
    out = shutil.copytree(whole, tmp_path / "run")
    line = f"finetune mhist --data {images.source.root} --partial --out {out} --labels hard "
    line += "--seeds 1 --epochs 3 --batch-size 8 --image-size 32 --validation 0.25 --device cpu"
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 0, result.output
    assert "floor" in result.output
    assert "resnet-piecewise         1     16" in result.output
    result = CliRunner().invoke(app, [*line.split(), "--mean", "0.5,0.5"])
    assert isinstance(result.exception, InputError)
    assert "three numbers" in str(result.exception)
