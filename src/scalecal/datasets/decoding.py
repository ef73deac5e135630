"""Decode one image file to RGB uint8: what is taken, what is refused, and why.

The rules, which do not depend on the file's name:

========================  =====================================================================
PNG, JPEG, TIFF, BMP      recognised by content; anything else is refused
grey, bilevel, palette    expanded to RGB exactly
alpha, transparent colour composited on white, the colour of an empty slide
EXIF orientation          applied
16 or 32 bits a channel   refused: how to scale to 8 bits is a choice that belongs to the user
CMYK, Lab                 refused: the conversion needs a colour profile
several pages or frames   refused (a JPEG with an embedded preview gives its main picture)
too many pixels           refused above Pillow's limit against decompression bombs, or that of
                          ``SCALECAL_LIMITS=pixels=NUMBER``
truncated or corrupt      refused; no partly grey image is ever returned
========================  =====================================================================

JPEGs are decoded in full, never through the codec's own downscaling. Who switches on Pillow's
`LOAD_TRUNCATED_IMAGES` gets what Pillow makes of cut files.
"""

from __future__ import annotations

from io import BytesIO
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, library
from scalecal.io.boundary import failure
from scalecal.limits import LIMITS, limit

if TYPE_CHECKING:
    from PIL import Image as PillowImage

IMAGE_FORMATS = ("PNG", "JPEG", "TIFF", "BMP")
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".jpe", ".tif", ".tiff", ".bmp"})

_EIGHT_BIT_MODES = frozenset({"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "YCbCr"})
_ORIENTATION = 0x0112
_BITS_PER_SAMPLE = 258
_WHITE = (255, 255, 255, 255)

ImageFile = str | PathLike[str] | bytes


class ImageError(InputError):
    """One image cannot be used; `name` says which, `reason` why."""

    def __init__(self, name: str, reason: str) -> None:
        # Both go to args, so that the error survives the way back from a worker process.
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot read image {self.name}: {self.reason}"


def _pillow() -> Any:
    return library("PIL.Image", "reading images")


def _most_pixels() -> int | None:
    """Return how many pixels an image may have: the limit the user raised, else what Pillow is set to."""
    pillow = _pillow()
    if limit("pixels") != LIMITS["pixels"]:
        pillow.MAX_IMAGE_PIXELS = limit("pixels")  # Pillow refuses by itself above twice as many
    most: int | None = pillow.MAX_IMAGE_PIXELS
    return most


def _too_large(what: str, most: int | None) -> str:
    return (
        f"{what} more pixels than the limit against decompression bombs ({most:,}). "
        "Cut whole-slide images into tiles first, or raise it: SCALECAL_LIMITS=pixels=NUMBER"
    )


def check_resized(name: str, size: tuple[int, int], resized: tuple[int, int]) -> None:
    """Refuse an image whose resized form would have too many pixels; sizes are (height, width).

    Resizing the shorter edge to 224 makes 224 x 224,000,000 of 1 x 1,000,000 pixels.
    """
    most = _most_pixels()
    if most is not None and resized[0] * resized[1] > most:
        sizes = f"{size[1]:,} x {size[0]:,} pixels, resized to {resized[1]:,} x {resized[0]:,}"
        raise ImageError(name, _too_large(f"it has {sizes},", most))


def _open(file: ImageFile, name: str) -> PillowImage.Image:
    """Open the header only; every failure is an ImageError with a reason a person can act on."""
    pillow, most = _pillow(), _most_pixels()
    handle = BytesIO(file) if isinstance(file, bytes) else file
    try:
        image: PillowImage.Image = pillow.open(handle, formats=IMAGE_FORMATS)
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        raise ImageError(name, _too_large("it has", most)) from None
    except FileNotFoundError:
        raise ImageError(name, "no such file") from None
    except pillow.UnidentifiedImageError:
        raise ImageError(name, _why_unknown(file)) from None
    except Exception as error:  # parsers of broken files raise nearly every kind of error
        raise ImageError(name, failure(error)) from None
    if most is not None and image.width * image.height > most:
        image.close()
        raise ImageError(name, _too_large("it has", most))
    return image


def _why_unknown(file: ImageFile) -> str:
    if isinstance(file, bytes):
        start = file[:12]
    else:
        with open(file, "rb") as handle:
            start = handle.read(12)
    if not start:
        return "the file is empty"
    return (
        f"it is not a whole PNG, JPEG, TIFF or BMP image (it starts with {start!r}). "
        "Convert it, or copy it again if it was cut short"
    )


def _deep(image: PillowImage.Image) -> bool:
    """Whether the file holds more than 8 bits a channel; Pillow drops the low byte of some silently."""
    if image.mode.startswith(("I", "F")):
        return True
    if image.format == "TIFF":
        bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (8,))
        return bool(max(bits if isinstance(bits, tuple) else (bits,)) > 8)
    if image.format == "PNG":
        tiles = getattr(image, "tile", [])
        return any(";16" in str(tile[3]) for tile in tiles)
    return False


def _refuse(image: PillowImage.Image, name: str) -> None:
    if _deep(image):
        raise ImageError(
            name,
            "it has more than 8 bits a channel, and how to scale it is a choice. "
            "Convert it to 8 bits first",
        )
    if image.mode not in _EIGHT_BIT_MODES:
        raise ImageError(
            name, f"its colour space {image.mode} needs a colour profile. Convert it to RGB first"
        )
    if image.format in ("TIFF", "PNG"):
        frames = getattr(image, "n_frames", 1)
        if frames > 1:
            raise ImageError(
                name, f"it holds {frames} pages or frames. Save the one to use as a file of its own"
            )


def _to_rgb(image: PillowImage.Image) -> PillowImage.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if "transparency" in image.info or image.mode in ("LA", "La", "PA", "RGBA", "RGBa"):
        # Premultiplied alpha has no direct way to RGBA from grey: go through its straight form.
        straight = image.convert("LA") if image.mode == "La" else image
        front = straight.convert("RGBA")
        back = _pillow().new("RGBA", front.size, _WHITE)
        back.alpha_composite(front)
        image = back
    return image.convert("RGB")


def decode_image(file: ImageFile, *, name: str | None = None) -> NDArray[np.uint8]:
    """Decode an image to an (H, W, 3) uint8 array by the rules at the top of this module.

    Parameters
    ----------
    file : path or bytes
        What to decode.
    name : str, optional
        How messages call it; the path by default.

    Raises
    ------
    ImageError
        If the file is no whole image of a kind that can be taken exactly.

    Examples
    --------
    >>> from io import BytesIO
    >>> from PIL import Image
    >>> buffer = BytesIO()
    >>> Image.new("L", (3, 2), 7).save(buffer, "PNG")
    >>> decode_image(buffer.getvalue()).tolist()[0]
    [[7, 7, 7], [7, 7, 7], [7, 7, 7]]
    """
    if name is None:
        name = "(bytes)"
        if not isinstance(file, bytes):
            name = fspath(file)
    with _open(file, name) as image:
        try:
            _refuse(image, name)
            image.load()
            upright = image
            if image.getexif().get(_ORIENTATION, 1) != 1:
                from PIL import ImageOps

                upright = ImageOps.exif_transpose(image)
            # A copy, because the buffer Pillow lends is read-only and torch warns about those.
            return np.array(_to_rgb(upright), dtype=np.uint8)
        except ImageError:
            raise
        except Exception as error:  # as above: truncated data shows up as almost anything
            raise ImageError(name, failure(error)) from None
