"""MHIST: colorectal polyps read by seven pathologists, HP or SSA (Wei et al. 2021).

Form-gated: the user downloads it under the publisher's agreement; nothing of it is shipped here. The
folder holds `annotations.csv` and `images/` or `images.zip`, which is read in place.
"""

from __future__ import annotations

import re
from functools import partial as bind
from hashlib import md5
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import numpy as np

from scalecal.checks import InputError
from scalecal.datasets.decoding import ImageError, image_header
from scalecal.datasets.image_sets import Dataset, Findings, ImageSet, case_table, shorten
from scalecal.datasets.image_sources import FileSource, ZipSource, data_folder, md5_of, safe_members
from scalecal.datasets.image_table import need_columns, read_text_table, whole_numbers

__all__ = ["MHIST", "open_mhist"]

NAME = "Image Name"
MAJORITY = "Majority Vote Label"
VOTES = "Number of Annotators who Selected SSA (Out of 7)"
PARTITION = "Partition"
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
    notes = read_text_table(file)
    need_columns(notes, (NAME, MAJORITY, VOTES, PARTITION), file)
    empty = notes[[NAME, MAJORITY, VOTES, PARTITION]].isna().any(axis=1)
    if empty.any():
        raise InputError(f"{file} has {int(empty.sum())} rows with empty cells. Download it again.")
    for column, known in ((MAJORITY, CLASSES), (PARTITION, ("train", "test"))):
        strange = sorted(set(notes[column]) - set(known))
        if strange:
            raise InputError(
                f"{file}: column {column!r} must hold {' or '.join(known)}, got {shorten(strange)}"
            )
    votes = whole_numbers(notes, VOTES, file).to_numpy(dtype=np.int64)
    label = notes[MAJORITY].eq("SSA").to_numpy(dtype=np.int64)
    if (votes > READERS).any():
        raise InputError(f"{file}: {votes.max()} votes for SSA, but there are {READERS} readers")
    wrong = label != (votes > READERS // 2)
    if wrong.any():
        raise InputError(
            f"{file}: the majority label contradicts the votes for "
            f"{shorten(notes[NAME][wrong])}. The file was changed; download it again."
        )
    # A name is only ever a file directly in images/: a path in its place was not written by the publisher.
    odd = [name for name in notes[NAME] if "/" in name or "\\" in name or name in (".", "..")]
    if odd:
        raise InputError(f"{file}: {odd[0]!r} is no plain file name")

    source, missing = _find_images(folder, list(notes[NAME]), findings)
    if missing.any():
        findings.differ(f"{int(missing.sum())} images missing: {shorten(notes[NAME][missing])}")
        notes, votes, label = notes[~missing], votes[~missing], label[~missing]
    findings.count("images", len(notes), 3152)
    for i, (name, published) in enumerate(zip(CLASSES, (2162, 990), strict=True)):
        findings.count(f"{name} images", int((label == i).sum()), published)
    for name, published in (("train", 2175), ("test", 977)):
        findings.count(f"{name} images", int(notes[PARTITION].eq(name).sum()), published)
    _check_headers(source, findings)
    if not len(notes):
        raise InputError(f"{folder}: none of the annotated images is there. mhist needs {_HOLDS}")
    table = case_table(
        [Path(name).stem for name in notes[NAME]],
        label,
        CLASSES,
        votes=votes,
        n_raters=READERS,
        split=list(notes[PARTITION]),
        path=list(source.paths),
    )
    return ImageSet(
        MHIST,
        table,
        CLASSES,
        source,
        tuple(findings.warnings),
        image_size=SIZE,
        checks=(bind(check_md5sums, folder, source),),
    )


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
    found = [name for name in names if name in here]
    more = sorted(set(here) - set(names))
    if more:
        findings.note(f"{len(more)} images are not annotated and left out: {shorten(more)}")
    paths = tuple(f"images/{name}" for name in found)
    if images.is_dir():
        return FileSource(folder, paths), missing
    return ZipSource(archive, tuple(here[name] for name in found), paths), missing


def _check_headers(source: FileSource | ZipSource, findings: Findings) -> None:
    """Look at sizes and colours; broken files are only noted, for extraction skips and lists them."""
    broken, odd = [], []
    for row, path in enumerate(source.paths):
        try:
            file = source.read_bytes(row) if isinstance(source, ZipSource) else source.root / path
            _, size, mode = image_header(file, name=path)
        except ImageError as error:
            broken.append(f"{error.name} ({error.reason})")
            continue
        if size != SIZE or mode != "RGB":
            odd.append(f"{path} ({size[0]} x {size[1]} {mode})")
    if odd:
        findings.differ(f"{len(odd)} images are not 224 x 224 RGB: {shorten(odd)}")
    if broken:
        findings.note(f"{len(broken)} images cannot be read: {shorten(broken)}")


def check_md5sums(folder: Path, source: FileSource | ZipSource) -> list[str]:
    """Compare every file listed in MD5SUMs.txt that is here; return the ones that differ.

    Both common forms are read: `md5  name` and `MD5 (name) = md5`.
    """
    listing = folder / "MD5SUMs.txt"
    if not listing.is_file():
        return []
    rows = {Path(path).name: row for row, path in enumerate(source.paths)}
    problems = []
    for line in listing.read_text(encoding="utf-8-sig", errors="replace").splitlines():
        plain = re.fullmatch(r"\s*([0-9a-fA-F]{32})\s+\*?(.+?)\s*", line)
        bsd = re.fullmatch(r"\s*MD5 ?\((.+)\) ?= ?([0-9a-fA-F]{32})\s*", line)
        if plain:
            expected, name = plain[1].lower(), Path(plain[2]).name
        elif bsd:
            expected, name = bsd[2].lower(), Path(bsd[1]).name
        else:
            continue
        if name in rows and isinstance(source, ZipSource):
            found = md5(source.read_bytes(rows[name]), usedforsecurity=False).hexdigest()
        elif name in rows:
            found = md5_of(folder / "images" / name)
        elif (folder / name).is_file():
            found = md5_of(folder / name)
        else:
            continue
        if found != expected:
            problems.append(f"{name}: MD5 {found}, MD5SUMs.txt says {expected}")
    return problems


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
