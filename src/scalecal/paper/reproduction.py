"""The reproduction: cells trained seed by seed, here or on an engine's workers, then judged together.

A `Source` is one data set with one encoder, not yet read: from a feature folder, from images (opening it
then takes an extraction), or from what comes with the package. A task is some seeds of one source. A
worker opens the embeddings where it runs and sends the predictions back; every seed is kept on disk as it
comes in, so that a run that was stopped continues where it was. Tables, figures and claims are made from
what is on disk.
"""

from __future__ import annotations

import re
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from scalecal import features
from scalecal.cases import Features, Predictions, array_hash
from scalecal.checks import InputError, MissingPackageError, ScalecalWarning
from scalecal.datasets import (
    ImageSet,
    load_atnorm_md,
    load_lidc,
    open_dataset,
    simulate,
    simulate_paper,
)
from scalecal.encoders import get_encoder, paper_preprocessing, weights_here
from scalecal.engines import Engine, Worker
from scalecal.engines.local import InProcess
from scalecal.evaluation.cells import cell_of_seed, joined_cell, read_cell, read_meta, write_cell
from scalecal.evaluation.folder import run_meta
from scalecal.io.boundary import read_document
from scalecal.io.feature_store import Named, read_manifest
from scalecal.io.features import read_features
from scalecal.io.store import disk_errors, is_whole, output_folder, write_csv, write_json
from scalecal.paper.evidence import (
    Embeddings,
    Evidence,
    contradiction,
    read_anchors,
    training_embeddings,
    write_anchors,
)
from scalecal.paper.printed import SMOOTHINGS, SWEEP_SIZES
from scalecal.probes import Recipe
from scalecal.probes.methods import METHODS, Method
from scalecal.runs.grid import LEFT_OUT, Grid, on_device, run_grid

# ---- where embeddings come from

PAPER_DATASETS = ("mhist", "pcam", "breakhis")

_FOLDERS = {
    "mhist": ("mhist", "MHIST"),
    "pcam": ("pcam", "PatchCamelyon", "pcamv1"),
    "breakhis": ("breakhis", "BreaKHis_v1", "BreakHis"),
}


@dataclass(frozen=True)
class Source:
    """One data set with one encoder; `open` gives its embeddings."""

    dataset: str
    encoder: str
    where: str
    open: Callable[[], Features]


class SourceError(InputError):
    """A source cannot be opened; others may be."""


def asked_for(
    sources: Iterable[Source], datasets: Sequence[str] | None, encoders: Sequence[str] | None
) -> list[Source]:
    """Return the sources of some data sets and encoders (None: all); no two may be of the same."""
    chosen: dict[tuple[str, str], Source] = {}
    for source in sources:
        key = source.dataset, source.encoder
        if datasets is not None and source.dataset not in datasets:
            continue
        if encoders is not None and source.encoder not in encoders:
            continue
        if key in chosen:
            raise InputError(
                f"{chosen[key].where} and {source.where} are both of data set {source.dataset} with "
                f"encoder {source.encoder}: take one away, or import one under another name "
                "(--dataset, --encoder)"
            )
        chosen[key] = source
    return list(chosen.values())


class _Names(msgspec.Struct):
    dataset: Named
    encoder: Named


def find_features(root: str | Path) -> Iterator[Source]:
    """Find the feature folders below a folder, by their manifests; unfinished ones fail on opening."""
    root = Path(root)
    if not root.is_dir():
        raise InputError(f"no folder at {root}: --features names a folder of feature folders")
    for manifest in sorted(root.rglob("manifest.json")):
        try:
            content = read_document(manifest, _Names)
        except InputError:  # another program's
            continue
        folder = manifest.parent
        names = _plain(content.dataset.name), _plain(content.encoder.name)
        yield Source(*names, str(folder), partial(_read, folder))


