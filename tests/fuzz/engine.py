"""The engine: a case of a surface is drawn from its number, run, and judged by how it ended.

A surface is a way into the package: a kind of file, the options of the command line, the arguments of the
Python functions. It makes valid inputs once, and draws from a case's number a damaged or odd one and the
call that takes it. Whatever is drawn comes from that number alone, so that every case can be run again.
"""

from __future__ import annotations

import faulthandler
import io
import os
import pickle
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, TextIO

from scalecal.checks import InputError, MissingPackageError
from scalecal.limits import VARIABLE

FINE, CLEAR = "fine", "clear error"
UNCLEAR, SURPRISE, HANG, CRASH = "unclear error", "surprise", "hang", "crash"
BROKEN = "broken case"
KINDS = (FINE, CLEAR, UNCLEAR, SURPRISE, HANG, CRASH, BROKEN)
"""How a case may end. An unclear error is an error of ours that fails the rules for messages: one line, no
control character, the name of the file. A surprise is any other exception, which the command line ends with
exit code 70; too little memory is one. A crash takes the process with it. A broken case is a fault of
the fuzzer."""

SECONDS = 20.0
"""What takes longer hangs."""
MEMORY = 2 << 30
"""Bytes that a case may take, in a process of its own."""


@dataclass(frozen=True)
class Case:
    """One case: what to call, and what its messages must name, one of these at least.

    A message has `most` characters. `allowed` says which other exceptions are clear errors, such as
    scikit-learn's own; a case that is run `apart` is always given a process of its own.
    """

    call: Callable[[], object]
    names: tuple[str, ...] = ()
    about: str = ""
    most: int = 3000
    allowed: Callable[[BaseException], bool] | None = None
    apart: bool = False


@dataclass(frozen=True)
class Surface:
    """A way into the package.

    Attributes
    ----------
    title
        As the table calls it.
    prepare
        Makes valid inputs in an empty folder; what it returns is handed to every case.
    draw
        Takes the case's random numbers, what `prepare` returned and an empty folder; returns the case.
    share
        Part of a run's cases, among the shares of all surfaces.
    tested
        Cases in the test suite.
    """

    title: str
    prepare: Callable[[Path], Any]
    draw: Callable[[Random, Any, Path], Case]
    share: float = 1.0
    tested: int = 200


@dataclass(frozen=True)
class Outcome:
    """How a case ended; `place` names where, and is equal for cases of one cause."""

    kind: str
    place: str = ""
    text: str = ""
    about: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Exit:
    """How a command ended."""

    code: int
    stderr: str


class Hang(BaseException):
    """The time is over."""


def memory_folder() -> str | None:
    """A folder that no disk slows down, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Bench:
    """A surface with its inputs, on which cases are run one after the other."""

    def __init__(self, name: str, surface: Surface, home: str | None = None) -> None:
        self.name, self.surface = name, surface
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=home or memory_folder()))
        seeds, self._place = self.folder / "seeds", self.folder / "case"
        seeds.mkdir()
        with _still():
            self._seeds = surface.prepare(seeds)

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def draw(self, number: int) -> Case:
        """Return a case, its files written."""
        _clear(self._place)
        return self.surface.draw(Random(f"{self.name} {number}"), self._seeds, self._place)

    def run(self, number: int, *, apart: bool = False) -> Outcome:
        """Run a case in this process, or in one of its own."""
        start = time.perf_counter()
        here = os.getcwd()
        try:
            with _still(), _limits():
                case = self.draw(number)
                judge = partial(_judged_in_time, case)
                outcome = _in_fork(judge) if apart or case.apart else judge()
        except Exception:
            outcome = Outcome(BROKEN, "drawing", _trace())
        finally:
            os.chdir(here)
            _clear(self._place)
        return replace(outcome, seconds=time.perf_counter() - start)


def _judged_in_time(case: Case) -> Outcome:
    try:
        with _alarm(SECONDS):
            return _judged(case)
    except Hang as hang:
        return Outcome(HANG, f"at {_place_of(hang)}", _trace(), case.about)


def _in_fork(call: Callable[[], Outcome]) -> Outcome:
    """Run a case in a process of its own, with a limit on its memory."""
    deadline = time.perf_counter() + SECONDS + 5.0
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _in_child(call, writing)
    os.close(writing)
    data = _read_until(reading, deadline)
    if data is None:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if data is None:
        return Outcome(HANG, "over the time, in its own process")
    if not data:
        return Outcome(CRASH, f"exit code {os.waitstatus_to_exitcode(status)} of the process")
    outcome: Outcome = pickle.loads(data)
    return outcome


def _in_child(call: Callable[[], Outcome], pipe: int) -> None:
    """Run a case in the child of a fork, and end it there."""
    try:
        faulthandler.disable()
        limit = virtual_memory() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with os.fdopen(pipe, "wb") as file:
            file.write(pickle.dumps(call()))
    finally:
        os._exit(0)


def virtual_memory() -> int:
    """Bytes of address space that this process has taken."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _read_until(pipe: int, deadline: float) -> bytes | None:
    """Return what comes through a pipe until it is closed; None where that takes too long."""
    data = b""
    try:
        while True:
            left = deadline - time.perf_counter()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                return None
            part = os.read(pipe, 1 << 16)
            if not part:
                return data
            data += part
    finally:
        os.close(pipe)


