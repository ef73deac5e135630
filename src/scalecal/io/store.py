"""Output that is whole or absent, and never at the cost of a file scalecal did not write.

Every folder scalecal writes to holds ``.scalecal.json``: the name, sha256 and origin of each file
written there. A file is replaced or removed only if that record lists it with its present hash and the
same kind of command wrote it; anything else in the way is an error. Files are written under another
name, flushed to the disk and renamed, so that a file that is there is whole.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import reprlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import msgspec

from scalecal.checks import InputError
from scalecal.checks import as_utf8 as as_utf8
from scalecal.checks import plain as plain
from scalecal.io.boundary import SCHEMA, check_document, inside, read_document

if TYPE_CHECKING:
    import pandas as pd

RECORD = ".scalecal.json"
"""Name of the file that lists what scalecal wrote to a folder."""

Buffer = bytes | memoryview
Paths = Iterable[str | os.PathLike[str] | None]

_PARTIAL = ".scalecal-"
_LONGEST_NAME = 255  # bytes, on every common file system
_LOCK_SECONDS = 10.0
_DISK = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS),
    *(errno.EACCES, errno.EPERM, errno.EIO),
}
# Folders this process has locked for a run: its own commits there need no further lock.
_LOCKED: set[tuple[int, int]] = set()


# Single files


def write_bytes(path: str | Path, *parts: Buffer) -> None:
    """Write a file in one step: a reader sees the old file or the new one, whole."""
    path = Path(path)
    with disk_errors(path):
        with _partial(path.parent, Path.touch) as partial:
            _fill(partial, *parts)
            os.replace(partial, path)
        _sync_folder(path.parent)


def _fill(path: Path, *parts: Buffer) -> None:
    with path.open("wb") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file in one step; names of files that are not UTF-8 stand in it escaped."""
    write_bytes(path, as_utf8(text).encode("utf-8"))


