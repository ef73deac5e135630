"""Images in: the decoder, under the name the extraction engine uses.

The decoder itself lives below, in `scalecal.datasets.decoding`, because data sets read images too and
imports go one way.
"""

from __future__ import annotations

from scalecal.datasets.decoding import (
    IMAGE_FORMATS,
    IMAGE_SUFFIXES,
    ImageError,
    decode_image,
    image_header,
)

__all__ = ["IMAGE_FORMATS", "IMAGE_SUFFIXES", "ImageError", "decode_image", "image_header"]
