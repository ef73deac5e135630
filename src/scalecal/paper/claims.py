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
from typing import Any, Literal

from scalecal.cases import Features
from scalecal.paper import decisions
from scalecal.paper.evidence import Evidence, MissingEvidence, training_embeddings
from scalecal.paper.printed import FACTS
from scalecal.paper.verdicts import VERDICTS, Verdict
from scalecal.runs.grid import Grid


@dataclass(frozen=True)
class Claim:
    """One claim: `decide` turns evidence into a verdict; `paper` is the number it printed, or "-".

    A claim of kind "fact" needs no data; it is listed apart and not counted. `MAIN` has the few that a
    page opens with.
    """

    id: str
    claim: str
    paper: str
    decide: Callable[[Evidence], Verdict]
    kind: Literal["claim", "fact"] = "claim"

    def judge(self, evidence: Evidence) -> Verdict:
        """Return the verdict; inconclusive where the evidence lacks what the test needs."""
        try:
            return self.decide(evidence)
        except MissingEvidence as error:
            return Verdict("-", 0, "inconclusive", str(error))


def _gain(
    name: str,
    claim: str,
    paper: str,
    gain: float,
    method: str,
    reference: str = "none",
    **options: Any,
) -> Claim:
    """A claim of a gain of some size: half of what is printed must be supported."""
    # A gain that is exactly as printed falls short of the full number in half of all runs.
    text = f"{claim} by at least {50 * gain:.1f} %, half of what is printed"
    decide = partial(
        decisions.lowers, method=method, reference=reference, least=gain / 2, **options
    )
    return Claim(name, text, paper, decide)


def _elsewhere(dataset: str, title: str, gain: float, printed: Sequence[str]) -> tuple[Claim, ...]:
    """The claims on a data set without several readers; `printed`: base, vanilla LS and SCALE."""
    everywhere = partial(decisions.lowers_everywhere, method="scale", dataset=dataset)
    base, vanilla, scale = printed
    return (
        _gain(
            f"{dataset}-ece",
            f"SCALE lowers overall ECE on {title}",
            f"-{100 * gain:.1f} %",
            gain,
            "scale",
            stratum="overall",
            dataset=dataset,
        ),
        Claim(
            f"{dataset}-none",
            f"SCALE's overall ECE is below no calibration's for every encoder on {title}",
            f"{base} to {scale}",
            partial(everywhere, reference="none"),
        ),
        Claim(
            f"{dataset}-vanilla",
            f"SCALE's overall ECE is below vanilla label smoothing's for every encoder on {title}",
            f"{vanilla} to {scale}",
            partial(everywhere, reference="vanilla-ls"),
        ),
        Claim(
            f"{dataset}-between",
            f"Vanilla label smoothing lies between no calibration and SCALE on {title}",
            " / ".join(printed),
            partial(
                decisions.in_between,
                method="vanilla-ls",
                above="none",
                below="scale",
                dataset=dataset,
            ),
        ),
    )


