"""A user's own images: in one folder per class, or listed in a table.

Folders are `DIR/<class>/...` or `DIR/<split>/<class>/...`; images that lie in `DIR` itself have no labels.
A table names paths, labels, votes, groups and splits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial as bind
from pathlib import Path
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Cases, Factor
from scalecal.checks import InputError, refuse, rows
from scalecal.datasets.image_sets import UNLABELLED, Dataset, Findings, ImageSet, image_ids
from scalecal.datasets.image_sources import (
    FileSource,
    RemoteSource,
    data_folder,
    image_files,
    list_names,
    remote_url,
)
from scalecal.io.case_tables import CaseReader, without_empty_columns
from scalecal.io.features import choose_classes
from scalecal.io.input_columns import NamedColumns, as_ids, open_columns, roles_of, some
from scalecal.splits import PARTS
from scalecal.votes import Ties

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}

_HOLDS = "a folder with one folder of images per class"


def _source(root: Path | str, paths: Sequence[str]) -> FileSource | RemoteSource:
    if isinstance(root, str):
        return RemoteSource(root, tuple(paths))
    return FileSource(root, tuple(paths))


def open_folder(
    where: str | Path, data: str | Path | None = None, *, classes: Sequence[str] | None = None
) -> ImageSet:
    """Open a folder of class folders; images may lie at any depth below their class.

    Where every folder at the top is called train, val (valid, validation) or test, these are the
    splits and the class folders lie below them. Where all images lie in the folder itself they have no
    labels: they can be embedded and predicted, not learned from.

    Parameters
    ----------
    where : path
        The folder, relative to `data` where that is given; also an address such as
        ``s3://bucket/tiles`` (see `scalecal.datasets.image_sources`).
    classes : sequence of str, optional
        Class folders in the order of their labels; sorted by name by default. Others are an error.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("HP/a.png", "SSA/b.png"):
    ...     (root / name).parent.mkdir()
    ...     Image.new("RGB", (4, 4)).save(root / name)
    >>> opened = open_folder(root)
    >>> opened.classes, opened.cases.y.tolist()
    (('HP', 'SSA'), [0, 1])
    """
    given = [part for part in (data, where) if part is not None]
    root: Path | str = remote_url(*given) or data_folder(Path(*given), "folder", _HOLDS)
    paths, others = image_files(root)
    if not paths:
        raise InputError(f"no images (PNG, JPEG, TIFF, BMP) in {root}. folder: needs {_HOLDS}")
    cases = Cases(
        n=len(paths),
        ids=image_ids([normalize("NFC", path) for path in paths]),
        paths=np.array(paths, dtype=object),
    )
    if others:
        cases = cases.note(f"{others} files are no images by their name and left out")
    folders = [path.split("/")[:-1] for path in paths]
    if not any(folders):
        cases = replace(cases, classes=tuple(classes or ())).note(UNLABELLED)
        return ImageSet(FOLDER, cases, _source(root, paths))
    # Classes may be called train and test; splits have class folders below them.
    tops = {inside[0].lower() for inside in folders if inside}
    by_split = tops <= set(SPLIT_NAMES) and max(map(len, folders)) > 1
    depth = int(by_split)
    loose = [path for path, inside in zip(paths, folders, strict=True) if len(inside) <= depth]
    if loose:
        raise InputError(
            f"{root}: {len(loose)} images lie in no class folder: {some(loose, 5)}. "
            f"folder: needs {_HOLDS}"
        )
    named = [normalize("NFC", inside[depth]) for inside in folders]
    order = sorted(set(named)) if classes is None else list(classes)
    unknown = sorted(set(named) - set(order))
    if unknown:
        raise InputError(
            f"{root}: class folder {some(unknown, 5)} is not among the classes ({', '.join(order)})"
        )
    if len(order) < 2:
        raise InputError(f"{root} has one class folder only ({order[0]}): two or more are needed")
    label = Factor.of(named, tuple(order))
    cases = replace(cases, y=label.codes, classes=label.names)
    if by_split:
        split = Factor.of([SPLIT_NAMES[inside[0].lower()] for inside in folders])
        cases = replace(cases, split=split)
        if "train" not in split.names:
            cases = cases.note(f"no images in the split train (of {', '.join(PARTS)})")
    return ImageSet(FOLDER, cases, _source(root, paths))


def open_table(
    where: str | Path,
    data: str | Path | None = None,
    *,
    classes: Sequence[str] | None = None,
    ties: Ties = "error",
    partial: bool = False,
) -> ImageSet:
    """Open images listed in a CSV, TSV, Parquet, Excel or JSON Lines file.

    Columns: `path` (relative to `data`); `label`, or votes, or both; votes as `votes` for the second
    class with `n_raters`, or as one column `votes_<class>` per class; optionally `id` (else the
    path), `group` and `split` (train, val, test or empty). Other columns are ignored. Images with
    neither labels nor votes are new cases: they can be embedded and predicted, not learned from.

    Class names are sorted, numbers by value, unless `classes` gives their order. Without `label`, the
    label is the majority of the votes.

    Parameters
    ----------
    where : path
        The table.
    data : path, optional
        Folder the paths are relative to; the table's own by default. No path may lead out of it.
        Also an address such as ``s3://bucket/tiles`` (see `scalecal.datasets.image_sources`).
    classes : sequence of str, optional
        Class names in the order of their labels.
    ties : {"error", "drop", "first", "last", "random"}
        Label of a case whose votes are tied, where there is no `label`; "drop" leaves it empty.
    partial : bool
        Leave out rows whose file is missing, with a warning, instead of failing.
    """
    if classes is not None and len(set(classes)) != len(classes):
        raise InputError(f"classes must be named once each, got {', '.join(classes)}")
    file = Path(os.path.expanduser(where))
    table = open_columns(file, None, roles_of("images"))
    root: Path | str = remote_url(data) or data_folder(
        file.parent if data is None else data, "table", "the folder of the images"
    )
    findings = Findings(str(file), partial, "Correct the table or bring the files.")
    with table.messages():
        paths, missing = _present(root, _paths(table, root))
        ids = table.ids()
        if ids is None:
            ids = image_ids([normalize("NFC", path) for path in paths])
        reader = CaseReader(ties=ties)
        cases = reader.read(table, ids, bind(choose_classes, classes=classes))
        split = _split(table, cases.split)
    if missing.any():
        lost = some(np.array(paths, dtype=object)[missing], 5)
        findings.differ(f"{missing.sum()} of {len(paths)} images are not in {root}: {lost}")
        if missing.all():
            raise InputError(f"{file}: none of the images listed is in {root}")
    cases = without_empty_columns(replace(cases, split=split, paths=np.array(paths, dtype=object)))
    notes = reader.notes
    if cases.votes is None and (cases.y is None or (cases.y < 0).all()):
        cases, notes = replace(cases, y=None, classes=tuple(classes or ())), (UNLABELLED,)
    again = len(paths) - len(set(paths))
    if again:
        findings.warnings.append(f"{again} rows name an image that another row names too")
    cases = cases.take(~missing).note(*notes, *findings.warnings)
    assert cases.paths is not None
    return ImageSet(TABLE, cases, _source(root, list(cases.paths)))


def _paths(table: NamedColumns, root: Path | str) -> list[str]:
    """Paths relative to the data folder, with forward slashes; one that leads out of it is refused."""
    table.need("path", "the image files")
    listed = as_ids(table.table.column("path")).to_numpy(object, na_value="")
    refuse(listed == "", "column 'path' is empty")
    # By name alone: a link inside the folder may well point to another disk.
    # Where an address is the root, any folder will do to see whether a path leads out of it.
    base = os.path.abspath("data" if isinstance(root, str) else root)
    inside = []
    for path in listed:
        whole = os.path.normpath(os.path.join(base, path.replace("\\", "/")))
        try:
            inside.append(Path(whole).relative_to(base).as_posix())
        except ValueError:
            raise InputError(
                f"the path {path!r} leads out of the data folder {root}. "
                "Give the folder that holds all images with --data."
            ) from None
    return inside


def _present(root: Path | str, paths: list[str]) -> tuple[list[str], NDArray[np.bool_]]:
    """Find each file, also under the other spelling of accents; True where there is none."""
    listed = frozenset(list_names(root)) if isinstance(root, str) else None
    present, missing = [], np.zeros(len(paths), dtype=bool)
    for i, path in enumerate(paths):
        spellings = [path, normalize("NFC", path), normalize("NFD", path)]
        if listed is None:
            spellings = [name for name in spellings if os.path.isfile(Path(root, name))]
        else:
            spellings = [name for name in spellings if name in listed]
        missing[i] = not spellings
        present.append((spellings or [path])[0])
    return present, missing


def _split(table: NamedColumns, split: Factor | None) -> Factor | None:
    """The column of splits with its names as they are called here."""
    if split is None:
        return None
    unknown = [name for name in split.names if name.lower() not in SPLIT_NAMES]
    if unknown:
        where = split.codes == split.names.index(unknown[0])
        raise InputError(
            f"column {table.names['split']!r} must hold train, val, test or nothing, got "
            f"{unknown[0]!r} at {rows(where)}"
        )
    return Factor.of([SPLIT_NAMES.get(name.lower(), "") for name in split.values.tolist()])


FOLDER = Dataset(
    name="folder",
    form="folder:DIR",
    title="Your own images, one folder per class",
    load=open_folder,
)

TABLE = Dataset(
    name="table",
    form="table:FILE.csv",
    title="Your own images, listed in a table",
    load=open_table,
)
