"""Claims that stand before the comparison: the premise, the replication, the facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scalecal.paper import printed as paper
from scalecal.paper.evidence import Evidence
from scalecal.paper.premise import check_axis, check_neighbours
from scalecal.paper.printed import encoder_label, method_label
from scalecal.paper.verdicts import (
    LEAST_CASES,
    Answer,
    Decide,
    Verdict,
    all_of,
    unknown,
)

__all__ = ["fact", "premise_axis", "premise_neighbours", "replicates"]


def premise_axis(evidence: Evidence) -> Verdict:
    """Real votes follow the position between the anchors, beyond the label."""

    def one(encoder: str) -> tuple[Answer, float, str, int]:
        data = evidence.embeddings[dataset, encoder]
        assert data.counts is not None
        found = check_axis(data.X, data.y, data.counts, data.anchors, seed=evidence.seed)
        why = f"{found.within:+.2f} ({found.low:+.2f} to {found.high:+.2f}), {found.overall:+.2f} overall"
        answer: Answer = "cannot be told"
        if found.n >= LEAST_CASES and found.low > 0:
            answer = "holds"
        elif found.n >= LEAST_CASES and found.high < 0.1:
            answer = "does not hold"
        return answer, found.within, why, found.n

    dataset, encoders = _embedded(evidence)
    return _premise(
        encoders, one, f"{dataset}: rank correlation of votes with the anchor axis within classes"
    )


def premise_neighbours(evidence: Evidence) -> Verdict:
    """Real cases next to an interpolate have the vote share it is given."""

    def one(encoder: str) -> tuple[Answer, float, str, int]:
        data = evidence.embeddings[dataset, encoder]
        assert data.counts is not None
        found = check_neighbours(
            data.X, data.counts, data.anchors, n_raters=data.n_raters, seed=evidence.seed
        )
        middle = float(found.disagreement[len(found.levels) // 2])
        ends = float((found.disagreement[0] + found.disagreement[-1]) / 2)
        why = (
            f"{found.slope:.2f} ({found.low:.2f} to {found.high:.2f}); neighbours' disagreement "
            f"{middle:.2f} in the middle, {ends:.2f} at the ends"
        )
        answer: Answer = "cannot be told"
        if found.n >= LEAST_CASES and found.low >= 0.5:
            answer = "holds"
        elif found.n >= LEAST_CASES and found.high < 0.5:
            answer = "does not hold"
        return answer, found.slope, why, found.n

    dataset, encoders = _embedded(evidence)
    return _premise(
        encoders, one, f"{dataset}: slope of the neighbours' vote share on the target, at least 0.5"
    )


def _embedded(evidence: Evidence) -> tuple[str, list[str]]:
    primary = evidence.primary or ""
    names = [
        e
        for d, e in evidence.embeddings
        if d == primary and evidence.embeddings[d, e].counts is not None
    ]
    return primary, names


def _premise(
    encoders: Sequence[str],
    one: Callable[[str], tuple[Answer, float, str, int]],
    what: str,
) -> Verdict:
    if not encoders:
        return unknown("needs embeddings of training cases with readers' votes")
    found = {encoder: one(encoder) for encoder in encoders}
    values = [value for _, value, _, _ in found.values()]
    verdict = all_of(
        {e: answer for e, (answer, _, _, _) in found.items()},
        what,
        measured=f"{min(values):+.2f} to {max(values):+.2f}"
        if len(values) > 1
        else f"{values[0]:+.2f}",
        n=max(n for _, _, _, n in found.values()),
        whys={e: why for e, (_, _, why, _) in found.items()},
    )
    if verdict.verdict == "holds":
        first = next(iter(found))
        detail = f"{verdict.reason} ({encoder_label(first)}: {found[first][2]})"
        return Verdict(verdict.measured, verdict.n, verdict.verdict, detail)
    return verdict


def replicates(evidence: Evidence) -> Verdict:
    """The fine-tuned network's AUC and ECE match those of Wei et al. within both spreads."""
    off, total, seeds = [], 0, 0
    for cell in (c for c in evidence.cells if c.dataset == "mhist"):
        for method, (_, auc, _, ece) in paper.REPLICATION.items():
            if method not in cell.methods:
                continue
            for metric, (mean, sd) in (("auc", auc), ("ece", ece)):
                values = 100 * evidence.by_seed(cell.dataset, cell.encoder, method, metric)
                seeds = max(seeds, len(values))
                spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
                total += 1
                if abs(float(values.mean()) - mean) > sd + spread:
                    off.append(f"{method_label(method)} {metric.upper()} {values.mean():.1f}")
    if total == 0:
        return unknown("no ResNet fine-tuned on MHIST here; run: scalecal finetune")
    measured = f"{total - len(off)} of {total} within"
    if seeds < 3:
        return unknown(f"only {seeds} seeds, 3 are needed for a spread", measured=measured, n=seeds)
    reason = f"outside: {', '.join(off)}" if off else "all within one sd of each side"
    return Verdict(measured, seeds, "does not hold" if off else "holds", f"{reason}; n = seeds")


def fact(one: paper.Fact) -> Decide:
    """A statement of the paper that public sources contradict."""

    def decide(evidence: Evidence) -> Verdict:
        counted = _mhist_strata(evidence) if one.id == "fact-strata" else ""
        here = f" The test set at hand has {counted}." if counted else ""
        return Verdict(one.found, one.n, "does not hold", one.source + here)

    return decide


def _mhist_strata(evidence: Evidence) -> str:
    """Strata of a whole MHIST test set at hand, or nothing."""
    for cell in evidence.of_dataset("mhist"):
        if len(cell.ids) == 977 and cell.stratum_names:
            return " / ".join(str(int((cell.strata == s).sum())) for s in ("high", "medium", "low"))
    return ""
