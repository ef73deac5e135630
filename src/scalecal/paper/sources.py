"""Where the embeddings of a reproduction come from: feature folders, images, or what is embedded.

A `Source` is one data set with one encoder, not yet read: opening it may take an extraction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from scalecal.cases import Features, array_hash
from scalecal.checks import InputError, MissingPackageError
from scalecal.datasets import (
    ImageSet,
    SimulatedCases,
    load_atnorm_md,
    load_lidc,
    simulate,
    simulate_paper,
)
from scalecal.encoders import ENCODERS, get_encoder, paper_preprocessing, weights_here
from scalecal.io.boundary import read_document
from scalecal.io.feature_store import Named, read_manifest
from scalecal.io.features import read_features

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
    open: Callable[[], Features]
    n_images: int = 0


class SourceError(InputError):
    """A source cannot be opened; others may be."""


def find_features(
    root: str | Path,
    datasets: Sequence[str] | None = None,
    encoders: Sequence[str] | None = None,
) -> Iterator[Source]:
    """Find the feature folders below a folder, by their manifests; unfinished ones fail on opening.

    Only those of some data sets and encoders where these are given (None: all).
    """
    seen: dict[tuple[str, str], Path] = {}
    for dataset, encoder, folder in feature_folders(root):
        if datasets is not None and dataset not in datasets:
            continue
        if encoders is not None and encoder not in encoders:
            continue
        other = seen.setdefault((dataset, encoder), folder)
        if other != folder:
            raise InputError(
                f"{other} and {folder} are both of data set {dataset} with encoder {encoder}: "
                "take one away, or import one under another name (--dataset, --encoder)"
            )
        yield Source(dataset, encoder, str(folder), partial(_read, folder))


class _Names(msgspec.Struct):
    dataset: Named
    encoder: Named


def feature_folders(root: str | Path) -> Iterator[tuple[str, str, Path]]:
    """Return data set, encoder and place of every feature folder below a folder."""
    root = Path(root)
    if not root.is_dir():
        raise InputError(f"no folder at {root}: --features names a folder of feature folders")
    for manifest in sorted(root.rglob("manifest.json")):
        try:
            content = read_document(manifest, _Names)
        except InputError:  # another program's
            continue
        yield _plain(content.dataset.name), _plain(content.encoder.name), manifest.parent


def skipped_images(source: Source) -> str | None:
    """Say how many images of a source could not be read; None: all could, or it is not of images."""
    manifest = Path(source.where) / "manifest.json"
    if not manifest.is_file():
        return None
    count = read_manifest(source.where).get("n_skipped")
    if not count:
        return None
    images = "1 image" if count == 1 else f"{count:,} images"
    return (
        f"{images} of {source.dataset} could not be read and {'was' if count == 1 else 'were'} left out "
        f"(see {manifest.parent / 'skipped.csv'})."
    )


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
    from scalecal.datasets import open_dataset

    root, target = Path(root), Path(target)
    sources, missing = [], {}
    for dataset in datasets:
        options: dict[str, Any] = {"partial": True} if partial_data else {}
        images, why = None, ""
        for folder in (*(root / name for name in _FOLDERS[dataset]), root):
            if not folder.is_dir():
                continue
            try:
                images = open_dataset(dataset, folder, **options)
                break
            except InputError as error:
                # The first place tells most: the last is the root, which holds others too.
                why = why or str(error)
        if images is None:
            missing[dataset] = why or f"no folder {', '.join(_FOLDERS[dataset])} in {root}"
            continue
        for encoder in encoders:
            file = _weight_file(encoder, weights)
            record = get_encoder(encoder)
            by_hand = record.gated or record.source == "file"
            # Checked before any extraction: the run would stop here hours later.
            if file is None and by_hand and weights_here(record) is None:
                do = "accept the terms at" if record.gated else "get them from"
                missing[f"{dataset}/{encoder}"] = (
                    f"its weights are not here; {do} {record.page}, or give --weights DIR"
                )
                continue
            folder = target / dataset / encoder
            job = partial(_extract, images, encoder, folder, file, progress)
            sources.append(Source(dataset, encoder, str(folder), job, len(images)))
    return sources, missing


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
) -> Features:
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
            Source("simulated-mhist", name, "simulated", partial(_paper_like, dim)),
            Source("simulated-breakhis", name, "simulated", partial(_without_votes, dim)),
        ]
    return sources


_WIDTHS = (64, 256)


def _seen_by(drawn: SimulatedCases, dim: int) -> Features:
    """Return cases as an "encoder" of this width sees them: more nuisance directions, all turned."""
    n, width = drawn.X.shape
    if dim > width:
        rng = np.random.default_rng(dim)
        more = rng.standard_normal((n, dim - width))
        turn, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
        X = np.hstack([drawn.X, more]) @ turn
        drawn = replace(drawn, X=X, fingerprint=array_hash(X, drawn.cases.votes))
    return replace(drawn, encoder=f"simulated-{dim}")


def _paper_like(dim: int) -> Features:
    narrow = _WIDTHS[0]
    return _seen_by(simulate_paper(dim=narrow, seed=narrow), dim)


def _without_votes(dim: int) -> Features:
    """Grouped cases whose readers are unknown, as in BreakHis: 82 patients."""
    narrow = _WIDTHS[0]
    drawn = simulate(2000, dim=narrow, auc=0.92, n_raters=1, n_groups=82, seed=narrow + 1)
    return _seen_by(drawn, dim).with_cases(votes=None, split=None)


def paper_encoders() -> list[str]:
    """Names of the paper's eight encoders."""
    return [name for name, record in ENCODERS.items() if record.paper]
