"""The test behind each claim: functions from evidence to verdict.

A test raises `MissingEvidence` where the evidence lacks what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from scalecal.checks import Float
from scalecal.evaluation.frontier import softened_name, with_softened
from scalecal.evaluation.scores import Resampled
from scalecal.inference.paired import Drawn
from scalecal.paper import printed as paper
from scalecal.paper.evidence import Evidence, MissingEvidence
from scalecal.paper.premise import Checked, Embeddings, check_axis, check_neighbours
from scalecal.paper.printed import encoder_label, method_label
from scalecal.paper.verdicts import (
    MIN_CASES,
    WRONG,
    Answer,
    Part,
    Statement,
    Verdict,
    all_of,
    combined,
    judged_all,
)
from scalecal.probes.methods import METHODS

GAP = 0.038
"""A gap between the strata's errors that matters: half of the smallest the paper prints, 0.076."""

MARGIN = 0.01
"""Loss of AUC or accuracy that would not matter: one point."""

PLATEAU = 0.05
"""Change with K that would not matter, as a share of the uncalibrated probe's low-agreement ECE."""


def _encoders(evidence: Evidence, dataset: str, *methods: str) -> tuple[Resampled, list[str]]:
    """A data set's bootstrap, and its encoders with all these methods; there must be one."""
    if dataset not in evidence.datasets:
        title = {"pcam": "PatchCamelyon", "breakhis": "BreakHis"}.get(dataset, dataset)
        raise MissingEvidence(f"no predictions on {title} here")
    encoders = evidence.encoders(dataset, *methods)
    if not encoders:
        raise MissingEvidence(
            f"{dataset}: no encoder has predictions of all of {', '.join(methods)}"
        )
    return evidence.resampled(dataset), encoders


def _primary(evidence: Evidence) -> tuple[str, Resampled]:
    """The data set with agreement strata, and its bootstrap."""
    dataset = evidence.needs_strata()
    return dataset, evidence.resampled(dataset)


def _range(values: Sequence[float], form: Callable[[float], str]) -> str:
    ends = list(dict.fromkeys(form(v) for v in (min(values), max(values))))
    return " to ".join(ends)


# ---- the uncalibrated probe by agreement


def _with_strata(evidence: Evidence, *strata: str) -> tuple[str, Resampled, list[str]]:
    """`_primary`, and its encoders whose test cases fill these strata."""
    dataset, drawn = _primary(evidence)
    cells = evidence.of_dataset(dataset, "none")
    encoders = [c.encoder for c in cells if set(strata) <= set(c.stratum_names)]
    if not encoders:
        named = " and ".join(strata)
        raise MissingEvidence(f"{dataset}: no test set has cases of {named} agreement")
    return dataset, drawn, encoders


def _less(number: Drawn, expected: Mapping[int, float]) -> Drawn:
    """A number less what is expected of each seed."""
    by_seed = {s: v - expected[s] for s, v in number.by_seed.items() if s in expected}
    if not by_seed:
        raise MissingEvidence("no seed's test set has a null: one class is missing")
    return Drawn(by_seed, number.samples, number.n, number.units)


def strata_differ(evidence: Evidence, *, kind: Literal["noise", "selection"]) -> Verdict:
    """Low-agreement ECE exceeds high-agreement ECE for every encoder, by more than a null gives.

    The null is the difference that a calibrated model with the same predictions shows: "noise", from
    finite numbers alone; "selection", also from strata made from the same votes as the labels. Noise
    can hide at most the floor: the claim fails only where a gap of `GAP` is excluded even so.
    """
    dataset, drawn, encoders = _with_strata(evidence, "low", "high")
    statements, nulls = {}, []
    for encoder in encoders:
        key = (dataset, encoder, "none")
        floors = [evidence.of_seeds(*key, "ece", s, column="floor") for s in ("low", "high")]
        null_low, null_high = floors
        if kind == "selection":
            null_low, null_high = (evidence.of_seeds(*key, "null", s) for s in ("low", "high"))
        null = {s: null_low[s] - null_high[s] for s in null_low if s in null_high}
        if kind == "noise":
            # Equal errors of both strata hide unequal floors: a smaller floor is no excuse.
            null = {s: max(value, 0.0) for s, value in null.items()}
        low, high = (drawn.drawn(encoder, "none", s) for s in ("low", "high"))
        hidden = [float(np.mean(list(floor.values()))) for floor in floors]
        excess = _less(combined((1, low), (-1, high)), null)
        # Without selection the null is nothing but floors, and one of them is in it already.
        most = max(hidden) if kind == "noise" else sum(hidden)
        statements[encoder] = Statement(excess, fails=GAP - most)
        nulls.append(float(np.mean([null[s] for s in excess.by_seed])))
    against = "finite numbers" if kind == "noise" else "strata made from the labels' own votes"
    what = f"{dataset}: low minus high ECE less what {against} give a calibrated model"
    excesses = [one.value for one in statements.values()]
    mean = float(np.mean(excesses) + np.mean(nulls))
    verdict = all_of(
        judged_all(statements), what, measured=f"{mean:+.3f}, null {np.mean(nulls):+.3f}"
    )
    if verdict.verdict != "does not hold":
        return verdict
    reason = f"{verdict.reason}; a gap of {GAP}, half the paper's smallest, is excluded"
    return Verdict(verdict.measured, verdict.n, verdict.verdict, reason)


