"""The test behind each claim: functions from evidence to verdict.

A test raises `MissingEvidence` where the evidence lacks what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import norm

from scalecal import metrics
from scalecal.auditing.sentences import LEVEL
from scalecal.checks import Float, Int
from scalecal.inference.paired import Contrast, Drawn, contrast_of, equivalence
from scalecal.inference.selection import selection_null
from scalecal.metrics import bin_index, holm
from scalecal.metrics.arguments import Event, read_hard_event
from scalecal.paper import printed as paper
from scalecal.paper.evidence import Evidence, MissingEvidence
from scalecal.paper.premise import Embeddings, check_axis, check_neighbours
from scalecal.paper.printed import encoder_label, method_label
from scalecal.paper.verdicts import (
    LEAST_CASES,
    NEGLIGIBLE,
    Answer,
    Part,
    Verdict,
    all_of,
    at_least,
    joined,
    lower,
    lower_everywhere,
)
from scalecal.runs.cells import Cell
from scalecal.runs.frontier import softened_name, with_softened
from scalecal.runs.scores import Resampled

MATTERS = 0.038
"""A gap between the strata's errors that matters: half of the smallest the paper prints, 0.076."""

MARGIN = 0.01
"""Loss of AUC or accuracy that would not matter: one point."""

_BINS = 15


def _encoders(evidence: Evidence, dataset: str, *methods: str) -> list[str]:
    """Encoders of a data set with all these methods; there must be one."""
    if dataset not in evidence.datasets:
        title = {"pcam": "PatchCamelyon", "breakhis": "BreakHis"}.get(dataset, dataset)
        raise MissingEvidence(f"no predictions on {title} here")
    encoders = evidence.encoders(dataset, *methods)
    if not encoders:
        raise MissingEvidence(
            f"{dataset}: no encoder has predictions of all of {', '.join(methods)}"
        )
    return encoders


# ---- the uncalibrated probe by agreement


def _test_sets(cell: Cell, *strata: str) -> Iterator[tuple[Event, Int, list[Int]]]:
    """The uncalibrated probe's predictions of each seed's test cases, by seed.

    With the number of every case's stratum, and the rows in each of `strata`; seeds that have no case
    in one of these are left out.
    """
    names = cell.stratum_names
    for seed in cell.seeds("none") if set(strata) <= set(names) else ():
        part = cell.predictions["none", seed]
        codes = cell.codes[part.rows]
        inside = [np.flatnonzero(codes == names.index(name)) for name in strata]
        if all(map(len, inside)):
            yield read_hard_event(cell.y[part.rows], part.p), codes, inside


@dataclass(frozen=True)
class Excess:
    """Low- minus high-agreement ECE, averaged over seeds, beside its null distribution."""

    difference: float
    null: float
    p_value: float
    n_low: int
    n_high: int


def low_over_high(
    cell: Cell, kind: Literal["noise", "selection"], *, n_resamples: int = 500
) -> Excess | None:
    """Compare the strata's difference with that of a calibrated model; None without both strata.

    "noise": labels are drawn from the predictions, strata stay as they are: finite numbers alone.
    "selection": strata are drawn anew with the labels (`selection_null`): finite numbers, and strata
    made from the same votes as the labels. All training seeds share the random numbers, since their
    models are tested on the same cases; the null is that of the average over training seeds.
    """
    names = cell.stratum_names
    differences: list[float] = []
    nulls: list[Float] = []
    n_low = n_high = 0
    for event, codes, (low, high) in _test_sets(cell, "low", "high"):
        n_low, n_high = max(n_low, len(low)), max(n_high, len(high))
        errors = [metrics.ece(event.y[part], event.p[part]) for part in (low, high)]
        differences.append(errors[0] - errors[1])
        if kind == "noise":
            drawn = [
                metrics.resampled_ece(event.p[part], n_resamples=n_resamples, seed=j)
                for j, part in enumerate((low, high))
            ]
            nulls.append(drawn[0] - drawn[1])
        else:
            null = selection_null(
                event.y, event.p, codes, n_strata=len(names), n_resamples=n_resamples
            )
            nulls.append(null[:, names.index("low")] - null[:, names.index("high")])
    if not differences:
        return None
    observed, null_mean = float(np.mean(differences)), np.mean(nulls, axis=0)
    finite = null_mean[np.isfinite(null_mean)]
    if len(finite) == 0:
        return None
    p = (1 + float((finite >= observed).sum())) / (len(finite) + 1)
    return Excess(observed, float(finite.mean()), p, n_low, n_high)


