"""What a streaming audit keeps: counts and sums by layer and cell, which add up.

A layer is one combination of stratum, votes (how many readers, how many of them for the positive
class) and label. For every layer and cell the state holds the number of cases (an integer) and the
sum of their probabilities, and for every layer five sums of logarithms. That is all an audit
needs, its size does not depend on the number of cases, and two states add up to the state of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.auditing.stream_cells import Cells
from scalecal.checks import Float, InputError, Int, check_counts, check_same_length
from scalecal.metrics.arguments import BLOCK, blocks, read_hard_event, read_probs
from scalecal.metrics.proper import EPS
from scalecal.votes import stratum_codes

__all__ = ["LOG_SUMS", "Layer", "State"]

MOST_LAYERS = 1024
MOST_READERS = 255

LOG_SUMS = 5
"""Sums kept per layer. Two classes: of log p, log (1 - p), their squares and their product. More
classes: of the log loss, the Brier score, their squares, and zero."""


@dataclass(frozen=True, order=True)
class Layer:
    """Cases of one stratum (-1: none), with `positive` of `readers` votes, and one label."""

    stratum: int
    readers: int
    positive: int
    label: int


@dataclass
class State:
    """Counts and sums of the cases seen so far.

    Examples
    --------
    >>> a, b = State(Cells(15)), State(Cells(15))
    >>> a.add([0, 1], [0.2, 0.7])
    >>> b.add([1], [0.9])
    >>> a.merge(b)
    >>> a.n, sorted(layer.label for layer in a.layers)
    (3, [0, 1])
    """

    cells: Cells
    n_classes: int | None = None
    layers: dict[Layer, int] = field(default_factory=dict)
    counts: NDArray[np.int64] = field(init=False)
    sums: Float = field(init=False)
    logs: Float = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros((0, self.cells.count), dtype=np.int64)
        self.sums = np.zeros((0, self.cells.count))
        self.logs = np.zeros((0, LOG_SUMS))

    @property
    def n(self) -> int:
        """Cases seen."""
        return int(self.counts.sum())

    def add(
        self,
        y: ArrayLike,
        probs: ArrayLike,
        *,
        votes: ArrayLike | None = None,
        n_raters: ArrayLike | None = None,
        codes: NDArray[np.integer] | None = None,
    ) -> None:
        """Take in some cases: checked first, so that a bad block changes nothing."""
        p = read_probs(probs)
        if p.ndim == 2 and p.shape[1] == 2:
            p = np.ascontiguousarray(p[:, 1])
        n_classes = 2 if p.ndim == 1 else p.shape[1]
        if self.n_classes not in (None, n_classes):
            raise InputError(f"probs have {n_classes} classes, those before had {self.n_classes}")
        event = read_hard_event(y, p)
        counts = None if votes is None else check_counts(votes, n_raters)
        check_same_length(y=event.y, probs=p, votes=counts, strata=codes)
        if counts is not None and counts.shape[1] != n_classes:
            raise InputError(f"votes have {counts.shape[1]} classes but probs have {n_classes}")
        if n_classes > 2 and counts is not None:
            # Votes make strata there; scores against them would need every class.
            codes = stratum_codes(counts) if codes is None else codes
            counts = None
        if counts is not None and (most := int(counts.sum(axis=1).max())) > MOST_READERS:
            raise InputError(f"at most {MOST_READERS} readers per case can be streamed, got {most}")
        self.n_classes = n_classes
        raw = np.asarray(y)
        for part in blocks(len(event.p), BLOCK):
            layer = self._layers_of(
                event.y[part],
                None if counts is None else counts[part],
                None if codes is None else codes[part],
            )
            q = event.p[part]
            if n_classes > 2:
                logs = _scores(raw[part], p[part])
            elif counts is None:
                logs = _own_log(event.y[part], q)
            else:
                logs = _two_logs(q)
            place = layer * self.cells.count
            place += self.cells.index(q)
            np.add.at(self.counts.reshape(-1), place, 1)
            np.add.at(self.sums.reshape(-1), place, q)
            for columns, values in logs:
                self.logs[:, columns] += np.bincount(layer, values, len(self.logs))[:, None]

    def _layers_of(
        self, y: NDArray[np.generic], counts: Int | None, codes: NDArray[np.integer] | None
    ) -> NDArray[np.intp]:
        """Return each case's layer, making those that are new; votes make strata without codes."""
        key = y.astype(np.intp)
        width = 1
        if counts is not None:
            readers = counts.sum(axis=1)
            width = int(readers.max()) + 1
            key += 2 * (readers * width + counts[:, 1])
        if codes is not None:
            key += 2 * width**2 * (codes.astype(np.intp) + 1)
        present = np.flatnonzero(np.bincount(key))
        rest, label = np.divmod(present, 2)
        stratum, votes = np.divmod(rest, width**2)
        readers, positive = np.divmod(votes, width)
        if codes is None and counts is not None:
            stratum = stratum_codes(np.column_stack([readers - positive, positive])) + 1
        keys = zip(stratum - 1, readers, positive, label, strict=True)
        table = np.zeros(int(present[-1]) + 1, dtype=np.intp)
        table[present] = self._numbers(Layer(*map(int, k)) for k in keys)
        return table[key]

    def _numbers(self, layers: Iterable[Layer]) -> list[int]:
        found = [self.layers.setdefault(layer, len(self.layers)) for layer in layers]
        if len(self.layers) > MOST_LAYERS:
            raise InputError(
                f"more than {MOST_LAYERS} combinations of stratum, votes and label: too many to stream. "
                "Give fewer strata, or leave the votes out."
            )
        new = len(self.layers) - len(self.counts)
        if new:
            self.counts = np.concatenate([self.counts, np.zeros((new, self.cells.count), np.int64)])
            self.sums = np.concatenate([self.sums, np.zeros((new, self.cells.count))])
            self.logs = np.concatenate([self.logs, np.zeros((new, LOG_SUMS))])
        return found

    def merge(self, other: State, strata: Sequence[int] | None = None) -> None:
        """Add the cases of another state; `strata` gives its strata their numbers here."""
        if other.cells != self.cells:
            raise InputError(
                f"streams with {self.cells.n_bins} and {other.cells.n_bins} bins cannot be merged"
            )
        if None not in (self.n_classes, other.n_classes) and self.n_classes != other.n_classes:
            raise InputError(
                f"streams of {self.n_classes} and {other.n_classes} classes cannot be merged"
            )
        self.n_classes = self.n_classes or other.n_classes
        renumbered: Iterable[Layer] = other.layers
        if strata is not None:
            numbers = [*strata, -1]
            renumbered = [replace(la, stratum=numbers[la.stratum]) for la in other.layers]
        mine = self._numbers(renumbered)
        theirs = list(other.layers.values())
        self.counts[mine] += other.counts[theirs]
        self.sums[mine] += other.sums[theirs]
        self.logs[mine] += other.logs[theirs]


