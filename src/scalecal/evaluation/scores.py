"""Numbers of cells: the tidy results of every method, seed and stratum, their nulls, and their bootstrap.

One bootstrap of a data set's cases (of its groups, where there are any) serves all its cells: the same
draws for every encoder, method and seed, so that any difference, and any average over encoders, is
paired. A seed's sums count the drawn cases that are in its test set; the metric is taken per seed and
then averaged over seeds, and widened where the units are few or unequal (`stretched`). A single ECE has
no interval (it would be wrong), only differences between methods on the same cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalecal import metrics
from scalecal.cases import BASELINE, Answers, Predictions, rows_of
from scalecal.checks import Float, InputError, Int, LazyModule
from scalecal.engines import Engine, Worker
from scalecal.engines.local import InProcess
from scalecal.evaluation.cells import reweighted
from scalecal.evaluation.rows import case_sums, label_sample, sum_values
from scalecal.inference.paired import Contrast, Drawn, RecoveredShare, contrast_of, recovered_share
from scalecal.inference.selection import selection_draws
from scalecal.inference.units import Units, stretched
from scalecal.inference.units import weights as bootstrap_weights
from scalecal.metrics.arguments import Sample, read_hard_event
from scalecal.metrics.grouping import rank_p
from scalecal.metrics.label_scores import entropy_term
from scalecal.metrics.resampling import sample_floor
from scalecal.metrics.reweighting import Reweighted

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = LazyModule("pandas")

RESULT_COLUMNS = ("dataset", "encoder", "method", "seed", "stratum", "metric", "value", "floor")

MIN_DRAWS = 40
"""Draws that each of several seeds has at least for its null."""

Nulls = Mapping[int, Mapping[str, Float]]
"""Seed -> stratum -> ECEs that a calibrated model with the same predictions would show there."""


def entropy(probs: Float) -> Float:
    """Entropy of each case's predicted distribution, in nats.

    Examples
    --------
    >>> entropy(np.array([0.5, 1.0])).round(4).tolist()
    [0.6931, 0.0]
    """
    return entropy_term(Sample(np.zeros(0), probs))


class Samples(NamedTuple):
    """What labels judge, and what votes judge (None without votes)."""

    by_labels: Sample
    by_votes: Sample | None

    def judged_by(self, metric: metrics.Metric) -> Sample | None:
        """The sample that a metric is computed from."""
        if metric.votes:
            return self.by_votes
        return self.by_labels


def samples_of(y: Int, part: Answers, votes: Int | None, **about: Any) -> Samples:
    """Return what judges some answers; `about` as `scalecal.metrics.arguments.Sample`."""
    by_labels = label_sample(y, part.p, **about)
    if votes is None:
        return Samples(by_labels, None)
    by_votes = Sample(np.zeros(0), part.vote_p, votes=votes, rho=part.rho, **about)
    return Samples(by_labels, by_votes)


def samples_in(
    cell: Predictions, part: Answers, stratum: str, *, weighted: Reweighted | None, n_bins: int
) -> Samples | None:
    """Return what judges answers to the cases of a stratum; None where it has none.

    `weighted` holds the importance weights of all cases that were answered.
    """
    rows = cell.inside(part.index, stratum)
    inside = part.take(rows)
    if len(inside) == 0:
        return None
    groups = rows_of(cell.cases.group_codes, inside.index)
    about: dict[str, Any] = {"groups": groups, "n_bins": n_bins}
    if weighted is not None:
        about |= {"weights": weighted.each[rows], "importance": True}
    votes = rows_of(cell.cases.votes, inside.index)
    return samples_of(cell.y[inside.index], inside, votes, **about)


def score(
    samples: Samples, *, brief: bool = False, splits: bool = True, floor: float | None = None
) -> dict[str, tuple[float, float]]:
    """Metric -> (value, floor) of some cases; the floor is NaN where a metric has none.

    `brief` leaves out what is not `cheap`; `splits` asks for the scores of split panels. Cases with
    importance weights have the floor of ECE given.
    """
    by_labels = samples.by_labels
    nan = float("nan")
    out = {"n": (float(len(by_labels.p)), nan)}
    for metric in metrics.METRICS.values():
        sample = samples.judged_by(metric)
        left_out = (brief and not metric.cheap) or (not splits and not metric.per_stratum)
        if sample is None or not metric.compared or left_out:
            continue
        if metric.pseudo_values is not None and by_labels.p.ndim > 1:  # pairs are of two classes
            continue
        value, expected = metric.value(sample), nan
        if metric.function is not None:
            # A function that knows no importance weights says so by NaN.
            if sample.importance and np.isnan(value):
                continue
            # Floors of means over cases are in audits: here methods are compared on the same cases.
            if metric.expected is not None:
                expected = metric.expected(sample)
        out[metric.key] = (value, expected)
    if floor is None:
        floor = sample_floor(by_labels)
    out["ece"] = (out["ece"][0], floor)
    return out


def draw_nulls(
    cell: Predictions, method: str, *, n_bins: int = 15, n_resamples: int = 1000, seed: int = 0
) -> Nulls:
    """Draw the ECEs of a calibrated model, overall and by stratum, for every seed of a method.

    Overall the labels are drawn from the predictions. In strata the selection-aware null is drawn,
    since agreement and label come from the same votes. Labels of one group go together. Seeds share
    `n_resamples`, `MIN_DRAWS` at least to each.
    """
    seeds, strata = cell.seeds(method), cell.cases.with_strata(cell.stratum_names).strata
    share = max(min(n_resamples, MIN_DRAWS), -(-n_resamples // len(seeds)))
    options: dict[str, Any] = {"n_bins": n_bins, "n_resamples": share, "seed": seed}
    out = {}
    for trained in seeds:
        part = cell.answers[method, trained]
        event = read_hard_event(cell.y[part.index], part.p)
        own = options | {"groups": rows_of(cell.cases.group_codes, part.index)}
        weighted = reweighted(cell, part)
        if weighted is None:
            out[trained] = {"overall": metrics.resampled_ece(event.p, y=event.y, **own)}
        else:
            out[trained] = {"overall": weighted.drawn_ece(**options)}
            own["weights"] = weighted.weights
        if strata is not None and strata.names:
            codes = strata.codes[part.index]
            drawn = selection_draws(event.y, event.p, codes, n_strata=len(strata.names), **own)
            out[trained] |= {
                name: column[np.isfinite(column)]
                for j, (name, column) in enumerate(zip(strata.names, drawn.ece.T, strict=True))
                if (codes == j).any()
            }
    return out


def score_cell(
    cell: Predictions,
    *,
    n_bins: int = 15,
    n_resamples: int = 1000,
    seed: int = 0,
    nulls: Nulls | None = None,
    advance: Callable[[float], object] = lambda _: None,
) -> pd.DataFrame:
    """Score every method, seed and stratum of a cell.

    `nulls` are those of the uncalibrated method (`draw_nulls`); None: `n_resamples` of them are drawn.
    `n_resamples` and `seed` are for these, and for floors at another prevalence. `advance` is called with
    the share of the work that was just done.

    Returns
    -------
    DataFrame with the columns `RESULT_COLUMNS`, one row per number. `floor` is what a calibrated model
    would show on average (for `ece` and `split_ece`), NaN where a metric has no floor. The uncalibrated
    method has further rows in each stratum: `null` and `p_null`.
    """
    if nulls is None and BASELINE in cell.methods and cell.stratum_names:
        nulls = draw_nulls(cell, BASELINE, n_bins=n_bins, n_resamples=n_resamples)
    lines: list[tuple[Any, ...]] = []
    options: dict[str, Any] = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
    for (method, trained), part in cell.answers.items():
        head = (cell.dataset, cell.encoder, method, trained)
        advance(1 / len(cell.answers))
        errors = {}
        weighted = reweighted(cell, part)
        for stratum in ("overall", *cell.stratum_names):
            samples = samples_in(cell, part, stratum, weighted=weighted, n_bins=n_bins)
            if samples is None:
                continue
            floor = None
            if weighted is not None:
                floor = weighted.floor(cell.inside(part.index, stratum), **options)
            # Points of a sweep need no more than sums over cases.
            brief = method in cell.variants
            scores = score(samples, brief=brief, splits=stratum == "overall", floor=floor)
            errors[stratum] = scores["ece"][0]
            lines += [(*head, stratum, metric, *pair) for metric, pair in scores.items()]
        if method != BASELINE or nulls is None:
            continue
        for stratum, drawn in nulls[trained].items():
            if stratum != "overall" and stratum in errors and len(drawn):
                p = rank_p(drawn, errors[stratum])
                lines.append((*head, stratum, "null", float(drawn.mean()), float("nan")))
                lines.append((*head, stratum, "p_null", p, float("nan")))
    return pd.DataFrame(lines, columns=list(RESULT_COLUMNS))


def _score_task(worker: Worker, cell: Predictions) -> pd.DataFrame:  # noqa: ARG001
    return score_cell(cell)


def score_cells(cells: Sequence[Predictions], engine: Engine | None = None) -> pd.DataFrame:
    """Score several cells into one frame, on the workers of an engine, or here."""
    scored: dict[int, pd.DataFrame] = dict((engine or InProcess()).run(_score_task, cells))
    if not scored:
        return pd.DataFrame(columns=list(RESULT_COLUMNS))
    return pd.concat([scored[number] for number in range(len(cells))], ignore_index=True)


class Resampled:
    """Bootstrap of the cells of one data set, drawn when first used and kept.

    The cells' cases may differ and are matched by id.
    """

    def __init__(
        self,
        cells: Sequence[Predictions],
        *,
        n_bins: int = 15,
        n_resamples: int = 1000,
        seed: int = 0,
    ) -> None:
        datasets = sorted({cell.dataset for cell in cells})
        if len(datasets) != 1:
            raise InputError(f"cells of one data set are needed, got those of {datasets}")
        self.cells = {cell.encoder: cell for cell in cells}
        self._n_bins = n_bins
        names = [name for cell in cells for name in cell.cases.names.tolist()]
        place = {name: i for i, name in enumerate(dict.fromkeys(names))}
        row = np.array([place[name] for name in names])
        ends = np.cumsum([cell.cases.n for cell in cells])
        self._rows = dict(zip(self.cells, np.split(row, ends[:-1]), strict=True))
        values = None
        factors = [cell.cases.groups for cell in cells if cell.cases.groups is not None]
        if len(factors) == len(cells):
            first = np.unique(row, return_index=True)[1]
            values = np.concatenate([groups.values for groups in factors])[first]
        self._units = Units.of(len(place), groups=values, seed=seed)
        self._draws = n_resamples, seed
        self._kept: dict[tuple[str, str, str], dict[str, Drawn]] = {}

    @cached_property
    def _weights(self) -> NDArray[np.float32]:
        """How often each unit is drawn, (resamples, units)."""
        n_resamples, seed = self._draws
        drawn = list(bootstrap_weights(self._units.count, n_resamples, np.random.default_rng(seed)))
        # Single precision: exact for the weights, and far finer than the bootstrap's own noise.
        return np.concatenate(drawn).astype(np.float32)

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
        tested: dict[bytes, list[tuple[int, Answers]]] = {}
        for seed in cell.seeds(method):
            part = cell.answers[method, seed]
            if len(part.index[cell.inside(part.index, stratum)]):
                tested.setdefault(part.index.tobytes(), []).append((seed, part))
        by_seed: dict[str, dict[int, float]] = {}
        samples: dict[str, list[Float]] = {}
        cases: set[int] = set()
        used: set[int] = set()
        # Seeds with the same test cases share one matrix product.
        for parts in tested.values():
            rows = parts[0][1].index
            inside = cell.inside(rows, stratum)
            here = rows[inside]
            present, units = self._units_in(cell, place[rows], parts[0][1], inside)
            size = np.bincount(units.code, minlength=len(present)).astype(np.float64)
            cases.update(here.tolist())
            used.update(present[size > 0].tolist())
            counts = rows_of(cell.cases.votes, here)
            sums = []
            for _, part in parts:
                own = part.take(inside)
                sums.append(
                    case_sums(
                        cell.y[here],
                        own.p,
                        counts,
                        units=units,
                        n_bins=self._n_bins,
                        reader=own.p_reader,
                        rho=own.rho,
                    )
                )
            names, widths = list(sums[0]), [part.shape[1] for part in sums[0].values()]
            matrix = np.concatenate([one[name] for one in sums for name in names], axis=1)
            drawn = (self._weights[:, present] @ matrix.astype(np.float32)).astype(np.float64)
            for (seed, _), one, block in zip(
                parts, sums, np.split(drawn, len(parts), axis=1), strict=True
            ):
                point = sum_values({k: v.sum(axis=0, keepdims=True) for k, v in one.items()})
                split = np.split(block, np.cumsum(widths)[:-1], axis=1)
                for name, values in sum_values(dict(zip(names, split, strict=True))).items():
                    by_seed.setdefault(name, {})[seed] = float(point[name][0])
                    samples.setdefault(name, []).append(stretched(values, size))
        return {
            name: Drawn(by_seed[name], np.mean(parts, axis=0), len(cases), len(used))
            for name, parts in samples.items()
        }

    def _units_in(
        self, cell: Predictions, place: Int, part: Answers, inside: Any
    ) -> tuple[NDArray[np.intp], Units]:
        """Units of a stratum's cases, and which of all they are.

        With importance weights, units of other test cases stay too: all cases of a class share its weight.
        """
        weighted = reweighted(cell, part)
        code = self._units.code[place if weighted is not None else place[inside]]
        present, own = np.unique(code, return_inverse=True)
        units = Units(own.astype(np.int64), len(present))
        if weighted is not None:
            units = units.weighted(weighted.y, weighted.prevalence).within(inside)
        return present, units

    def mean_of(self, encoder: str, by_seed: Mapping[int, tuple[Int, Float]]) -> Drawn:
        """Return the mean of given numbers of cases with its bootstrap: seed -> (rows, values).

        A case whose value is NaN does not count.
        """
        values, samples, cases, count = {}, [], set(), self._units.count
        used = np.zeros(count, dtype=bool)
        for seed, (rows, numbers) in by_seed.items():
            known = np.isfinite(numbers)
            unit = self._units.code[self._rows[encoder][rows[known]]]
            used[unit] = True
            total = np.bincount(unit, numbers[known], count), np.bincount(unit, minlength=count)
            values[seed] = float(numbers[known].mean())
            sums = self._weights @ np.column_stack(total).astype(np.float32)
            drawn = (sums[:, 0] / sums[:, 1]).astype(np.float64)
            samples.append(stretched(drawn, total[1].astype(np.float64)))
            cases.update(rows[known].tolist())
        return Drawn(values, np.mean(samples, axis=0), len(cases), int(used.sum()))

    def averaged(
        self, encoders: Iterable[str], method: str, stratum: str = "overall", metric: str = "ece"
    ) -> Drawn:
        """Return a metric averaged over encoders; seeds that all of them have are kept."""
        parts = [self.drawn(e, method, stratum, metric) for e in encoders]
        if not parts:
            raise InputError(f"no encoder has predictions of {method}")
        common = set.intersection(*(set(part.by_seed) for part in parts))
        by_seed = {s: float(np.mean([p.by_seed[s] for p in parts])) for s in sorted(common)}
        if not common:  # number each encoder's seeds in their order
            in_order = zip(*(part.by_seed.values() for part in parts), strict=False)
            by_seed = {i: float(np.mean(values)) for i, values in enumerate(in_order)}
        samples: Float = np.mean([part.samples for part in parts], axis=0)
        return Drawn(by_seed, samples, max(p.n for p in parts), parts[0].units)

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
        baseline: str = BASELINE,
        stratum: str = "low",
        metric: str = "ece",
        encoders: Sequence[str] | None = None,
    ) -> RecoveredShare:
        """Share of the reference's gain over the baseline that a method recovers.

        As `scalecal.inference.paired.recovered_share`, for any metric: undefined where the reference's own
        gain is not clearly above zero.
        """
        names = self.encoders(method, reference, baseline) if encoders is None else list(encoders)
        base, best, own = (
            self.averaged(names, name, stratum, metric) for name in (baseline, reference, method)
        )
        return recovered_share(base, best, own)
