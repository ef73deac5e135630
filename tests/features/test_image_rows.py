"""Decoding by processes: the pixels, the skipped rows and the errors of a single thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ImageFile

from scalecal.datasets.image_sets import ImageSet
from scalecal.datasets.image_sources import FileSource, ImageError
from scalecal.encoders import Preprocessing
from scalecal.features import extraction, image_rows
from scalecal.features.extraction import EncodingOptions, _gather, encode_shards
from scalecal.features.image_rows import DecodingProcess, LostProcess, Piece, RowPool, read_rows
from scalecal.io.feature_store import Skipped
from tests.features.made import open_tiles, tiny_encoder, write_tiles

pytestmark = pytest.mark.skipif(os.name != "posix", reason="decoding processes are POSIX's")
SIZES = ((20, 20), (20, 20), (31, 18))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    """23 tiles of two sizes, three of them broken, one unreadable by name."""
    folder = write_tiles(tmp_path_factory.mktemp("kächeln"), 23, SIZES)
    files = sorted(folder.rglob("*.png"))
    found = open_tiles(folder)
    files[3].write_bytes(files[3].read_bytes()[:200])
    files[9].write_bytes(b"")
    files[10].write_bytes(b"<html>not found</html>")
    files[17].unlink()
    return found


@pytest.fixture
def in_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DecodingProcess]]:
    """Give every thread a process of its own; give the processes that were made."""
    made: list[DecodingProcess] = []

    class Counted(DecodingProcess):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(image_rows, "_THREADS_SUFFICE", 0)
    monkeypatch.setattr(image_rows, "_ROWS_PER_PROCESS", 1)
    monkeypatch.setattr(image_rows, "DecodingProcess", Counted)
    yield made
    for process in made:
        assert not alive(process._process.pid)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def all_pieces(pool: RowPool, n: int, together: int = 4) -> tuple[list[Any], list[Skipped]]:
    futures = [pool.submit(a, min(a + together, n)) for a in range(0, n, together)]
    pieces = [future.result() for future in futures]
    return [i for p in pieces for i in p.images], [s for p in pieces for s in p.skipped]


@pytest.mark.parametrize("preprocess", [None, Preprocessing(16, 16, "bicubic")])
def test_processes_give_what_threads_give(
    images: ImageSet, in_processes: list[DecodingProcess], preprocess: Preprocessing | None
) -> None:
    expected = read_rows(images, 0, 23, preprocess, strict=False, resize=False)
    assert [s.row for s in expected.skipped] == [3, 9, 10, 17]
    with RowPool(images, 2, rows=23, preprocess=preprocess) as pool:
        found, skipped = all_pieces(pool, 23)
    assert in_processes
    assert skipped == expected.skipped
    assert len(found) == len(expected.images)
    for one, other in zip(found, expected.images, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("limit", [1, 1 << 31])
def test_embeddings_do_not_depend_on_who_decodes(
    images: ImageSet, monkeypatch: pytest.MonkeyPatch, limit: int, request: Any
) -> None:
    def embed(workers: int) -> tuple[np.ndarray, list[Skipped]]:
        options = EncodingOptions("cpu:0", "fp32", 5)
        ranges = [(0, 12), (12, 23)]
        shards = list(encode_shards(images, ranges, tiny_encoder(), options, workers=workers))
        return np.concatenate([s.features for s in shards]), [k for s in shards for k in s.skipped]

    expected, left_out = embed(1)
    request.getfixturevalue("in_processes")
    monkeypatch.setattr(extraction, "_BYTES_AHEAD", limit)
    monkeypatch.setattr(extraction, "_MAX_TOGETHER", 3)
    for workers in (1, 3):
        found, skipped = embed(workers)
        np.testing.assert_array_equal(found, expected)
        assert skipped == left_out


def test_strict_raises_the_first_error(
    images: ImageSet, in_processes: list[DecodingProcess]
) -> None:
    with pytest.raises(ImageError) as expected:
        read_rows(images, 0, 23, None, strict=True)
    options = EncodingOptions("cpu:0", "fp32", 5)
    with pytest.raises(ImageError) as found:
        list(encode_shards(images, [(0, 23)], tiny_encoder(), options, workers=2, strict=True))
    assert (found.value.name, found.value.reason) == (expected.value.name, expected.value.reason)
    assert in_processes


def test_a_run_left_in_the_middle_ends_its_processes(
    images: ImageSet, in_processes: list[DecodingProcess]
) -> None:
    options = EncodingOptions("cpu:0", "fp32", 2)
    run = encode_shards(images, [(0, 2), (2, 23)], tiny_encoder(), options, workers=2)
    next(run)
    assert any(alive(process._process.pid) for process in in_processes)
    run.close()


def test_a_lost_process_costs_speed_alone(
    images: ImageSet, in_processes: list[DecodingProcess]
) -> None:
    expected = read_rows(images, 0, 23, None, strict=False)
    with RowPool(images, 1, rows=23) as pool:
        all_pieces(pool, 4)
        os.kill(in_processes[0]._process.pid, signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match=r"ended with code -9; its share is decoded by a"):
            found, skipped = all_pieces(pool, 23)
    assert skipped == expected.skipped
    assert all(np.array_equal(a, b) for a, b in zip(found, expected.images, strict=True))


def test_a_process_that_cannot_start(
    images: ImageSet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(image_rows, "_THREADS_SUFFICE", 0)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with (
        RowPool(images, 1, rows=1000) as pool,
        pytest.warns(RuntimeWarning, match="could not be started"),
    ):
        found, _ = all_pieces(pool, 3)
    assert len(found) == 3


def test_few_rows_archives_and_unknown_sets_are_read_by_threads(images: ImageSet) -> None:
    assert image_rows._files(images, 16, 16 * 128) is images.source
    assert image_rows._files(images, 16, 16 * 128 - 1) is None
    assert image_rows._files(images, 4, 10**6) is None

    class Own:
        kind = "files"

    assert image_rows._files(Own(), 16, 10**6) is None  # type: ignore[arg-type]


def test_pillows_settings_reach_the_process(
    images: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = images.source
    assert isinstance(source, FileSource)
    cut = source.take(np.array([3]))
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    process = DecodingProcess(None, strict=False)
    pixels, unread = process.read(cut)
    process.close()
    assert unread == []
    np.testing.assert_array_equal(pixels[0], cut.read_one(0))


class Faulty:
    """A source whose reading fails in a way that has nothing to do with an image."""

    def __len__(self) -> int:
        return 1

    def read_one(self, _: int) -> Any:
        raise RuntimeError("out of memory")


def test_errors_of_the_program_are_raised_and_survived(images: ImageSet) -> None:
    process = DecodingProcess(None, strict=False)
    with pytest.raises(RuntimeError, match="out of memory"):
        process.read(Faulty())  # type: ignore[arg-type]
    pixels, _ = process.read(images.source.take(np.array([0])))
    np.testing.assert_array_equal(pixels[0], images.read_one(0))
    process.close()


class Talkative(FileSource):
    """A source whose reading prints, as a codec might."""

    def read_one(self, row: int) -> Any:
        print("libtoaster: warning: crumbs", flush=True)
        return super().read_one(row)


def test_what_a_library_prints_is_not_taken_for_pixels(images: ImageSet) -> None:
    assert isinstance(images.source, FileSource)
    process = DecodingProcess(None, strict=False)
    pixels, _ = process.read(Talkative(images.source.root, images.source.paths[:1]))
    np.testing.assert_array_equal(pixels[0], images.read_one(0))
    process.close()


def test_a_process_that_ends_at_its_start_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    process = DecodingProcess(None, strict=False)
    with pytest.raises(LostProcess, match="ended with code 1"):
        process.read(FileSource(Path("none"), ("a.png",)))


def test_neither_torch_nor_pandas_is_imported() -> None:
    code = (
        "import sys, scalecal.features.image_rows, scalecal.datasets.image_sources\n"
        "assert not {'torch', 'pandas', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_killed_caller_leaves_no_process() -> None:
    code = (
        "from scalecal.features.image_rows import DecodingProcess\n"
        "import time\n"
        "p = DecodingProcess(None, False)\n"
        "print(p._process.pid, flush=True)\n"
        "time.sleep(60)"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    pid = int(caller.stdout.readline())
    caller.kill()
    caller.wait()
    caller.stdout.close()
    end = time.monotonic() + 30
    while running(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not running(pid)


# No ``if __name__ == "__main__"``: a plain script must do.
INTERRUPTED = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background
from scalecal.datasets import open_dataset
from scalecal.features import image_rows
image_rows._THREADS_SUFFICE, image_rows._ROWS_PER_PROCESS = 0, 1
images = open_dataset("folder:" + sys.argv[1])
with image_rows.RowPool(images, 2, rows=23) as pool:
    for row in range(20):
        pool.submit(row, row + 1).result()
    print(*(process._process.pid for process in pool._processes), flush=True)
    while True:
        pool.submit(0, 3).result()
"""


