"""Data sets shipped with the package: lung nodules (LIDC-IDRI) and embedded mitotic figures (AtNorM-MD).

Source, licence and how to cite them: ``CREDITS.md`` beside this file; ``scripts/make_lidc.py`` and
``scripts/make_atnorm_md.py`` in the repository make the packaged files.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from scalecal.cases import Cases, Factor, Features, array_hash
from scalecal.checks import Float, Int, as_rng, check_choice
from scalecal.votes import TIES, Ties, majority

_GEOMETRY = ("volume_mm3", "lateral_mm2", "diameter_mm", "z_extent_mm", "n_slices")
# Sizes in centimetres lie around one, so that their logarithms lie around zero: no probe has to
# learn a large intercept first.
_IN_CM = {
    "volume_cm3": ("volume_mm3", 1e-3),
    "lateral_cm2": ("lateral_mm2", 1e-2),
    "diameter_cm": ("diameter_mm", 0.1),
    "z_extent_cm": ("z_extent_mm", 0.1),
}
_LOG_GEOMETRY = (*(f"log_{name}" for name in _IN_CM), "log_n_slices")

FEATURE_SETS: dict[str, tuple[str, ...]] = {
    "geometry": _LOG_GEOMETRY,
    "geometry-raw": _GEOMETRY,
}
"""Feature sets by name; ``log_x`` is the natural logarithm of ``x``."""

_SUSPICIOUS = 4  # A rating of 4 ("moderately suspicious") or 5 ("highly suspicious") is a vote.


def load_lidc(
    *,
    panel: Literal[3, 4] = 3,
    features: str = "geometry",
    ties: Ties | Literal["rating"] = "error",
    seed: int = 0,
) -> Features:
    """Load the 896 LIDC-IDRI lung nodules that exactly four radiologists rated.

    Each reader rated malignancy from 1 to 5; a reader *votes* malignant with a 4 or a 5, and the
    label is what most of the panel voted. The panel is three of the four readers, drawn per nodule
    (so there are no ties); the fourth reader's vote is kept apart as an outcome that took no part
    in the label or in the agreement: ``extra["held_out_vote"]``.

    Parameters
    ----------
    panel : {3, 4}
        Three readers drawn at random, or all four. Four can tie 2-2 (173 nodules): then say how
        with `ties`.
    features : str
        A key of `FEATURE_SETS`. ``"geometry"``: logarithms of volume, lateral area, diameter and
        extent along the body (in centimetres) and of the number of slices, each the mean over the
        readers' outlines
        (sizes are spread over four orders of magnitude, so a linear probe needs logarithms).
        ``"geometry-raw"``: the same, unlogged.
    ties : str
        Only for ``panel=4``. ``"rating"``: malignant where the mean rating exceeds 3 (87 % of the
        ties, so that stratum has another prevalence); or a policy of `scalecal.votes.majority`:
        ``"error"``, ``"first"`` (benign), ``"last"`` (malignant), ``"random"``, ``"drop"``
        (leave tied nodules out).
    seed : int
        Draws the panel, and the ties where ``ties="random"``.

    Returns
    -------
    Features
        Groups are patients; `FEATURE_SETS` names the columns of ``X``. ``extra`` holds ``ratings``
        (the panel's ratings, ascending) and, for three readers, ``held_out_vote`` and ``held_out_rating``.

    Notes
    -----
    Readers are not identified in LIDC-IDRI: only how many gave each rating is known. A panel of
    three is therefore the four ratings less one at random, which is the same law as drawing three
    readers.

    References
    ----------
    S. G. Armato et al., "The Lung Image Database Consortium (LIDC) and Image Database Resource
    Initiative (IDRI)", Medical Physics 38, 2011.

    Examples
    --------
    >>> from scalecal.datasets import load_lidc
    >>> data = load_lidc()
    >>> data.X.shape, len(set(data.groups))
    ((896, 5), 554)
    >>> [int((data.votes == v).sum()) for v in range(4)]
    [395, 233, 186, 82]
    >>> data.extra["held_out_vote"][:4]
    array([1, 1, 1, 0])
    """
    check_choice(panel, (3, 4), "panel")
    check_choice(features, FEATURE_SETS, "features")
    check_choice(ties, ("rating", *TIES), "ties")
    with (files("scalecal.datasets") / "lidc_nodules.csv.gz").open("rb") as packed:
        # As text: pandas' own parser of numbers may be off by the last bit.
        table = pd.read_csv(packed, compression="gzip", dtype=str)
    # Only how many readers gave each rating is known: ratings come ascending.
    counts = table[[f"mal_{k}" for k in range(1, 6)]].to_numpy(np.int64)
    ratings = np.repeat(np.tile(np.arange(1, 6), len(counts)), counts.ravel()).reshape(-1, 4)
    rng = as_rng(seed)
    extra: dict[str, Int] = {}
    if panel == 3:
        held_out = rng.integers(0, 4, len(ratings))
        drawn = np.arange(4) != held_out[:, None]
        extra["held_out_rating"] = ratings[~drawn]
        extra["held_out_vote"] = (ratings[~drawn] >= _SUSPICIOUS).astype(np.int64)
        ratings = ratings[drawn].reshape(-1, 3)
    extra["ratings"] = ratings
    votes = (ratings >= _SUSPICIOUS).sum(axis=1).astype(np.int64)
    if ties == "rating":
        by_rating = ratings.mean(axis=1) > 3.0
        y = np.where(2 * votes == panel, by_rating, 2 * votes > panel).astype(np.int64)
    else:
        y = majority(votes, panel, ties=ties, seed=rng).labels
    X = np.column_stack([_feature(table, name) for name in FEATURE_SETS[features]])
    cases = Cases(
        n=len(X),
        classes=("0", "1"),
        ids=table["nodule_id"].to_numpy(np.str_),
        y=y,
        votes=np.column_stack([panel - votes, votes]),
        groups=Factor.of(table["patient_id"].tolist()),
    )
    kept = Features(X, cases, encoder=features, dataset="lidc", extra=extra).take(y >= 0)
    return replace(kept, fingerprint=array_hash(kept.X, kept.cases.votes))


def _feature(table: pd.DataFrame, name: str) -> Float:
    if name.startswith("log_"):
        return np.log(_feature(table, name.removeprefix("log_")))
    if name in _IN_CM:
        column, factor = _IN_CM[name]
        return factor * _feature(table, column)
    return table[name].to_numpy(np.float64)


_NO_SLIDES = "AtNorM-MD names no slides: figures of one slide may be on both sides of a split."


def load_atnorm_md() -> Features:
    """Load embeddings of the 2,107 mitotic figures of AtNorM-MD that five pathologists read.

    Each reader called a figure normal or atypical; the label is what most of the five said. The embeddings
    are those of EfficientNet-Lite0, a small network trained on photographs, on 224 pixels: a weak encoder
    of a hard task, so that a probe has much to be unsure of.

    Returns
    -------
    Features
        ``X`` has 1,280 columns (made in half precision, given in single). There are no groups: the slides
        are not published. No split is published either. ``images`` is the folder of thumbnails, which the
        package has of the figures that ``scalecal demo`` may show; ``cases.paths`` names them, and is
        empty for all others.

    References
    ----------
    S. Banerjee et al., "Benchmarking Deep Learning and Vision Foundation Models for Atypical vs. Normal
    Mitosis Classification with Cross-Dataset Evaluation", arXiv 2506.21444, 2025.

    M. Aubreville et al., "A comprehensive multi-domain dataset for mitotic figure detection", Scientific
    Data 10, 2023 (MIDOG++, where the figures come from).

    Examples
    --------
    >>> from scalecal.datasets import load_atnorm_md
    >>> data = load_atnorm_md()
    >>> data.X.shape, data.cases.classes
    ((2107, 1280), ('Normal', 'Atypical'))
    >>> [int((data.votes == v).sum()) for v in range(6)]
    [1407, 364, 117, 83, 77, 59]
    """
    home = files("scalecal.datasets") / "atnorm_md_data"
    with (home / "embeddings.npz").open("rb") as packed, np.load(packed) as arrays:
        half, votes, ids = arrays["X"], arrays["votes"].astype(np.int64), arrays["id"]
    images = Path(str(home / "thumbnails"))
    here = {file.stem for file in images.glob("*.jpg")}
    cases = Cases(
        n=len(ids),
        classes=("Normal", "Atypical"),
        ids=ids.astype(object),
        y=(votes >= 3).astype(np.int64),
        votes=np.column_stack([5 - votes, votes]),
        paths=np.array([f"{name}.jpg" if name in here else "" for name in ids], dtype=object),
    )
    return Features(
        half.astype(np.float32),
        cases.note(_NO_SLIDES),
        encoder="efficientnet-lite0",
        dataset="atnorm-md",
        fingerprint=array_hash(half, cases.votes),
        images=str(images),
    )
