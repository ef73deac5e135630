"""Ways to damage a valid input: bytes, cells of a table, and values of a JSON document."""

from __future__ import annotations

import copy
import csv
import gzip
import io
import json
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

TOKENS = (
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\x1f\x8b\x08",
    b"PK\x03\x04",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"PAR1",
    b"\x93NUMPY\x01\x00",
    b"\x89HDF\r\n\x1a\n",
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff\xe0",
    b"II*\x00",
    b"\r\n",
    b"\r",
    b"\n\n",
    b'"',
    b'"""',
    b",",
    b";",
    b"\t",
    b"'",
    b"nan",
    b"NaN",
    b"inf",
    b"-Infinity",
    b"1e999",
    b"-0",
    b"999999999999999999999",
    b"{}",
    b"[]",
    b"[" * 3000,
    b'{"a":' * 1200,
    b"null",
    b"true",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xe2\x80\xa8",
    b"\x1b[31m",
    b"\x85",
    b"../",
    b"A" * 70000,
)
"""Pieces that mean something to one reader or another."""

WORDS = (
    *("", " ", "nan", "NaN", "NA", "None", "null", "inf", "-inf", "1e999", "1e308", "1e-320", "-0"),
    *("0", "1", "-1", "2", "0.5", "1.5", "1,5", "1.000,5", "1e3", "0x10", "1_000", "１", "٣", "½"),
    *("9223372036854775808", "9" * 400, "1" + "0" * 30, "0.1" * 3, "+1", "1.", ".5", "--1", "1e"),
    *("true", "False", "TRUE", "yes", "a", "A", "train", "test", "val", "c0", "c1", "overall"),
    *("2024-01-01", "12:30", "50 %", "=1+1", "@x", "#N/A", "#REF!", "$5"),
    *(
        "\x00",
        "a\x00b",
        "\x1b[31mred\x1b[0m",
        "\r",
        "a\nb",
        "a\r\nb",
        "\t",
        "\x7f",
        "\x85",
        "\u2028",
    ),
    *("\u202eabc", "\ufeff", "é", "e\u0301", "\U0001f9ec", "ß" * 40, "\u200b", "\xa0", "\ud800"),
    *(
        '"',
        '""',
        "'",
        '"a,b"',
        "a,b",
        "a;b",
        "a\tb",
        "\\",
        "\\n",
        "<script>alert(1)</script>",
        "</td>",
    ),
    *("../x", "/etc/passwd", "C:\\x", "~", "a/b", ".", "..", "x" * 300, "y" * 5000),
    *(
        "id",
        "p",
        "label",
        "votes",
        "n_raters",
        "group",
        "stratum",
        "split",
        "path",
        "p_reader",
        "rho",
    ),
)
"""Cells and names that a reader may stumble over."""


