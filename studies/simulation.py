"""The simulation study: where the truth is known, which method is closest to it?

Readers are simulated, so that the probability of the label and of a single vote given the features
are known exactly. One thing at a time is varied (difficulty, dimension, readers, training size,
unexplained variance); every setting is drawn anew several times, and methods are compared in pairs on
the same data sets. Scores are taken against the truth, not against drawn labels, so that a perfect
model scores zero and there is no noise floor.

    python -m studies.simulation --seeds 10 --out study

draws the data, trains every method and writes the tables, the figure and the page (`write_study`). It
takes about ten minutes on one core, and goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from scalecal import __version__, metrics
from scalecal.cases import BASELINE
from scalecal.checks import (
    Float,
    InputError,
    ScalecalWarning,
    as_float,
    check_finite,
    check_same_length,
)
from scalecal.datasets import simulate
from scalecal.datasets.simulated import SimulatedCases
from scalecal.evaluation.changes import equal_entropy, soften
from scalecal.evaluation.scores import entropy
from scalecal.io.store import Store, output_folder, write_csv, write_json, write_text
from scalecal.io.text import markdown_text
from scalecal.limits import check_count
from scalecal.paper.paper_figures import mark_of
from scalecal.probes.methods import METHODS, find_method
from scalecal.report.plots import INK, QUIET, panels, save, style
from scalecal.runs.grid import run_grid

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

REFERENCE = "vote-fraction"
CONTROL = "scale-shuffled"

STUDY_METHODS = (
    "none",
    "temperature",
    "vanilla-ls",
    "focal",
    "mixup",
    "confidence-ls",
    "scale",
    "scale-shuffled",
    "scale-wide",
    "scale-default",
    "panel-published",
    "panel-votes",
    "real-piecewise",
    "vote-fraction",
)
"""Methods of the study unless others are named."""

TRUTHS = ("true-label", "true-vote")
"""Two perfect models beside the methods: P(label | features) and P(vote | features)."""

SCORES: dict[str, str] = {
    "vote_distance": "mean distance to the true probability of a vote",
    "vote_nll": "expected log loss of a single reader's vote",
    "label_error": "true calibration error of the label's probability, 15 bins",
    "label_nll": "expected log loss of the label",
    "auc": "AUC on the drawn labels",
    "entropy": "mean predictive entropy",
    "softened_vote_nll": "vote_nll of the uncalibrated probe softened to the same mean entropy",
    "softened_label_nll": "label_nll of the uncalibrated probe softened to the same mean entropy",
}
"""Score -> what it is. Expectations are over the truth given the features."""

FACTORS: dict[str, str] = {
    "auc": "AUC of a perfect model",
    "dim": "dimension",
    "n_raters": "readers",
    "n_train": "training cases",
    "unexplained": "unexplained variance",
}
"""What is varied -> its name in words."""


PAPER_TRAINED = "+paper"
"""Ending of the name of a setting that is another one, trained as in the paper."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One law to draw data sets from, and how the probes are trained on them.

    Attributes
    ----------
    auc
        AUC for the label of a model that knows the truth.
    dim
        Width of the embeddings; one direction is informative.
    n_raters
        Readers per case.
    n_train, n_test
        Cases to train on (a tenth of them held out for validation) and to test on.
    unexplained
        Share of the vote logit's variance that no feature shows.
    preset
        Preset of the training, see `scalecal.probes.PRESETS`.
    """

    auc: float = 0.92
    dim: int = 64
    n_raters: int = 7
    n_train: int = 2175
    n_test: int = 2000
    unexplained: float = 0.1
    preset: str = "default"

    def draw(self, replicate: int) -> SimulatedCases:
        """Draw a data set; settings that differ in the preset alone get the same ones."""
        law = {key: getattr(self, key) for key in FACTORS}
        return simulate(self.n_train + self.n_test, seed=replicate, **law)


def _settings() -> dict[str, Setting]:
    swept: dict[str, tuple[Any, ...]] = {
        "auc": (0.8, 0.86, 0.95),
        "dim": (8, 256, 1024),
        "n_raters": (3, 15),
        "n_train": (500, 8000),
        "unexplained": (0.0, 0.2),
    }
    out = {"base": Setting()}
    for factor, values in swept.items():
        out |= {f"{factor}={value:g}": Setting(**{factor: value}) for value in values}
    # The paper's training beside the default: with few cases, and at MHIST's size (2,175 training
    # cases, an encoder of the usual width).
    for paper in (Setting(n_train=500, preset="paper"), Setting(dim=1024, preset="paper")):
        plain = next(name for name, s in out.items() if s == replace(paper, preset="default"))
        out[f"{plain}{PAPER_TRAINED}"] = paper
    return out


SETTINGS: Mapping[str, Setting] = MappingProxyType(_settings())
"""Name -> setting; a name says what differs from ``base``."""


def true_calibration_error(p: Float, q: Float, *, n_bins: int = 15) -> float:
    """Calibration error of predictions p whose true probabilities q are known: no label noise in it.

    ``sum_b |sum_{i in b} (p_i - q_i)| / N`` over equal-width bins of p: the ECE with every label replaced
    by its expectation, which the ECE of ever more cases tends to.

    Examples
    --------
    >>> true_calibration_error(np.array([0.25, 0.75]), np.array([0.5, 0.75]))
    0.125
    """
    bins = np.minimum((p * n_bins).astype(np.int64), n_bins - 1)
    return float(np.abs(np.bincount(bins, p - q, n_bins)).sum() / len(p))


def score_against_truth(
    probs: Float, reader: Float, vote: Float, label: Float, y: Any, baseline: Float
) -> dict[str, float]:
    """Score both answers on the positive class against the truth: the numbers of `SCORES`.

    `probs` answers for the label, `reader` for a vote; `vote` and `label` are their true probabilities
    given the features, `y` the drawn labels, `baseline` the predictions of the uncalibrated probe.

    Examples
    --------
    A model that tells the truth about votes is at no distance from it, and miscalibrated for the
    majority's label:

    >>> data = simulate(500, seed=0)
    >>> vote, label = data.expected_vote_probability, data.label_probability
    >>> scores = score_against_truth(vote, vote, vote, label, data.y, label)
    >>> scores["vote_distance"], scores["label_error"] > 0.1
    (0.0, True)
    """
    softness = float(entropy(probs).mean())
    softened, softened_reader = (
        soften(baseline, equal_entropy(baseline, float(entropy(p).mean()))) for p in (probs, reader)
    )
    return {
        "vote_distance": float(np.abs(reader - vote).mean()),
        "vote_nll": _expected_nll(vote, reader),
        "label_error": true_calibration_error(probs, label),
        "label_nll": _expected_nll(label, probs),
        "auc": metrics.auc(y, probs),
        "entropy": softness,
        "softened_vote_nll": _expected_nll(vote, softened_reader),
        "softened_label_nll": _expected_nll(label, softened),
    }


def _expected_nll(truth: Float, probs: Float) -> float:
    return metrics.nll(np.column_stack([1.0 - truth, truth]), np.column_stack([1.0 - probs, probs]))


def measure_setting(
    name: str, setting: Setting, *, methods: Sequence[str] = STUDY_METHODS, replicates: int = 5
) -> pd.DataFrame:
    """Draw the data sets of one setting, train every method on each, score against the truth.

    Returns
    -------
    DataFrame, tidy: setting, the fields of `Setting`, replicate, method, metric, value.

    Examples
    --------
    >>> small = Setting(dim=4, n_train=200, n_test=300)
    >>> frame = measure_setting("small", small, methods=["none"], replicates=1)
    >>> sorted(set(frame["method"]))
    ['none', 'true-label', 'true-vote']
    """
    import pandas as pd

    lines: list[tuple[Any, ...]] = []
    for replicate in range(replicates):
        data = setting.draw(replicate)
        with warnings.catch_warnings():
            # A validation part without an error leaves the temperature at 1; 200 data sets need
            # not say so each.
            warnings.simplefilter("ignore", ScalecalWarning)
            grid = run_grid(data, methods=methods, seeds=[replicate], preset=setting.preset)
        test = np.flatnonzero(data.split == "test")
        assert data.y is not None
        vote, label = data.expected_vote_probability[test], data.label_probability[test]
        answers = {m: (part.p, part.vote_p) for (m, _), part in grid.cell.answers.items()}
        baseline = answers[BASELINE][0]
        answers |= {"true-label": (label, label), "true-vote": (vote, vote)}
        for method, (probs, reader) in answers.items():
            scores = score_against_truth(probs, reader, vote, label, data.y[test], baseline)
            lines += [(replicate, method, metric, value) for metric, value in scores.items()]
    frame = pd.DataFrame(lines, columns=["replicate", "method", "metric", "value"])
    for place, (key, value) in enumerate({"setting": name, **asdict(setting)}.items()):
        frame.insert(place, key, value)
    return frame


# ---- what came out, in words: every sentence is computed, and claims what its interval supports

LEVEL = 0.05
"""Chance that any interval of a row of settings misses its number."""

MARGIN = 0.005
"""A change that lies within this of zero, interval and all, is called nothing."""

AIM = 0.83
"""Share of the vote-NLL gain of training on real votes that a default should recover."""

EFFECTS = ("helps", "hurts", "does nothing", "inconclusive")
_SHOWN = {
    "vote_distance": "vote distance",
    "vote_nll": "vote NLL",
    "label_error": "label error",
    "label_nll": "label NLL",
    "auc": "AUC",
}


@dataclass(frozen=True)
class PairedResult:
    """A difference b - a of paired values, with its uncertainty; `reason` says why a number is NaN."""

    difference: float
    low: float
    high: float
    p_value: float
    n: int
    reason: str = ""


def _paired(a: ArrayLike, b: ArrayLike) -> Float:
    x, y = as_float(a, "a"), as_float(b, "b")
    if x.ndim != 1 or y.ndim != 1:
        raise InputError(f"paired values must be 1-d, got shapes {x.shape} and {y.shape}")
    check_same_length(a=x, b=y)
    if len(x) == 0:
        raise InputError("paired values are empty: at least one pair is needed")
    return check_finite(y, "b") - check_finite(x, "a")


def paired_t(a: ArrayLike, b: ArrayLike, *, level: float = 0.95) -> PairedResult:
    """Paired t-test of b - a, as the paper does across seeds (Student, 1908).

    It covers the noise between the pairs, for this test set; it says nothing about another test set.

    Examples
    --------
    >>> result = paired_t([0.20, 0.19, 0.21, 0.20], [0.15, 0.16, 0.15, 0.17])
    >>> round(result.difference, 4), result.p_value < 0.05
    (-0.0425, True)
    """
    from scipy.stats import t

    d = _paired(a, b)
    n, mean, nan = len(d), float(d.mean()), float("nan")
    if n == 1:
        return PairedResult(mean, nan, nan, nan, n, "one pair only")
    error = float(d.std(ddof=1)) / np.sqrt(n)
    if error <= 1e-12 * max(1.0, abs(mean)):
        return PairedResult(mean, nan, nan, nan, n, "the differences do not vary")
    half = float(t.ppf((1 + level) / 2, n - 1)) * error
    p = 2.0 * float(t.sf(abs(mean / error), n - 1))
    return PairedResult(mean, mean - half, mean + half, p, n)


def effect(change: PairedResult, *, higher_is_better: bool = False) -> str:
    """Say what a change amounts to: one of `EFFECTS`.

    Examples
    --------
    >>> effect(paired_t([0.3, 0.3, 0.31], [0.2, 0.21, 0.2]))
    'helps'
    >>> effect(paired_t([0.3], [0.2]))
    'inconclusive'
    """
    if not np.isfinite(change.low):
        # Equal on every data set (a monotone map and the AUC, say) is no change; one pair is no test.
        steady = change.n > 1 and abs(change.difference) < MARGIN
        return "does nothing" if steady else "inconclusive"
    # The margin comes first: with many data sets even a negligible change is significant.
    if change.low > -MARGIN and change.high < MARGIN:
        return "does nothing"
    low, high = (-change.high, -change.low) if higher_is_better else (change.low, change.high)
    return "helps" if high < 0 else "hurts" if low > 0 else "inconclusive"


@dataclass(frozen=True, eq=False)
class Study:
    """The tidy results of a study, to be asked for paired changes."""

    frame: pd.DataFrame

    @cached_property
    def by_data_set(self) -> dict[tuple[str, str, str], Float]:
        """(setting, method, score) -> its values, one per data set."""
        ordered = self.frame.sort_values("replicate", kind="stable")
        keys = ordered.groupby(["setting", "method", "metric"], sort=False)["value"]
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

    @cached_property
    def gaining(self) -> list[str]:
        """Settings in which training on real votes clearly lowers vote NLL."""
        if REFERENCE not in self.methods:
            return []
        return [s for s in self.settings if self.change(s, REFERENCE, "vote_nll").high < 0]

    @property
    def _level(self) -> float:
        """Confidence level at which the intervals of all settings hold together."""
        return 1.0 - LEVEL / len(self.settings)

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
            level=self._level,
        )

    def recovered(self, setting: str, method: str) -> tuple[float, PairedResult]:
        """Share of the vote-NLL gain of real votes, and gain less `AIM` times theirs, paired."""
        base, votes, own = (
            self.by_data_set[setting, m, "vote_nll"] for m in (BASELINE, REFERENCE, method)
        )
        share = float((base - own).mean() / (base - votes).mean())
        return share, paired_t(AIM * (base - votes), base - own, level=self._level)


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per setting, method and score: mean, spread, change against none with its interval.

    `recovered` is the share of real votes' gain in vote NLL, where these clearly gain.
    """
    import pandas as pd

    study = Study(frame)
    rows = []
    for (setting, method, score), values in study.by_data_set.items():
        change = study.change(setting, method, score)
        compared = method != BASELINE and method not in TRUTHS
        shares = score == "vote_nll" and method not in TRUTHS and setting in study.gaining
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
                "verdict": effect(change, higher_is_better=score == "auc") if compared else "",
                "recovered": study.recovered(setting, method)[0] if shares else float("nan"),
            }
        )
    return pd.DataFrame(rows)