def aggregate_hides(evidence: Evidence) -> Verdict:
    """Overall ECE is nearer to high- than to low-agreement ECE for every encoder."""
    dataset, drawn, encoders = _with_strata(evidence, "low", "high")
    statements = {}
    for encoder in encoders:
        whole, high, low = (drawn.drawn(encoder, "none", s) for s in ("overall", "high", "low"))
        statements[encoder] = Statement(
            combined((1, whole), (-0.5, high), (-0.5, low)), above=False
        )
    overall, hard = (
        float(np.mean([drawn.drawn(e, "none", s).value for e in encoders]))
        for s in ("overall", "low")
    )
    return all_of(
        judged_all(statements),
        f"{dataset}: overall ECE less the middle between high- and low-agreement ECE (an average over "
        "mostly easy cases can hardly do otherwise)",
        measured=f"{overall:.3f} overall, {hard:.3f} low",
    )


def stays_below(evidence: Evidence, *, stratum: str, bound: float) -> Verdict:
    """The uncalibrated probe's ECE in a stratum is at most a bound for every encoder.

    Strata made from the labels' own votes give a calibrated model an error too (`selection_null`):
    where that is above the bound, only an ECE above both is held against the claim.
    """
    dataset, drawn, encoders = _with_strata(evidence, stratum)
    statements, nulls = {}, []
    for encoder in encoders:
        null = evidence.mean(dataset, encoder, "none", "null", stratum)
        nulls.append(null)
        statements[encoder] = Statement(
            drawn.drawn(encoder, "none", stratum),
            bound,
            above=False,
            fails=float(np.fmax(bound, null)),
            form=".3f",
        )
    values = [one.value for one in statements.values()]
    what = (
        f"{dataset}: {stratum}-agreement ECE against {bound} (a calibrated model would show "
        f"{_range(nulls, '{:.3f}'.format)} in strata made from the labels' own votes)"
    )
    return all_of(judged_all(statements), what, measured=_range(values, "{:.3f}".format))


# ---- one method against another


def _change(
    drawn: Resampled,
    method: str,
    reference: str,
    encoders: Sequence[str],
    stratum: str = "overall",
    metric: str = "ece",
    *,
    least: float = 0.0,
) -> Statement:
    """A metric falls from the reference to the method by more than a share `least` of it, averaged
    over encoders."""
    a, b = (drawn.averaged(encoders, m, stratum, metric) for m in (reference, method))
    change = combined((1, b), (-1, a))
    return Statement(change, -least, above=False, per=a, form="+.1f", unit=" %")


def _lowers(
    drawn: Resampled,
    method: str,
    reference: str,
    encoders: Sequence[str],
    what: str,
    *,
    least: float,
    stratum: str,
    metric: str = "ece",
) -> Verdict:
    """Judge that a metric falls by a share `least` of the reference's value at least."""
    pair = (drawn, method, reference)
    change = _change(*pair, encoders, stratum, metric, least=least)
    values = [drawn.averaged(encoders, m, stratum, metric).value for m in (reference, method)]
    judged = change.judged()
    reason = f"{what}: {values[0]:.3f} to {values[1]:.3f}; {judged.why}"
    if len(encoders) > 1:
        each = {e: _change(*pair, [e], stratum, metric).number.value for e in encoders}
        against = [encoder_label(e) for e, value in each.items() if not value < 0]
        reason += (
            f"; not lower for {', '.join(against)}" if against else "; lower for every encoder"
        )
    return Verdict(change.text, judged.n, judged.answer, reason)


