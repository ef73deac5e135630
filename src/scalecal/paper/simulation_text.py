"""The simulation study in words: every sentence is computed, and claims what its interval bears."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from scalecal.auditing.sentences import LEVEL, number
from scalecal.checks import Float
from scalecal.inference.paired import PairedResult, paired_t
from scalecal.paper.simulation import BASELINE, FACTORS, PAPER_TRAINED, SCORES, TRUTHS
from scalecal.runs.methods import METHODS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AIM", "MARGIN", "Study", "page", "summarise", "verdict"]

REFERENCE = "vote-fraction"
CONTROL = "scale-shuffled"

MARGIN = 0.005
"""A change that lies within this of zero, interval and all, is called nothing."""

AIM = 0.83
"""Share of the vote-NLL gain of training on real votes that a default should recover."""

VERDICTS = ("helps", "hurts", "does nothing", "cannot be told")
_HIGHER_IS_BETTER = ("auc",)
_SHOWN = {
    "vote_distance": "vote distance",
    "vote_nll": "vote NLL",
    "label_error": "label error",
    "label_nll": "label NLL",
    "auc": "AUC",
}


def verdict(change: PairedResult, *, higher_is_better: bool = False) -> str:
    """Say what a change comes to: one of `VERDICTS`.

    Examples
    --------
    >>> verdict(paired_t([0.3, 0.3, 0.31], [0.2, 0.21, 0.2]))
    'helps'
    >>> verdict(paired_t([0.3], [0.2]))
    'cannot be told'
    """
    if not np.isfinite(change.low):
        # Equal on every data set (a monotone map and the AUC, say) is no change; one pair is no test.
        steady = change.n > 1 and abs(change.difference) < MARGIN
        return "does nothing" if steady else "cannot be told"
    # Nothing that matters comes first: with many data sets even a hair's breadth is no chance.
    if change.low > -MARGIN and change.high < MARGIN:
        return "does nothing"
    low, high = (-change.high, -change.low) if higher_is_better else (change.low, change.high)
    return "helps" if high < 0 else "hurts" if low > 0 else "cannot be told"


@dataclass(frozen=True, eq=False)
class Study:
    """The tidy results of a study, to be asked for paired changes."""

    frame: pd.DataFrame

    @cached_property
    def by_data_set(self) -> dict[tuple[str, str, str], Float]:
        """(setting, method, score) -> its values, one per data set."""
        found = self.frame.sort_values("replicate", kind="stable")
        keys = found.groupby(["setting", "method", "metric"], sort=False)["value"]
        return {(str(s), str(m), str(k)): part.to_numpy(np.float64) for (s, m, k), part in keys}

    @cached_property
    def settings(self) -> list[str]:
        """Names of the settings, in order."""
        return [str(s) for s in dict.fromkeys(self.frame["setting"])]

    @cached_property
    def methods(self) -> list[str]:
        """Names of the methods, in order; the two truths are none."""
        return [str(m) for m in dict.fromkeys(self.frame["method"]) if m not in TRUTHS]

    @cached_property
    def free(self) -> list[str]:
        """Methods one could recommend: they need no votes and are no control."""
        return [m for m in self.methods if not (METHODS[m].needs_votes or METHODS[m].control)]

    @property
    def replicates(self) -> int:
        """Data sets per setting."""
        return int(self.frame["replicate"].nunique())

    def mean(self, setting: str, method: str, score: str) -> float:
        """Mean of a score over a setting's data sets."""
        return float(self.by_data_set[setting, method, score].mean())

    def change(
        self,
        setting: str,
        method: str,
        score: str,
        reference: str = BASELINE,
        reference_score: str | None = None,
    ) -> PairedResult:
        """Paired change of a score; the intervals of all settings hold together."""
        return paired_t(
            self.by_data_set[setting, reference, reference_score or score],
            self.by_data_set[setting, method, score],
            level=1.0 - LEVEL / len(self.settings),
        )

    def beyond_softening(self, setting: str, method: str, score: str) -> PairedResult:
        """Change of a log loss against the uncalibrated probe softened to the same entropy."""
        return self.change(setting, method, score, method, f"softened_{score}")

    def recovered(self, setting: str, method: str) -> tuple[float, PairedResult]:
        """Share of the vote-NLL gain of real votes, and gain less `AIM` times theirs, paired."""
        base, votes, own = (
            self.by_data_set[setting, m, "vote_nll"] for m in (BASELINE, REFERENCE, method)
        )
        share = float((base - own).mean() / (base - votes).mean())
        level = 1.0 - LEVEL / len(self.settings)
        return share, paired_t(AIM * (base - votes), base - own, level=level)


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per setting, method and score: mean, spread, change against none with its interval.

    `recovered` is the share of real votes' gain in vote NLL, where these clearly gain.
    """
    import pandas as pd

    study = Study(frame)
    rows = []
    for (setting, method, score), values in study.by_data_set.items():
        change = study.change(setting, method, score)
        better = score in _HIGHER_IS_BETTER
        share = float("nan")
        if score == "vote_nll" and REFERENCE in study.methods and method not in TRUTHS:
            gain = study.change(setting, REFERENCE, score)
            share = study.recovered(setting, method)[0] if gain.high < 0 else share
        rows.append(
            {
                "setting": setting,
                "method": method,
                "metric": score,
                "n": len(values),
                "mean": values.mean(),
                "sd": values.std(ddof=1) if len(values) > 1 else float("nan"),
                "change": change.difference,
                "low": change.low,
                "high": change.high,
                "verdict": ""
                if method == BASELINE or method in TRUTHS
                else verdict(change, higher_is_better=better),
                "recovered": share,
            }
        )
    return pd.DataFrame(rows)


def _listed(names: Sequence[str], among: Sequence[str]) -> str:
    """Name some of the settings, or those left out where these are few."""
    total, rest = len(among), [name for name in among if name not in names]
    if not rest:
        return f"all {total} settings" if total > 1 else "the one setting"
    told = f"all but {', '.join(rest)}" if 3 * len(rest) <= total else ", ".join(names)
    return f"{len(names)} of {total} ({told})"


def _verdicts(changes: dict[str, PairedResult], *, higher_is_better: bool = False) -> str:
    """Where it helps, hurts, does nothing or cannot be told, and by how much."""
    said = []
    for word in VERDICTS:
        found = {
            s: c.difference
            for s, c in changes.items()
            if verdict(c, higher_is_better=higher_is_better) == word
        }
        if not found:
            continue
        text = f"{word} in {_listed(list(found), list(changes))}"
        if word in ("helps", "hurts"):
            text += f", by {_range(found.values())}"
        said.append(text)
    return "; ".join(said)


def _range(values: Iterable[float], digits: int = 3) -> str:
    sizes = sorted(abs(v) for v in values)
    ends = [f"{v:.{digits}f}" for v in (sizes[0], sizes[-1])]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _truth(study: Study) -> str:
    apart = [study.mean(s, "true-label", "vote_distance") for s in study.settings]
    error = [study.mean(s, "true-vote", "label_error") for s in study.settings]
    return (
        f"No model can be right about both the label and a single vote: one that knows the label's "
        f"probability exactly is {_range(apart)} away from the vote's, and one that knows the vote's has a "
        f"calibration error of {_range(error)} for the label. A majority is surer than its members."
    )


def _winner(study: Study, score: str, what: str) -> str:
    """Which method without votes comes first by a score, and where that is clear."""
    first: dict[str, str] = {}
    clear = []
    for setting in study.settings:
        ranked = sorted(study.free, key=lambda m: study.mean(setting, m, score))
        first[setting] = ranked[0]
        if len(ranked) > 1 and study.change(setting, ranked[0], score, ranked[1]).high < 0:
            clear.append(setting)
    counts = Counter(first.values()).most_common()
    total = len(study.settings)
    won = ", ".join(f"{m} in {n}" for m, n in counts)
    return (
        f"Of the {len(study.free)} methods without votes, {what}: {won} (of {total} settings). The lead over "
        f"the next one is clear in {len(clear)}."
    )


def _about(study: Study, method: str) -> list[str]:
    """What a method changes against the uncalibrated probe, softening and its control."""
    if method not in study.methods:
        return []

    def all_settings(score: str, reference: str = BASELINE) -> dict[str, PairedResult]:
        return {s: study.change(s, method, score, reference) for s in study.settings}

    said = [
        f"Distance to the true vote probability: {method} "
        f"{_verdicts(all_settings('vote_distance'))}.",
        f"Vote NLL: it {_verdicts(all_settings('vote_nll'))}.",
        f"True calibration error of the label: it {_verdicts(all_settings('label_error'))}.",
        f"Label NLL: it {_verdicts(all_settings('label_nll'))}.",
        f"AUC: it {_verdicts(all_settings('auc'), higher_is_better=True)}.",
    ]
    for score, name in (("vote_nll", "vote NLL"), ("label_nll", "label NLL")):
        beyond = {s: study.beyond_softening(s, method, score) for s in study.settings}
        said.append(
            f"Beside one temperature that softens the uncalibrated probe to the same entropy, by {name}: "
            f"it {_verdicts(beyond)}."
        )
    if method == "scale" and CONTROL in study.methods:
        said.append(
            f"Beside its control, the same synthetic cases with their labels permuted, by vote NLL: it "
            f"{_verdicts(all_settings('vote_nll', CONTROL))}."
        )
    return said


def _aim(study: Study) -> str | None:
    """Which methods without votes recover the aim of real votes' gain, and at what price."""
    if REFERENCE not in study.methods:
        return None
    gaining = [s for s in study.settings if study.change(s, REFERENCE, "vote_nll").high < 0]
    if not gaining:
        return "Training on real votes does not clearly lower vote NLL in any setting."
    price = {s: study.change(s, REFERENCE, "label_nll") for s in gaining}
    text = (
        f"Training on real votes clearly lowers vote NLL in {_listed(gaining, study.settings)}; on "
        f"label NLL it {_verdicts(price)}."
    )
    said = []
    for method in study.free:
        shares = {s: study.recovered(s, method)[1] for s in gaining}
        possible = [s for s, share in shares.items() if not share.high < 0]
        if method == BASELINE or not possible:
            continue
        clear = sum(share.low > 0 for share in shares.values())
        harmless = sum(not study.change(s, method, "label_nll").low > 0 for s in possible)
        said.append(f"{method} {clear} / {len(possible)} / {harmless}")
    if not said:
        return f"{text} Every method without votes clearly falls short of {AIM:.0%} of that gain."
    return (
        f"{text} Settings in which a method without votes clearly recovers {AIM:.0%} of that gain / may do "
        f"so, by its interval / may do so with label NLL not clearly worse than the uncalibrated probe's: "
        f"{', '.join(said)}; no other may in any."
    )


