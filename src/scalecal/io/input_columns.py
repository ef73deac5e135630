"""The columns that an input file may have, one record each, and the table of one file by their roles.

`INPUT_COLUMNS` is the only list of them: readers, messages, `--columns` and the reference pages ask it.
`NamedColumns` looks columns up by name, with hints at misspellings, and turns them into arrays and factors.
"""

from __future__ import annotations

import difflib
import reprlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scalecal.cases import Factor
from scalecal.checks import (
    MAX_RHO,
    Float,
    InputError,
    Int,
    LazyModule,
    Lines,
    check_probs,
    in_file,
    lookup,
    refuse,
    rows,
)
from scalecal.io.boundary import failure
from scalecal.io.tables import (
    FIRST_ROW,
    as_name,
    column_names,
    iterate_arrow,
    line_numbers,
    read_arrow,
    read_table,
    table_kind,
)
from scalecal.limits import VARIABLE, check_limit

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = LazyModule("pandas")
pa: Any = LazyModule("pyarrow")
pc: Any = LazyModule("pyarrow.compute")

User = Literal["predictions", "stream", "votes", "features", "images"]
Kind = Literal["id", "names", "numbers", "lists"]


@dataclass(frozen=True, kw_only=True)
class InputColumn:
    """One column of the files that scalecal reads.

    Attributes
    ----------
    role
        What it is called in `columns=`, in `--columns` and, by default, in a file.
    holds
        Its content, in a few words.
    used_by
        The readers that use it: predictions (and, of these, a stream), votes, features, lists of images.
    kind
        How it is read: ids and names are text, each distinct name is held once.
    name
        Its name in a file, if that is not the role.
    aliases
        Names under which other files hold it: suggested in messages, never used unasked.
    per_class
        Whether several columns `<name>_<class>` may stand in its place.
    field
        The field of the record of cases or answers that takes it as it is; "" if a reader combines it
        with other columns.
    limit
        The limit on its number of distinct names (`scalecal.limits`).
    check
        Returns its numbers, or fails naming the column.
    not_streamed
        The note on a stream, which leaves it out.
    """

    role: str
    holds: str
    used_by: tuple[User, ...]
    kind: Kind = "names"
    name: str = ""
    aliases: tuple[str, ...] = ()
    per_class: bool = False
    field: str = ""
    limit: str = ""
    check: Callable[[Float, str], Float] | None = None
    not_streamed: str = ""


def _check_rho(values: Float, name: str) -> Float:
    inside = (values >= 0.0) & (values <= MAX_RHO)
    refuse(~inside, f"{name} must lie in [0, {MAX_RHO}]", values)
    return values


