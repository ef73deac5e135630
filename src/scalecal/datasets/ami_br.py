"""AMi-Br: mitotic figures of breast cancer called normal or atypical by three pathologists.

The folder holds `AMI-BR.csv` and `patches/{atypical,normal}/<dataset>_<uid>.png`, cut from TUPAC16 and
MIDOG21. The publisher states no licence: nothing of it is shipped here.
"""

from __future__ import annotations

from pathlib import Path

from scalecal.datasets.image_sets import Dataset, ImageSet
from scalecal.datasets.mitotic_figures import find_table, open_figures, read_calls

TABLE = "AMI-BR.csv"
EXPERTS = tuple(f"expert{k}_atypical" for k in range(1, 4))
PUBLISHED = (2496, 392, 420, 412)
"""Figures that 0, 1, 2 and 3 pathologists called atypical."""

_PAGE = "https://github.com/DeepMicroscopy/AMi-Br"
_HOLDS = f"the folder with {TABLE} and patches/, from {_PAGE}"


def open_ami_br(data: str | Path | None = None, *, partial: bool = False) -> ImageSet:
    """Open a copy of AMi-Br; Atypical is class 1.

    Parameters
    ----------
    data : path
        Folder with `AMI-BR.csv` and `patches/`.
    partial : bool
        Take a part of the data set: differences from what was published become warnings, and figures
        without an image are left out.

    Returns
    -------
    ImageSet
        `votes` of `n_raters` = 3 for Atypical. `group` is the source with the slide, such as
        `TUPAC16/012.tif`: the two sources number their slides alike. No split is published.

    References
    ----------
    C. A. Bertram et al., "Histologic Dataset of Normal and Atypical Mitotic Figures on Human Breast Cancer
    (AMi-Br)", Bildverarbeitung für die Medizin, 2025.
    """
    file = find_table(data, TABLE, "ami-br", _HOLDS)
    keys = ("dataset", "slide", "uid")
    known, calls = read_calls(file, keys, EXPERTS, "majority_atypical", ("False", "True"))
    source, slide, uid = (known[key] for key in keys)
    return open_figures(
        AMI_BR,
        file.parent,
        names=[f"{a}_{b}" for a, b in zip(source, uid, strict=True)],
        homes=("patches/normal", "patches/atypical"),
        calls=calls,
        published=PUBLISHED,
        partial=partial,
        groups=[f"{a}/{b}" for a, b in zip(source, slide, strict=True)],
    )


AMI_BR = Dataset(
    name="ami-br",
    form="ami-br",
    title="AMi-Br, mitotic figures of breast cancer, three readers",
    load=open_ami_br,
    licence="none stated",
    terms="Ask the publisher before passing it on.",
    page=_PAGE,
    credit="Bertram et al., Histologic Dataset of Normal and Atypical Mitotic Figures (AMi-Br), 2025",
    n=sum(PUBLISHED),
)
