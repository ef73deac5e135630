"""JSON documents of our own, and run folders: probes, calibrators, manifests, runs, facts."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from scalecal.io.store import RECORD
from tests.fuzz.engine import Case, Surface, command
from tests.fuzz.mutators import mutate_bytes, mutate_document, odd_value, write_document


def make_probe(folder: Path) -> Path:
    """A fitted probe of three features with a panel, quickly trained."""
    from scalecal import LinearProbe

    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = (X[:, 0] + 0.5 * rng.normal(size=40) > 0).astype(int)
    LinearProbe(max_epochs=2, min_steps=1).fit(X, y).save(folder)
    return folder


def make_calibrator(file: Path) -> Path:
    """The calibrator.json of a temperature."""
    from scalecal.calibrators import TemperatureScaling
    from scalecal.evaluation.recalibration import Recalibrator

    fitted = TemperatureScaling().fit([2.0, 1.0, -1.0, -2.0, 0.5], [1, 0, 0, 0, 1])
    file.write_text(Recalibrator(fitted, ("0", "1"), "temperature").to_json(), encoding="utf-8")
    return file


def make_features(folder: Path) -> Path:
    """A feature folder of two shards."""
    from scalecal.features import import_features

    rng = np.random.default_rng(1)
    source = folder.parent / "features.npz"
    ids = [f"c{i}" for i in range(8)]
    np.savez(
        source, X=rng.normal(size=(8, 3)), id=ids, y=[0, 1] * 4, group=[f"g{i}" for i in range(8)]
    )
    import_features(source, folder, encoder="uni", shard_rows=5)
    return folder


def make_run(folder: Path) -> Path:
    """A run folder of a small audit: its cases, facts and record."""
    from scalecal.cases import Answers, Predictions
    from scalecal.evaluation.cells import write_cell
    from scalecal.evaluation.folder import run_meta, store_facts
    from scalecal.io import read_predictions
    from tests.fuzz.tables import RESAMPLES, texts

    file = folder.parent / "full.csv"
    file.write_text(texts()["full"], encoding="utf-8")
    read = read_predictions(file)
    answers = Answers(read.p, read.p_reader, read.rho, rows=np.arange(len(read)))
    cell = Predictions(read.cases, {("model", 0): answers}, "full", "model")
    meta = run_meta(
        cell,
        kind="audit",
        title="Audit of full",
        command=("scalecal", "audit", "full.csv"),
        options={"n_resamples": RESAMPLES},
        notes=(),
        fingerprint="0" * 64,
    )
    write_cell(folder, replace(cell, meta=meta), kind="audit")
    store_facts(folder)
    return folder


def _calibrators(folder: Path) -> list[Path]:
    """A calibrator.json of every kind of calibrator."""
    from scalecal.calibrators import CALIBRATORS, PanelCalibrator
    from scalecal.evaluation.recalibration import Recalibrator

    rng = np.random.default_rng(0)
    z = rng.normal(size=60)
    y = (z + rng.normal(size=60) > 0).astype(int)
    files = []
    for name, kind in CALIBRATORS.items():
        if kind is PanelCalibrator:
            continue
        fitted = kind().fit(z, y)
        file = folder / f"{name}.json"
        file.write_text(Recalibrator(fitted, ("0", "1"), name).to_json(), encoding="utf-8")
        files.append(file)
    return files


def _prepare_documents(folder: Path) -> dict[str, Any]:
    probe = make_probe(folder / "probe")
    features = make_features(folder / "features")
    run = make_run(folder / "run")
    places = {
        "probe.json": (probe, "probe.json", load_probe_call),
        "probe record": (probe, RECORD, _fit_there),
        "manifest.json": (features, "manifest.json", _read_features),
        "run.json": (run, "run.json", _read_run),
        "facts.json": (run, "facts.json", _read_run),
        "run record": (run, RECORD, _read_run),
    }
    for file in _calibrators(folder):
        places[f"calibrator {file.stem}"] = (folder, file.name, _load_calibrator)
    texts = {name: (home / file).read_text("utf-8") for name, (home, file, _) in places.items()}
    return {"places": places, "texts": texts, "names": list(places), "folder": folder}


def load_probe_call(rng: Random, folder: Path, seeds: Path, out: Path) -> Callable[[], object]:
    """A call that loads a probe: mostly the reader, at times a command."""
    from scalecal.probes import load_probe

    chance = rng.random()
    if chance < 0.03:
        return partial(command, "predict", folder, seeds / "features.npz", "--out", out / "p.csv")
    if chance < 0.04:
        return partial(command, "export", folder, "--out", out)
    return lambda: load_probe(folder).predict_proba(np.zeros((2, 3)))


def _fit_there(_: Random, folder: Path, _seeds: Path, _out: Path) -> Callable[[], object]:
    from scalecal.io.store import check_output_folder, is_whole

    def call() -> None:
        check_output_folder(folder, kind="fit", names=("probe.safetensors", "probe.json"))
        is_whole(folder)

    return call


def _read_features(rng: Random, folder: Path, seeds: Path, out: Path) -> Callable[[], object]:
    from scalecal.io.feature_store import load_features
    from scalecal.io.features import read_features

    chance = rng.random()
    if chance < 0.03:
        return partial(command, "predict", seeds / "probe", folder, "--out", out / "p.csv")
    if chance < 0.06:
        return partial(command, "import", seeds / "features.npz", "--out", folder)
    if chance < 0.3:
        return lambda: load_features(folder, verify=True).X[:2]
    return lambda: np.asarray(read_features(folder).X[:])


def _read_run(rng: Random, folder: Path, _: Path, out: Path) -> Callable[[], object]:
    from scalecal.evaluation.folder import report_facts

    chance = rng.random()
    if chance < 0.02:
        return partial(command, "report", folder, "--out", out / "page.html")
    if chance < 0.022:
        return partial(command, "report", folder, "--export", out)
    return lambda: report_facts([folder])


def _load_calibrator(_: Random, file: Path, _seeds: Path, _out: Path) -> Callable[[], object]:
    from scalecal.evaluation.recalibration import Recalibrator

    return lambda: Recalibrator.load(file).predict([0.2, 0.5, 1.0])


def _draw_document(rng: Random, seeds: Any, folder: Path) -> Case:
    chosen = rng.choice(seeds["names"])
    if chosen == "facts.json" and rng.random() < 0.7:  # they are slow: computed again where wrong
        chosen = "run.json"
    home, name, reader = seeds["places"][chosen]
    text = seeds["texts"][chosen]
    if rng.random() < 0.2:
        data = mutate_bytes(rng, text.encode())
    elif rng.random() < 0.05:
        data = write_document(rng, odd_value(rng))
    else:
        data = write_document(rng, mutate_document(rng, json.loads(text)))
    if home == seeds["folder"]:
        file = folder / name
        file.write_bytes(data)
        return Case(reader(rng, file, seeds["folder"], folder / "out"), (name,), chosen)
    place = folder / "given"
    copy_folder(home, place)
    (place / name).write_bytes(data)
    if chosen == "facts.json" and rng.random() < 0.9:  # as if scalecal had written it
        record = json.loads((place / RECORD).read_text("utf-8"))
        record["files"][name]["sha256"] = hashlib.sha256(data).hexdigest()
        (place / RECORD).write_text(json.dumps(record), "utf-8")
    call = reader(rng, place, seeds["folder"], folder / "out")
    return Case(call, ("given", "features.npz", "out"), chosen)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder, its files as links: a damaged one is written in place of its link."""
    for place in (source, *(p for p in source.rglob("*") if p.is_dir())):
        there = target / place.relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        for file in place.iterdir():
            if file.is_file():
                shutil.copyfile(file, there / file.name)


