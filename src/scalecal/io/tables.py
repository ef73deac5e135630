"""Any CSV, TSV, Parquet, Excel or JSON Lines file as one kind of table.

Text may have any encoding, separator or decimal sign; text and Parquet can also be read in pieces.
"""

from __future__ import annotations

import codecs
import csv
import datetime
import gzip
import io
import json
import re
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scalecal.checks import InputError, ScalecalWarning, library
from scalecal.limits import check_limit

if TYPE_CHECKING:
    import pandas as pd

TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")
EXCEL_SUFFIXES = (".xlsx", ".xlsm")
JSON_SUFFIXES = (".jsonl", ".ndjson")
Kind = Literal["text", "parquet", "excel", "json"]

FIRST_ROW: Mapping[Kind, tuple[str, int]] = {
    "text": ("line", 2),
    "parquet": ("row", 0),
    "excel": ("row", 2),
    "json": ("line", 1),
}
"""What messages call a row of each kind of file, and the number of the first."""

EXCEL_ERRORS = ("#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A")
EXCEL_DIGITS = 10**15
"""Whole numbers from here on have lost digits in Excel, which keeps fifteen."""

SEPARATORS = (",", ";", "\t")

SAMPLE_BYTES = 1 << 18
# A row must fit into one block; rows of embeddings with thousands of columns are long.
BLOCK_BYTES = 1 << 23
BATCH_ROWS = 1 << 18

DECIMAL_COMMA = r"^\s*[+-]?(\d+(,\d*)?|,\d+)([eE][+-]?\d+)?\s*$"

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),  # pyarrow passes over this mark by itself
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class Dialect:
    """How a text table is written: its encoding, separator, decimal sign and header."""

    encoding: str
    separator: str
    header: tuple[str, ...]
    quoted: bool
    decimal: str = "."


def read_table(path: str | Path, *, text: Collection[str] = ("id",)) -> pd.DataFrame:
    """Read a CSV, TSV, JSON Lines (these also gzipped), Parquet or Excel file.

    Encoding (UTF-8 with or without a mark, UTF-16 with one, else Latin-1 with a warning), separator
    (comma, semicolon, tab) and decimal sign are detected. Of text files, the columns named in `text`
    stay text, so that an id such as 0012 keeps its zeros. Columns without a name (the index that some
    programs write) are left out. Of an Excel file the first sheet that has data is read; in JSON Lines
    a key that a line lacks is a missing value.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "p.csv")
    ...     _ = path.write_text("id;p\\n0012;0,25\\n0013;0,5\\n")
    ...     read_table(path).to_dict("list")
    {'id': ['0012', '0013'], 'p': [0.25, 0.5]}
    """
    import pandas as pd
    import pyarrow as pa

    texts = {pa.string(): pd.StringDtype("pyarrow"), pa.large_string(): pd.StringDtype("pyarrow")}
    frame: pd.DataFrame = read_arrow(path, text=text).to_pandas(types_mapper=texts.get)
    return frame


def read_arrow(
    path: str | Path,
    *,
    text: Collection[str] = (),
    factors: Collection[str] = (),
    keep: Callable[[str], bool] | None = None,
) -> Any:
    """Read a table file as a `pyarrow.Table`; `keep` says which columns, by name, are wanted.

    Columns named in `factors` are text of which each distinct value is held once.

    Raises
    ------
    InputError
        When there is no such file, it is no table, or it has no rows.
    """
    path = Path(path)
    try:
        kind = table_kind(path)
        if kind == "text":
            table = _read_text(path, text, factors, keep)
        elif kind == "parquet":
            table = _read_parquet(path, keep)
        elif kind == "excel":
            table = _as_arrow(path, _read_sheet(path, text, keep), (*text, *factors))
        else:
            table = _as_arrow(path, _read_json_lines(path, keep), (*text, *factors))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if table.num_rows == 0:
        raise InputError(f"{path} has a header but no rows: at least one case is needed")
    return table