def _clear(folder: Path) -> None:
    """Empty a folder, whatever rights its contents have."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError:
        for place, names, _ in os.walk(folder):
            for name in names:
                os.chmod(os.path.join(place, name), 0o700)
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)


@contextmanager
def _still() -> Iterator[None]:
    """Ignore warnings: what they say is tested elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _limits() -> Iterator[None]:
    """Let files take less memory than a machine has, as on a small one."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = f"memory={MEMORY // 4}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _judged(case: Case) -> Outcome:
    try:
        result = case.call()
    except (InputError, MissingPackageError) as error:
        problem = _message_problem(str(error), case)
        if problem is None:
            return Outcome(CLEAR, text=str(error), about=case.about)
        place = f"{problem}, raised at {_place_of(error)}"
        return Outcome(UNCLEAR, place, f"{str(error)[:2000]!r}", case.about)
    except Exception as error:
        if case.allowed is not None and case.allowed(error):
            return Outcome(CLEAR, text=f"{type(error).__name__}: {error}", about=case.about)
        place = f"{type(error).__name__} at {_place_of(error)}"
        return Outcome(SURPRISE, place, _trace(), case.about)
    if isinstance(result, Exit):
        return _judged_exit(result, case)
    return Outcome(FINE, about=case.about)


def _judged_exit(result: Exit, case: Case) -> Outcome:
    if result.code in (0, 1, 3):
        return Outcome(FINE, about=case.about)
    if result.code != 2:
        return Outcome(SURPRISE, _place_in(result.stderr, result.code), result.stderr, case.about)
    lines = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
    if lines and lines[0].startswith("Usage: "):  # an option that typer itself refuses
        lines, case = ["".join(lines)], replace(case, names=())
    if len(lines) != 1:
        place = f"{len(lines)} lines: {_pattern(lines[-1] if lines else '')}"
        return Outcome(UNCLEAR, place, result.stderr[-2000:], case.about)
    problem = _message_problem(lines[0], case)
    if problem is None:
        return Outcome(CLEAR, text=lines[0], about=case.about)
    return Outcome(UNCLEAR, f"{problem}: {_pattern(lines[0])}", repr(lines[0])[:2000], case.about)


def _message_problem(message: str, case: Case) -> str | None:
    if not message.strip():
        return "empty message"
    if len(message.splitlines()) > 1:
        return "message of several lines"
    odd = [c for c in message if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    if odd:
        return f"message with {odd[0]!r}"
    if len(message) > case.most:
        return f"message of over {case.most:,} characters"
    if case.names and not any(name in message for name in case.names):
        return "message names no file"
    return None


def _pattern(message: str) -> str:
    """A message without what varies from case to case."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|/\S+", "'...'", message)
    return re.sub(r"[\d.]+", "0", text)[:160]


def _place_of(error: BaseException) -> str:
    """The last two lines of the package in a traceback, and where beyond it the error came from."""
    while isinstance(error, InputError) and isinstance(error.__context__, InputError):
        error = error.__context__  # as it was before a file was named
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if _is_own(f.filename)]
    named = [f"{_short(f.filename)}:{f.lineno} {f.name}" for f in own[-2:]]
    if frames and not _is_own(frames[-1].filename):
        named.append(f"{_short(frames[-1].filename)} {frames[-1].name}")
    return " > ".join(named)


def _is_own(file: str) -> bool:
    return f"{os.sep}scalecal{os.sep}" in file and "site-packages" not in file


def _short(file: str) -> str:
    return re.sub(r".*/(?:scalecal|site-packages|lib/python[\d.]+)/", "", file)


def _place_in(stderr: str, code: int) -> str:
    """Where a traceback printed by a command came from."""
    found = re.findall(r'File "([^"]*)", line (\d+), in (\S+)', stderr)
    own = [f"{_short(f)}:{line} {name}" for f, line, name in found if _is_own(f)]
    error = re.findall(r"^(\w[\w.]*(?:Error|Exception|Interrupt|Exit)\b)", stderr, re.MULTILINE)
    last = error[-1] if error else f"exit code {code}"
    return f"{last} at {' > '.join(own[-2:])}" if own else f"{last}: {_pattern(stderr[-200:])}"


def _trace() -> str:
    return traceback.format_exc()[-6000:]


# Commands


@cache
def _built() -> Any:
    """The command line, built once: that takes longer than most commands here."""
    from typer.main import get_command

    import scalecal.cli

    return get_command(scalecal.cli.app)


def command(*arguments: object, stdout: TextIO | None = None) -> Exit:
    """Run the command line in this process; a fault of the package's own is raised, not logged."""
    built = _built()
    place = vars(sys.modules["scalecal.cli.app"])
    faults: list[Exception] = []

    def keep(error: Exception) -> str:
        faults.append(error)
        return str(error)

    usual, argv = {name: place[name] for name in ("app", "unexpected")}, sys.argv
    err, code = _Stream(), None
    try:
        place.update(app=built, unexpected=keep)
        sys.argv = ["scalecal", *map(str, arguments)]
        with redirect_stdout(stdout or _Stream()), redirect_stderr(err):
            try:
                place["main"]()
            except SystemExit as exit:
                code = exit.code
    finally:
        place.update(usual)
        sys.argv = argv
    for fault in faults:
        raise fault
    return Exit(0 if code is None else code if isinstance(code, int) else 1, err.text)


@cache
def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY)


class _Stream(io.TextIOWrapper):
    """A captured stream that, as a terminal's, takes only what can be encoded."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding="utf-8", errors="backslashreplace")

    def fileno(self) -> int:
        return _nowhere()

    @property
    def text(self) -> str:
        if not self.closed:
            self.flush()
        return self._bytes.getvalue().decode() if not self._bytes.closed else ""
