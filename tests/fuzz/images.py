"""Images: damaged and odd files to the decoder, to `check`, and to the data sets' folders."""

from __future__ import annotations

import io
import struct
import zlib
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.engine import Case, Surface, command
from tests.fuzz.mutators import mutate_bytes, mutate_rows, write_rows

FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP")
MODES = ("RGB", "L", "1", "P", "RGBA", "LA", "CMYK", "I;16", "F", "YCbCr")


def _prepare(_: Path) -> dict[str, Any]:
    from PIL import Image

    rng = np.random.default_rng(0)
    made = {}
    for kind in FORMATS:
        for mode in MODES:
            pixels = Image.fromarray(rng.integers(0, 256, (9, 7, 3), dtype=np.uint8))
            buffer = io.BytesIO()
            try:
                pixels.convert("L" if mode == "I;16" else mode).save(buffer, kind)
            except (OSError, ValueError, KeyError):
                continue
            made[f"{kind} {mode}"] = buffer.getvalue()
    compressed = io.BytesIO()
    Image.new("RGB", (9, 7)).save(compressed, "TIFF", compression="tiff_lzw")
    made["TIFF lzw"] = compressed.getvalue()
    progressive = io.BytesIO()
    Image.new("RGB", (16, 16)).save(
        progressive, "JPEG", progressive=True, exif=b"Exif\0\0II*\0\x08\0\0\0\0\0"
    )
    made["JPEG progressive"] = progressive.getvalue()
    return {"raw": made, "names": list(made), "annotations": _annotations()}


def _annotations() -> list[list[str]]:
    header = [
        "Image Name",
        "Majority Vote Label",
        "Number of Annotators who Selected SSA (Out of 7)",
        "Partition",
    ]
    rows = [
        [f"MHIST_{i}.png", "SSA" if i % 2 else "HP", str(6 * (i % 2)), "test"] for i in range(3)
    ]
    return [header, *rows]


def _odd_image(rng: Random, seeds: Any) -> bytes:
    chance = rng.random()
    if chance < 0.75:
        data: bytes = seeds["raw"][rng.choice(seeds["names"])]
        return mutate_bytes(rng, data, list(seeds["raw"].values()))
    if chance < 0.9:
        return _png(rng)
    if chance < 0.95:
        return rng.randbytes(rng.choice((0, 1, 8, 100)))
    return rng.choice(
        (b"<svg/>", b"%PDF-1.4", b"II+\0", b"\0\0\1\0", b"", b"GIF89a", b"RIFF\0\0\0\0WEBP")
    )


def _png(rng: Random) -> bytes:
    """A PNG with sizes and chunks of one's own, all checksums right."""
    width, height = (rng.choice((0, 1, 2, 7, 100_000, 1_000_000, 2**31 - 1)) for _ in "wh")
    depth, colour = rng.choice(((8, 2), (8, 0), (16, 2), (1, 0), (8, 6), (3, 3), (8, 9)))
    head = struct.pack(
        ">IIBBBBB", width, height, depth, colour, rng.choice((0, 0, 1)), 0, rng.choice((0, 0, 1))
    )
    pixels = zlib.compress(bytes(rng.choice((0, 10, 200, 100_000))))
    parts = [(b"IHDR", head)]
    if rng.random() < 0.5:
        kind = rng.choice(
            (
                b"tEXt",
                b"zTXt",
                b"iTXt",
                b"iCCP",
                b"eXIf",
                b"tRNS",
                b"PLTE",
                b"acTL",
                b"fcTL",
                b"gAMA",
            )
        )
        body = rng.choice(
            (
                b"",
                b"a\0\0" + zlib.compress(bytes(3_000_000)),
                rng.randbytes(20),
                b"x" * 300,
                b"II*\0\x08\0\0\0\xff\xff",
            )
        )
        parts.append((kind, body))
    parts += [(b"IDAT", pixels)] * rng.choice((0, 1, 1, 2)) + [(b"IEND", b"")]
    rng.shuffle(parts) if rng.random() < 0.05 else None
    made = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + made


def _draw(rng: Random, seeds: Any, folder: Path) -> Case:
    from scalecal.datasets.image_sources import decode_image

    chance = rng.random()
    if chance < 0.04:
        return _draw_folder(rng, seeds, folder)
    if chance < 0.08:
        return _draw_mhist(rng, seeds, folder)
    file = folder / rng.choice(("given.png", "given.jpg", "given.tif", "given.bmp"))
    file.write_bytes(_odd_image(rng, seeds))
    return Case(lambda: decode_image(file), ("given",), file.suffix)


def _draw_folder(rng: Random, seeds: Any, folder: Path) -> Case:
    """A folder of classes with odd images, links and names in it."""
    place = folder / "given"
    good = seeds["raw"]["PNG RGB"]
    for label in ("a", "b", rng.choice(("c", ".hidden", "d e", "x\ny", "\x1b[1m"))):
        (place / label).mkdir(parents=True)
        (place / label / "good.png").write_bytes(good)
    file = (
        place
        / "a"
        / rng.choice(("odd.png", "odd.jpg", "od\nd.png", "\x1b[31m.png", "odd.PNG", "é.png"))
    )
    kind = rng.random()
    if kind < 0.6:
        file.write_bytes(_odd_image(rng, seeds))
    elif kind < 0.8:
        file.symlink_to(
            rng.choice(("nowhere", file.name, "..", "/dev/null", "good.png", "../../../x"))
        )
    else:
        file.mkdir()
    quick = ("--quick",) if rng.random() < 0.3 else ()
    return Case(partial(command, "check", f"folder:{place}", *quick), ("given",), "folder")


def _draw_mhist(rng: Random, seeds: Any, folder: Path) -> Case:
    place = folder / "given"
    (place / "images").mkdir(parents=True)
    for i in range(3):
        (place / "images" / f"MHIST_{i}.png").write_bytes(seeds["raw"]["PNG RGB"])
    rows = mutate_rows(rng, seeds["annotations"]) if rng.random() < 0.8 else seeds["annotations"]
    (place / "annotations.csv").write_bytes(write_rows(rng, rows))
    more = ("--quick",) if rng.random() < 0.5 else ()
    return Case(
        partial(command, "check", "mhist", "--data", place, "--partial", *more),
        ("given", "annotations.csv", "mhist"),
        "mhist",
    )


SURFACES = {"images": Surface("images", _prepare, _draw, share=4, tested=300)}
