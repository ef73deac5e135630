"""Hostile arrays: whatever a file declares, one clear sentence, and nothing outside it is opened."""

from __future__ import annotations

import io
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from scalecal.checks import InputError
from scalecal.features import import_features
from scalecal.io import arrays as stored
from scalecal.io.arrays import need_array, open_hdf5, open_npz
from scalecal.io.features import read_features

N, D = 12, 3
X = np.random.default_rng(0).normal(size=(N, D))
Y = np.arange(N) % 2


def npy(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array(content, array)
    return content.getvalue()


def header(shape: tuple[int, ...], descr: str = "<f8", data: bytes = b"") -> bytes:
    """An .npy file that declares a shape, whatever its data."""
    content = io.BytesIO()
    about = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(content, about)
    return content.getvalue() + data


def put(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def encrypted(path: Path) -> Path:
    put(path, {"X.npy": npy(X)})
    content = bytearray(path.read_bytes())
    for magic, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(magic) + place] |= 1
    path.write_bytes(content)
    return path


def claims(path: Path) -> Path:
    """An archive whose directory declares 4 GB, as the array inside does."""
    body = header((1 << 28, 2))
    put(path, {"X.npy": body})
    content = bytearray(path.read_bytes())
    size = (len(body) + (1 << 32) - (1 << 20)).to_bytes(4, "little")
    for magic, place in ((b"PK\x03\x04", 18), (b"PK\x01\x02", 20)):
        start = content.index(magic) + place
        content[start : start + 8] = size * 2
    path.write_bytes(content)
    return path


def plain(path: Path) -> Path:
    np.save(path.with_suffix(".npy"), X)
    return path.with_suffix(".npy").rename(path)


RECORD = np.zeros(N, dtype=[("a", "f8"), ("b", "f8")])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (plain, r"is one array \(\.npy\), expected .* np\.savez"),
        (encrypted, "cannot be read as an .npz file: .*encrypted"),
        (claims, "declares 4,293,918,.* bytes in a file of"),
        (lambda p: put(p, {"X.npy": header((1 << 41, 2))}), r"declares .* bytes, but has 0"),
        (lambda p: put(p, {"X.npy": header((-3, -4), data=bytes(96))}), "declares"),
        (lambda p: put(p, {"X.npy": npy(X)[:-8]}), "but has 280: it was cut short"),
        (lambda p: put(p, {"X.npy": b"not an array"}), "cannot be read as an .npz file"),
        (lambda p: put(p, {"X.npy": npy(X), "X": npy(X)}), "two arrays called 'X'"),
        (lambda p: put(p, {"X.npy": npy(X.astype(complex))}), "complex numbers.*X.real"),
        (lambda p: put(p, {"X.npy": npy(X.astype(np.longdouble))}), "plain numbers or text"),
        (lambda p: put(p, {"X.npy": npy(RECORD)}), "plain numbers or text"),
        (
            lambda p: put(p, {"X.npy": npy(X * 1e160)}),
            r"largest value of X is .*e\+160|too large for float16 \(.*e\+1\d\d\)",
        ),
        (
            lambda p: put(p, {"X.npy": npy(X), "id.npy": npy(np.array([b"\xff"] * N))}),
            "Invalid UTF8",
        ),
        (
            lambda p: put(p, {"X.npy": npy(X), "id.npy": header((N,), "<U1", b"\xff" * 4 * N)}),
            "cannot be read as an .npz file",
        ),
        (lambda p: os.mkfifo(p) or p, "is a named pipe, expected an .npz file"),
        (lambda p: p.symlink_to("nowhere") or p, "is a link to a file that is not there"),
    ],
)
def test_npz_files_that_cannot_be_used(
    tmp_path: Path, make: Callable[[Path], Path], says: str
) -> None:
    path = make(tmp_path / "f.npz")
    for read in (read_features, lambda p: import_features(p, tmp_path / "out")):
        with pytest.raises(InputError, match=says) as caught:
            read(path)
        assert len(str(caught.value)) < 500
    assert not (tmp_path / "out").exists()


