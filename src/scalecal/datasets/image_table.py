"""A user's own images listed in a table: paths, labels, votes, groups, splits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial as bind
from pathlib import Path
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Factor
from scalecal.checks import InputError, rows
from scalecal.datasets.class_folders import SPLIT_NAMES
from scalecal.datasets.image_sets import (
    UNLABELLED,
    Dataset,
    Findings,
    ImageSet,
    ImageSource,
    image_ids,
)
from scalecal.datasets.image_sources import (
    FileSource,
    RemoteSource,
    data_folder,
    list_names,
    remote_url,
)
from scalecal.io.case_tables import CaseReader, without_empty_columns
from scalecal.io.features import choose_classes
from scalecal.io.input_columns import NamedColumns, as_ids, open_columns, roles_of, some
from scalecal.votes import Ties


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
        lost = [path for path, gone in zip(paths, missing, strict=True) if gone]
        findings.differ(f"{len(lost)} of {len(paths)} images are not in {root}: {some(lost, 5)}")
        if missing.all():
            raise InputError(f"{file}: none of the images listed is in {root}")
    cases = without_empty_columns(replace(cases, split=split, paths=np.array(paths, dtype=object)))
    notes = reader.notes
    if cases.votes is None and (cases.y is None or (cases.y < 0).all()):
        cases, notes = replace(cases, y=None, classes=tuple(classes or ())), (UNLABELLED,)
    again = len(paths) - len(set(paths))
    if again:
        findings.note(f"{again} rows name an image that another row names too")
    cases = cases.take(~missing)
    present = tuple(path for path, gone in zip(paths, missing, strict=True) if not gone)
    source: ImageSource
    if isinstance(root, str):
        source = RemoteSource(root, present)
    else:
        source = FileSource(root, present)
    return ImageSet(TABLE, cases.note(*notes, *findings.warnings), source)


def _paths(table: NamedColumns, root: Path | str) -> list[str]:
    """Paths relative to the data folder, with forward slashes; one that leads out of it is refused."""
    table.need("path", "the image files")
    listed = as_ids(table.table.column("path")).to_numpy(object, na_value="")
    empty = listed == ""
    if empty.any():
        raise InputError(f"column 'path' is empty at {rows(empty)}")
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
    present, missing = [], np.zeros(len(paths), dtype=bool)
    listed = frozenset(list_names(root)) if isinstance(root, str) else None

    def is_there(name: str) -> bool:
        if listed is not None:
            return name in listed
        return os.path.isfile(Path(root) / name)  # False for names that no file may have

    for i, path in enumerate(paths):
        spellings = (path, normalize("NFC", path), normalize("NFD", path))
        here = next((s for s in spellings if is_there(s)), None)
        missing[i] = here is None
        present.append(path if here is None else here)
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


TABLE = Dataset(
    name="table",
    form="table:FILE.csv",
    title="Your own images, listed in a table",
    load=open_table,
)