def iterate_arrow(
    path: str | Path, *, keep: Callable[[str], bool], numbers: Callable[[str], bool]
) -> Iterator[Any]:
    """Yield some columns of a table file in pieces, each a `pyarrow.Table`.

    Of a text file, `numbers` says which columns hold numbers; the others are text. Types are fixed
    beforehand because those of the first piece need not be those of the last, so the file must be
    regular to its end.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    kind = table_kind(path)
    if kind not in ("text", "parquet"):
        raise InputError(
            f"{path} cannot be read in pieces: save it as CSV or Parquet, or read it whole "
            "(without --stream)"
        )
    if kind == "parquet":
        with pq.ParquetFile(path) as file:
            wanted = [name for name in file.schema_arrow.names if keep(name)]
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
                yield pa.Table.from_batches([batch])
        return
    dialect = sniff(path)
    raw = _wanted(path, dialect, keep)
    factor = pa.dictionary(pa.int32(), pa.string())
    kinds = {name: pa.float64() if numbers(name) else factor for name in raw}
    try:
        with _open_text(path, dialect, dialect.encoding, raw, kinds, dialect.decimal) as batches:
            for batch in batches:
                yield pa.Table.from_batches([batch]).rename_columns(list(raw))
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{path} cannot be read in pieces: {_one_line(error)}. Correct the file, or read it "
            "whole (without --stream)."
        ) from None


def column_names(path: str | Path) -> tuple[str, ...]:
    """Names of the columns of a table file, without reading its rows (but those of JSON Lines)."""
    path = Path(path)
    kind = table_kind(path)
    if kind == "text":
        return tuple(name.strip() for name in sniff(path).header if name.strip())
    if kind == "excel":
        with _open_sheet(path) as (_, header, _):
            return tuple(name for name in header if name)
    if kind == "json":
        return tuple(dict.fromkeys(key for row in _json_rows(path) for key in row if key))
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return tuple(pq.read_schema(path).names)
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} is not a Parquet file: {_one_line(error)}") from None


def table_kind(path: Path) -> Kind:
    """What kind of table a file is, by its name; fails unless it can be opened at all."""
    if path.is_dir():
        raise InputError(
            f"{path} is a folder, expected a CSV, TSV, Parquet, Excel or JSON Lines file"
        )
    if not path.exists():
        raise InputError(f"no file at {path}")
    name = path.name.lower()
    suffixes: dict[Kind, tuple[str, ...]] = {
        "text": TEXT_SUFFIXES,
        "parquet": PARQUET_SUFFIXES,
        "excel": EXCEL_SUFFIXES,
        "json": JSON_SUFFIXES,
    }
    plain = name.removesuffix(".gz")
    kinds = [kind for kind, ends in suffixes.items() if plain.endswith(ends)]
    if not kinds or (plain != name and kinds[0] in ("parquet", "excel")):
        other = ""
        if name.endswith((".xls", ".xlsb", ".ods", ".numbers")):
            other = " Save the sheet as .xlsx or CSV first."
        elif plain.endswith(".json"):
            other = " Write one object per line (JSON Lines) and call it .jsonl."
        raise InputError(
            f"cannot tell what {path} holds from its name: expected .csv, .tsv, .txt, .jsonl, .ndjson "
            f"(or these with .gz), .parquet or .xlsx.{other}"
        )
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty")
    return kinds[0]


def check_parquet_size(path: str | Path) -> None:
    """Refuse a Parquet file that declares more than the memory, before any of it is read."""
    import pyarrow.parquet as pq

    about = pq.read_metadata(path)
    groups = [about.row_group(k).total_byte_size for k in range(about.num_row_groups)]
    check_limit(max(sum(groups), about.num_rows), "memory", f"{path}: its declared size")


def _read_parquet(path: Path, keep: Callable[[str], bool] | None) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
        _check_duplicates(names, path)
        wanted = None if keep is None else [name for name in names if keep(name)]
        return pq.read_table(path, columns=wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{path} is not a readable Parquet file: {_one_line(error)}") from None


def _read_text(
    path: Path,
    text: Collection[str],
    factors: Collection[str],
    keep: Callable[[str], bool] | None,
) -> Any:
    import pyarrow as pa

    dialect = sniff(path)
    raw = _wanted(path, dialect, keep)
    kinds = dict.fromkeys(text, pa.string())
    kinds |= dict.fromkeys(factors, pa.dictionary(pa.int32(), pa.string()))
    encoding = dialect.encoding
    try:
        table = _parse(path, dialect, encoding, raw, kinds)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise InputError(f"{path} is not a regular table: {_one_line(error)}") from None
        table = None
    if encoding == "utf-8" and (
        table is None or any(pa.types.is_binary(kind) for kind in table.schema.types)
    ):
        # Bytes beyond the sample that are not UTF-8: every byte is a letter in Latin-1.
        encoding = "latin-1"
        table = _parse(path, dialect, encoding, raw, kinds)
    if encoding == "latin-1":
        warnings.warn(
            f"{path} is not UTF-8 and was read as Latin-1; save it as UTF-8 if letters look wrong",
            ScalecalWarning,
            stacklevel=2,
        )
    assert table is not None
    table = table.rename_columns(list(raw))
    return _tidy(table, text, decimal_commas=dialect.separator != ",")


def _wanted(path: Path, dialect: Dialect, keep: Callable[[str], bool] | None) -> dict[str, str]:
    """Names of the columns that are wanted, and how the header writes them."""
    names = [name.strip() for name in dialect.header]
    _check_duplicates([name for name in names if name], path)
    return {
        name: written
        for name, written in zip(names, dialect.header, strict=True)
        if name and (keep is None or keep(name))
    }


def _parse(
    path: Path, dialect: Dialect, encoding: str, raw: Mapping[str, str], kinds: Mapping[str, Any]
) -> Any:
    """Read a text file whole, block by block where its types allow it, which takes half the memory."""
    import pyarrow as pa

    # The first block fixes the types; a table whose later rows are of a wider type (1, 2, then 2.5)
    # is read at once.
    try:
        with _open_text(path, dialect, encoding, raw, kinds) as blocks:
            return blocks.read_all()
    except pa.ArrowInvalid as error:
        if "conversion error" not in str(error) or "UTF8" in str(error):
            raise
    with _open_text(path, dialect, encoding, raw, kinds, at_once=True) as table:
        return table


@contextmanager
def _open_text(
    path: Path,
    dialect: Dialect,
    encoding: str,
    raw: Mapping[str, str],
    kinds: Mapping[str, Any],
    decimal: str = ".",
    *,
    at_once: bool = False,
) -> Iterator[Any]:
    """Open a text file for pyarrow's reader of blocks, or give the whole table `at_once`."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    read = pacsv.read_csv if at_once else pacsv.open_csv
    with pa.input_stream(str(path), compression="detect") as stream:
        yield read(
            stream,
            read_options=pacsv.ReadOptions(encoding=encoding, block_size=BLOCK_BYTES),
            parse_options=pacsv.ParseOptions(
                delimiter=dialect.separator, newlines_in_values=dialect.quoted
            ),
            convert_options=pacsv.ConvertOptions(
                include_columns=list(raw.values()),
                column_types={raw[name]: kind for name, kind in kinds.items() if name in raw},
                strings_can_be_null=True,
                decimal_point=decimal,
            ),
        )


