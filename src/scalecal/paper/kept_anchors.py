"""Training embeddings with their anchors on disk, so that the premise is judged again without training."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from scalecal.io.store import write_file
from scalecal.paper.evidence import Embeddings

__all__ = ["read_anchors", "write_anchors"]

FILE = "anchors.npz"
MOST_BYTES = 1 << 27
"""Larger ones (PatchCamelyon's) are not kept: the premise needs votes, which such data lack."""


def write_anchors(folder: str | Path, found: Embeddings) -> None:
    """Keep what the premise is checked on, in single precision, unless it is large."""
    if found.X.size * 4 > MOST_BYTES:
        return
    arrays = {
        "X": found.X.astype(np.float32),
        "y": found.y,
        "n_raters": np.array(found.n_raters),
        **{f"anchors_{c}": index for c, index in found.anchors.items()},
    }
    if found.counts is not None:
        arrays["counts"] = found.counts
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    write_file(Path(folder) / FILE, content.getvalue(), kind="reproduce")


def read_anchors(folder: str | Path) -> Embeddings | None:
    """Read what `write_anchors` kept, or None.

    Examples
    --------
    >>> import tempfile
    >>> made = Embeddings(np.eye(2), np.array([0, 1]), None, {0: np.array([0]), 1: np.array([1])}, 3)
    >>> with tempfile.TemporaryDirectory() as root:
    ...     write_anchors(root, made)
    ...     again = read_anchors(root)
    >>> again.X.tolist(), again.anchors[1].tolist(), again.counts, again.n_raters
    ([[1.0, 0.0], [0.0, 1.0]], [1], None, 3)
    """
    path = Path(folder) / FILE
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as kept:
        return Embeddings(
            kept["X"].astype(np.float64),
            kept["y"],
            kept.get("counts"),
            {c: kept[f"anchors_{c}"] for c in (0, 1)},
            int(kept["n_raters"]),
        )
