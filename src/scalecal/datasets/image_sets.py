"""What every image data set is once opened: a table of cases, a source of pixels, and its facts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, rows
from scalecal.datasets.decoding import ImageError
from scalecal.datasets.image_sources import (
    FULL_HASH_LIMIT,
    ArraySource,
    FileSource,
    RemoteSource,
    ZipSource,
)
from scalecal.votes import majority, strata

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SPLITS", "UNLABELLED", "Dataset", "Findings", "ImageSet", "case_table", "shorten"]

SPLITS = ("train", "val", "test")
UNLABELLED = "there are no labels: a probe can predict these images, but none can be fitted to them"

UInt8 = NDArray[np.uint8]
Source = FileSource | ZipSource | ArraySource | RemoteSource


@dataclass(frozen=True)
class Dataset:
    """Facts about a data set that do not depend on the user's copy of it, and how to open one.

    `form` is how a user writes it; `n` the published number of images, None where the user brings
    the images; `load` takes the data folder and the options in its signature.
    """

    name: str
    form: str
    title: str
    load: Callable[..., ImageSet]
    licence: str
    terms: str
    page: str
    credit: str
    n: int | None
    paper: bool


def shorten(names: Iterable[str], most: int = 5) -> str:
    """Join the first few names and count the rest.

    Examples
    --------
    >>> shorten(["a", "b", "c"], most=2)
    'a, b, ... (3 in all)'
    """
    listed = list(names)
    shown = ", ".join(listed[:most])
    return shown + (f", ... ({len(listed)} in all)" if len(listed) > most else "")


@dataclass
class Findings:
    """What was found wrong with a copy of a data set: errors, unless the user said it is partial."""

    where: str
    partial: bool
    advice: str
    warnings: list[str] = field(default_factory=list)

    def note(self, message: str) -> None:
        """Record something the user should know."""
        self.warnings.append(message)

    def differ(self, message: str) -> None:
        """Record a difference from what was published, or stop there."""
        if not self.partial:
            raise InputError(
                f"{self.where}: {message}. {self.advice} "
                "If this is a part of the data set on purpose, pass partial=True (--partial)."
            )
        self.warnings.append(message)

    def count(self, what: str, found: int, published: int) -> None:
        """Compare a count with the published one."""
        if found != published:
            self.differ(f"{what}: {found:,} found, {published:,} published")


def case_table(
    ids: Sequence[str],
    labels: Any,
    classes: Sequence[str],
    *,
    votes: Any = None,
    n_raters: Any = None,
    group: Any = None,
    split: Any = None,
    **more: Any,
) -> pd.DataFrame:
    """Build the table of an image set: one row per case, the same columns and types everywhere.

    `labels` and `votes` may hold None or NaN where unknown. `votes` is (n,) votes for the second
    class with `n_raters`, or (n, C) counts per class; for C > 2 these become `votes_<class>` columns.

    Examples
    --------
    >>> table = case_table(["a", "b"], [0, None], ("HP", "SSA"), votes=[1, None], n_raters=7)
    >>> table[["id", "label", "label_name", "votes", "n_raters"]].values.tolist()
    [['a', 0, 'HP', 1, 7], ['b', <NA>, <NA>, <NA>, <NA>]]
    """
    import pandas as pd

    n = len(ids)

    def column(values: Any, dtype: str) -> Any:
        if values is None or np.ndim(values) == 0:
            values = [values] * n
        series = pd.Series(values, dtype="object")
        return pd.array(series.where(series.notna(), None).tolist(), dtype=dtype)  # type: ignore[call-overload]

    name = pd.Series(list(ids), dtype="object")
    twice = name.duplicated(keep=False).to_numpy()
    if twice.any():
        raise InputError(
            f"ids must be unique, got {name[twice].iloc[0]!r} at {rows(name.eq(name[twice].iloc[0]))} "
            f"({int(name[twice].nunique())} such ids). Give every image an id of its own."
        )
    label = pd.Series(column(labels, "Int64"))
    known = label.notna().to_numpy()
    text = np.full(n, None, dtype=object)
    text[known] = [classes[i] for i in label[known].to_numpy(dtype=np.int64)]
    frame: dict[str, Any] = {
        "id": column(list(ids), "string"),
        "label": label.array,
        "label_name": column(text, "string"),
    }
    if votes is not None and np.ndim(votes) == 2:
        counts = pd.DataFrame(votes)
        total = counts.sum(axis=1, skipna=False)
        if len(classes) == 2:
            frame |= {
                "votes": column(counts.iloc[:, 1], "Int64"),
                "n_raters": column(total, "Int64"),
            }
        else:
            frame |= {"votes": column(None, "Int64"), "n_raters": column(total, "Int64")}
            for i, class_name in enumerate(classes):
                frame[f"votes_{class_name}"] = column(counts.iloc[:, i], "Int64")
    else:
        count = pd.Series(column(votes, "Int64"))
        raters = pd.Series(column(n_raters, "Int64"))
        frame |= {"votes": count.array, "n_raters": raters.where(count.notna()).array}
    frame |= {"group": column(group, "string"), "split": column(split, "string")}
    frame |= more
    table = pd.DataFrame(frame)
    unknown = table["split"].notna() & ~table["split"].isin(SPLITS)
    if unknown.any():
        raise InputError(
            f"split must be one of {', '.join(SPLITS)} or empty, got "
            f"{table['split'][unknown].iloc[0]!r} at {rows(unknown)}"
        )
    return table


@dataclass(frozen=True, eq=False)
class ImageSet:
    """An opened data set: rows of `table` and rows of `source` are the same cases, in one order.

    Picklable; a copy in another process opens its own file handles.

    Attributes
    ----------
    about : Dataset
        Facts of the data set: licence, terms, credit, page.
    table : pandas.DataFrame
        `id`, `label`, `label_name`, `votes`, `n_raters`, `group`, `split`, then columns of the source
        (`path`, or `block` and `row`). Missing values are NA.
    classes : tuple of str
        Class names; the position is the label. Empty where nothing names them.
    source : FileSource, ZipSource, ArraySource or RemoteSource
        Where the pixels lie.
    warnings : tuple of str
        What the user should know about this copy.
    facts : mapping
        More to say in `describe`, by name.
    image_size : (width, height) or None
        Size every image must have, where the publisher says so.
    checks : tuple of functions
        Slow checks that `verify` runs; each returns problems, one line each.
    """

    about: Dataset
    table: pd.DataFrame
    classes: tuple[str, ...]
    source: Source
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    image_size: tuple[int, int] | None = None
    checks: tuple[Callable[[], list[str]], ...] = ()

    def __post_init__(self) -> None:
        if len(self.table) != len(self.source):
            raise InputError(
                f"{self.name}: {len(self.table)} cases but {len(self.source)} images in the source"
            )

    @property
    def name(self) -> str:
        """Name in `DATASETS`."""
        return self.about.name

    @property
    def kind(self) -> Literal["files", "array"]:
        """`files`: decode one by one, in parallel; `array`: read in blocks."""
        return self.source.kind

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        classes = ", ".join(self.classes) or "unknown"
        return f"<ImageSet {self.name}: {len(self):,} images, classes {classes}>"

    def read_one(self, row: int) -> UInt8:
        """Image of one row, (height, width, 3) uint8; `ImageError` where it cannot be read."""
        return self.source.read_one(row)

    def read_block(self, start: int, stop: int) -> UInt8:
        """Images of the rows start .. stop - 1 as one array; for sets of kind `array`."""
        if not isinstance(self.source, ArraySource):
            raise InputError(f"{self.name} holds image files, not arrays: use read_one or read")
        return self.source.read_block(start, stop)

    def read(self, which: slice | NDArray[np.int64]) -> list[UInt8] | UInt8:
        """Images of these rows: a list for files, one (n, height, width, 3) array for arrays."""
        index = np.arange(len(self))[which]
        if isinstance(self.source, ArraySource):
            return self.source.read(index)
        return [self.source.read_one(int(row)) for row in index]

    def take(self, which: slice | NDArray[Any]) -> ImageSet:
        """Return the image set of these rows (a slice, numbers or a mask), in this order."""
        index = np.arange(len(self))[which]
        table = self.table.iloc[index].reset_index(drop=True)
        return replace(self, table=table, source=self.source.take(index))

    def fingerprint(self) -> str:
        """Hash of the images and of what the table says about them, in their order.

        Depends on relative names, sizes and contents, never on times or on where the data lie; an
        archive and its unpacked files hash alike. Up to 1 GiB every byte is hashed (`sha256:...`);
        larger sets by names, sizes and both ends of every file (`sha256-ends:...`).
        """
        full = self._bytes() <= FULL_HASH_LIMIT
        digest = sha256()
        digest.update(json.dumps([self.name, list(self.classes)]).encode())
        own = [c for c in self.table.columns if c == "id" or c in _HASHED or c.startswith("votes_")]
        for column in own:
            values = self.table[column].astype("object")
            known = values.where(values.notna(), None).tolist()
            digest.update(json.dumps([column, known]).encode())
        for piece in self.source.pieces(full=full):
            digest.update(json.dumps(piece).encode())
        return f"{'sha256' if full else 'sha256-ends'}:{digest.hexdigest()}"

    def _bytes(self) -> int:
        try:
            return self.source.size()
        except OSError as error:
            raise InputError(f"cannot read {error.filename}: {error.strerror}") from None

    def verify(self, workers: int | None = None) -> tuple[str, ...]:
        """Read every image and run the slow checks; return one line per problem, none if all is well.

        `workers` threads decode at a time; by default one per core, eight at most.
        """
        problems = [line for check in self.checks for line in check()]
        if isinstance(self.source, ArraySource):
            for start in range(0, len(self), 4096):
                try:
                    self.read_block(start, start + 4096)
                except ImageError as error:
                    problems.append(str(error))
            return tuple(problems)
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1)) as pool:
            found = pool.map(self._problem, range(len(self)))
            return (*problems, *(line for line in found if line))

    def _problem(self, row: int) -> str:
        try:
            height, width, _ = self.read_one(row).shape
        except ImageError as error:
            return str(error)
        if self.image_size is not None and (width, height) != self.image_size:
            wide, high = self.image_size
            return f"{self.table['id'][row]}: {width} x {height} pixels, {wide} x {high} published"
        return ""

    def describe(self) -> dict[str, Any]:
        """Facts about this copy, ready for JSON: counts, splits, votes, groups, licence, warnings."""
        table = self.table
        label = table["label"].dropna().to_numpy(dtype=np.int64)
        facts: dict[str, Any] = {
            "name": self.name,
            "title": self.about.title,
            "images": len(self),
            "published": self.about.n,
            "bytes": self._bytes(),
            "kind": self.kind,
            "classes": {c: int((label == i).sum()) for i, c in enumerate(self.classes)},
            "unlabelled": len(table) - len(label),
            "splits": {
                s: int(table["split"].eq(s).sum()) for s in SPLITS if table["split"].eq(s).any()
            },
            "groups": int(table["group"].nunique()),
        }
        facts |= _describe_votes(table, self.classes)
        facts |= dict(self.facts)
        for key in ("licence", "terms", "page", "credit"):
            facts[key] = getattr(self.about, key)
        facts["warnings"] = list(self.warnings)
        return facts


_HASHED = frozenset({"label", "votes", "n_raters", "group", "split"})


def _describe_votes(table: pd.DataFrame, classes: tuple[str, ...]) -> dict[str, Any]:
    """Readers per case, agreement and difficulty strata, overall and per split."""
    read = table["n_raters"].notna().to_numpy()
    if not read.any():
        return {"votes": None}
    voted = table[read]
    if len(classes) == 2:
        m = voted["n_raters"].to_numpy(dtype=np.int64)
        positive = voted["votes"].to_numpy(dtype=np.int64)
        counts = np.column_stack([m - positive, positive])
    else:
        counts = voted[[f"votes_{c}" for c in classes]].to_numpy(dtype=np.int64)
        m = counts.sum(axis=1)
    stratum = strata(counts)

    def tally(where: NDArray[np.bool_]) -> dict[str, int]:
        return {s: int((stratum[where] == s).sum()) for s in ("high", "medium", "low")}

    split = voted["split"].to_numpy(dtype=object, na_value="")
    return {
        "votes": {
            "cases": int(read.sum()),
            "readers": sorted({int(k) for k in m}),
            "tied": int(majority(counts, ties="drop").tied.sum()),
            "strata": tally(np.ones(len(m), dtype=bool)),
            "strata_by_split": {s: tally(split == s) for s in SPLITS if (split == s).any()},
        }
    }
