"""PatchCamelyon: 327,680 lymph node patches of 96 pixels in HDF5 (Veeling et al. 2018).

A patch is positive if its centre of 32 x 32 pixels holds tumour. The files are published compressed
(`.h5.gz`) and must be unpacked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Cases, Factor
from scalecal.checks import InputError
from scalecal.datasets.image_sets import Dataset, Findings, ImageSet, image_ids
from scalecal.datasets.image_sources import ArraySource, Block, data_folder, image_block
from scalecal.io.arrays import need_array, open_hdf5, read_hdf5
from scalecal.io.input_columns import check_headers, open_columns
from scalecal.io.tables import column_names

CLASSES = ("normal", "tumour")
SHAPE = (96, 96, 3)
# Name in the files -> name here, published number of patches.
PARTS = {"train": ("train", 262_144), "valid": ("val", 32_768), "test": ("test", 32_768)}

_PREFIX = "camelyonpatch_level_2_split_"
_PAGE = "https://github.com/basveeling/pcam"
_HOLDS = f"the folder with {_PREFIX}{{train,valid,test}}_{{x,y}}.h5, from {_PAGE}, unpacked (gunzip *.h5.gz)"


def open_pcam(data: str | Path | None = None, *, partial: bool = False) -> ImageSet:
    """Open a copy of PatchCamelyon; tumour is class 1.

    Parameters
    ----------
    data : path
        Folder with the HDF5 files, unpacked, and the `_meta.csv` files where there are any.
    partial : bool
        Take what is there: other counts than the published ones, or splits that are missing, become
        warnings.

    Returns
    -------
    ImageSet
        Of kind `array`; `group` is the slide (`wsi`) where the meta file is there.

    References
    ----------
    B. S. Veeling et al., "Rotation Equivariant CNNs for Digital Pathology", MICCAI 2018.
    """
    folder = data_folder(data, "pcam", _HOLDS)
    findings = Findings(
        str(folder), partial, f"Get the whole data set at {_PAGE} and unpack it (gunzip *.h5.gz)."
    )
    blocks: list[Block] = []
    labels: list[NDArray[np.int64]] = []
    groups: list[Any] = []
    part_of: list[str] = []
    for part, (_, published) in PARTS.items():
        x, y = (folder / f"{_PREFIX}{part}_{key}.h5" for key in "xy")
        missing = [file.name for file in (x, y) if not file.is_file()]
        if missing:
            findings.differ(f"{' and '.join(missing)} missing, so there is no {part} split")
            continue
        block, label = _open_part(x, y)
        findings.count(f"{part} patches", block.n, published)
        blocks.append(block)
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
    )


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