def skipped_images(source: Source) -> list[str]:
    """Say how many images of a source could not be read, if any."""
    folder = Path(source.where)
    if not (folder / "manifest.json").is_file():
        return []
    n_skipped = read_manifest(folder).get("n_skipped")
    if not n_skipped:
        return []
    return [
        f"Images of {source.dataset} that could not be read and were left out: {n_skipped:,} "
        f"(see {folder / 'skipped.csv'})."
    ]


def _plain(name: str) -> str:
    """Return a name that is also one of a folder: results are kept under it.

    Examples
    --------
    >>> _plain("mhist"), _plain("hf-hub:owner/model"), _plain("../../up")
    ('mhist', 'hf-hub:owner-model', '-..-up')
    """
    return re.sub(r"[^\w.@+:=-]+", "-", name).lstrip(".") or "unnamed"


def _read(folder: Path) -> Features:
    try:
        return read_features(folder)
    except InputError as error:
        raise SourceError(str(error)) from None


def find_images(
    root: str | Path,
    datasets: Sequence[str],
    encoders: Sequence[str],
    target: str | Path,
    *,
    weights: str | Path | None = None,
    partial_data: bool = False,
    progress: Callable[[str], None] = print,
) -> tuple[list[Source], dict[str, str]]:
    """Find the paper's image data sets below a folder; each is extracted when it is opened.

    Parameters
    ----------
    root
        Holds `mhist/`, `pcam/` and `breakhis/`, or is one of them.
    target
        Folder for the features, ``target/<data set>/<encoder>``.
    weights
        Folder of weight files named ``<encoder>.*``, where they are not in the Hub's cache.
    partial_data
        Take incomplete copies.

    Returns
    -------
    The sources, and why a data set or an encoder is left out.
    """
    root, target = Path(root), Path(target)
    sources, missing = [], {}
    options: dict[str, Any] = {}
    if partial_data:
        options["partial"] = True
    for dataset in datasets:
        names = _FOLDERS[dataset]
        folders = [root / name for name in names if (root / name).is_dir()]
        if not folders and not root.is_dir():
            missing[dataset] = f"no folder {', '.join(names)} in {root}"
            continue
        try:
            # Without a folder of its own, the data set may be the root itself.
            images = open_dataset(dataset, (folders or [root])[0], **options)
        except InputError as error:
            missing[dataset] = str(error)
            continue
        for encoder in encoders:
            files: list[Path] = []
            if weights is not None:
                files = sorted(p for p in Path(weights).glob(f"{encoder}.*") if p.is_file())
            record = get_encoder(encoder)
            by_hand = record.gated or record.source == "file"
            # Checked before any extraction: the run would stop here hours later.
            if not files and by_hand and weights_here(record) is None:
                advice = "get them from"
                if record.gated:
                    advice = "accept the terms at"
                missing[f"{dataset}/{encoder}"] = (
                    f"its weights are not here; {advice} {record.page}, or give --weights DIR"
                )
                continue
            folder = target / dataset / encoder
            job = partial(_extract, images, encoder, folder, files[:1], progress)
            sources.append(Source(dataset, encoder, str(folder), job))
    return sources, missing


def _extract(
    images: ImageSet,
    encoder: str,
    folder: Path,
    weights: Sequence[Path],
    progress: Callable[[str], None],
) -> Features:
    progress(f"extracting {encoder} features to {folder}")
    record = paper_preprocessing(get_encoder(encoder), images.name)
    try:
        features.extract(images, record, folder, weights=next(iter(weights), None))
    except (InputError, MissingPackageError) as error:
        raise SourceError(str(error)) from None
    data = _read(folder)
    root = getattr(images.source, "root", None)
    if root is None:
        return data
    return replace(data, images=str(Path(root).resolve()))


