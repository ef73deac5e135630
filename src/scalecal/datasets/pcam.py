"""PatchCamelyon: 327,680 lymph node patches of 96 pixels in HDF5 (Veeling et al. 2018).

A patch is positive if its centre of 32 x 32 pixels holds tumour. Compressed files (`.h5.gz`) are
unpacked once, beside themselves or into a cache folder, and again where a newer one takes their place.
"""

from __future__ import annotations

import gzip
import os
import shutil
import time
import zlib
from collections.abc import Sequence
from functools import partial as bind
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Cases, Factor
from scalecal.checks import InputError
from scalecal.datasets.image_sets import Dataset, Findings, ImageSet, image_ids
from scalecal.datasets.image_sources import (
    ArraySource,
    Block,
    data_folder,
    image_block,
    md5_of,
)
from scalecal.io.arrays import need_array, open_hdf5, read_hdf5
from scalecal.io.named_columns import check_headers, open_columns
from scalecal.io.tables import column_names

CLASSES = ("normal", "tumour")
SHAPE = (96, 96, 3)
# Name in the files -> name here, published number of patches.
PARTS = {"train": ("train", 262_144), "valid": ("val", 32_768), "test": ("test", 32_768)}

# MD5 of the files as they are distributed. The publisher's own page lists those of valid and test
# the other way round (basveeling/pcam issues 1 and 4; pytorch/vision pull request 6644).
PUBLISHED_MD5 = {
    "train_x.h5.gz": "1571f514728f59376b705fc836ff4b63",
    "train_y.h5.gz": "35c2d7259d906cfc8143347bb8e05be7",
    "train_meta.csv": "5a3dd671e465cfd74b5b822125e65b0a",
    "valid_x.h5.gz": "d5b63470df7cfa627aeec8b9dc0c066e",
    "valid_y.h5.gz": "2b85f58b927af9964a4c15b8f7e8f179",
    "valid_meta.csv": "67589e00a4a37ec317f2d1932c7502ca",
    "test_x.h5.gz": "d8c2d60d490dbd479f8199bdfa0cf6ec",
    "test_y.h5.gz": "60a7035772fbdb7f34eb86d4420cf66a",
    "test_meta.csv": "3455fd69135b66734e1008f3af684566",
}

_PREFIX = "camelyonpatch_level_2_split_"
_PAGE = "https://github.com/basveeling/pcam"
_HOLDS = f"the folder with {_PREFIX}{{train,valid,test}}_{{x,y}}.h5 or .h5.gz, from {_PAGE}"
# A writer touches its file all the time; one left alone this long was killed.
_STALE_SECONDS = 600.0


def open_pcam(
    data: str | Path | None = None, *, partial: bool = False, cache: str | Path | None = None
) -> ImageSet:
    """Open a copy of PatchCamelyon; tumour is class 1.

    Parameters
    ----------
    data : path
        Folder with the HDF5 files, plain or gzipped, and the `_meta.csv` files where there are any.
    partial : bool
        Take what is there: other counts than the published ones, or splits that are missing, become
        warnings.
    cache : path, optional
        Where to unpack `.gz` files; beside them by default.

    Returns
    -------
    ImageSet
        Of kind `array`; `group` is the slide (`wsi`) where the meta file is there.

    References
    ----------
    B. S. Veeling et al., "Rotation Equivariant CNNs for Digital Pathology", MICCAI 2018.
    """
    folder = data_folder(data, "pcam", _HOLDS)
    findings = Findings(str(folder), partial, f"Get the whole data set at {_PAGE}.")
    blocks: list[Block] = []
    labels: list[NDArray[np.int64]] = []
    groups: list[Any] = []
    part_of: list[str] = []
    whole: list[str] = []
    files: list[Path] = []
    for part, (_, published) in PARTS.items():
        x, y = (_plain_file(folder, f"{part}_{key}", cache) for key in "xy")
        if x is None or y is None:
            lacks = " and ".join(
                f"{_PREFIX}{part}_{key}.h5[.gz]"
                for key, file in (("x", x), ("y", y))
                if file is None
            )
            findings.differ(f"{lacks} missing, so there is no {part} split")
            continue
        block, label = _open_part(x, y)
        findings.count(f"{part} patches", block.n, published)
        if block.n == published:
            whole.append(part)
        blocks.append(block)
        files += [x, y]
        labels.append(label)
        groups.append(_slides(folder, part, label, findings))
        part_of += [part] * block.n
    if not blocks:
        raise InputError(f"no PatchCamelyon files in {folder}. pcam needs {_HOLDS}")
    row = np.concatenate([np.arange(block.n) for block in blocks])
    sizes = [block.n for block in blocks]
    cases = Cases(
        n=len(row),
        classes=CLASSES,
        ids=image_ids([f"{part}_{i:06d}" for part, i in zip(part_of, row.tolist(), strict=True)]),
        y=np.concatenate(labels),
        groups=Factor.of(np.concatenate(groups)),
        split=Factor.of([PARTS[part][0] for part in part_of]),
        notes=tuple(findings.warnings),
    )
    return ImageSet(
        PCAM,
        cases,
        ArraySource(tuple(blocks), np.arange(len(row), dtype=np.int64)),
        {"block": np.repeat([block.path.name for block in blocks], sizes), "row": row},
        facts={"label": "tumour in the centre of 32 x 32 pixels"},
        checks=(
            bind(check_published_md5, folder, tuple(whole)),
            bind(check_unpacked, folder, tuple(files)),
        ),
    )