# Run folders


def _prepare_runs(folder: Path) -> dict[str, Any]:
    run = make_run(folder / "run")
    features = make_features(folder / "features")
    tiles = folder / "tiles"
    tiles.mkdir()
    from PIL import Image

    for i in range(12):
        Image.new("RGB", (6, 6), (i, 9, 200)).save(tiles / f"c{i}.png")
    files = (
        "cases.parquet",
        "predictions.parquet",
        "facts.json",
        "run.json",
        RECORD,
    )
    return {
        "run": run,
        "tiles": tiles,
        "features": features,
        "files": {name: (run / name).read_bytes() for name in files},
        "shards": sorted(str(p.relative_to(features)) for p in features.rglob("*") if p.is_file()),
        "folder": folder,
    }


def _draw_run(rng: Random, seeds: Any, folder: Path) -> Case:
    chance = rng.random()
    place = folder / "given"
    if chance < 0.3:
        copy_folder(seeds["features"], place)
        file = place / rng.choice(seeds["shards"])
        _damage(rng, file)
        call = _read_features(rng, place, seeds["folder"], folder / "out")
        return Case(call, ("given", "features.npz", "out"), file.name)
    copy_folder(seeds["run"], place)
    name = rng.choice(("cases.parquet", "predictions.parquet", *seeds["files"]))
    if name.endswith(".parquet") and rng.random() < 0.5:
        _odd_cell(rng, place / name)
    else:
        _damage(rng, place / name)
    if rng.random() < 0.3 and (place / "facts.json").is_file():  # they are computed again
        (place / "facts.json").unlink()
    names = ("given", "out", "tiles", "cases.parquet", "predictions.parquet")
    if rng.random() < 0.03:
        more = rng.choice(((), ("--images", seeds["tiles"])))
        return Case(
            partial(command, "report", place, *more, "--out", folder / "out.html"), names, name
        )
    if rng.random() < 0.01:
        return Case(
            partial(command, "report", seeds["run"], place, "--export", folder / "out"), names, name
        )
    from scalecal.evaluation.cells import read_cell
    from scalecal.evaluation.folder import report_facts

    if rng.random() < 0.6:
        return Case(lambda: read_cell(place), names, name)
    return Case(lambda: report_facts([place]), names, name)


def _damage(rng: Random, file: Path) -> None:
    """Damage a file, or put something else in its place."""
    data = file.read_bytes()
    chance = rng.random()
    file.unlink()
    if chance < 0.8:
        file.write_bytes(mutate_bytes(rng, data))
    elif chance < 0.85:
        file.mkdir()
    elif chance < 0.9:
        file.symlink_to(rng.choice(("nowhere", file.name, "/dev/null", "..", "run.json")))


def _odd_cell(rng: Random, file: Path) -> None:
    """Give a column of a cell's table another type, name or length."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tests.fuzz.tables import odd_array, write_parquet

    table = pq.read_table(file)
    at = rng.randrange(table.num_columns)
    name = table.column_names[at]
    chance = rng.random()
    if chance < 0.7:
        table = table.set_column(at, name, odd_array(rng, table.num_rows))
    elif chance < 0.8:
        table = table.drop_columns([name])
    elif chance < 0.9:
        table = table.append_column(name, odd_array(rng, table.num_rows))
    elif chance < 0.95:
        table = table.slice(0, rng.randrange(table.num_rows))
    else:
        table = pa.concat_tables([table, table.slice(0, 3)])
    file.write_bytes(write_parquet(table))


SURFACES = {
    "documents": Surface("JSON documents", _prepare_documents, _draw_document, share=4, tested=300),
    "runs": Surface("run and feature folders", _prepare_runs, _draw_run, share=0.5, tested=150),
}
