"""Every claim of the paper as one record: its sentence, its number, the test that decides it.

`judge` gives each claim its verdict on the evidence at hand: it holds, it does not hold, or it cannot be
told. Below the paper's claims stand its premise and statements that public sources contradict.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalecal.paper.deciding.costs import beats_softening, preserved, quick
from scalecal.paper.deciding.methods import (
    gap_to_real,
    lowers,
    lowers_everywhere,
    piecewise_best,
    plateau,
    recovers,
)
from scalecal.paper.deciding.premises import (
    fact,
    premise_axis,
    premise_neighbours,
    replicates,
)
from scalecal.paper.deciding.strata import aggregate_hides, stays_below, strata_differ
from scalecal.paper.evidence import Evidence
from scalecal.paper.printed import FACTS
from scalecal.paper.verdicts import Decide, Verdict

__all__ = ["CLAIMS", "Claim", "claims_json", "claims_table", "judge"]


@dataclass(frozen=True)
class Claim:
    """One claim: `decide` turns evidence into a verdict; `paper` is the number it printed, or "-"."""

    id: str
    claim: str
    paper: str
    decide: Decide


_CLAIMS = (
    Claim(
        "replication",
        "An end-to-end ResNet reproduces the AUC and ECE of Wei et al. within error bars",
        "10 of 10 within",
        replicates,
    ),
    Claim(
        "low-above-high",
        "Low-agreement ECE exceeds high-agreement ECE for every encoder",
        "+0.076 to +0.285",
        strata_differ("noise"),
    ),
    Claim(
        "beyond-selection",
        "It does so by more than strata made from the labels' own votes give a calibrated model",
        "not tested",
        strata_differ("selection"),
    ),
    Claim(
        "aggregate-hides",
        "Aggregate ECE hides it: it is nearer to high- than to low-agreement ECE for every encoder",
        "0.035 overall, 0.191 low",
        aggregate_hides,
    ),
    Claim(
        "high-stays-low",
        "High-agreement ECE stays at or below 0.035 for every encoder",
        "0.018 to 0.035",
        stays_below("high", 0.035),
    ),
    Claim(
        "scale-below-none",
        "SCALE lowers low-agreement ECE against no calibration",
        "-29.2 %",
        lowers("scale", "none"),
    ),
    Claim(
        "scale-below-temperature",
        "SCALE lowers low-agreement ECE against temperature scaling",
        "0.175 to 0.135",
        lowers("scale", "temperature"),
    ),
    Claim(
        "scale-below-vanilla",
        "SCALE lowers low-agreement ECE against vanilla label smoothing",
        "0.151 to 0.135",
        lowers("scale", "vanilla-ls"),
    ),
    Claim(
        "scale-overall",
        "SCALE lowers overall ECE too where there are several readers",
        "0.035 to 0.030",
        lowers("scale", "none", stratum="overall"),
    ),
    Claim(
        "recovers-real",
        "SCALE recovers at least 77 % of the low-agreement ECE gain of real agreement",
        "77 %, 83 %, 78 %",
        recovers(0.77),
    ),
    Claim(
        "recovers-votes",
        "It recovers as much of real agreement's gain in vote NLL, which softening cannot game",
        "not tested",
        recovers(0.77, metric="vote_nll", stratum="overall"),
    ),
    Claim(
        "gap-to-real",
        "The gap to real agreement is no more than 0.011 to 0.014",
        "+0.011, +0.011, +0.014",
        gap_to_real(0.014),
    ),
    Claim(
        "piecewise-best",
        "Piecewise smoothing is better than linear and nonlinear smoothing",
        "0.135 / 0.154 / 0.141",
        piecewise_best,
    ),
    Claim("k-plateau", "The number of anchors does not matter from K = 10 on", "plateau", plateau),
    Claim(
        "confident-beat-random",
        "Confident anchors beat random ones",
        "0.141 to 0.135",
        lowers("scale", "scale-random"),
    ),
    Claim(
        "random-beat-vanilla",
        "SCALE with random anchors beats vanilla label smoothing",
        "0.151 to 0.141",
        lowers("scale-random", "vanilla-ls"),
    ),
    Claim(
        "labels-matter",
        "The synthetic labels carry the gain: SCALE beats itself with its labels shuffled",
        "not tested",
        lowers("scale", "scale-shuffled"),
    ),
    Claim("auc-preserved", "AUC is preserved", "within seed variation", preserved("auc")),
    Claim(
        "accuracy-preserved",
        "Accuracy is preserved",
        "within seed variation",
        preserved("accuracy"),
    ),
    Claim(
        "pcam-ece",
        "SCALE lowers overall ECE on PatchCamelyon",
        "-20.4 %",
        lowers("scale", "none", stratum="overall", dataset="pcam"),
    ),
    Claim(
        "breakhis-ece",
        "SCALE lowers overall ECE on BreakHis",
        "-18.0 %",
        lowers("scale", "none", stratum="overall", dataset="breakhis"),
    ),
    Claim(
        "pcam-vanilla",
        "SCALE beats vanilla label smoothing for every encoder on PatchCamelyon",
        "0.040 to 0.036",
        lowers_everywhere("scale", "vanilla-ls", "pcam"),
    ),
    Claim(
        "breakhis-vanilla",
        "SCALE beats vanilla label smoothing for every encoder on BreakHis",
        "0.046 to 0.042",
        lowers_everywhere("scale", "vanilla-ls", "breakhis"),
    ),
    Claim(
        "five-minutes",
        "Probe training and retraining take under five minutes per model and data set",
        "< 300 s",
        quick(300.0),
    ),
    Claim(
        "beats-softening",
        "SCALE's low-agreement ECE is better than that of softening by the same amount",
        "not tested",
        beats_softening("ece"),
    ),
    Claim(
        "beats-softening-votes",
        "SCALE's vote NLL is better than that of softening by the same amount",
        "not tested",
        beats_softening("vote_nll"),
    ),
    Claim(
        "premise-axis",
        "Alpha tracks difficulty: votes follow a case's position between the anchors, within classes",
        "assumed",
        premise_axis,
    ),
    Claim(
        "premise-neighbours",
        "Alpha tracks difficulty: real cases next to an interpolate have the vote share it is given",
        "assumed",
        premise_neighbours,
    ),
    *(Claim(one.id, one.claim, one.paper, fact(one)) for one in FACTS),
)

CLAIMS: dict[str, Claim] = {claim.id: claim for claim in _CLAIMS}
"""Id -> claim, in the paper's order; then its premise, then its statements of fact."""