INPUT_COLUMNS: dict[str, InputColumn] = {
    column.role: column
    for column in (
        InputColumn(
            role="id",
            holds="the name of the case, by which files are joined",
            used_by=("predictions", "votes", "features", "images"),
            kind="id",
            aliases=("case", "case_id", "image_id", "image", "file", "filename", "name"),
            not_streamed="The ids in the file are not used: a case that is there twice counts twice.",
        ),
        InputColumn(
            role="p",
            holds="the predicted probability of the positive class, or of each class",
            used_by=("predictions", "stream"),
            kind="numbers",
            aliases=(
                "prob",
                "probability",
                "proba",
                "score",
                "y_prob",
                "y_score",
                "y_pred",
                "prediction",
            ),
            per_class=True,
            check=check_probs,
        ),
        InputColumn(
            role="p_reader",
            holds="the predicted probability that one reader votes for the class",
            used_by=("predictions", "stream"),
            kind="numbers",
            per_class=True,
            check=check_probs,
        ),
        InputColumn(
            role="rho",
            holds="the correlation of two readers' votes on a case, one number for all cases",
            used_by=("predictions", "stream"),
            kind="numbers",
            check=_check_rho,
        ),
        InputColumn(
            role="label",
            holds="the class; in a file of votes, the class that a reader chose",
            used_by=("predictions", "stream", "votes", "features", "images"),
            aliases=("y", "target", "class", "y_true", "truth", "ground_truth", "diagnosis"),
            limit="classes",
        ),
        InputColumn(
            role="votes",
            holds="the number of readers who chose the positive class, or each class",
            used_by=("predictions", "stream", "votes", "features", "images"),
            kind="numbers",
            aliases=("positive_votes", "votes_positive", "n_positive", "n_votes"),
            per_class=True,
        ),
        InputColumn(
            role="n_raters",
            holds="the number of readers who voted, or who are behind the label",
            used_by=("predictions", "stream", "votes", "features", "images"),
            kind="numbers",
            aliases=("n_readers", "readers", "raters", "n_annotators", "panel_size"),
        ),
        InputColumn(
            role="rater",
            holds="the reader, in a file of votes with one row per vote",
            used_by=("votes",),
            aliases=("reader", "annotator", "observer", "grader", "pathologist", "radiologist"),
            limit="readers",
        ),
        InputColumn(
            role="stratum",
            holds="the difficulty stratum",
            used_by=("predictions", "stream"),
            aliases=("strata", "difficulty"),
            field="strata",
        ),
        InputColumn(
            role="p_split",
            holds="the predicted difficulty: the probability that the readers split",
            used_by=("predictions",),
            kind="numbers",
            field="p_split",
            check=check_probs,
            not_streamed="The column p_split is not used: in a stream difficulty follows from the model's "
            "probability.",
        ),
        InputColumn(
            role="group",
            holds="the patient, slide, ... that several cases may share",
            used_by=("predictions", "features", "images"),
            aliases=("patient", "patient_id", "subject", "subject_id", "slide", "slide_id"),
            field="groups",
            not_streamed="The groups in the file are not used: a stream takes cases as independent, so "
            "its tests and intervals are too optimistic if several come from one patient. "
            "Audit without streaming to respect groups.",
        ),
        InputColumn(
            role="split",
            holds="train, val or test",
            used_by=("predictions", "features", "images"),
            aliases=("fold", "partition", "subset", "set"),
            field="split",
            not_streamed="The split in the file is not used: cases marked train, if any, are audited too.",
        ),
        InputColumn(
            role="X",
            holds="the embeddings: `f0, f1, ...`, in Parquet also one column of lists",
            used_by=("features",),
            kind="lists",
            name="f",
            aliases=("embedding", "embeddings", "features", "feature"),
        ),
        InputColumn(
            role="path",
            holds="the image file",
            used_by=("images",),
            kind="id",
        ),
    )
}


def roles_of(user: User) -> tuple[str, ...]:
    """Return the roles of the columns that a reader uses.

    Examples
    --------
    >>> roles_of("votes")
    ('id', 'label', 'votes', 'n_raters', 'rater')
    """
    return tuple(role for role, column in INPUT_COLUMNS.items() if user in column.used_by)


def fields_of(kind: Kind) -> list[InputColumn]:
    """Return the columns of a kind that are fields of a record as they are, such as groups.

    Those of names are fields of `Cases`.
    """
    return [column for column in INPUT_COLUMNS.values() if column.field and column.kind == kind]


def usual_names() -> dict[str, str]:
    """Return the name of every role's column if the user gives no other."""
    return {role: column.name or role for role, column in INPUT_COLUMNS.items()}


def plays(role: str, name: str, column: str) -> bool:
    """Whether a column is that of a role called `name`, or one of several in its place.

    Examples
    --------
    >>> plays("p", "p", "p_SSA"), plays("p", "p", "p_reader"), plays("X", "f", "f12")
    (True, False, True)
    """
    if column == name:
        return True
    if role == "X":
        return column.startswith(name) and column[len(name) :].isdigit()
    record = INPUT_COLUMNS.get(role)
    if record is None or not record.per_class or not column.startswith(f"{name}_"):
        return False
    # A reader's probability is not that of a class called "reader"; `p_votes_<k>`, as `scalecal predict`
    # writes them, are of a panel's votes.
    whole = role + column.removeprefix(name)
    for other in (*INPUT_COLUMNS, "p_votes"):
        if other.startswith(f"{role}_") and f"{whole}_".startswith(f"{other}_"):
            return False
    return len(whole) > len(role) + 1


