"""Mitotic figures read by five pathologists each (AtNorM-MD), embedded and shipped with the package.

Source, licence and how to cite it: ``CREDITS.md`` beside this file; ``scripts/make_atnorm_md.py`` in the
repository makes the packaged files.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np

from scalecal.cases import Cases, Features, array_hash

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
