"""Any CSV, TSV, Parquet, Excel or JSON Lines file as one kind of table.

Text may have any encoding, separator or decimal sign; text and Parquet can also be read in pieces.
"""

from __future__ import annotations

import codecs
import csv
import datetime
import io
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from scalecal.checks import InputError, LazyModule, ScalecalWarning, library
from scalecal.io.boundary import check_file, failure, reading
from scalecal.limits import check_limit

if TYPE_CHECKING:
    import pandas as pd

pa: Any = LazyModule("pyarrow")
pacsv: Any = LazyModule("pyarrow.csv")
pc: Any = LazyModule("pyarrow.compute")
pq: Any = LazyModule("pyarrow.parquet")

Kind = Literal["text", "parquet", "excel", "json"]

SUFFIXES: Mapping[Kind, tuple[str, ...]] = {
    "text": (".csv", ".tsv", ".txt"),
    "parquet": (".parquet", ".pq"),
    "excel": (".xlsx", ".xlsm"),
    "json": (".jsonl", ".ndjson"),
}

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
EXCEL_ROWS = 1 << 20
"""Rows that a sheet can have."""
UNPACKED_CELLS = 4
"""Bytes that the values of a sheet take, for each of the bytes that describe them."""

SEPARATORS = (",", ";", "\t")

SAMPLE_BYTES = 1 << 18
# A row must fit into one block; rows of embeddings with thousands of columns are long.
BLOCK_BYTES = 1 << 23
BATCH_ROWS = 1 << 18

DECIMAL_COMMA = r"^\s*[+-]?(\d+(,\d*)?|,\d+)([eE][+-]?\d+)?\s*$"