def _tidy(table: Any, text: Collection[str], *, decimal_commas: bool) -> Any:
    """Trim text, and turn columns of numbers with decimal commas into numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        if not pa.types.is_string(field.type):
            continue
        column = table.column(place)
        if (
            decimal_commas
            and field.name not in text
            and column.null_count < len(column)
            and pc.all(pc.match_substring_regex(column, DECIMAL_COMMA)).as_py()
        ):
            points = pc.replace_substring(
                pc.utf8_trim_whitespace(column), ",", ".", max_replacements=1
            )
            column = points.cast(pa.float64())
        else:
            column = pc.utf8_trim_whitespace(column)
        table = table.set_column(place, field.name, column)
    return table


def sniff(path: str | Path) -> Dialect:
    """Find a text table's encoding, separator and header from its first quarter of a megabyte."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            packed = path.suffix.lower() == ".gz"
            head = (gzip.GzipFile(fileobj=file) if packed else file).read(SAMPLE_BYTES)
    except (OSError, EOFError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    encoding = next((name for mark, name in _MARKS if head.startswith(mark)), None)
    if head.startswith(b"PK\x03\x04"):
        raise InputError(
            f"{path} is a zip or Excel file, not text: call an Excel file .xlsx, or save the sheet as CSV"
        )
    if encoding is None and b"\0" in head:
        raise InputError(f"{path} is not a text file (it holds zero bytes): save it as UTF-8 CSV")
    if encoding is None:
        encoding = "utf-8"
        try:
            codecs.getincrementaldecoder("utf-8")().decode(head)
        except UnicodeDecodeError:
            encoding = "latin-1"
    sample = codecs.getincrementaldecoder(encoding)().decode(head).removeprefix("\ufeff")
    if not sample.strip():
        raise InputError(f"{path} is empty")
    whole = len(head) < SAMPLE_BYTES
    separator = max(SEPARATORS, key=lambda sep: _fit(sample, sep, whole))
    header, *body = _records(sample, separator)
    return Dialect(encoding, separator, tuple(header), '"' in sample, _decimal(body, separator))


def _decimal(records: list[list[str]], separator: str) -> str:
    """Return the decimal sign of the numbers in some records."""
    if separator == ",":
        return "."
    fields = [field for record in records for field in record]
    points = any(re.fullmatch(r"\s*[+-]?\d*\.\d+\s*", field) for field in fields)
    commas = any("," in field and re.match(DECIMAL_COMMA, field) for field in fields)
    return "," if commas and not points else "."


def _fit(sample: str, separator: str, whole: bool) -> tuple[bool, int]:
    """How well a separator explains the sample: equal, many fields in every record."""
    records = list(_records(sample, separator))
    if not whole and len(records) > 1:
        records.pop()  # cut off in the middle
    width = len(records[0])
    regular = width > 1 and all(len(record) == width for record in records)
    return regular, width


def _records(sample: str, separator: str) -> Iterator[list[str]]:
    limit = csv.field_size_limit(max(SAMPLE_BYTES * 2, csv.field_size_limit()))
    try:
        yield from (
            record
            for record in csv.reader(io.StringIO(sample, None), delimiter=separator)
            if record
        )
    finally:
        csv.field_size_limit(limit)


# Excel and JSON Lines: rows of Python values


@contextmanager
def _open_sheet(
    path: Path, *, formulas: bool = False
) -> Iterator[tuple[list[str], list[str], Any]]:
    """Open the first sheet with data: titles of all that have, its header ("" for none), its other rows.

    With `formulas`, cells hold their formulas instead of the values these had when the file was saved.
    """
    openpyxl = library("openpyxl", f"{path.name}: an Excel file", "'scalecal[excel]'")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and other extras that are not read here
            book = openpyxl.load_workbook(path, read_only=True, data_only=not formulas)
    except (
        zipfile.BadZipFile,
        KeyError,
        ValueError,
        openpyxl.utils.exceptions.InvalidFileException,
    ):
        raise InputError(
            f"{path} is not a readable Excel file (damaged, locked by a password, or of another kind): "
            "save it again as .xlsx, or as CSV"
        ) from None
    try:
        # Sheets of charts have no rows; a sheet without a value is none.
        sheets = [sheet for sheet in book.worksheets if _has_values(sheet)]
        if not sheets:
            raise InputError(f"{path} has no sheet with data")
        rows = sheets[0].iter_rows(values_only=True)
        header = [_cell_text(value).strip() for value in next(rows)]
        if not any(header):
            raise InputError(
                f"{path}: the first row of sheet {sheets[0].title!r} is empty: the columns' names must "
                "stand there"
            )
        _check_duplicates([name for name in header if name], path)
        yield [sheet.title for sheet in sheets], header, rows
    finally:
        book.close()


def _has_values(sheet: Any) -> bool:
    sheet.reset_dimensions()  # some programs write a size that is wrong
    return any(value is not None for row in sheet.iter_rows(values_only=True) for value in row)


def _read_sheet(
    path: Path, text: Collection[str], keep: Callable[[str], bool] | None
) -> dict[str, list[Any]]:
    """Read the columns of an Excel file; trailing empty rows are left out.

    Of the columns named in `text`, those that Excel has changed beyond repair are warned of.
    """
    with _open_sheet(path) as (titles, header, rows):
        table: list[tuple[Any, ...]] = list(rows)
    if len(titles) > 1:
        warnings.warn(
            f"{path} has {len(titles)} sheets with data ({', '.join(map(repr, titles))}): the first was "
            "read. Put another first, or save it as a file of its own, if that is not the one",
            ScalecalWarning,
            stacklevel=2,
        )
    while table and all(_is_blank(value) for value in table[-1]):
        table.pop()
    for number, row in enumerate(table, start=2):
        if all(_is_blank(value) for value in row):
            raise InputError(f"{path}: row {number} is empty, though rows follow: delete it")
    columns = list(zip_longest(*table)) if table else [()] * len(header)
    width = max(len(header), len(columns))
    columns += [(None,) * len(table)] * (width - len(columns))
    header = [*header, *[""] * (width - len(header))]
    for place, (name, values) in enumerate(zip(header, columns, strict=True)):
        # The first may be the index that some programs write.
        if not name and place and not all(_is_blank(value) for value in values):
            raise InputError(
                f"{path}: column {_letters(place)} has values but no name in row 1: write the name of "
                "each column into its own cell of row 1 (merged cells have one value only), and "
                "nothing above"
            )
    wanted = {
        name: (place, list(values))
        for place, (name, values) in enumerate(zip(header, columns, strict=True))
        if name and (keep is None or keep(name))
    }
    gaps = {place for place, values in wanted.values() if None in values}
    if gaps:
        _check_formulas(path, gaps)
    for name, (place, cells) in wanted.items():
        for number, value in enumerate(cells, start=2):
            if isinstance(value, str) and value in EXCEL_ERRORS:
                raise InputError(
                    f"{path}: cell {_letters(place)}{number} (column {name!r}) holds the error {value}"
                )
        if name in text:
            _warn_of_changed(path, name, cells)
    return {name: cells for name, (_, cells) in wanted.items()}


def _warn_of_changed(path: Path, name: str, values: Sequence[Any]) -> None:
    """Warn of the first id that Excel has made a date of, or cut."""
    for number, value in enumerate(values, start=2):
        if isinstance(value, datetime.date | datetime.time):
            what = f"a date ({_cell_text(value)})"
            why = "Excel makes dates of text such as 3-1"
        elif isinstance(value, int | float) and abs(value) >= EXCEL_DIGITS:
            what = f"a number of more than 15 digits ({value:.0f})"
            why = "Excel keeps no more, and fills up with zeros"
        else:
            continue
        warnings.warn(
            f"{path}: column {name!r} holds {what} in row {number}: {why}. Format the column as text "
            "before filling it, if that is not meant",
            ScalecalWarning,
            stacklevel=2,
        )
        return


def _check_formulas(path: Path, places: Collection[int]) -> None:
    """Fail where an empty cell has a formula: the file was saved by a program that computes none."""
    with _open_sheet(path, formulas=True) as (*_, formulas), _open_sheet(path) as (*_, rows):
        for number, (row, values) in enumerate(zip(formulas, rows, strict=False), start=2):
            for place in places:
                formula = row[place] if place < len(row) else None
                value = values[place] if place < len(values) else None
                if value is None and isinstance(formula, str) and formula.startswith("="):
                    raise InputError(
                        f"{path}: cell {_letters(place)}{number} is a formula without a value: open "
                        "the file in Excel and save it, or paste the values"
                    )


def _letters(place: int) -> str:
    """Name a column of a sheet by its zero-based place.

    Examples
    --------
    >>> _letters(0), _letters(27)
    ('A', 'AB')
    """
    place += 1
    letters = ""
    while place:
        place, rest = divmod(place - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield each line's object; empty lines at the end are passed over."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    number = blank = 0

    def refuse(problem: str) -> InputError:
        return InputError(f"{path}: line {number} {problem}")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(items)
        if len(row) < len(items):
            twice = next(key for key, _ in items if [k for k, _ in items].count(key) > 1)
            raise refuse(f"has the key {twice!r} twice")
        return row

    def constant(name: str) -> Any:
        raise refuse(f"holds {name}, which is no JSON: write null where a value is missing")

    decoder = json.JSONDecoder(object_pairs_hook=pairs, parse_constant=constant)
    try:
        with opener(path, "rt", encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.isspace():
                    blank = blank or number
                    continue
                if blank:
                    raise InputError(
                        f"{path}: line {blank} is empty, though lines follow: delete it"
                    )
                row = decoder.decode(line)
                if not isinstance(row, dict):
                    raise refuse(
                        'is no object: each line must be one, such as {"id": "a", "p": 0.2} (JSON Lines)'
                    )
                for key, value in row.items():
                    if isinstance(value, dict):
                        inner = ", ".join(f"{key}_{k}" for k in list(value)[:3])
                        raise refuse(f"has an object under {key!r}: write flat keys ({inner}, ...)")
                yield {key.strip(): value for key, value in row.items()}
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}: line {number} is no JSON ({error.msg} at character {error.colno}): each line must "
            "be one object (JSON Lines)"
        ) from None
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: line {number + 1} is not UTF-8, which JSON Lines must be"
        ) from None
    except EOFError as error:
        raise InputError(f"cannot read {path}: {error}") from None


