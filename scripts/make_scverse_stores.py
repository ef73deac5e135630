"""Make the stores that tests/features/test_scverse.py reads: AnnData and SpatialData, by anndata itself.

    python scripts/make_scverse_stores.py

Needs anndata and zarr. Run it in an environment of its own: anndata 0.12 is for pandas below 3, and
reading the stores needs no anndata. Archives, as hundreds of small files become a few KB.
"""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import zarr

STORES = Path(__file__).parents[1] / "tests/features/stores"


@contextmanager
def written_as(text: str, version: int) -> Iterator[None]:
    """Hold text as pandas 3 does ("strings") or as pandas 2 did ("objects"); write one version of Zarr."""
    with (
        pd.option_context("future.infer_string", text == "strings"),
        anndata.settings.override(
            allow_write_nullable_strings=text == "strings", zarr_write_format=version
        ),
    ):
        yield


def embeddings(n: int, dim: int = 4, start: int = 0) -> np.ndarray:
    return np.arange(start, start + n * dim, dtype=np.float32).reshape(n, dim)


def write_slide(path: Path, X: np.ndarray, version: int, whole: np.ndarray, *, twice: bool) -> None:
    """Write what wsidata and LazySlide do: tiles by number, features of the slide, a graph of the tiles."""
    numbers = np.arange(len(X))
    names = numbers.astype(str).astype(object)
    obs = pd.DataFrame(
        {"tile_id": numbers + 10, "library_id": pd.Categorical(["tiles"] * len(X))}, index=names
    )
    table = anndata.AnnData(X=X, obs=obs)
    attrs = {"region": "tiles", "region_key": "library_id", "instance_key": "tile_id"}
    table.uns["spatialdata_attrs"] = attrs
    table.uns["agg_ops"] = {"agg_slide": {"features": whole[None]}}
    if twice:  # where the length is that of the tiles, LazySlide keeps it twice
        table.varm["agg_slide"] = whole[:, None]
    group = zarr.open_group(path, mode="w", zarr_format=version)
    for name in ("images", "shapes", "tables"):
        group.create_group(name)
    table.write_zarr(path / "tables/uni_tiles")
    anndata.AnnData(obs=pd.DataFrame(index=names)).write_zarr(path / "tables/tiles_graph")


def labelled(text: str) -> anndata.AnnData:
    """Make a table with every kind of column; `test_scverse.py` has the same values."""
    missing = pd.NA if text == "strings" else ""
    obs = pd.DataFrame(
        {
            "label": pd.Categorical(["SSA", "HP", "SSA"]),
            "votes": pd.array([5, 1, 4], dtype="Int64"),
            "n_raters": [7, 7, 7],
            "group": ["p1", "p1", "p2"],
            "grade": pd.array([1, None, 3], dtype="Int16"),
            "seen": pd.array([True, None, False], dtype="boolean"),
            "site": pd.Categorical(["left", None, "right"]),
            "note": pd.Series(["ä", missing, "c"], dtype="string" if text == "strings" else object),
            "score": [0.5, np.nan, 2.0],
            "kept": [True, False, True],
        }
    ).set_axis(["fäll_1", "fäll_2", "0012"])
    table = anndata.AnnData(X=embeddings(3), obs=obs)
    table.uns["log1p"] = {"base": None}
    return table


def pack(store: Path, target: Path) -> None:
    """Write a store into an archive, without times and owners: the same store gives the same bytes."""
    with tarfile.open(target, "w:xz") as archive:
        for file in sorted(f for f in [store, *store.rglob("*")] if f.is_file()):
            info = tarfile.TarInfo(file.relative_to(store.parent).as_posix())
            info.size = file.stat().st_size
            with file.open("rb") as content:
                archive.addfile(info, content)


def main() -> None:
    STORES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder, whole = Path(name), embeddings(2, start=100)
        for version, text in ((2, "objects"), (3, "strings")):
            with written_as(text, version):
                slides = folder / f"slides_{version}"
                write_slide(slides / "a.zarr", embeddings(3), version, whole[0], twice=True)
                write_slide(
                    slides / "b.zarr", embeddings(5, start=50), version, whole[1], twice=False
                )
                table = labelled(text)
                as_categories = text == "objects"
                table.write_h5ad(
                    folder / f"dense_{text}.h5ad", convert_strings_to_categoricals=as_categories
                )
                table.write_zarr(
                    folder / f"dense_{text}.zarr", convert_strings_to_categoricals=as_categories
                )
        for store in sorted(folder.iterdir()):
            target = STORES / f"{store.name}.tar.xz"
            pack(store, target)
            print(f"{target.name:28}{target.stat().st_size:>8,} bytes")


if __name__ == "__main__":
    main()