def write_json(path: str | Path, obj: Any) -> None:
    """Write JSON that every reader takes: NaN and infinity become null, numpy becomes plain.

    Keys keep the order they came in, so the same object gives the same bytes. An object is a document of
    ours, and gets the number of its form (`as_document`).
    """
    if isinstance(obj, Mapping):
        obj = as_document(obj)
    write_text(path, json.dumps(plain(obj), indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def as_document(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of one of our JSON documents with ``schema``, the number of its form, in front.

    Examples
    --------
    >>> list(as_document({"kind": "audit"}))
    ['schema', 'kind']
    """
    return {"schema": SCHEMA} | {**content, "schema": SCHEMA}


def write_csv(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a frame as UTF-8 CSV with commas and without its index; undefined values are empty."""
    write_text(path, frame.to_csv(index=False, lineterminator="\n"))


def file_hash(path: str | Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


@contextmanager
def disk_errors(path: str | Path, *, only: set[int] | None = None) -> Iterator[None]:
    """Turn a full or read-only disk into one plain sentence; `only` names the errors meant."""
    try:
        yield
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        path = Path(path)
        # Of a temporary name, which is gone by now, the folder says more.
        path = next((p.parent for p in (path, *path.parents) if is_partial(p)), path)
        raise InputError(
            f"cannot write {path}: {error.strerror or error}. Files finished before are kept; "
            "free some space or make the folder writable, then run the same command again"
        ) from None


def set_aside(file: Path) -> None:
    """Give a file that is damaged or was edited another name, one that is free."""
    if file.exists():
        names = (f"{file.name}.damaged{'' if k == 1 else k}" for k in range(1, 1000))
        os.replace(file, next(file.with_name(n) for n in names if not file.with_name(n).exists()))


def sweep(folder: str | Path, *, below: bool = False) -> None:
    """Remove what killed processes left half-written in a folder, and with `below` in those below it."""
    names = f"{_PARTIAL}*.partial"
    for leftover in list(Path(folder).rglob(names) if below else Path(folder).glob(names)):
        try:
            lock = _lock(leftover)
        except OSError:  # of a process that is at work, or just removed
            continue
        if lock is not None:
            _remove(leftover)
            os.close(lock)


@contextmanager
def _partial(folder: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """Make a file or folder of a temporary name, removed at the end; whoever makes it holds its lock.

    So one that is not locked was left behind; see `sweep`.
    """
    while True:
        path = folder / f"{_PARTIAL}{os.getpid()}-{secrets.token_hex(4)}.partial"
        make(path)
        try:
            lock = _lock(path)
        except (BlockingIOError, FileNotFoundError):  # taken for left behind, before it was locked
            continue
        except OSError:
            _remove(path)
            raise
        if lock is None or path.exists():
            break
        os.close(lock)
    try:
        yield path
    finally:
        _remove(path)
        if lock is not None:
            os.close(lock)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def is_partial(path: Path) -> bool:
    """Whether a path is one of the temporary names of this module, or of the one of version 0.2."""
    if path.name == ".scalecal.lock":
        return True
    return path.name.startswith(_PARTIAL) and path.suffix == ".partial"


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut, where the system can (not on Windows)."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# Locks


def _lock(path: Path) -> int | None:
    """Lock a file or folder and return the handle to close; None if there are no locks.

    The lock goes with the process, however it ends. Raises BlockingIOError where another has it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:  # a file system without locks
        os.close(handle)
        return None
    return handle


@contextmanager
def lock_folder(folder: str | Path, *, seconds: float = 0.0) -> Iterator[None]:
    """Keep other processes from writing to a folder; the lock goes with the process, however it ends.

    A lock of a whole run (`seconds` of 0) is refused at once where another run holds the folder; a
    short one waits so long. File systems without locks have none.
    """
    folder = Path(folder)
    try:
        about = os.stat(folder)
    except OSError:  # it vanished: writing to it will say so
        yield
        return
    key = (about.st_dev, about.st_ino)
    if seconds and key in _LOCKED:
        yield
        return
    lock = _wait_for_lock(folder, seconds)
    # A run commits its files under the lock that it has already.
    if not seconds:
        _LOCKED.add(key)
    try:
        yield
    finally:
        if not seconds:
            _LOCKED.discard(key)
        if lock is not None:
            os.close(lock)


def _wait_for_lock(folder: Path, seconds: float) -> int | None:
    until = time.monotonic() + seconds
    while True:
        try:
            return _lock(folder)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise InputError(
                    f"another run is writing to {folder}. Wait for it, or choose another folder"
                ) from None
            time.sleep(0.05)
        except OSError:  # a folder that may be written to, but not read
            return None


# What scalecal wrote to a folder


def _read_record(folder: Path) -> dict[str, Any]:
    """Return the record of a folder: its files by name, and the settings of a run in parts."""
    file = folder / RECORD
    if not os.path.lexists(file):
        return {"files": {}}
    record = read_document(file, dict[str, Any], advice="Choose a new folder")
    check_document(file, record, _Record, advice="Choose a new folder")
    for name in record["files"]:
        _confine(folder, name)
    return record


def _confine(folder: Path, name: str) -> None:
    """Fail where a record names a file that is not in its folder: such files would be replaced, or removed.

    The file itself may have become a link since: links are never followed, and never removed.
    """
    path = PurePath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        inside(folder, name, folder / RECORD)  # raises, and names the whole path
    inside(folder, str(path.parent), folder / RECORD)


class _Entry(msgspec.Struct):
    sha256: str
    by: str
    replaced: str | None = None


class _Record(msgspec.Struct):
    files: dict[str, _Entry]
    kind: str | None = None
    settings: dict[str, Any] | None = None


def _write_record(folder: Path, record: Mapping[str, Any]) -> None:
    files = record["files"]
    write_json(folder / RECORD, {**record, "files": {name: files[name] for name in sorted(files)}})


def written_by(path: str | Path) -> str | None:
    """Return the kind of command that wrote a file, or None if it is not on record."""
    path = Path(path)
    entry = _read_record(path.parent)["files"].get(path.name)
    return None if entry is None else str(entry["by"])


def is_own(path: str | Path) -> bool:
    """Whether a file is on record and is as scalecal wrote it."""
    path = Path(path)
    return _unchanged(path, _read_record(path.parent)["files"].get(path.name))


def is_whole(folder: str | Path) -> bool:
    """Whether a folder holds every file its record lists, as scalecal wrote it."""
    files = _read_record(Path(folder))["files"]
    return bool(files) and all(_unchanged(Path(folder, name), files[name]) for name in files)


def _unchanged(place: Path, entry: Mapping[str, str] | None) -> bool:
    return entry is not None and place.is_file() and file_hash(place) == entry["sha256"]


def _is_kept(place: Path, entry: Mapping[str, str] | None) -> bool:
    """Whether a file is as scalecal wrote it, or was before a write that was interrupted."""
    if entry is None or not place.is_file():
        return False
    return file_hash(place) in (entry["sha256"], entry.get("replaced"))


def _obstacle(
    folder: Path, name: str, kind: str, files: Mapping[str, Any], new_hash: str | None = None
) -> str | None:
    """Return why a file may not be written, or None where it may."""
    place = folder / name
    for parent in Path(name).parents:
        if (folder / parent).exists() and not (folder / parent).is_dir():
            return f"{folder / parent} is a file, expected a folder"
    if not os.path.lexists(place):
        return None
    if place.is_symlink() or not place.is_file():
        return "a folder, a link, a pipe or device of that name is in the way"
    present = file_hash(place)
    if present == new_hash:
        return None
    entry = files.get(name)
    if entry is None:
        return "there is a file of that name that scalecal did not write"
    if present not in (entry["sha256"], entry.get("replaced")):
        return "the file was changed since scalecal wrote it"
    if entry["by"] != kind:
        return f"the file is a result of `scalecal {entry['by']}`"
    return None


def _refuse_inputs(places: Iterable[Path], inputs: Paths) -> None:
    """Refuse an output that is an input: the same path, or a link or hard link to the same file."""
    read = [Path(path) for path in inputs if path is not None]
    for place in places:
        for source in read:
            same = os.path.realpath(place) == os.path.realpath(source)  # takes loops of links too
            with contextlib.suppress(OSError):
                same = same or place.samefile(source)
            if same:
                raise InputError(
                    f"cannot write {place}: it is the input {source}. Choose another output"
                )


def _refuse_obstacles(
    folder: Path,
    names: Iterable[str],
    kind: str,
    files: Mapping[str, Any],
    hashes: Mapping[str, str] | None = None,
) -> None:
    for name in names:
        reason = _obstacle(folder, name, kind, files, (hashes or {}).get(name))
        if reason is not None:
            raise InputError(
                f"cannot write {folder / name}: {reason}. Move it away, or choose another output"
            )


def check_place(path: str | Path, *, folder: bool = True) -> None:
    """Refuse an output, a folder or a file, that could not be made or written to.

    Examples
    --------
    >>> check_place("/dev/null/run")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: cannot write to /dev/null/run: /dev/null is not a folder...
    """
    path = Path(path)
    reason = _why_unusable(path, folder)
    if reason is not None:
        raise InputError(f"cannot write to {path}: {reason}. Choose another output")


def _why_unusable(path: Path, folder: bool) -> str | None:
    if "\0" in str(path):
        return "a name must not hold a zero byte"
    if any(len(os.fsencode(part)) > _LONGEST_NAME for part in path.parts):
        return f"a name has at most {_LONGEST_NAME} bytes"
    # Also false where a folder on the way may not be searched: that folder is then found below.
    if os.path.lexists(path):
        if path.is_symlink() and not path.exists():
            return "it is a link to nothing"
        if folder and not path.is_dir():
            return "it is a file, expected a folder"
    nearest = path if path.is_dir() else path.absolute().parent
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"the folder {nearest} may not be written to"
    return None


def check_output_folder(
    path: str | Path, *, kind: str, names: Iterable[str] = (), inputs: Paths = ()
) -> None:
    """Refuse an output folder before any work is done for it.

    Parameters
    ----------
    path
        The folder.
    kind
        The command that will write: it may replace its own files only.
    names
        Files it is going to write, as far as they are known.
    inputs
        Files and folders that are read; None is skipped.
    """
    folder, names, inputs = Path(path), list(names), list(inputs)
    check_place(folder)
    _refuse_inputs([folder, *(folder / name for name in names)], inputs)
    if folder.is_dir():
        files = _read_record(folder)["files"]
        # What the same command wrote before may be replaced or removed, under whichever name.
        own = [name for name, entry in files.items() if entry["by"] == kind]
        _refuse_inputs((folder / name for name in own), inputs)
        _refuse_obstacles(folder, names, kind, files)


def check_output_file(path: str | Path, *, kind: str, inputs: Paths = ()) -> None:
    """Refuse an output file before any work is done for it; see `check_output_folder`."""
    path = Path(path)
    check_place(path, folder=False)
    _refuse_inputs([path], inputs)
    if path.parent.is_dir():
        _refuse_obstacles(path.parent, [path.name], kind, _read_record(path.parent)["files"])


def write_file(path: str | Path, content: bytes | str, *, kind: str, inputs: Paths = ()) -> None:
    """Write one result file in one step, and note it in its folder's record.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_file(folder / "a.csv", "x", kind="predict")
    >>> write_file(folder / "a.csv", "y", kind="predict")
    >>> _ = (folder / "a.csv").write_text("edited by hand")
    >>> write_file(folder / "a.csv", "z", kind="predict")
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: cannot write ...a.csv: the file was changed since scalecal wrote it...
    """
    path = Path(path)
    _refuse_inputs([path], inputs)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    _write_and_commit(path.parent, path.name, content, kind)


def _write_and_commit(folder: Path, name: str, content: bytes | str, kind: str) -> None:
    with disk_errors(folder / name), _partial(folder, Path.touch) as partial:
        text = as_utf8(content).encode("utf-8") if isinstance(content, str) else content
        _fill(partial, text)
        _commit(folder, {name: partial}, kind)


def _commit(
    folder: Path,
    new: Mapping[str, Path],
    kind: str,
    *,
    replace: bool = False,
) -> None:
    """Move finished files into a folder and note them; with `replace`, remove the kind's other files."""
    hashes = {name: file_hash(source) for name, source in new.items()}
    with lock_folder(folder, seconds=_LOCK_SECONDS), disk_errors(folder):
        record = _read_record(folder)
        files = record["files"]
        _refuse_obstacles(folder, new, kind, files, hashes)
        stale: list[tuple[str, Path | None]] = []
        for name, entry in files.items():
            if replace and entry["by"] == kind and name not in new:
                place = folder / name
                if place.is_symlink() or not place.is_file():
                    stale.append((name, None))
                elif _is_kept(place, entry):
                    stale.append((name, place))
        # Both hashes are noted before the first rename: killed at any point, the files stay ours.
        for name, digest in hashes.items():
            files[name] = {"sha256": digest, "by": kind}
            if (folder / name).exists():
                files[name]["replaced"] = file_hash(folder / name)
        _write_record(folder, record)
        for name, source in new.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(source, folder / name)
        for name, place in stale:
            del files[name]
            if place is not None:
                place.unlink(missing_ok=True)
        replaced = [files[name].pop("replaced", None) for name in new]
        if stale or any(replaced):
            _write_record(folder, record)


@contextmanager
def output_folder(
    path: str | Path,
    *,
    kind: str = "files",
    inputs: Paths = (),
    replace: bool = False,
) -> Iterator[Path]:
    """Write a folder's files elsewhere and move them in place when all of them are done.

    Yields a temporary folder on the same disk. If the block ends well, its files are moved to `path`;
    if it fails or is interrupted, `path` is as it was before. Inside another `output_folder` it is
    simply a folder.

    Parameters
    ----------
    path
        The folder.
    kind
        The command that writes. Files of the same name are replaced if the same kind of command wrote
        them and they are unchanged; any other is an error, and nothing is written.
    inputs
        Files and folders that were read: none of them may be written to.
    replace
        Also remove the unchanged files that an earlier run of the same kind wrote and this one did not.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     with output_folder(Path(root, "run")) as folder:
    ...         write_json(folder / "a.json", {"x": 1})
    ...     sorted(p.name for p in Path(root, "run").iterdir())
    ['.scalecal.json', 'a.json']
    """
    target = Path(path)
    if any(map(is_partial, (target, *target.parents))):
        target.mkdir(parents=True, exist_ok=True)
        yield target
        return
    check_output_folder(target, kind=kind, inputs=inputs)
    made = [parent for parent in target.parents if not parent.exists()]  # innermost first
    done = False
    try:
        with disk_errors(target), contextlib.ExitStack() as stack:
            target.parent.mkdir(parents=True, exist_ok=True)
            # Inside the folder where it exists, since its parent may be another disk or not ours.
            place = target if target.is_dir() else target.parent
            sweep(place)
            partial = stack.enter_context(_partial(place, Path.mkdir))
            held = stack.pop_all()
        with held:
            with disk_errors(target, only=_DISK):
                yield partial
            new = {
                p.relative_to(partial).as_posix(): p
                for p in sorted(partial.rglob("*"))
                if not p.is_dir()
            }
            _refuse_inputs((target / name for name in new), inputs)
            if target.exists():
                _commit(target, new, kind, replace=replace)
            else:
                files = {name: {"sha256": file_hash(p), "by": kind} for name, p in new.items()}
                _write_record(partial, {"files": files})
                with disk_errors(target):
                    os.replace(partial, target)
            done = True
    finally:
        if not done:
            for parent in made:
                with contextlib.suppress(OSError):
                    parent.rmdir()  # only where it is empty


# Folders that are filled part by part


def differences(there: Any, here: Any, name: str = "") -> list[str]:
    """Name what differs between two nested settings.

    Examples
    --------
    >>> differences({"encoder": {"name": "uni", "dim": 1024}}, {"encoder": {"name": "uni", "dim": 512}})
    ['encoder.dim: 1024 there, 512 here']
    """
    if isinstance(there, dict) and isinstance(here, dict):
        keys = [*there, *(k for k in here if k not in there)]
        labels = [f"{name}.{key}" if name else str(key) for key in keys]
        return [
            line
            for key, label in zip(keys, labels, strict=True)
            for line in differences(there.get(key), here.get(key), label)
        ]
    if there == here:
        return []
    return [f"{name}: {reprlib.repr(there)} there, {reprlib.repr(here)} here"]


def hold_folder(folder: Path, begin: Callable[[], None]) -> contextlib.ExitStack:
    """Make a folder, lock it for a run and begin that run under the lock; closing the stack lets it go.

    What killed runs left half-written in it is removed first.
    """
    with disk_errors(folder), contextlib.ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(lock_folder(folder))
        sweep(folder, below=True)
        begin()
        return stack.pop_all()


def check_unused(folder: Path) -> None:
    """Fail where a folder that is to be filled holds files of somebody else."""
    others = [p.name for p in sorted(folder.iterdir()) if not is_partial(p)]
    if others:
        raise InputError(
            f"{folder} is not empty ({', '.join(others[:3])}) and was not begun by this command. Choose a "
            "new folder"
        )


class Store:
    """A folder filled part by part, which can be interrupted; use it as a context manager.

    One process at a time may fill it. The settings it was begun with are kept in its record; other
    settings are refused, and the differences named. A part is a file; it is done if it is there with
    the hash it was written with.

    Parameters
    ----------
    path
        The folder: new, empty, or begun with the same settings.
    settings
        Everything that decides the bytes of the parts; JSON values.
    kind
        The command that fills it.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp(), "run")
    >>> with Store(folder, {"epochs": 3}, kind="finetune") as store:
    ...     store.write("seed0.json", "{}")
    >>> with Store(folder, {"epochs": 3}, kind="finetune") as store:
    ...     store.done("seed0.json"), store.done("seed1.json")
    (True, False)
    >>> with Store(folder, {"epochs": 5}, kind="finetune") as store:
    ...     pass
    Traceback (most recent call last):
        ...
    scalecal.checks.InputError: ... was begun with other settings (epochs: 3 there, 5 here)...
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Mapping[str, Any],
        *,
        kind: str,
    ) -> None:
        self.path, self.kind = Path(path), kind
        self._settings = plain(settings)
        check_output_folder(self.path, kind=kind)

    def __enter__(self) -> Store:
        self._held = hold_folder(self.path, self._begin)
        return self

    def __exit__(self, *exc: object) -> None:
        self._held.close()

    def _begin(self) -> None:
        record = _read_record(self.path)
        if "settings" not in record:
            check_unused(self.path)
            _write_record(self.path, {"kind": self.kind, "settings": self._settings, **record})
            return
        changed = differences(record["settings"], self._settings)
        if record.get("kind") != self.kind:
            changed = [f"it is a folder of `scalecal {record.get('kind')}`"]
        if changed:
            raise InputError(
                f"{self.path} was begun with other settings ({'; '.join(changed)}). "
                "Use the same settings to resume, or choose a new folder"
            )

    def done(self, name: str) -> bool:
        """Whether a part is there, as it was written."""
        return _unchanged(self.path / name, _read_record(self.path)["files"].get(name))

    def write(self, name: str, content: bytes | str) -> None:
        """Write one part in one step; one that was changed since is kept as ``*.damaged``."""
        if not _is_kept(self.path / name, _read_record(self.path)["files"].get(name)):
            set_aside(self.path / name)
        _write_and_commit(self.path, name, content, self.kind)

    def remove(self, name: str) -> None:
        """Remove a part that is not needed any more."""
        record = _read_record(self.path)
        if self.done(name):
            (self.path / name).unlink()
        if record["files"].pop(name, None) is not None:
            _write_record(self.path, record)
