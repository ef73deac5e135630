"""Methods compared on the same cases: every difference with its noise over cases and over seeds.

One bootstrap of a data set's cases (of its groups, where there are any) serves all its cells: the same
draws for every encoder, method and seed, so that any difference, and any average over encoders, is
paired. A seed's sums count the drawn cases that are in its test set; the metric is taken per seed and
then averaged over seeds. A single ECE is never given an interval (it would be wrong), only differences
between methods on the same cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from scalecal.auditing.scores import case_sums, sum_values
from scalecal.checks import Float, InputError, Int
from scalecal.inference.paired import Contrast, Drawn, RecoveredShare, contrast_of, recovered_share
from scalecal.inference.units import Units, weights
from scalecal.runs.cells import Cell

__all__ = ["Contrast", "Drawn", "Resampled", "contrast_of"]


class Resampled:
    """Bootstrap of the cells of one data set, drawn when first asked for and kept.

    Parameters
    ----------
    cells
        Cells of one data set; their cases may differ and are matched by id.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=400)
    >>> y = (rng.uniform(size=400) < p).astype(int)
    >>> sharp = np.clip(2 * p - 0.5, 0.01, 0.99)
    >>> rows = np.arange(400)
    >>> from scalecal.cases import Cases
    >>> from scalecal.runs.cells import Prediction
    >>> cell = Cell("toy", "raw", Cases(n=400, classes=("a", "b"), y=y),
    ...             {("none", 0): Prediction(rows, sharp), ("good", 0): Prediction(rows, p)})
    >>> result = Resampled([cell]).contrast("good", "none", metric="nll")
    >>> result.high < 0
    True
    """

    def __init__(self, cells: Sequence[Cell], *, n_resamples: int = 1000, seed: int = 0) -> None:
        if not cells:
            raise InputError("nothing to resample: give at least one cell")
        datasets = {cell.dataset for cell in cells}
        if len(datasets) > 1:
            raise InputError(
                f"cells of one data set are needed, got those of {', '.join(sorted(datasets))}"
            )
        self.cells = {cell.encoder: cell for cell in cells}
        place: dict[str, int] = {}
        grouped = all(cell.cases.groups is not None for cell in cells)
        group: list[str] = []
        self._rows: dict[str, Int] = {}
        for cell in cells:
            names = cell.cases.names.tolist()
            groups = None if cell.cases.groups is None else cell.cases.groups.values.tolist()
            for i, name in enumerate(names):
                if name not in place:
                    place[name] = len(place)
                    group.append("" if groups is None else groups[i])
            self._rows[cell.encoder] = np.array([place[name] for name in names])
        self._units = Units.of(len(place), groups=group if grouped else None, seed=seed)
        rng = np.random.default_rng(seed)
        drawn = list(weights(self._units.count, n_resamples, rng))
        # Single precision: exact for the weights, and far finer than the bootstrap's own noise.
        self._weights: NDArray[np.float32] = np.concatenate(drawn).astype(np.float32)
        self._kept: dict[tuple[str, str, str], dict[str, Drawn]] = {}

    @property
    def resampled(self) -> str:
        """What is resampled, in a word."""
        return "cases" if self._units.group is None else "groups"

    def encoders(self, *methods: str) -> list[str]:
        """Encoders that have predictions of all these methods."""
        return [e for e, cell in self.cells.items() if set(methods) <= set(cell.methods)]

    def drawn(
        self, encoder: str, method: str, stratum: str = "overall", metric: str = "ece"
    ) -> Drawn:
        """Return a metric of one method with its bootstrap."""
        key = (encoder, method, stratum)
        if key not in self._kept:
            self._kept[key] = self._draw(*key)
        if metric not in self._kept[key]:
            raise InputError(f"{metric} is not known for {method} on {encoder}, stratum {stratum}")
        return self._kept[key][metric]

    def _draw(self, encoder: str, method: str, stratum: str) -> dict[str, Drawn]:
        cell, place = self.cells[encoder], self._rows[encoder]
        tested: dict[bytes, list[tuple[int, Int, Float]]] = {}
        for seed in cell.seeds(method):
            part = cell.predictions[method, seed]
            part = part.take(cell.inside(part.rows, stratum))
            if len(part.rows):
                tested.setdefault(part.rows.tobytes(), []).append((seed, part.rows, part.p))
        by_seed: dict[str, dict[int, float]] = {}
        samples: dict[str, list[Float]] = {}
        cases: set[int] = set()
        used: set[int] = set()
        # Seeds with the same test cases share one matrix product.
        for parts in tested.values():
            here = parts[0][1]
            present, code = np.unique(self._units.code[place[here]], return_inverse=True)
            units = Units(code.astype(np.int64), len(present))
            cases.update(here.tolist())
            used.update(present.tolist())
            counts = None if cell.cases.votes is None else cell.cases.votes[here]
            sums = [case_sums(cell.y[here], p, counts, units=units) for _, _, p in parts]
            names, widths = list(sums[0]), [part.shape[1] for part in sums[0].values()]
            matrix = np.concatenate([one[name] for one in sums for name in names], axis=1)
            drawn = (self._weights[:, present] @ matrix.astype(np.float32)).astype(np.float64)
            for (seed, _, _), one, block in zip(
                parts, sums, np.split(drawn, len(parts), axis=1), strict=True
            ):
                point = sum_values({k: v.sum(axis=0, keepdims=True) for k, v in one.items()})
                split = np.split(block, np.cumsum(widths)[:-1], axis=1)
                for name, values in sum_values(dict(zip(names, split, strict=True))).items():
                    by_seed.setdefault(name, {})[seed] = float(point[name][0])
                    samples.setdefault(name, []).append(values)
        return {
            name: Drawn(by_seed[name], np.mean(parts, axis=0), len(cases), len(used))
            for name, parts in samples.items()
        }

    def averaged(
        self, encoders: Iterable[str], method: str, stratum: str = "overall", metric: str = "ece"
    ) -> Drawn:
        """Return a metric averaged over encoders; seeds that all of them have are kept."""
        parts = [self.drawn(e, method, stratum, metric) for e in encoders]
        if not parts:
            raise InputError(f"no encoder has predictions of {method}")
        common = set.intersection(*(set(part.by_seed) for part in parts))
        if not common:  # seeds without a name in common: number them in order
            width = min(len(part.by_seed) for part in parts)
            tables = [list(part.by_seed.values())[:width] for part in parts]
            by_seed = dict(enumerate(np.mean(tables, axis=0).tolist()))
        else:
            by_seed = {s: float(np.mean([p.by_seed[s] for p in parts])) for s in sorted(common)}
        samples: Float = np.mean([part.samples for part in parts], axis=0)
        first = parts[0]
        return Drawn(by_seed, samples, max(p.n for p in parts), first.units)

    def contrast(
        self,
        method: str,
        reference: str,
        *,
        stratum: str = "overall",
        metric: str = "ece",
        encoders: Sequence[str] | None = None,
        level: float = 0.95,
    ) -> Contrast:
        """Compare two methods, averaged over encoders (all that have both, unless named)."""
        names = self.encoders(method, reference) if encoders is None else list(encoders)
        a = self.averaged(names, reference, stratum, metric)
        b = self.averaged(names, method, stratum, metric)
        return contrast_of(a, b, level=level)

    def recovered(
        self,
        method: str,
        reference: str,
        *,
        baseline: str = "none",
        stratum: str = "low",
        metric: str = "ece",
        encoders: Sequence[str] | None = None,
        level: float = 0.95,
    ) -> RecoveredShare:
        """Share of the reference's gain over the baseline that a method recovers.

        As `scalecal.inference.paired.recovered_share`, for any metric: undefined where the reference's own
        gain is not clearly above zero.
        """
        names = self.encoders(method, reference, baseline) if encoders is None else list(encoders)
        base, best, own = (
            self.averaged(names, name, stratum, metric) for name in (baseline, reference, method)
        )
        return recovered_share(base, best, own, level=level)
