"""One frozen record per encoder: where it comes from, what it is, how images enter it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from scalecal.checks import check_choice, check_positive_int
from scalecal.encoders.preprocessing import Preprocessing, Triple

__all__ = ["DTYPES", "POOLINGS", "SOURCES", "Encoder"]

# Where the weights come from when the user names no file.
SOURCES = ("hub", "url", "file", "package", "transformers")
# How the last layer becomes one vector. "model": the network pools by itself.
POOLINGS = ("cls", "cls+mean", "mean", "attention", "projected", "model")
DTYPES = ("float32", "bfloat16", "float16")


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
        Name of the publisher's key layout in `scalecal.encoders.layouts.LAYOUTS`.
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
        check_choice(self.dtype, DTYPES, "dtype")
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    def __hash__(self) -> int:
        return hash((self.name, self.architecture, self.hub_id, self.preprocess))

    @property
    def filename(self) -> str | None:
        """The preferred file name of the weights, None where there is no such file."""
        return self.filenames[0] if self.filenames else None

    @property
    def resize(self) -> int:
        """Edge length after resizing."""
        return self.preprocess.resize

    @property
    def crop(self) -> int:
        """Input size in pixels."""
        return self.preprocess.crop

    @property
    def interpolation(self) -> str:
        """Filter of the resize."""
        return self.preprocess.interpolation

    @property
    def mean(self) -> Triple:
        """Channel means."""
        return self.preprocess.mean

    @property
    def std(self) -> Triple:
        """Channel standard deviations."""
        return self.preprocess.std

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

    def __getstate__(self) -> dict[str, Any]:
        # A read-only view cannot travel to worker processes, its content can.
        return {**self.__dict__, "options": dict(self.options)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        options = MappingProxyType(state["options"])
        self.__dict__.update({**state, "options": options})

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a manifest: what makes the embeddings what they are."""
        plain = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {
            **plain,
            "options": {k: list(v) if isinstance(v, tuple) else v for k, v in self.options.items()},
            "filenames": list(self.filenames),
            "preprocess": self.preprocess.as_dict(),
        }
