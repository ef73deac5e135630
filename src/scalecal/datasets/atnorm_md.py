"""AtNorM-MD: mitotic figures called normal or atypical by five pathologists (Banerjee et al. 2025).

The folder holds `AtNorM-MD_expert_votes.csv` and `AtNorM-MD/{Atypical,Normal}/<number>.png`. Embeddings of
all figures come with the package: `scalecal.datasets.load_atnorm_md`.
"""

from __future__ import annotations

from pathlib import Path

from scalecal.datasets.image_sets import Dataset, ImageSet
from scalecal.datasets.mitotic_figures import find_table, open_figures, read_calls

VOTES = "AtNorM-MD_expert_votes.csv"
EXPERTS = tuple(f"Expert_{k}" for k in range(1, 6))
PUBLISHED = (1407, 364, 117, 83, 77, 59)
"""Figures that 0, 1, ... 5 pathologists called atypical."""

_PAGE = "https://github.com/DeepMicroscopy/AMi-Br_Benchmark"
_HOLDS = f"the folder with {VOTES} and AtNorM-MD/, from {_PAGE}"


def open_atnorm_md(data: str | Path | None = None, *, partial: bool = False) -> ImageSet:
    """Open a copy of AtNorM-MD; Atypical is class 1.

    Parameters
    ----------
    data : path
        Folder with `AtNorM-MD_expert_votes.csv` and `AtNorM-MD/`.
    partial : bool
        Take a part of the data set: differences from what was published become warnings, and figures
        without an image are left out.

    Returns
    -------
    ImageSet
        `votes` of `n_raters` = 5 for Atypical; no groups, because the slides are not published, and no
        split.

    References
    ----------
    S. Banerjee et al., "Benchmarking Deep Learning and Vision Foundation Models for Atypical vs. Normal
    Mitosis Classification with Cross-Dataset Evaluation", arXiv 2506.21444, 2025.
    """
    file = find_table(data, VOTES, "atnorm-md", _HOLDS)
    known, calls = read_calls(file, ("Filename",), EXPERTS, "Majority", ("Normal", "Atypical"))
    return open_figures(
        ATNORM_MD,
        file.parent,
        names=[name.removesuffix(".png") for name in known["Filename"]],
        homes=("AtNorM-MD/Normal", "AtNorM-MD/Atypical"),
        calls=calls,
        published=PUBLISHED,
        partial=partial,
    )


ATNORM_MD = Dataset(
    name="atnorm-md",
    form="atnorm-md",
    title="AtNorM-MD, mitotic figures, five readers",
    load=open_atnorm_md,
    licence="MIT",
    terms="Free; keep the copyright notice and cite.",
    page=_PAGE,
    credit="Banerjee et al., arXiv 2506.21444, 2025; cut from MIDOG++, Aubreville et al., 2023",
    n=sum(PUBLISHED),
)
