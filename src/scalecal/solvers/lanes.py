"""Groups of as many steps an epoch, each with its own rows and order, in step, on torch tensors.

A graphics processor is idle most of the time when ten groups take their small steps one after
another: what a step costs is the number of operations, not their size. Side by side, one lane each,
a step of all of them is one gathering of rows and two stacked products. A synthetic case is two
rows in that gathering, its logit the mean of theirs. Lanes differ in how many synthetic cases a
batch holds, and may in how many cases there are, so every step has room for a fixed number of either
kind, and empty places weigh 0; the result is that of each group trained alone.

An epoch, early stopping included, reads nothing but tensors of fixed shape and place. So on a CUDA
card it is recorded once as a graph and repeated by a single call; elsewhere the same lines run one
by one. Recording a step costs as much as taking it a hundred times, so the graph of a long epoch is
one of a stretch of steps, repeated. The host draws orders ahead and looks at the losses of several
epochs together.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalecal.checks import library
from scalecal.solvers.group import (
    BETA_1,
    BETA_2,
    EPSILON,
    Batch,
    Group,
    Record,
    coefficients,
    column_numbers,
    level,
    mix,
    unmix,
)
from scalecal.solvers.matrix import Matrix, to_host
from scalecal.solvers.problem import Array, Fit, Task, log_loss

STACK_BYTES = 512 << 20
"""What the rows of one step of all lanes, or of all their validation sets, may take at least.