def test_compressed_arrays_beyond_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALECAL_LIMITS", "memory=1e6")
    path = put(tmp_path / "f.npz", {"X.npy": npy(np.zeros((1000, 200)))}, zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match=r"'X': its size is .* SCALECAL_LIMITS=memory="):
        read_features(path)


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">f2"])
@pytest.mark.parametrize("mapped", [False, True])
def test_byte_order_and_names_without_ending_are_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, mapped: bool
) -> None:
    if mapped:
        monkeypatch.setattr(stored, "MAPPED_BYTES", 0)
    swapped = X.astype(dtype)
    ids = np.array([f"ä{i}" for i in range(N)])
    members = {
        "X": npy(np.asfortranarray(swapped)),
        "y.npy": npy(Y.astype(">i4")),
        "id": npy(np.array([name.encode() for name in ids])),
        "votes": npy(Y.astype(">i2")),
        "n_raters": npy(np.full(N, 3, dtype=">u2")),
    }
    found = read_features(put(tmp_path / "f.npz", members))
    assert found.X.dtype.isnative
    np.testing.assert_array_equal(found.X, swapped)
    np.testing.assert_array_equal(found.y, Y)
    assert list(found.cases.ids) == list(ids)


def test_a_mapped_array_is_compared_with_its_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "MAPPED_BYTES", 0)
    path = put(tmp_path / "f.npz", {"X.npy": npy(X)})
    content = bytearray(path.read_bytes())
    content[content.index(X.tobytes()) + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="CRC"), open_npz(path) as archive:
        archive.read("X")


# HDF5


def external_link(file: Any, folder: Path) -> None:
    os.mkfifo(folder / "pipe")  # opening it would wait for ever
    file["features"] = h5py.ExternalLink(str(folder / "pipe"), "features")


def external_storage(file: Any, folder: Path) -> None:
    (folder / "raw").write_bytes(bytes(96))
    file.create_dataset("features", (4, 3), "f8", external=[(str(folder / "raw"), 0, 96)])


def virtual(file: Any, folder: Path) -> None:
    layout = h5py.VirtualLayout((4, 3), "f8")
    layout[:] = h5py.VirtualSource(str(folder / "pipe"), "features", (4, 3))
    os.mkfifo(folder / "pipe")
    file.create_virtual_dataset("features", layout)


def soft_loop(file: Any, _: Path) -> None:
    file["features"] = h5py.SoftLink("/loop")
    file["loop"] = h5py.SoftLink("/features")


def far_too_many_rows(file: Any, _: Path) -> None:
    file.create_dataset("features", (10**9, 768), "f4", chunks=(64, 768), compression="gzip")
    file["features"][:64] = 1.0


def never_written(file: Any, _: Path) -> None:
    file.create_dataset("features", (10**9, 768), "f4")


def features_of(values: Any, coords: Any = None) -> Callable[[Any, Path], None]:
    def make(file: Any, _: Path) -> None:
        file["features"] = values
        if coords is not None:
            file["coords"] = coords

    return make


COORDS = np.arange(2 * N).reshape(N, 2)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (external_link, "/features is a link, which is not followed"),
        (external_storage, "lies in other files, which are not opened"),
        (virtual, "lies in other files, which are not opened"),
        (soft_loop, "/features is a link, which is not followed"),
        (far_too_many_rows, r"only 1 of its 15,625,000 chunks were written"),
        (never_written, r"only 0 of its 3,072,000,000,000 bytes were written"),
        (features_of(X, np.zeros((N, 3), dtype=int)), r"coords must be \(12, 2\).*got \(12, 3\)"),
        (features_of(X, np.full((N, 2), np.nan)), "coords must be finite"),
        (features_of(X[:0], COORDS[:0]), "holds no embeddings"),
        (features_of(X[:, :0], COORDS), r"features must be \(N, d\) or \(d,\), got \(12, 0\)"),
        (features_of(np.float64(1.0)), r"features must be .* got \(\)"),
        (features_of(h5py.Empty("f8")), "'features' is empty"),
        (features_of(X.astype(complex), COORDS), "complex numbers"),
        (features_of(RECORD, COORDS), "must hold plain numbers"),
        (features_of(["a", "b"]), "Python objects"),
        (features_of(X * 1e160, COORDS), r"too large for float16 \(.*e\+1\d\d\)"),
        (features_of(X * 1e-9, COORDS), "too small for float16.*--dtype float32"),
        (features_of(np.where(Y, np.nan, 1.0)[:, None] * X, COORDS), "'a_2_3' holds NaN"),
        (lambda f, _: f.create_group("features"), "no array 'features'. It has: features"),
    ],
)
def test_hdf5_files_that_cannot_be_used(
    tmp_path: Path, make: Callable[[Any, Path], None], says: str
) -> None:
    (tmp_path / "in").mkdir()
    with h5py.File(tmp_path / "in" / "a.h5", "w") as file:
        make(file, tmp_path)
    with pytest.raises(InputError, match=says) as caught:
        import_features(tmp_path / "in", tmp_path / "out")
    assert len(str(caught.value)) < 500
    assert not (tmp_path / "out").exists()


