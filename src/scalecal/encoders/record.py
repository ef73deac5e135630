"""One frozen record per encoder: where it comes from, what it is, how images enter it.

Preprocessing has the arithmetic of torchvision's ``Resize``, ``CenterCrop``, ``ToTensor`` and
``Normalize`` on PIL images, which is what the publishers used. Every record has a crop, so that an
image of any shape gives a square: a ``Resize(224)`` alone turns 700 x 460 into 340 x 224, on which
most vision transformers fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import InputError, check_choice, check_positive_int

if TYPE_CHECKING:
    from PIL.Image import Image

Triple = tuple[float, float, float]

IMAGENET: tuple[Triple, Triple] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP: tuple[Triple, Triple] = (
    (0.48145466, 0.4578275, 0.40821073),
    (0.26862954, 0.26130258, 0.27577711),
)
HALF: tuple[Triple, Triple] = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

INTERPOLATIONS = ("bilinear", "bicubic")
RESIZE_MODES = ("shortest", "squash")


@dataclass(frozen=True)
class Preprocessing:
    """Resize, centre crop, divide by 255, normalise.

    Parameters
    ----------
    resize : int
        Length of the shorter edge after resizing (``"shortest"``), or of both (``"squash"``).
    crop : int
        Edge of the central square that is kept; the encoder's input size.
    interpolation : {"bilinear", "bicubic"}
        Filter of the resize, always with antialiasing, as PIL does it.
    mean, std : three floats each
        Per channel, on the scale where white is 1.
    resize_mode : {"shortest", "squash"}
        ``"shortest"`` keeps the shape of the image and crops; ``"squash"`` resizes to exactly
        ``resize`` x ``resize``, as the paper does with BreakHis.

    Examples
    --------
    >>> uni = Preprocessing(resize=224, crop=224, interpolation="bilinear")
    >>> uni.resized_size(460, 700), uni.crop_corner(224, 340)
    ((224, 340), (0, 58))
    """

    resize: int
    crop: int
    interpolation: str
    mean: Triple = IMAGENET[0]
    std: Triple = IMAGENET[1]
    resize_mode: str = "shortest"

    def __post_init__(self) -> None:
        check_positive_int(self.resize, "resize")
        check_positive_int(self.crop, "crop")
        check_choice(self.interpolation, INTERPOLATIONS, "interpolation")
        check_choice(self.resize_mode, RESIZE_MODES, "resize_mode")
        if self.crop > self.resize:
            raise InputError(f"crop must not exceed resize, got {self.crop} > {self.resize}")
        for name in ("mean", "std"):
            values = tuple(float(v) for v in getattr(self, name))
            if len(values) != 3 or not np.isfinite(values).all():
                raise InputError(f"{name} must be three finite numbers, got {getattr(self, name)}")
            object.__setattr__(self, name, values)
        if min(self.std) <= 0:
            raise InputError(f"std must be positive, got {self.std}")

    def resized_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after the resize, as torchvision rounds them."""
        if self.resize_mode == "squash":
            return self.resize, self.resize
        # The longer edge is truncated, not rounded: torchvision's rule.
        if height <= width:
            return self.resize, int(self.resize * width / height)
        return int(self.resize * height / width), self.resize

    def crop_corner(self, height: int, width: int) -> tuple[int, int]:
        """Top and left of the central crop in an image that has already been resized."""
        # Halves go to the even neighbour, as in torchvision's int(round(.)).
        return round((height - self.crop) / 2.0), round((width - self.crop) / 2.0)

    def pixels(self, image: Image) -> NDArray[np.uint8]:
        """Resize and crop a PIL image to uint8 pixels of shape (crop, crop, 3)."""
        from PIL.Image import Resampling

        rgb = image.convert("RGB")
        height, width = self.resized_size(rgb.height, rgb.width)
        if (height, width) != (rgb.height, rgb.width):
            filters = {"bilinear": Resampling.BILINEAR, "bicubic": Resampling.BICUBIC}
            rgb = rgb.resize((width, height), filters[self.interpolation])
        top, left = self.crop_corner(height, width)
        return np.asarray(rgb.crop((left, top, left + self.crop, top + self.crop)))


# Where the weights come from when the user names no file.
SOURCES = ("hub", "url", "file", "package", "transformers")
# How the last layer becomes one vector. "model": the network pools by itself.
POOLINGS = ("cls", "cls+mean", "mean", "attention", "projected", "model")


@dataclass(frozen=True)
class Encoder:
    """Everything needed to turn images into embeddings as an encoder's publisher intended.

    Parameters
    ----------
    name : str
        The name on the command line.
    dim : int
        Length of an embedding.
    architecture : str
        Name of a builder in `scalecal.encoders.architectures.ARCHITECTURES`.
    preprocess : Preprocessing
        Pinned here, since configurations on the Hub go stale.
    pooling : str
        How the last layer becomes one vector.
    source : str
        ``"hub"``, ``"url"`` or ``"package"`` (weights are fetched), ``"file"`` (the user
        brings them), ``"transformers"`` (that library loads the model).
    options : mapping
        Arguments of the builder.
    layout : str
        Name of the publisher's key layout in `scalecal.encoders.architectures.LAYOUTS`.
    hub_id, filenames, revision : str, tuple of str, str or None
        Repository, file names in order of preference, and commit. None: the main branch, no
        commit could be confirmed.
    url : str or None
        Address of the file where it does not live on the Hub.
    sha256 : str or None
        The file's hash, or its first digits, where known.
    licence, gated, page : str, bool, str
        Terms, whether they must be accepted first, and where.
    dtype : str
        Numbers the publisher runs it in; loading keeps float32 unless asked otherwise.
    paper : bool
        One of the eight encoders of the paper.
    remote_code : bool
        Whether loading runs Python code from the Hub; refused unless the user allows it.
    notes : str
        What a user should know.
    """

    name: str
    dim: int
    architecture: str
    preprocess: Preprocessing
    pooling: str
    source: str = "hub"
    options: Mapping[str, Any] = field(default_factory=dict)
    layout: str = "plain"
    hub_id: str | None = None
    filenames: tuple[str, ...] = ("model.safetensors", "pytorch_model.bin")
    revision: str | None = None
    url: str | None = None
    sha256: str | None = None
    licence: str = "unknown"
    gated: bool = False
    page: str = ""
    dtype: str = "float32"
    paper: bool = False
    remote_code: bool = False
    notes: str = ""

    def __post_init__(self) -> None:
        check_positive_int(self.dim, "dim")
        check_choice(self.pooling, POOLINGS, "pooling")
        check_choice(self.source, SOURCES, "source")

    def __hash__(self) -> int:
        return hash((self.name, self.architecture, self.hub_id, self.preprocess))

    @property
    def crop(self) -> int:
        """Input size in pixels."""
        return self.preprocess.crop

    def with_preprocessing(self, **changes: Any) -> Encoder:
        """Return the same encoder fed differently: the paper's CONCH at 224 px, or squashed images.

        Examples
        --------
        >>> from scalecal.encoders import ENCODERS
        >>> conch = ENCODERS["conch"].with_preprocessing(resize=224, crop=224)
        >>> conch.crop, conch.with_preprocessing(resize_mode="squash").preprocess.resize_mode
        (224, 'squash')
        """
        return replace(self, preprocess=replace(self.preprocess, **changes))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a manifest: what makes the embeddings what they are."""
        return asdict(self)
