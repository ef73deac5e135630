"""Mitotic figures that several pathologists called normal or atypical: AtNorM-MD and AMi-Br.

Each lies in a folder as cloned or downloaded: at its top a table with a column per pathologist, and one PNG
of 128 x 128 pixels per mitotic figure in the folder of its majority label. Embeddings of AtNorM-MD come with
the package: `scalecal.datasets.load_atnorm_md`. The publisher of AMi-Br states no licence: nothing of it is
shipped here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Cases, Factor
from scalecal.checks import InputError
from scalecal.datasets.image_sets import Dataset, Findings, ImageSet, image_ids
from scalecal.datasets.image_sources import FileSource, data_folder
from scalecal.io.input_columns import some
from scalecal.io.tables import column_names, read_table

CLASSES = ("Normal", "Atypical")
SIZE = (128, 128)

ATNORM_MD_COUNTS = (1407, 364, 117, 83, 77, 59)
"""Published figures of AtNorM-MD that 0, 1, ... 5 pathologists called atypical."""
AMI_BR_COUNTS = (2496, 392, 420, 412)
"""Published figures of AMi-Br that 0, 1, 2 and 3 pathologists called atypical."""

Calls = NDArray[np.bool_]


def find_table(data: str | Path | None, table: str, about: Dataset, images: str) -> Path:
    """Return the table of a data set in its folder, where the folder `images` should be too."""
    holds = f"the folder with {table} and {images}, from {about.page}"
    file = data_folder(data, about.name, holds) / table
    if not file.is_file():
        raise InputError(f"no {table} in {file.parent}. {about.name} needs {holds}")
    return file


def read_calls(
    file: Path, keys: Sequence[str], experts: Sequence[str], majority: str, words: tuple[str, str]
) -> tuple[Mapping[str, list[str]], Calls]:
    """Read the columns `keys` as text, and who called a figure atypical, (n, readers).

    `words` are what a cell of `experts` and of `majority` holds for normal and atypical. The majority
    must be that of the experts.
    """
    wanted = [*keys, *experts, majority]
    header = column_names(file)
    missing = [name for name in wanted if name not in header]
    if missing:
        raise InputError(
            f"{file} has no column {some(missing, 5)}; its columns are {some(header, 12)}"
        )
    table = read_table(file, text=wanted)[wanted].astype(object)
    empty = table.isna().any(axis=1)
    if empty.any():
        raise InputError(f"{file}: {int(empty.sum())} rows have empty cells. Download it again.")
    called = []
    for column in (*experts, majority):
        text = table[column].str.strip().str.lower()
        strange = sorted(set(text) - {word.lower() for word in words})
        if strange:
            raise InputError(
                f"{file}: column {column!r} must hold {words[0]} or {words[1]}, got {some(strange, 5)}"
            )
        called.append((text == words[1].lower()).to_numpy(bool))
    calls, most = np.column_stack(called[:-1]), called[-1]
    known = {name: [str(value) for value in table[name]] for name in keys}
    wrong = np.flatnonzero(most != (2 * calls.sum(axis=1) > calls.shape[1]))
    if len(wrong):
        rows = [known[keys[-1]][i] for i in wrong[:5]]
        raise InputError(
            f"{file}: the majority contradicts the votes for {some(rows, 5)}. "
            "The file was changed; download it again."
        )
    return known, calls


def open_figures(
    about: Dataset,
    folder: Path,
    *,
    names: Sequence[str],
    homes: tuple[str, str],
    calls: Calls,
    published: Sequence[int],
    partial: bool,
    groups: Sequence[str] | None = None,
) -> ImageSet:
    """Find the patch of every row of the table, and compare all counts with the published ones.

    Parameters
    ----------
    names : sequence of str
        File names without their ending, which are the ids.
    homes : tuple of str
        Folders of normal and of atypical figures, below `folder`.
    calls : ndarray of bool, (n, readers)
    published : sequence of int
        Numbers of figures that 0, 1, ... readers called atypical.
    partial : bool
        Differences from what was published become warnings; rows without an image are left out.
    groups : sequence of str, optional
    """
    odd = [name for name in names if "/" in name or "\\" in name or name in ("", ".", "..")]
    if odd:
        raise InputError(f"{folder}: {odd[0]!r} is no plain file name")
    findings = Findings(str(folder), partial, f"Get the whole data set at {about.page}.")
    n, readers = calls.shape
    votes = calls.sum(axis=1)
    findings.count("rows of the table", n, sum(published))
    for k, count in enumerate(published):
        what = f"figures that {k} of {readers} readers called atypical"
        findings.count(what, int((votes == k).sum()), count)
    y = (2 * votes > readers).astype(np.int64)
    paths = np.array([f"{homes[c]}/{name}.png" for c, name in zip(y, names, strict=True)], object)
    here = np.array([(folder / path).is_file() for path in paths], dtype=bool)
    if not here.any():
        raise InputError(
            f"{folder}: none of the {n:,} images is there, such as {paths[0]}. "
            f"Get them at {about.page}"
        )
    if not here.all():
        findings.differ(
            f"{int(here.sum()):,} of {n:,} images found; {int((~here).sum()):,} missing, such as "
            f"{some(paths[~here], 3)}"
        )
    cases = Cases(
        n=n,
        classes=CLASSES,
        ids=image_ids(names),
        y=y,
        votes=np.column_stack([readers - votes, votes]).astype(np.int64),
        groups=None if groups is None else Factor.of(groups),
        paths=paths,
    ).take(here)
    source = FileSource(folder, tuple(paths[here]))
    return ImageSet(
        about,
        cases.note(*findings.warnings),
        source,
        image_size=SIZE,
    )


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
    file = find_table(data, "AtNorM-MD_expert_votes.csv", ATNORM_MD, "AtNorM-MD/")
    experts = tuple(f"Expert_{k}" for k in range(1, 6))
    known, calls = read_calls(file, ("Filename",), experts, "Majority", ("Normal", "Atypical"))
    return open_figures(
        ATNORM_MD,
        file.parent,
        names=[name.removesuffix(".png") for name in known["Filename"]],
        homes=("AtNorM-MD/Normal", "AtNorM-MD/Atypical"),
        calls=calls,
        published=ATNORM_MD_COUNTS,
        partial=partial,
    )


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
    file = find_table(data, "AMI-BR.csv", AMI_BR, "patches/")
    keys = ("dataset", "slide", "uid")
    experts = tuple(f"expert{k}_atypical" for k in range(1, 4))
    known, calls = read_calls(file, keys, experts, "majority_atypical", ("False", "True"))
    source, slide, uid = (known[key] for key in keys)
    return open_figures(
        AMI_BR,
        file.parent,
        names=[f"{a}_{b}" for a, b in zip(source, uid, strict=True)],
        homes=("patches/normal", "patches/atypical"),
        calls=calls,
        published=AMI_BR_COUNTS,
        partial=partial,
        groups=[f"{a}/{b}" for a, b in zip(source, slide, strict=True)],
    )


ATNORM_MD = Dataset(
    name="atnorm-md",
    form="atnorm-md",
    title="AtNorM-MD, mitotic figures, five readers",
    load=open_atnorm_md,
    licence="MIT",
    terms="Free; keep the copyright notice and cite.",
    page="https://github.com/DeepMicroscopy/AMi-Br_Benchmark",
    credit="Banerjee et al., arXiv 2506.21444, 2025; cut from MIDOG++, Aubreville et al., 2023",
    n=sum(ATNORM_MD_COUNTS),
)

AMI_BR = Dataset(
    name="ami-br",
    form="ami-br",
    title="AMi-Br, mitotic figures of breast cancer, three readers",
    load=open_ami_br,
    licence="none stated",
    terms="Ask the publisher before passing it on.",
    page="https://github.com/DeepMicroscopy/AMi-Br",
    credit="Bertram et al., Histologic Dataset of Normal and Atypical Mitotic Figures (AMi-Br), 2025",
    n=sum(AMI_BR_COUNTS),
)