def mutate_bytes(rng: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Damage bytes in one to four ways."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        data = rng.choice(_BYTES)(rng, data, others or (data,))
    return data


def _flip(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    out = bytearray(data)
    for _i in range(rng.choice((1, 1, 2, 8, 32))):
        if out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _set(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    out = bytearray(data)
    if out:
        out[rng.randrange(len(out))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(out)


def _number(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    kind = rng.choice("bhiq")
    size = struct.calcsize("<" + kind)
    most = (1 << (8 * size - 1)) - 1
    value = rng.choice(
        (0, -1, 1, most, -most - 1, most // 2, rng.randrange(-most, most), 100, 10000)
    )
    packed = struct.pack(rng.choice("<>") + kind, max(-most - 1, min(most, value)))
    at = rng.randrange(max(1, len(data) - size + 1))
    return data[:at] + packed + data[at + size :]


def _truncate(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = rng.choice((0, 1, 4, len(data) - 1, rng.randrange(len(data) + 1)))
    return data[: max(at, 0)]


def _delete(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    a, b = _span(rng, data)
    return data[:a] + data[b:]


def _duplicate(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    a, b = _span(rng, data)
    return data[:b] + data[a:b] * rng.choice((1, 1, 2, 5)) + data[b:]


def _insert(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = rng.choice((0, len(data), rng.randrange(len(data) + 1)))
    new = rng.choice((rng.choice(TOKENS), rng.randbytes(rng.choice((1, 4, 16)))))
    return data[:at] + new + data[at:]


def _overwrite(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    new = rng.choice(TOKENS)[:64]
    at = rng.randrange(len(data) + 1)
    return data[:at] + new + data[at + len(new) :]


def _splice(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _zero(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    a, b = _span(rng, data)
    return data[:a] + bytes((rng.choice((0, 0xFF)),)) * (b - a) + data[b:]


def _swap(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    a, b = _span(rng, data)
    return data[a:b] + data[:a] + data[b:]


def _span(rng: Random, data: bytes) -> tuple[int, int]:
    a = rng.randrange(len(data) + 1)
    return a, min(len(data), a + rng.choice((1, 2, 4, 16, 64, 512)))


_BYTES: tuple[Callable[[Random, bytes, Sequence[bytes]], bytes], ...] = (
    *(_flip, _flip, _set, _set, _number, _number, _truncate, _delete),
    *(_duplicate, _insert, _overwrite, _splice, _zero, _swap),
)


# Tables


Rows = list[list[str]]


def mutate_rows(rng: Random, rows: Rows) -> Rows:
    """Change cells, columns and the header of a table in one to four ways; rows[0] is the header."""
    rows = [list(row) for row in rows]
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        rows = rng.choice(_ROWS)(rng, rows) or [[]]
    return rows


def word(rng: Random) -> str:
    """An odd cell or name."""
    return (
        rng.choice(WORDS)
        if rng.random() < 0.9
        else repr(rng.uniform(-2, 2) * 10 ** rng.choice((0, 0, 5, 300)))
    )


def _cell(rng: Random, rows: Rows) -> Rows:
    row = rng.choice(rows[1:] or rows)
    if row:
        row[rng.randrange(len(row))] = word(rng)
    return rows


def _header(rng: Random, rows: Rows) -> Rows:
    if rows[0]:
        at = rng.randrange(len(rows[0]))
        rows[0][at] = rng.choice(
            (
                word(rng),
                rng.choice(rows[0]),
                rows[0][at] + word(rng),
                "p_" + word(rng),
                "votes_" + word(rng),
            )
        )
    return rows


def _column(rng: Random, rows: Rows) -> Rows:
    if rows[0]:
        at, new = rng.randrange(len(rows[0])), word(rng)
        for row in rows[1:]:
            if at < len(row):
                row[at] = new
    return rows


def _drop_column(rng: Random, rows: Rows) -> Rows:
    if rows[0]:
        at = rng.randrange(len(rows[0]))
        return [row[:at] + row[at + 1 :] for row in rows]
    return rows


def _add_column(rng: Random, rows: Rows) -> Rows:
    name, values = word(rng), [word(rng) for _ in range(3)]
    return [[*row, name if i == 0 else values[i % 3]] for i, row in enumerate(rows)]


def _double_column(rng: Random, rows: Rows) -> Rows:
    if rows[0]:
        at = rng.randrange(len(rows[0]))
        return [[*row, *row[at : at + 1]] for row in rows]
    return rows


def _swap_columns(rng: Random, rows: Rows) -> Rows:
    if rows[0]:
        a, b = rng.randrange(len(rows[0])), rng.randrange(len(rows[0]))
        rows[0][a], rows[0][b] = rows[0][b], rows[0][a]
    return rows


def _drop_rows(rng: Random, rows: Rows) -> Rows:
    keep = rng.choice((0, 1, 2, rng.randrange(len(rows) + 1)))
    return rows[:keep] if rng.random() < 0.7 else rows[keep:]


def _double_row(rng: Random, rows: Rows) -> Rows:
    at = rng.randrange(len(rows))
    return rows[:at] + [list(rows[at]) for _ in range(rng.choice((1, 1, 3)))] + rows[at:]


def _ragged(rng: Random, rows: Rows) -> Rows:
    row = rng.choice(rows)
    if rng.random() < 0.5 and row:
        row.pop()
    else:
        row.extend(word(rng) for _ in range(rng.choice((1, 2, 50))))
    return rows


def _blank_row(rng: Random, rows: Rows) -> Rows:
    at = rng.randrange(len(rows) + 1)
    return [*rows[:at], rng.choice(([], [""] * len(rows[0]), [" "])), *rows[at:]]


_ROWS: tuple[Callable[[Random, Rows], Rows], ...] = (
    *(_cell, _cell, _cell, _cell, _header, _header, _column, _column, _drop_column, _add_column),
    *(_double_column, _swap_columns, _drop_rows, _double_row, _ragged, _blank_row),
)

ENCODINGS = (
    *("utf-8", "utf-8", "utf-8", "utf-8", "utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16"),
    *("utf-16-le", "utf-16-be", "utf-32", "utf-7", "cp037", "shift_jis"),
)


def write_rows(rng: Random, rows: Rows) -> bytes:
    """Write a table as text, mostly as most programs do."""
    plain = rng.random() < 0.6
    ending = "\n" if plain else rng.choice(("\n", "\r\n", "\r", "\n\r", "\u2028", "\x0b"))
    separator = "," if plain else rng.choice((",", ";", "\t", "|", " ", ",", ":"))
    quoting = (
        csv.QUOTE_MINIMAL
        if plain
        else rng.choice((csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONE))
    )
    buffer = io.StringIO()
    if quoting == csv.QUOTE_NONE:
        buffer.write("".join(separator.join(row) + ending for row in rows))
    else:
        writer = csv.writer(buffer, delimiter=separator, quoting=quoting, lineterminator=ending)
        writer.writerows(rows)
    text = buffer.getvalue()
    if rng.random() < 0.05:
        text = text.rstrip("\r\n")
    return text.encode(
        "utf-8" if plain else rng.choice(ENCODINGS), "surrogatepass" if plain else "replace"
    )


def packed(rng: Random, data: bytes) -> bytes:
    """Pack by gzip, at times badly."""
    whole = gzip.compress(data, 1, mtime=0)
    if rng.random() < 0.3:
        return mutate_bytes(rng, whole)
    return whole + rng.choice((b"", b"", whole, b"x", whole[:10]))


# Documents


def mutate_document(rng: Random, document: Any) -> Any:
    """Change a JSON document in one to three ways, in place: values, keys, types, nesting."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = _place(rng, document)
        if holder is None:
            return odd_value(rng)
        rng.choice(_CHANGES)(rng, holder, key)
    return document


def write_document(rng: Random, document: Any) -> bytes:
    """Write a document as JSON, at times oddly."""
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 2)))
    form = rng.random()
    if form < 0.04:
        return mutate_bytes(rng, text.encode("utf-8", "surrogatepass"))
    if form < 0.06:
        return text.encode(rng.choice(ENCODINGS), "replace")
    if form < 0.07:
        depth = rng.choice((500, 3000, 60000))
        return ("[" * depth + rng.choice(("", "]" * depth))).encode()
    return text.encode("utf-8", "surrogatepass")


def odd_value(rng: Random, depth: int = 0) -> Any:
    """A JSON value of any type."""
    plain = (
        *(None, True, False, 0, 1, -1, 2, 3, 0.5, -0.5, 1.5, 1e308, -1e308, 1e-320, 1e160, 10**18),
        *(2**31, 2**63, -(2**63), 10**30, 10**400, float("nan"), float("inf"), -float("inf")),
        *(
            "",
            [],
            {},
            [[]],
            [None],
            {"": 1},
            [0.5],
            [0, 1],
            ["a", "b"],
            [[0.1, 0.9], [0.5]],
            [1, "a"],
        ),
    )
    kind = rng.random()
    if kind < 0.65 or depth > 2:
        return copy.deepcopy(rng.choice(plain))
    if kind < 0.85:
        return word(rng)
    if kind < 0.90:
        value: Any = odd_value(rng, 3)
        for _ in range(rng.choice((5, 50, 400))):
            value = [value] if rng.random() < 0.5 else {"a": value}
        return value
    if kind < 0.95:
        return [odd_value(rng, depth + 1) for _ in range(rng.choice((1, 2, 3, 40)))]
    return {word(rng): odd_value(rng, depth + 1) for _ in range(rng.choice((1, 2, 3)))}


def _place(rng: Random, document: Any) -> tuple[Any, Any]:
    """A random place in a document: what holds it, and its key there."""
    holder, key, here = None, None, document
    while isinstance(here, dict | list) and here:
        if holder is not None and rng.random() < 0.25:
            break
        keys = list(here) if isinstance(here, dict) else range(len(here))
        holder, key = here, rng.choice(keys)
        here = holder[key]
    return holder, key


def _replace(rng: Random, holder: Any, key: Any) -> None:
    holder[key] = odd_value(rng)


def _remove(_: Random, holder: Any, key: Any) -> None:
    del holder[key]


def _rename(rng: Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder[rng.choice((word(rng), str(key).upper(), f"{key}_"))] = holder.pop(key)


def _wrap(rng: Random, holder: Any, key: Any) -> None:
    holder[key] = rng.choice(([holder[key]], {"value": holder[key]}, str(holder[key])))


def _nudge(rng: Random, holder: Any, key: Any) -> None:
    value = holder[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        holder[key] = odd_value(rng)
    else:
        small = abs(value) < 1e100
        more = (value * 1e160, value / 2) if small else (0, 1)
        holder[key] = rng.choice((-value, value + 1, str(value), *more))


def _lengthen(rng: Random, holder: Any, key: Any) -> None:
    value = holder[key]
    if isinstance(value, list) and value:
        holder[key] = rng.choice((value[:-1], value + value[-1:], value * 2, value[::-1]))
    elif isinstance(value, str):
        holder[key] = rng.choice(
            (value * 2, value + "\n", value + "\x1b[2J", value[:-1], value * 500)
        )
    else:
        holder[key] = [value] * rng.choice((0, 2, 100))


def _add(rng: Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder[word(rng)] = odd_value(rng)
    else:
        holder.insert(key, odd_value(rng))


_CHANGES: tuple[Callable[[Random, Any, Any], None], ...] = (
    *(_replace, _replace, _replace, _remove, _remove, _rename, _wrap, _nudge, _lengthen, _add),
)