def _read_json_lines(path: Path, keep: Callable[[str], bool] | None) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    count = 0
    for row in _json_rows(path):
        for key, value in row.items():
            if key not in columns and key and (keep is None or keep(key)):
                columns[key] = [None] * count
            if key in columns:
                columns[key].append(value)
        count += 1
        for values in columns.values():
            if len(values) < count:
                values.append(None)
    if not count:
        raise InputError(f"{path} is empty")
    return columns


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _cell_text(value: Any) -> str:
    """Write a value as text; whole numbers without a point, so that 12 is the same in every file."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)


def _as_arrow(path: Path, columns: Mapping[str, Sequence[Any]], text: Collection[str]) -> Any:
    """Return columns of Python values as a table: numbers where all are, else text, trimmed."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    missing = set(pacsv.ConvertOptions().null_values)  # what an empty field of a CSV file may say
    arrays = {}
    for name, raw in columns.items():
        values = [None if isinstance(v, str) and v.strip() in missing else v for v in raw]
        kinds = {type(value) for value in values} - {type(None)}
        if list in kinds:
            try:
                arrays[name] = pa.array(values, pa.list_(pa.float64()))
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                raise InputError(
                    f"{path}: column {name!r} must hold lists of numbers alone"
                ) from None
        elif kinds and kinds <= {int, float} and name not in text:
            whole = all(isinstance(v, int) and abs(v) < 2**63 for v in values if v is not None)
            arrays[name] = pa.array(values, pa.int64() if whole else pa.float64())
        elif kinds == {bool} and name not in text:
            arrays[name] = pa.array(values, pa.bool_())
        else:
            written = [None if v is None else _cell_text(v).strip() for v in values]
            arrays[name] = pa.array(written, pa.string())
    return _tidy(pa.table(arrays), text, decimal_commas=table_kind(path) == "excel")


def _check_duplicates(names: list[str], path: Path) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{path} has more than one column named {', '.join(map(repr, twice))}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