def embedded() -> list[Source]:
    """Data that come with the package: nodules and mitotic figures with readers' votes, simulated stand-ins.

    The stand-ins have the paper's sizes scaled down where they are large, two "encoders" of the same
    cases each, and are called what they are.
    """
    sources = [
        Source("lidc", name, "embedded", partial(load_lidc, features=name))
        for name in ("geometry", "geometry-raw")
    ]
    sources.append(Source("atnorm-md", "efficientnet-lite0", "embedded", load_atnorm_md))
    for dim in _WIDTHS:
        name = f"simulated-{dim}"
        sources += [
            Source("simulated-mhist", name, "simulated", partial(_stand_in, dim)),
            Source("simulated-breakhis", name, "simulated", partial(_stand_in, dim, votes=False)),
        ]
    return sources


_WIDTHS = (64, 256)


def _stand_in(dim: int, *, votes: bool = True) -> Features:
    """Simulated cases as an "encoder" of this width sees them: more nuisance directions, all turned.

    With votes they are like MHIST's; without, they have BreakHis's 82 patients.
    """
    narrow = _WIDTHS[0]
    if votes:
        drawn = simulate_paper(dim=narrow, seed=narrow)
    else:
        drawn = simulate(2000, dim=narrow, auc=0.92, n_raters=1, n_groups=82, seed=narrow + 1)
    if dim > narrow:
        rng = np.random.default_rng(dim)
        more = rng.standard_normal((len(drawn), dim - narrow))
        turn, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
        X = np.hstack([drawn.X, more]) @ turn
        drawn = replace(drawn, X=X, fingerprint=array_hash(X, drawn.cases.votes))
    named = replace(drawn, encoder=f"simulated-{dim}")
    if votes:
        return named
    return named.with_cases(votes=None, split=None)


# ---- what is trained

TIMING = "timing.json"
"""Name of the file with the seconds of a cell's training: the only one that differs between two runs."""

# "all" pairs of anchors are far too many to enumerate: as many are drawn as K = 100 has.
_MAX_SYNTHETIC = 60_000


def _sweep() -> dict[str, Method]:
    methods = {}
    for smoothing, (_, base) in SMOOTHINGS.items():
        for size in SWEEP_SIZES:
            synthesis: dict[str, Any] = {"smoothing": smoothing}
            if size == "all":
                synthesis |= {"n_anchors": 1.0, "n_synthetic": _MAX_SYNTHETIC}
            else:
                synthesis["n_anchors"] = int(size)
            methods[f"{base}@K={size}"] = Method(
                label=f"{METHODS[base].label}, K = {size}",
                about="SCALE with another number of anchors per class.",
                recipe=Recipe(synthesis=synthesis),
                variant_of=base,
            )
    return methods


SWEEP: Mapping[str, Method] = _sweep()
"""SCALE with other numbers of anchors, for the sensitivity to K."""


@dataclass(frozen=True)
class Training:
    """How the cells of a reproduction are trained.

    Attributes
    ----------
    seeds
        Seeds of every cell.
    methods
        Names in `METHODS`; None: all that apply.
    preset
        "paper", "default", or None: each method's own.
    sweep
        Whether every seed trains SCALE with other numbers of anchors too (`SWEEP`).
    device
        "cpu", or a card: then seeds are trained together, which keeps it busier.
    """

    seeds: Sequence[int]
    methods: Sequence[str] | None = None
    preset: str | None = None
    sweep: bool = True
    device: str = "cpu"

    @property
    def options(self) -> dict[str, Any]:
        """What decides a seed's predictions, beside the seed and the data."""
        return {"methods": self.methods and list(self.methods), "preset": self.preset}

    def settings(self, data: Features) -> dict[str, Any]:
        """What decides a seed's predictions, beside the seed."""
        return {"data_sha256": data.fingerprint, **self.options}


def cell_folder(out: str | Path, source: Source) -> Path:
    """Return where the results of one data set with one encoder are kept."""
    return Path(out) / "cells" / source.dataset / source.encoder


# ---- training


