"""Claims that one method is better than another."""

from __future__ import annotations

from collections.abc import Sequence

from scalecal.auditing.sentences import LEVEL
from scalecal.inference.paired import equivalence
from scalecal.paper.evidence import Evidence
from scalecal.paper.paper_tables import SMOOTHINGS
from scalecal.paper.printed import method_label
from scalecal.paper.verdicts import (
    LEAST_CASES,
    NEGLIGIBLE,
    NO_VOTES,
    Answer,
    Decide,
    Verdict,
    joined,
    lower,
    lower_everywhere,
    unknown,
)
from scalecal.runs.resampled import Contrast, Resampled

__all__ = [
    "gap_to_real",
    "lowers",
    "lowers_everywhere",
    "piecewise_best",
    "plateau",
    "recovers",
    "sweep_over_k",
]

_TITLES = {"pcam": "PatchCamelyon", "breakhis": "BreakHis"}


def _missing(dataset: str, *methods: str) -> Verdict:
    names = ", ".join(methods)
    return unknown(f"{dataset}: no encoder has predictions of all of {names}")


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
    method: str, reference: str, *, stratum: str = "low", dataset: str | None = None
) -> Decide:
    """A method's ECE is lower than another's, averaged over encoders."""

    def decide(evidence: Evidence) -> Verdict:
        name = evidence.primary if dataset is None else dataset
        if name is None:
            return unknown(NO_VOTES)
        if name not in evidence.datasets:
            return unknown(f"no predictions on {_TITLES.get(name, name)} here")
        encoders = evidence.encoders(name, method, reference)
        if not encoders:
            return _missing(name, method, reference)
        drawn = evidence.resampled(name)
        found = drawn.contrast(method, reference, stratum=stratum, encoders=encoders)
        where = "overall ECE" if stratum == "overall" else f"{stratum}-agreement ECE"
        what = f"{name}: {where}, {method_label(method)} against {method_label(reference)}"
        return lower(found, what, by_encoder=_each(drawn, encoders, method, reference, stratum))

    return decide


def lowers_everywhere(method: str, reference: str, dataset: str) -> Decide:
    """A method's overall ECE is lower than another's for every encoder on a data set."""

    def decide(evidence: Evidence) -> Verdict:
        if dataset not in evidence.datasets:
            return unknown(f"no predictions on {_TITLES.get(dataset, dataset)} here")
        encoders = evidence.encoders(dataset, method, reference)
        if not encoders:
            return _missing(dataset, method, reference)
        found = _each(evidence.resampled(dataset), encoders, method, reference)
        what = f"{dataset}: overall ECE, {method_label(method)} against {method_label(reference)}"
        return lower_everywhere(found, what)

    return decide


def recovers(share: float, *, metric: str = "ece", stratum: str = "low") -> Decide:
    """SCALE recovers at least a share of real agreement's gain, for every smoothing function."""

    def decide(evidence: Evidence) -> Verdict:
        dataset = evidence.primary
        if dataset is None:
            return unknown(NO_VOTES)
        drawn = evidence.resampled(dataset)
        answers: list[Answer] = []
        texts, reasons, n = [], [], 0
        for smoothing, (real, scale) in SMOOTHINGS.items():
            encoders = evidence.encoders(dataset, "none", real, scale)
            if not encoders:
                continue
            found = drawn.recovered(scale, real, stratum=stratum, metric=metric, encoders=encoders)
            n = max(n, found.n)
            if found.reason:
                answers.append("cannot be told")
                reasons.append(f"{smoothing}: {found.reason}")
                continue
            texts.append(f"{100 * found.share:.0f} %")
            reasons.append(
                f"{smoothing} {100 * found.share:.0f} % ({100 * found.low:.0f} to {100 * found.high:.0f})"
            )
            if found.n < LEAST_CASES or found.low < share <= found.high:
                answers.append("cannot be told")
            else:
                answers.append("holds" if found.low >= share else "does not hold")
        if not answers:
            return _missing(dataset, "none", "real-*", "scale*")
        return Verdict(
            ", ".join(texts) or "undefined",
            n,
            joined(answers),
            f"{dataset}: {'; '.join(reasons)}",
        )

    return decide


