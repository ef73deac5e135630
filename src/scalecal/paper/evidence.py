"""The evidence of a run: cells, their scores, embeddings and times; what tables and claims are made from.

Synthetic agreement takes the interpolation weight between two anchors for a vote share. Whether it is one
can be checked where real votes are known, on the training embeddings of a cell with their anchors
(`Embeddings`), which are kept on disk for that.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.cases import Features, Predictions
from scalecal.checks import Float, InputError, Int
from scalecal.engines import Engine
from scalecal.evaluation.scores import Resampled, score_cells
from scalecal.io.arrays import open_npz
from scalecal.io.boundary import reading
from scalecal.io.store import write_file
from scalecal.paper.printed import SMOOTHINGS, SWEEP_SIZES
from scalecal.runs.grid import Grid
from scalecal.solvers.problem import to_host

if TYPE_CHECKING:
    import pandas as pd

_PRIMARY = ("mhist", "lidc")
_KEYS = ("dataset", "encoder", "method", "stratum", "metric")


class MissingEvidence(Exception):
    """The evidence lacks what a figure or a claim needs; the message says what."""


# ---- training embeddings

FILE = "anchors.npz"
MAX_BYTES = 1 << 27
"""Larger embeddings are not kept."""


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Training cases of one cell as the method saw them: what the premise is checked on.

    `anchors` maps class 0 and 1 to row numbers, most confident first; `counts` are votes per class.
    """

    X: Float
    y: Int
    counts: Int
    anchors: Mapping[int, Int]
    n_raters: int = 7

    @property
    def voted(self) -> tuple[NDArray[np.bool_], Float]:
        """Which cases have votes and are no anchors, and the share of positive votes of these."""
        total = self.counts.sum(axis=1)
        kept = total > 0
        kept[np.concatenate(list(self.anchors.values()))] = False
        return kept, self.counts[kept, 1] / total[kept]

    @property
    def axis(self) -> tuple[Float, Float]:
        """Mean of the negative anchors, and the way from there to the mean of the positive ones."""
        X = np.asarray(self.X, dtype=np.float64)
        start, end = (X[self.anchors[c]].mean(axis=0) for c in (0, 1))
        if np.array_equal(start, end):
            raise InputError("the anchors of both classes have the same mean: there is no axis")
        return start, end - start

    def position(self, rows: ArrayLike) -> Float:
        """Position of embeddings on the line between the anchors' means: 0 negative, 1 positive.

        Examples
        --------
        >>> X = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 5.0]])
        >>> data = Embeddings(X, np.array([0, 1, 1]), np.ones((3, 2), int), {0: [0], 1: [1]})
        >>> data.position(X).tolist()
        [0.0, 1.0, 0.5]
        """
        start, way = self.axis
        return np.asarray((np.asarray(rows, dtype=np.float64) - start) @ way / float(way @ way))

    def interpolates(self) -> tuple[Float, Float]:
        """Synthetic cases between all pairs of anchors, and the share of votes each stands for."""
        levels = np.arange(1, self.n_raters) / self.n_raters
        pairs = np.meshgrid(self.anchors[1], self.anchors[0], levels, indexing="ij")
        first, second = (part.ravel().astype(np.int64) for part in pairs[:2])
        share = pairs[2].ravel()
        X = np.asarray(self.X, dtype=np.float64)
        return share[:, None] * X[first] + (1 - share[:, None]) * X[second], share


def training_embeddings(data: Features, grid: Grid, seed: int) -> Embeddings | None:
    """Training cases of one seed with SCALE's anchors; None without votes, or of several classes."""
    probe, votes = grid.probes.get(("scale", seed)), data.cases.votes
    if probe is None or probe.plan is None or len(data.cases.classes) != 2 or votes is None:
        return None
    rows = np.sort(probe.rows)
    anchors = {c: np.searchsorted(rows, index) for c, index in probe.plan.anchors.items()}
    panel = int(np.median(votes[rows].sum(axis=1)))
    X = np.asarray(to_host(data.X[rows]), dtype=np.float64)
    return Embeddings(X, data.cases.labels[rows], votes[rows], anchors, panel)


