"""Any CSV, TSV or Parquet file, whole or in pieces, whatever its encoding, separator or decimal sign."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalecal.checks import InputError, ScalecalWarning

if TYPE_CHECKING:
    import pandas as pd

TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")
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
    """Read a CSV, TSV (also gzipped) or Parquet file.

    Encoding (UTF-8 with or without a mark, UTF-16 with one, else Latin-1 with a warning), separator
    (comma, semicolon, tab) and decimal sign are detected. Of text files, the columns named in `text`
    stay text, so that an id such as 0012 keeps its zeros. Columns without a name (the index that some
    programs write) are left out.

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
        table = (
            _read_text(path, text, factors, keep) if is_text(path) else _read_parquet(path, keep)
        )
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
    if not is_text(path):
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
    """Names of the columns of a table file, without reading its rows."""
    path = Path(path)
    if is_text(path):
        return tuple(name.strip() for name in sniff(path).header if name.strip())
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return tuple(pq.read_schema(path).names)
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} is not a Parquet file: {_one_line(error)}") from None


def is_text(path: Path) -> bool:
    """Whether a table file is text, not Parquet, by its name; fails unless it can be opened at all."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, expected a CSV, TSV or Parquet file")
    if not path.exists():
        raise InputError(f"no file at {path}")
    name = path.name.lower()
    text = name.removesuffix(".gz").endswith(TEXT_SUFFIXES)
    if not text and not name.endswith(PARQUET_SUFFIXES):
        sheet = name.endswith((".xlsx", ".xls", ".ods"))
        raise InputError(
            f"cannot tell what {path} holds from its name: expected .csv, .tsv, .txt (or these with "
            f".gz) or .parquet.{' Save the sheet as CSV first.' if sheet else ''}"
        )
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty")
    return text


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
        raise InputError(f"{path} is a zip or Excel file, not text: save the sheet as CSV first")
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


def _check_duplicates(names: list[str], path: Path) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{path} has more than one column named {', '.join(map(repr, twice))}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
