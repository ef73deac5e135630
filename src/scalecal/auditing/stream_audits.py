"""`StreamingAudit`: blocks of predictions in, an audit out."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalecal import __version__, metrics
from scalecal.auditing import stream_compressed as counted
from scalecal.auditing.audits import Audit, complete_rows, null_numbers
from scalecal.auditing.stream_cells import Cells
from scalecal.auditing.stream_compressed import Compressed, compress, moments_interval
from scalecal.auditing.stream_panels import agreement_statistics, left_out, selection_null
from scalecal.auditing.stream_state import Layer, State
from scalecal.cases import Cases, Predictions
from scalecal.checks import InputError, check_positive_int
from scalecal.io.store import write_bytes
from scalecal.metrics.resampling import EXACT_CASES
from scalecal.votes import STRATA

__all__ = ["StreamedAudit", "StreamingAudit"]

FORMAT = "scalecal-stream-1"

FEW_CASES = 500
"""Cases of a stratum below which the normal limit of its null may be some per cent off."""

_NO_CASES = Predictions(Cases(n=0, y=np.zeros(0, np.int64)), np.zeros(0))


@dataclass(frozen=True, eq=False)
class StreamedAudit(Audit):
    """An audit made from counts; its cases are gone, so `compare_audits` and `merge_audits` do not take it.

    Merge the `StreamingAudit` objects instead.
    """

    bins: dict[str, tuple[metrics.Bins, metrics.ConsistencyBars]] = field(
        default_factory=dict, repr=False
    )

    def reliability(self, stratum: str) -> tuple[metrics.Bins, metrics.ConsistencyBars]:
        """Return a stratum's bins, and where a calibrated model's share of positives would lie."""
        return self.bins[stratum]


class StreamingAudit:
    """Audit predictions block by block, in memory that does not grow with their number.

    Counts, and all that follows from them alone (n, accuracy, which bin a case is in), are exact.
    ECE, gaps, log loss and Brier score agree with `scalecal.audit` to rounding (Brier and its like
    to 1e-9). AUC, debiased error and the tests replace a case's probability by the mean of its
    cell, one of some 64,000 (32 to every halving of the distance to 0 or 1): they agree to about
    1e-5, p-values of the Kuiper test to a per cent on large data.
    Up to 100,000 cases floors and nulls are other draws of the same law. Above, floors are the same
    draws, and nulls the same normal limit: some per cent off in a stratum of a few hundred cases.
    Intervals are normal ones instead of bootstrap ones, and take cases as independent: groups are
    not known here. For two classes, scores on left-out votes are the mean over all splits.

    Parameters
    ----------
    n_bins : int
        Bins of equal width for ECE, 256 at most.
    n_resamples, seed
        For floors and nulls.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> first, second = StreamingAudit(), StreamingAudit()
    >>> for part in (first, second):
    ...     p = rng.uniform(size=1000)
    ...     _ = part.update(rng.uniform(size=1000) < p, p)
    >>> result = first.merge(second).finish()
    >>> result["overall"]["n"], bool(result["overall"]["ece"] < 0.1)
    (2000, True)
    """

    def __init__(
        self,
        *,
        n_bins: int = 15,
        n_resamples: int = 1000,
        seed: int = 0,
    ) -> None:
        check_positive_int(n_resamples, "n_resamples", least=20)
        self.n_bins, self.n_resamples, self.seed = n_bins, n_resamples, seed
        self._state = State(Cells(n_bins))
        self._strata: dict[str, int] = {}
        self._kinds: tuple[bool, bool] | None = None  # votes given, strata given

    @property
    def n(self) -> int:
        """Cases seen so far."""
        return self._state.n

    def update(
        self,
        y: ArrayLike,
        probs: ArrayLike,
        *,
        votes: ArrayLike | None = None,
        n_raters: ArrayLike | None = None,
        strata: NDArray[np.integer[Any]] | None = None,
        names: Sequence[str] | None = None,
    ) -> StreamingAudit:
        """Take in a block of cases; returns self.

        Parameters
        ----------
        y, probs, votes, n_raters
            As `scalecal.audit`. Votes make the strata unless these are given.
        strata : array of int, optional
            Number of each case's stratum in `names`, -1 for none.
        names : sequence of str, optional
            Names of the strata; a later block may have others.
        """
        kinds = (votes is not None, strata is not None)
        if self._kinds not in (None, kinds):
            raise InputError("give votes and strata with every block, or with none")
        codes = None
        if strata is not None:
            codes = self._codes(np.asarray(strata), tuple(names or ()))
        self._state.add(y, probs, votes=votes, n_raters=n_raters, codes=codes)
        self._kinds = kinds
        return self

    def _codes(
        self, strata: NDArray[np.integer[Any]], names: tuple[str, ...]
    ) -> NDArray[np.integer[Any]]:
        """Stratum numbers of a block in the numbering of the whole stream."""
        if strata.dtype.kind not in "iu" or (
            len(strata) and not (strata.min() >= -1 and strata.max() < len(names))
        ):
            raise InputError(
                f"strata must be whole numbers from -1 (none) to {len(names) - 1}, one less than "
                f"there are names, got {strata.dtype} from {strata.min()} to {strata.max()}"
            )
        return np.asarray(np.array([*self._numbers(names), -1])[strata])

    def _numbers(self, names: Sequence[str]) -> list[int]:
        if "overall" in names:
            raise InputError("a stratum may not be called 'overall': that row holds all cases")
        return [self._strata.setdefault(name, len(self._strata)) for name in names]

    def merge(self, other: StreamingAudit) -> StreamingAudit:
        """Add the cases of another streaming audit with the same bins; returns self."""
        if None not in (self._kinds, other._kinds) and self._kinds != other._kinds:
            raise InputError("streams with and without votes (or strata) cannot be merged")
        given = other._kinds is not None and other._kinds[1]
        self._state.merge(other._state, self._numbers(list(other._strata)) if given else None)
        self._kinds = self._kinds or other._kinds
        return self

    def save(self, path: str | Path) -> None:
        """Write the counts to an ``.npz`` file, to be merged elsewhere or later; see `load`."""
        state = self._state
        layers = [(la.stratum, la.readers, la.positive, la.label) for la in state.layers]
        told = {
            "format": FORMAT,
            "n_bins": self.n_bins,
            "n_resamples": self.n_resamples,
            "seed": self.seed,
            "n_classes": state.n_classes,
            "kinds": self._kinds,
            "strata": list(self._strata),
        }
        content = io.BytesIO()
        np.savez_compressed(
            content,
            told=np.frombuffer(json.dumps(told).encode(), dtype=np.uint8),
            layers=np.array(layers, dtype=np.int64).reshape(-1, 4),
            counts=state.counts,
            sums=state.sums,
            logs=state.logs,
        )
        write_bytes(path, content.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> StreamingAudit:
        """Read what `save` wrote.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "part.npz"
        >>> StreamingAudit().update([0, 1], [0.2, 0.7]).save(file)
        >>> StreamingAudit.load(file).n
        2
        """
        try:
            with np.load(path, allow_pickle=False) as found:
                told = json.loads(found["told"].tobytes())
                arrays = {key: found[key] for key in ("layers", "counts", "sums", "logs")}
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{path} holds no streaming audit: {error}") from None
        if told.get("format") != FORMAT:
            raise InputError(f"{path} holds no streaming audit of this version ({FORMAT})")
        out = cls(n_bins=told["n_bins"], n_resamples=told["n_resamples"], seed=told["seed"])
        out._kinds = None if told["kinds"] is None else (told["kinds"][0], told["kinds"][1])
        out._strata = {name: k for k, name in enumerate(told["strata"])}
        state = out._state
        state.n_classes = told["n_classes"]
        state.layers = {Layer(*row): k for k, row in enumerate(arrays["layers"].tolist())}
        if arrays["counts"].shape != (len(state.layers), state.cells.count):
            raise InputError(f"{path} is damaged: its counts do not fit its grid")
        state.counts, state.sums, state.logs = (arrays[k] for k in ("counts", "sums", "logs"))
        return out

    def finish(self) -> StreamedAudit:
        """Return the audit of all cases so far; more may follow."""
        state = self._state
        if state.n == 0:
            raise InputError("no cases: call update first")
        voted, given = self._kinds or (False, False)
        source = "given" if given else "agreement" if voted else "none"
        strata = self._strata if given else {name: j for j, name in enumerate(STRATA) if voted}
        order = STRATA if set(strata) <= set(STRATA) else sorted(strata)
        names = [name for name in order if name in strata]
        options = {"n_bins": self.n_bins, "n_resamples": self.n_resamples, "seed": self.seed}
        rows: list[dict[str, Any]] = []
        tables = {}
        layers_of = {"overall": list(state.layers)}
        for name in names:
            layers_of[name] = [la for la in state.layers if la.stratum == strata[name]]
        for name, layers in layers_of.items():
            cases = compress(state, layers)
            if cases.n == 0:
                rows.append({"name": name, "n": 0, "reason": "no case in this stratum"})
                continue
            rows.append({"name": name, **_score(state, layers, cases, options)})
            tables[name] = _reliability(cases, options)
        two = state.n_classes == 2
        if names:
            null = selection_null(state, len(strata), **options)
            for row in rows[1:]:
                j = strata[row["name"]]
                drawn = null[np.isfinite(null[:, j]), j]
                if row["n"] and len(drawn):
                    row |= null_numbers(row["ece"], drawn)
        if source == "agreement" and two:
            scores = left_out(state)
            for row in rows:
                row |= scores[row["name"]]
        rows = complete_rows(rows)
        references = _references(state, layers_of) if two else []
        meta = self._meta(source) | options
        return StreamedAudit(rows, references, meta, self._notes(rows, names), _NO_CASES, tables)

    def _meta(self, source: str) -> dict[str, Any]:
        state = self._state
        digest = hashlib.sha256()
        for layer in sorted(state.layers):
            digest.update(repr(layer).encode() + state.counts[state.layers[layer]].tobytes())
        meta: dict[str, Any] = {
            "version": __version__,
            "n": state.n,
            "n_classes": state.n_classes,
            "event": "positive class" if state.n_classes == 2 else "top class is right",
            "strata": source,
            "resampled": "none (normal intervals)",
            "n_groups": None,
            "streamed": True,
            # Of the counts by stratum, votes, label and cell: the order of the cases is no matter.
            "counts_sha256": digest.hexdigest(),
        }
        if self._kinds and self._kinds[0] and state.n_classes == 2:
            everyone = compress(state, list(state.layers))
            meta["n_raters"] = sorted({int(m) for m in everyone.readers})
            meta |= agreement_statistics(everyone)
        return meta

    def _notes(self, rows: list[dict[str, Any]], names: Sequence[str]) -> list[str]:
        state = self._state
        notes = [
            "Streamed: AUC, debiased error and tests are by cells of probability; intervals are "
            "normal and take cases as independent."
        ]
        none = sum(int(state.counts[i].sum()) for la, i in state.layers.items() if la.stratum < 0)
        if names and none:
            notes.append(
                f"{none:,} of {state.n:,} cases have no stratum and count only in the overall row."
            )
        empty = [r["name"] for r in rows if r["n"] == 0]
        if empty:
            notes.append(f"No case in stratum {', '.join(empty)}: numbers are undefined there.")
        single = [r["name"] for r in rows if r["n"] and r["prevalence"] in (0.0, 1.0)]
        if single:
            notes.append(f"One class only in {', '.join(single)}: AUC is undefined there.")
        if state.n > EXACT_CASES:
            notes.append(
                f"Above {EXACT_CASES:,} cases floors and nulls draw bin sums from their normal limit."
            )
            small = [r["name"] for r in rows[1:] if 0 < r["n"] < FEW_CASES]
            if small:
                notes.append(
                    f"That limit is rough where cases are few: the null of {', '.join(small)} (under "
                    f"{FEW_CASES} cases) may be some per cent off."
                )
        return notes


def _score(
    state: State, layers: list[Layer], cases: Compressed, options: dict[str, int]
) -> dict[str, Any]:
    """The numbers of one stratum, by the names `scalecal.audit` gives them."""
    y, p, w, n_bins = cases.y, cases.p, cases.weights, options["n_bins"]
    two = state.n_classes == 2
    ece = metrics.ece(y, p, n_bins=n_bins, sample_weight=w)
    null = counted.null_errors(cases, **options)
    value, low, high = counted.debiased(cases, n_bins)
    row: dict[str, Any] = {
        "n": cases.n,
        "n_groups": None,
        "prevalence": float((cases.times @ y) / cases.n),
        "mean_p": float(w @ p / cases.n),
        "ece": ece,
        "floor": float(null.mean()),
        "floor_high": float(np.quantile(null, 0.95)),
        "excess": ece - float(null.mean()),
        "debiased": value,
        "debiased_low": low,
        "debiased_high": high,
        "smece": metrics.smece(y, p, sample_weight=w),
    }
    right = (y == (p >= 0.5)).astype(np.float64) if two else y.astype(np.float64)
    confidence = np.maximum(p, 1.0 - p) if two else p
    means = {
        "gap": cases.mean_interval(p - y),
        "overconfidence": cases.mean_interval(confidence - right),
        "accuracy": cases.mean_interval(right),
    }
    losses = [_losses(state, layer, two) for layer in layers]
    means["nll"] = moments_interval(cases.n, *np.sum([a for a, _ in losses], axis=0))
    if two:
        means["brier"] = cases.mean_interval((p - y) ** 2)
        means["auc"] = counted.area(cases)
    else:
        means["brier"] = moments_interval(cases.n, *np.sum([b for _, b in losses], axis=0))
    if two and cases.readers.any():
        more, extras = _vote_scores(state, layers, cases)
        means |= more
        row |= extras
    for name, (mean, below, above) in means.items():
        row |= {name: float(mean), f"{name}_low": float(below), f"{name}_high": float(above)}
    row["p_cox"], row["cox_intercept"], row["cox_slope"] = counted.cox(cases)
    row["p_kuiper"] = counted.kuiper(cases)
    row["p_spiegelhalter"] = counted.spiegelhalter(cases)
    row["p_consistency"] = (1 + int((null >= ece - 1e-9).sum())) / (len(null) + 1)
    return row


def _losses(
    state: State, layer: Layer, two: bool
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Sum and sum of squares of the log loss, and of the Brier score (more than two classes)."""
    log_p, log_q, square_p, square_q, _ = state.logs[state.layers[layer]]
    if not two:
        return (log_p, square_p), (log_q, square_q)
    return ((-log_p, square_p) if layer.label else (-log_q, square_q)), (nan, nan)


