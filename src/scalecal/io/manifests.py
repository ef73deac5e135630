"""What the manifest of a feature folder says, and whether the folder is as it says."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalecal.checks import InputError
from scalecal.io.shards import SHARDS
from scalecal.io.store import file_hash

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "FORMAT",
    "MANIFEST",
    "SKIPPED",
    "TABLE",
    "column_hash",
    "damaged_files",
    "differences",
    "holds_shards",
    "read_manifest",
]

FORMAT = "scalecal-features-1"
MANIFEST = "manifest.json"
TABLE = "table.parquet"
SKIPPED = "skipped.csv"


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the manifest of a feature folder, finished or not."""
    file = Path(path) / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"no features at {path}. Run: scalecal extract DATASET ENCODER --data DIR --out {path}"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {file}: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
        raise InputError(f"{file} is not a feature manifest: format is {found!r}, not {FORMAT!r}")
    return manifest


def differences(there: Any, here: Any, name: str = "") -> list[str]:
    """Name what differs between two nested settings.

    Examples
    --------
    >>> differences({"encoder": {"name": "uni", "dim": 1024}}, {"encoder": {"name": "uni", "dim": 512}})
    ['encoder.dim: 1024 there, 512 here']
    """
    if isinstance(there, dict) and isinstance(here, dict):
        found = []
        for key in [*there, *(k for k in here if k not in there)]:
            label = f"{name}.{key}" if name else str(key)
            found += differences(there.get(key), here.get(key), label)
        return found
    return [] if there == here else [f"{name}: {_short(there)} there, {_short(here)} here"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def holds_shards(path: str | os.PathLike[str]) -> bool:
    """Whether a feature folder holds any shard."""
    return any((Path(path) / SHARDS).glob("*.npy"))


def damaged_files(path: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Return the files of a finished folder that are missing or not what its manifest says."""
    damaged = []
    for entry in filter(None, [*manifest["shards"], manifest["table"], manifest["skipped"]]):
        file = path / entry["file"]
        # The size first: it is told at once, the hash takes a read of the whole file.
        if (
            not file.is_file()
            or file.stat().st_size != entry.get("bytes", file.stat().st_size)
            or file_hash(file) != entry["sha256"]
        ):
            damaged.append(str(entry["file"]))
    return damaged


def column_hash(column: pd.Series[Any]) -> str:
    """Return a sha256 of a column's values that depends on no library's file format.

    Examples
    --------
    >>> import pandas as pd
    >>> column_hash(pd.Series([1, 2])) == column_hash(pd.Series(["1", "2"]))
    False
    """
    values = column.to_numpy()
    if values.dtype.kind in "iufb":
        return hashlib.sha256(values.dtype.str.encode() + values.tobytes()).hexdigest()
    digest = hashlib.sha256(b"text")
    for value, missing in zip(values, column.isna(), strict=True):
        # A length before each value keeps ["ab", "c"] apart from ["a", "bc"].
        text = b"" if missing else str(value).encode()
        digest.update(b"-" if missing else len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()
