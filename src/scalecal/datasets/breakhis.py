"""BreakHis: breast tumours at four magnifications, benign or malignant (Spanhol et al. 2016).

The publisher counts 82 patients, one per slide folder. Slide 14-13412 lies under two subtypes (DC and
LC) with the same pictures in both, so 81 groups remain: the group is the year and slide id in the file
name, whatever the subtype, and no split can part the two copies.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scalecal.cases import Cases, Factor
from scalecal.checks import InputError, check_choice
from scalecal.datasets.image_sets import Dataset, Findings, ImageSet, image_ids
from scalecal.datasets.image_sources import FileSource, data_folder, image_files
from scalecal.io.input_columns import some

CLASSES = ("benign", "malignant")
SUBTYPES = {
    "A": "adenosis",
    "F": "fibroadenoma",
    "PT": "phyllodes_tumor",
    "TA": "tubular_adenoma",
    "DC": "ductal_carcinoma",
    "LC": "lobular_carcinoma",
    "MC": "mucinous_carcinoma",
    "PC": "papillary_carcinoma",
}
# Published images, benign and malignant, at each magnification.
MAGNIFICATIONS = {40: (625, 1370), 100: (644, 1437), 200: (623, 1390), 400: (588, 1232)}
SLIDES = 82

_PAGE = "https://web.inf.ufpr.br/vri/databases/breast-cancer-histopathological-database-breakhis/"
_HOLDS = f"the folder BreaKHis_v1 (with histology_slides/breast/ in it), from {_PAGE}"
_NAME = re.compile(r"SOB_([BM])_([A-Z]{1,2})-(\d{2})-([0-9A-Za-z]+)-(40|100|200|400)-(\d+)")


class ImageName(NamedTuple):
    """What a file name says."""

    label: int
    subtype: str
    patient: str
    magnification: int


def parse_name(stem: str) -> ImageName | None:
    """Read a file name; None if it is not one of BreakHis.

    Examples
    --------
    >>> parse_name("SOB_M_DC-14-22549AB-40-001")
    ImageName(label=1, subtype='DC', patient='14-22549AB', magnification=40)
    """
    match = _NAME.fullmatch(stem)
    if match is None or match[2] not in SUBTYPES:
        return None
    return ImageName(int(match[1] == "M"), match[2], f"{match[3]}-{match[4]}", int(match[5]))


def open_breakhis(
    data: str | Path | None = None,
    *,
    magnification: int | str = "all",
    partial: bool = False,
) -> ImageSet:
    """Open a copy of BreakHis; malignant is class 1.

    Parameters
    ----------
    data : path
        `BreaKHis_v1` or the folder that holds it.
    magnification : {"all", 40, 100, 200, 400}
        Which images to take.
    partial : bool
        Take a part of the data set: differences from what was published become warnings.

    Returns
    -------
    ImageSet
        `group` is the patient; `subtype`, `magnification` are further columns. There is no split: none is
        published, and experiments draw one per seed.

    References
    ----------
    F. A. Spanhol et al., "A Dataset for Breast Cancer Histopathological Image Classification", IEEE
    Transactions on Biomedical Engineering 63, 2016.
    """
    wanted = _wanted(magnification)
    root = _root(data_folder(data, "breakhis", _HOLDS))
    findings = Findings(str(root), partial, f"Get the whole data set at {_PAGE}.")
    paths, _ = image_files(root, root / "histology_slides" / "breast")
    named = [(path, parse_name(Path(path).stem)) for path in paths]
    unknown_names = [path for path, name in named if name is None]
    if unknown_names:
        findings.differ(
            f"{len(unknown_names)} file names are not of BreakHis: {some(unknown_names, 5)}"
        )
    kept = [(path, name) for path, name in named if name and name.magnification in wanted]
    if not kept:
        raise InputError(f"no BreakHis images in {root}. breakhis needs {_HOLDS}")

    label = np.array([name.label for _, name in kept])
    slides = {(name.subtype, name.patient) for _, name in kept}
    for m in wanted:
        here = np.array([name.magnification == m for _, name in kept])
        for i, published in enumerate(MAGNIFICATIONS[m]):
            findings.count(
                f"{CLASSES[i]} images at {m}X", int((here & (label == i)).sum()), published
            )
    if len(wanted) == len(MAGNIFICATIONS):
        findings.count("slides", len(slides), SLIDES)
    group = [name.patient for _, name in kept]
    shared = sorted({p for s, p in slides if any(q == p and t != s for t, q in slides)})
    if shared:
        findings.note(
            f"slide {some(shared, 5)} lies under more than one subtype; all its images are one group"
        )
    scales = np.array([name.magnification for _, name in kept])
    paths = [path for path, _ in kept]
    cases = Cases(
        n=len(kept),
        classes=CLASSES,
        ids=image_ids([Path(path).stem for path in paths]),
        y=label,
        groups=Factor.of(group),
        paths=np.array(paths, dtype=object),
        notes=tuple(findings.warnings),
    )
    subtypes = [SUBTYPES[name.subtype] for _, name in kept]
    return ImageSet(
        BREAKHIS,
        cases,
        FileSource(root, tuple(paths)),
        {"subtype": np.array(subtypes, dtype=object), "magnification": scales},
        facts={
            "slides": len(slides),
            "magnifications": {f"{m}X": int((scales == m).sum()) for m in wanted},
        },
    )


def _wanted(magnification: int | str) -> tuple[int, ...]:
    text = str(magnification).upper().removesuffix("X")
    if text == "ALL":
        return tuple(MAGNIFICATIONS)
    check_choice(text, [str(m) for m in MAGNIFICATIONS] + ["all"], "magnification")
    return (int(text),)


def _root(folder: Path) -> Path:
    # One archive tool makes a folder of the archive's name around the archive's own.
    for root in (folder, folder / "BreaKHis_v1", folder / "BreaKHis_v1" / "BreaKHis_v1"):
        if (root / "histology_slides" / "breast").is_dir():
            return root
    raise InputError(f"no histology_slides/breast in {folder}. breakhis needs {_HOLDS}")


BREAKHIS = Dataset(
    name="breakhis",
    form="breakhis",
    title="BreakHis, breast tumours at 40, 100, 200 and 400 times",
    load=open_breakhis,
    licence="CC BY 4.0",
    terms="Free with credit.",
    page=_PAGE,
    credit="Spanhol et al., A Dataset for Breast Cancer Histopathological Image Classification, "
    "IEEE Transactions on Biomedical Engineering 63, 2016",
    n=7909,
    paper=True,
)