def _vote_scores(
    state: State, layers: list[Layer], cases: Compressed
) -> tuple[dict[str, tuple[float, ...]], dict[str, float]]:
    """Scores against the votes: those with intervals, and the others with the floors."""
    nll = np.zeros(3)
    for layer in layers:
        if layer.readers:
            number = state.layers[layer]
            f = layer.positive / layer.readers
            a, b, aa, bb, ab = state.logs[number]
            square = f * f * aa + (1 - f) ** 2 * bb + 2 * f * (1 - f) * ab
            nll += state.counts[number].sum(), -(f * a + (1 - f) * b), square
    voted, paired = cases.readers > 0, cases.readers > 1
    share = cases.positive / np.maximum(cases.readers, 1)
    spread = share * (1.0 - share) / np.maximum(cases.readers - 1, 1)
    means = {
        "vote_nll": moments_interval(*nll),
        "vote_error": cases.mean_interval((cases.p - share) ** 2 - spread, paired),
        "dist_ce": cases.mean_interval(np.abs(cases.p - share), voted),
    }
    extras = {
        "ent_ce": metrics.ent_ce(
            cases.positive, cases.p, n_raters=cases.readers, sample_weight=cases.weights
        )
    }
    for name in ("vote_nll", "dist_ce", "ent_ce"):
        extras[f"{name}_floor"] = metrics.vote_floor(
            name,
            cases.p[voted],
            cases.readers[voted],
            sample_weight=cases.weights[voted],
        )
    return means, extras