WHAT: Mapping[Kind, tuple[str, str]] = {
    "text": ("a table of text", "Save it as CSV in UTF-8."),
    "parquet": ("a Parquet file", "Write it again, or save the table as CSV."),
    "excel": ("an Excel file", "Save it again as .xlsx without a password, or as CSV."),
    "json": ("JSON Lines", "Write one object on each line, in UTF-8."),
}
"""What a file of each kind should be, and what to do if it is not."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
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

    @property
    def names(self) -> list[str]:
        """The header without spaces around its names; "" for columns without one."""
        return [name.strip() for name in self.header]


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
    kind = table_kind(path)
    if kind == "text":
        table = _read_text(path, text, factors, keep)
    elif kind == "parquet":
        wanted = [name for name in column_names(path) if keep is None or keep(name)]
        table = read_parquet(path, wanted)
    elif kind == "excel":
        table = _as_arrow(path, kind, _read_sheet(path, text, keep), (*text, *factors))
    else:
        table = _as_arrow(path, kind, _read_json_lines(path, keep), (*text, *factors))
    if table.num_rows == 0:
        raise InputError(f"{path} has no rows: at least one case is needed")
    return table


def iterate_arrow(
    path: str | Path, *, keep: Callable[[str], bool], numbers: Collection[str]
) -> Iterator[Any]:
    """Yield some columns of a table file in pieces, each a `pyarrow.Table`.

    Of a text file, the columns named in `numbers` hold numbers; the others are text. Types are fixed
    beforehand because those of the first piece need not be those of the last, so the file must be
    regular to its end.
    """
    path = Path(path)
    kind = table_kind(path)
    if kind not in ("text", "parquet"):
        raise InputError(
            f"{path} cannot be read in pieces: save it as CSV or Parquet, or read it whole "
            "(without --stream)"
        )
    if kind == "parquet":
        wanted = [name for name in column_names(path) if keep(name)]
        with _reading(path, "parquet"), pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
                batch.validate(full=True)
                yield _usual(pa.Table.from_batches([batch]))
        return
    dialect = sniff(path)
    raw = _wanted(dialect, filter(keep, _check_names(path, dialect.names)))
    factor = pa.dictionary(pa.int32(), pa.string())
    kinds = dict.fromkeys(raw, factor) | dict.fromkeys(numbers, pa.float64())
    with (
        _text(path, dialect, "Correct the file, or read it whole (without --stream)."),
        _open_text(path, dialect, raw, kinds, dialect.decimal) as batches,
    ):
        for batch in batches:
            yield pa.Table.from_batches([batch]).rename_columns(list(raw))


def column_names(path: str | Path) -> tuple[str, ...]:
    """Names of the columns of a table file, without reading its rows (but those of JSON Lines)."""
    path = Path(path)
    kind = table_kind(path)
    names: Sequence[str]
    if kind == "text":
        names = sniff(path).names
    elif kind == "excel":
        _, names, _ = _load_sheet(path, header_alone=True)
    elif kind == "json":
        names = list(dict.fromkeys(key for row in _json_rows(path) for key in row))
    else:
        with _reading(path, "parquet"):
            names = pq.read_schema(path).names
    return _check_names(path, names)


def _check_names(path: Path, header: Iterable[str]) -> tuple[str, ...]:
    """Return the names in a header, none of them twice; columns may have none."""
    names = tuple(name for name in header if name)
    check_limit(len(names), "columns", f"{path}: its number of columns")
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        more = ", ..." if len(twice) > 5 else ""
        raise InputError(
            f"{path} has more than one column named {', '.join(map(repr, sorted(twice)[:5]))}{more}"
        )
    return names


def line_numbers(path: str | Path, records: Sequence[int]) -> list[int]:
    """Return the lines on which some records of text or JSON Lines begin, both counted from 1.

    The header is the first record of text. A record is not a line where lines are empty, or quoted
    fields hold line breaks. The file is read again up to the last of the records: for messages.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "p.csv")
    ...     _ = path.write_text('id,note\\na,"two\\nlines"\\n\\nb,\\n')
    ...     line_numbers(path, [2, 3])
    [2, 5]
    """
    path = Path(path)
    kind = table_kind(path)
    lines: Iterable[int]
    with _reading(path, kind), _open_bytes(path) as file:
        if kind == "text":
            lines = (line for line, _ in _numbered_records(file, sniff(path)))
        else:
            every = enumerate(io.BufferedReader(file), start=1)
            lines = (number for number, line in every if line.strip())
        numbered = enumerate(islice(lines, max(records)), start=1)
        begins = {record: line for record, line in numbered if record in records}
    return [begins.get(record, record) for record in records]


def table_kind(path: Path) -> Kind:
    """What kind of table a file is, by its name; fails unless it can be opened at all."""
    path = check_file(path, "a CSV, TSV, Parquet, Excel or JSON Lines file")
    name = path.name.lower()
    plain = name.removesuffix(".gz")
    kinds = [kind for kind, ends in SUFFIXES.items() if plain.endswith(ends)]
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


def _reading(path: Path, kind: Kind) -> AbstractContextManager[Path]:
    return reading(path, WHAT[kind][0], advice=WHAT[kind][1])


def read_parquet(
    path: Path, columns: Sequence[str] | None = None, *, factors: Sequence[str] = ()
) -> Any:
    """Read a Parquet file (some columns of it), after a look at the memory that it declares."""
    if columns is None:
        columns = column_names(path)
    wanted = dict.fromkeys(columns)
    # The file alone: `pq.read_table` would make columns of the names of its folders (a=1/t.parquet).
    with _reading(path, "parquet"), pq.ParquetFile(path, read_dictionary=list(factors)) as file:
        # At least so much, by the footer's rows and types. Of its other parts (`row_group(0).column(0)`)
        # damaged ones end the process.
        fields = [field.type for field in file.schema_arrow if field.name in wanted]
        bits = sum(kind.bit_width if pa.types.is_primitive(kind) else 32 for kind in fields)
        declared = int(file.metadata.num_rows) * bits // 8
        check_limit(declared, "memory", f"{path}: the memory it declares")
        table = file.read(columns=list(wanted))
        table.validate(full=True)
        return _usual(table)


def _usual(table: Any) -> Any:
    """Return a table without Arrow's views of text and bytes, which its functions hardly know.

    What pandas notes in a file is left out too: it would make the index of a column.
    """
    table = table.replace_schema_metadata(None)
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    for place, field in enumerate(table.schema):
        if field.type in plain:
            column = table.column(place).cast(plain[field.type])
            table = table.set_column(place, field.name, column)
    return table


def _read_text(
    path: Path,
    text: Collection[str],
    factors: Collection[str],
    keep: Callable[[str], bool] | None,
) -> Any:
    dialect = sniff(path)
    names = [n for n in _check_names(path, dialect.names) if keep is None or keep(n)]
    if path.suffix.lower() != ".gz":
        check_limit(path.stat().st_size, "memory", f"{path}: its size")
    raw = _wanted(dialect, names)
    kinds = dict.fromkeys(text, pa.string())
    kinds |= dict.fromkeys(factors, pa.dictionary(pa.int32(), pa.string()))
    with _text(path, dialect):
        table = _parse(path, dialect, raw, kinds)
        if table is None and dialect.encoding == "utf-8":
            # Bytes beyond the sample that are not UTF-8: every byte is a letter in Latin-1.
            dialect = replace(dialect, encoding="latin-1")
            table = _parse(path, dialect, raw, kinds)
        if table is None:
            raise _not_as_marked(path)
    if dialect.encoding == "latin-1":
        warnings.warn(
            f"{path} is not UTF-8 and was read as Latin-1; save it as UTF-8 if letters look wrong",
            ScalecalWarning,
            stacklevel=2,
        )
    table = table.rename_columns(list(raw)) if raw else table.select([])
    return _tidy(table, text, decimal_commas=dialect.separator != ",")


@contextmanager
def _text(path: Path, dialect: Dialect, advice: str = WHAT["text"][1]) -> Iterator[None]:
    """Read a file of text; of a table that is not regular, the first line that is not is named."""
    with reading(path, WHAT["text"][0], advice=advice):
        try:
            yield
        except pa.ArrowInvalid as error:
            try:
                if "columns, got" in str(error):
                    _check_regular(path, dialect)
                long = "straddling" in str(error)
            except csv.Error:  # of a field that does not end
                long = True
            if long:
                raise InputError(
                    f"{path}: a row is longer than {BLOCK_BYTES:,} bytes: close its quotes, or save the "
                    "table as Parquet"
                ) from None
            raise


def _check_regular(path: Path, dialect: Dialect) -> None:
    """Fail at the first record that has more or fewer fields than the header."""
    expected = len(dialect.header)
    with _open_bytes(path) as file:
        for line, record in _numbered_records(file, dialect):
            if len(record) != expected:
                fields = f"{len(record)} field{'s' * (len(record) != 1)}"
                raise InputError(
                    f"{path}: line {line} has {fields}, expected {expected} as in the header: quote "
                    f"fields that hold the separator {dialect.separator!r} or a line break"
                )


def _not_as_marked(path: Path) -> InputError:
    return InputError(
        f"{path} is not UTF-8 throughout, though it begins with the mark of UTF-8: save the whole file as "
        "UTF-8"
    )


def _wanted(dialect: Dialect, names: Iterable[str]) -> dict[str, str]:
    """Names of the columns that are wanted, and how the header writes them."""
    wanted = set(names)
    return {written.strip(): written for written in dialect.header if written.strip() in wanted}


def _parse(
    path: Path, dialect: Dialect, raw: Mapping[str, str], kinds: Mapping[str, Any]
) -> Any | None:
    """Read a text file whole; None if it is not of its encoding.

    It is read block by block where its types allow it, which takes half the memory.
    """
    try:
        try:
            with _open_text(path, dialect, raw, kinds) as blocks:
                table = blocks.read_all()
        except pa.ArrowInvalid as error:
            wider = "conversion error" in str(error)
            if "UTF8" in str(error) or (dialect.quoted and not wider):
                raise
            # The first block fixes the types, and the sample whether fields are quoted. A table whose
            # later rows are of a wider type (1, 2, then 2.5), or have line breaks in quotes, is read at
            # once.
            dialect = replace(dialect, quoted=True)
            with _open_text(path, dialect, raw, kinds, at_once=True) as table:
                pass
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            return None
        raise
    if any(pa.types.is_binary(kind) for kind in table.schema.types):
        return None
    return table


@contextmanager
def _open_text(
    path: Path,
    dialect: Dialect,
    raw: Mapping[str, str],
    kinds: Mapping[str, Any],
    decimal: str | None = None,
    *,
    at_once: bool = False,
) -> Iterator[Any]:
    """Open a text file for pyarrow's reader of blocks, or give the whole table `at_once`.

    With a `decimal` sign the blocks are to be taken one by one, and the file may be of any length.
    """
    read = pacsv.read_csv if at_once else pacsv.open_csv
    encoding = dialect.encoding.removesuffix("-sig")  # pyarrow passes over the mark of UTF-8
    with _open_bytes(path, whole=decimal is None) as stream:
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
                decimal_point=decimal or ".",
            ),
        )


@contextmanager
def _open_bytes(path: Path, *, whole: bool = False) -> Iterator[Any]:
    """Open a file, unpacked where it is gzipped; `whole` if all of it must fit into the memory."""
    with pa.input_stream(str(path), compression="detect") as stream:
        yield _Bounded(path, stream) if whole and path.suffix.lower() == ".gz" else stream


class _Bounded(io.RawIOBase):
    """A packed file that fails where it unpacks to more than the limit."""

    def __init__(self, path: Path, stream: Any) -> None:
        self._path, self._stream, self._read = path, stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._read += len(data)
        check_limit(self._read, "memory", f"{self._path}: what it unpacks to, at least,")
        buffer[: len(data)] = data
        return len(data)


def _tidy(table: Any, text: Collection[str], *, decimal_commas: bool) -> Any:
    """Trim text, and turn columns of numbers with decimal commas into numbers."""
    for place, field in enumerate(table.schema):
        if not pa.types.is_string(field.type):
            continue
        column = pc.utf8_trim_whitespace(table.column(place))
        if (
            decimal_commas
            and field.name not in text
            and column.null_count < len(column)
            and pc.all(pc.match_substring_regex(column, DECIMAL_COMMA)).as_py()
        ):
            points = pc.replace_substring(column, ",", ".", max_replacements=1)
            column = points.cast(pa.float64())
        table = table.set_column(place, field.name, column)
    return table


def sniff(path: str | Path) -> Dialect:
    """Find a text table's encoding, separator and header from its first quarter of a megabyte."""
    path = Path(path)
    with _reading(path, "text"):
        with _open_bytes(path) as file:
            size = SAMPLE_BYTES
            head = file.read(size)
            if not (b"\n" in head or b"\r" in head):  # a header of many columns
                size = BLOCK_BYTES
                head += file.read(size - len(head))
        marked = next((name for mark, name in _MARKS if head.startswith(mark)), None)
        if head.startswith(b"PK\x03\x04"):
            raise InputError(
                f"{path} is a zip or Excel file, not text: call an Excel file .xlsx, or save the sheet "
                "as CSV"
            )
        if marked is None and b"\0" in head:
            raise InputError(
                f"{path} is not a text file (it holds zero bytes): save it as UTF-8 CSV"
            )
        encoding = marked or "utf-8"
        try:
            sample = codecs.getincrementaldecoder(encoding)().decode(head)
        except UnicodeDecodeError:
            if marked == "utf-8-sig":
                raise _not_as_marked(path) from None
            if marked is not None:
                raise
            # Every byte is a letter in Latin-1.
            encoding = "latin-1"
            sample = head.decode(encoding)
        if not sample.strip():
            raise InputError(f"{path} is empty")
        whole = len(head) < size
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
    # Without `newline=""` a line break inside a quoted field would be changed.
    return (record for _, record in _numbered(io.StringIO(sample, newline=""), separator))