def write_anchors(folder: str | Path, embeddings: Embeddings) -> None:
    """Keep what the premise is checked on, in single precision, unless it is large."""
    if embeddings.X.size * 4 > MAX_BYTES:
        return
    arrays = {
        "X": embeddings.X.astype(np.float32),
        "y": embeddings.y,
        "counts": embeddings.counts,
        "n_raters": np.array(embeddings.n_raters),
        **{f"anchors_{c}": index for c, index in embeddings.anchors.items()},
    }
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    write_file(Path(folder) / FILE, content.getvalue(), kind="reproduce")


def read_anchors(folder: str | Path) -> Embeddings | None:
    """Read what `write_anchors` kept, or None.

    Examples
    --------
    >>> import tempfile
    >>> votes = np.array([[3, 0], [1, 2]])
    >>> made = Embeddings(np.eye(2), np.array([0, 1]), votes, {0: np.array([0]), 1: np.array([1])}, 3)
    >>> with tempfile.TemporaryDirectory() as root:
    ...     write_anchors(root, made)
    ...     again = read_anchors(root)
    >>> again.X.tolist(), again.anchors[1].tolist(), again.counts.tolist(), again.n_raters
    ([[1.0, 0.0], [0.0, 1.0]], [1], [[3, 0], [1, 2]], 3)
    """
    path = Path(folder) / FILE
    if not path.is_file():
        return None
    with open_npz(path) as kept, reading(path, "anchors", advice="Reproduce again.", checked=True):
        return Embeddings(
            kept.read("X").astype(np.float64),
            kept.read("y"),
            kept.read("counts"),
            {c: kept.read(f"anchors_{c}") for c in (0, 1)},
            int(kept.read("n_raters")),
        )


# ---- evidence


