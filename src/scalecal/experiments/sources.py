"""Where the embeddings of a reproduction come from: feature folders, images, or what is embedded.

A `Source` is one data set with one encoder, not yet read: opening it may take an extraction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from scalecal.checks import InputError, MissingPackageError
from scalecal.datasets import ImageSet, load_lidc, simulate, simulate_paper
from scalecal.encoders import ENCODERS, get_encoder, paper_preprocessing, weights_here
from scalecal.experiments.grid import features_of
from scalecal.features.files import FeatureTable, read_features

__all__ = ["PAPER_DATASETS", "Source", "SourceError", "embedded", "find_features", "find_images"]

PAPER_DATASETS = ("mhist", "pcam", "breakhis")

_FOLDERS = {
    "mhist": ("mhist", "MHIST"),
    "pcam": ("pcam", "PatchCamelyon", "pcamv1"),
    "breakhis": ("breakhis", "BreaKHis_v1", "BreakHis"),
}


@dataclass(frozen=True)
class Source:
    """One data set with one encoder; `open` gives its embeddings, `n_images` are to be embedded."""

    dataset: str
    encoder: str
    where: str
    open: Callable[[], FeatureTable]
    n_images: int = 0


class SourceError(InputError):
    """A source cannot be opened; others may be."""


def find_features(root: str | Path) -> Iterator[Source]:
    """Find the feature folders below a folder, by their manifests; unfinished ones fail on opening."""
    root = Path(root)
    if not root.is_dir():
        raise InputError(f"no folder at {root}: --features names a folder of feature folders")
    seen: dict[tuple[str, str], Path] = {}
    for manifest in sorted(root.rglob("manifest.json")):
        try:
            told = json.loads(manifest.read_text(encoding="utf-8"))
            dataset, encoder = (_plain(told[k]["name"]) for k in ("dataset", "encoder"))
        except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError):
            continue
        other = seen.setdefault((dataset, encoder), manifest.parent)
        if other != manifest.parent:
            raise InputError(
                f"{other} and {manifest.parent} are both of data set {dataset} with encoder {encoder}: "
                "take one away, or import one under another name (--dataset, --encoder)"
            )
        yield Source(dataset, encoder, str(manifest.parent), partial(_read, manifest.parent))


def _plain(name: str) -> str:
    """Return a name that is also one of a folder: results are kept under it.

    Examples
    --------
    >>> _plain("mhist"), _plain("hf-hub:owner/model"), _plain("../../up")
    ('mhist', 'hf-hub:owner-model', '-..-up')
    """
    return re.sub(r"[^\w.@+:=-]+", "-", name).lstrip(".") or "unnamed"


def _read(folder: Path) -> FeatureTable:
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
    from scalecal.datasets.registry import open_dataset

    root, target = Path(root), Path(target)
    found, out = [], {}
    for dataset in datasets:
        options = {"partial": True} if partial_data else {}
        images, why = None, f"no folder {', '.join(_FOLDERS[dataset])} in {root}"
        for folder in (*(root / name for name in _FOLDERS[dataset]), root):
            if not folder.is_dir():
                continue
            try:
                images = open_dataset(dataset, folder, **options)
                break
            except InputError as error:
                why = str(error)
        if images is None:
            out[dataset] = why
            continue
        for encoder in encoders:
            file = _weight_file(encoder, weights)
            record = get_encoder(encoder)
            by_hand = record.gated or record.source == "file"
            if file is None and by_hand and weights_here(record) is None:
                do = "accept the terms at" if record.gated else "get them from"
                out[f"{dataset}/{encoder}"] = (
                    f"its weights are not here; {do} {record.page}, or give --weights DIR"
                )
                continue
            folder = target / dataset / encoder
            job = partial(_extract, images, encoder, folder, file, progress)
            found.append(Source(dataset, encoder, str(folder), job, len(images)))
    return found, out


def _weight_file(encoder: str, weights: str | Path | None) -> Path | None:
    if weights is None:
        return None
    files = sorted(p for p in Path(weights).glob(f"{encoder}.*") if p.is_file())
    return files[0] if files else None


def _extract(
    images: ImageSet,
    encoder: str,
    folder: Path,
    weights: Path | None,
    progress: Callable[[str], None],
) -> FeatureTable:
    from scalecal.features import extract

    progress(f"extracting {encoder} features to {folder}")
    record = paper_preprocessing(get_encoder(encoder), images.name)
    try:
        extract(images, record, folder, weights=weights)
    except (InputError, MissingPackageError) as error:
        raise SourceError(str(error)) from None
    root = getattr(images.source, "root", None)
    return replace(_read(folder), images=None if root is None else str(Path(root).resolve()))


def embedded() -> list[Source]:
    """Data that come with the package: nodules with readers' votes, and simulated stand-ins.

    The stand-ins have the paper's sizes scaled down where they are large, two "encoders" each, and
    are called what they are.
    """
    sources = [
        Source("lidc", name, "embedded", partial(_nodules, name))
        for name in ("geometry", "geometry-raw")
    ]
    for dim in (64, 256):
        name = f"simulated-{dim}"
        sources += [
            Source("simulated-mhist", name, "simulated", partial(_paper_like, dim)),
            Source("simulated-breakhis", name, "simulated", partial(_without_votes, dim)),
        ]
    return sources


def _nodules(features: str) -> FeatureTable:
    return features_of(load_lidc(features=features), encoder=features)


def _paper_like(dim: int) -> FeatureTable:
    return features_of(simulate_paper(dim=dim, seed=dim), encoder=f"simulated-{dim}")


def _without_votes(dim: int) -> FeatureTable:
    """Grouped cases whose readers are not told of, as in BreakHis: 82 patients."""
    drawn = simulate(2000, dim=dim, auc=0.92, n_raters=1, n_groups=82, seed=dim + 1)
    table = features_of(drawn, encoder=f"simulated-{dim}")
    return replace(table, counts=None, split=None, y=np.asarray(drawn.y))


def paper_encoders() -> list[str]:
    """Names of the paper's eight encoders."""
    return [name for name, record in ENCODERS.items() if record.paper]
