"""Every claim of the paper as one record: its sentence, its number, the test that decides it.

`judge` gives each claim its verdict on the evidence at hand: it holds, it does not hold, or it is
inconclusive. After the paper's claims come its premise and statements that public sources contradict.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

from scalecal.cases import Features
from scalecal.paper import decisions
from scalecal.paper.evidence import Evidence, MissingEvidence
from scalecal.paper.premise import training_embeddings
from scalecal.paper.printed import FACTS
from scalecal.paper.verdicts import VERDICTS, Verdict
from scalecal.runs.grid import Grid


@dataclass(frozen=True)
class Claim:
    """One claim: `decide` turns evidence into a verdict; `paper` is the number it printed, or "-"."""

    id: str
    claim: str
    paper: str
    decide: Callable[[Evidence], Verdict]

    def judge(self, evidence: Evidence) -> Verdict:
        """Return the verdict; inconclusive where the evidence lacks what the test needs."""
        try:
            return self.decide(evidence)
        except MissingEvidence as error:
            return Verdict("-", 0, "inconclusive", str(error))


_CLAIMS = (
    Claim(
        "replication",
        "An end-to-end ResNet reproduces the AUC and ECE of Wei et al. within error bars",
        "10 of 10 within",
        decisions.replicates,
    ),
    Claim(
        "low-above-high",
        "Low-agreement ECE exceeds high-agreement ECE for every encoder",
        "+0.076 to +0.285",
        partial(decisions.strata_differ, kind="noise"),
    ),
    Claim(
        "beyond-selection",
        "It does so by more than strata made from the labels' own votes give a calibrated model",
        "not tested",
        partial(decisions.strata_differ, kind="selection"),
    ),
    Claim(
        "aggregate-hides",
        "Aggregate ECE hides it: it is nearer to high- than to low-agreement ECE for every encoder",
        "0.035 overall, 0.191 low",
        decisions.aggregate_hides,
    ),
    Claim(
        "high-stays-low",
        "High-agreement ECE stays at or below 0.035 for every encoder",
        "0.018 to 0.035",
        partial(decisions.stays_below, stratum="high", bound=0.035),
    ),
    Claim(
        "scale-below-none",
        "SCALE lowers low-agreement ECE against no calibration",
        "-29.2 %",
        partial(decisions.lowers, method="scale", reference="none"),
    ),
    Claim(
        "scale-below-temperature",
        "SCALE lowers low-agreement ECE against temperature scaling",
        "0.175 to 0.135",
        partial(decisions.lowers, method="scale", reference="temperature"),
    ),
    Claim(
        "scale-below-vanilla",
        "SCALE lowers low-agreement ECE against vanilla label smoothing",
        "0.151 to 0.135",
        partial(decisions.lowers, method="scale", reference="vanilla-ls"),
    ),
    Claim(
        "scale-overall",
        "SCALE lowers overall ECE too where there are several readers",
        "0.035 to 0.030",
        partial(decisions.lowers, method="scale", reference="none", stratum="overall"),
    ),
    Claim(
        "recovers-real",
        "SCALE recovers at least 77 % of the low-agreement ECE gain of real agreement",
        "77 %, 83 %, 78 %",
        partial(decisions.recovers, share=0.77),
    ),
    Claim(
        "recovers-votes",
        "It recovers as much of real agreement's gain in vote NLL, which softening cannot game",
        "not tested",
        partial(decisions.recovers, share=0.77, metric="vote_nll", stratum="overall"),
    ),
    Claim(
        "gap-to-real",
        "The gap to real agreement is no more than 0.011 to 0.014",
        "+0.011, +0.011, +0.014",
        partial(decisions.gap_to_real, bound=0.014),
    ),
    Claim(
        "piecewise-best",
        "Piecewise smoothing is better than linear and nonlinear smoothing",
        "0.135 / 0.154 / 0.141",
        decisions.piecewise_best,
    ),
    Claim(
        "k-plateau",
        "The number of anchors does not matter from K = 10 on",
        "plateau",
        decisions.plateau,
    ),
    Claim(
        "confident-beat-random",
        "Confident anchors beat random ones",
        "0.141 to 0.135",
        partial(decisions.lowers, method="scale", reference="scale-random"),
    ),
    Claim(
        "random-beat-vanilla",
        "SCALE with random anchors beats vanilla label smoothing",
        "0.151 to 0.141",
        partial(decisions.lowers, method="scale-random", reference="vanilla-ls"),
    ),
    Claim(
        "labels-matter",
        "The synthetic labels carry the gain: SCALE beats itself with its labels shuffled",
        "not tested",
        partial(decisions.lowers, method="scale", reference="scale-shuffled"),
    ),
    Claim(
        "auc-preserved",
        "AUC is preserved",
        "within seed variation",
        partial(decisions.preserved, metric="auc"),
    ),
    Claim(
        "accuracy-preserved",
        "Accuracy is preserved",
        "within seed variation",
        partial(decisions.preserved, metric="accuracy"),
    ),
    Claim(
        "pcam-ece",
        "SCALE lowers overall ECE on PatchCamelyon",
        "-20.4 %",
        partial(
            decisions.lowers, method="scale", reference="none", stratum="overall", dataset="pcam"
        ),
    ),
    Claim(
        "breakhis-ece",
        "SCALE lowers overall ECE on BreakHis",
        "-18.0 %",
        partial(
            decisions.lowers,
            method="scale",
            reference="none",
            stratum="overall",
            dataset="breakhis",
        ),
    ),
    Claim(
        "pcam-vanilla",
        "SCALE beats vanilla label smoothing for every encoder on PatchCamelyon",
        "0.040 to 0.036",
        partial(
            decisions.lowers_everywhere, method="scale", reference="vanilla-ls", dataset="pcam"
        ),
    ),
    Claim(
        "breakhis-vanilla",
        "SCALE beats vanilla label smoothing for every encoder on BreakHis",
        "0.046 to 0.042",
        partial(
            decisions.lowers_everywhere, method="scale", reference="vanilla-ls", dataset="breakhis"
        ),
    ),
    Claim(
        "five-minutes",
        "Probe training and retraining take under five minutes per model and data set",
        "< 300 s",
        partial(decisions.quick, limit=300.0),
    ),
    Claim(
        "beats-softening",
        "SCALE's low-agreement ECE is better than that of softening by the same amount",
        "not tested",
        partial(decisions.beats_softening, metric="ece"),
    ),
    Claim(
        "beats-softening-votes",
        "SCALE's vote NLL is better than that of softening by the same amount",
        "not tested",
        partial(decisions.beats_softening, metric="vote_nll"),
    ),
    Claim(
        "premise-axis",
        "Alpha tracks difficulty: votes follow a case's position between the anchors, within classes",
        "assumed",
        decisions.premise_axis,
    ),
    Claim(
        "premise-neighbours",
        "Alpha tracks difficulty: real cases next to an interpolate have the vote share it is given",
        "assumed",
        decisions.premise_neighbours,
    ),
    *(
        Claim(one.id, one.claim, one.paper, partial(decisions.contradicts, fact=one))
        for one in FACTS
    ),
)

CLAIMS: dict[str, Claim] = {claim.id: claim for claim in _CLAIMS}
"""Id -> claim, in the paper's order; then its premise, then its statements of fact."""