def lowers(
    evidence: Evidence,
    *,
    method: str,
    reference: str,
    least: float,
    stratum: str = "low",
    dataset: str | None = None,
) -> Verdict:
    """A method's ECE is lower than another's by a share `least` of it, averaged over encoders."""
    if dataset is None:
        dataset = evidence.needs_strata()
    drawn, encoders = _encoders(evidence, dataset, method, reference)
    where = "overall ECE" if stratum == "overall" else f"{stratum}-agreement ECE"
    what = f"{dataset}: {where}, {method_label(method)} against {method_label(reference)}"
    return _lowers(drawn, method, reference, encoders, what, least=least, stratum=stratum)


def lowers_everywhere(evidence: Evidence, *, method: str, reference: str, dataset: str) -> Verdict:
    """A method's overall ECE is lower than another's for every encoder on a data set."""
    drawn, encoders = _encoders(evidence, dataset, method, reference)
    statements = {e: _change(drawn, method, reference, [e]) for e in encoders}
    what = f"{dataset}: overall ECE, {method_label(method)} against {method_label(reference)}"
    mean = float(np.mean([one.value for one in statements.values()]))
    return all_of(judged_all(statements), what, measured=f"{100 * mean:+.1f} % on average")


def in_between(evidence: Evidence, *, method: str, above: str, below: str, dataset: str) -> Verdict:
    """A method's overall ECE lies between those of two others, averaged over encoders."""
    drawn, encoders = _encoders(evidence, dataset, method, above, below)
    pairs = {
        f"below {method_label(above)}": (method, above),
        f"above {method_label(below)}": (below, method),
    }
    statements = {name: _change(drawn, *pair, encoders) for name, pair in pairs.items()}
    values = [drawn.averaged(encoders, m, "overall").value for m in (above, method, below)]
    what = f"{dataset}: overall ECE of {method_label(method)}"
    measured = " / ".join(f"{value:.3f}" for value in values)
    return all_of(judged_all(statements), what, measured=measured, of="comparisons")


def piecewise_lowest(evidence: Evidence) -> Verdict:
    """SCALE with piecewise smoothing has a lower low-agreement ECE than with the other two."""
    dataset, drawn = _primary(evidence)
    statements, values = {}, {}
    for smoothing, (_, other) in paper.SMOOTHINGS.items():
        encoders = evidence.encoders(dataset, "scale", other)
        if encoders:
            values[smoothing] = drawn.averaged(encoders, other, "low").value
            if other != "scale":
                statements[smoothing] = _change(drawn, "scale", other, encoders, "low")
    if not statements:
        raise MissingEvidence(f"{dataset}: no encoder has scale beside scale-linear or -nonlinear")
    measured = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
    what = f"{dataset}: low-agreement ECE, piecewise smoothing against another"
    return all_of(judged_all(statements), what, measured=measured, of="smoothing functions")


def _gains(
    evidence: Evidence, metric: str = "ece", stratum: str = "low"
) -> dict[str, tuple[Drawn, Drawn]]:
    """Smoothing function -> gain of synthetic and of real agreement over no calibration."""
    dataset, drawn = _primary(evidence)
    out = {}
    for smoothing, (real, scale) in paper.SMOOTHINGS.items():
        encoders = evidence.encoders(dataset, "none", real, scale)
        if encoders:
            base, own, best = (
                drawn.averaged(encoders, m, stratum, metric) for m in ("none", scale, real)
            )
            out[smoothing] = combined((1, base), (-1, own)), combined((1, base), (-1, best))
    if not out:
        raise MissingEvidence(
            f"{dataset}: no encoder has predictions of all of none, real-*, scale*"
        )
    return out


def _no_share(gain: Drawn) -> str:
    what = "gains nothing here" if gain.value <= 1e-12 else "gains what may be chance"
    return f"undefined (real agreement {what})"


