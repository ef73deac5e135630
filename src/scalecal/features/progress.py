"""How far a long run is: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any, TextIO


class Progress:
    """Counts images and shows images per second and the time left. A context manager.

    `done` images of `total` were done by an earlier run and do not count for the speed; plain lines
    come `every` so many seconds, on standard error by default.
    """

    def __init__(
        self,
        total: int,
        done: int = 0,
        *,
        show: bool = True,
        stream: TextIO | None = None,
        every: float = 10.0,
    ) -> None:
        self.total, self.done = total, done
        self.started = time.monotonic()
        self._before = done
        self._show = show
        self._stream = sys.stderr if stream is None else stream
        self._every = every
        self._last = self.started
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if self._show and self._stream.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as Bar

            self._bar = Bar(
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[speed]:,.0f} images/s"),
                TimeRemainingColumn(),
                console=Console(file=self._stream),
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=self.total, completed=self.done, speed=0.0)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def speed(self) -> float:
        """Images per second of this run so far."""
        return (self.done - self._before) / max(time.monotonic() - self.started, 1e-9)

    def advance(self, n: int) -> None:
        """Count `n` more images."""
        self.done += n
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, speed=self.speed)
            return
        now = time.monotonic()
        if self._show and now - self._last >= self._every:
            self._last = now
            left = timedelta(seconds=round((self.total - self.done) / max(self.speed, 1e-6)))
            print(
                f"{self.done:,} of {self.total:,} images ({self.done / self.total:.1%}), "
                f"{self.speed:,.0f} images/s, {left} left",
                file=self._stream,
                flush=True,
            )

    def restart(self) -> None:
        """Begin again at zero."""
        self.done = self._before = 0
        self.started = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._task, completed=0, speed=0.0)
