"""What a run writes, and that a killed run loses nothing."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from scalecal.checks import InputError  # noqa: E402
from scalecal.datasets import open_dataset  # noqa: E402
from scalecal.datasets.image_sets import ImageSet  # noqa: E402
from scalecal.datasets.image_sources import FileSource  # noqa: E402
from scalecal.evaluation.cells import read_cell  # noqa: E402
from scalecal.io.store import Store  # noqa: E402
from scalecal.metrics import auc  # noqa: E402
from scalecal.paper.finetuning import FinetuneOptions, Training, build_network, finetune  # noqa: E402  # noqa: E402
from tests.datasets.trees import make_breakhis  # noqa: E402
from tests.paper.finetuning.made import SMALL  # noqa: E402


def test_learns_an_easy_task(images: ImageSet, tmp_path: Path) -> None:
    options = {**SMALL, "epochs": 10}
    cell = finetune(images, tmp_path / "run", labels=["hard"], seeds=1, **options)
    found = cell.answers["resnet-hard", 0]
    assert auc(cell.y[found.rows], found.p) > 0.95


def test_folder_of_a_run(images: ImageSet, whole: Path) -> None:
    cell = read_cell(whole)
    assert cell.methods == ["resnet-hard", "resnet-piecewise"]
    assert cell.name == "mhist/resnet18"
    test = images.table[images.table["split"] == "test"]
    assert cell.cases.names.tolist() == test["id"].tolist()
    assert cell.cases.votes is not None
    np.testing.assert_array_equal(cell.cases.votes[:, 1], test["votes"].to_numpy(dtype=int))
    assert cell.cases.paths is not None
    assert cell.cases.paths[0].startswith("images/")
    for part in cell.answers.values():
        np.testing.assert_array_equal(part.rows, np.arange(len(test)))
        assert ((part.p >= 0) & (part.p <= 1)).all()
    told = json.loads((whole / "run.json").read_text())
    assert told["kind"] == "finetune"
    assert told["seeds"] == [0]
    expected = {**SMALL, "learning_rate": 1e-3, "decay": 0.91, "weight_decay": 1e-4, "hue": 0.2}
    expected |= {"validation": 0.1, "precision": "fp32"}
    del expected["progress"]
    assert {name: told["options"][name] for name in expected} == expected
    # Every parameter that decides a number is on record.
    assert {field.name for field in fields(FinetuneOptions)} < set(told["options"])
    assert not list(whole.glob("checkpoints/*"))


def test_a_killed_run_goes_on_to_the_same_bytes(
    images: ImageSet, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, write = tmp_path / "run", Store.write
    kills = 0

    def write_and_die(self: Store, name: str, content: Any) -> None:
        nonlocal kills
        write(self, name, content)
        if name.startswith("checkpoints"):
            kills += 1
            raise KeyboardInterrupt

    monkeypatch.setattr(Store, "write", write_and_die)
    for _ in range(10):
        try:
            finetune(
                images, out, labels=["hard", "piecewise"], seeds=1, checkpoint_seconds=0, **SMALL
            )
            break
        except KeyboardInterrupt:
            (file,) = (out / "checkpoints").glob("*.pt")
            if kills == 3:  # a damaged checkpoint is not used: that network starts anew
                file.write_bytes(file.read_bytes()[:1000])
    assert kills == 5  # after the first two of three epochs, for both networks, and one again
    for name in ("predictions.parquet", "cases.parquet", "training.csv", "run.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_finished_networks_are_kept_and_others_may_be_added(
    images: ImageSet, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_cell(whole).answers
    monkeypatch.setattr(Training, "run_epoch", lambda *_: pytest.fail("trained again"))
    again = finetune(images, whole, labels=["hard"], seeds=1, **SMALL)
    assert again.methods == ["resnet-hard", "resnet-piecewise"]
    for key, part in again.answers.items():
        np.testing.assert_array_equal(part.p, before[key].p)


def test_other_settings_are_refused_by_name(images: ImageSet, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"options\.learning_rate: 0.001 there, 0.5 here"):
        finetune(images, whole, seeds=1, learning_rate=0.5, **SMALL)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        finetune(images, tmp_path, seeds=1, **SMALL)


def test_the_best_epoch_predicts(images: ImageSet, tmp_path: Path) -> None:
    # At such a rate the last epoch is rarely the best.
    options = {**SMALL, "epochs": 5, "learning_rate": 0.02}
    finetune(images, tmp_path / "run", labels=["hard"], seeds=1, **options)
    result = json.loads((tmp_path / "run/finished/resnet-hard-seed0.json").read_text())
    nll = [epoch["val_nll"] for epoch in result["history"]]
    assert len(nll) == 5
    assert result["kept_epoch"] == int(np.argmin(nll)) + 1


def test_initial_weights_come_from_the_seed_alone() -> None:
    torch.manual_seed(5)
    one = build_network("resnet18", 2, 1).state_dict()
    state = torch.get_rng_state()
    two = build_network("resnet18", 2, 1).state_dict()
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(one[name], two[name]) for name in one)
    other = build_network("resnet18", 2, 2).state_dict()
    assert not torch.equal(one["conv1.weight"], other["conv1.weight"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ["soft"]}, "unknown label kind 'soft'. Known: hard, vanilla"),
        ({"network": "vgg"}, "unknown network 'vgg'. Known: resnet18"),
        ({"learning_rate": 0.0}, "learning_rate must be a number above 0"),
        ({"batch_size": 1}, "batch_size must be at least 2"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"image_size": 0}, "image_size must be at least 1"),
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
    with pytest.raises(InputError, match="training diverged in epoch 1"):
        finetune(
            images, tmp_path / "run", labels=["hard"], seeds=1, **{**SMALL, "learning_rate": 1e30}
        )


def test_command(images: ImageSet, whole: Path, tmp_path: Path) -> None:
    import shutil

    from typer.testing import CliRunner

    import scalecal.cli.paper  # noqa: F401
    from scalecal.cli.app import app

    assert isinstance(images.source, FileSource)
    out = shutil.copytree(whole, tmp_path / "run")
    line = f"finetune mhist --data {images.source.root} --partial --out {out} --labels hard "
    line += "--seeds 1 --epochs 3 --batch-size 8 --image-size 32 --device cpu"
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 0, result.output
    assert "resnet-piecewise" in result.output