Enough for ten seeds' cross-fits of MHIST's size with 2,048 features.
"""

EPOCHS_TOGETHER = 8
"""Epochs between two looks at the losses,"""
DRAWN_TOGETHER = 1 << 22
"""or as many as draw so many case numbers."""

DRAWING_THREADS = 8

STRETCH = 32
"""Steps in the graph of a long epoch."""

ADAM_PARTS, MIN_PART = 32, 2048
"""Parts that Adam's state is cut into, for as many of the card's processors, and their least size."""


class Layout:
    """Where the cases of an epoch stand: in each step room for real ones, then for synthetic ones.

    Examples
    --------
    >>> import torch
    >>> layout = Layout("cpu", n_cases=4, batch_size=2, room=(2, 1))
    >>> layout.places(torch.tensor([[3, 0, 1, 2], [1, 0, 2, 3]]), n_real=3).tolist()
    [[0, -1, 3, 1, 2, -1], [1, 0, -1, 2, -1, 3]]
    """

    def __init__(
        self,
        device: Any,
        *,
        n_cases: int,
        batch_size: int,
        room: tuple[int, int],
    ) -> None:
        self.torch = torch = library("torch", "training on torch tensors")

        def beside(values: NDArray[np.int64]) -> Array:
            return torch.as_tensor(values, device=device)

        starts = np.arange(0, n_cases, batch_size)
        self.sizes = np.diff(np.append(starts, n_cases))
        self.real, self.synthetic = (np.minimum(self.sizes, most) for most in room)
        widths = self.real + self.synthetic
        self.offset = np.cumsum(widths) - widths
        self.width = int(widths.sum())
        step = np.arange(n_cases) // batch_size
        self._starts, self._step = beside(starts), beside(step)
        self._first = beside(self.offset[step])
        self._behind = beside((self.offset + self.real - starts)[step] + np.arange(n_cases))
        counts = np.stack([self.real, self.synthetic], axis=1)
        kinds = np.repeat(np.tile([0, 1], len(widths)), counts.reshape(-1))
        self.synthetic_places = beside(np.flatnonzero(kinds))
        self.step_of_place = np.repeat(np.arange(len(widths)), widths)

    def places(self, orders: Array, n_real: Any) -> Array:
        """Return the case number at every place (lanes, places), -1 where it is empty.

        `orders` holds case numbers, from `n_real` on synthetic ones, and -1 behind the last.
        """
        if not self.synthetic.any():
            return orders
        real = orders < n_real
        one = real.long()
        # How many real cases come before each, in the epoch and in its step.
        earlier = one.cumsum(1) - one
        rank = earlier - earlier[:, self._starts][:, self._step]
        place = self.torch.where(real, self._first + rank, self._behind - rank)
        empty = self.torch.full((len(orders), self.width), -1, device=orders.device)
        return empty.scatter_(1, place, orders)

    def steps_with_pairs(self, pairs: int) -> NDArray[np.int64]:
        """Where each step finds its rows: all places, then the `pairs` rows of synthetic cases."""
        before = np.cumsum(self.synthetic) - self.synthetic
        kinds = self.width + self.synthetic.sum() * np.arange(pairs) + before[:, None]
        begins = np.concatenate([self.offset[:, None], kinds], axis=1).reshape(-1)
        lengths = np.column_stack([self.real, *[self.synthetic] * pairs]).reshape(-1)
        every: NDArray[np.int64] = np.repeat(begins - np.cumsum(lengths) + lengths, lengths)
        return every + np.arange(lengths.sum())


def usual_room(n_real: int, n_synthetic: int, batch_size: int) -> tuple[int, int]:
    """Places of a step for real and for synthetic cases that nearly all drawn orders fit into."""
    if not n_synthetic:
        return batch_size, 0
    share = n_synthetic / (n_real + n_synthetic)
    spare = 1 + math.ceil(5 * math.sqrt(batch_size * share * (1 - share)))
    return tuple(  # type: ignore[return-value]
        min(batch_size, math.ceil(batch_size * part) + spare) for part in (1 - share, share)
    )


class _Drawn(NamedTuple):
    """Orders of a few epochs, (epochs, lanes, cases), and the room their steps need."""

    orders: Array
    lanes: NDArray[np.int64]
    needs: list[Future[tuple[int, int]]]

    def room(self) -> tuple[int, int]:
        """Places a step needs for real and for synthetic cases, once all is drawn."""
        real, synthetic = zip(*(need.result() for need in self.needs), strict=True)
        return max(real), max(synthetic)


class _Arranged(NamedTuple):
    """What steps read, one after another: of rows, places, places and synthetic places."""

    rows: Array  # (lanes, rows), of real cases and of the pairs of synthetic ones
    targets: Array  # (columns, places)
    weights: Array | None  # the same shape
    shares: Array | None  # (lanes, 1, pairs, synthetic places)


class _Pairs(NamedTuple):
    """Synthetic cases of all lanes: K sets each, and which of them a column trains on."""

    rows: Array  # (lanes, 2 K, S): first rows of the K sets, then second rows
    shares: Array  # the same shape
    sets: NDArray[np.int64]  # (probes,), the probe's set within its lane


class _Stacked(NamedTuple):
    """One validation set per lane, the shorter ones filled up with cases of weight 0."""

    rows: Array  # (lanes, cases, d)
    targets: Array  # (columns, cases)
    weights: Array  # (slots, cases), summing to 1


class Lanes(Group):
    """Several groups as one, lane after lane: as many probes each, and as many steps an epoch."""

    def __init__(
        self, data: Matrix, held: Matrix, groups: Sequence[Sequence[Task]], batch_size: int
    ) -> None:
        self.torch = library("torch", "training on torch tensors")
        self.per_lane = len(groups[0])
        self.generators = [np.random.default_rng(group[0].order) for group in groups]
        self.lane_real = np.array([len(group[0].rows) for group in groups])
        self.lane_cases = self.lane_real + [group[0].n_mixtures for group in groups]
        self.pairs: _Pairs | None = None
        self.window: _Arranged | None = None  # of a stretch
        self.graphs: dict[str, Any] = {}
        super().__init__(data, held, [task for group in groups for task in group], batch_size)
        self.lane_rows = data.index(np.stack(level(group[0].rows for group in groups)))
        longest = int(self.lane_cases.argmax())
        self.n_real = int(self.lane_real[longest])
        self.n_synthetic = int(self.lane_cases[longest]) - self.n_real
        self.room = usual_room(self.n_real, self.n_synthetic, batch_size)
        self.cuda = self.data.X.device.type == "cuda"
        self.warm = False

    def run(self, limit: int, patience: int, advance: Callable[[float], object]) -> list[Fit]:
        """Train until every probe has stopped or `limit` epochs are done."""
        record = Record(self.tasks, limit, patience, advance)
        running, epoch = self.live, 0  # those in the matrix are `live` until half have stopped
        here = self.torch.cuda.device(self.data.X.device) if self.cuda else contextlib.nullcontext()
        with here, ThreadPoolExecutor(DRAWING_THREADS) as self.beside:
            coming = self._draw(limit)
            self._set_up(record)
            while len(running) and epoch < limit:
                drawn, room = coming, coming.room()  # all drawn: the next ones follow in order
                coming = self._draw(limit - epoch - len(drawn.orders))
                for losses in self._train(drawn, room):
                    epoch += 1
                    _, stopped = record.add(epoch, running, losses)
                    running = running[~stopped]
                    if len(running) == 0:
                        break
                if 0 < len(running) <= len(self.live) // 2:
                    self._save()
                    self._drop(np.isin(self.live, running))
                    self._set_up(record)
        record.unstopped()
        self._save()
        return record.fits(self.best_weights, self.best_intercept)

    # -- what belongs to the columns still in training ------------------------------------------

    def _padded(self, probes: NDArray[np.int64]) -> NDArray[np.int64]:
        """As many probes in every lane that has any: the last of a lane several times."""
        self.lanes, starts, counts = np.unique(
            probes // self.per_lane, return_index=True, return_counts=True
        )
        inside = np.minimum(np.arange(counts.max()), counts[:, None] - 1)
        padded: NDArray[np.int64] = probes[starts[:, None] + inside].reshape(-1)
        return padded

    def _set_state(self, weights: Array, intercept: Array) -> None:
        super()._set_state(weights, intercept)
        shape = (len(self.lanes), -1, weights.shape[1])
        self.stacked_weights = self.xp.reshape(self.weights, shape)
        self.stacked_slope = self.xp.reshape(self.slope, shape)

    def _set_synthetic(self, live: list[Task]) -> None:  # noqa: ARG002
        if not self.n_synthetic:
            return
        if self.pairs is None:
            self.pairs = self._all_pairs()
        here = self.data.index(self.lanes)
        self.pair_rows = self.pairs.rows[here]
        self.pair_shares = self.pairs.shares[here]
        n_sets = self.pair_rows.shape[1] // 2
        self.belongs: Array | None = None
        if n_sets > 1:
            chosen = np.eye(n_sets)[np.repeat(self.pairs.sets[self.slots], self.n_columns)]
            both = np.concatenate([chosen, chosen], axis=1)
            self.belongs = self.data.array(both.reshape(len(self.lanes), -1, 2 * n_sets, 1))

    def _all_pairs(self) -> _Pairs:
        """Number the sets of synthetic cases in every lane."""
        number = np.zeros(len(self.tasks), dtype=np.int64)
        lanes: list[list[Task]] = []  # of each lane, one task for each of its sets
        for start in range(0, len(self.tasks), self.per_lane):
            mine = slice(start, start + self.per_lane)
            _, firsts, number[mine] = np.unique(
                self.sets[mine], return_index=True, return_inverse=True
            )
            lanes.append([self.tasks[start + i] for i in firsts])
        most = max(map(len, lanes))
        rows: list[NDArray[Any]] = []
        shares: list[NDArray[Any]] = []
        for lane in lanes:
            sets = [
                t.mixtures for t in lane + lane[-1:] * (most - len(lane)) if t.mixtures is not None
            ]
            rows.append(np.stack([m.first for m in sets] + [m.second for m in sets]))
            both = [coefficients(self.data, m, self.scaling) for m in sets]
            shares.append(np.stack([left for left, _ in both] + [right for _, right in both]))
        every_row = self.data.index(np.stack(level(rows)))
        every_share = self.data.array(np.stack(level(shares)))
        return _Pairs(every_row, every_share, number)

    # -- epochs -----------------------------------------------------------------------------------

    def _draw(self, epochs: int) -> _Drawn:
        """Draw the coming epochs' orders of each lane in training, beside the training."""
        cases = self.n_real + self.n_synthetic
        most = min(EPOCHS_TOGETHER, max(1, DRAWN_TOGETHER // (cases * len(self.lanes))))
        shape = (max(0, min(epochs, most)), len(self.lanes), cases)
        orders = self.torch.empty(shape, dtype=self.torch.int64, pin_memory=self.cuda)
        starts = np.arange(0, cases, self.batch_size)
        sizes = np.diff(np.append(starts, cases))

        def draw(place: int, lane: int) -> tuple[int, int]:
            mine, n = orders.numpy()[:, place], self.lane_cases[lane]
            mine[:, n:] = -1
            for order in mine:
                order[:n] = self.generators[lane].permutation(n)
            real = np.add.reduceat(mine < self.lane_real[lane], starts, axis=1, dtype=np.int64)
            return int(real.max(initial=0)), int((sizes - real).max(initial=0))

        needs = [self.beside.submit(draw, *pair) for pair in enumerate(self.lanes.tolist())]
        return _Drawn(orders, self.lanes, needs)

    def _train(self, drawn: _Drawn, room: tuple[int, int]) -> Iterator[NDArray[np.float64]]:
        """Train as many epochs as are drawn; yield their losses of all probes, NaN of those gone."""
        if room[0] > self.room[0] or room[1] > self.room[1]:
            self.room = (max(room[0], self.room[0]), max(room[1], self.room[1]))
            self._set_layout()
        orders = drawn.orders
        if len(drawn.lanes) > len(self.lanes):  # some were dropped since
            orders = orders[:, np.isin(drawn.lanes, self.lanes)]
        self.position.zero_()
        for order in orders:
            self.orders.copy_(order, non_blocking=self.cuda)
            self._epoch()
        self.step_count += len(orders) * self.n_steps
        first = np.searchsorted(self.slots, self.live)
        for losses in to_host(self.history[: len(orders)]):
            result = np.full(len(self.tasks), np.nan)
            result[self.live] = losses[first]
            yield result

    def _epoch(self) -> None:
        """Every lane's cases in its new order, then the losses and what stops by them."""
        self._play(self._arrange)
        for k in range(self.stretches):
            here = self._span(k * STRETCH, (k + 1) * STRETCH)
            if self.window is None:
                self.window = _Arranged(*(None if v is None else v.clone() for v in here))
            for there, values in zip(self.window, here, strict=True):
                if values is not None:
                    there.copy_(values)
            self._play(self._stretch)
        self._play(self._end)
        self.warm = True

    def _play(self, part: Callable[[], None]) -> None:
        """Do a part of an epoch: on a CUDA card by its graph, recorded when the second epoch comes."""
        if not self.cuda or not self.warm:  # what starts with its first use must not be recorded
            part()
            return
        if part.__name__ not in self.graphs:
            graph, here = self.torch.cuda.CUDAGraph(), self.torch.cuda.current_stream()
            recording = self.torch.cuda.Stream()
            recording.wait_stream(here)
            with self.torch.cuda.stream(recording):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    part()
                finally:
                    graph.capture_end()
            here.wait_stream(recording)
            self.graphs[part.__name__] = graph
        self.graphs[part.__name__].replay()

    def _arrange(self) -> None:
        self.arranged = self._in_places(self.layout.places(self.orders, self.reals))

    def _stretch(self) -> None:
        assert self.window is not None
        for batch in self._steps(self.window, 0, STRETCH):
            self._step(batch)

    def _end(self) -> None:
        first, last = self.stretches * STRETCH, self.n_steps
        for batch in self._steps(self._span(first, last), first, last):
            self._step(batch)
        self._stop(self._losses())

    def _set_up(self, record: Record) -> None:
        """Set up what the epochs read and write for the probes in the matrix."""
        device, slots = self.data.device, self.slots

        def beside(values: Any) -> Array:
            return self.torch.as_tensor(values, device=device)

        # Where every probe has its own rate, Adam moves zeros at rate 1, and the move is scaled.
        self.varied = not isinstance(self.rate, float)
        self.moved = self.torch.zeros_like(self.flat) if self.varied else self.flat
        size = max(MIN_PART, -(-len(self.flat) // ADAM_PARTS))
        self.adam_parts = [part.split(size) for part in (self.moved, self.gradient, *self.moments)]
        self.steps_done = self.torch.tensor(float(self.step_count), device=device)
        columns = self.data.index(column_numbers(slots, self.n_columns))
        self.kept_weights, self.kept_intercept = (
            self.best_weights[columns],
            self.best_intercept[columns],
        )
        self.stops, self.stopped = beside(record.stops[slots]), beside(record.done[slots])
        self.lowest, self.best = beside(record.lowest[slots]), beside(record.best[slots])
        self.patience, self.epoch = record.patience, beside(max(map(len, record.history)))
        self.position = self.torch.zeros(1, dtype=self.torch.int64, device=device)
        self.history = self.torch.zeros(
            EPOCHS_TOGETHER, len(slots), dtype=self.torch.float64, device=device
        )
        cases = self.n_real + self.n_synthetic
        self.orders = self.torch.zeros(
            len(self.lanes), cases, dtype=self.torch.int64, device=device
        )
        self.rows = self.lane_rows[self.data.index(self.lanes)]
        self._set_layout()

    def _set_layout(self) -> None:
        """Give the steps the room they need."""
        self.layout = Layout(
            self.data.device,
            n_cases=self.n_real + self.n_synthetic,
            batch_size=self.batch_size,
            room=self.room,
        )
        reals, cases = self.lane_real[self.lanes, None], self.lane_cases[self.lanes, None]
        self.reals = self.data.index(reals)
        self.uneven = bool((cases < self.n_real + self.n_synthetic).any())
        sizes = np.minimum(cases - self.batch_size * np.arange(self.n_steps), self.batch_size)
        # What a case of each place weighs in its step.
        self.place_share = self.data.array((1.0 / sizes)[:, self.layout.step_of_place])
        self.n_pairs = self.pair_rows.shape[1] if self.n_synthetic else 0
        if self.n_synthetic:
            self.with_pairs = self.data.index(self.layout.steps_with_pairs(self.n_pairs))
        # The last step may be smaller than those of a stretch.
        self.stretches = 0 if self.n_steps < 2 * STRETCH else (self.n_steps - 1) // STRETCH
        self.window, self.graphs = None, {}

    def _stop(self, losses: Array) -> None:
        """Keep the weights of probes that got better; stop those that have not for too long."""
        self.epoch += 1
        self.history.index_copy_(0, self.position, losses[None])
        self.position += 1
        better = (losses < self.lowest) & ~self.stopped | ~self.stops
        self.torch.where(better, losses, self.lowest, out=self.lowest)
        self.torch.where(better, self.epoch, self.best, out=self.best)
        column = better.repeat_interleave(self.n_columns, output_size=len(self.kept_intercept))
        self.torch.where(column, self.intercept, self.kept_intercept, out=self.kept_intercept)
        self.torch.where(column[:, None], self.weights, self.kept_weights, out=self.kept_weights)
        self.stopped |= self.stops & (self.epoch - self.best >= self.patience)

    def _save(self) -> None:
        """Remember the kept weights of the probes in the matrix."""
        first = np.searchsorted(self.slots, self.live)
        here = self.data.index(column_numbers(first, self.n_columns))
        there = self.data.index(column_numbers(self.live, self.n_columns))
        self.best_weights[there] = self.kept_weights[here]
        self.best_intercept[there] = self.kept_intercept[here]

    # -- training ---------------------------------------------------------------------------------

    def _in_places(self, cases: Array) -> _Arranged:
        """What the steps of an epoch read, of the cases at its places (lanes, places)."""
        weights, rows, shares = self.case_weights, self.rows, None
        if not self.n_synthetic and not self.uneven and weights is None:
            return _Arranged(rows.gather(1, cases), self._by_lane(self.targets, cases), None, None)
        numbers = cases.clamp(min=0)
        # An empty place weighs nothing; the others are divided by their step's cases here.
        counts = (cases >= 0) * self.place_share
        n = len(self.targets)
        counts = counts.repeat_interleave(n // len(cases), 0, output_size=n)
        weights = counts if weights is None else self._by_lane(weights, numbers) * counts
        # Where a synthetic case stands, any row: it is left out.
        rows = rows.gather(1, self.torch.minimum(numbers, self.reals - 1))
        if self.n_synthetic:
            rows, shares = self._with_pairs(rows, numbers)
        return _Arranged(rows, self._by_lane(self.targets, numbers), weights, shares)

    def _ends(self, step: int) -> tuple[int, int, int]:
        """Where a step begins among rows, places and synthetic places."""
        layout, pairs = self.layout, self.n_pairs
        real, extra = int(layout.real[:step].sum()), int(layout.synthetic[:step].sum())
        return real + pairs * extra, real + (extra if pairs else 0), extra

    def _span(self, first: int, last: int) -> _Arranged:
        """The part of the arranged epoch that some steps read."""
        (row, place, extra), ends = self._ends(first), self._ends(last)
        rows, targets, weights, shares = self.arranged
        return _Arranged(
            rows[:, row : ends[0]],
            targets[:, place : ends[1]],
            None if weights is None else weights[:, place : ends[1]],
            None if shares is None else shares[..., extra : ends[2]],
        )

    def _steps(self, span: _Arranged, first: int, last: int) -> Iterator[Batch]:
        """The batches of some steps, whose part of the epoch is `span`."""
        self.shares: Any = span.shares
        base = self._ends(first)
        for step in range(first, last):
            (row, place, extra), ends = (
                [at - start for at, start in zip(self._ends(k), base, strict=True)]
                for k in (step, step + 1)
            )
            part = slice(place, ends[1])
            size = int(self.layout.sizes[step])
            yield Batch(
                size=size if span.weights is None else 1,  # else the weights are divided by it
                rows=span.rows[:, row : ends[0]],
                synthetic=slice(extra, ends[2]),
                targets=span.targets[:, part],
                weights=None if span.weights is None else span.weights[:, part],
            )

    def _by_lane(self, values: Array, numbers: Array) -> Array:
        """Columns of each lane's rows of `values` by its own `numbers`."""
        split = values.reshape(len(numbers), -1, values.shape[1])
        every = numbers[:, None].expand(-1, split.shape[1], -1)
        return split.gather(2, every).reshape(len(values), -1)

    def _with_pairs(self, rows: Array, numbers: Array) -> tuple[Array, Array]:
        """Put the pairs of each step's synthetic cases behind its real cases' rows; and their shares.

        `rows` (lanes, places) has room for the synthetic cases themselves, which is left out.
        """
        lanes, pairs, size = self.pair_rows.shape
        chosen = numbers[:, self.layout.synthetic_places] - self.reals
        chosen = chosen.clamp(min=0)  # an empty place
        flat = (lanes * pairs, size)
        both = self._by_lane(self.pair_rows.reshape(flat), chosen).reshape(lanes, -1)
        shares = self._by_lane(self.pair_shares.reshape(flat), chosen)
        every = self.xp.concat([rows, both], axis=1)[:, self.with_pairs]
        return every, shares.reshape(lanes, 1, pairs, -1)

    def _adam(self) -> None:
        self.steps_done += 1
        if self.varied:
            self.moved.zero_()
        # What `torch.optim.Adam(fused=True)` calls; importing that takes seconds.
        self.torch._fused_adam_(
            *self.adam_parts,
            [],
            [self.steps_done] * len(self.adam_parts[0]),
            lr=1.0 if self.varied else self.rate,
            beta1=BETA_1,
            beta2=BETA_2,
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )
        if self.varied:
            self.flat.addcmul_(self.moved, self.rate)

    def _forward(self, batch: Batch) -> Array:
        xp, (columns, size) = self.xp, batch.targets.shape
        extra = batch.synthetic.stop - batch.synthetic.start
        n_real = size - extra
        self.gathered = self.data.take(batch.rows, self.scaling)
        every = self.stacked_weights @ self.gathered.mT
        if extra:
            self.now = self.shares[..., batch.synthetic]
            if self.belongs is not None:
                self.now = self.now * self.belongs
            pairs = xp.reshape(every[..., n_real:], (*every.shape[:2], -1, extra))
            every = xp.concat([every[..., :n_real], mix(pairs, self.now)], axis=2)
        return xp.reshape(every, (columns, size))

    def _backward(self, batch: Batch, slopes: Array) -> None:
        xp, size = self.xp, slopes.shape[1]
        extra = batch.synthetic.stop - batch.synthetic.start
        shape = self.stacked_weights.shape[:2]
        back = xp.reshape(slopes, (*shape, size))
        if extra:
            pairs = xp.reshape(unmix(back[..., size - extra :], self.now), (*shape, -1))
            back = xp.concat([back[..., : size - extra], pairs], axis=2)
        xp.matmul(back, self.gathered, out=self.stacked_slope)

    # -- validation -------------------------------------------------------------------------------

    def _set_columns(self) -> None:
        super()._set_columns()
        self.stacked = self._stack_held()
        self.selected_places = [
            self.data.index(np.searchsorted(self.slots, chosen.probes)) for chosen in self.selected
        ]

    def _stack_held(self) -> _Stacked | None:
        """Validation sets as chosen, where every lane has a small one of its own."""
        sets = sorted(self.selected, key=lambda chosen: int(chosen.probes[0]))
        owners = [np.unique(chosen.probes // self.per_lane) for chosen in sets]
        longest = max(len(chosen.rows) for chosen in sets)
        alone = len(sets) == len(self.lanes) > 1 and all(len(lanes) == 1 for lanes in owners)
        needed = len(sets) * longest * self.data.n_features * 8
        if not alone or needed > STACK_BYTES:
            return None
        xp, data = self.xp, self.data
        about = {"dtype": data.dtype, "device": data.device}
        rows = xp.zeros((len(sets), longest, data.n_features), **about)
        targets = xp.zeros((self.weights.shape[0], longest), **about)
        weights = xp.zeros((len(self.slots), longest), **about)
        slots = self.slots.reshape(len(sets), -1)
        for k, chosen in enumerate(sets):
            n, mine = len(chosen.rows), slice(k * slots.shape[1], (k + 1) * slots.shape[1])
            columns = slice(mine.start * self.n_columns, mine.stop * self.n_columns)
            inside = np.searchsorted(chosen.probes, slots[k])
            rows[k, :n] = chosen.data.take(chosen.rows, self.scaling)
            targets[columns, :n] = chosen.targets[
                data.index(column_numbers(inside, self.n_columns))
            ]
            weights[mine, :n] = 1.0 / n
            if chosen.weights is not None:
                weights[mine, :n] = chosen.weights[data.index(inside)] / n
        return _Stacked(xp.matrix_transpose(rows), targets, weights)

    def _losses(self) -> Array:
        """Mean validation loss of every probe in the matrix, in double precision."""
        if self.stacked is None:
            losses = self.xp.full_like(self.lowest, math.inf)
            for chosen, place in zip(self.selected, self.selected_places, strict=True):
                losses[place] = self._mean_loss(chosen)
            return losses
        rows, targets, weights = self.stacked
        logits = self.xp.reshape(self.stacked_weights @ rows, targets.shape)
        logits *= self.factor
        logits += self.intercept[:, None]
        values = log_loss(self.xp, logits, targets, self.n_columns)
        values *= weights
        return self.xp.sum(values, axis=1, dtype=self.xp.float64)