def _reliability(
    cases: Compressed, options: dict[str, int], level: float = 0.9
) -> tuple[metrics.Bins, metrics.ConsistencyBars]:
    table = cases.bins(options["n_bins"])
    sums = counted.null_residuals(cases, **options)
    tails = np.quantile(sums, [0.5 + level / 2, 0.5 - level / 2], axis=0)
    mass = np.where(table.n > 0, table.weight, np.nan)
    return table, metrics.ConsistencyBars(*np.clip(table.mean_p - tails / mass, 0.0, 1.0))


def _references(state: State, layers_of: dict[str, list[Layer]]) -> list[dict[str, Any]]:
    """Two predictors that know nothing, on the same strata: one half, and the prevalence."""
    everyone = compress(state, list(state.layers))
    prevalence = float((everyone.times @ everyone.y) / everyone.n)
    out = []
    for title, constant in (("constant 0.5", 0.5), ("prevalence", prevalence)):
        for stratum, layers in layers_of.items():
            size = np.array([state.counts[state.layers[la]].sum() for la in layers], np.float64)
            row: dict[str, Any] = {"name": title, "stratum": stratum, "n": int(size.sum())}
            if row["n"]:
                y = np.array([la.label for la in layers])
                p = np.full(len(y), constant)
                row["mean_p"] = constant
                for metric in ("ece", "brier", "nll", "accuracy"):
                    row[metric] = metrics.METRICS[metric].function(y, p, sample_weight=size)
                readers = np.array([la.readers for la in layers])
                if readers.any():
                    positive = np.array([la.positive for la in layers])
                    row["vote_nll"] = metrics.vote_nll(
                        positive, p, n_raters=readers, sample_weight=size
                    )
            out.append(row)
    return out