def recovers(
    evidence: Evidence, *, share: float, metric: str = "ece", stratum: str = "low"
) -> Verdict:
    """SCALE recovers at least a share of real agreement's gain, for every smoothing function."""
    statements = {
        name: Statement(own, share, per=best, form=".0f", unit=" %", undefined=_no_share(best))
        for name, (own, best) in _gains(evidence, metric, stratum).items()
    }
    parts = judged_all(statements)
    what = f"{evidence.primary}: share of real agreement's gain"
    measured = ", ".join(one.short for one in statements.values())
    return all_of(parts, what, measured=measured, of="smoothing functions")


def piecewise_best(evidence: Evidence) -> Verdict:
    """The share of real agreement's gain that SCALE recovers is largest with piecewise smoothing.

    The noise of a difference of shares is that of its linear part.
    """
    gains = _gains(evidence)
    if "piecewise" not in gains or len(gains) < 2:
        raise MissingEvidence(
            f"{evidence.primary}: needs real-piecewise, scale and another smoothing of both kinds"
        )
    shares = {
        name: Statement(own, per=best, form=".0f", unit=" %", undefined=_no_share(best))
        for name, (own, best) in gains.items()
    }
    parts = {}
    for name in (name for name in gains if name != "piecewise"):
        pair = [shares["piecewise"], shares[name]]
        part = next((one.judged() for one in pair if not one.defined), None)
        if part is None:
            terms = []
            for sign, one, (own, best) in zip(
                (1, -1), pair, (gains["piecewise"], gains[name]), strict=True
            ):
                terms += [(sign / best.value, own), (-sign * one.value / best.value, best)]
            noise = combined(*terms)
            difference = pair[0].value - pair[1].value
            number = _less(noise, dict.fromkeys(noise.by_seed, -difference))
            part = Statement(number, form="+.0f", unit=" points").judged(len(gains) - 1)
        parts[name] = part
    measured = ", ".join(f"{name} {one.short}" for name, one in shares.items())
    what = f"{evidence.primary}: share of real agreement's gain, piecewise less another"
    return all_of(parts, what, measured=measured, of="smoothing functions")


def gap_to_real(evidence: Evidence, *, bound: float) -> Verdict:
    """SCALE's low-agreement ECE is above real agreement's by no more than a bound."""
    statements = {
        name: Statement(combined((1, best), (-1, own)), bound, above=False)
        for name, (own, best) in _gains(evidence).items()
    }
    measured = ", ".join(f"{one.value:+.3f}" for one in statements.values())
    what = f"{evidence.primary}: low-agreement ECE of SCALE less that of real agreement"
    return all_of(judged_all(statements), what, measured=measured, of="smoothing functions")


# ---- the number of anchors


def _over_k(evidence: Evidence) -> dict[str, tuple[Drawn, dict[str, Drawn]]]:
    """Smoothing function -> low-agreement ECE of no calibration, and of SCALE by K."""
    dataset, drawn = _primary(evidence)
    out = {}
    for smoothing, names in evidence.sweep_over_k(dataset).items():
        if "10" in names:
            encoders = evidence.encoders(dataset, "none", *names.values())
            curve = {k: drawn.averaged(encoders, m, "low") for k, m in names.items()}
            out[smoothing] = drawn.averaged(encoders, "none", "low"), curve
    if not out:
        raise MissingEvidence(f"{dataset}: no sweep over K here (methods such as scale@K=20)")
    return out


def plateau(evidence: Evidence) -> Verdict:
    """Low-agreement ECE at every K above 10 is within a margin of that at K = 10."""
    statements, changes = {}, []
    for smoothing, (base, curve) in _over_k(evidence).items():
        for k in (k for k in curve if k not in ("5", "10")):
            changes.append(combined((1, curve[k]), (-1, curve["10"])).value)
            # Two one-sided statements: a change not found is not yet a change that is small.
            for sign, way in ((-1, "higher"), (1, "lower")):
                left = combined((sign, curve[k]), (-sign, curve["10"]), (PLATEAU, base))
                statements[f"{smoothing} K = {k} ({way})"] = Statement(left)
    if not statements:
        raise MissingEvidence(f"{evidence.primary}: no sweep over K beyond 10 here")
    what = (
        f"{evidence.primary}: what is left to a margin of {100 * PLATEAU:g} % of no calibration's "
        "low-agreement ECE around that of K = 10"
    )
    measured = f"up to {max(map(abs, changes)):.3f} from K = 10"
    return all_of(judged_all(statements), what, measured=measured, of="bounds")