_CLAIMS = (
    Claim(
        "replication",
        "An end-to-end ResNet reproduces the AUC and ECE of Wei et al. within error bars",
        "10 of 10 within",
        decisions.replicates,
    ),
    Claim(
        "low-above-high",
        "Low-agreement ECE exceeds high-agreement ECE for every encoder, beyond finite numbers",
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
    _gain(
        "scale-below-none",
        "SCALE lowers low-agreement ECE against no calibration",
        "-29.2 %",
        0.292,
        "scale",
    ),
    _gain(
        "vanilla-below-none",
        "Vanilla label smoothing lowers low-agreement ECE against no calibration",
        "-20.8 %",
        0.208,
        "vanilla-ls",
    ),
    _gain(
        "temperature-below-none",
        "Temperature scaling lowers low-agreement ECE against no calibration",
        "-8.1 %",
        0.081,
        "temperature",
    ),
    _gain(
        "real-below-none",
        "Real agreement lowers low-agreement ECE against no calibration",
        "-35.2 %",
        0.352,
        "real-piecewise",
    ),
    _gain(
        "scale-below-temperature",
        "SCALE lowers low-agreement ECE against temperature scaling",
        "0.175 to 0.135",
        1 - 0.135 / 0.175,
        "scale",
        "temperature",
    ),
    _gain(
        "scale-below-vanilla",
        "SCALE lowers low-agreement ECE against vanilla label smoothing",
        "0.151 to 0.135",
        1 - 0.135 / 0.151,
        "scale",
        "vanilla-ls",
    ),
    _gain(
        "scale-overall",
        "SCALE lowers overall ECE too where there are several readers",
        "0.035 to 0.030",
        1 - 0.030 / 0.035,
        "scale",
        stratum="overall",
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
        "Piecewise smoothing recovers the largest share of real agreement's gain",
        "83 %; 77 %, 78 %",
        decisions.piecewise_best,
    ),
    Claim(
        "piecewise-lowest",
        "SCALE's low-agreement ECE is lowest with piecewise smoothing",
        "0.135; 0.154, 0.141",
        decisions.piecewise_lowest,
    ),
    Claim(
        "k-plateau",
        "The number of anchors does not matter from K = 10 on: low-agreement ECE changes by less "
        "than 5 % of no calibration's",
        "plateau",
        decisions.plateau,
    ),
    Claim(
        "k-five",
        "K = 5 is slightly worse: above K = 10, but with at least half of its gain",
        "slightly worse",
        decisions.few_anchors,
    ),
    _gain(
        "confident-beat-random",
        "Confident anchors lower low-agreement ECE against random ones",
        "0.141 to 0.135",
        1 - 0.135 / 0.141,
        "scale",
        "scale-random",
    ),
    _gain(
        "random-below-none",
        "SCALE with random anchors lowers low-agreement ECE against no calibration",
        "-25.8 %",
        0.258,
        "scale-random",
    ),
    _gain(
        "random-beat-vanilla",
        "SCALE with random anchors lowers low-agreement ECE against vanilla label smoothing",
        "0.151 to 0.141",
        1 - 0.141 / 0.151,
        "scale-random",
        "vanilla-ls",
    ),
    Claim(
        "labels-matter",
        "The synthetic labels carry the gain: SCALE lowers low-agreement ECE by at least 5 % against "
        "itself with its labels shuffled",
        "not tested",
        partial(decisions.lowers, method="scale", reference="scale-shuffled", least=0.05),
    ),
    Claim(
        "auc-preserved",
        "No method costs more than one point of AUC, on any encoder and data set",
        "within seed variation",
        partial(decisions.preserved, metric="auc"),
    ),
    Claim(
        "accuracy-preserved",
        "No method costs more than one point of accuracy, on any encoder and data set",
        "within seed variation",
        partial(decisions.preserved, metric="accuracy"),
    ),
    *_elsewhere("pcam", "PatchCamelyon", 0.204, ("0.045", "0.040", "0.036")),
    *_elsewhere("breakhis", "BreakHis", 0.180, ("0.052", "0.046", "0.042")),
    Claim(
        "five-minutes",
        "Probe training and retraining take under five minutes per model and data set",
        "< 300 s",
        partial(decisions.quick, limit=300.0),
    ),
    Claim(
        "beats-softening",
        "SCALE's low-agreement ECE is below that of softening by the same amount, by at least 5 %",
        "not tested",
        partial(decisions.beats_softening, metric="ece", least=0.05),
    ),
    Claim(
        "beats-softening-votes",
        "SCALE's vote NLL is below that of softening by the same amount, by at least 1 %",
        "not tested",
        partial(decisions.beats_softening, metric="vote_nll", least=0.01),
    ),
    Claim(
        "premise-axis",
        "Alpha tracks difficulty: votes follow a case's position between the anchors, within classes "
        "(rank correlation above 0.1)",
        "assumed",
        partial(
            decisions.premise,
            check=decisions.check_axis,
            what="rank correlation of votes with the anchor axis within classes",
            bound=0.1,
        ),
    ),
    Claim(
        "premise-neighbours",
        "Alpha tracks difficulty: real cases next to an interpolate have the vote share it is given "
        "(slope above 0.5)",
        "assumed",
        partial(
            decisions.premise,
            check=decisions.check_neighbours,
            what="slope of the neighbours' vote share on the target",
            bound=0.5,
        ),
    ),
    *(
        Claim(one.id, one.claim, one.paper, partial(decisions.contradicts, fact=one), "fact")
        for one in FACTS
    ),
)

CLAIMS: dict[str, Claim] = {claim.id: claim for claim in _CLAIMS}
"""Id -> claim, in the paper's order; then its premise, then its statements of fact."""


MAIN = (
    *("low-above-high", "beyond-selection", "scale-below-none", "scale-below-vanilla"),
    *("recovers-real", "labels-matter", "beats-softening-votes"),
)
"""Claims that the paper stands on: the problem is there and is no artefact of how strata are made;
SCALE helps, more than plain label smoothing and softening do; it recovers what votes would give; and its
labels carry the gain."""


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
    'No method costs more than one point of AUC, on any encoder and data set'
    """
    return [
        {
            "id": name,
            "kind": CLAIMS[name].kind,
            "main": name in MAIN,
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

    Facts come last, under their own title, and are not counted.

    Examples
    --------
    >>> print(claims_table([{"kind": "claim", "claim": "AUC is preserved", "paper": "-", "n": 977,
    ...                      "measured": "+0.1 points", "verdict": "holds", "reason": "all within"}]))
    claim                                    paper             measured                n  verdict
    ----------------------------------------------------------------------------------------------------
    AUC is preserved                         -                 +0.1 points           977  holds
    <BLANKLINE>
    holds 1, does not hold 0, inconclusive 0
    """
    counted = [one for one in claims if one["kind"] != "fact"]
    facts = [one for one in claims if one["kind"] == "fact"]
    lines = [_line("claim", "paper", "measured", "n", "verdict"), "-" * 100]
    for one in counted:
        widths = {"claim": 39, "paper": 16, "measured": 18}
        columns = [textwrap.wrap(str(one[key]), width) for key, width in widths.items()]
        columns += [[f"{one['n']:,}"], [one["verdict"]]]
        lines += [_line(*texts) for texts in zip_longest(*columns, fillvalue="")]
    counts = (f"{name} {sum(one['verdict'] == name for one in counted)}" for name in VERDICTS)
    lines += ["", ", ".join(counts)]
    if facts:
        lines += ["", "Statements of the paper that public sources contradict, whatever the data:"]
        for one in facts:
            text = f"{one['claim']}: {one['measured']}. {one['reason']}"
            lines += textwrap.wrap(text, 100, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines)


def _line(claim: str, paper: str, measured: str, n: str, verdict: str) -> str:
    return f"{claim:<39}  {paper:<16}  {measured:<18} {n:>6}  {verdict}".rstrip()
