"""What every image data set is once opened: its cases, a source of pixels, and its facts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from scalecal.cases import Cases, Factor
from scalecal.checks import InputError, Int
from scalecal.datasets.image_sources import (
    FULL_HASH_LIMIT,
    ArraySource,
    FileSource,
    ImageError,
    RemoteSource,
    ZipSource,
)
from scalecal.io.input_columns import as_ids, check_ids
from scalecal.splits import PARTS
from scalecal.votes import STRATA, majority

if TYPE_CHECKING:
    import pandas as pd

UNLABELLED = "there are no labels: a probe can predict these images, but none can be fitted to them"

UInt8 = NDArray[np.uint8]
ImageSource = FileSource | ZipSource | ArraySource | RemoteSource


@dataclass(frozen=True)
class Dataset:
    """Facts about a data set that do not depend on the user's copy of it, and how to open one.

    `form` is how a user writes it; `n` the published number of images, None if the user brings
    the images; `load` takes the data folder and the options in its signature.
    """

    name: str
    form: str
    title: str
    load: Callable[..., ImageSet]
    licence: str = "yours"
    terms: str = "As your own data require."
    page: str = ""
    credit: str = ""
    n: int | None = None
    paper: bool = False


@dataclass
class Findings:
    """Problems of a copy of a data set: errors, unless the user said it is partial."""

    where: str
    partial: bool
    advice: str
    warnings: list[str] = field(default_factory=list)

    def differ(self, message: str) -> None:
        """Record a difference from what was published, or stop there."""
        if not self.partial:
            raise InputError(
                f"{self.where}: {message}. {self.advice} "
                "If this is a part of the data set on purpose, pass partial=True (--partial)."
            )
        self.warnings.append(message)

    def count(self, what: str, here: int, published: int) -> None:
        """Compare a count with the published one."""
        if here != published:
            self.differ(f"{what}: {here:,} found, {published:,} published")


def image_ids(names: Sequence[str]) -> Any:
    """Return ids as text in Arrow memory, after a check that no two are equal."""
    ids = as_ids(np.asarray(names, dtype=object))
    check_ids(ids, "the ids")
    return ids


def case_frame(cases: Cases, extra: Mapping[str, NDArray[Any]] | None = None) -> pd.DataFrame:
    """Return the table of a feature folder: one row per case, the same columns and types everywhere.

    Votes for two classes are `votes` (for the second) of `n_raters`, for more a column
    `votes_<class>` each. Missing values are NA.

    Examples
    --------
    >>> cases = Cases(n=2, classes=("HP", "SSA"), ids=image_ids(["a", "b"]), y=np.array([0, -1]),
    ...               votes=np.array([[6, 1], [0, 0]]))
    >>> case_frame(cases)[["id", "label", "label_name", "votes", "n_raters"]].values.tolist()
    [['a', 0, 'HP', 1, 7], ['b', <NA>, <NA>, <NA>, <NA>]]
    """
    import pandas as pd

    def numbers(values: Int | None, known: NDArray[np.bool_] | None) -> Any:
        if values is None or known is None:
            return pd.array([None] * cases.n, dtype="Int64")
        return pd.arrays.IntegerArray(np.where(known, values, 1).astype(np.int64), ~known)

    def names(factor: Factor | None) -> Any:
        if factor is None:
            return pd.array([None] * cases.n, dtype="string")
        return pd.array(np.array([*factor.names, None], dtype=object)[factor.codes], dtype="string")

    y, readers, votes = cases.y, cases.readers, cases.votes
    voted = None if readers is None else readers > 0
    binary = votes is not None and votes.shape[1] == 2
    columns: dict[str, Any] = {
        "id": pd.array(np.asarray(cases.ids, dtype=object), dtype="string"),
        "label": numbers(y, None if y is None else y >= 0),
        "label_name": names(None if y is None else Factor(y, cases.classes)),
        "votes": numbers(votes[:, 1] if votes is not None and binary else None, voted),
        "n_raters": numbers(readers, voted),
    }
    if votes is not None and not binary:
        for c, name in enumerate(cases.classes):
            columns[f"votes_{name}"] = numbers(votes[:, c], voted)
    columns |= {"group": names(cases.groups), "split": names(cases.split), **(extra or {})}
    if cases.paths is not None:
        columns.setdefault("path", cases.paths)
    return pd.DataFrame(columns)


@dataclass(frozen=True, eq=False)
class ImageSet:
    """An opened data set: rows of `cases` and rows of `source` are the same, in one order.

    Picklable; a copy in another process opens its own file handles.

    Attributes
    ----------
    about : Dataset
        Facts of the data set: licence, terms, credit, page.
    cases : Cases
        Ids, labels, votes, groups, split and paths; its notes are what the user should know about
        this copy. Its classes are empty where nothing names them.
    source : FileSource, ZipSource, ArraySource or RemoteSource
        Where the pixels lie.
    extra : mapping of str to ndarray
        Further columns of the source, one row per case: `block` and `row`, `magnification`.
    facts : mapping
        More to say in `describe`, by name.
    image_size : (width, height) or None
        Size every image must have, if the publisher says so.
    """

    about: Dataset
    cases: Cases
    source: ImageSource
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    image_size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if len(self.cases) != len(self.source):
            raise InputError(
                f"{self.name}: {len(self.cases)} cases but {len(self.source)} images in the source"
            )

    @property
    def name(self) -> str:
        """Name in `DATASETS`."""
        return self.about.name

    @property
    def kind(self) -> Literal["files", "array"]:
        """`files`: decode one by one, in parallel; `array`: read in blocks."""
        return self.source.kind

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; the position is the label."""
        return self.cases.classes

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know about this copy."""
        return self.cases.notes

    @cached_property
    def table(self) -> pd.DataFrame:
        """The cases and further columns as a feature folder keeps them; see `case_frame`."""
        return case_frame(self.cases, self.extra)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "table"}

    def __len__(self) -> int:
        return len(self.cases)

    def __repr__(self) -> str:
        classes = ", ".join(self.classes) or "unknown"
        return f"<ImageSet {self.name}: {len(self):,} images, classes {classes}>"

    def read_one(self, row: int) -> UInt8:
        """Image of one row, (height, width, 3) uint8; `ImageError` where it cannot be read."""
        return self.source.read_one(row)

    def read_block(self, start: int, stop: int) -> UInt8:
        """Images of the rows start .. stop - 1 as one array; for sets of kind `array`."""
        if not isinstance(self.source, ArraySource):
            raise InputError(f"{self.name} holds image files, not arrays: use read_one")
        return self.source.read_block(start, stop)

    def take(self, which: slice | NDArray[Any]) -> ImageSet:
        """Return the image set of these rows (a slice, numbers or a mask), in this order."""
        index = np.arange(len(self))[which]
        extra = {name: values[index] for name, values in self.extra.items()}
        cases, source = self.cases.take(index), self.source.take(index)
        return replace(self, cases=cases, source=source, extra=extra)

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
        if isinstance(self.source, ArraySource):
            problems = []
            for start in range(0, len(self), 4096):
                try:
                    self.read_block(start, start + 4096)
                except ImageError as error:
                    problems.append(str(error))
            return tuple(problems)
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1)) as pool:
            lines = pool.map(self._problem, range(len(self)))
            return tuple(line for line in lines if line)

    def _problem(self, row: int) -> str:
        try:
            height, width, _ = self.read_one(row).shape
        except ImageError as error:
            return str(error)
        if self.image_size is not None and (width, height) != self.image_size:
            wide, high = self.image_size
            return f"{self.cases.ids[row]}: {width} x {height} pixels, {wide} x {high} published"
        return ""

    def describe(self) -> dict[str, Any]:
        """Facts about this copy, ready for JSON: counts, splits, votes, groups, licence, warnings."""
        cases = self.cases
        y = np.full(cases.n, -1) if cases.y is None else cases.y
        facts: dict[str, Any] = {
            "name": self.name,
            "title": self.about.title,
            "images": len(self),
            "published": self.about.n,
            "bytes": self._bytes(),
            "kind": self.kind,
            "classes": {name: int((y == c).sum()) for c, name in enumerate(self.classes)},
            "unlabelled": int((y < 0).sum()),
            "splits": {part: len(rows) for part, rows in _parts(cases).items()},
            "groups": 0 if cases.groups is None else len(set(cases.groups.codes) - {-1}),
        }
        facts |= {"votes": _describe_votes(cases), **self.facts}
        for key in ("licence", "terms", "page", "credit"):
            facts[key] = getattr(self.about, key)
        facts["warnings"] = list(self.warnings)
        return facts


_HASHED = frozenset({"label", "votes", "n_raters", "group", "split"})


def _parts(cases: Cases) -> dict[str, NDArray[np.intp]]:
    """Rows of the cases of each split that has any."""
    marks = np.full(cases.n, "") if cases.split is None else cases.split.values
    parts = {part: np.flatnonzero(marks == part) for part in PARTS}
    return {part: rows for part, rows in parts.items() if len(rows)}


def _describe_votes(cases: Cases) -> dict[str, Any] | None:
    """Readers per case, agreement and difficulty strata, overall and per split."""
    if cases.votes is None or not cases.votes.any():
        return None
    voted = cases.take(cases.votes.sum(axis=1) > 0).stratified()
    assert voted.votes is not None
    assert voted.strata is not None
    stratum = voted.strata.values

    def tally(rows: slice | NDArray[np.intp]) -> dict[str, int]:
        return {s: int((stratum[rows] == s).sum()) for s in STRATA}

    return {
        "cases": len(voted),
        "readers": sorted({int(m) for m in voted.votes.sum(axis=1)}),
        "tied": int(majority(voted.votes, ties="drop").tied.sum()),
        "strata": tally(slice(None)),
        "strata_by_split": {part: tally(rows) for part, rows in _parts(voted).items()},
    }