def test_ctrl_c_ends_the_processes_without_a_word_from_them(images: ImageSet) -> None:
    assert isinstance(images.source, FileSource)
    caller = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(images.source.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert caller.stdout is not None
    pids = [int(word) for word in caller.stdout.readline().split()]
    time.sleep(0.3)
    os.killpg(caller.pid, signal.SIGINT)
    try:
        _, said = caller.communicate(timeout=60)
    finally:
        caller.kill()
    assert caller.returncode == -signal.SIGINT
    assert said.count("Traceback") == 1
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert pids
    assert not any(running(pid) for pid in pids)


def running(pid: int) -> bool:
    """Tell whether a process does anything still; an orphan may stay listed where nobody reaps it."""
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip() not in ("", "Z", "Zs", "Z+")


def made(*shapes: tuple[int, int]) -> list[np.ndarray]:
    return [np.full((*shape, 3), i, np.uint8) for i, shape in enumerate(shapes)]


@pytest.mark.parametrize(
    "sizes",
    [
        [[(2, 2), (2, 2)], [(2, 2)]],
        [[(2, 2), (2, 2)], [(3, 2), (2, 2)], [(3, 2)], [(2, 2)]],
        [[(2, 3), (2, 2)], [(2, 2)]],
        [[], [(2, 2)], [], [(4, 4), (4, 4)]],
        [[], []],
    ],
)
def test_gathered_batches_hold_every_image_once(sizes: list[list[tuple[int, int]]]) -> None:
    flat = made(*(size for piece in sizes for size in piece))
    rest = iter(flat)
    pieces: list[Piece] = []
    for piece in sizes:
        images = [next(rest) for _ in piece]
        same = len(piece) > 0 and len(set(piece)) == 1
        pieces.append(Piece(np.stack(images) if same else images, []))
    batch = _gather(pieces, len(flat) + 3, pin=False)
    assert batch.n == len(flat)
    assert len(batch.groups) == len({image.shape for image in flat})
    assert batch.nbytes == sum(image.nbytes for image in flat)
    seen: dict[int, np.ndarray] = {}
    for host, places in batch.groups:
        where = places.tolist()
        seen |= dict(zip(where, host.numpy(), strict=True))
    assert sorted(seen) == list(range(len(flat)))
    for place, image in enumerate(flat):
        np.testing.assert_array_equal(seen[place], image)


def test_pieces_are_let_go_of_while_a_batch_is_gathered() -> None:
    """What is held beside the batch itself is one piece, not all of them."""
    blocks: list[weakref.ref[Any]] = []
    most = 0

    class Counted(np.ndarray):
        pass

    def pieces() -> Iterator[Piece]:
        nonlocal most
        for _ in range(6):
            block = np.zeros((2, 4, 4, 3), np.uint8).view(Counted)
            blocks.append(weakref.ref(block))
            most = max(most, sum(held() is not None for held in blocks))
            yield Piece(block, [])
            del block

    _gather(pieces(), 12, pin=False)
    assert most <= 2


def test_large_images_are_read_one_batch_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = open_tiles(write_tiles(tmp_path, 8, ((16, 16),)))
    asked: list[int] = []
    submit = RowPool.submit
    monkeypatch.setattr(RowPool, "submit", lambda s, a, b: (asked.append(a), submit(s, a, b))[1])

    def ahead_after_two(limit: int) -> int:
        monkeypatch.setattr(extraction, "_BYTES_AHEAD", limit)
        asked.clear()
        incoming = extraction._host_batches(
            images, [(0, 8)], tiny_encoder(), EncodingOptions("cpu:0", "fp32", 1), 1, False, False
        )
        next(incoming), next(incoming)
        held = len(asked) - 2
        incoming.close()
        return held

    one = 16 * 16 * 3
    assert ahead_after_two(one) == 0
    assert ahead_after_two(2 * one) == 1
    assert ahead_after_two(1 << 31) == 2