def as_option(role: str, column: str) -> str:
    """How a column is named as a role's, on the command line and in Python.

    Examples
    --------
    >>> as_option("group", "patient id")
    "--columns group='patient id' (in Python columns={'group': 'patient id'})"
    """
    return f"{column_option(role, column)} (in Python columns={{{role!r}: {column!r}}})"


def column_option(role: str, column: str) -> str:
    """How a column is named as a role's in a shell, as `parse_columns` reads it.

    Examples
    --------
    >>> print(column_option("group", "patient id"), column_option("p", "a, b"))
    --columns group='patient id' --columns p='"a, b"'
    """
    name = column
    if any(sign in name for sign in ',"\\'):
        escaped = name.replace("\\", "\\\\").replace('"', '\\"')
        name = f'"{escaped}"'
    return f"--columns {role}={shlex.quote(name)}"


def replaced_role(option: str) -> str | None:
    """Role whose column 0.2.0 named by this option, ``--ROLE-column``; None for any other option.

    Examples
    --------
    >>> replaced_role("--p-reader-column"), replaced_role("--columns")
    ('p_reader', None)
    """
    role = option.removeprefix("--").removesuffix("-column").replace("-", "_")
    if role in INPUT_COLUMNS and option == f"--{role.replace('_', '-')}-column":
        return role
    return None


def present_spelling(command: Sequence[str]) -> str:
    """Write a command that 0.2.0 or this version ran as a shell takes it today.

    Examples
    --------
    >>> present_spelling(["scalecal", "audit", "p.csv", "--label-column", "true class", "--limit=bins=1e6"])
    "SCALECAL_LIMITS=bins=1e6 scalecal audit p.csv --columns label='true class'"
    """
    parts, limits = [], []
    words = iter(command)
    for word in words:
        option, equals, value = word.partition("=")
        role = replaced_role(option)
        if role is None and option != "--limit":
            parts.append(shlex.quote(word))
            continue
        if not equals:
            value = next(words, "")
        if role is not None:
            parts.append(column_option(role, value))
        else:
            limits.append(value)
    if limits:
        parts.insert(0, f"{VARIABLE}={shlex.quote(','.join(limits))}")
    return " ".join(parts)


def could_be(role: str, header: Iterable[str]) -> str | None:
    """Return the column that goes by another common name of a role, or by its plural; None without one.

    Examples
    --------
    >>> could_be("group", ["id", "Patient"]), could_be("label", ["labels"]), could_be("p", ["id"])
    ('Patient', 'labels', None)
    """
    lower = {column.lower(): column for column in header}
    for name in (*INPUT_COLUMNS[role].aliases, f"{role}s"):
        if name in lower:
            return lower[name]
    return None


def named_roles() -> list[str]:
    """Return the roles whose columns can be named: lists of images have fixed names."""
    return [role for role, column in INPUT_COLUMNS.items() if column.used_by != ("images",)]


def parse_columns(texts: Sequence[str]) -> dict[str, str]:
    """Return the columns that `--columns` names, as `columns=` takes them: role -> name.

    Parameters
    ----------
    texts
        The option's values, each `role=name` or several of these with commas between them. A name that
        has a comma is written in double quotes; a quote or a backslash in a name follows a backslash.

    Examples
    --------
    >>> parse_columns(["label=diagnosis,group=patient", 'p="score, final"'])
    {'label': 'diagnosis', 'group': 'patient', 'p': 'score, final'}
    >>> parse_columns(["label=a", "label=b"])
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: --columns names two columns as label: 'a' and 'b'. Give one
    """
    roles = dict.fromkeys(named_roles())
    named: dict[str, str] = {}
    for text in texts:
        for item in _items(text):
            role, _, name = (part.strip() for part in item.partition("="))
            if not role or not name:
                raise _no_columns(text)
            lookup(role, roles, "column role")
            if role in named:
                raise InputError(
                    f"--columns names two columns as {role}: {named[role]!r} and {name!r}. Give one"
                )
            named[role] = name
    return named


def _items(text: str) -> list[str]:
    """Split one value of `--columns` at the commas that are not in double quotes."""
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace = ","
    lexer.whitespace_split = True
    lexer.quotes = '"'
    lexer.commenters = ""
    try:
        return list(lexer) or [""]
    except ValueError:  # a quote that does not end
        raise _no_columns(text) from None