def few_anchors(evidence: Evidence) -> Verdict:
    """K = 5 is worse than K = 10 and keeps half of its gain, with piecewise smoothing."""
    curves = _over_k(evidence)
    if "piecewise" not in curves or "5" not in curves["piecewise"][1]:
        raise MissingEvidence(f"{evidence.primary}: no K = 5 with piecewise smoothing here")
    base, curve = curves["piecewise"]
    five, ten = curve["5"], curve["10"]
    statements = {
        "worse": Statement(combined((1, five), (-1, ten))),
        "slightly": Statement(combined((0.5, base), (0.5, ten), (-1, five))),
    }
    what = f"{evidence.primary}: low-agreement ECE at K = 5"
    measured = f"{five.value:.3f}, at K = 10 {ten.value:.3f}"
    return all_of(judged_all(statements), what, measured=measured, of="bounds")


# ---- what a method costs


def preserved(evidence: Evidence, *, metric: Literal["auc", "accuracy"]) -> Verdict:
    """No method of the paper loses more AUC or accuracy than a margin, on any encoder and data set."""
    statements = {}
    for dataset in evidence.datasets:
        drawn = evidence.resampled(dataset)
        for cell in evidence.of_dataset(dataset, "none"):
            base = drawn.drawn(cell.encoder, "none", metric=metric)
            for method in cell.methods:
                # The paper's statement covers its own methods only.
                if method == "none" or method not in METHODS or not METHODS[method].paper:
                    continue
                own = drawn.drawn(cell.encoder, method, metric=metric)
                change = combined((1, own), (-1, base))
                if np.isfinite(change.value):
                    name = f"{method_label(method)}, {encoder_label(cell.encoder)}, {dataset}"
                    statements[name] = Statement(change, -MARGIN, form="+.1f", unit=" points")
    if not statements:
        raise MissingEvidence(
            "no encoder has predictions of none and of another method of the paper"
        )
    title = metric.upper() if metric == "auc" else metric
    what = f"change of {title} against no calibration, above {-100 * MARGIN:g} point"
    values = [one.value for one in statements.values()]
    measured = _range(values, lambda v: f"{100 * v:+.1f}") + " points"
    return all_of(judged_all(statements), what, measured=measured, of="methods and encoders")


def beats_softening(
    evidence: Evidence, *, metric: Literal["ece", "vote_nll"], least: float
) -> Verdict:
    """SCALE is better than the uncalibrated probe softened to the same mean entropy."""
    dataset = evidence.needs_strata()
    cells = [c for c in evidence.of_dataset(dataset, "none", "scale") if c.cases.votes is not None]
    if not cells:
        raise MissingEvidence(f"{dataset}: no encoder has predictions of both none and scale")
    # Softening alone lowers ECE on hard cases, so only a gain beyond equal softening counts.
    softened = [with_softened(cell, ["scale"]) for cell in cells]
    drawn = Resampled(softened, n_resamples=evidence.n_resamples)
    stratum, title = ("low", "low-agreement ECE") if metric == "ece" else ("overall", "vote NLL")
    return _lowers(
        drawn,
        "scale",
        softened_name("scale"),
        [cell.encoder for cell in cells],
        f"{dataset}: {title}, {method_label('scale')} against softening to equal entropy",
        least=least,
        stratum=stratum,
        metric=metric,
    )


def quick(evidence: Evidence, *, limit: float) -> Verdict:
    """Training and retraining the probe takes less than a limit, for every cell.

    The seconds themselves are in each cell's ``timing.json``: what is said here repeats.
    """
    seconds = evidence.seconds
    if not seconds:
        raise MissingEvidence("no training times were kept (predictions read from files)")
    slow = [
        f"{encoder_label(key[1])} on {key[0]}" for key in sorted(seconds) if seconds[key] >= limit
    ]
    return Verdict(
        f"{'>=' if slow else '<'} {limit:g} s",
        len(seconds),
        "does not hold" if slow else "holds",
        f"{'slow: ' + ', '.join(slow) + '; ' if slow else ''}seconds in timing.json; n counts cells",
    )


