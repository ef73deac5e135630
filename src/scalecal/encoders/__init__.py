"""Encoders: frozen records of the published networks, and strict loading of their weights.

>>> from scalecal.encoders import get_encoder
>>> uni = get_encoder("uni")
>>> uni.dim, uni.crop, uni.gated
(1024, 224, True)
"""

from scalecal.encoders.loading import (
    LoadedEncoder,
    build_encoder,
    get_encoder,
    load_encoder,
    weights_here,
)
from scalecal.encoders.registry import (
    ENCODERS,
    PAPER_PREPROCESSING,
    Encoder,
    Preprocessing,
    paper_preprocessing,
)

__all__ = [
    "ENCODERS",
    "PAPER_PREPROCESSING",
    "Encoder",
    "LoadedEncoder",
    "Preprocessing",
    "build_encoder",
    "get_encoder",
    "load_encoder",
    "paper_preprocessing",
    "weights_here",
]