@dataclass(frozen=True, eq=False)
class Evidence:
    """What tables, figures and claims are made from.

    Attributes
    ----------
    cells : sequence of Predictions
        Answers with one encoder on one data set each.
    embeddings : mapping
        (data set, encoder) -> training embeddings with their anchors, where available.
    seconds : mapping
        (data set, encoder) -> seconds of training the probe and retraining it on synthetic cases.
    engine : Engine, optional
        Whose workers score the cells; by default they are scored here.
    """

    cells: Sequence[Predictions]
    embeddings: Mapping[tuple[str, str], Embeddings] = field(default_factory=dict)
    seconds: Mapping[tuple[str, str], float] = field(default_factory=dict)
    n_resamples: int = 1000
    engine: Engine | None = None
    _drawn: dict[str, Resampled] = field(default_factory=dict, repr=False)

    @cached_property
    def results(self) -> pd.DataFrame:
        """Tidy scores of `cells`."""
        return score_cells(self.cells, self.engine)

    @property
    def datasets(self) -> list[str]:
        """Names of the data sets, in the order they came."""
        return list(dict.fromkeys(cell.dataset for cell in self.cells))

    def of_dataset(self, dataset: str, *methods: str) -> list[Predictions]:
        """Cells of a data set that hold all these methods."""
        return [
            cell
            for cell in self.cells
            if cell.dataset == dataset and set(methods) <= set(cell.methods)
        ]

    def encoders(self, dataset: str, *methods: str) -> list[str]:
        """Names of the encoders of `of_dataset`."""
        return [cell.encoder for cell in self.of_dataset(dataset, *methods)]

    def methods(self, dataset: str) -> list[str]:
        """Methods of a data set's encoders, without the points of the sweep over K."""
        known: dict[str, None] = {}
        for cell in self.of_dataset(dataset, "none"):
            known |= dict.fromkeys(cell.methods)
        return [method for method in known if "@" not in method]

    def sweep_over_k(self, dataset: str) -> dict[str, dict[str, str]]:
        """Smoothing -> number of anchors K -> method's name, where every encoder has it."""
        encoders = self.encoders(dataset, "none")
        sweep: dict[str, dict[str, str]] = {}
        for smoothing, (_, scale) in SMOOTHINGS.items():
            for k in SWEEP_SIZES:
                name = f"{scale}@K={k}"
                # Averaging over different encoders at each size would not give a curve.
                if encoders and self.encoders(dataset, "none", name) == encoders:
                    sweep.setdefault(smoothing, {})[k] = name
        return sweep

    @property
    def judged(self) -> list[str]:
        """Data sets whose cases have agreement strata, the paper's own first."""
        judged: dict[str, None] = {}
        for cell in self.cells:
            if "none" in cell.methods and "low" in cell.stratum_names:
                judged[cell.dataset] = None
        # Claims are judged on the first, so the paper's own data set leads where it is available.
        return sorted(judged, key=lambda d: (*_PRIMARY, d).index(d))

    @property
    def primary(self) -> str | None:
        """The data set that plays MHIST's part: MHIST itself, or the first with agreement strata."""
        return next(iter(self.judged), None)

    def needs_strata(self) -> str:
        """Return `primary`, or raise where there is none."""
        if self.primary is None:
            raise MissingEvidence(
                "no data set here has readers' votes, so there are no agreement strata"
            )
        return self.primary

    def resampled(self, dataset: str) -> Resampled:
        """Return the bootstrap of a data set's cells; it is drawn once."""
        if dataset not in self._drawn:
            # One draw for all claims: their numbers are then paired, and drawing takes longest.
            cells = self.of_dataset(dataset)
            self._drawn[dataset] = Resampled(cells, n_resamples=self.n_resamples)
        return self._drawn[dataset]

    def by_seed(self, *key: str, column: str = "value") -> Float:
        """Values of a number in the results, one per seed; `key` as for `of_seeds`."""
        return np.array(list(self.of_seeds(*key, column=column).values()), dtype=np.float64)

    def of_seeds(
        self,
        dataset: str,
        encoder: str,
        method: str,
        metric: str,
        stratum: str = "overall",
        *,
        column: str = "value",
    ) -> dict[int, float]:
        """Seed -> value of a number in the results."""
        return self._values.get((dataset, encoder, method, stratum, metric, column), {})

    def mean(self, *key: str, column: str = "value") -> float:
        """Mean over seeds of what `by_seed` returns; NaN where there is none."""
        values = self.by_seed(*key, column=column)
        if not len(values):
            return float("nan")
        return float(values.mean())

    @cached_property
    def _values(self) -> dict[tuple[str, ...], dict[int, float]]:
        """(data set, encoder, method, stratum, metric, column) -> seed -> number."""
        values: dict[tuple[str, ...], dict[int, float]] = {}
        columns = self.results[[*_KEYS, "seed", "value", "floor"]]
        for *key, seed, value, floor in columns.itertuples(index=False, name=None):
            values.setdefault((*key, "value"), {})[int(seed)] = value
            values.setdefault((*key, "floor"), {})[int(seed)] = floor
        return values


def contradiction(cells: Sequence[Predictions]) -> str | None:
    """Say where two encoders of one data set disagree about the same case; None: nowhere.

    Cases are the same by their ids. Votes are compared where both encoders have them.
    """
    for one, other in combinations(cells, 2):
        both = f"{one.encoder} and {other.encoder}"
        a, b = one.cases, other.cases
        if a.classes != b.classes:
            named = " and ".join(", ".join(c.classes) for c in (a, b))
            return f"{both} differ in their classes: {named}"
        _, left, right = np.intersect1d(a.names, b.names, return_indices=True)
        differs = one.y[left] != other.y[right]
        if a.votes is not None and b.votes is not None:
            differs |= (a.votes[left] != b.votes[right]).any(axis=1)
        if differs.any():
            return (
                f"{both} contradict each other in the labels or votes of {int(differs.sum()):,} of "
                f"{len(left):,} cases of the same id"
            )
    return None
