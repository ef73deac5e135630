"""`import_features`: embeddings made elsewhere, brought into a feature folder and given their labels."""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, ScalecalWarning, check_choice, lookup
from scalecal.features.formats import FORMATS, format_of
from scalecal.io.columns import some
from scalecal.io.feature_folder import FeatureFolder, load_features
from scalecal.io.feature_store import open_store
from scalecal.io.store import file_hash
from scalecal.io.tables import read_table
from scalecal.io.votes_file import Panel, read_votes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MATCHES", "import_features"]

MATCHES = ("id", "group")


def import_features(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | None = None,
    votes: str | os.PathLike[str] | None = None,
    format: str | None = None,
    encoder: str | None = None,
    dataset: str | None = None,
    match: str = "id",
    shard_rows: int = 16384,
    dtype: str = "float16",
) -> FeatureFolder:
    """Bring embeddings made elsewhere into a feature folder.

    Parameters
    ----------
    path : path
        A file or folder in one of the formats of `scalecal.features.formats`.
    out : path
        The new feature folder.
    labels : path, optional
        A table with ``id`` and any of ``label``, ``group``, ``split``, ...; its columns take the
        place of those of the same name.
    votes : path, optional
        Votes as `scalecal.io.read_votes` takes them.
    format : {"npz", "table", "trident", "eva"}, optional
        By default told from the path: its ending, or what the folder holds.
    encoder : str, optional
        Name of the encoder, where the source does not tell it.
    dataset : str, optional
        Name of the data set, such as ``"mhist"``: embeddings of one set by several encoders belong
        together under it. By default the name of the file or folder.
    match : {"id", "group"}, default="id"
        What the ids of `labels` and `votes` name: rows, or groups of them (``"group"`` gives every
        patch what is known of its slide).
    shard_rows, dtype
        As in `extract`.

    Returns
    -------
    FeatureFolder

    Raises
    ------
    InputError
        If an embedding has no partner in `labels` or `votes`; they are named. Rows of those files
        without an embedding are left aside with a warning.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.savez(folder / "f.npz", X=np.eye(2), id=["a", "b"])
    >>> _ = (folder / "labels.csv").write_text("id,label\\na,HP\\nb,SSA\\n")
    >>> features = import_features(folder / "f.npz", folder / "out", labels=folder / "labels.csv",
    ...                            encoder="uni")
    >>> features.encoder, features.classes, features.table["label"].tolist()
    ('uni', ['HP', 'SSA'], [0, 1])
    """
    check_choice(match, MATCHES, "match")
    source = Path(path)
    if not source.exists():
        raise InputError(f"no file or folder at {source}")
    kind = format_of(source) if format is None else format
    found = lookup(kind, FORMATS, "format")(source)
    if found.table.empty:
        raise InputError(f"{source} holds no embeddings")
    table, classes = _with_truth(found.table, labels, votes, match, source.name)
    settings = {
        "encoder": {"name": encoder or found.encoder or "unknown"},
        "source": {"format": kind, "hash": _hash(found.files)},
        "dataset": {
            "name": dataset or source.name,
            "n_images": len(table),
            "classes": None if classes is None else list(classes),
        },
    }
    fresh = not Path(out).exists()
    try:
        with open_store(
            out, settings, table, dim=found.dim, shard_rows=shard_rows, dtype=dtype
        ) as store:
            for shard, start, stop in store.missing():
                store.write_shard(shard, found.read(start, stop))
            store.finish()
    except BaseException:
        if fresh:  # a part of an import is of no use: it is quickly done again
            shutil.rmtree(out, ignore_errors=True)
        raise
    return load_features(out)