def _no_columns(text: str) -> InputError:
    return InputError(
        f"--columns must be role=name, as in label=diagnosis,group=patient, got {text!r}. Put a name that "
        "has a comma into double quotes, and all in single ones: 'label=\"a, b\"'"
    )


def some(values: Any, most: int = 3) -> str:
    """Name the first few of some values.

    Examples
    --------
    >>> some(["a", "b", "c", "d"])
    "'a', 'b', 'c', ..."
    """
    listed = list(values[: most + 1])
    shown = ", ".join(repr(str(value)) for value in listed[:most])
    return shown + (", ..." if len(listed) > most else "")


def read_filled(
    path: str | Path, columns: Sequence[str], *, text: Sequence[str] = ()
) -> pd.DataFrame:
    """Read a table in which some columns must be there and filled; they, and those in `text`, stay text."""
    table = read_table(path, text=(*columns, *text))
    header = list(table)
    missing = [name for name in columns if name not in header]
    if missing:
        raise InputError(
            f"{path} has no column {some(missing, 5)}; its columns are "
            f"{some(header, 12) or 'without names'}"
        )
    for name in columns:
        with in_file(str(path)):
            refuse(table[name].isna(), f"column {name!r} is empty")
    return table


@dataclass(frozen=True)
class NamedColumns:
    """A table and the names its columns go by, for one file.

    Attributes
    ----------
    table
        The `pyarrow.Table`. Columns are called by their role here, whatever the file calls them; those
        by class are `<role>_<class>`, those of embeddings `X<number>`.
    file
        Name of the file, for messages.
    header
        Every column of the file, also those that were not read.
    names
        Column (or prefix of columns) of each role, in full, as the file has them.
    word, first
        What messages call a row, and the number of the first: lines of a text file and rows of a sheet,
        whose header is number 1; lines of JSON Lines; zero-based rows of anything else.
    lines
        Turns these numbers into those of the file's lines; None if they are the same.
    sources
        The file of each role that was joined from another one (`join`).
    """

    table: Any
    file: str
    header: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=usual_names)
    word: str = "row"
    first: int = 0
    lines: Lines | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def messages(self) -> AbstractContextManager[None]:
        """Begin messages raised inside with the file, and count rows as the file's."""
        return in_file(self.file, self.word, self.first, self.lines)

    def has(self, role: str) -> bool:
        """Whether the role has a column of its own."""
        return role in self.table.column_names

    def spread(self, role: str) -> dict[str, str]:
        """Columns `<name>_<class>` of a role: class -> name in the file, in the order of the file."""
        return {
            column.removeprefix(f"{role}_"): column.replace(role, self.names[role], 1)
            for column in self.table.column_names
            if column != role and plays(role, role, column)
        }

    def need(self, role: str, use: str) -> None:
        """Fail, with the nearest name, unless the role has a column of its own."""
        if not self.has(role):
            raise self.missing(self.names[role], use)

    def missing(self, name: str, use: str, *, role: str | None = None) -> InputError:
        """Say that a column is missing, which there are, and which may be meant.

        With `role`, also how to name another column. To be raised within `messages`.
        """
        columns = list(self.header)
        lower = {column.lower(): column for column in reversed(columns)}
        meant = None
        for usual, other in usual_names().items():
            if name in (usual, other, f"{other}0"):
                meant = could_be(usual, columns)
                break
        if meant is None:
            near = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
            near += [column for column in lower if column.startswith(name.lower())]
            meant = next((lower[column] for column in near), None)
        advice = ""
        if meant is not None:
            advice = f" Did you mean {meant!r}?"
        if columns and all(_is_number(column) for column in columns):
            advice += " The first line must be a header with the columns' names."
        elif role is not None:
            advice += f" Name it with {as_option(role, meant or 'NAME')}."
        more = ""
        if len(columns) > 20:
            more = f", ... ({len(columns)} in all)"
        return InputError(
            f"no column {name!r} ({use}). Columns found: {', '.join(columns[:20])}{more}.{advice}"
        )

    def numbers(self, role: str, suffix: str = "") -> Float:
        """Return a column as float64; missing values are NaN, anything else must be a number.

        The suffix is that of one of several columns: a class after "_", the number of a feature.
        """
        name = self.names[role] + suffix
        values = _plain(self.table.column(role + suffix), f"column {name!r}", "numbers")
        if _is_text(values.type):
            series = values.to_pandas()
            numbers: Float = pd.to_numeric(series, errors="coerce").to_numpy(
                np.float64, na_value=np.nan
            )
            bad = np.isnan(numbers) & series.notna().to_numpy()
            if bad.any():
                first = series.iloc[int(np.flatnonzero(bad)[0])]
                raise InputError(
                    f"column {name!r} must hold numbers, got {reprlib.repr(first)} at {rows(bad)}"
                )
            return numbers
        try:
            return np.asarray(values.cast(pa.float64()).to_numpy(), dtype=np.float64)
        except pa.ArrowNotImplementedError:
            raise InputError(f"column {name!r} must hold numbers, got {values.type}") from None
        except pa.ArrowInvalid:
            large = [v is not None and abs(v) > 2**53 for v in values.to_pylist()]
            raise InputError(
                f"column {name!r} must hold numbers up to 2^53, which are computed with exactly, got "
                f"{values.type} beyond at {rows(large)}"
            ) from None

    def checked(self, role: str) -> Float:
        """Return a column of numbers that its record in `INPUT_COLUMNS` accepts."""
        values = self.numbers(role)
        check = INPUT_COLUMNS[role].check
        if check is not None:
            values = check(values, f"column {self.names[role]!r}")
        return values

    def factor(self, role: str, suffix: str = "") -> Factor | None:
        """Return a column of names, sorted; None if there is no such column.

        The suffix is as in `numbers`. Whole numbers are written without a point and booleans as 0 and
        1, so that the same class is the same text in every file.
        """
        if not self.has(role + suffix):
            return None
        column = self.names[role] + suffix
        values = self.table.column(role + suffix).unify_dictionaries().combine_chunks()
        if not (pa.types.is_dictionary(values.type) and _is_text(values.type.value_type)):
            values = _plain(values, f"column {column!r}")
            if pa.types.is_temporal(values.type):
                values = _as_text(values, f"column {column!r}")
            if pa.types.is_float16(values.type):  # which not every pyarrow encodes
                values = values.cast(pa.float32())
            values = values.dictionary_encode()
        written = [as_name(value) for value in values.dictionary.to_pylist()]
        if role == "label":
            written = _as_classes(written)
        names = sorted({name for name in written if name}, key=_natural)
        longest = max(map(len, names), default=0)
        check_limit(longest, "characters", f"column {column!r}: the length of a name")
        if any(name.endswith("\0") for name in names):  # numpy would drop the byte
            raise InputError(f"column {column!r} must hold names, got one that ends in a zero byte")
        what = ""
        if role in INPUT_COLUMNS:
            what = INPUT_COLUMNS[role].limit
        if what:
            check_limit(len(names), what, f"column {column!r}: the number of {what}")
        place = {name: code for code, name in enumerate(names)}
        codes = np.array([place.get(name, -1) for name in written] + [-1], dtype=np.int64)
        index = values.indices.fill_null(len(written)).to_numpy(zero_copy_only=False)
        return Factor(codes[index], tuple(names))

    def check_full(self, role: str, factor: Factor, use: str) -> None:
        """Fail where a column of names is empty."""
        refuse(factor.codes < 0, f"column {self.names[role]!r} is empty", advice=f"{use}.")

    def ids(self) -> pd.api.extensions.ExtensionArray | None:
        """Return the ids as text in Arrow memory, none missing, none twice; None without any."""
        if not self.has("id"):
            return None
        name = f"column {self.names['id']!r}"
        ids = as_ids(self.table.column("id"), name)
        check_ids(ids, name)
        return ids


