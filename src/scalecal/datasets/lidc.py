"""Lung nodules read by four radiologists each (LIDC-IDRI), shipped with the package.

Source, licence and how to cite it: ``CREDITS.md`` beside this file; ``scripts/make_lidc.py`` in the
repository makes the packaged table.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from importlib.resources import files
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Cases, Factor, Features, array_hash
from scalecal.checks import Float, InputError, Int, as_rng, check_choice
from scalecal.votes import TIES, Ties, majority

_TABLE = "lidc_nodules.csv.gz"
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
    table = _read_table()
    every = _ratings(table)
    rng = as_rng(seed)
    extra: dict[str, NDArray[np.int64]] = {}
    ratings = every
    if panel == 3:
        out = rng.integers(0, 4, len(every))
        each = np.arange(len(every))
        extra["held_out_rating"] = every[each, out]
        extra["held_out_vote"] = (every[each, out] >= _SUSPICIOUS).astype(np.int64)
        drawn = np.ones(every.shape, dtype=bool)
        drawn[each, out] = False
        ratings = every[drawn].reshape(-1, 3)
    extra["ratings"] = ratings
    votes = (ratings >= _SUSPICIOUS).sum(axis=1).astype(np.int64)
    y = _labels(votes, ratings, ties, rng)
    X = np.column_stack([_feature(table, name) for name in FEATURE_SETS[features]])
    cases = Cases(
        n=len(X),
        classes=("0", "1"),
        ids=np.array(table["nodule_id"]),
        y=y,
        votes=np.column_stack([panel - votes, votes]),
        groups=Factor.of(table["patient_id"]),
    )
    kept = Features(X, cases, encoder=features, dataset="lidc", extra=extra).take(y >= 0)
    return replace(kept, fingerprint=array_hash(kept.X, kept.cases.votes))


def _labels(
    votes: Int, ratings: Int, ties: Ties | Literal["rating"], rng: np.random.Generator
) -> Int:
    """Majority labels; -1 where a tied case is to be dropped."""
    panel = ratings.shape[1]
    tied = 2 * votes == panel
    if ties == "rating":
        by_rating = ratings.mean(axis=1) > 3.0
        return np.asarray(np.where(tied, by_rating, 2 * votes > panel), dtype=np.int64)
    if ties == "error" and tied.any():
        raise InputError(
            f"{int(tied.sum())} of {len(votes)} nodules are tied with panel={panel}: say what to "
            "do with them, ties='rating', 'first', 'last', 'random' or 'drop'"
        )
    return majority(votes, panel, ties=ties, seed=rng).labels


def _read_table() -> dict[str, list[str]]:
    with (files("scalecal.datasets") / _TABLE).open("rb") as packed:
        text = gzip.decompress(packed.read()).decode("ascii")
    head, *body = csv.reader(text.splitlines())
    return {name: list(column) for name, column in zip(head, zip(*body, strict=True), strict=True)}


def _ratings(table: dict[str, list[str]]) -> Int:
    """Ratings of each nodule's four readers, ascending, from the counts per rating."""
    counts = np.column_stack([np.array(table[f"mal_{k}"], dtype=np.int64) for k in range(1, 6)])
    values = np.tile(np.arange(1, 6), len(counts))
    return np.repeat(values, counts.ravel()).reshape(len(counts), 4)


def _feature(table: dict[str, list[str]], name: str) -> Float:
    if name.startswith("log_"):
        return np.log(_feature(table, name.removeprefix("log_")))
    if name in _IN_CM:
        column, factor = _IN_CM[name]
        return factor * _feature(table, column)
    return np.array(table[name], dtype=np.float64)
