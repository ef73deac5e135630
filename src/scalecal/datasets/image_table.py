"""A user's own images listed in a table: paths, labels, votes, groups, splits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, check_choice, rows
from scalecal.datasets.class_folders import SPLIT_NAMES
from scalecal.datasets.image_sets import (
    UNLABELLED,
    Dataset,
    Findings,
    ImageSet,
    case_table,
    shorten,
)
from scalecal.datasets.image_sources import (
    HDF5_SUFFIXES,
    ArraySource,
    FileSource,
    RemoteSource,
    data_folder,
    list_names,
    remote_url,
    rows_of_files,
)
from scalecal.io.tables import column_names, read_table
from scalecal.votes import TIES, Ties, majority, tied_error

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TABLE", "need_columns", "open_table", "read_text_table", "whole_numbers"]


def read_text_table(path: Path) -> pd.DataFrame:
    """Read a table file with every value as text, so that ids and class names stay as written.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "cases.csv"
    >>> _ = file.write_text("id;label\\n007;1\\nb;", encoding="utf-8-sig")
    >>> read_text_table(file).values.tolist()
    [['007', '1'], ['b', <NA>]]
    """
    table = read_table(path, text=column_names(path))
    # An empty cell may come as text of length nought, depending on quotes.
    return table.astype("string").replace("", None)


def need_columns(table: pd.DataFrame, columns: Iterable[str], path: Path) -> None:
    """Fail, naming what is there, unless the table has these columns."""
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InputError(
            f"{path} has no column {', '.join(map(repr, missing))}. "
            f"It has: {', '.join(map(repr, table.columns))}"
        )


def whole_numbers(table: pd.DataFrame, column: str, path: Path) -> pd.Series[int]:
    """Return a column as whole numbers >= 0, NA where empty."""
    import pandas as pd

    values = pd.to_numeric(table[column], errors="coerce")
    bad = table[column].notna() & (values.isna() | (values < 0) | (values % 1 != 0))
    if bad.fillna(True).any():
        found = table[column][bad.fillna(True)].iloc[0]
        line = int(bad.fillna(True).to_numpy().argmax()) + 2
        raise InputError(
            f"{path}: column {column!r} must hold whole numbers >= 0, got {found!r} at line {line}"
        )
    return values.astype("Int64")


_PREFIX = "votes_"


def open_table(
    where: str | Path,
    data: str | Path | None = None,
    *,
    classes: Sequence[str] | None = None,
    ties: Ties = "drop",
    key: str = "x",
    partial: bool = False,
) -> ImageSet:
    """Open images listed in a CSV, TSV or Parquet file.

    Columns: `path` (relative to `data`); `label`, or votes, or both; votes as `votes` for the second
    class with `n_raters`, or as one column `votes_<class>` per class; where wanted `id` (else the
    path), `group` and `split` (train, val, test or empty). Other columns are passed over. Images with
    neither labels nor votes are new cases: they can be embedded and predicted, not learned from.

    Images kept as arrays in HDF5 are listed with the file as `path` and their place in the array as
    `row`, counted from nought; all of a table must then be of that kind.

    Class names are sorted, numbers by value, unless `classes` gives their order. Labels written as
    numbers 0, 1, ... are the class numbers themselves. Without `label`, the label is the majority of
    the votes.

    Parameters
    ----------
    where : path
        The table.
    data : path, optional
        Folder the paths are relative to; the table's own by default. No path may lead out of it.
        Also an address such as ``s3://bucket/tiles`` (see `scalecal.datasets.image_sources`).
    classes : sequence of str, optional
        Class names in the order of their labels.
    ties : {"drop", "first", "last", "random", "error"}
        Label of a case whose votes are tied, where there is no `label`; "drop" leaves it empty.
    key : str
        Name of the array of images in HDF5 files.
    partial : bool
        Leave out rows whose file is missing, with a warning, instead of failing.
    """
    check_choice(ties, TIES, "ties")
    file = Path(where).expanduser()
    listed = read_text_table(file)
    need_columns(listed, ["path"], file)
    address = remote_url(data)
    root: Path | str = address or data_folder(
        file.parent if data is None else data, "table", "the folder of the images"
    )
    findings = Findings(str(file), partial, "Correct the table or bring the files.")
    if "label" in listed:
        # Whole numbers saved beside empty cells come out of many programs as 1.0.
        listed["label"] = listed["label"].str.replace(r"^(\d+)\.0+$", r"\1", regex=True)
    empty = listed["path"].isna()
    if empty.any():
        raise InputError(f"{file}: column 'path' is empty at {rows(empty)}")
    paths = [_inside(root, path, file) for path in listed["path"]]
    paths, missing = _present(root, paths)
    if missing.any():
        lost = [path for path, gone in zip(paths, missing, strict=True) if gone]
        findings.differ(f"{len(lost)} of {len(paths)} images are not in {root}: {shorten(lost)}")
        listed = listed[~missing].reset_index(drop=True)
        paths = [path for path, gone in zip(paths, missing, strict=True) if not gone]
    if not paths:
        raise InputError(f"{file}: none of the images listed is in {root}")
    names, votes, n_raters = _votes(listed, file)
    if not _known(listed, votes):
        votes = n_raters = None
        findings.note(UNLABELLED)
    order = _classes(listed, names, votes, classes, file)
    if votes is not None and votes.ndim == 2 and names != order:
        votes = _reorder(votes, names, order)
    label = _labels(listed, order, votes, n_raters, ties, findings)
    inside = _array_rows(listed, paths, file)
    places = paths if inside is None else [f"{p}#{i}" for p, i in zip(paths, inside, strict=True)]
    table = case_table(
        _ids(listed, places, file),
        label,
        order,
        votes=votes,
        n_raters=n_raters,
        group=list(listed["group"]) if "group" in listed else None,
        split=_splits(listed, file) if "split" in listed else None,
        path=paths,
        **({} if inside is None else {"row": inside}),
    )
    source: FileSource | ArraySource | RemoteSource
    if inside is None:
        plain = tuple(paths)
        source = RemoteSource(root, plain) if isinstance(root, str) else FileSource(root, plain)
    elif isinstance(root, str):
        raise InputError(f"{file} lists HDF5 files, which must lie on this machine, not at {root}")
    else:
        source = rows_of_files(root, paths, inside, key)
    _note_duplicates(places, findings)
    return ImageSet(TABLE, table, tuple(order), source, tuple(findings.warnings))


def _inside(root: Path | str, path: str, file: Path) -> str:
    """Path relative to the data folder, with forward slashes; one that leads out of it is refused."""
    plain = path.replace("\\", "/")
    # By the words alone: a link inside the folder may well point to another disk.
    # Where an address is the root, any folder will do to see whether a path leads out of it.
    base = os.path.abspath("data" if isinstance(root, str) else root)
    whole = os.path.normpath(os.path.join(base, plain))
    try:
        inside = Path(whole).relative_to(base)
    except ValueError:
        raise InputError(
            f"{file}: the path {path!r} leads out of the data folder {root}. "
            "Give the folder that holds all images with --data."
        ) from None
    return inside.as_posix()


def _present(root: Path | str, paths: list[str]) -> tuple[list[str], NDArray[np.bool_]]:
    """Find each file, also under the other spelling of accents; True where there is none."""
    found, missing = [], np.zeros(len(paths), dtype=bool)
    listed = frozenset(list_names(root)) if isinstance(root, str) else None

    def is_there(name: str) -> bool:
        return (Path(root) / name).is_file() if listed is None else name in listed

    for i, path in enumerate(paths):
        spellings = (path, normalize("NFC", path), normalize("NFD", path))
        here = next((s for s in spellings if is_there(s)), None)
        missing[i] = here is None
        found.append(path if here is None else here)
    return found, missing


def _array_rows(listed: pd.DataFrame, paths: list[str], file: Path) -> NDArray[np.int64] | None:
    """Place of every image in its HDF5 array; None where the paths name image files."""
    arrays = [Path(path).suffix.lower() in HDF5_SUFFIXES for path in paths]
    if not any(arrays):
        return None
    if not all(arrays):
        raise InputError(
            f"{file} lists both HDF5 files and image files ({paths[arrays.index(False)]}): "
            "make a table of each"
        )
    need_columns(listed, ["row"], file)
    inside = whole_numbers(listed, "row", file)
    if inside.isna().any():
        raise InputError(f"{file}: column 'row' is empty at {rows(inside.isna())}")
    return np.asarray(inside.to_numpy(), dtype=np.int64)


def _votes(
    listed: pd.DataFrame, file: Path
) -> tuple[list[str], NDArray[Any] | None, NDArray[Any] | None]:
    """Class names of vote columns, votes (n,) or (n, C) with NaN where there are none, readers."""
    spread = [c for c in listed.columns if c.startswith(_PREFIX) and len(c) > len(_PREFIX)]
    if spread and "votes" in listed:
        raise InputError(
            f"{file} has both 'votes' and {spread[0]!r}: give one count, or one per class"
        )

    def numbers(column: str) -> NDArray[np.float64]:
        counted = whole_numbers(listed, column, file)
        return np.asarray(counted.astype("Float64").to_numpy(na_value=np.nan), dtype=np.float64)

    if spread:
        if len(spread) == 1:
            raise InputError(f"{file} has {spread[0]!r} only: give one such column for every class")
        counts = np.column_stack([numbers(column) for column in spread])
        # A row with some counts has the others at nought; a row without any has no votes.
        voted = ~np.isnan(counts).all(axis=1)
        counts[voted] = np.nan_to_num(counts[voted])
        return [column.removeprefix(_PREFIX) for column in spread], counts, None
    if "votes" not in listed:
        return [], None, None
    need_columns(listed, ["n_raters"], file)
    votes, readers = numbers("votes"), numbers("n_raters")
    alone = ~np.isnan(votes) & np.isnan(readers)
    if alone.any():
        raise InputError(f"{file}: votes without n_raters at {rows(alone)}")
    over = votes > readers
    if over.any():
        raise InputError(
            f"{file}: {votes[over][0]:g} votes of {readers[over][0]:g} readers at {rows(over)}"
        )
    return [], votes, np.where(np.isnan(votes), np.nan, readers)


def _known(listed: pd.DataFrame, votes: NDArray[Any] | None) -> bool:
    """Whether any case has a label or votes."""
    labelled = "label" in listed and bool(listed["label"].notna().any())
    return labelled or (votes is not None and not bool(np.isnan(votes).all()))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _natural(name: str) -> tuple[int, int, str]:
    return (0, int(name), name) if _is_number(name) else (1, 0, name)


def _classes(
    listed: pd.DataFrame,
    voted: list[str],
    votes: NDArray[Any] | None,
    given: Sequence[str] | None,
    file: Path,
) -> list[str]:
    """Class names in the order of their labels, every name in use among them; none without any."""
    labelled = set(listed["label"].dropna()) if "label" in listed else set()
    used = labelled | set(voted)
    if given is None and not used and votes is None:
        return []
    if given is not None:
        order = [str(name) for name in given]
        if len(set(order)) != len(order):
            raise InputError(f"classes must be named once each, got {', '.join(order)}")
        unknown = sorted(used - set(order), key=_natural)
        if unknown:
            raise InputError(
                f"{file}: {shorten(unknown)} not among the classes given ({', '.join(order)})"
            )
    elif voted:
        unknown = sorted(labelled - set(voted), key=_natural)
        if unknown:
            raise InputError(f"{file}: label {shorten(unknown)} has no column votes_<class>")
        order = sorted(voted, key=_natural)
    elif all(_is_number(name) for name in used):
        # The numbers are the labels, so a table with one class in it keeps its meaning.
        highest = max([1, *map(int, used)])
        gaps = highest + 1 > max(len(used), 2)
        order = [] if gaps else [str(i) for i in range(highest + 1)]
        if not used <= set(order):
            raise InputError(
                f"{file}: labels written as numbers are class numbers and must be 0, 1, ... without "
                f"gaps, got {shorten(sorted(used, key=_natural))}. "
                "Else name the classes in order: classes=(...) (--classes A,B)"
            )
    else:
        order = sorted(used)
    if len(order) < 2:
        raise InputError(
            f"{file} has the one class {order[0]!r} only. Name all: classes=(...) (--classes A,B)"
        )
    if votes is not None and votes.ndim == 1 and len(order) > 2:
        raise InputError(
            f"{file}: {len(order)} classes need one column votes_<class> each, not one 'votes'"
        )
    return order


def _reorder(votes: NDArray[Any], names: list[str], order: list[str]) -> NDArray[Any]:
    """Counts per class in the order of the classes; a class without a column got no votes."""
    out = np.zeros((len(votes), len(order)))
    for i, name in enumerate(names):
        out[:, order.index(name)] = votes[:, i]
    out[np.isnan(votes).any(axis=1)] = np.nan
    return out


def _labels(
    listed: pd.DataFrame,
    order: list[str],
    votes: NDArray[Any] | None,
    n_raters: NDArray[Any] | None,
    ties: Ties,
    findings: Findings,
) -> NDArray[Any]:
    """Labels as given, else the majority of the votes; NaN where there is neither."""
    place = {name: float(i) for i, name in enumerate(order)}
    if "label" in listed:
        given = [place[name] if isinstance(name, str) else np.nan for name in listed["label"]]
        label = np.array(given, dtype=np.float64)
    else:
        label = np.full(len(listed), np.nan)
    if votes is None:
        return label
    voted = ~(np.isnan(votes) if votes.ndim == 1 else np.isnan(votes).any(axis=1))
    if not voted.any():
        return label
    readers = None if n_raters is None else n_raters[voted]
    most = majority(votes[voted], readers, ties="drop")
    elected = np.full(len(listed), np.nan)
    elected[voted] = np.where(most.labels < 0, np.nan, most.labels)
    against = int((label != elected)[~np.isnan(label) & ~np.isnan(elected)].sum())
    if against:
        findings.note(
            f"{against} labels differ from the majority of their votes; the labels are kept"
        )
    open_ones = np.isnan(label) & voted
    tied = np.zeros(len(listed), dtype=bool)
    tied[voted] = most.tied
    tied &= open_ones
    if tied.any():
        if ties == "error":
            names = shorten(listed["id" if "id" in listed else "path"][tied], 3)
            raise InputError(f"{findings.where}: {tied_error(tied, f'{rows(tied)}: {names}')}")
        decided = majority(votes[tied], None if n_raters is None else n_raters[tied], ties=ties)
        elected[tied] = np.where(decided.labels < 0, np.nan, decided.labels)
        fate = "left without a label" if ties == "drop" else f"labelled by ties={ties!r}"
        findings.note(f"{int(tied.sum())} cases have tied votes and are {fate}")
    return np.where(np.isnan(label), elected, label)


def _ids(listed: pd.DataFrame, paths: list[str], file: Path) -> list[str]:
    if "id" not in listed:
        return [normalize("NFC", path) for path in paths]
    empty = listed["id"].isna()
    if empty.any():
        raise InputError(f"{file}: column 'id' is empty at {rows(empty)}")
    return list(listed["id"])


def _splits(listed: pd.DataFrame, file: Path) -> list[str | None]:
    written = listed["split"].str.lower()
    strange = written.notna() & ~written.isin(list(SPLIT_NAMES))
    if strange.any():
        raise InputError(
            f"{file}: split must be train, val, test or empty, got "
            f"{listed['split'][strange].iloc[0]!r} at {rows(strange)}"
        )
    return [SPLIT_NAMES[name] if isinstance(name, str) else None for name in written]


def _note_duplicates(paths: list[str], findings: Findings) -> None:
    again = len(paths) - len(set(paths))
    if again:
        findings.note(f"{again} rows name an image that another row names too")


TABLE = Dataset(
    name="table",
    form="table:FILE.csv",
    title="Your own images, listed in a table",
    load=open_table,
    licence="yours",
    terms="As your own data require.",
    page="",
    credit="",
    n=None,
    paper=False,
)
