"""The cases to look at: those where the model is surest against the readers, stratum by stratum."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from scalecal.checks import Float, InputError
from scalecal.report.runs import Cell

__all__ = ["add_images", "overconfident"]

THUMBNAIL = 112  # pixels, the longer side
_MOST_PIXELS = 1 << 26  # of an image that is opened for a thumbnail


def _mean_probs(cell: Cell, method: str) -> Float:
    """Mean over the seeds of each case's probabilities, NaN where it was in no test set."""
    by_seed = cell.predictions[method].values()
    shape = (len(cell.y), *next(iter(by_seed)).probs.shape[1:])
    total, count = np.zeros(shape), np.zeros(len(cell.y))
    for given in by_seed:
        total[given.rows] += given.probs
        count[given.rows] += 1
    count = np.where(count > 0, count, np.nan)
    return total / (count if total.ndim == 1 else count[:, None])


def overconfident(cell: Cell, before: str, after: str | None, *, most: int) -> list[dict[str, Any]]:
    """Most over-confident cases of each stratum: id, votes, label, prediction before and after.

    Over-confidence is the probability of the predicted class less the share of readers who chose
    it, or less whether it is the label where nobody voted. Predictions are means over seeds.
    """
    first = _mean_probs(cell, before)
    second = None if after is None else _mean_probs(cell, after)
    table = np.column_stack([1 - first, first]) if first.ndim == 1 else first
    known = np.isfinite(table[:, 0])
    top = np.where(known, np.nan_to_num(table).argmax(axis=1), 0)
    if first.ndim == 1:
        top = np.where(known, (np.nan_to_num(first) >= 0.5).astype(np.int64), 0)
    each = np.arange(len(table))
    share = (cell.y == top).astype(np.float64)
    if cell.counts is not None:
        size = cell.counts.sum(axis=1)
        share = np.where(size > 0, cell.counts[each, top] / np.maximum(size, 1), share)
    excess = np.where(known, table[each, top] - share, -np.inf)
    out = []
    for stratum in cell.strata or ("overall",):
        rows = np.flatnonzero(cell.inside(each, stratum) & known)
        rows = rows[np.argsort(-excess[rows], kind="stable")][:most]
        for i in rows.tolist():
            shown = int(top[i]) if first.ndim == 2 else 1
            out.append(
                {
                    "id": str(cell.data.cases.names[i]),
                    "stratum": stratum,
                    "label": int(cell.y[i]),
                    "votes": None if cell.counts is None else cell.counts[i].tolist(),
                    "shown_class": shown,
                    "before": float(table[i, shown]),
                    "after": None if second is None else _of_class(second, i, shown),
                    "excess": float(excess[i]),
                    "path": None
                    if cell.data.cases.paths is None
                    else str(cell.data.cases.paths[i]) or None,
                }
            )
    return out


def _of_class(probs: Float, i: int, shown: int) -> float | None:
    value = float(probs[i] if probs.ndim == 1 else probs[i, shown])
    return value if np.isfinite(value) else None


def add_images(
    cases: list[dict[str, Any]], folder: Path | None, out: Path, *, most_bytes: int
) -> tuple[int, str]:
    """Add a link to each case's file and, while there is room, a thumbnail inside the page.

    Parameters
    ----------
    folder
        Where the paths start; None where it is unknown.
    out
        The report's file: links are relative to its folder.
    most_bytes
        Room for all thumbnails together.

    Returns
    -------
    Bytes used, and a note to the reader ("" if all is well).
    """
    wanted = [case for case in cases if case["path"]]
    if not wanted:
        return 0, ""
    if folder is None:
        return 0, "For thumbnails, give the images’ folder: scalecal report RUN --images DIR."
    try:
        from PIL import Image
    except ImportError:
        return 0, "Thumbnails need the package pillow."
    used, missing, full = 0, 0, False
    root = Path(os.path.abspath(folder))
    roots = (root, folder.resolve())
    for case in wanted:
        # A path in a table must not lead out of the folder; links that lie inside are its owner's.
        file = Path(os.path.normpath(root / case["path"]))
        if not any(map(file.is_relative_to, roots)) or not file.is_file():
            missing += 1
            continue
        relative = Path(os.path.relpath(file, out.resolve().parent)).as_posix()
        case["href"] = quote(relative, safe="/.-_~")
        if full:
            continue
        try:
            with Image.open(file) as image:
                if image.width * image.height > _MOST_PIXELS:
                    continue
                image.thumbnail((2 * THUMBNAIL, 2 * THUMBNAIL))
                buffer = io.BytesIO()
                image.convert("RGB").save(buffer, "JPEG", quality=72)
        except (OSError, ValueError, InputError):
            missing += 1
            continue
        text = base64.b64encode(buffer.getvalue()).decode("ascii")
        full = used + len(text) > most_bytes
        if not full:
            used += len(text)
            case["thumbnail"] = f"data:image/jpeg;base64,{text}"
    notes = []
    if missing:
        notes.append(f"{missing} image files were not found or could not be read.")
    if full:
        notes.append("The page has no room for further thumbnails.")
    return used, " ".join(notes)
