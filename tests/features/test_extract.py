"""Extraction: the same bytes whatever happens on the way."""

from __future__ import annotations

import errno
import io
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from scalecal.checks import InputError
from scalecal.datasets import open_dataset
from scalecal.datasets.image_sets import ImageSet
from scalecal.encoders import get_encoder, load_encoder
from scalecal.features import import_features, load_features
from scalecal.features.extraction import (
    COMPILED_FROM,
    EncodingOptions,
    compiled,
    encode_shards,
    operations,
    out_of_memory,
    pick_compile,
    pick_device,
    pick_precision,
)
from scalecal.io import store as files
from scalecal.io.feature_store import StoreWriter
from scalecal.io.features import read_features
from scalecal.progress import Progress
from tests.encoders.published import pil_reference
from tests.features.made import (
    DEVICES,
    contents,
    open_tiles,
    reference,
    run,
    tiny_encoder,
    write_tiles,
)


@pytest.fixture(scope="module")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiles(tmp_path_factory.mktemp("kächeln"), 23, ((20, 20), (16, 16), (31, 18)))


def test_cases_come_back_from_the_folder(tiles: Path, tmp_path: Path) -> None:
    paths = open_tiles(tiles).cases.paths[:3]
    lines = [f"{path},{n},{n + 1},0,p{n},train" for n, path in enumerate(paths)]
    table = tmp_path / "t.csv"
    table.write_text("path,votes_b,votes_a,votes_c,group,split\n" + "\n".join(lines) + "\n")
    images = open_dataset(f"table:{table}", tiles)
    run(images, tmp_path / "f")
    cases = read_features(tmp_path / "f").cases
    assert cases.classes == images.classes == ("a", "b", "c")
    np.testing.assert_array_equal(cases.votes, images.cases.votes)
    np.testing.assert_array_equal(cases.y, images.cases.y)
    for name in ("groups", "split"):
        one, other = getattr(cases, name), getattr(images.cases, name)
        assert one.values.tolist() == other.values.tolist()
    assert cases.names.tolist() == images.cases.names.tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_embeddings_are_the_publishers(tiles: Path, tmp_path: Path, device: str) -> None:
    images = open_tiles(tiles)
    result = run(images, tmp_path / "f", device=device, dtype="float32")
    features = load_features(result.path, verify=True)
    assert (result.n, result.n_skipped) == (23, 0)
    np.testing.assert_allclose(np.asarray(features.X), reference(images), atol=2e-6)
    pd.testing.assert_frame_equal(features.table, images.table)
    assert features.classes == ["bösartig_é", "gutartig_ö"]
    assert features.encoder == "tiny"