def piecewise_best(evidence: Evidence) -> Verdict:
    """SCALE with piecewise smoothing has a lower low-agreement ECE than with the other two."""
    parts = [lowers("scale", other)(evidence) for other in ("scale-linear", "scale-nonlinear")]
    measured = " / ".join(part.measured for part in parts)
    reason = "; ".join(part.reason for part in parts)
    if all(part.n == 0 for part in parts):
        return parts[0]
    return Verdict(measured, parts[0].n, joined([p.verdict for p in parts]), reason)


def gap_to_real(bound: float) -> Decide:
    """SCALE's low-agreement ECE is above real agreement's by no more than a bound."""

    def decide(evidence: Evidence) -> Verdict:
        dataset = evidence.primary
        if dataset is None:
            return unknown(NO_VOTES)
        answers: list[Answer] = []
        texts, reasons, n = [], [], 0
        for smoothing, (real, scale) in SMOOTHINGS.items():
            encoders = evidence.encoders(dataset, real, scale)
            if not encoders:
                continue
            found = evidence.resampled(dataset).contrast(
                scale, real, stratum="low", encoders=encoders
            )
            n = max(n, found.n)
            texts.append(f"{found.difference:+.3f}")
            reasons.append(
                f"{smoothing} {found.difference:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
            )
            if found.n < LEAST_CASES or found.low <= bound < found.high:
                answers.append("cannot be told")
            else:
                answers.append("holds" if found.high <= bound else "does not hold")
        if not answers:
            return _missing(dataset, "real-*", "scale*")
        return Verdict(", ".join(texts), n, joined(answers), f"{dataset}: {'; '.join(reasons)}")

    return decide


def sweep_over_k(evidence: Evidence, dataset: str) -> dict[str, dict[str, str]]:
    """Smoothing -> K -> method's name, where every encoder with a sweep has it."""
    cells = evidence.of_dataset(dataset, "none")
    out: dict[str, dict[str, str]] = {}
    for smoothing, (_, method) in SMOOTHINGS.items():
        found = [
            {m.partition("@K=")[2] for m in c.methods if m.startswith(f"{method}@K=")}
            for c in cells
        ]
        common = set.intersection(*found) if found else set()
        order = sorted(common, key=lambda k: float("inf") if k == "all" else float(k))
        if order:
            out[smoothing] = {k: f"{method}@K={k}" for k in order}
    return out


def plateau(evidence: Evidence) -> Verdict:
    """Low-agreement ECE at K = 10 equals that at every larger K, give or take a margin."""
    dataset = evidence.primary
    if dataset is None:
        return unknown(NO_VOTES)
    drawn = evidence.resampled(dataset)
    answers: list[Answer] = []
    reasons, widest, n = [], 0.0, 0
    for smoothing, names in sweep_over_k(evidence, dataset).items():
        larger = [k for k in names if k not in ("5", "10")]
        if "10" not in names or not larger:
            continue
        encoders = evidence.encoders(dataset, "none", *names.values())
        base = drawn.averaged(encoders, "none", "low").value
        margin = NEGLIGIBLE["ece"] * base
        at_ten = drawn.averaged(encoders, names["10"], "low")
        for k in larger:
            other = drawn.averaged(encoders, names[k], "low")
            samples = other.samples - at_ten.samples
            found = equivalence(samples, other.value - at_ten.value, margin, n=other.n)
            n = max(n, found.n)
            widest = max(widest, abs(found.difference))
            if found.n < LEAST_CASES:
                answers.append("cannot be told")
            elif found.low > margin or found.high < -margin:
                answers.append("does not hold")
            else:
                answers.append("holds" if found.equivalent else "cannot be told")
            if answers[-1] != "holds":
                reasons.append(f"{smoothing} K = {k}: {found.difference:+.3f}")
    if not answers:
        return unknown(f"{dataset}: no sweep over K here (methods such as scale@K=20)")
    reason = f"{dataset}: differences to K = 10, margin {100 * NEGLIGIBLE['ece']:g} % of no calibration's"
    reason += f"; not shown for {'; '.join(reasons)}" if reasons else "; all within"
    return Verdict(f"up to {widest:.3f} from K = 10", n, joined(answers), reason)