@dataclass(frozen=True)
class _Task:
    """Some seeds of one cell; `run` is a name that no other run has."""

    run: str
    source: Source
    folder: Path
    seeds: tuple[int, ...]
    training: Training


# What this worker opened last: the next seed is most often of the same cell of the same run.
_opened: dict[tuple[str, ...], Features] = {}


def _open_once(task: _Task, device: str) -> Features:
    key = (task.run, task.source.dataset, task.source.encoder, device)
    if key not in _opened:
        _opened.clear()
        data = task.source.open().labelled()
        _opened[key] = replace(data, X=on_device(data.X, device))
    return _opened[key]


def _train_seeds(worker: Worker, task: _Task) -> tuple[list[Predictions], Embeddings | None, float]:
    """Train the seeds of a task: a cell for each, the first seed's embeddings, and the seconds."""
    training = task.training
    device = worker.device_for(training.device)
    data = _open_once(task, device)
    with warnings.catch_warnings():
        # Of few cases there are fewer pairs than the sweep's "all" may draw: then it has all.
        asked = f"{_MAX_SYNTHETIC} synthetic cases were asked for"
        warnings.filterwarnings("ignore", message=asked, category=ScalecalWarning)
        more = None
        if training.sweep and data.cases.votes is not None:
            more = SWEEP
        grid = run_grid(
            data,
            methods=training.methods,
            seeds=task.seeds,
            preset=training.preset,
            more=more,
            dataset=task.source.dataset,
            device=device,
        )
    about = {
        "settings": training.settings(data),
        "notes": grid.notes,
        "trained_with": list(task.seeds),
        "capped": grid.capped,
        "left_out": grid.left_out,
    }
    cells = []
    for seed in task.seeds:
        cell = replace(cell_of_seed(grid.cell, seed), encoder=task.source.encoder)
        cells.append(replace(cell, meta={**cell.meta, **about, "seed": seed}))
    # Of the first seed alone; None where it is another task's.
    return cells, training_embeddings(data, grid, training.seeds[0]), grid.seconds


def train_seeds_on(
    engine: Engine,
    cells: Sequence[tuple[Source, Path]],
    training: Training,
    *,
    progress: Callable[[str], None] = print,
) -> None:
    """Train the seeds of many cells (source, folder) that are not done; `train_cell` finds them done.

    Sources are opened on the workers.
    """
    run = uuid.uuid4().hex
    tasks = []
    for source, folder in cells:
        left = [s for s in training.seeds if not is_whole(folder / "seeds" / str(s))]
        if training.device == "cpu":
            # One by one, so that a kill costs one seed.
            for seed in left:
                tasks.append(_Task(run, source, folder, (seed,), training))
        elif left:
            tasks.append(_Task(run, source, folder, tuple(left), training))
    try:
        for number, (trained, embeddings, seconds) in engine.run(_train_seeds, tasks):
            task = tasks[number]
            with disk_errors(task.folder):
                task.folder.mkdir(parents=True, exist_ok=True)
            # Beside the seconds of earlier runs, and on no record: they are two runs' only difference.
            known = _seconds_by_seeds(task.folder)
            write_json(task.folder / TIMING, {**known, ",".join(map(str, task.seeds)): seconds})
            if embeddings is not None:
                # Before the seed: once that is there, it is not trained again.
                write_anchors(task.folder, embeddings)
            for seed, cell in zip(task.seeds, trained, strict=True):
                write_cell(task.folder / "seeds" / str(seed), cell)
            progress(
                f"{task.source.dataset}/{task.source.encoder}, "
                f"seed {', '.join(map(str, task.seeds))}: "
                f"{len(trained[0].methods)} methods, {seconds:.1f} s"
            )
    finally:
        _opened.clear()  # where the tasks were done in this process


def _seconds_by_seeds(folder: Path) -> dict[str, float]:
    file = folder / TIMING
    if not file.is_file():
        return {}
    seconds = read_document(file, dict[str, float])
    seconds.pop("schema", None)
    return seconds


