"""One image in, RGB uint8 out: against plain Pillow or arithmetic, and every refusal."""

from __future__ import annotations

import pickle
import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from scalecal.checks import InputError
from scalecal.datasets.image_sources import ImageError, decode_image
from tests.datasets.trees import picture


def encode(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def raw_png(width: int, height: int, depth: int, colour: int, rows: bytes, *more: bytes) -> bytes:
    """A PNG written by hand, for kinds that Pillow does not write."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    between = b"".join(chunk(m[:4], m[4:]) for m in more)
    body = chunk(b"IHDR", header) + between + chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


@pytest.mark.parametrize("form", ["PNG", "TIFF", "BMP"])
def test_lossless_formats_give_the_pixels_back(form: str) -> None:
    pixels = picture(3, 31, 17)
    out = decode_image(encode(Image.fromarray(pixels), form))
    assert out.dtype == np.uint8
    assert out.flags.writeable
    assert out.flags.c_contiguous
    np.testing.assert_array_equal(out, pixels)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_any_size_survives_png(width: int, height: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    np.testing.assert_array_equal(decode_image(encode(Image.fromarray(pixels), "PNG")), pixels)


def test_jpeg_is_decoded_in_full() -> None:
    data = encode(Image.fromarray(picture(4, 640, 480)), "JPEG", quality=80)
    reference = np.asarray(Image.open(BytesIO(data)).convert("RGB"))
    np.testing.assert_array_equal(decode_image(data), reference)


def test_content_decides_not_the_name(tmp_path) -> None:
    path = tmp_path / "really_a.png"
    path.write_bytes(encode(Image.fromarray(picture(5, 8, 8)), "BMP"))
    np.testing.assert_array_equal(decode_image(path), picture(5, 8, 8))


def test_grey_bilevel_and_palette_are_expanded() -> None:
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    out = decode_image(encode(Image.fromarray(grey), "PNG"))
    np.testing.assert_array_equal(out, np.repeat(grey[..., None], 3, axis=2))
    bits = Image.fromarray(grey > 100)
    np.testing.assert_array_equal(decode_image(encode(bits, "TIFF"))[..., 1], (grey > 100) * 255)
    colours = np.random.default_rng(0).integers(0, 256, (5, 3), dtype=np.uint8)
    index = np.arange(15, dtype=np.uint8).reshape(3, 5) % 5
    mapped = Image.new("P", (5, 3))
    mapped.putdata(index.ravel().tolist())
    mapped.putpalette(colours.ravel().tolist())
    for form in ("PNG", "BMP", "TIFF"):
        np.testing.assert_array_equal(decode_image(encode(mapped, form)), colours[index])


def on_white(colour: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    a = alpha[..., None] / 255.0
    return colour * a + 255.0 * (1.0 - a)


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_alpha_is_composited_on_white(form: str) -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (6, 7, 4), dtype=np.uint8)
    pixels[0, 0, 3], pixels[0, 1, 3] = 0, 255
    out = decode_image(encode(Image.fromarray(pixels), form))
    np.testing.assert_allclose(out, on_white(pixels[..., :3], pixels[..., 3]), atol=1.0)
    assert out[0, 0].tolist() == [255, 255, 255]
    assert out[0, 1].tolist() == pixels[0, 1, :3].tolist()


def test_grey_with_alpha_and_transparent_colours() -> None:
    rng = np.random.default_rng(2)
    grey = rng.integers(0, 256, (4, 5, 2), dtype=np.uint8)
    out = decode_image(encode(Image.fromarray(grey), "PNG"))
    expected = on_white(np.repeat(grey[..., :1], 3, axis=2), grey[..., 1])
    np.testing.assert_allclose(out, expected, atol=1.0)
    rgb = np.full((2, 2, 3), 10, dtype=np.uint8)
    rgb[0, 0] = (1, 2, 3)
    clear = decode_image(encode(Image.fromarray(rgb), "PNG", transparency=(1, 2, 3)))
    assert clear[0, 0].tolist() == [255, 255, 255]
    assert clear[1, 1].tolist() == [10, 10, 10]
    mapped = Image.new("P", (2, 1))
    mapped.putpalette([9, 9, 9, 50, 60, 70])
    mapped.putdata([0, 1])
    shown = decode_image(encode(mapped, "PNG", transparency=0))
    assert shown.tolist() == [[[255, 255, 255], [50, 60, 70]]]


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(form: str, orientation: int) -> None:
    upright = Image.fromarray(picture(6, 24, 16))
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(upright, form, exif=exif)
    # What each value means, from the EXIF standard: first row and first column of the stored picture.
    turn = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a, 1),
    }[orientation]
    stored = np.asarray(Image.open(BytesIO(encode(upright, form))).convert("RGB"))
    np.testing.assert_array_equal(decode_image(data), turn(stored))


def test_rotated_palette_keeps_its_colours() -> None:
    mapped = Image.new("P", (2, 1))
    mapped.putpalette([9, 9, 9, 50, 60, 70])
    mapped.putdata([0, 1])
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(mapped, "PNG", exif=exif)
    assert decode_image(data).tolist() == [[[9, 9, 9]], [[50, 60, 70]]]
    reference = ImageOps.exif_transpose(Image.open(BytesIO(data))).convert("RGB")
    np.testing.assert_array_equal(decode_image(data), np.asarray(reference))


@pytest.mark.parametrize(("colour", "channels"), [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_sixteen_bit_png_is_refused(colour: int, channels: int) -> None:
    rows = b"".join(b"\0" + bytes(range(2 * channels * 3)) for _ in range(2))
    with pytest.raises(ImageError, match="more than 8 bits a channel"):
        decode_image(raw_png(3, 2, 16, colour, rows))


def test_shallow_grey_png_is_taken() -> None:
    # Four pixels of two bits: 0, 1, 2, 3 stand for 0, 85, 170, 255.
    out = decode_image(raw_png(4, 1, 2, 0, b"\0" + bytes([0b00011011])))
    assert out[0, :, 0].tolist() == [0, 85, 170, 255]


@pytest.mark.parametrize(
    ("mode", "dtype"), [("I;16", np.uint16), ("I", np.int32), ("F", np.float32)]
)
def test_deep_tiff_is_refused(mode: str, dtype: type) -> None:
    image = Image.fromarray(np.ones((3, 3), dtype=dtype))
    assert image.mode == mode
    with pytest.raises(ImageError, match="more than 8 bits"):
        decode_image(encode(image, "TIFF"))


@pytest.mark.parametrize(("mode", "form"), [("CMYK", "JPEG"), ("CMYK", "TIFF"), ("LAB", "TIFF")])
def test_other_colour_spaces_are_refused(mode: str, form: str) -> None:
    with pytest.raises(ImageError, match="Convert it to RGB"):
        decode_image(encode(Image.new(mode, (4, 4)), form))


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_several_pages_are_refused(form: str) -> None:
    pages = [Image.fromarray(picture(i, 8, 8)) for i in range(3)]
    data = encode(pages[0], form, save_all=True, append_images=pages[1:])
    with pytest.raises(ImageError, match="3 pages or frames"):
        decode_image(data)


def test_camera_jpeg_with_a_preview_gives_its_main_picture() -> None:
    main, preview = Image.fromarray(picture(1, 40, 30)), Image.fromarray(picture(2, 8, 6))
    data = encode(main, "MPO", save_all=True, append_images=[preview])
    np.testing.assert_array_equal(decode_image(data), decode_image(encode(main, "JPEG")))


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "BMP"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.9])
def test_truncated_files_are_refused(form: str, share: float) -> None:
    noise = np.random.default_rng(3).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    data = encode(Image.fromarray(noise), form)
    with pytest.raises(ImageError, match=r"cannot read image x\.img: "):
        decode_image(data[: int(share * len(data))], name="x.img")


def test_flipped_bytes_never_pass_as_another_picture() -> None:
    noise = np.random.default_rng(4).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    data = encode(Image.fromarray(noise), "PNG")
    for place in range(45, len(data) - 20, 61):
        broken = bytearray(data)
        broken[place] ^= 0x21
        try:
            out = decode_image(bytes(broken))
        except ImageError:
            continue
        np.testing.assert_array_equal(out, noise)


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"BM"]),
)
@settings(max_examples=60, deadline=None)
def test_garbage_raises_nothing_but_image_error(data: bytes, start: bytes) -> None:
    with pytest.raises(ImageError):
        decode_image(start + data)


def test_not_an_image_and_not_there(tmp_path) -> None:
    with pytest.raises(ImageError, match="not a whole PNG, JPEG, TIFF or BMP"):
        decode_image(b"GIF89a and so on, long enough")
    with pytest.raises(ImageError, match="empty"):
        decode_image(b"")
    with pytest.raises(ImageError, match=r"gone\.png: no such file"):
        decode_image(tmp_path / "gone.png")
    with pytest.raises(ImageError):
        decode_image(tmp_path)


def test_too_many_pixels_are_refused_before_decoding(monkeypatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)
    data = encode(Image.fromarray(picture(1, 8, 8)), "PNG")
    with pytest.raises(ImageError, match="more pixels than the limit"):
        decode_image(data)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(ImageError, match="Cut whole-slide images into tiles"):
        decode_image(data)


def test_names(tmp_path) -> None:
    path = tmp_path / "größe 図.png"
    Image.fromarray(picture(2, 5, 4)).save(path)
    np.testing.assert_array_equal(decode_image(path), picture(2, 5, 4))
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(ImageError, match="größe 図"):
        decode_image(str(path))


def test_error_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(ImageError("a.png", "truncated")))
    assert isinstance(error, InputError)
    assert (error.name, error.reason) == ("a.png", "truncated")
    assert str(error) == "cannot read image a.png: truncated"