def _plain_file(folder: Path, name: str, cache: str | Path | None) -> Path | None:
    """Path of an HDF5 file, unpacked first where its .gz is all there is, or is newer; else None."""
    plain = folder / f"{_PREFIX}{name}.h5"
    packed = plain.with_name(plain.name + ".gz")
    if not packed.is_file():
        return plain if plain.is_file() else None
    home = folder if cache is None else Path(os.path.expanduser(cache))
    target = home / plain.name
    stamp = packed.stat().st_mtime_ns
    for file in (plain, target):
        # An older one was unpacked from a .gz that has been replaced since.
        if file.is_file() and file.stat().st_mtime_ns >= stamp:
            return file
    return unpack(packed, target)


def unpack(packed: Path, target: Path) -> Path:
    """Unpack a .gz so that `target` is either whole or not there at all, even after a kill.

    The content goes to a hidden file first, is flushed to disk, then renamed; hidden files that a
    killed run left behind are removed.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f".{target.name}.*.tmp"):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                left.unlink(missing_ok=True)
        growing = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with gzip.open(packed, "rb") as source, growing.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 22)
                sink.flush()
                os.fsync(sink.fileno())
            # By a clock that runs ahead the .gz would stay the newer one.
            stamp = max(growing.stat().st_mtime_ns, packed.stat().st_mtime_ns)
            os.utime(growing, ns=(stamp, stamp))
            os.replace(growing, target)
        finally:
            growing.unlink(missing_ok=True)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{packed} is damaged or cut short ({error}). Download it again."
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot unpack {packed} to {target}: {error.strerror or error}. "
            "Make room, or name another folder: cache=DIR (--cache DIR)"
        ) from None
    return target


def _open_part(x: Path, y: Path) -> tuple[Block, NDArray[np.int64]]:
    """Check the arrays of one split and read its labels."""
    block = image_block(x, "x")
    if block.shape != SHAPE:
        raise InputError(f"{x}: patches must be {SHAPE}, got {block.shape}")
    with open_hdf5(y) as file:
        raw = read_hdf5(need_array(file, "y", y), y)
    if raw.size != block.n:
        raise InputError(f"{y}: {raw.size} labels for the {block.n} patches of {x.name}")
    if not np.isin(raw, (0, 1)).all():
        raise InputError(f"{y}: labels must be 0 or 1, got {np.setdiff1d(raw, (0, 1))[0]}")
    return block, raw.reshape(-1).astype(np.int64)


def _slides(
    folder: Path, part: str, label: NDArray[np.int64], findings: Findings
) -> NDArray[np.str_]:
    """Slide of every patch, from the meta file; "" without one."""
    file = folder / f"{_PREFIX}{part}_meta.csv"
    if not file.is_file():
        findings.note(
            f"no {file.name}: the slides of {part} patches are unknown, so intervals that resample "
            "patches are too narrow"
        )
        return np.full(len(label), "")
    names = {"group": "wsi", "label": "center_tumor_patch"}
    check_headers(names, tuple(names), {file.name: column_names(file)})
    table = open_columns(file, names, tuple(names))
    with table.messages():
        slide, tumour = (table.factor(role) for role in names)
        assert slide is not None
        assert tumour is not None
        if len(table) != len(label):
            raise InputError(f"{len(table)} rows for {len(label)} patches")
    says = np.isin(np.char.lower(tumour.values), ["true", "1"])
    against = int((says != (label == 1)).sum())
    if against:
        findings.note(f"{file.name} contradicts {against:,} labels: is it of another split?")
    return slide.values


def check_published_md5(folder: Path, parts: Sequence[str]) -> list[str]:
    """Compare distributed files of these splits that are here with their MD5; return what differs."""
    problems = []
    for name, expected in PUBLISHED_MD5.items():
        path = folder / f"{_PREFIX}{name}"
        if name.partition("_")[0] not in parts or not path.is_file():
            continue
        with path.open("rb") as handle:
            digest = md5_of(handle)
        if digest == expected:
            continue
        twin = next((other for other, known in PUBLISHED_MD5.items() if known == digest), None)
        problems.append(
            f"{path.name}: this is the published {_PREFIX}{twin} under another name"
            if twin
            else f"{path.name}: MD5 {digest}, published {expected}. Download it again"
        )
    return problems


def check_unpacked(folder: Path, files: Sequence[Path]) -> list[str]:
    """Compare the files that are read with their .gz, whose MD5 is published; return what differs."""
    problems = []
    for file in files:
        packed = folder / f"{file.name}.gz"
        if not packed.is_file():
            continue
        try:
            with gzip.open(packed, "rb") as source, file.open("rb") as handle:
                same = md5_of(source) == md5_of(handle)
        except (EOFError, OSError, zlib.error) as error:
            problems.append(f"{packed.name} is damaged or cut short ({error}). Download it again")
            continue
        if not same:
            problems.append(
                f"{file} is read, but is not what {packed.name} holds: remove the one that is wrong"
            )
    return problems


PCAM = Dataset(
    name="pcam",
    form="pcam",
    title="PatchCamelyon, lymph node metastases",
    load=open_pcam,
    licence="CC0 1.0",
    terms="Free for any use.",
    page=_PAGE,
    credit="Veeling et al., Rotation Equivariant CNNs for Digital Pathology, MICCAI 2018; "
    "Bejnordi et al., JAMA 2017 (CAMELYON16)",
    n=327_680,
    paper=True,
)
