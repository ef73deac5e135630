"""MHIST: colorectal polyps read by seven pathologists, HP or SSA (Wei et al. 2021).

Form-gated: the user downloads it under the publisher's agreement; nothing of it is shipped here. The
folder holds `annotations.csv` and `images/` or `images.zip`, which is read in place.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial as bind
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import numpy as np

from scalecal.cases import Cases
from scalecal.checks import InputError
from scalecal.datasets.image_sets import Dataset, Findings, ImageSet, image_ids
from scalecal.datasets.image_sources import FileSource, ZipSource, data_folder, safe_members
from scalecal.io.case_tables import CaseReader, resolve_classes
from scalecal.io.input_columns import check_headers, open_columns, some
from scalecal.io.tables import column_names

PARTITION = "Partition"
COLUMNS = {
    "id": "Image Name",
    "label": "Majority Vote Label",
    "votes": "Number of Annotators who Selected SSA (Out of 7)",
    "split": PARTITION,
}
READERS = 7
CLASSES = ("HP", "SSA")
SIZE = (224, 224)

_PAGE = "https://bmirds.github.io/MHIST/"
_HOLDS = (
    "the folder with annotations.csv and images/ (or images.zip). "
    f"MHIST is free for research after a form: {_PAGE}"
)


def open_mhist(data: str | Path | None = None, *, partial: bool = False) -> ImageSet:
    """Open a copy of MHIST; SSA is class 1.

    Parameters
    ----------
    data : path
        Folder with `annotations.csv` and `images/` or `images.zip`.
    partial : bool
        Take a part of the data set: differences from what was published become warnings, and
        annotations without an image are left out.

    Returns
    -------
    ImageSet
        `votes` of `n_raters` = 7 for SSA, `split` as published (train, test); no groups, because
        patients are not published.

    References
    ----------
    J. Wei et al., "A Petri Dish for Histopathology Image Analysis", AIME 2021.
    """
    folder = data_folder(data, "mhist", _HOLDS)
    file = folder / "annotations.csv"
    if not file.is_file():
        raise InputError(f"no annotations.csv in {folder}. mhist needs {_HOLDS}")
    findings = Findings(str(folder), partial, f"Get the whole data set at {_PAGE}.")
    names, cases = _read_annotations(file)
    source, missing = _find_images(folder, names, findings)
    if missing.any():
        lost = [name for name, gone in zip(names, missing, strict=True) if gone]
        findings.differ(f"{len(lost)} images missing: {some(lost, 5)}")
    cases = replace(cases.take(~missing), paths=np.array(source.paths, dtype=object))
    assert cases.y is not None
    assert cases.split is not None
    findings.count("images", len(cases), 3152)
    for i, (name, published) in enumerate(zip(CLASSES, (2162, 990), strict=True)):
        findings.count(f"{name} images", int((cases.y == i).sum()), published)
    for name, published in (("train", 2175), ("test", 977)):
        findings.count(f"{name} images", int((cases.split.values == name).sum()), published)
    if not len(cases):
        raise InputError(f"{folder}: none of the annotated images is there. mhist needs {_HOLDS}")
    return ImageSet(MHIST, cases.note(*findings.warnings), source, image_size=SIZE)


def _read_annotations(file: Path) -> tuple[list[str], Cases]:
    """Names of the image files, and the cases; nothing may be missing or contradict the rest."""
    check_headers(COLUMNS, tuple(COLUMNS), {file.name: column_names(file)})
    table = open_columns(file, COLUMNS, tuple(COLUMNS))
    with table.messages():
        names = [str(name) for name in table.ids() or ()]
        # A name is only ever a file directly in images/: a path in its place was not written by the
        # publisher.
        odd = [name for name in names if "/" in name or "\\" in name or name in (".", "..")]
        if odd:
            raise InputError(f"{odd[0]!r} is no plain file name")
        ids = image_ids([Path(name).stem for name in names])
        reader = CaseReader(n_raters=READERS)
        cases = reader.read(table, ids, bind(resolve_classes, columns=CLASSES))
        assert cases.y is not None
        assert cases.votes is not None
        assert cases.split is not None
        empty = (cases.y < 0) | ~cases.votes.any(axis=1) | (cases.split.codes < 0)
        if empty.any() or reader.count["decided"]:
            raise InputError(f"{int(empty.sum())} rows have empty cells. Download it again.")
        strange = sorted(set(cases.split.names) - {"train", "test"})
        if strange:
            raise InputError(
                f"column {PARTITION!r} must hold train or test, got {some(strange, 5)}"
            )
        wrong = cases.y != (cases.votes[:, 1] > READERS // 2)
        if wrong.any():
            raise InputError(
                "the majority label contradicts the votes for "
                f"{some(np.array(names)[wrong], 5)}. The file was changed; download it again."
            )
    return names, cases


def _find_images(
    folder: Path, names: list[str], findings: Findings
) -> tuple[FileSource | ZipSource, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Match annotations to files in images/, or else to members of images.zip."""
    images, archive = folder / "images", folder / "images.zip"
    if images.is_dir():
        here = {path.name: path.name for path in images.iterdir() if path.suffix.lower() == ".png"}
    elif archive.is_file():
        try:
            with ZipFile(archive) as opened:
                members = safe_members(opened, archive)
        except BadZipFile as error:
            raise InputError(
                f"{archive} is no whole zip file ({error}). Download it again."
            ) from None
        here = {Path(member.filename).name: member.filename for member in members}
    else:
        raise InputError(f"neither images/ nor images.zip in {folder}. mhist needs {_HOLDS}")
    missing = np.array([name not in here for name in names], dtype=bool)
    present = [name for name in names if name in here]
    more = sorted(set(here) - set(names))
    if more:
        findings.note(f"{len(more)} images are not annotated and left out: {some(more, 5)}")
    paths = tuple(f"images/{name}" for name in present)
    if images.is_dir():
        return FileSource(folder, paths), missing
    return ZipSource(archive, tuple(here[name] for name in present), paths), missing


MHIST = Dataset(
    name="mhist",
    form="mhist",
    title="MHIST, colorectal polyps, seven readers",
    load=open_mhist,
    licence="Dataset Research Use Agreement",
    terms="Ask for it by the publisher's form; research only; do not pass it on.",
    page=_PAGE,
    credit="Wei et al., A Petri Dish for Histopathology Image Analysis, AIME 2021",
    n=3152,
    paper=True,
)
