"""Arrays: npz and npy, HDF5, TRIDENT's and eva's folders, safetensors."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.documents import make_probe
from tests.fuzz.engine import Case, Surface, command
from tests.fuzz.mutators import mutate_bytes, mutate_document, mutate_rows, word, write_rows

N = 8
_NAMES = ("given", "out", ".pt ", ".pt,", "features.npz")


def _call(
    rng: Random, path: Path, seeds: Path, out: Path, format: str | None = None
) -> Callable[[], object]:
    """A call that reads embeddings: mostly a reader, at times a command."""
    from scalecal.features.importing import FORMATS, format_of, import_features
    from scalecal.io.features import read_features

    chance = rng.random()
    named = () if format is None else ("--format", format)
    if chance < 0.02:
        return partial(command, "import", path, "--out", out, *named)
    if chance < 0.03:
        return partial(command, "predict", seeds / "probe", path, "--out", out / "p.csv")
    if chance < 0.06:
        return lambda: import_features(path, out, format=format)
    if path.suffix == ".npz" and chance < 0.7:
        return lambda: read_features(path, positive=rng.choice((None, "b")))

    def read() -> None:
        foreign = FORMATS[format or format_of(path)](path)
        foreign.read(0, min(4, len(foreign.table)))

    return read


# npz and npy


def _npz(arrays: dict[str, Any], *, pickled: bool = False) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(name if "." in name else f"{name}.npy", npy(array, pickled=pickled))
    return buffer.getvalue()


def npy(array: Any, *, pickled: bool = False) -> bytes:
    """An array as the bytes of an npy file."""
    buffer = io.BytesIO()
    np.save(buffer, np.asanyarray(array), allow_pickle=pickled)
    return buffer.getvalue()


def _arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "X": rng.normal(size=(N, 3)).astype(np.float32),
        "y": np.arange(N) % 2,
        "id": np.array([f"c{i}" for i in range(N)]),
        "votes": np.arange(N) % 2 * 3,
        "n_raters": np.full(N, 3),
        "group": np.array([f"g{i // 2}" for i in range(N)]),
        "split": np.array(["train", "val", "test", "train"] * 2),
    }


def _prepare_npz(folder: Path) -> dict[str, Any]:
    make_probe(folder / "probe")
    return {"folder": folder, "arrays": _arrays(), "raw": _npz(_arrays())}


def odd_values(rng: Random, n: int = N) -> Any:
    """An array of any type and shape."""
    made: tuple[Callable[[], Any], ...] = (
        lambda: np.zeros(
            (n, 3), rng.choice(("f2", ">f4", ">f8", "i1", "u8", ">i8", "?", "c8", "c16", "g"))
        ),
        lambda: np.zeros(
            rng.choice(((0, 3), (n, 0), (n,), (), (n, 3, 1), (1, n, 3), (n + 1, 3), (n, 1), (0,)))
        ),
        lambda: np.full((n, 3), rng.choice((np.nan, np.inf, 1e160, -1e300, 1e-320, 65505.0))),
        lambda: np.full(n, rng.choice((np.nan, np.inf, -1, 0.5, 2, 1e18, -0.0))),
        lambda: np.arange(n) % 3,
        lambda: np.array([word(rng).replace("\ud800", "?") for _ in range(n)]),
        lambda: np.array([b"a", b"b"] * (n // 2)),
        lambda: np.array([b"\xff\xfe"] * n),
        lambda: np.array(["a", "b"] * (n // 2)),
        lambda: np.array(["a" * 3000] * n),
        lambda: np.array([None, 1] * (n // 2), dtype=object),
        lambda: np.array(["2020-01-01"] * n, "M8[D]"),
        lambda: np.zeros(n, [("a", "f4"), ("b", "U3")]),
        lambda: np.zeros(n, "V4"),
        lambda: np.zeros(n, "m8[s]"),
        lambda: np.asfortranarray(np.zeros((n, 3))),
        lambda: np.zeros((n, 2), rng.choice(("i4", "U2", "S1"))),
        lambda: np.array(5),
        lambda: np.array("text"),
    )
    return rng.choice(made)()


def odd_header(rng: Random, data: bytes) -> bytes:
    """An npy file whose header says something else: type, order, shape."""
    text = rng.choice(
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000000, 3), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 3), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (8.0, 3), }",
            "{'descr': '<f4', 'fortran_order': 3, 'shape': (8, 3), }",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 8), }",
            "{'descr': '|O', 'fortran_order': False, 'shape': (8, 3), }",
            "{'descr': '<U1000000000', 'fortran_order': False, 'shape': (8,), }",
            "{'descr': '<f4', 'shape': (8, 3), }",
            "{'descr': [('a', '<f4'), ('a', '<f4')], 'fortran_order': False, 'shape': (8,), }",
            "{'descr': '<q9', 'fortran_order': False, 'shape': (8, 3), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 1000000000000), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 3, " + "1, " * 70 + "), }",
            "[" * 300,
            "__import__('os')",
            "",
        )
    ).encode()
    body = data[10 + struct.unpack("<H", data[8:10])[0] :]
    return (
        b"\x93NUMPY"
        + rng.choice((b"\x01\x00", b"\x02\x00", b"\x09\x00"))
        + struct.pack("<H", len(text) + 1)
        + text
        + b"\n"
        + body
    )


def odd_npz(rng: Random, raw: bytes) -> bytes:
    """Damage an npz: its bytes, a member, a header."""
    if rng.random() < 0.4:
        return mutate_bytes(rng, raw)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as archive, zipfile.ZipFile(out, "w") as new:
        names = archive.namelist()
        chosen = rng.choice(names)
        for name in names:
            data = archive.read(name)
            if name == chosen:
                change = rng.random()
                if change < 0.15:
                    continue
                if change < 0.4:
                    data = odd_header(rng, data)
                elif change < 0.7:
                    data = npy(odd_values(rng), pickled=True)
                else:
                    data = mutate_bytes(rng, data)
            new.writestr(name, data)
    return out.getvalue()


def _draw_npz(rng: Random, seeds: Any, folder: Path) -> Case:
    file = folder / rng.choice(
        ("given.npz", "given.npz", "given.npz", "given.npz", "given.npy", "given.NPZ")
    )
    chance = rng.random()
    if chance < 0.35:
        file.write_bytes(odd_npz(rng, seeds["raw"]))
    elif chance < 0.85:
        arrays = dict(seeds["arrays"])
        for _ in range(rng.choice((1, 1, 2))):
            name = rng.choice(("X", "X", *arrays)) if arrays else "X"
            what = rng.random()
            if what < 0.65:
                arrays[name] = odd_values(rng)
            elif what < 0.75:
                arrays.pop(name, None)
            elif what < 0.85:
                arrays[
                    rng.choice(
                        (
                            word(rng).replace("\ud800", "?").replace("\x00", "?"),
                            "embeddings",
                            "label",
                            "p",
                        )
                    )
                ] = odd_values(rng)
            else:
                arrays = {
                    rng.choice((k, f"{k}.bin", f"{k}.npy", f"a/{k}")): v for k, v in arrays.items()
                }
        file.write_bytes(_npz(arrays, pickled=True))
        if rng.random() < 0.1:
            _encrypt(file)
    else:
        data = npy(odd_values(rng), pickled=True)
        file.write_bytes(odd_header(rng, data) if rng.random() < 0.3 else data)
    return Case(_call(rng, file, seeds["folder"], folder / "out"), _NAMES, file.name)


def _encrypt(file: Path) -> None:
    """Mark all members of an archive as encrypted."""
    data = bytearray(file.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.find(mark)
        while place >= 0:
            data[place + at] |= 1
            place = data.find(mark, place + 4)
    file.write_bytes(bytes(data))


# HDF5, TRIDENT, eva


def _prepare_foreign(folder: Path) -> dict[str, Any]:
    import h5py
    import torch

    make_probe(folder / "probe")
    rng = np.random.default_rng(0)
    files = {}
    for name, shape in (("patches", (N, 3)), ("nested", (1, N, 3)), ("slide", (3,))):
        file = folder / f"{name}.h5"
        with h5py.File(file, "w") as handle:
            handle["features"] = rng.normal(size=shape).astype(np.float32)
            handle["features"].attrs["encoder"] = "uni"
            if name != "slide":
                handle["coords"] = np.arange(2 * N).reshape(N, 2)
        files[name] = file.read_bytes()
    tensors = {}
    for name, value in (
        ("one", torch.zeros(3)),
        ("rows", torch.zeros(2, 3)),
        ("list", [torch.zeros(3)] * 2),
    ):
        buffer = io.BytesIO()
        torch.save(value, buffer)
        tensors[name] = buffer.getvalue()
    manifest = [["origin", "embeddings", "target", "split", "wsi_id"]]
    manifest += [[f"c{i}", f"{i}.pt", str(i % 2), "train", "w"] for i in range(3)]
    images = folder / "images.h5"
    with h5py.File(images, "w") as handle:
        handle["x"] = np.zeros((4, 5, 5, 3), np.uint8)
    return {
        "folder": folder,
        "files": files,
        "tensors": tensors,
        "manifest": manifest,
        "images": images.read_bytes(),
    }


def _draw_foreign(rng: Random, seeds: Any, folder: Path) -> Case:
    chance = rng.random()
    if chance < 0.3:
        return _draw_eva(rng, seeds, folder)
    if chance < 0.4:
        return _draw_image_array(rng, seeds, folder)
    place = folder
    if rng.random() < 0.3:
        place = folder / rng.choice(("given", "given_features_uni", "given"))
        place.mkdir()
        for name in rng.choice((("patches",), ("patches", "slide"), ("patches", "nested"))):
            (place / f"{name}_given.h5").write_bytes(seeds["files"][name])
    file = place / rng.choice(("given.h5", "given.h5", "given.hdf5"))
    if chance < 0.65:
        data = list(seeds["files"].values())
        file.write_bytes(mutate_bytes(rng, rng.choice(data), data))
    else:
        _odd_hdf5(rng, file)
    path = file if place == folder else place
    return Case(_call(rng, path, seeds["folder"], folder / "out"), _NAMES, "trident")


def _declare(handle: Any, name: str, shape: tuple[int, ...], kind: str) -> None:
    """Add an array of any size without writing its values."""
    chunks = None if 0 in shape else tuple(min(s, 16) for s in shape)
    handle.create_dataset(name, shape, kind, chunks=chunks)


def _odd_hdf5(rng: Random, file: Path) -> None:
    import h5py

    def put(handle: Any, name: str, usual: Any) -> None:
        kind = rng.random()
        if kind < 0.35:
            handle[name] = usual
        elif kind < 0.5:
            value = odd_values(rng)
            try:
                handle[name] = value
            except (TypeError, ValueError):
                handle[name] = usual
        elif kind < 0.56:
            shape = rng.choice(
                ((10**9, 3), (10**12,), (1, 10**10, 2), (0, 3), (N, 0), (2**40, 2**20))
            )
            _declare(handle, name, shape, "f4")
        elif kind < 0.6:
            handle.create_group(name)
        elif kind < 0.64:
            handle[name] = h5py.SoftLink(rng.choice((f"/{name}", "/nowhere", "/", "/loop")))
        elif kind < 0.69:
            handle[name] = h5py.ExternalLink(
                rng.choice(("given.h5", "/etc/passwd", "other.h5")), f"/{name}"
            )
        elif kind < 0.73:
            layout = h5py.VirtualLayout((N, 3), "f4")
            layout[:] = h5py.VirtualSource("other.h5", "features", (N, 3))
            handle.create_virtual_dataset(name, layout)
        elif kind < 0.77:
            handle.create_dataset(name, (N, 3), "f4", external=[("/etc/hostname", 0, 96)])
        elif kind < 0.81:
            kind_of = rng.choice(
                (
                    h5py.string_dtype(),
                    h5py.vlen_dtype("f4"),
                    h5py.ref_dtype,
                    h5py.opaque_dtype("M8[s]"),
                )
            )
            handle.create_dataset(name, (N,), kind_of)
        elif kind < 0.85:
            handle.create_dataset(name, data=h5py.Empty("f4"))
        elif kind < 0.9:
            handle.create_dataset(
                name, data=usual, compression="gzip", maxshape=(None,) * np.ndim(usual)
            )
        elif kind < 0.95:
            handle[name] = np.asarray(usual)[..., :1].repeat(rng.choice((1, 3, 5)), axis=-1)

    with h5py.File(file, "w") as handle:
        put(handle, "features", np.zeros(rng.choice(((N, 3), (1, N, 3), (3,))), "f4"))
        put(handle, "coords", np.arange(2 * N).reshape(N, 2))
        link = handle.get("features", getlink=True) if "features" in set(handle) else None
        if isinstance(link, h5py.HardLink) and rng.random() < 0.4:
            value = rng.choice((5, "uni", b"\xff", [1.0, 2.0], "x" * 3000, "\x1b[31m", "a\nb"))
            handle["features"].attrs["encoder"] = value
        if rng.random() < 0.1:
            handle["loop"] = h5py.SoftLink("/loop")
            handle["again"] = handle["/"]
    if rng.random() < 0.1:
        file.write_bytes(mutate_bytes(rng, file.read_bytes()))


def _draw_eva(rng: Random, seeds: Any, folder: Path) -> Case:
    import torch

    place = folder / "given"
    place.mkdir()
    tensors = list(seeds["tensors"].values())
    for i in range(3):
        (place / f"{i}.pt").write_bytes(tensors[0])
    manifest = seeds["manifest"]
    chance = rng.random()
    if chance < 0.35:
        (place / "manifest.csv").write_bytes(write_rows(rng, mutate_rows(rng, manifest)))
    else:
        (place / "manifest.csv").write_text("".join(",".join(row) + "\n" for row in manifest))
        if chance < 0.65:
            (place / "0.pt").write_bytes(mutate_bytes(rng, rng.choice(tensors), tensors))
        else:
            odd = rng.choice(_odd_tensors_of_torch())
            torch.save(odd, place / "0.pt")
    return Case(_call(rng, place, seeds["folder"], folder / "out", "eva"), _NAMES, "eva")


def _odd_tensors_of_torch() -> tuple[Any, ...]:
    import torch

    zeros = torch.zeros
    return (
        *(zeros(0), zeros(0, 3), zeros(3, 0), torch.tensor(1.0), zeros(4), [], {}, "text", None),
        *({"a": zeros(3)}, [zeros(3), zeros(2)], [zeros(3), 1], ((zeros(3),),), zeros(1, 1, 1, 3)),
        *(
            zeros(3, dtype=kind)
            for kind in (torch.complex64, torch.bfloat16, torch.bool, torch.int8)
        ),
        *(zeros(3, 3).to_sparse(), torch.full((3,), float("nan")), zeros(3, requires_grad=True)),
        *(zeros(1).expand(10**9), zeros(3, device="meta"), torch.nn.Parameter(zeros(3))),
        torch.quantize_per_tensor(zeros(3), 0.1, 0, torch.qint8),
    )


def _draw_image_array(rng: Random, seeds: Any, folder: Path) -> Case:
    import h5py

    from scalecal.datasets import open_dataset

    file = folder / "given.h5"
    if rng.random() < 0.5:
        file.write_bytes(mutate_bytes(rng, seeds["images"]))
    else:
        with h5py.File(file, "w") as handle:
            shape = rng.choice(
                (
                    (4, 5, 5, 3),
                    (4, 5, 5),
                    (4, 5, 5, 1),
                    (0, 5, 5, 3),
                    (4,),
                    (10**9, 5, 5, 3),
                    (4, 0, 5, 3),
                )
            )
            kind = rng.choice(("u1", "u1", "f4", "i8", "S3", "c8"))
            _declare(handle, rng.choice(("x", "x", "x", "y")), shape, kind)
    rows = rng.choice(
        (
            "0,1,2,3",
            "0,0,1,1",
            "0,1,2,99",
            "-1,0,1,2",
            "0,1.5,2,3",
            "a,b,c,d",
            "0,1,2,999999999999999999999",
        )
    )
    table = folder / "given.csv"
    table.write_text(
        "path,row,label\n"
        + "".join(f"given.h5,{r},{i % 2}\n" for i, r in enumerate(rows.split(",")))
    )
    if rng.random() < 0.1:
        return Case(partial(command, "check", f"table:{table}"), _NAMES, "images in HDF5")

    def call() -> object:
        images = open_dataset(f"table:{table}")
        images.describe()
        return images.read_block(0, 1)

    return Case(call, _NAMES, "images in HDF5")


# safetensors


def _prepare_tensors(folder: Path) -> dict[str, Any]:
    probe = make_probe(folder / "probe")
    np.savez(folder / "features.npz", X=np.eye(3))
    return {
        "folder": folder,
        "raw": (probe / "probe.safetensors").read_bytes(),
        "about": (probe / "probe.json").read_bytes(),
    }


def _draw_tensors(rng: Random, seeds: Any, folder: Path) -> Case:
    place = folder / "given"
    place.mkdir()
    file = place / "probe.safetensors"
    (place / "probe.json").write_bytes(seeds["about"])
    file.write_bytes(_odd_tensors(rng, seeds["raw"]))
    if rng.random() < 0.2:
        from scalecal.encoders.loading import read_state_dict

        return Case(lambda: read_state_dict(file), _NAMES, "weights")
    from tests.fuzz.documents import load_probe_call

    return Case(load_probe_call(rng, place, seeds["folder"], folder / "out"), _NAMES, "probe")


def _odd_tensors(rng: Random, raw: bytes) -> bytes:
    """Damage a safetensors file: its bytes, its header, or its arrays."""
    from safetensors.numpy import load, save

    chance = rng.random()
    if chance < 0.35:
        return mutate_bytes(rng, raw)
    size = struct.unpack("<Q", raw[:8])[0]
    if chance < 0.65:
        header = json.dumps(mutate_document(rng, json.loads(raw[8 : 8 + size]))).encode()
        length = rng.choice((len(header),) * 6 + (len(header) + 1, 0, 2**40, len(header) - 1))
        return struct.pack("<Q", length) + header + raw[8 + size :]
    arrays = dict(sorted(load(raw).items()))
    name = rng.choice(list(arrays))
    value = odd_values(rng)
    change = rng.random()
    if change < 0.15:
        del arrays[name]
    elif change < 0.3:
        arrays[rng.choice(("anchors_0", "extra", "", "coef_" * 50))] = arrays[name]
    elif change < 0.6:
        shape = arrays[name].shape
        arrays[name] = np.zeros(
            rng.choice((shape[::-1], (*shape, 1), (5,), (), (0,), (2, 3), (3, 3), (1, 3)))
        )
    else:
        odd = rng.choice((np.nan, np.inf, 1e160, 1e308, -1e300))
        arrays[name] = (
            np.full_like(arrays[name], odd) if value.dtype.kind in "f" and change < 0.8 else value
        )
    try:
        return bytes(save({k: np.ascontiguousarray(v) for k, v in arrays.items()}))
    except Exception:  # a type that the format does not have
        return raw[: len(raw) // 2]


SURFACES = {
    "npz": Surface("npz, npy", _prepare_npz, _draw_npz, share=4, tested=300),
    "foreign": Surface("HDF5, TRIDENT, eva", _prepare_foreign, _draw_foreign, share=2, tested=250),
    "safetensors": Surface("safetensors", _prepare_tensors, _draw_tensors, share=2, tested=200),
}