def _listed(names: Sequence[str], among: Sequence[str]) -> str:
    """Name some of the settings, or those left out where these are few."""
    total, rest = len(among), [name for name in among if name not in names]
    if not rest:
        return f"all {total} settings" if total > 1 else "the one setting"
    few = f"all but {', '.join(rest)}" if 3 * len(rest) <= total else ", ".join(names)
    return f"{len(names)} of {total} ({few})"


def _effects(changes: dict[str, PairedResult], *, higher_is_better: bool = False) -> str:
    """Where it helps, hurts, does nothing or is inconclusive, and by how much."""
    effects = {s: effect(c, higher_is_better=higher_is_better) for s, c in changes.items()}
    said = []
    for word in EFFECTS:
        names = [s for s in changes if effects[s] == word]
        if not names:
            continue
        text = f"{'is ' if word == 'inconclusive' else ''}{word} in {_listed(names, list(changes))}"
        if word in ("helps", "hurts"):
            text += f", by {_range(changes[s].difference for s in names)}"
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
        f"No single number can be right about both the label and a vote: one that knows the label's "
        f"probability exactly is {_range(apart)} away from the vote's, and one that knows the vote's has a "
        f"calibration error of {_range(error)} for the label. A majority is more predictable than its "
        "members."
    )


def _winner(study: Study, score: str, what: str) -> str:
    """Which method without votes comes first by a score, and where that is clear."""
    first: Counter[str] = Counter()
    clear = 0
    for setting in study.settings:
        ranked = sorted(study.free, key=lambda m: study.mean(setting, m, score))
        first[ranked[0]] += 1
        clear += len(ranked) > 1 and study.change(setting, ranked[0], score, ranked[1]).high < 0
    won = ", ".join(f"{method} in {count}" for method, count in first.most_common())
    return (
        f"Of the {len(study.free)} methods without votes, {what}: {won} (of {len(study.settings)} settings). "
        f"The lead over the next one is clear in {clear}."
    )


