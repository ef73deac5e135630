"""The evidence of a run: cells, their scores, embeddings and times; what tables and claims are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from scalecal.cases import Predictions
from scalecal.checks import Float
from scalecal.engines import Engine
from scalecal.evaluation.scores import Resampled, score_cells
from scalecal.paper.premise import Embeddings
from scalecal.paper.printed import SMOOTHINGS

if TYPE_CHECKING:
    import pandas as pd

_PRIMARY = ("mhist", "lidc")
_KEYS = ("dataset", "encoder", "method", "stratum", "metric")


class MissingEvidence(Exception):
    """The evidence lacks what a figure or a claim needs; the message says what."""


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
        known = dict.fromkeys(m for c in self.of_dataset(dataset, "none") for m in c.methods)
        return [method for method in known if "@" not in method]

    def sweep_over_k(self, dataset: str) -> dict[str, dict[str, str]]:
        """Smoothing -> number of anchors K -> method's name, where every encoder has it."""
        cells = self.of_dataset(dataset, "none")
        out: dict[str, dict[str, str]] = {}
        for smoothing, (_, method) in SMOOTHINGS.items():
            sizes = [
                {m.partition("@K=")[2] for m in c.methods if m.startswith(f"{method}@K=")}
                for c in cells
            ]
            # Averaging over different encoders at each size would not give a curve.
            common = set.intersection(*sizes) if sizes else set()
            order = sorted(common, key=lambda k: float("inf") if k == "all" else float(k))
            if order:
                out[smoothing] = {k: f"{method}@K={k}" for k in order}
        return out

    @property
    def judged(self) -> list[str]:
        """Data sets whose cases have agreement strata, the paper's own first."""
        judged = [
            d
            for d in self.datasets
            if any("low" in c.stratum_names for c in self.of_dataset(d, "none"))
        ]
        # Claims are judged on the first, so the paper's own data set leads where it is available.
        return sorted(judged, key=lambda d: (*_PRIMARY, d).index(d))

    @property
    def primary(self) -> str | None:
        """The data set that plays MHIST's part: MHIST itself, or the first with agreement strata."""
        return self.judged[0] if self.judged else None

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
        return float(values.mean()) if len(values) else float("nan")

    @cached_property
    def _values(self) -> dict[tuple[str, ...], dict[int, float]]:
        """(data set, encoder, method, stratum, metric, column) -> seed -> number."""
        out: dict[tuple[str, ...], dict[int, float]] = {}
        for column in ("value", "floor"):
            columns = self.results[[*_KEYS, "seed", column]]
            for *key, seed, number in columns.itertuples(index=False, name=None):
                out.setdefault((*key, column), {})[int(seed)] = number
        return out


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