def train_cell(
    source: Source,
    folder: str | Path,
    training: Training,
    *,
    command: Sequence[str] = ("scalecal",),
    progress: Callable[[str], None] = print,
) -> Predictions:
    """Train one cell and write it; seeds that are on disk already are not trained again."""
    folder = Path(folder)
    data = source.open().labelled()
    settings = training.settings(data)
    _check_settings(folder, settings)
    opened = replace(source, open=lambda: data)
    train_seeds_on(InProcess(), [(opened, folder)], training, progress=progress)
    seeds = [read_cell(folder / "seeds" / str(seed)) for seed in training.seeds]
    cell = joined_cell(seeds)
    capped: Counter[str] = Counter()
    left_out: dict[str, str] = {}
    # Seeds that were trained together have the same record.
    for trained in {tuple(c.meta["trained_with"]): c.meta for c in seeds}.values():
        left_out |= trained["left_out"]
        capped.update(trained["capped"])
    notes = Grid(cell, left_out, capped, {}, {}, 0.0).notes
    meta = run_meta(
        cell,
        kind="reproduce",
        title=f"{source.dataset} with {source.encoder}",
        command=command,
        options=training.options,
        notes=skipped_images(source) + notes,
        fingerprint=data.fingerprint,
    )
    cell = replace(cell, meta={**meta, "settings": settings})
    write_cell(folder, cell)
    return cell


def check_begun(sources: Iterable[Source], out: str | Path, training: Training) -> None:
    """Refuse a folder that was started with other options; embeddings are not read for that."""
    for source in sources:
        _check_settings(cell_folder(out, source), training.options)


def _check_settings(folder: Path, settings: dict[str, Any]) -> None:
    for file in [folder / "run.json", *sorted(folder.glob("seeds/*/run.json"))]:
        if not file.is_file():
            continue
        stored = read_meta(file.parent).get("settings", settings)
        for key, value in settings.items():
            if stored.get(key) != value:
                raise InputError(
                    f"{folder} was started with {key} = {_as_typed(stored.get(key))}, now it is "
                    f"{_as_typed(value)}: take another --out, or the same options"
                )


