"""The premise of synthetic agreement: does the line between two anchors pass through hard cases?

Synthetic agreement takes the interpolation weight for a vote share. Where real votes are known, that
can be checked: do votes follow a case's position between the anchors, beyond what the label alone
says, and do the real cases next to an interpolate have the vote share it is given? It is checked on
the training embeddings of a cell with their anchors, which are kept on disk for that.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal.cases import Features
from scalecal.checks import Float, InputError, Int, as_float, check_counts, check_labels
from scalecal.inference.units import interval
from scalecal.io.arrays import open_npz
from scalecal.io.boundary import reading
from scalecal.io.store import write_file
from scalecal.probes.fitting import host_rows
from scalecal.runs.grid import Grid

FILE = "anchors.npz"
MOST_BYTES = 1 << 27
"""Larger embeddings are not kept."""

NEIGHBOURS = 10


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
        votes = check_counts(self.counts, None)
        total = votes.sum(axis=1)
        kept = total > 0
        kept[np.concatenate([np.asarray(index) for index in self.anchors.values()])] = False
        return kept, votes[kept, 1] / total[kept]

    @property
    def axis(self) -> tuple[Float, Float]:
        """Mean of the negative anchors, and the way from there to the mean of the positive ones."""
        X = as_float(self.X, "X")
        start, end = (X[np.asarray(self.anchors[c])].mean(axis=0) for c in (0, 1))
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
        return np.asarray((as_float(rows, "rows") - start) @ way / float(way @ way))

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
    if probe is None or probe.plan is None or len(data.cases.classes) != 2:
        return None
    if votes is None or data.y is None:
        return None
    rows = np.sort(probe.rows)
    anchors = {c: np.searchsorted(rows, index) for c, index in probe.plan.anchors.items()}
    panel = int(np.median(votes[rows].sum(axis=1)))
    return Embeddings(host_rows(data.X, rows), data.y[rows], votes[rows], anchors, panel)


def write_anchors(folder: str | Path, embeddings: Embeddings) -> None:
    """Keep what the premise is checked on, in single precision, unless it is large."""
    if embeddings.X.size * 4 > MOST_BYTES:
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


def _bootstrap(statistic: Callable[[Float], float], n: int, n_resamples: int) -> Float:
    """A statistic of weighted cases on resamples of the n cases."""
    # The same resamples in every run, so that verdicts repeat.
    rng = np.random.default_rng(0)
    drawn = [
        statistic(np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64))
        for _ in range(n_resamples)
    ]
    return np.array(drawn)


@dataclass(frozen=True, eq=False)
class Checked:
    """A number that the premise is judged by, of `n` real cases, with its bootstrap over cases.

    `more` is what a reader should know beside it.
    """

    value: float
    samples: Float
    n: int
    more: str = ""

    def interval(self, outside: float) -> tuple[float, float]:
        """Interval that the number is outside of in a share `outside` of the samples, half each way."""
        return interval(self.samples, 1 - outside)

    @property
    def text(self) -> str:
        """The number with its 95 % interval, and `more`."""
        low, high = self.interval(0.05)
        return f"{self.value:+.2f} ({low:+.2f} to {high:+.2f}){self.more}"


def _within(ranks: Float, y: Int, weight: Float) -> Float:
    """Ranks less their (weighted) mean in the case's class."""
    total = np.bincount(y, weight * ranks)
    # A resample may lack a class.
    size = np.maximum(np.bincount(y, weight), 1e-300)
    return np.asarray(ranks - (total / size)[y])


def _correlation(a: Float, b: Float, weight: Float) -> float:
    scale = np.sqrt((weight * a * a).sum() * (weight * b * b).sum())
    return float((weight * a * b).sum() / scale) if scale > 0 else float("nan")


def check_axis(data: Embeddings, *, n_resamples: int = 500) -> Checked:
    """Check whether votes follow the position between the anchors, without the anchors themselves.

    Spearman's correlation of the vote share with `Embeddings.position`, over all cases and within classes:
    ranks are taken within each class and centred there, so that a probe which merely separates the
    classes scores zero.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> t = rng.normal(size=400)
    >>> v = rng.binomial(7, 1 / (1 + np.exp(-3 * t)))
    >>> X = np.column_stack([t, rng.normal(size=400)])
    >>> order = np.argsort(t)
    >>> counts, anchors = np.column_stack([7 - v, v]), {0: order[:5], 1: order[-5:]}
    >>> check_axis(Embeddings(X, (v >= 4).astype(int), counts, anchors)).value > 0.3
    True
    """
    from scipy.stats import rankdata

    kept, share = data.voted
    t = data.position(data.X)[kept]
    label = check_labels(np.asarray(data.y).astype(np.int64))[kept]
    n = len(t)
    if n < 3:
        return Checked(float("nan"), np.full(1, np.nan), n)
    one = np.ones(n)
    a, b = rankdata(t), rankdata(share)
    overall = _correlation(a - a.mean(), b - b.mean(), one)
    # Within classes: across them the label alone makes votes and position correlate.
    inner_a, inner_b = np.empty(n), np.empty(n)
    for c in np.unique(label):
        here = label == c
        inner_a[here], inner_b[here] = rankdata(t[here]), rankdata(share[here])

    def within(weight: Float) -> float:
        return _correlation(
            _within(inner_a, label, weight), _within(inner_b, label, weight), weight
        )

    return Checked(within(one), _bootstrap(within, n, n_resamples), n, f", {overall:+.2f} overall")


def check_neighbours(data: Embeddings, *, n_resamples: int = 500) -> Checked:
    """Check whether the real cases next to an interpolate are as contested as it is said to be.

    The number is the slope of the neighbours' vote share on the interpolate's own (1: they agree; 0: it
    says nothing). Beside it stands the neighbours' mean disagreement 4 f (1 - f): near zero in the middle
    means that clear cases of both kinds are mixed, not that the neighbours are hard cases.

    All pairs of anchors at the levels k / n_raters; the `NEIGHBOURS` nearest by Euclidean distance
    among the cases with votes that are no anchors.
    """
    from sklearn.neighbors import NearestNeighbors

    kept, share = data.voted
    n = len(share)
    if n < NEIGHBOURS:
        return Checked(float("nan"), np.full(1, np.nan), n)
    made, level = data.interpolates()
    search = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(as_float(data.X, "X")[kept])
    near: NDArray[np.int64] = search.kneighbors(made, return_distance=False)
    centred = level - level.mean()

    def slope(weight: Float) -> float:
        mass = weight[near]
        total = mass.sum(axis=1)
        # A resample may lack all neighbours of an interpolate.
        known = total > 0
        mean = (mass * share[near]).sum(axis=1)[known] / total[known]
        x = centred[known] - centred[known].mean()
        return float(x @ mean / (x @ x))

    code = np.rint(level * data.n_raters).astype(np.int64) - 1
    disagreement = (4 * share * (1 - share))[near].mean(axis=1)
    by_level = np.bincount(code, disagreement) / np.bincount(code)
    middle, ends = by_level[len(by_level) // 2], (by_level[0] + by_level[-1]) / 2
    return Checked(
        slope(np.ones(n)),
        _bootstrap(slope, n, n_resamples),
        n,
        f"; neighbours' disagreement {middle:.2f} in the middle, {ends:.2f} at the ends",
    )
