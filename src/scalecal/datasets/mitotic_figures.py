"""What AtNorM-MD and AMi-Br share: a table with a column per pathologist, patches by majority label.

Both lie in a folder as cloned or downloaded: the table at its top, one PNG of 128 x 128 pixels per mitotic
figure in the folder of its majority label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Cases, Factor
from scalecal.checks import InputError
from scalecal.datasets.image_sets import Dataset, Findings, ImageSet, check_sizes, image_ids
from scalecal.datasets.image_sources import FileSource, data_folder
from scalecal.io.named_columns import some
from scalecal.io.tables import column_names, read_table

CLASSES = ("Normal", "Atypical")
SIZE = (128, 128)

Calls = NDArray[np.bool_]


def find_table(data: str | Path | None, table: str, name: str, holds: str) -> Path:
    """Return the table of a data set in its folder; `holds` says what the folder should hold."""
    file = data_folder(data, name, holds) / table
    if not file.is_file():
        raise InputError(f"no {table} in {file.parent}. {name} needs {holds}")
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
    check_sizes(source, SIZE, findings)
    tally = {str(k): int((votes[here] == k).sum()) for k in range(readers + 1)}
    return ImageSet(
        about,
        cases.note(*findings.warnings),
        source,
        facts={"votes for Atypical": tally},
        image_size=SIZE,
    )