def _training(study: Study) -> list[str]:
    """The paper's training beside the default one on the same data sets."""
    said = []
    for paper in study.settings:
        default = paper.removesuffix(PAPER_TRAINED)
        if default == paper or default not in study.settings:
            continue
        changes = []
        for score in ("label_nll", "vote_nll", "auc"):
            plain, own = (study.by_data_set[s, BASELINE, score] for s in (default, paper))
            changes.append(f"{_SHOWN[score]} {_signed(paired_t(plain, own))}")
        said.append(
            f"At {default} the paper's training (raw embeddings, random initial weights, at most 50 epochs) "
            f"changes the uncalibrated probe against the default training, on the same data sets, by: "
            f"{', '.join(changes)} (95 % intervals)."
        )
    return said


def _signed(change: PairedResult) -> str:
    if not np.isfinite(change.low):
        return f"{change.difference:+.3f}"
    return f"{change.difference:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _method_table(study: Study) -> str:
    """Means over all settings, and the recovered share."""
    gaining = []
    if REFERENCE in study.methods:
        gaining = [s for s in study.settings if study.change(s, REFERENCE, "vote_nll").high < 0]
    rows = []
    for method in (*study.methods, *TRUTHS):
        cells = [
            number(float(np.mean([study.mean(s, method, score) for s in study.settings])))
            for score in _SHOWN
        ]
        shares = [study.recovered(s, method)[0] for s in gaining if method not in TRUTHS]
        told = f"{np.median(shares):.0%}" if shares and method != BASELINE else "-"
        rows.append([method, *cells, told])
    return _table(["method", *_SHOWN.values(), "recovered (median)"], rows)