Sums = list[tuple[list[int], Float]]  # columns of `State.logs`, and what each case adds to them


def _two_logs(p: Float) -> Sums:
    inside = np.clip(p, EPS, 1.0 - EPS)
    yes, no = np.log(inside), np.log1p(-inside)
    return [([0], yes), ([1], no), ([2], yes * yes), ([3], no * no), ([4], yes * no)]


def _own_log(y: NDArray[np.generic], p: Float) -> Sums:
    """The logarithm of the label's own probability, all that is wanted without votes.

    It is put in the columns of both labels: a layer has one label, and looks at its own alone.
    """
    positive = y.astype(np.float64)
    negative = 1.0 - positive
    # p or 1 - p without a rounding in between, and faster than a choice.
    of_label = negative + (positive - negative) * p
    loss = np.log(np.clip(of_label, EPS, 1.0 - EPS))
    return [([0, 1], loss), ([2, 3], loss * loss)]


def _scores(y: NDArray[np.generic], table: Float) -> Sums:
    of_label = table[np.arange(len(table)), y.astype(np.intp)]
    loss = -np.log(np.clip(of_label, EPS, 1.0 - EPS))
    brier = (table**2).sum(axis=1) - 2.0 * of_label + 1.0
    return [([0], loss), ([1], brier), ([2], loss * loss), ([3], brier * brier)]