def check_headers(
    columns: Mapping[str, str] | None,
    roles: tuple[str, ...],
    headers: Mapping[str, Iterable[str]],
    by: Sequence[str] = (),
) -> None:
    """Fail unless each column that the caller named is in one of these headers, by file.

    Falling back on the usual name in silence would hide a misspelling.
    """
    known = tuple(column for header in headers.values() for column in header)
    found = NamedColumns(None, " and ".join(headers), known)
    for role, name in (columns or {}).items():
        lookup(role, dict.fromkeys(roles), "column role")
        if not any(plays(role, name, column) for column in known):
            with found.messages():
                raise found.missing(name, f"named as the {role} column")
    for name in by:
        if name not in known:
            with found.messages():
                raise found.missing(name, "whose levels were to be audited, by --by")


LEVELS_OF = "levels of "
"""What stands before a column's name where its levels are audited, as if it were a role of its own."""


def open_columns(
    path: str | Path,
    columns: Mapping[str, str] | None,
    roles: tuple[str, ...],
    by: Sequence[str] = (),
) -> NamedColumns:
    """Read those columns of a table file that play one of `roles`, and those named in `by`.

    `columns` maps a role to the name of its column; a role that is not there, or whose column is not
    in this file, goes by its usual name (see `scalecal.io.input_columns`).
    """
    empty, wanted = _name_columns(path, columns, roles)
    levels = {f"{LEVELS_OF}{name}": name for name in by if name in empty.header}
    empty, wanted = replace(empty, names={**empty.names, **levels}), {**wanted, **levels}
    keep = frozenset(wanted.values()).__contains__
    text, factors = _of_kind("id", wanted), _of_kind("names", wanted)
    # A column may be read as what it is for another role too: levels are made of that.
    kept = _of_kind("numbers", wanted) | text
    factors |= set(levels.values()) - kept
    table = read_arrow(path, text=text, factors=factors, keep=keep)
    return replace(empty, table=_by_role(table, wanted))