def _numbered(lines: Iterable[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each record that is not empty, and the line it begins on."""
    limit = csv.field_size_limit(max(BLOCK_BYTES, csv.field_size_limit()))
    try:
        reader, begin = csv.reader(lines, delimiter=separator), 1
        for record in reader:
            if record:
                yield begin, record
            begin = reader.line_num + 1
    finally:
        csv.field_size_limit(limit)


def _numbered_records(file: Any, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of an open text file, and the lines on which they begin."""
    lines = io.TextIOWrapper(
        io.BufferedReader(file), dialect.encoding, errors="replace", newline=""
    )
    return _numbered(lines, dialect.separator)


# Excel and JSON Lines: rows of Python values


def _load_sheet(
    path: Path, *, header_alone: bool = False
) -> tuple[str, list[str], list[tuple[Any, ...]]]:
    """Read the first sheet with data: what messages call it, its header ("" for none), its other rows."""
    openpyxl = library("openpyxl", f"{path.name}: an Excel file", "'scalecal[excel]'")
    with _reading(path, "excel"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of styles and other extras that are not read here
        with zipfile.ZipFile(path) as parts:
            size = sum(part.file_size for part in parts.infolist())
        check_limit(UNPACKED_CELLS * size, "memory", f"{path}: the memory it takes unpacked")
        book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        with closing(book):
            # Sheets of charts have no rows; a sheet without a value is none.
            sheets = [sheet for sheet in book.worksheets if any(_sheet_rows(path, sheet))]
            if not sheets:
                raise InputError(f"{path} has no sheet with data")
            rows = _sheet_rows(path, sheets[0])
            header = [as_name(value) for value in next(rows)]
            others = []
            if not header_alone:
                others = list(rows)
    titles = [repr(str(sheet.title)) for sheet in sheets]
    label = f"{path}: sheet {titles[0]}"
    if not any(header):
        raise InputError(f"{label}: the first row is empty: the columns' names must stand there")
    if len(titles) > 1 and not header_alone:
        warnings.warn(
            f"{path} has {len(titles)} sheets with data ({', '.join(titles)}): the first was "
            "read. Put another first, or save it as a file of its own, if that is not the one",
            ScalecalWarning,
            stacklevel=2,
        )
    return label, header, others


def _sheet_rows(path: Path, sheet: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a sheet without the empty cells at their ends."""
    sheet.reset_dimensions()  # some programs write a size that is wrong
    cells = 0
    for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        if number > EXCEL_ROWS:
            raise InputError(f"{path}: sheet {sheet.title!r} has more than {EXCEL_ROWS:,} rows")
        width = len(row)
        while width and row[width - 1] is None:
            width -= 1
        cells += width
        if number % 1000 == 0:
            check_limit(8 * cells, "memory", f"{path}: the memory of its cells, at least,")
        yield row[:width]


def _read_sheet(
    path: Path, text: Collection[str], keep: Callable[[str], bool] | None
) -> dict[str, list[Any]]:
    """Read the columns of an Excel file; trailing empty rows are left out.

    Of the columns named in `text`, those that Excel has changed beyond repair are warned of.
    """
    label, header, rows = _load_sheet(path)
    names = _check_names(path, header)
    while rows and not any(map(as_name, rows[-1])):
        rows.pop()
    columns = {}
    for name, *cells in zip_longest(header, *rows):
        # Columns without a name are left out, as those of text files are.
        if name not in names or (keep is not None and not keep(name)):
            continue
        for number, value in enumerate(cells, start=2):
            if isinstance(value, str) and value in EXCEL_ERRORS:
                raise InputError(
                    f"{label}: column {name!r} holds the error {value} in row {number}"
                )
        if name in text:
            _warn_of_changed(label, name, cells)
        columns[name] = cells
    return columns


def _warn_of_changed(label: str, name: str, values: Sequence[Any]) -> None:
    """Warn of the first id that Excel has made a date of, or cut."""
    for number, value in enumerate(values, start=2):
        if isinstance(value, datetime.date | datetime.time):
            change = f"a date ({as_name(value)})"
            reason = "Excel makes dates of text such as 3-1"
        elif isinstance(value, int | float) and abs(value) >= EXCEL_DIGITS:
            change = f"a number of more than 15 digits ({value:.0f})"
            reason = "Excel keeps no more, and fills up with zeros"
        else:
            continue
        warnings.warn(
            f"{label}: column {name!r} holds {change} in row {number}: {reason}. Format the column as text "
            "before filling it, if that is not meant",
            ScalecalWarning,
            stacklevel=2,
        )
        return


Cell = bool | int | float | str | list[float | None] | None
"""What may stand under a key of JSON Lines."""


def _json_rows(path: Path) -> Iterator[dict[str, Cell]]:
    """Yield each line's object; empty lines are passed over."""
    decoder = msgspec.json.Decoder(dict[str, Cell])
    with (
        _reading(path, "json"),
        _open_bytes(path, whole=True) as stream,
        io.BufferedReader(stream) as file,
    ):
        for number, line in enumerate(file, start=1):
            content = line.removeprefix(codecs.BOM_UTF8).strip()
            if not content:
                continue
            try:
                row = decoder.decode(content)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InputError(
                    f"{path}: line {number} is not as expected: {failure(error)}. Each line must be one "
                    'flat object in UTF-8, such as {"id": "a", "p": 0.2} (JSON Lines), '
                    "with null for missing values"
                ) from None
            yield {key.strip(): value for key, value in row.items()}


def _read_json_lines(path: Path, keep: Callable[[str], bool] | None) -> dict[str, list[Any]]:
    rows: list[dict[str, Cell]] = []
    names: dict[str, None] = {}
    for row in _json_rows(path):
        wanted = {key: row[key] for key in row if key and (keep is None or keep(key))}
        names.update(dict.fromkeys(wanted))
        rows.append(wanted)
        check_limit(len(names), "columns", f"{path}: its number of keys, at least,")
    # A key that few lines have takes a value in all of them.
    check_limit(8 * len(rows) * len(names), "memory", f"{path}: the memory of its values")
    return {name: [row.get(name) for row in rows] for name in names}


def as_name(value: Any) -> str:
    """Write a value as a name, "" for a missing one.

    Whole numbers are written without a point and booleans as 0 and 1, so that the same name is the same
    text in every file.

    Examples
    --------
    >>> as_name(12.0), as_name(True), as_name(None), as_name(datetime.datetime(2024, 3, 1))
    ('12', '1', '', '2024-03-01')
    """
    if value is None or value != value:
        return ""
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Decimal):
        value = f"{value.normalize():f}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return str(value).strip()


def _as_arrow(
    path: Path, kind: Kind, columns: Mapping[str, Sequence[Any]], text: Collection[str]
) -> Any:
    """Return columns of Python values as a table: numbers where all are, else text, trimmed."""
    missing = set(pacsv.ConvertOptions().null_values)  # what an empty field of a CSV file may say
    arrays = {}
    for name, raw in columns.items():
        values = [None if isinstance(v, str) and v.strip() in missing else v for v in raw]
        kinds = {type(value) for value in values} - {type(None)}
        if list in kinds:
            try:
                arrays[name] = pa.array(values, pa.list_(pa.float64()))
            except (pa.ArrowException, ValueError, TypeError):
                raise InputError(
                    f"{path}: column {name!r} must hold lists of numbers alone"
                ) from None
            continue
        if name not in text and (kinds == {bool} or (kinds and kinds <= {int, float})):
            # Whole numbers that no type of numbers holds exactly stay text.
            with suppress(pa.ArrowException, OverflowError):
                arrays[name] = pa.array(values)
        if name not in arrays:
            written = [None if v is None else as_name(v) for v in values]
            with _reading(path, kind):
                arrays[name] = pa.array(written, pa.string())
    return _tidy(pa.table(arrays), text, decimal_commas=kind == "excel")