def _about(study: Study, method: str) -> list[str]:
    """What a method changes against the uncalibrated probe, softening and its control."""

    def all_settings(score: str, reference: str = BASELINE) -> dict[str, PairedResult]:
        return {s: study.change(s, method, score, reference) for s in study.settings}

    said = [
        f"Distance to the true vote probability: {method} "
        f"{_effects(all_settings('vote_distance'))}.",
        f"Vote NLL: it {_effects(all_settings('vote_nll'))}.",
        f"True calibration error of the label: it {_effects(all_settings('label_error'))}.",
        f"Label NLL: it {_effects(all_settings('label_nll'))}.",
        f"AUC: it {_effects(all_settings('auc'), higher_is_better=True)}.",
    ]
    for score in ("vote_nll", "label_nll"):
        softened = f"softened_{score}"
        beyond = {s: study.change(s, method, score, method, softened) for s in study.settings}
        said.append(
            f"Beside one temperature that softens the uncalibrated probe to the same entropy, by "
            f"{_SHOWN[score]}: it {_effects(beyond)}."
        )
    if method == "scale" and CONTROL in study.methods:
        said.append(
            f"Beside its control, the same synthetic cases with their labels permuted, by vote NLL: it "
            f"{_effects(all_settings('vote_nll', CONTROL))}."
        )
    return said