def judge(evidence: Evidence) -> dict[str, Verdict]:
    """Decide every claim on the evidence: id -> verdict."""
    return {name: claim.decide(evidence) for name, claim in CLAIMS.items()}


def claims_json(verdicts: dict[str, Verdict]) -> list[dict[str, Any]]:
    """Return the claims with their verdicts, ready for ``claims.json``.

    Examples
    --------
    >>> from scalecal.paper.verdicts import unknown
    >>> claims_json({"auc-preserved": unknown("nothing to compare")})[0]["verdict"]
    'cannot be told'
    """
    return [
        {
            "id": name,
            "claim": CLAIMS[name].claim,
            "paper": CLAIMS[name].paper,
            "measured": found.measured,
            "n": found.n,
            "verdict": found.verdict,
            "reason": found.reason,
        }
        for name, found in verdicts.items()
    ]


_WIDTHS = (39, 16, 18, 6)  # the verdict follows, 100 columns in all
_HEADS = ("claim", "paper", "measured", "n", "verdict")


def claims_table(claims: Sequence[dict[str, Any]], *, reasons: bool = False) -> str:
    """Lay claims (as `claims_json` gives them) out as text of 100 columns at most.

    Examples
    --------
    >>> print(claims_table([{"claim": "AUC is preserved", "paper": "-", "measured": "+0.1 points",
    ...                      "n": 977, "verdict": "holds", "reason": "all within"}]))
    claim                                    paper             measured                n  verdict
    ----------------------------------------------------------------------------------------------------
    AUC is preserved                         -                 +0.1 points           977  holds
    <BLANKLINE>
    holds 1, does not hold 0, cannot be told 0
    """
    lines = [_line(_HEADS), "-" * 100]
    for one in claims:
        cells = [str(one[key]) for key in ("claim", "paper", "measured")]
        wrapped = [
            textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, _WIDTHS, strict=False)
        ]
        for k in range(max(map(len, wrapped))):
            texts = [part[k] if k < len(part) else "" for part in wrapped]
            texts += [f"{one['n']:,}", one["verdict"]] if k == 0 else ["", ""]
            lines.append(_line(texts))
        if reasons:
            lines += textwrap.wrap(
                one["reason"], 98, initial_indent="    ", subsequent_indent="    "
            )
    counts = ", ".join(
        f"{name} {sum(one['verdict'] == name for one in claims)}"
        for name in ("holds", "does not hold", "cannot be told")
    )
    return "\n".join([*lines, "", counts])


def _line(cells: Sequence[str]) -> str:
    claim, paper, measured, n, verdict = cells
    widths = _WIDTHS
    return (
        f"{claim:<{widths[0]}}  {paper:<{widths[1]}}  {measured:<{widths[2]}} "
        f"{n:>{widths[3]}}  {verdict}"
    ).rstrip()
