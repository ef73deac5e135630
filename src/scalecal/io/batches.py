"""A table file a piece at a time: rows that would not fit into memory together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from scalecal.checks import InputError
from scalecal.io.columns import NamedColumns, name_columns
from scalecal.io.tables import BLOCK_BYTES, PARQUET_SUFFIXES, column_names, sniff

__all__ = ["iterate_columns"]

BATCH_ROWS = 1 << 18
NUMBER_ROLES = ("p", "votes", "n_raters")


def iterate_columns(
    path: str | Path, columns: Mapping[str, str] | None, roles: tuple[str, ...]
) -> Iterator[NamedColumns]:
    """Yield the columns of a CSV, TSV or Parquet file that play one of `roles`, in pieces.

    As `open_columns`, except that a text file must be regular to the end: UTF-8, decimal points,
    and numbers where probabilities and votes are.
    """
    path = Path(path)
    names, wanted = name_columns(path, columns, roles)
    header = column_names(path)
    parquet = path.name.lower().endswith(PARQUET_SUFFIXES)
    pieces = _parquet(path, wanted) if parquet else _text(path, names, wanted)
    for table in pieces:
        if table.num_rows:
            yield NamedColumns(table, path.name, MappingProxyType(names), header)


def _parquet(path: Path, wanted: tuple[str, ...]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(wanted)):
            yield pa.Table.from_batches([batch])


def _text(path: Path, names: Mapping[str, str], wanted: tuple[str, ...]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    dialect = sniff(path)
    raw = {written.strip(): written for written in dialect.header}
    numbers = tuple(names[role] for role in NUMBER_ROLES)
    # Types are fixed beforehand: those of the first piece need not be those of the last.
    kinds = {
        raw[name]: pa.float64()
        if name in numbers or name.startswith(tuple(f"{n}_" for n in numbers))
        else pa.dictionary(pa.int32(), pa.string())
        for name in wanted
    }
    try:
        with (
            pa.input_stream(str(path), compression="detect") as stream,
            pacsv.open_csv(
                stream,
                read_options=pacsv.ReadOptions(encoding=dialect.encoding, block_size=BLOCK_BYTES),
                parse_options=pacsv.ParseOptions(
                    delimiter=dialect.separator, newlines_in_values=dialect.quoted
                ),
                convert_options=pacsv.ConvertOptions(
                    include_columns=list(kinds), column_types=kinds, strings_can_be_null=True
                ),
            ) as batches,
        ):
            for batch in batches:
                yield pa.Table.from_batches([batch]).rename_columns(list(wanted))
    except pa.ArrowInvalid as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path} cannot be read in pieces: {reason}. Mend the file, or read it whole "
            "(without --stream)."
        ) from None
