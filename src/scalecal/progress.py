"""How far long work is: a bar on a terminal, a plain line now and then elsewhere.

Work that can say how far it is takes ``advance``, a function that it calls with what it has just done:
a number of images, or its share of the whole, so that all shares add up to 1. `Progress.advance` is
such a function.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any, TextIO

_current: list[Progress] = []

REDRAW = 0.25
"""Seconds from one picture of the bar to the next, so that work may report as often as it likes."""


def how_far() -> str:
    """Say how far the latest work is, for whoever interrupts it; "" before any.

    Examples
    --------
    >>> with Progress(1.0, unit="", title="training", show=False) as progress:
    ...     progress.advance(0.25)
    >>> how_far()
    'training: 25.0%'
    """
    return "".join(progress.state() for progress in _current)


class Progress:
    """Counts what is done and shows it with the time left, on standard error. A context manager.

    Parameters
    ----------
    total
        How much there is to do.
    done
        What an earlier run did of it, which does not count for the speed.
    unit
        What is counted, such as "images"; "" for shares, which are shown in per cent by a bar that goes
        when all is done.
    title
        What is being done.
    show
        Whether anything is shown at all.
    stream
        Where; standard error by default.
    every
        Seconds from one plain line to the next, where there is no terminal.
    after
        Seconds after which a bar appears: short work needs none.

    Examples
    --------
    >>> with Progress(1.0, unit="", title="training", stream=sys.stdout, every=0.0) as progress:
    ...     progress.advance(0.25)
    training: 25.0%, 0:00:00 left
    """

    def __init__(
        self,
        total: float,
        done: float = 0,
        *,
        unit: str = "images",
        title: str = "",
        show: bool = True,
        stream: TextIO | None = None,
        every: float = 10.0,
        after: float = 0.0,
    ) -> None:
        self.total, self.done = total, done
        self.unit, self.title = unit, title
        self._show, self._every, self._after = show, every, after
        self._stream = sys.stderr
        if stream is not None:
            self._stream = stream
        self._terminal = show and self._stream.isatty()
        self._before = done
        self.started = self._last = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Progress:
        _current[:] = [self]
        # For short work the bar would only flicker, so it may wait.
        if self._terminal and self._after <= 0.0:
            self._open()
        return self

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            BarColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(file=self._stream),
            transient=not self.unit,
            refresh_per_second=1 / REDRAW,
            redirect_stdout=False,  # results stay where they belong
        )
        self._bar.start()
        self._bar.add_task(self._line(), total=self.total, completed=self.done)

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._draw()
            self._bar.stop()

    def _draw(self) -> None:
        (task,) = self._bar.task_ids
        self._bar.update(task, completed=self.done, description=self._line())

    @property
    def speed(self) -> float:
        """How much this run has done per second so far."""
        return (self.done - self._before) / max(time.monotonic() - self.started, 1e-9)

    def advance(self, n: float) -> None:
        """Count `n` more."""
        self.done += n
        now = time.monotonic()
        if self._terminal:
            if self._bar is None and now - self.started >= self._after:
                self._open()
            if self._bar is not None and now - self._last >= REDRAW:
                self._last = now
                self._draw()
        elif self._show and now - self._last >= self._every:
            self._last = now
            print(self._line(), file=self._stream, flush=True)

    def _line(self) -> str:
        line = self.state()
        if self.unit:
            line += f", {self.speed:,.0f} {self.unit}/s"
        if self.speed > 0:
            left = max(0, round((self.total - self.done) / self.speed))
            line += f", {timedelta(seconds=left)} left"
        return line

    def state(self) -> str:
        """Say what is done so far."""
        text = f"{self.done / self.total:.1%}"
        if self.unit:
            text = f"{self.done:,} of {self.total:,} {self.unit} ({text})"
        if self.title:
            text = f"{self.title}: {text}"
        return text

    def restart(self) -> None:
        """Begin again at zero."""
        self.done = self._before = 0
        self.started = time.monotonic()
        if self._bar is not None:
            self._draw()