def _hash(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0{file_hash(file)}\n".encode())
    return digest.hexdigest()


def _with_truth(
    table: pd.DataFrame,
    labels: str | os.PathLike[str] | None,
    votes: str | os.PathLike[str] | None,
    match: str,
    source: str,
) -> tuple[pd.DataFrame, tuple[str, ...] | None]:
    """Add labels and votes by id; return the table and the names of the classes."""
    if match == "group" and "group" not in table:
        raise InputError(f"{source} has no groups, so match must be 'id'")
    keys = table[match].astype(str).to_numpy(dtype=object)
    table = table.copy()
    if labels is not None:
        extra = read_table(Path(labels), text=["id"])
        if "id" not in extra:
            raise InputError(f"{labels} has no column 'id', only {some(list(extra))}")
        place = _partners(keys, extra["id"], source, Path(labels).name)
        for column in extra.columns:
            if column != "id":
                table[column] = extra[column].to_numpy()[place]
    classes = None
    if "label" in table:
        table["label"], classes = _coded(table["label"])
    if votes is not None:
        panel = read_votes(Path(votes))
        place = _partners(keys, panel.ids, source, Path(votes).name)
        classes = _add_votes(table, panel, place, classes, Path(votes).name)
    return table, classes


def _partners(keys: NDArray[Any], offered: Any, source: str, file: str) -> NDArray[np.int64]:
    """Return, for each key, its row in the other file; all must be there, each once."""
    import pandas as pd

    index = pd.Index(offered.astype(str), dtype=object)
    if index.has_duplicates:
        raise InputError(
            f"{file}: ids must be different, {index[index.duplicated()][0]!r} comes twice"
        )
    place = index.get_indexer(pd.Index(keys, dtype=object))
    lonely = list(dict.fromkeys(keys[place < 0]))
    if lonely:
        raise InputError(
            f"{len(lonely)} ids of {source} are not in {file}: {some(lonely, most=5)} "
            f"(there: {some(list(index))})"
        )
    unused = index[~np.isin(np.arange(len(index)), place)]
    if len(unused):
        warnings.warn(
            f"{len(unused)} ids of {file} have no embedding in {source} and were left aside: "
            f"{some(list(unused))}",
            ScalecalWarning,
            stacklevel=4,
        )
    return np.asarray(place, dtype=np.int64)


def _coded(label: pd.Series[Any]) -> tuple[pd.Series[Any], tuple[str, ...]]:
    """Return labels as class numbers, and the names of the classes: sorted, or the numbers."""
    import pandas as pd

    known = label.dropna()
    if pd.api.types.is_numeric_dtype(label.dtype):
        values = known.to_numpy(dtype=float)
        if (values != np.round(values)).any() or (values < 0).any():
            raise InputError("labels must be class names or whole numbers from 0")
        most = int(values.max()) if len(values) else 1
        return label.astype("Int64"), tuple(str(c) for c in range(max(most, 1) + 1))
    names = tuple(sorted({str(value) for value in known}))
    codes = label.map({name: code for code, name in enumerate(names)}, na_action="ignore")
    return codes.astype("Int64"), names


def _add_votes(
    table: pd.DataFrame,
    panel: Panel,
    place: NDArray[np.int64],
    classes: tuple[str, ...] | None,
    file: str,
) -> tuple[str, ...] | None:
    """Put counts into the table as an image set has them; return the classes."""
    counts = panel.counts[place]
    if panel.classes is None:
        if classes is not None and len(classes) != 2:
            raise InputError(f"{file} counts votes for one class, but there are {len(classes)}")
    else:
        known = panel.classes if classes is None else classes
        odd = [name for name in panel.classes if name not in known]
        if odd:
            raise InputError(
                f"{file} has votes for {some(odd)}, the labels are {some(known, most=8)}"
            )
        ordered = np.zeros((len(counts), len(known)), dtype=np.int64)
        ordered[:, [known.index(name) for name in panel.classes]] = counts
        counts, classes = ordered, known
    table["n_raters"] = counts.sum(axis=1)
    if counts.shape[1] == 2:
        table["votes"] = counts[:, 1]
    else:
        assert classes is not None
        for c, name in enumerate(classes):
            table[f"votes_{name}"] = counts[:, c]
    return classes