def _setting_table(study: Study, score: str) -> str:
    rows = [
        [setting, *(number(study.mean(setting, m, score)) for m in (*study.methods, *TRUTHS))]
        for setting in study.settings
    ]
    return _table(["setting", *study.methods, *TRUTHS], rows)


def _change_table(study: Study, method: str) -> str:
    rows = []
    for setting in study.settings:
        changes = [study.change(setting, method, score) for score in _SHOWN]
        rows.append([setting, *(_signed(change) for change in changes)])
    return _table(["setting", *_SHOWN.values()], rows)


def page(frame: pd.DataFrame, *, brief: bool = False) -> str:
    """Return the page: what was done, what came out, and the tables behind it unless it is `brief`."""
    study = Study(frame)
    first = frame[frame["setting"] == study.settings[0]].iloc[0]
    base = ", ".join(f"{word} {first[key]:g}" for key, word in FACTORS.items())
    blocks = [
        "# Simulation study",
        f"{len(study.settings)} settings, {study.replicates} data sets each, {int(first['n_test']):,} test "
        f"cases. `{study.settings[0]}` is: {base}; the name of another setting says what differs, "
        f"`{PAPER_TRAINED}` that it was trained as in the paper. Scores "
        f"are taken against the truth. Changes are against the uncalibrated probe on the same data sets, "
        f"with t intervals over data sets that hold for all settings together at 95 %: a method helps or "
        f"hurts where its interval leaves out zero, does nothing (that matters) where it stays within "
        f"{MARGIN:g} of zero, and otherwise it cannot be told.",
        "## Which method is closest to the truth?",
        _truth(study),
        _winner(study, "vote_distance", "closest to the true vote probability is"),
        _winner(study, "label_nll", "lowest in label NLL is"),
        _aim(study),
        "Means over all settings:",
        _method_table(study),
    ]
    for method, title in (
        ("scale", "When does SCALE help?"),
        ("scale-default", "And this package's default?"),
    ):
        if method in study.methods:
            blocks += [f"## {title}", "\n".join(f"- {line}" for line in _about(study, method))]
            if not brief:
                blocks += [f"Changes of {method}:", _change_table(study, method)]
    training = _training(study)
    if training:
        blocks += ["## Training as in the paper", *training]
    for score in () if brief else ("vote_distance", "label_error", "label_nll"):
        blocks += [f"## Every setting: {SCORES[score]}", _setting_table(study, score)]
    return "\n\n".join(block for block in blocks if block) + "\n"
