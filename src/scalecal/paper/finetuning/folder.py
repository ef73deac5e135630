"""The folder of a run: settings it was begun with, finished networks, and the cell made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal import __version__
from scalecal.cases import Cases as CaseRecord
from scalecal.cases import Factor
from scalecal.checks import InputError
from scalecal.io.store import write_csv, write_json
from scalecal.paper.finetuning.cases import Cases, Parts, at
from scalecal.paper.finetuning.labels import LABEL_KINDS
from scalecal.paper.finetuning.training import Trained
from scalecal.runs.cells import Cell, Prediction, write_cell

if TYPE_CHECKING:
    from scalecal.datasets.image_sets import ImageSet

__all__ = ["Finetuned", "begin", "checkpoint_file", "collect", "finish", "result_file"]

_SETTINGS = "settings.json"
_FINISHED = "finished"
_PACKAGES = ("numpy", "torch", "torchvision", "safetensors", "pillow")


@dataclass(frozen=True)
class Finetuned:
    """Where the results lie, and the cell they form."""

    path: Path
    cell: Cell


def _stem(name: str, seed: int) -> str:
    return f"{LABEL_KINDS[name].method}-seed{seed}"


def checkpoint_file(folder: Path, name: str, seed: int) -> Path:
    """Where the state of a network in training is kept."""
    return folder / "checkpoints" / f"{_stem(name, seed)}.safetensors"


def result_file(folder: Path, name: str, seed: int) -> Path:
    """Where the predictions of a finished network are kept; no such file: not finished."""
    return folder / _FINISHED / f"{_stem(name, seed)}.json"


def begin(folder: Path, settings: dict[str, Any]) -> None:
    """Note what decides the numbers in a new folder, or compare with what an old one says."""
    file = folder / _SETTINGS
    if not file.exists():
        if folder.exists() and not folder.is_dir():
            raise InputError(f"cannot write to {folder}: it is a file, expected a folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write to {folder}: {error.strerror or error}") from None
        if any(not found.name.startswith(".") for found in folder.iterdir()):
            raise InputError(f"{folder} holds other files. Choose a new folder with --out")
        write_json(file, settings)
        return
    try:
        before = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"{file} is damaged ({error}). Choose a new folder") from None
    changed = _differences(before, settings)
    if changed:
        raise InputError(
            f"{folder} was begun with other settings: {'; '.join(changed)}. "
            "Use the same ones to go on, or another folder"
        )


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], within: str = "") -> list[str]:
    found = []
    for key in dict.fromkeys((*before, *now)):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += _differences(old, new, "" if key == "options" else f"{key} ")
        elif old != new:
            found.append(f"{within}{key} was {old}, now {new}")
    return found


def finish(folder: Path, name: str, seed: int, cases: Cases, parts: Parts, done: Trained) -> None:
    """Keep a finished network's predictions and losses."""
    file = result_file(folder, name, seed)
    file.parent.mkdir(exist_ok=True)
    write_json(
        file,
        {
            "method": LABEL_KINDS[name].method,
            "seed": seed,
            "kept_epoch": done.epoch + 1,
            "history": done.history,
            "ids": cases.ids[parts.test],
            "probs": done.probs,
        },
    )


def collect(
    folder: Path, images: ImageSet, cases: Cases, settings: Mapping[str, Any], command: list[str]
) -> Finetuned:
    """Make the run's folder out of the finished networks."""
    import pandas as pd

    order = [kind.method for kind in LABEL_KINDS.values()]
    results = [
        json.loads(f.read_text(encoding="utf-8")) for f in (folder / _FINISHED).glob("*.json")
    ]
    results.sort(key=lambda r: (order.index(r["method"]), r["seed"]))
    place = {name: i for i, name in enumerate(cases.ids.tolist())}
    tested = np.unique([place[name] for result in results for name in result["ids"]])
    row = {int(position): i for i, position in enumerate(tested)}
    predictions: dict[tuple[str, int], Prediction] = {}
    history = []
    for result in results:
        index = np.array([row[place[name]] for name in result["ids"]], dtype=np.int64)
        probs = np.asarray(result["probs"], dtype=np.float64)
        if len(images.classes) == 2:
            probs = probs[:, 1]
        predictions[result["method"], result["seed"]] = Prediction(index, probs)
        history += [
            {
                "method": result["method"],
                "seed": result["seed"],
                "epoch": epoch,
                **losses,
                "kept": epoch == result["kept_epoch"],
            }
            for epoch, losses in enumerate(result["history"], start=1)
        ]
    options = settings["options"]
    seeds = sorted({seed for _, seed in predictions})
    cell = Cell(
        dataset=images.name,
        encoder=str(options["network"]),
        cases=CaseRecord(
            n=len(tested),
            classes=tuple(images.classes),
            ids=cases.ids[tested],
            y=cases.y[tested],
            votes=at(cases.counts, tested),
            groups=None if cases.groups is None else Factor.of(cases.groups[tested]),
            paths=at(cases.paths, tested),
        ).stratified(),
        predictions=predictions,
        meta={
            "kind": "finetune",
            "title": f"End-to-end {options['network']} on {images.name}",
            "version": __version__,
            "command": command,
            "options": options,
            "seeds": seeds,
            "dataset": {
                **settings["dataset"],
                "n": len(cases),
                "classes": list(images.classes),
                "licence": images.about.licence,
                "credit": images.about.credit,
            },
            "encoder": {
                "name": options["network"],
                "weights": options["weights"],
                "sha256": settings["weights_sha256"],
            },
            "methods": list(dict.fromkeys(method for method, _ in predictions)),
            "notes": _notes(options, cases),
            "packages": _packages(),
        },
    )
    write_cell(folder, cell)
    write_csv(pd.DataFrame(history), folder / "training.csv")
    return Finetuned(folder, cell)


def _notes(options: Mapping[str, Any], cases: Cases) -> list[str]:
    start = (
        "random weights"
        if options["weights"] == "random"
        else f"pretrained weights ({options['weights']})"
    )
    kept = (
        "the epoch with the lowest validation loss of the hard labels"
        if options["keep"] == "best"
        else "the last epoch"
    )
    return [
        f"Every network is trained end to end from {start}; its predictions are those of {kept}.",
        "The hyper-parameters of Wei et al. (2022) are not all published; those used here are the options.",
        *cases.notes,
    ]


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # imported from a source tree
            continue
    return found