@pytest.mark.parametrize("device", DEVICES)
def test_a_real_encoder_with_its_real_weights(tiles: Path, tmp_path: Path, device: str) -> None:
    """Many convolutions, so the weights go channels last; the embeddings stay the publisher's."""
    images = open_tiles(tiles).take(slice(0, 3))
    encoder = load_encoder(get_encoder("efficientnet-lite0"))
    pixels = [
        pil_reference(encoder.preprocess, Image.fromarray(images.read_one(row))) for row in range(3)
    ]
    expected = encoder.embed(torch.from_numpy(np.stack(pixels))).numpy()
    run(images, tmp_path / "f", "efficientnet-lite0", device=device, dtype="float32")
    features = load_features(tmp_path / "f")
    assert features.manifest["weight_hash"] == encoder.weight_hash
    np.testing.assert_allclose(np.asarray(features.X), expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_bytes_do_not_depend_on_workers(tiles: Path, tmp_path: Path, device: str) -> None:
    images = open_tiles(tiles)
    for workers in (1, 2, 5):
        run(images, tmp_path / str(workers), workers=workers, device=device)
    assert contents(tmp_path / "1") == contents(tmp_path / "2") == contents(tmp_path / "5")


@pytest.mark.parametrize("device", DEVICES)
def test_a_shard_is_a_pure_function_of_its_rows(tiles: Path, tmp_path: Path, device: str) -> None:
    images = open_tiles(tiles)
    run(images, tmp_path / "f", device=device, dtype="float32")
    features = load_features(tmp_path / "f")
    encoder = tiny_encoder()
    encoder.module.to(device)
    options = EncodingOptions(device, "fp32", 3)
    (alone,) = encode_shards(images, [(7, 14)], encoder, options, workers=1)
    np.testing.assert_array_equal(alone.features, features.X[7:14])
    assert alone.skipped == []


def make_pcam(folder: Path, n: int = 6) -> ImageSet:
    rng = np.random.default_rng(1)
    for split, count in (("train", n), ("valid", 3), ("test", 2)):
        stem = f"camelyonpatch_level_2_split_{split}"
        with h5py.File(folder / f"{stem}_x.h5", "w") as file:
            file["x"] = rng.integers(0, 256, (count, 96, 96, 3), dtype=np.uint8)
        with h5py.File(folder / f"{stem}_y.h5", "w") as file:
            file["y"] = (np.arange(count) % 2).reshape(-1, 1, 1, 1)
    return open_dataset("pcam", folder, partial=True)


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_are_read_in_blocks(tmp_path: Path, device: str) -> None:
    images = make_pcam(tmp_path)
    result = run(images, tmp_path / "f", device=device, dtype="float32")
    features = load_features(result.path)
    np.testing.assert_allclose(np.asarray(features.X), reference(images), atol=2e-6)
    assert features.table["split"].tolist() == ["train"] * 6 + ["val"] * 3 + ["test"] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_random_moments(tiles: Path, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    runs = 5
    done = subprocess.run(
        [sys.executable, "-m", "tests.features.killed_runs", str(tiles), str(tmp_path), str(runs)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= runs
    logs = [(tmp_path / f"killed{k}" / "run.log").read_text() for k in range(runs)]
    assert any("resumed" in log for log in logs)
    expected = contents(tmp_path / "whole")
    assert "table.parquet" in expected
    for k in range(runs):
        assert contents(tmp_path / f"killed{k}") == expected


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("moment", [0, 3, 7])
def test_interrupt_leaves_a_folder_that_goes_on(
    tiles: Path, tmp_path: Path, device: str, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = open_tiles(tiles)
    run(images, tmp_path / "whole", device=device)
    seen = 0

    def interrupt(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen > moment:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "advance", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(images, tmp_path / "parts", device=device)
    with pytest.raises(
        InputError, match=r"not finished.*: scalecal extract folder:DIR tiny --out "
    ):
        load_features(tmp_path / "parts")
    assert "interrupted" in (tmp_path / "parts" / "run.log").read_text()
    run(images, tmp_path / "parts", device=device)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_small_set_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a set of fewer images than the largest shard holds keeps what was done."""
    images = open_tiles(write_tiles(tmp_path / "tiles", 50))
    options: dict[str, Any] = {"shard_rows": None, "batch_size": 16, "workers": 1}
    run(images, tmp_path / "whole", **options)
    write = StoreWriter.write_shard

    def write_and_die(self: StoreWriter, shard: int, *rest: Any) -> None:
        if shard == 0:  # another thread may still hand in the next one
            write(self, shard, *rest)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "write_shard", write_and_die)
        with pytest.raises(KeyboardInterrupt):
            run(images, tmp_path / "parts", **options)
    encoder = tiny_encoder()
    run(images, tmp_path / "parts", encoder, **options)
    assert sum(shape[0] for shape in encoder.module.shapes) == 50 - 16
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("after", [0, 4])
def test_out_of_memory_halves_and_starts_over(
    tiles: Path, tmp_path: Path, device: str, after: int
) -> None:
    images = open_tiles(tiles)
    run(images, tmp_path / "small", device=device, batch_size=2)
    hungry = tiny_encoder(most=2, after=after)
    run(images, tmp_path / "f", hungry, device=device, batch_size=4, workers=1)
    assert contents(tmp_path / "f") == contents(tmp_path / "small")
    assert "restarted with {'batch_size': 2}" in (tmp_path / "f" / "run.log").read_text()


def test_out_of_memory_then_killed_then_resumed(
    tiles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = open_tiles(tiles)
    run(images, tmp_path / "small", batch_size=2)
    seen = 0

    def interrupt(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen > 6:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "advance", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(images, tmp_path / "f", tiny_encoder(most=2), batch_size=4)
    # The same command goes on with the batch that fits; another batch is another option.
    with pytest.raises(InputError, match="batch_size: 2 there, 3 here"):
        run(images, tmp_path / "f", batch_size=3)
    run(images, tmp_path / "f", batch_size=4)
    assert contents(tmp_path / "f") == contents(tmp_path / "small")


def test_batch_is_found_then_kept(tiles: Path, tmp_path: Path) -> None:
    images = open_tiles(tiles)
    run(images, tmp_path / "f", tiny_encoder(most=5), device="cpu:0", batch_size=None)
    assert load_features(tmp_path / "f").manifest["batch_size"] == 4
    # A finished folder is taken as it is, by a roomier card too.
    before = contents(tmp_path / "f")
    run(images, tmp_path / "f", device="cpu:0", batch_size=None)
    assert contents(tmp_path / "f") == before


def test_an_imported_folder_is_refused(tiles: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", X=np.eye(2))
    import_features(tmp_path / "f.npz", tmp_path / "f")
    with pytest.raises(
        InputError, match=r"of other images or settings \(encoder\.name: 'unknown' there"
    ):
        run(open_tiles(tiles), tmp_path / "f", batch_size=None)


def test_nothing_fits(tiles: Path, tmp_path: Path) -> None:
    for options in ({"device": "cpu:0", "batch_size": None}, {"device": "cpu", "batch_size": 2}):
        with pytest.raises(InputError, match="does not fit into the memory with a single image"):
            run(open_tiles(tiles), tmp_path / "f", tiny_encoder(most=0), **options)


def test_other_errors_are_not_taken_for_lack_of_memory() -> None:
    assert out_of_memory(MemoryError())
    assert out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"))
    assert out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not out_of_memory(ValueError("out of memory"))


def test_no_workers_are_refused_before_a_folder_is_begun(tiles: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="workers must be"):
        run(open_tiles(tiles), tmp_path / "f", workers=0)
    assert not (tmp_path / "f").exists()


def test_images_without_labels_are_for_prediction(tiles: Path, tmp_path: Path) -> None:
    table = tmp_path / "new.csv"
    paths = open_tiles(tiles).table["path"].tolist()
    pd.DataFrame({"path": paths}).to_csv(table, index=False)
    for classes in (None, ("HP", "SSA")):
        images = open_dataset(f"table:{table}", tiles, **({"classes": classes} if classes else {}))
        out = tmp_path / f"f{classes is None}"
        run(images, out)
        features = load_features(out)
        assert features.classes == (None if classes is None else list(classes))
        assert "label" not in features.table
        found = read_features(out)
        assert found.y is None
        with pytest.raises(InputError, match="there are no labels"):
            found.labelled()


@pytest.mark.parametrize("device", DEVICES)
def test_one_image(tmp_path: Path, device: str) -> None:
    images = open_tiles(write_tiles(tmp_path / "t", 2)).take(slice(0, 1))
    assert run(images, tmp_path / "f", device=device, batch_size=None).n == 1
    assert load_features(tmp_path / "f").X.shape == (1, 8)


def test_no_images(tiles: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no images"):
        run(open_tiles(tiles).take(slice(0, 0)), tmp_path / "f")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"encoder": tiny_encoder("other")}, r"encoder\.name: 'tiny' there, 'other' here"),
        ({"precision": "bf16"}, "precision: 'fp32' there, 'bf16' here"),
        ({"batch_size": 5}, "batch_size: 3 there, 5 here"),
        ({"dtype": "float32"}, "dtype"),
        ({"shard_rows": 5}, "shard_rows"),
        ({"device": "cpu:0"}, r"preprocessing\.by: 'pillow' there, 'torch' here"),
    ],
)
def test_another_option_is_refused_by_name(
    tiles: Path, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    images = open_tiles(tiles)
    run(images, tmp_path / "f")
    before = contents(tmp_path / "f")
    with pytest.raises(InputError, match=named):
        run(images, tmp_path / "f", **changes)
    assert contents(tmp_path / "f") == before


def test_another_data_set_is_refused_by_name(tiles: Path, tmp_path: Path) -> None:
    run(open_tiles(tiles), tmp_path / "f")
    with pytest.raises(InputError, match=r"dataset\.n_images: 23 there, 5 here"):
        run(open_tiles(write_tiles(tmp_path / "t", 5)), tmp_path / "f")


def test_full_disk_then_resumed(
    tiles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = open_tiles(tiles)
    run(images, tmp_path / "whole")
    real, calls = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(InputError, match="No space left on device"):
            run(images, tmp_path / "f")
    run(images, tmp_path / "f")
    assert contents(tmp_path / "f") == contents(tmp_path / "whole")


def test_compiled_networks_see_one_shape(
    tiles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scalecal.features.extraction.compiled", lambda module: module)
    images, encoder = open_tiles(tiles), tiny_encoder()
    run(images, tmp_path / "f", encoder, compile="on", dtype="float32")
    assert set(encoder.module.shapes) == {(3, 3, 16, 16)}
    found = np.asarray(load_features(tmp_path / "f").X)
    np.testing.assert_allclose(found, reference(images), atol=2e-6)


def test_wrong_output_shape_is_an_error(tiles: Path, tmp_path: Path) -> None:
    encoder = tiny_encoder()
    encoder.module.layer = torch.nn.Conv2d(3, 9, 4, stride=4)
    with pytest.raises(InputError, match=r"gave shape \(3, 9\) for 3 images"):
        run(open_tiles(tiles), tmp_path / "f", encoder)


def test_devices_and_precision() -> None:
    assert pick_device("cpu") == "cpu"
    with pytest.raises(InputError, match="device must be one of"):
        pick_device("toaster")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="not available here"):
            pick_device("cuda:1")
    assert pick_precision("auto", "cpu") == "fp32"
    assert pick_precision("bf16", "cpu") == "bf16"


def test_torch_settings_are_given_back(tiles: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads(), torch.backends.cudnn.allow_tf32
    run(open_tiles(tiles), tmp_path / "f", workers=2)
    assert (torch.get_num_threads(), torch.backends.cudnn.allow_tf32) == before


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_lines_and_bar() -> None:
    plain = io.StringIO()
    with Progress(100, 20, stream=plain, every=0.0) as bar:
        bar.advance(30)
        bar.restart()
        bar.advance(10)
    first, second = plain.getvalue().splitlines()
    assert first.startswith("50 of 100 images (50.0%), ")
    assert "images/s" in first
    assert second.startswith("10 of 100 images")
    screen = Terminal()
    with Progress(100, stream=screen) as bar:
        bar.advance(100)
    assert "100 of 100 images" in screen.getvalue()
    assert "images/s" in screen.getvalue()


def test_compiling_is_decided_by_operations_and_number_of_images(tmp_path: Path) -> None:
    encoder = tiny_encoder()
    # 4 x 4 places, 8 channels, 3 x 4 x 4 products each, two operations a product.
    assert operations(encoder) == 2 * 16 * 8 * 48
    assert not pick_compile("auto", encoder, 10**15), "never by itself on a CPU"
    card = replace(encoder, device="cuda")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scalecal.features.extraction.operations", lambda _: 1e9)
        enough = math.ceil(COMPILED_FROM / 1e9)
        decided = [pick_compile("auto", card, n) for n in (enough, enough - 1)]
        assert decided == [True, False]
        assert [pick_compile(word, card, enough) for word in ("on", "off")] == [True, False]
    with pytest.raises(InputError, match="compile"):
        run(open_tiles(write_tiles(tmp_path / "t", 2)), tmp_path / "f", compile="yes")


def test_a_later_run_compiles_as_the_first_did(
    tiles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scalecal.features.extraction.compiled", lambda module: module)
    images = open_tiles(tiles)
    run(images, tmp_path / "f", compile="on")
    whole = contents(tmp_path / "f")
    run(images, tmp_path / "f")
    assert contents(tmp_path / "f") == whole
    with pytest.raises(InputError, match="compile: True there, False here"):
        run(images, tmp_path / "f", compile="off")


def test_repeated_blocks_are_compiled_once_and_weights_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[torch.nn.Module] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **_: seen.append(self))

    class Block(torch.nn.Sequential):
        pass

    blocks = [Block(torch.nn.Linear(4, 4), Block(torch.nn.ReLU())) for _ in range(3)]
    network = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(*blocks))
    copied = compiled(network)
    assert seen == list(copied[1])
    assert not set(seen) & set(blocks)
    assert copied[1][0][0].weight is blocks[0][0].weight
    seen.clear()
    alone = compiled(torch.nn.Linear(2, 2))
    assert seen == [alone]
