"""A user's own images in one folder per class: `DIR/<class>/...`, or `DIR/<split>/<class>/...`.

Images that lie in `DIR` itself have no labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import numpy as np

from scalecal.cases import Cases, Factor
from scalecal.checks import InputError
from scalecal.datasets.image_sets import UNLABELLED, Dataset, ImageSet, image_ids
from scalecal.datasets.image_sources import (
    FileSource,
    RemoteSource,
    data_folder,
    image_files,
    list_images,
    remote_url,
)
from scalecal.io.features import SPLITS
from scalecal.io.input_columns import some

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
    root: Path | str | None = remote_url(where) if data is None else remote_url(data, where)
    if isinstance(root, str):
        paths, others = list_images(root)
        source: FileSource | RemoteSource = RemoteSource(root, tuple(paths))
    else:
        root = data_folder(Path(data, where) if data is not None else where, "folder", _HOLDS)
        paths, others = image_files(root)
        source = FileSource(root, tuple(paths))
    if not paths:
        raise InputError(f"no images (PNG, JPEG, TIFF, BMP) in {root}. folder: needs {_HOLDS}")
    parts = [path.split("/") for path in paths]
    tops = {part[0].lower() for part in parts if len(part) > 1}
    by_split = bool(tops) and tops <= set(SPLIT_NAMES) and any(len(part) > 2 for part in parts)
    depth = 1 if by_split else 0
    loose = [path for path, part in zip(paths, parts, strict=True) if len(part) < depth + 2]
    cases = Cases(
        n=len(paths),
        ids=image_ids([normalize("NFC", path) for path in paths]),
        paths=np.array(paths, dtype=object),
    )
    if others:
        cases = cases.note(f"{others} files are no images by their name and left out")
    if all(len(part) == 1 for part in parts):
        return ImageSet(
            FOLDER, replace(cases, classes=tuple(classes or ())).note(UNLABELLED), source
        )
    if loose:
        raise InputError(
            f"{root}: {len(loose)} images lie in no class folder: {some(loose, 5)}. "
            f"folder: needs {_HOLDS}"
        )
    named = [normalize("NFC", part[depth]) for part in parts]
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
        split = Factor.of([SPLIT_NAMES[part[0].lower()] for part in parts])
        cases = replace(cases, split=split)
        if "train" not in split.names:
            cases = cases.note(f"no images in the split train (of {', '.join(SPLITS)})")
    return ImageSet(FOLDER, cases, source)


FOLDER = Dataset(
    name="folder",
    form="folder:DIR",
    title="Your own images, one folder per class",
    load=open_folder,
)