def judge(evidence: Evidence) -> dict[str, Verdict]:
    """Judge every claim on the evidence: id -> verdict."""
    return {name: claim.judge(evidence) for name, claim in CLAIMS.items()}


def judge_comparison(data: Features, grid: Grid) -> list[dict[str, Any]]:
    """Judge every claim on one comparison, of `data` by `grid`; returns what `claims_json` returns."""
    key = (grid.cell.dataset, grid.cell.encoder)
    embeddings = training_embeddings(data, grid, grid.cell.seeds("scale")[0])
    evidence = Evidence(
        [grid.cell],
        embeddings={} if embeddings is None else {key: embeddings},
        seconds={key: grid.seconds},
    )
    return claims_json(judge(evidence))


def claims_json(verdicts: dict[str, Verdict]) -> list[dict[str, Any]]:
    """Return the claims with their verdicts, ready for ``claims.json``.

    Examples
    --------
    >>> verdict = Verdict("+0.1 points", 977, "holds", "all within")
    >>> claims_json({"auc-preserved": verdict})[0]["claim"]
    'AUC is preserved'
    """
    return [
        {
            "id": name,
            "claim": CLAIMS[name].claim,
            "paper": CLAIMS[name].paper,
            "measured": one.measured,
            "n": one.n,
            "verdict": one.verdict,
            "reason": one.reason,
        }
        for name, one in verdicts.items()
    ]


def claims_table(claims: Sequence[dict[str, Any]]) -> str:
    """Lay claims (as `claims_json` gives them) out as text of 100 columns at most.

    Examples
    --------
    >>> print(claims_table([{"claim": "AUC is preserved", "paper": "-", "measured": "+0.1 points",
    ...                      "n": 977, "verdict": "holds", "reason": "all within"}]))
    claim                                    paper             measured                n  verdict
    ----------------------------------------------------------------------------------------------------
    AUC is preserved                         -                 +0.1 points           977  holds
    <BLANKLINE>
    holds 1, does not hold 0, inconclusive 0
    """
    lines = [_line("claim", "paper", "measured", "n", "verdict"), "-" * 100]
    for one in claims:
        widths = {"claim": 39, "paper": 16, "measured": 18}
        columns = [textwrap.wrap(str(one[key]), width) for key, width in widths.items()]
        columns += [[f"{one['n']:,}"], [one["verdict"]]]
        lines += [_line(*texts) for texts in zip_longest(*columns, fillvalue="")]
    counts = ", ".join(
        f"{name} {sum(one['verdict'] == name for one in claims)}" for name in VERDICTS
    )
    return "\n".join([*lines, "", counts])


def _line(claim: str, paper: str, measured: str, n: str, verdict: str) -> str:
    return f"{claim:<39}  {paper:<16}  {measured:<18} {n:>6}  {verdict}".rstrip()