def _aim(study: Study) -> str | None:
    """Which methods without votes recover the aim of real votes' gain, and at what price."""
    if REFERENCE not in study.methods:
        return None
    gaining = study.gaining
    if not gaining:
        return "Training on real votes does not clearly lower vote NLL in any setting."
    price = {s: study.change(s, REFERENCE, "label_nll") for s in gaining}
    text = (
        f"Training on real votes clearly lowers vote NLL in {_listed(gaining, study.settings)}; on "
        f"label NLL it {_effects(price)}."
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


def _method_table(study: Study) -> str:
    """Means over all settings, and the recovered share."""
    rows = []
    for method in (*study.methods, *TRUTHS):
        means = {
            title: float(np.mean([study.mean(s, method, score) for s in study.settings]))
            for score, title in _SHOWN.items()
        }
        shares = [study.recovered(s, method)[0] for s in study.gaining if method not in TRUTHS]
        share = f"{np.median(shares):.0%}" if shares and method != BASELINE else "-"
        rows.append({"method": method, **means, "recovered (median)": share})
    return _table(rows)


def _table(rows: Iterable[dict[str, Any]]) -> str:
    import pandas as pd

    return markdown_text(pd.DataFrame(list(rows)))


def page(frame: pd.DataFrame, *, brief: bool = False) -> str:
    """Return the page: what was done, what came out, and the tables behind it unless it is `brief`."""
    study = Study(frame)
    first = frame[frame["setting"] == study.settings[0]].iloc[0]
    base = ", ".join(f"{word} {first[key]:g}" for key, word in FACTORS.items())
    replicates = frame["replicate"].nunique()
    blocks = [
        "# Simulation study",
        f"{len(study.settings)} settings, {replicates} data sets each, {int(first['n_test']):,} test "
        f"cases. `{study.settings[0]}` is: {base}; the name of another setting says what differs, "
        f"`{PAPER_TRAINED}` that it was trained as in the paper. Scores "
        f"are taken against the truth. Changes are against the uncalibrated probe on the same data sets, "
        f"with t intervals over data sets that hold for all settings together at 95 %: a method helps or "
        f"hurts where its interval leaves out zero, does nothing (that matters) where it stays within "
        f"{MARGIN:g} of zero, and otherwise is inconclusive.",
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
                changes = _table(
                    {"setting": s}
                    | {t: _signed(study.change(s, method, k)) for k, t in _SHOWN.items()}
                    for s in study.settings
                )
                blocks += [f"Changes of {method}:", changes]
    training = _training(study)
    if training:
        blocks += ["## Training as in the paper", *training]
    for score in () if brief else ("vote_distance", "label_error", "label_nll"):
        means = _table(
            {"setting": s} | {m: study.mean(s, m, score) for m in (*study.methods, *TRUTHS)}
            for s in study.settings
        )
        blocks += [f"## Every setting: {SCORES[score]}", means]
    return "\n\n".join(block.rstrip() for block in blocks if block) + "\n"


# ---- figure

SHOWN = (
    "none",
    "temperature",
    "vanilla-ls",
    "scale",
    "scale-default",
    "vote-fraction",
)
"""Methods drawn, where the study has them; all would hide each other."""

_ROWS = {
    "vote_distance": "distance to the\ntrue vote probability",
    "label_error": "true calibration error\nof the label",
}
_SPREAD_OUT = ("dim", "n_raters", "n_train")


def figure_simulation(summary: pd.DataFrame, settings: Mapping[str, Setting]) -> Figure:
    """Draw each factor's sweep: one column per factor, one row per truth.

    Above, the mean distance to the true probability of a vote; below, the true calibration error of
    the label's probability; dashed, a model that is perfect for the other target.
    """
    first = next(iter(settings.values()))
    sweeps = {}
    for factor in FACTORS:
        same = {factor: getattr(first, factor)}
        names = [n for n, s in settings.items() if replace(s, **same) == first]
        if len(names) > 1:
            sweeps[factor] = sorted(names, key=lambda n: float(getattr(settings[n], factor)))
    if not sweeps:
        sweeps = {"auc": list(settings)[:1]}
    means = summary.set_index(["setting", "method", "metric"])["mean"].to_dict()
    methods = [m for m in SHOWN if m in set(summary["method"])]
    with style():
        figure, axes = panels(len(sweeps), (2.4 * len(sweeps) + 0.8, 5.2), rows=len(_ROWS))
        for row, (score, title) in enumerate(_ROWS.items()):
            for axis, (factor, names) in zip(axes[row], sweeps.items(), strict=True):
                x = [float(getattr(settings[n], factor)) for n in names]
                truth = "true-label" if score == "vote_distance" else "true-vote"
                y = [means[n, truth, score] for n in names]
                perfect = "perfect model of the other target"
                axis.plot(x, y, color=QUIET, ls="--", lw=1.2, label=perfect)
                for method in methods:
                    y = [means[n, method, score] for n in names]
                    axis.plot(x, y, lw=0.9, label=method, **mark_of(method).options(5.0))
                if factor in _SPREAD_OUT:
                    axis.set_xscale("log")
                    axis.minorticks_off()
                axis.set_xticks(x, [f"{v:g}" for v in x])
                axis.set_ylim(bottom=0.0)
                if row == len(_ROWS) - 1:
                    axis.set_xlabel(FACTORS[factor], color=INK)
            axes[row, 0].set_ylabel(title)
            top = max(axis.get_ylim()[1] for axis in axes[row])
            for axis in axes[row]:
                axis.set_ylim(0.0, top)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        columns = int(np.ceil(len(labels) / 2))
        figure.legend(handles, labels, loc="outside upper left", ncols=columns, fontsize=8)
    return figure


# ---- running and writing


def write_study(
    out: str | Path,
    *,
    seeds: int = 10,
    methods: Sequence[str] | None = None,
    progress: Callable[[str], None] = print,
    settings: Mapping[str, Setting] = SETTINGS,
) -> str:
    """Run the study and write it; settings measured before are not measured again.

    Writes ``study.csv`` (tidy), ``summary.csv`` (one row per setting, method and score, with the
    change against the uncalibrated probe and its interval), ``study.md`` (the page), ``figure.svg``,
    ``figure.png`` and ``run.json``; ``settings/`` holds what was measured, one file per setting.

    `seeds` data sets are drawn per setting. `methods` are names in `METHODS` (None: `STUDY_METHODS`);
    the uncalibrated probe is always there. Returns the page without its long tables, to be printed.
    """
    import pandas as pd

    check_count(seeds, "seeds", "seeds")
    chosen = list(dict.fromkeys([BASELINE, *(STUDY_METHODS if methods is None else methods)]))
    for name in chosen:
        find_method(name)
    about = {
        "version": __version__,
        "seeds": list(range(seeds)),
        "methods": chosen,
        "settings": {name: asdict(setting) for name, setting in settings.items()},
    }
    frames = []
    with Store(out, about, kind="simulation") as store:
        for position, (name, setting) in enumerate(settings.items(), 1):
            part = f"settings/{name}.csv"
            if not store.done(part):
                progress(f"setting {position} of {len(settings)}, {name}: {seeds} data sets")
                frame = measure_setting(name, setting, methods=chosen, replicates=seeds)
                store.write(part, frame.to_csv(index=False, lineterminator="\n"))
            # From the file, so that a run that was interrupted gives the same bytes.
            frames.append(pd.read_csv(store.path / part))
        study = pd.concat(frames, ignore_index=True)
        summary = summarise(study)
        with output_folder(out, kind="simulation") as partial:
            write_csv(study, partial / "study.csv")
            write_csv(summary, partial / "summary.csv")
            write_text(partial / "study.md", page(study))
            save(figure_simulation(summary, settings), partial / "figure")
            write_json(partial / "run.json", {"kind": "simulation", **about})
    files = "study.csv, summary.csv, study.md, figure.svg and figure.png"
    return f"{page(study, brief=True)}\nWrote {files} to {out}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study from the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m studies.simulation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the results")
    parser.add_argument("--seeds", type=int, default=10, help="data sets per setting")
    parser.add_argument("--methods", metavar="A,B,...", help="methods, with commas between")
    options = parser.parse_args(arguments)
    methods = None
    if options.methods is not None:
        methods = [name.strip() for name in options.methods.split(",")]
    try:
        print(write_study(options.out, seeds=options.seeds, methods=methods, progress=_tell))
    except InputError as error:
        _tell(f"error: {error}")
        return 2
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