def _missed(p: Float, gap: float, seed: int, n_resamples: int = 200) -> Float:
    """ECEs of a model whose every prediction is off by `gap`, away from one half."""
    chance = np.clip(p - gap * np.where(p >= 0.5, 1.0, -1.0), 0.0, 1.0)
    within = np.eye(_BINS)[bin_index(p, n_bins=_BINS)]
    rng = np.random.default_rng(seed)
    block = max(1, 1_000_000 // len(p))
    out = []
    for first in range(0, n_resamples, block):
        drawn = rng.random((min(block, n_resamples - first), len(p))) < chance
        out.append(np.abs((drawn - p) @ within).sum(axis=1) / len(p))
    return np.concatenate(out)


def least_excess(cell: Cell, level: float) -> float:
    """Excess over the null that a true gap shows at least, except in a share `level` of the samples.

    An error hidden in noise adds less to ECE than its size, so the gap itself is no bound. Labels are
    drawn for a model off by the same amount in every case, which of all errors of that mean size adds
    least; the high stratum has the error it seems to have, the low one `MATTERS` more. Strata stay as
    they are. Minus infinity where no seed has both.
    """
    shown, calibrated = [], []
    for event, _, (low, high) in _test_sets(cell, "low", "high"):
        null = [_missed(event.p[part], 0.0, j) for j, part in enumerate((low, high))]
        # Noise and error add up about as squares.
        square = metrics.ece(event.y[high], event.p[high]) ** 2 - float(null[1].mean()) ** 2
        error = float(np.sqrt(max(square, 0.0)))
        calibrated.append(null[0] - null[1])
        shown.append(_missed(event.p[low], error + MATTERS, 0) - _missed(event.p[high], error, 1))
    if not shown:
        return float("-inf")
    drawn = np.mean(shown, axis=0)
    rise = float(drawn.mean() - np.mean(calibrated))
    return rise - float(norm.ppf(1 - level)) * float(drawn.std())


def strata_differ(evidence: Evidence, *, kind: Literal["noise", "selection"]) -> Verdict:
    """Low-agreement ECE exceeds high-agreement ECE for every encoder, by more than a null gives.

    It fails only where the data exclude a true gap of `MATTERS` (`least_excess`), for each encoder at
    the level 0.05 / encoders, since one failing encoder fails the claim.
    """
    dataset = evidence.needs_strata()
    cells = {cell.encoder: cell for cell in evidence.of_dataset(dataset, "none")}
    all_cells = {e: low_over_high(cell, kind) for e, cell in cells.items()}
    excess = {e: one for e, one in all_cells.items() if one is not None}
    if not excess:
        raise MissingEvidence(f"{dataset}: no seed's test set has both high and low agreement")
    adjusted = holm([one.p_value for one in excess.values()])
    parts = {}
    for (encoder, one), p in zip(excess.items(), adjusted, strict=True):
        why = f"{one.difference:+.3f} against {one.null:+.3f}, p = {p:.3f}, n = {one.n_low}"
        answer: Answer = "inconclusive"
        if min(one.n_low, one.n_high) < LEAST_CASES:
            why += f", {LEAST_CASES} are needed"
        elif p < LEVEL:
            answer = "holds"
        else:
            least = least_excess(cells[encoder], LEVEL / len(excess))
            if one.difference < one.null + least:
                answer = "does not hold"
                why += f"; a gap of {MATTERS}, half the paper's smallest, is excluded"
        parts[encoder] = Part(answer, one.difference, one.n_low, why)
    mean = float(np.mean([one.difference for one in excess.values()]))
    null = float(np.mean([one.null for one in excess.values()]))
    against = "finite numbers" if kind == "noise" else "strata made from the labels' own votes"
    what = f"{dataset}: low minus high ECE, against what {against} give a calibrated model"
    return all_of(parts, what, measured=f"{mean:+.3f}, null {null:+.3f}")


def aggregate_hides(evidence: Evidence) -> Verdict:
    """Overall ECE is nearer to high- than to low-agreement ECE for every encoder."""
    dataset = evidence.needs_strata()
    drawn = evidence.resampled(dataset)
    cells = evidence.of_dataset(dataset, "none")
    encoders = [c.encoder for c in cells if {"low", "high"} <= set(c.stratum_names)]
    contrasts = {}
    for encoder in encoders:
        whole, high, low = (drawn.drawn(encoder, "none", s) for s in ("overall", "high", "low"))
        seeds = [s for s in whole.by_seed if s in high.by_seed and s in low.by_seed]
        middle = {s: (high.by_seed[s] + low.by_seed[s]) / 2 for s in seeds}
        reference = Drawn(middle, (high.samples + low.samples) / 2, low.n, low.units)
        method = Drawn({s: whole.by_seed[s] for s in seeds}, whole.samples, low.n, low.units)
        contrasts[encoder] = contrast_of(reference, method, level=1 - LEVEL / len(encoders))
    what = f"{dataset}: overall ECE against the middle between high- and low-agreement ECE"
    result = lower_everywhere(contrasts, what)
    overall, low_ece = (
        float(np.mean([drawn.drawn(e, "none", s).value for e in encoders]))
        for s in ("overall", "low")
    )
    reason = f"{result.reason} (an average over mostly easy cases can hardly do otherwise)"
    return Verdict(f"{overall:.3f} overall, {low_ece:.3f} low", result.n, result.verdict, reason)


def stays_below(evidence: Evidence, *, stratum: str, bound: float) -> Verdict:
    """The uncalibrated probe's ECE in a stratum is at most a bound for every encoder."""
    dataset = evidence.needs_strata()
    parts = {}
    for cell in evidence.of_dataset(dataset, "none"):
        drawn = [
            metrics.resampled_ece(event.p[inside], n_resamples=200)
            for event, _, (inside,) in _test_sets(cell, stratum)
        ]
        if not drawn:
            continue
        key = (dataset, cell.encoder, "none")
        value = evidence.mean(*key, "ece", stratum)
        floor = evidence.mean(*key, "ece", stratum, column="floor")
        n = int(evidence.by_seed(*key, "n", stratum).max())
        half = 1.645 * float(np.mean(drawn, axis=0).std())
        # Where a calibrated model would exceed the bound too, exceeding it says nothing.
        fails = max(bound, floor)
        answer = at_least(-value - half, half - value, -bound, n=n, fails_below=-fails)
        parts[cell.encoder] = Part(answer, value, n, f"{value:.3f}, floor {floor:.3f}, n = {n}")
    if not parts:
        raise MissingEvidence(f"{dataset}: no case of {stratum} agreement")
    values = [part.value for part in parts.values()]
    what = f"{dataset}: {stratum}-agreement ECE against {bound}"
    return all_of(parts, what, measured=f"{min(values):.3f} to {max(values):.3f}")


# ---- one method against another


def _each(
    drawn: Resampled, encoders: Sequence[str], method: str, reference: str, stratum: str = "overall"
) -> dict[str, Contrast]:
    """The contrast of every encoder, at the level that serves them all together."""
    level = 1 - LEVEL / len(encoders)
    return {
        e: drawn.contrast(method, reference, stratum=stratum, encoders=[e], level=level)
        for e in encoders
    }


def lowers(
    evidence: Evidence,
    *,
    method: str,
    reference: str,
    stratum: str = "low",
    dataset: str | None = None,
) -> Verdict:
    """A method's ECE is lower than another's, averaged over encoders."""
    name = evidence.needs_strata() if dataset is None else dataset
    encoders = _encoders(evidence, name, method, reference)
    drawn = evidence.resampled(name)
    contrast = drawn.contrast(method, reference, stratum=stratum, encoders=encoders)
    where = "overall ECE" if stratum == "overall" else f"{stratum}-agreement ECE"
    what = f"{name}: {where}, {method_label(method)} against {method_label(reference)}"
    return lower(contrast, what, by_encoder=_each(drawn, encoders, method, reference, stratum))


def lowers_everywhere(evidence: Evidence, *, method: str, reference: str, dataset: str) -> Verdict:
    """A method's overall ECE is lower than another's for every encoder on a data set."""
    encoders = _encoders(evidence, dataset, method, reference)
    contrasts = _each(evidence.resampled(dataset), encoders, method, reference)
    what = f"{dataset}: overall ECE, {method_label(method)} against {method_label(reference)}"
    return lower_everywhere(contrasts, what)


def piecewise_best(evidence: Evidence) -> Verdict:
    """SCALE with piecewise smoothing has a lower low-agreement ECE than with the other two."""
    parts = []
    for other in ("scale-linear", "scale-nonlinear"):
        try:
            parts.append(lowers(evidence, method="scale", reference=other))
        except MissingEvidence as error:
            parts.append(Verdict("-", 0, "inconclusive", str(error)))
    if all(part.n == 0 for part in parts):
        return parts[0]
    measured, reason = (
        sign.join(getattr(part, key) for part in parts)
        for key, sign in (("measured", " / "), ("reason", "; "))
    )
    return Verdict(measured, parts[0].n, joined(p.verdict for p in parts), reason)


def _by_smoothing(
    evidence: Evidence,
    test: Callable[[Resampled, str, str, list[str]], Part],
    form: Callable[[float], str],
    *also: str,
) -> Verdict:
    """Join the answers for each smoothing function: `test` gets the method with real agreement, the
    one with synthetic agreement, and the encoders that have both."""
    dataset = evidence.needs_strata()
    parts = {}
    for smoothing, (real, scale) in paper.SMOOTHINGS.items():
        encoders = evidence.encoders(dataset, *also, real, scale)
        if encoders:
            parts[smoothing] = test(evidence.resampled(dataset), real, scale, encoders)
    if not parts:
        names = ", ".join((*also, "real-*", "scale*"))
        raise MissingEvidence(f"{dataset}: no encoder has predictions of all of {names}")
    measured = [form(part.value) for part in parts.values() if np.isfinite(part.value)]
    return Verdict(
        ", ".join(measured) or "undefined",
        max(part.n for part in parts.values()),
        joined(part.answer for part in parts.values()),
        f"{dataset}: {'; '.join(f'{name} {part.why}' for name, part in parts.items())}",
    )


def recovers(
    evidence: Evidence, *, share: float, metric: str = "ece", stratum: str = "low"
) -> Verdict:
    """SCALE recovers at least a share of real agreement's gain, for every smoothing function."""

    def test(drawn: Resampled, real: str, scale: str, encoders: list[str]) -> Part:
        one = drawn.recovered(scale, real, stratum=stratum, metric=metric, encoders=encoders)
        if one.reason:
            return Part("inconclusive", one.share, one.n, f"undefined ({one.reason})")
        why = f"{100 * one.share:.0f} % ({100 * one.low:.0f} to {100 * one.high:.0f})"
        return Part(at_least(one.low, one.high, share, n=one.n), one.share, one.n, why)

    return _by_smoothing(evidence, test, lambda value: f"{100 * value:.0f} %", "none")


def gap_to_real(evidence: Evidence, *, bound: float) -> Verdict:
    """SCALE's low-agreement ECE is above real agreement's by no more than a bound."""

    def test(drawn: Resampled, real: str, scale: str, encoders: list[str]) -> Part:
        gap = drawn.contrast(scale, real, stratum="low", encoders=encoders)
        why = f"{gap.difference:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})"
        return Part(at_least(-gap.high, -gap.low, -bound, n=gap.n), gap.difference, gap.n, why)

    return _by_smoothing(evidence, test, lambda value: f"{value:+.3f}")


def plateau(evidence: Evidence) -> Verdict:
    """Low-agreement ECE at K = 10 equals that at every larger K, within a margin."""
    dataset = evidence.needs_strata()
    drawn = evidence.resampled(dataset)
    parts: dict[str, Part] = {}
    for smoothing, names in evidence.sweep_over_k(dataset).items():
        if "10" not in names:
            continue
        encoders = evidence.encoders(dataset, "none", *names.values())
        margin = NEGLIGIBLE["ece"] * drawn.averaged(encoders, "none", "low").value
        at_ten = drawn.averaged(encoders, names["10"], "low")
        for k in (k for k in names if k not in ("5", "10")):
            other = drawn.averaged(encoders, names[k], "low")
            change = other.value - at_ten.value
            same = equivalence(other.samples - at_ten.samples, margin)
            answer: Answer = "inconclusive"
            if other.n >= LEAST_CASES:
                if same.low > margin or same.high < -margin:
                    answer = "does not hold"
                elif same.equivalent:
                    answer = "holds"
            why = f"{smoothing} K = {k}: {change:+.3f}"
            parts[why] = Part(answer, change, other.n, why)
    if not parts:
        raise MissingEvidence(f"{dataset}: no sweep over K here (methods such as scale@K=20)")
    reason = f"{dataset}: differences to K = 10, margin {100 * NEGLIGIBLE['ece']:g} % of no calibration's"
    outside = "; ".join(part.why for part in parts.values() if part.answer != "holds")
    return Verdict(
        f"up to {max(abs(part.value) for part in parts.values()):.3f} from K = 10",
        max(part.n for part in parts.values()),
        joined(part.answer for part in parts.values()),
        f"{reason}; " + (f"not shown for {outside}" if outside else "all within"),
    )


# ---- what a method costs


def preserved(evidence: Evidence, *, metric: Literal["auc", "accuracy"]) -> Verdict:
    """SCALE loses no more AUC or accuracy than a margin, for every encoder and data set."""
    parts = {}
    for dataset in evidence.datasets:
        for encoder in evidence.encoders(dataset, "none", "scale"):
            drawn = evidence.resampled(dataset)
            a, b = (drawn.drawn(encoder, m, metric=metric) for m in ("none", "scale"))
            change = b.value - a.value
            if not np.isfinite(change):
                continue
            test = equivalence(b.samples - a.samples, MARGIN)
            answer = at_least(test.low, test.high, -MARGIN, n=a.n)
            name = f"{encoder_label(encoder)} on {dataset}"
            parts[name] = Part(answer, 100 * change, a.n, f"{100 * change:+.1f} points")
    if not parts:
        raise MissingEvidence("no encoder has predictions of both none and scale")
    values = [part.value for part in parts.values()]
    title = metric.upper() if metric == "auc" else metric
    what = f"loss of {title} within {100 * MARGIN:g} point (two one-sided tests)"
    return all_of(parts, what, measured=f"{min(values):+.1f} to {max(values):+.1f} points")


def beats_softening(evidence: Evidence, *, metric: Literal["ece", "vote_nll"]) -> Verdict:
    """SCALE is better than the uncalibrated probe softened to the same mean entropy."""
    dataset = evidence.needs_strata()
    cells = [c for c in evidence.of_dataset(dataset, "none", "scale") if c.cases.votes is not None]
    if not cells:
        raise MissingEvidence(f"{dataset}: no encoder has predictions of both none and scale")
    softened = [with_softened(cell, ["scale"]) for cell in cells]
    drawn = Resampled(softened, n_resamples=evidence.n_resamples)
    stratum, title = ("low", "low-agreement ECE") if metric == "ece" else ("overall", "vote NLL")

    def against(encoders: list[str]) -> Contrast:
        return drawn.contrast(
            "scale", softened_name("scale"), stratum=stratum, metric=metric, encoders=encoders
        )

    encoders = [cell.encoder for cell in cells]
    what = f"{dataset}: {title}, {method_label('scale')} against softening to equal entropy"
    return lower(
        against(encoders), what, metric=metric, by_encoder={e: against([e]) for e in encoders}
    )


def quick(evidence: Evidence, *, limit: float) -> Verdict:
    """Training and retraining the probe takes less than a limit, for every cell."""
    seconds = evidence.seconds
    if not seconds:
        raise MissingEvidence("no training times were kept (predictions read from files)")
    slowest = max(seconds, key=lambda key: seconds[key])
    longest = seconds[slowest]
    return Verdict(
        f"{longest:.1f} s at most",
        len(seconds),
        "holds" if longest < limit else "does not hold",
        f"slowest of {len(seconds)} cells: {encoder_label(slowest[1])} on {slowest[0]}; "
        "n counts cells",
    )


# ---- premise, replication, facts


def _premise(evidence: Evidence, test: Callable[[Embeddings], Part], what: str) -> Verdict:
    """Join a test of every encoder's training embeddings."""
    parts = {
        encoder: test(data)
        for (dataset, encoder), data in evidence.embeddings.items()
        if dataset == evidence.primary
    }
    if not parts:
        raise MissingEvidence("needs embeddings of training cases with readers' votes")
    values = [part.value for part in parts.values()]
    ends = [f"{value:+.2f}" for value in (min(values), max(values))]
    verdict = all_of(
        parts,
        f"{evidence.primary}: {what}",
        measured=" to ".join(ends if len(values) > 1 else ends[:1]),
    )
    if verdict.verdict != "holds":
        return verdict
    first = next(iter(parts))
    reason = f"{verdict.reason} ({encoder_label(first)}: {parts[first].why})"
    return Verdict(verdict.measured, verdict.n, verdict.verdict, reason)


def premise_axis(evidence: Evidence) -> Verdict:
    """Real votes follow the position between the anchors, beyond the label."""

    def test(data: Embeddings) -> Part:
        axis = check_axis(data)
        why = (
            f"{axis.within:+.2f} ({axis.low:+.2f} to {axis.high:+.2f}), {axis.overall:+.2f} overall"
        )
        answer = at_least(axis.low, axis.high, 0.0, n=axis.n, fails_below=0.1)
        return Part(answer, axis.within, axis.n, why)

    return _premise(evidence, test, "rank correlation of votes with the anchor axis within classes")


def premise_neighbours(evidence: Evidence) -> Verdict:
    """Real cases next to an interpolate have the vote share it is given."""

    def test(data: Embeddings) -> Part:
        near = check_neighbours(data)
        middle = float(near.disagreement[len(near.levels) // 2])
        ends = float((near.disagreement[0] + near.disagreement[-1]) / 2)
        why = (
            f"{near.slope:.2f} ({near.low:.2f} to {near.high:.2f}); neighbours' disagreement "
            f"{middle:.2f} in the middle, {ends:.2f} at the ends"
        )
        return Part(at_least(near.low, near.high, 0.5, n=near.n), near.slope, near.n, why)

    return _premise(
        evidence, test, "slope of the neighbours' vote share on the target, at least 0.5"
    )


def replicates(evidence: Evidence) -> Verdict:
    """The fine-tuned network's AUC and ECE match those of Wei et al. within both standard deviations."""
    outside, total, seeds = [], 0, 0
    for cell in (c for c in evidence.cells if c.dataset == "mhist"):
        for method, (_, auc, _, ece) in paper.REPLICATION.items():
            if method not in cell.methods:
                continue
            for metric, (mean, sd) in (("auc", auc), ("ece", ece)):
                values = 100 * evidence.by_seed(cell.dataset, cell.encoder, method, metric)
                seeds = max(seeds, len(values))
                own_sd = float(values.std(ddof=1)) if len(values) > 1 else 0.0
                total += 1
                if abs(float(values.mean()) - mean) > sd + own_sd:
                    outside.append(f"{method_label(method)} {metric.upper()} {values.mean():.1f}")
    if total == 0:
        raise MissingEvidence("no ResNet fine-tuned on MHIST here; run: scalecal finetune")
    measured = f"{total - len(outside)} of {total} within"
    if seeds < 3:
        reason = f"only {seeds} seeds, 3 are needed for a standard deviation"
        return Verdict(measured, seeds, "inconclusive", reason)
    reason = f"outside: {', '.join(outside)}" if outside else "all within one sd of each side"
    verdict: Answer = "does not hold" if outside else "holds"
    return Verdict(measured, seeds, verdict, f"{reason}; n = seeds")


def contradicts(evidence: Evidence, *, fact: paper.Fact) -> Verdict:
    """A statement of the paper that public sources contradict."""
    reason = fact.source
    if fact.id == "fact-strata":
        for cell in evidence.of_dataset("mhist"):
            if cell.cases.n == 977 and cell.cases.strata is not None:
                strata = cell.cases.strata.values
                counts = [str(int((strata == s).sum())) for s in ("high", "medium", "low")]
                reason += f" The test set at hand has {' / '.join(counts)}."
                break
    return Verdict(fact.public, fact.n, "does not hold", reason)