def iterate_columns(
    path: str | Path, columns: Mapping[str, str] | None, roles: tuple[str, ...]
) -> Iterator[NamedColumns]:
    """Yield what `open_columns` returns in pieces: for rows that do not fit into memory together."""
    piece, wanted = _name_columns(path, columns, roles)
    keep = frozenset(wanted.values()).__contains__
    for table in iterate_arrow(path, keep=keep, numbers=_of_kind("numbers", wanted)):
        if table.num_rows:
            piece = replace(piece, table=_by_role(table, wanted))
            yield piece
            piece = replace(piece, first=piece.first + table.num_rows)


def _of_kind(kind: Kind, wanted: Mapping[str, str]) -> set[str]:
    """Return the columns of a file that play a role of a kind."""
    found: set[str] = set()
    for role, column in INPUT_COLUMNS.items():
        if column.kind == kind:
            found.update(header for own, header in wanted.items() if plays(role, role, own))
    return found


def name_columns(
    header: Iterable[str], columns: Mapping[str, str] | None, roles: Iterable[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the name of every role in a header, and the columns of `roles`: by role -> by name."""
    names = usual_names()
    for role, name in (columns or {}).items():
        if any(plays(role, name, column) for column in header):
            names[role] = name
    wanted = {}
    for role in roles:
        for column in header:
            if plays(role, names[role], column):
                wanted[role + column.removeprefix(names[role])] = column
    return names, wanted


def _name_columns(
    path: str | Path, columns: Mapping[str, str] | None, roles: tuple[str, ...]
) -> tuple[NamedColumns, dict[str, str]]:
    """Return a file's columns without their table, and those of `roles`: by role -> in the file."""
    path = Path(path)
    header = column_names(path)
    names, wanted = name_columns(header, columns, roles)
    word, first = FIRST_ROW[table_kind(path)]
    lines = partial(line_numbers, path) if word == "line" else None
    empty = NamedColumns(None, path.name, header, names, word, first, lines)
    with empty.messages():
        if not wanted:
            # The id may be missing, the probability, the embeddings and the images may not.
            role = next(role for role in ("p", "X", "path", roles[0]) if role in roles)
            raise empty.missing(names[role], INPUT_COLUMNS[role].holds, role=role)
        _check_distinct(wanted)
    return empty, wanted


APART = ("p", "label", "votes", "n_raters")
"""Roles that one column cannot play together: a prediction is no answer, a count of votes no panel's size."""


def _check_distinct(wanted: Mapping[str, str]) -> None:
    """Fail where one column plays two roles that exclude each other."""
    role_of: dict[str, str] = {}
    for role in APART:
        column = wanted.get(role)
        if column is None:
            continue
        if column in role_of:
            raise InputError(
                f"column {column!r} cannot be both {role_of[column]} and {role}: name another column as one "
                "of them, or leave that role out"
            )
        role_of[column] = role


def _by_role(table: Any, wanted: Mapping[str, str]) -> Any:
    return table.select(list(wanted.values())).rename_columns(list(wanted))


def match_ids(ids: Any, others: Any) -> Int:
    """Return, for each id, its row among the others; -1 where it is not among them."""
    found = pc.index_in(pa.array(ids), value_set=pa.array(others))
    return np.asarray(found.fill_null(-1).to_numpy(), dtype=np.int64)


def join(
    table: NamedColumns, other: NamedColumns, *, by: str = "id", every: bool = False
) -> tuple[NamedColumns, tuple[str, ...]]:
    """Add the columns of a second table by its ids; they take the place of columns of the same role.

    Parameters
    ----------
    table, other
        The tables. A row of the first without a partner has no values in the added columns.
    by
        The column of the first that holds the ids of the second.
    every
        Fail where a row has no partner.

    Returns
    -------
    NamedColumns, tuple of str
        The rows of the first table, and notes on what had no partner.
    """
    with other.messages():
        other.need("id", f"to join {table.file}")
        others = other.ids()
    assert others is not None
    table.need(by, f"to join {other.file}")
    ids = as_ids(table.table.column(by), f"column {table.names[by]!r}")
    place = match_ids(ids, others)
    unmatched = ids[place < 0]
    unused = others[~np.isin(np.arange(len(others)), place)]
    notes = []
    if len(unmatched):
        if every:
            missing = list(dict.fromkeys(unmatched))
            raise InputError(
                f"{len(missing)} ids of {table.file} are not in {other.file}: {some(missing, most=5)} "
                f"(there: {some(others)})"
            )
        if len(unmatched) == len(ids):
            raise InputError(f"no id is in {other.file}: {some(ids)} against {some(others)}")
        notes.append(
            f"{len(unmatched)} of {len(ids)} cases are not in {other.file} ({some(unmatched)})."
        )
    if len(unused):
        notes.append(
            f"{len(unused)} of {len(others)} cases in {other.file} are not in {table.file} "
            f"({some(unused)}) and were not used."
        )
    added = other.table.drop_columns(["id"]).take(pa.array(place, mask=place < 0))
    replaced = set(added.column_names)
    if other.has("votes") or other.spread("votes"):
        # Votes stand in several columns, which belong together.
        replaced |= {"votes", "n_raters"}
        replaced |= {f"votes_{name}" for name in table.spread("votes")}
    kept = [name for name in table.table.column_names if name not in replaced]
    parts = {name: table.table.column(name) for name in kept}
    parts |= {name: added.column(name) for name in added.column_names}
    names, sources = dict(table.names), dict(table.sources)
    for role in INPUT_COLUMNS:
        if role != "id" and (other.has(role) or other.spread(role)):
            names[role], sources[role] = other.names[role], other.file
    joined = replace(
        table,
        table=pa.table(parts),
        header=tuple(dict.fromkeys((*table.header, *other.header))),
        names=names,
        sources=sources,
    )
    return joined, tuple(notes)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _plain(values: Any, name: str, expected: str = "text or numbers") -> Any:
    """Return values out of a dictionary, and text that a file holds as bytes as text.

    Fails for lists, structures, maps, durations and whatever else is neither a name nor a number.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        values = values.cast(kind)
    plain = ("null", "boolean", "integer", "floating", "decimal", "date", "time", "timestamp")
    if _is_text(kind) or any(getattr(pa.types, f"is_{name}")(kind) for name in plain):
        return values
    as_bytes = ("binary", "large_binary", "fixed_size_binary", "binary_view", "string_view")
    if any(getattr(pa.types, f"is_{name}")(kind) for name in as_bytes):
        return _as_text(values.cast(pa.binary()), name)
    raise InputError(f"{name} must hold {expected}, got {kind}")


def _as_text(values: Any, name: str) -> Any:
    try:
        return values.cast(pa.string())
    except pa.ArrowException as error:
        raise InputError(
            f"{name} must hold text or numbers, got {values.type} ({failure(error)})"
        ) from None


def as_ids(values: Any, name: str = "ids") -> pd.api.extensions.ExtensionArray:
    """Return ids (numbers or text, Arrow or numpy) as an Arrow-backed array of text.

    Whole numbers are written without a point, so that 12 in one file is "12" in another. `name` is what
    messages call the ids.

    Examples
    --------
    >>> list(as_ids(np.array([12.0, 7.0])))
    ['12', '7']
    """
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = np.asarray(values)
        values = pa.array(values.astype(str) if values.dtype.kind in "SU" else values)
    values = _plain(values, name)
    if pa.types.is_floating(values.type):
        values = _whole_numbers(values, name)
    elif pa.types.is_decimal(values.type):
        written = values.cast(pa.string())
        cut = pc.replace_substring_regex(written, r"\.0*$", "")
        values = cut if not pc.any(pc.match_substring(cut, ".")).as_py() else written
    if not _is_text(values.type):
        values = _as_text(values, name)
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    check_limit(longest, "characters", f"{name}: the length of an id")
    check_limit(4 * longest * len(values), "memory", f"{name}: the memory of all ids")
    if pc.any(pc.ends_with(values, "\0")).as_py():  # numpy would drop the byte
        raise InputError(f"{name} must hold text or numbers, got an id that ends in a zero byte")
    ids: pd.api.extensions.ExtensionArray = pd.array(values, dtype=pd.StringDtype("pyarrow"))
    return ids


def _whole_numbers(values: Any, name: str) -> Any:
    """Return ids that are floating-point numbers as whole numbers if all are; NaN is no id."""
    numbers = np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
    known = numbers[~np.isnan(numbers)]
    if (known != np.floor(known)).any():
        return pa.array(values.to_pandas(), values.type, from_pandas=True)
    refuse(
        np.abs(numbers) >= 2**53,
        f"{name} must be names",
        numbers,
        advice="Floating-point numbers lose digits there, so write ids as text.",
    )
    return pa.array(numbers, from_pandas=True).cast(pa.int64())


def check_ids(ids: pd.api.extensions.ExtensionArray, name: str) -> None:
    """Fail unless every case has an id of its own."""
    refuse(np.asarray(ids.isna()), f"{name} must name every case, missing")
    hashes = np.empty(len(ids), dtype=np.uint64)
    # Hashes first: they take 8 bytes an id, where a table of the ids themselves takes far more.
    for start in range(0, len(ids), 1 << 18):
        part = ids[start : start + (1 << 18)].to_numpy(object)
        hashes[start : start + len(part)] = pd.util.hash_array(part, categorize=False)
    hashes.sort()
    if (hashes[1:] != hashes[:-1]).all():
        return
    counted = pc.value_counts(pa.array(ids))
    twice = counted.filter(pc.greater(counted.field("counts"), 1)).field("values").to_pylist()
    if twice:
        first = np.asarray(ids == twice[0])
        raise InputError(
            f"{name} must be unique: {len(twice)} of the ids appear more than once "
            f"({some(twice)}; {twice[0]!r} at {rows(first)})"
        )


def _as_classes(written: list[str]) -> list[str]:
    """Write numbers and booleans that a column of text holds as a column of their own type would."""
    names = [name for name in written if name]
    if all(_is_number(name) for name in names):
        # By way of a float only where it is written as one: 2^53 + 1 is no float.
        whole = [name.lstrip("+-").isdigit() for name in written]
        numbers = [int(n) if w else float(n or "nan") for n, w in zip(written, whole, strict=True)]
        return [as_name(number) for number in numbers]
    if all(name.lower() in ("true", "false") for name in names):
        return [as_name(name.lower() == "true") if name else "" for name in written]
    return written


def _natural(name: str) -> tuple[int, float, str]:
    """Sort numbers by value, before words."""
    return (0, float(name), name) if _is_number(name) else (1, 0.0, name)


def _is_number(text: str) -> bool:
    try:
        return len(text) <= 400 and "_" not in text and bool(np.isfinite(float(text)))
    except ValueError:
        return False