def _as_typed(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def nothing_found(left_out: Mapping[str, str]) -> InputError:
    """Return the error of a reproduction that has no cell."""
    reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
    return InputError(
        f"nothing to reproduce: {reasons or 'no data set and no features were found'}"
    )


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a reproduction gave: evidence, claims as `claims.json` holds them, what was left out, notes."""

    evidence: Evidence
    claims: list[dict[str, Any]]
    left_out: dict[str, str]
    notes: list[str]


def reproduce(
    sources: Sequence[Source],
    out: str | Path,
    training: Training,
    *,
    command: Sequence[str] = ("scalecal",),
    left_out: Mapping[str, str] | None = None,
    also: Sequence[str | Path] = (),
    engine: Engine | None = None,
    progress: Callable[[str], None] = print,
) -> Outcome:
    """Train every cell that is not done, then write tables, figures, claims and results.

    Seeds are trained and cells scored by the engine's workers; without an engine, here.
    """
    out = Path(out)
    missing = dict(left_out or {})
    if engine is not None:
        cells = []
        for source in sources:
            try:
                source.open()  # what must be extracted first is, once, before the workers look
            except SourceError:
                continue  # left out, with its reason, below
            cells.append((source, cell_folder(out, source)))
        train_seeds_on(engine, cells, training, progress=progress)
    trained = 0
    for source in sources:
        name, folder = f"{source.dataset}/{source.encoder}", cell_folder(out, source)
        try:
            train_cell(source, folder, training, command=command, progress=progress)
        except MemoryError:
            missing[name] = "not enough memory"
        except SourceError as error:
            missing[name] = str(error)
            progress(f"{name} is left out: {error}")
        else:
            trained += 1
    if not trained:
        raise nothing_found(missing)
    return judge_run(
        out, left_out=missing, also=also, command=command, engine=engine, progress=progress
    )


# ---- judging


def judge_run(
    out: str | Path,
    *,
    left_out: Mapping[str, str] | None = None,
    also: Sequence[str | Path] = (),
    command: Sequence[str] = ("scalecal",),
    engine: Engine | None = None,
    progress: Callable[[str], None] = print,
) -> Outcome:
    """Make every table, figure and claim from the predictions in `out`, without training.

    `also` names further cells, such as a folder made by ``scalecal finetune``. Cells are scored by the
    engine's workers, or here.
    """
    from scalecal.paper.claims import claims_json, judge
    from scalecal.paper.paper_figures import write_figures
    from scalecal.paper.paper_tables import TABLES, write_tables

    out = Path(out)
    if left_out is None and (out / "run.json").is_file():
        left_out = read_meta(out).get("left_out")
    trained = []
    embeddings = {}
    seconds = {}
    for file in sorted((out / "cells").glob("*/*/predictions.parquet")):
        folder = file.parent
        key = folder.parent.name, folder.name
        cell = read_cell(folder)
        # Folders of 0.2.0 may hold cells tested elsewhere than trained, which the paper has not.
        if cell.shift is None:
            trained.append(cell)
        anchors = read_anchors(folder)
        if anchors is not None:
            embeddings[key] = anchors
        if (folder / TIMING).is_file():
            seconds[key] = sum(_seconds_by_seeds(folder).values())
    cells = [*trained, *map(read_cell, also)]
    if not cells:
        raise InputError(f"no cells in {out / 'cells'}. Run: scalecal reproduce --out {out}")
    missing = dict(left_out or {})
    notes = run_notes(cells)
    for dataset in dict.fromkeys(c.dataset for c in trained):
        why = contradiction([c for c in trained if c.dataset == dataset])
        if why is not None:
            notes.append(f"{dataset}: {why}.")
    progress(f"judging {len(cells)} cells")
    evidence = Evidence(cells, embeddings, seconds, engine=engine)
    claims = claims_json(judge(evidence))
    with output_folder(out, kind="reproduce", inputs=also, replace=True) as target:
        write_csv(evidence.results, target / "results.csv")
        write_tables(target / "tables", {name: make(evidence) for name, make in TABLES.items()})
        write_figures(target / "figures", evidence)
        write_json(target / "claims.json", claims)
        write_json(
            target / "run.json",
            {
                "kind": "reproduce",
                "title": "The paper's tables, figures and claims on the data at hand",
                "command": ["scalecal", *command[1:]],
                "cells": [f"{c.dataset}/{c.encoder}" for c in cells],
                "left_out": missing,
                "notes": [*(f"{name} is left out: {why}" for name, why in missing.items()), *notes],
            },
        )
    return Outcome(evidence, claims, missing, notes)


# ---- notes


def run_notes(cells: Iterable[Predictions]) -> list[str]:
    """Put the notes of many cells together: the same words once, with the cells they are of."""
    cells_by_note: dict[str, list[str]] = {}
    for cell in cells:
        methods_by_reason: dict[str, list[str]] = {}
        for note in cell.meta.get("notes", []):
            name, left_out, why = note.partition(LEFT_OUT)
            if left_out:
                methods_by_reason.setdefault(why, []).append(name)
            else:
                cells_by_note.setdefault(note, []).append(cell.name)
        for why, names in methods_by_reason.items():
            note = f"{names[0]}{LEFT_OUT}{why}"
            if len(names) > 1:
                reason = why.replace("it needs", "they need", 1).replace("it is", "they are", 1)
                note = f"{', '.join(names)} are left out: {reason}"
            cells_by_note.setdefault(note, []).append(cell.name)
    return [f"{', '.join(names)}: {note}" for note, names in cells_by_note.items()]