def test_compressed_hdf5_beyond_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("features", data=np.zeros((10_000, 1)), compression="gzip")
    monkeypatch.setenv("SCALECAL_LIMITS", "memory=1e6")
    with pytest.raises(
        InputError, match=r"memory for 10,000 cases is 2,560,000 bytes.*SCALECAL_LIMITS"
    ):
        import_features(tmp_path / "a.h5", tmp_path / "out")


def test_arrays_are_found_in_groups_and_not_through_links(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a/b/x"] = X
        file["linked"] = h5py.SoftLink("/a/b")
    with open_hdf5(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(need_array(file, "/a/b/x", tmp_path / "a.h5"), X)
        with pytest.raises(InputError, match="is a link"):
            need_array(file, "linked/x", tmp_path / "a.h5")
        with pytest.raises(InputError, match="no array 'a/b/x/y'"):
            need_array(file, "a/b/x/y", tmp_path / "a.h5")


@pytest.mark.parametrize("taken", [0, 8, 1 << 40])
def test_a_damaged_heap_is_refused_where_hdf5_would_search_for_ever(
    tmp_path: Path, taken: int
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["features"], file["coords"] = X, COORDS
        file["features"].attrs["encoder"] = "uni"
    assert import_features(path, tmp_path / "whole").encoder == "uni"
    content = bytearray(path.read_bytes())
    free = content.index(b"GCOL") + 16 + 16 + 8  # behind the header and the one text
    assert content[free : free + 2] == b"\0\0"
    content[free + 8 : free + 16] = taken.to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(InputError, match="a heap is damaged"):
        import_features(path, tmp_path / "out")


def test_virtual_arrays_are_refused_before_hdf5_opens_them(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((N, D), "f4")
        layout[:] = h5py.VirtualSource("other.h5", "features", (N, D))
        file.create_virtual_dataset("features", layout)
        file["plain"] = X
        places = [file.id.links.get_info(name).u for name in (b"features", b"plain")]
    assert [stored._is_virtual(path, place, 0) for place in places] == [True, False]
    content = path.read_bytes()
    start = content.index(b"features\0", content.index(b"other.h5\0"))
    # A list of files that is damaged: HDF5 2.0 may write beyond its memory where it opens the array.
    path.write_bytes(content[: start + 9] + b"\x61" * 40 + content[start + 49 :])
    with open_hdf5(path) as file, pytest.raises(InputError, match="lies in other files"):
        need_array(file, "features", path)


def test_pipes_are_not_opened_as_hdf5(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.h5")
    with pytest.raises(InputError, match="is a named pipe, expected an HDF5 file"):
        import_features(tmp_path, tmp_path / "out")


def damage(content: bytes, chance: random.Random) -> bytes:
    """Change, cut or insert a few bytes."""
    changed = bytearray(content)
    place = chance.randrange(min(len(content), chance.choice([256, 2048, 1 << 20])))
    match chance.randrange(4):
        case 0:
            del changed[place:]
        case 1:
            changed[place:place] = chance.randbytes(chance.randrange(1, 9))
        case 2:
            changed[place : place + 8] = chance.choice([b"\xff", b"\0"]) * 8
        case _:
            changed[place] ^= 1 << chance.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("ending", [".npz", ".h5"])
def test_damaged_files_are_read_or_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"f{ending}"
    if ending == ".npz":
        np.savez_compressed(path, X=X, y=Y, id=np.arange(N).astype(str))
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("features", data=X, chunks=(4, 3), compression="gzip")
            file["coords"] = COORDS
    whole, chance = path.read_bytes(), random.Random(0)
    for _ in range(150):
        path.write_bytes(damage(whole, chance))
        try:
            if ending == ".npz":
                read_features(path)
            else:
                with open_hdf5(path) as file:
                    for key in ("features", "coords"):
                        stored.read_hdf5(need_array(file, key, path), path)
        except InputError as error:
            assert str(path.name) in str(error)  # noqa: PT017