# ---- premise, replication, facts


def _premise(
    evidence: Evidence, check: Callable[[Embeddings], Checked], what: str, *, bound: float
) -> Verdict:
    """A number of every encoder's training embeddings is above a bound.

    Its noise is that of the cases: embeddings are kept with the first seed's anchors only.
    """
    checks = {
        encoder: check(data)
        for (dataset, encoder), data in evidence.embeddings.items()
        if dataset == evidence.primary
    }
    if not checks:
        raise MissingEvidence("needs embeddings of training cases with readers' votes")
    parts = {}
    for encoder, one in checks.items():
        answer: Answer = "inconclusive"
        # To hold, every encoder must: no correction. To fail, one is enough: its level is divided.
        if one.n >= MIN_CASES and one.interval(2 * WRONG)[0] > bound:
            answer = "holds"
        elif one.n >= MIN_CASES and one.interval(2 * WRONG / len(checks))[1] <= bound:
            answer = "does not hold"
        parts[encoder] = Part(answer, one.value, one.n, one.text)
    verdict = all_of(
        parts,
        f"{evidence.primary}: {what}, anchors of the first seed",
        measured=_range([part.value for part in parts.values()], "{:+.2f}".format),
    )
    if verdict.verdict != "holds":
        return verdict
    first = next(iter(parts))
    reason = f"{verdict.reason} ({encoder_label(first)}: {parts[first].why})"
    return Verdict(verdict.measured, verdict.n, verdict.verdict, reason)


def premise_axis(evidence: Evidence, *, bound: float) -> Verdict:
    """Real votes follow the position between the anchors, beyond the label."""
    what = "rank correlation of votes with the anchor axis within classes"
    return _premise(evidence, check_axis, what, bound=bound)


def premise_neighbours(evidence: Evidence, *, bound: float) -> Verdict:
    """Real cases next to an interpolate have the vote share it is given."""
    what = "slope of the neighbours' vote share on the target"
    return _premise(evidence, check_neighbours, what, bound=bound)


def replicates(evidence: Evidence) -> Verdict:
    """The fine-tuned network's AUC and ECE match those of Wei et al. within both standard deviations.

    The test images are the same, so the noise is that of the seeds: ours, and the ten published.
    """
    from scipy.stats import t

    values: dict[str, tuple[Float, float, float]] = {}
    for cell in (c for c in evidence.cells if c.dataset == "mhist"):
        for method, (_, auc, _, ece) in paper.REPLICATION.items():
            for metric, (mean, sd) in (
                (("auc", auc), ("ece", ece)) if method in cell.methods else ()
            ):
                own = 100 * evidence.by_seed(cell.dataset, cell.encoder, method, metric)
                values[f"{method_label(method)} {metric.upper()}"] = own, mean, sd
    if not values:
        raise MissingEvidence("no ResNet fine-tuned on MHIST here; run: scalecal finetune")
    parts = {}
    for name, (own, mean, sd) in values.items():
        seeds = len(own)
        why = f"{own.mean():.1f}, published {mean:.1f}"
        answer: Answer = "inconclusive"
        if seeds < 3:
            why = f"only {seeds} seeds, 3 are needed for a standard deviation"
        else:
            spread = float(own.std(ddof=1))
            left = sd + spread - abs(float(own.mean()) - mean)
            halves = [
                np.hypot(
                    t.isf(wrong, seeds - 1) * spread / np.sqrt(seeds),
                    t.isf(wrong, paper.SEEDS - 1) * sd / np.sqrt(paper.SEEDS),
                )
                for wrong in (WRONG, WRONG / len(values))
            ]
            if left > halves[0]:
                answer = "holds"
            elif left < -halves[1]:
                answer = "does not hold"
        parts[name] = Part(answer, float(own.mean()), seeds, why)
    within = sum(part.answer == "holds" for part in parts.values())
    return all_of(
        parts,
        "mean within the error bars, ours and the published (n = seeds)",
        measured=f"{within} of {len(parts)} within",
        of="numbers",
    )


def contradicts(_: Evidence, *, fact: paper.Fact) -> Verdict:
    """A statement of the paper that public sources contradict, whatever the data."""
    return Verdict(fact.public, fact.n, "does not hold", fact.source)
