"""How often tests reject what is true and intervals miss it: the tables of docs/validity.md.

A check draws one study, as `Check.study`, and says of each thing measured whether it happened. Run all
of them, or those whose names contain one of the words given, and print a table of each kind:

    SCALECAL_SLOW=1 python scripts/validity.py [WORD ...]

200 studies each, 2,000 where SCALECAL_SLOW=1 (at another prevalence 200 always).
tests/test_validity_table.py holds the same checks to `LIMITS`. To add one, write a function of a random
generator and name it in `CHECKS`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri, xlogy
from scipy.stats import beta, binom

from scalecal import audit, calibrate, compare_audits, fit_panel, metrics
from scalecal.inference import between_levels, curves
from scalecal.inference.difficulty import votes_by_difficulty
from scalecal.inference.units import Units
from scalecal.metrics import COLUMNS

RUNS = 2000 if os.environ.get("SCALECAL_SLOW") == "1" else 200
LEVEL = 0.05
DRAWS = 199  # so that 5 % of the draws and what was observed are a whole number

Outcome = Mapping[tuple[str, str], bool]
"""(table, column) -> whether it happened in this study; a column may be missing in some studies."""

REJECTED = "Calibrated models that are rejected (level .05)"
COVERED = "95 % intervals that hold the truth"
FOUND = "Miscalibrated models that are found (level .05)"
EQUAL = "Sites that are alike and are called different (level .05)"
NEW = "95 % prediction intervals that hold a new site"

BY_READER = "votes by difficulty, p_reader"
FORESEEN = "votes by difficulty, p_split"

CURVE = "Flexible curve: bands and intervals that hold the truth, intervals that start at 0 if calibrated"

LIMITS = {
    REJECTED: (0.0, 0.07),
    COVERED: (0.92, 1.0),
    FOUND: (0.0, 1.0),
    EQUAL: (0.03, 0.07),
    NEW: (0.92, 1.0),
    CURVE: (0.9, 1.0),
}
"""Between which rates a table's numbers must lie, Monte Carlo error apart."""

MIN_FOUND = {
    ("977 cases, logits times 1.5", "Cox"): 0.9,
    ("98 groups of 10, logits times 1.5", "Cox"): 0.9,
    ("977 cases, blind to difficulty", "votes by difficulty, p_split"): 0.9,
    ("200 cases enriched to half positives, logits as in the sample", "Cox"): 0.9,
}
"""(check, column) -> what a test must find at least of the models that are miscalibrated."""


@dataclass(frozen=True)
class Check:
    """One row of the tables: a law of studies, and what is measured in each."""

    study: Callable[[np.random.Generator], Outcome]
    runs: int = RUNS


def rates(check: Check, runs: int | None = None, seed: int = 0) -> dict[tuple[str, str], float]:
    """How often each outcome happened."""
    seen: dict[tuple[str, str], list[bool]] = {}
    for run in range(check.runs if runs is None else runs):
        for key, happened in check.study(np.random.default_rng([seed, run])).items():
            seen.setdefault(key, []).append(bool(happened))
    return {key: float(np.mean(values)) for key, values in seen.items()}


# Studies of a panel of seven readers, in groups


READERS = 7
BENEFIT_AT = 0.2  # threshold of the net benefit whose intervals are checked


@cache
def _chances(noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A grid of seen logits x, and the chances there that a majority, and that one reader, says yes."""
    x = np.linspace(-40, 40, 8001)
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    chance = expit(x[:, None] + noise * nodes)
    share = weights / weights.sum()
    return x, binom.sf(READERS // 2, READERS, chance) @ share, chance @ share


@cache
def _split_chance(noise: float) -> np.ndarray:
    """The chance that the readers split 4 to 3, on the same grid."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    chance = expit(_chances(noise)[0][:, None] + noise * nodes)
    return (binom.pmf(3, READERS, chance) + binom.pmf(4, READERS, chance)) @ (
        weights / weights.sum()
    )


@dataclass(frozen=True)
class Panel:
    """Cases in groups, whose readers vote by what is seen of them (x) and by what is not.

    `sizes` are the numbers of cases of the groups; both parts of a reader's logit have a share that
    the cases of a group have in common. The model knows x and is calibrated: p is the chance that the
    majority says yes given x, whatever else goes together in a group.
    """

    sizes: tuple[int, ...]
    spread: float = 1.6
    noise: float = 1.0
    shared: float = 0.3
    together: float = 0.5
    shift: float = -0.5

    def normal(self, rng: np.random.Generator, common: float) -> np.ndarray:
        """Standard normal numbers of which the cases of a group have a share in common."""
        groups = np.repeat(np.arange(len(self.sizes)), self.sizes)
        both = rng.normal(size=len(self.sizes))[groups], rng.normal(size=len(groups))
        return np.sqrt(common) * both[0] + np.sqrt(1 - common) * both[1]

    def draw(
        self, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Labels, probabilities, votes and groups."""
        groups = np.repeat(np.arange(len(self.sizes)), self.sizes)
        x = self.spread * self.normal(rng, self.shared) + self.shift
        unseen = self.noise * self.normal(rng, self.together)
        votes = rng.binomial(READERS, expit(x + unseen))
        p = np.interp(x, *_chances(self.noise)[:2])
        return (votes > READERS / 2).astype(int), p, votes, groups

    def reader(self, p: np.ndarray) -> np.ndarray:
        """A calibrated model's probability of a reader's vote, from that of the majority."""
        x, majority, reader = _chances(self.noise)
        return np.interp(np.interp(p, majority, x), x, reader)

    def truth(self) -> dict[str, float]:
        """What the intervals should hold."""
        return _truth(self.spread, self.noise, self.shift)


@dataclass(frozen=True)
class Difficulty:
    """Easy and hard cases: a reader's logit is `easy` x or `hard` x, plus what nobody sees.

    A model that is blind to difficulty knows x alone. Its p is the chance of a majority given x: it is
    calibrated, and over-confident on hard cases by what it is not sure enough of easy ones. `p_split` is
    the chance that a panel splits 4 to 3, as a model that is not blind would say.
    """

    sizes: tuple[int, ...]
    blind: bool
    easy: float = 3.0
    hard: float = 0.37

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        base = Panel(self.sizes, noise=0.5)
        groups = np.repeat(np.arange(len(self.sizes)), self.sizes)
        x = base.spread * base.normal(rng, base.shared)
        scale = np.where(rng.random(len(x)) < 0.5, self.hard, self.easy)
        unseen = base.noise * base.normal(rng, base.together)
        votes = rng.binomial(READERS, expit(scale * x + unseen))
        grid, majority, _ = _chances(base.noise)
        p = np.interp(scale * x, grid, majority)
        if self.blind:
            p = 0.5 * (
                np.interp(self.hard * x, grid, majority) + np.interp(self.easy * x, grid, majority)
            )
        split = np.interp(scale * x, grid, _split_chance(base.noise))
        return {
            "p": p,
            "votes": votes,
            "groups": groups,
            "p_split": split,
            "hard": scale == self.hard,
        }


@cache
def _truth(spread: float, noise: float, shift: float) -> dict[str, float]:
    x = spread * ndtri((np.arange(400_000) + 0.5) / 400_000) + shift
    grid, majority, reader = _chances(noise)
    p, vote = np.interp(x, grid, majority), np.interp(x, grid, reader)
    q = 1 - p
    # Cases in the order of p: a positive is above the negatives before it, and half of its own.
    below = np.cumsum(q) - 0.5 * q
    return {
        "gap": 0.0,
        "overconfidence": 0.0,
        "brier": float((p * q).mean()),
        "nll": _mean_nll(p, p),
        "auc": float((p @ below) / (p.sum() * q.sum())),
        "accuracy": float(np.maximum(p, q).mean()),
        "vote_gap": float((p - vote).mean()),
        "vote_nll": _mean_nll(vote, p),
        "prevalence": float(p.mean()),
        "net_benefit": float(
            np.where(p >= BENEFIT_AT, p - BENEFIT_AT, 0.0).mean() / (1 - BENEFIT_AT)
        ),
        "softer": _mean_nll(p, expit(0.7 * logit(p))) - _mean_nll(p, p),
    }


def _mean_nll(truth: np.ndarray, p: np.ndarray) -> float:
    p = np.clip(p, 2.2e-16, 1 - 2.2e-16)  # as the package does
    return float(-(xlogy(truth, p) + xlogy(1 - truth, 1 - p)).mean())


TITLES = {
    "gap": "gap",
    "overconfidence": "over-conf.",
    "brier": "Brier",
    "nll": "label NLL",
    "auc": "AUC",
    "accuracy": "acc.",
    "vote_gap": "vote gap",
    "vote_nll": "vote NLL",
}


def calibrated(panel: Panel) -> Callable[[np.random.Generator], Outcome]:
    """Audit a calibrated model: what is rejected, and what the intervals hold."""

    def study(rng: np.random.Generator) -> Outcome:
        y, p, votes, groups = panel.draw(rng)
        alone = len(groups) == len(panel.sizes)
        result = _audit(y, p, votes, None if alone else groups)
        out = {(REJECTED, key): value for key, value in _rejections(result).items()}
        out[REJECTED, BY_READER] = _found(votes, panel.reader(p), None if alone else groups)
        if not alone:
            naive = metrics.cox(y, p).p_value
            out[REJECTED, "Cox, groups ignored"] = naive <= LEVEL
        row, truth = result["overall"], panel.truth()
        for key, title in TITLES.items():
            if np.isfinite(row[f"{key}_low"]):
                out[COVERED, title] = row[f"{key}_low"] <= truth[key] <= row[f"{key}_high"]
        return out

    return study


def enriched(
    panel: Panel, change: Callable[[np.ndarray], np.ndarray] | None = None
) -> Callable[[np.random.Generator], Outcome]:
    """Audit at the population's prevalence cases of which half are positive.

    Without `change` the model is calibrated in the population; else its logits are changed.
    """

    def study(rng: np.random.Generator) -> Outcome:
        y, p, votes, groups = panel.draw(rng)
        truth = panel.truth()
        prevalence = truth["prevalence"]
        kept = (y == 1) | (rng.random(len(y)) < prevalence / (1 - prevalence))
        y, p, votes, groups = (a[kept] for a in (y, p, votes, groups))
        own = groups if max(panel.sizes) > 1 else None
        if change is not None:
            p = expit(change(logit(np.clip(p, 1e-12, 1 - 1e-12))))
        result = _audit(y, p, votes, own, prevalence=prevalence)
        found = _rejections(result)
        del found["votes by difficulty"]  # not tested at another prevalence
        out = {(FOUND if change else REJECTED, key): value for key, value in found.items()}
        if change is not None:
            return out
        row = result["overall"]
        benefit = result.decision_curve([BENEFIT_AT]).iloc[0]
        row |= {f"net_benefit_{end}": benefit[f"net_benefit_{end}"] for end in ("low", "high")}
        for key, title in (TITLES | {"net_benefit": "net benefit"}).items():
            out[COVERED, title] = row[f"{key}_low"] <= truth[key] <= row[f"{key}_high"]
        return out

    return study


def wrong(
    panel: Panel, change: Callable[[np.ndarray], np.ndarray]
) -> Callable[[np.random.Generator], Outcome]:
    """Audit the same model with its logits changed."""

    def study(rng: np.random.Generator) -> Outcome:
        y, p, votes, groups = panel.draw(rng)
        alone = len(groups) == len(panel.sizes)
        off, reader = (
            expit(change(logit(np.clip(q, 1e-12, 1 - 1e-12)))) for q in (p, panel.reader(p))
        )
        own = None if alone else groups
        out = {
            (FOUND, key): value for key, value in _rejections(_audit(y, off, votes, own)).items()
        }
        return out | {(FOUND, BY_READER): _found(votes, reader, own)}

    return study


def by_difficulty(law: Difficulty) -> Callable[[np.random.Generator], Outcome]:
    """Audit a model that sees difficulty, or is blind to it, with and without `p_split`."""

    def study(rng: np.random.Generator) -> Outcome:
        drawn = law.draw(rng)
        p, votes, split = (drawn[key] for key in ("p", "votes", "p_split"))
        own = None if len(p) == len(law.sizes) else drawn["groups"]
        result = _audit((votes > READERS / 2).astype(int), p, votes, own)
        out = _rejections(result)
        out[FORESEEN] = _found(votes, p, own, of_label=True, p_split=split)
        return {(FOUND if law.blind else REJECTED, key): value for key, value in out.items()}

    return study


def _found(votes, probs, groups, **options) -> bool:  # type: ignore[no-untyped-def]
    options |= {"groups": groups, "n_resamples": DRAWS}
    found = votes_by_difficulty(votes, probs, READERS, **options)
    p_values = [t["p_votes_holm"] for t in found if np.isfinite(t["p_votes_holm"])]
    return bool(p_values) and min(p_values) <= LEVEL


def _audit(y, p, votes, groups, **options):  # type: ignore[no-untyped-def]
    return audit(y, p, votes=votes, n_raters=READERS, groups=groups, n_resamples=DRAWS, **options)


def _rejections(result) -> dict[str, bool]:  # type: ignore[no-untyped-def]
    row = result["overall"]
    tests = ("cox", "consistency", "kuiper", "spiegelhalter")
    out = {name.capitalize(): row[f"p_{name}"] <= LEVEL for name in tests}
    out['"it is miscalibrated"'] = "it is miscalibrated" in result.sentences[0]
    strata = [
        r["p_null_holm"] for r in result.rows[1:] if np.isfinite(r.get("p_null_holm", np.nan))
    ]
    out["a stratum against its null"] = bool(strata) and min(strata) <= LEVEL
    out["votes by difficulty"] = row["p_votes_holm"] <= LEVEL
    return out


def paired(panel: Panel) -> Callable[[np.random.Generator], Outcome]:
    """Compare a model with itself softened: the paired interval of the change of label NLL."""

    def study(rng: np.random.Generator) -> Outcome:
        y, p, _, groups = panel.draw(rng)
        alone = len(groups) == len(panel.sizes)
        own = None if alone else groups
        audits = [audit(y, q, groups=own, n_resamples=20) for q in (p, expit(0.7 * logit(p)))]
        change = compare_audits(*audits, n_resamples=399).differences.set_index("metric").loc["nll"]
        truth = panel.truth()["softer"]
        return {(COVERED, "change of NLL"): change["low"] <= truth <= change["high"]}

    return study


# Studies of sites


SPREADS = (0.0, 0.1, 0.2, 0.4, 0.7)
"""Standard deviations of the sites' log-odds, beyond what the model knows."""

MIDDLES = {0.3: -1.16, 0.05: -3.55}
"""Prevalence -> mean logit of cases whose logits have a standard deviation of 1.2."""


def alike(count: int, events: int, group_size: int = 1) -> Callable[[np.random.Generator], Outcome]:
    """Test sites that share one recalibration line, which is not the diagonal: all of them, and one."""

    def study(rng: np.random.Generator) -> Outcome:
        chance = float(rng.choice(list(MIDDLES)))
        # Sites are of unequal size.
        sizes = np.maximum(8, events / chance * np.exp(0.4 * rng.normal(size=count))).astype(int)
        site = np.repeat(np.arange(count), sizes)
        z = MIDDLES[chance] + 1.2 * rng.normal(size=len(site))
        groups, shared = None, 0.0
        if group_size > 1:
            own = [rng.integers(max(5, n // group_size), size=n) for n in sizes]
            groups = np.unique(10_000 * site + np.concatenate(own), return_inverse=True)[1]
            shared = 0.8 * rng.normal(size=groups.max() + 1)[groups]
        y = (rng.random(len(z)) < expit(0.3 + 0.8 * z + shared)).astype(float)
        found = between_levels.heterogeneity(
            y, expit(z), site, count, groups=groups, n_resamples=DRAWS
        )
        if np.isnan(found.p_value):
            return {}
        return {
            (EQUAL, "all sites"): found.p_value <= LEVEL,
            (EQUAL, "one site"): found.p_levels[0] <= LEVEL,
        }

    return study


def new_site(
    count: int, chance: float, sizes: tuple[int, int]
) -> Callable[[np.random.Generator], Outcome]:
    """The prediction interval of O:E from so many sites, and a further one."""

    def study(rng: np.random.Generator) -> Outcome:
        out = {}
        for spread in SPREADS:
            site = np.repeat(np.arange(count), rng.integers(sizes[0], sizes[1] + 1, count))
            z = MIDDLES[chance] + 1.2 * rng.normal(size=len(site))
            moved = spread * rng.normal(size=count + 1)
            y = (rng.random(len(z)) < expit(z + moved[site])).astype(float)
            line = between_levels.line_of(y, expit(z))
            if np.isnan(line[0]):
                continue
            found = between_levels.ratio_spread(y, expit(z), site, count, line, n_draws=5000)
            many = MIDDLES[chance] + 1.2 * ndtri((np.arange(2000) + 0.5) / 2000)
            truth = np.log(expit(many + moved[-1]).mean() / expit(many).mean())
            out[NEW, f"spread {spread:g}"] = found.new_low <= truth <= found.new_high
        return out

    return study


def recalibrated(
    n: int, n_groups: int | None, stretch: float
) -> Callable[[np.random.Generator], Outcome]:
    """Recalibrate a model by `auto`: what is said of the calibrator kept, against its truth."""
    grid = np.linspace(-8.0, 8.0, 801)
    density = np.exp(-0.5 * (grid / 1.8) ** 2)
    density /= density.sum()
    nodes, share = np.polynomial.hermite_e.hermegauss(15)
    common = 0.8 if n_groups else 0.0
    truth = expit(grid[:, None] + common * nodes) @ (share / share.sum())
    said = expit(stretch * logit(truth) + 0.4 * (stretch != 1.0))

    def study(rng: np.random.Generator) -> Outcome:
        z, groups, effect = rng.normal(0.0, 1.8, n), None, np.zeros(n)
        if n_groups:
            groups = np.arange(n) % n_groups
            effect = rng.normal(0.0, common, n_groups)[groups]
        y = (rng.random(n) < expit(z + effect)).astype(int)
        p = np.interp(z, grid, said)
        result = calibrate(y, p, groups=groups, n_resamples=DRAWS)
        kept = result.recalibrator.predict(said)
        error = float(np.sqrt(density @ (kept - truth) ** 2))
        facts = result.judged.facts
        change, after = facts["recommended"]["p"], facts["audits"][facts["judged"]]["judgement"]
        before, now = (_mean_loss(density, truth, q) for q in (said, kept))
        held = change["low"] - 1e-12 <= now - before <= change["high"] + 1e-12
        return {
            (COVERED, "change of NLL by calibrate"): held,
            (COVERED, "typical error after, upper limit"): error <= after["error_high"],
        }

    return study


def _mean_loss(density: np.ndarray, truth: np.ndarray, p: np.ndarray) -> float:
    return -float(density @ (xlogy(truth, p) + xlogy(1.0 - truth, 1.0 - p)))


def correlated(n_groups: int, size: int) -> Callable[[np.random.Generator], Outcome]:
    """Fit a panel to votes on the cases of patients: the interval of rho."""
    rho, readers = 0.3, 5

    def study(rng: np.random.Generator) -> Outcome:
        group = np.repeat(np.arange(n_groups), size)
        z = rng.normal(0.0, 1.5, len(group))
        both = rng.normal(size=n_groups)[group] + rng.normal(size=len(group))
        share, scale = expit(z), (1.0 - rho) / rho
        chance = beta.ppf(ndtr(both / np.sqrt(2.0)), scale * share, scale * (1.0 - share))
        votes = rng.binomial(readers, chance)
        found = {}
        for name, own in (("rho", group), ("rho, groups ignored", None)):
            panel = fit_panel(z, votes=votes, n_raters=readers, groups=own, prior_sd=2.0)
            found[COVERED, name] = panel.rho_low <= rho <= panel.rho_high
        return found

    return study


WRONG = (lambda z: z / 0.6, lambda z: z - 0.7)
"""Changes of a calibrated model's logits: too extreme, too low."""


def flexible(panel: Panel) -> Callable[[np.random.Generator], Outcome]:
    """Fit the curve of a calibrated model, whose errors are 0, and of the same with its logits changed.

    The truth is what the same smoother makes of the whole population. The pointwise band is looked at in one
    point of the grid, errors if they are at least twice their floor.
    """
    everyone = panel.spread * ndtri((np.arange(4000) + 0.5) / 4000) + panel.shift
    chance = np.interp(everyone, *_chances(panel.noise)[:2])

    def study(rng: np.random.Generator) -> Outcome:
        y, p, _, groups = panel.draw(rng)
        alone = len(groups) == len(panel.sizes)
        units = Units.of(len(y), groups=None if alone else groups)
        out = {}
        curve = curves.fit_curve(y.astype(float), p, units)
        if not isinstance(curve, str):
            found = curve.errors()
            for key in curves.ERRORS:
                out[CURVE, f"{COLUMNS[key].title} from 0"] = found[f"{key}_low"] == 0.0
        change = WRONG[rng.integers(len(WRONG))]
        off, shown = (expit(change(logit(np.clip(q, 1e-8, 1 - 1e-8)))) for q in (p, chance))
        curve = curves.fit_curve(y.astype(float), off, units)
        if isinstance(curve, str):
            return out
        truth = curves.fit_curve(chance, shown, Units.of(len(chance)), knots=curve.knots)
        grid = curve.grid()
        band, found, point = curve.band(grid), curve.errors(), rng.integers(len(grid))
        height = truth.at(grid)
        for prefix, title in (("", "pointwise"), ("all_", "simultaneous")):
            inside = (band[f"{prefix}low"] <= height) & (height <= band[f"{prefix}high"])
            out[CURVE, title] = inside.all() if prefix else inside[point]
        for key, value in zip(curves.ERRORS, truth.observed(), strict=True):
            if value >= 2 * found[f"{key}_floor"]:
                held = found[f"{key}_low"] <= value <= found[f"{key}_high"]
                out[CURVE, COLUMNS[key].title] = held
        return out

    return study


def _unequal(count: int, mean: int) -> tuple[int, ...]:
    """Sizes of groups of which the largest are many times the smallest: quantiles of a log-normal."""
    size = np.exp(ndtri((np.arange(count) + 0.5) / count))
    return tuple(np.maximum(1, np.round(size * count * mean / size.sum())).astype(int).tolist())


LAYOUTS = {
    "164 cases": (1,) * 164,
    "977 cases": (1,) * 977,
    "98 groups of 10": (10,) * 98,
    "40 groups of 25": (25,) * 40,
    "16 groups of 60": (60,) * 16,
    "40 unequal groups of 2 to 147": _unequal(40, 25),
    "16 groups of 10": (10,) * 16,
    "10 groups of 16": (16,) * 10,
    "8 groups of 20": (20,) * 8,
}

ENRICHED = {
    "200 cases enriched to half positives": (1,) * 1000,
    "1,000 cases enriched to half positives": (1,) * 5000,
    "100 groups of 10, enriched to half positives": (50,) * 100,
}
"""Layouts of the population, of which one in ten is positive and one in five is kept."""

FLEXIBLE = {
    "300 cases": (1,) * 300,
    "1,000 cases": (1,) * 1000,
    "5,000 cases": (1,) * 5000,
    "98 groups of 10": (10,) * 98,
    "40 groups of 25": (25,) * 40,
    "16 groups of 60": (60,) * 16,
}
RARE = -3.35
"""Mean logit of panels where one case in twenty is positive."""

SHARP = ("164 cases", "977 cases", "98 groups of 10", "16 groups of 60")
FIVE = ("164 cases", "977 cases", "98 groups of 10", "40 groups of 25", "16 groups of 60")


def _checks() -> Iterator[tuple[str, Check]]:
    for name, sizes in LAYOUTS.items():
        yield name, Check(calibrated(Panel(sizes)))
    for name in SHARP:
        for spread, area in ((5.0, "AUC .981"), (12.0, "AUC .997")):
            panel = Panel(LAYOUTS[name], spread=spread)
            yield f"{name}, {area}", Check(calibrated(panel))
    for name in FIVE:
        yield f"{name}, paired", Check(paired(Panel(LAYOUTS[name])))
    for name in FIVE:
        yield f"{name}, logits times 1.5", Check(wrong(Panel(LAYOUTS[name]), lambda z: 1.5 * z))
        yield f"{name}, logits plus 0.5", Check(wrong(Panel(LAYOUTS[name]), lambda z: z + 0.5))
    for name in FIVE:
        for blind, title in ((False, "difficulty seen"), (True, "blind to difficulty")):
            yield f"{name}, {title}", Check(by_difficulty(Difficulty(LAYOUTS[name], blind)))

    for count in (2, 5, 10, 20):
        for events in (3, 10, 30):
            yield f"{count} sites, {events} expected events", Check(alike(count, events), 5 * RUNS)
        yield f"{count} sites in groups of 5", Check(alike(count, 30, 5), 2 * RUNS)
    for count in (3, 5, 10, 20):
        for chance in MIDDLES:
            for sizes in ((30, 30), (30, 400)):
                some = " to ".join(str(n) for n in dict.fromkeys(sizes))
                name = f"{count} sites of {some} cases, prevalence {chance:g}"
                yield name, Check(new_site(count, chance, sizes), 3 * RUNS)
    for n, n_groups in ((150, None), (500, None), (2000, None), (500, 50), (2000, 200)):
        name = f"{n:,} cases" if n_groups is None else f"{n_groups} groups of 10"
        for stretch, title in ((1.0, "calibrated"), (1.5, "logits stretched")):
            check = Check(recalibrated(n, n_groups, stretch))
            yield f"{name}, {title}, recalibrated", check
    for n_groups, size in ((100, 10), (40, 10), (20, 20)):
        yield f"{n_groups} groups of {size}, five readers", Check(correlated(n_groups, size))
    for name, sizes in FLEXIBLE.items():
        yield f"{name}, curve, prevalence .4", Check(flexible(Panel(sizes)))
        yield f"{name}, curve, prevalence .05", Check(flexible(Panel(sizes, shift=RARE)))

    few = min(RUNS, 200)
    for name, sizes in ENRICHED.items():
        yield name, Check(enriched(Panel(sizes, shift=-2.5)), few)
    name, sizes = next(iter(ENRICHED.items()))
    as_sampled = enriched(Panel(sizes, shift=-2.5), lambda z: z + 2.1)
    yield f"{name}, logits as in the sample", Check(as_sampled, few)


CHECKS: dict[str, Check] = dict(_checks())
"""Every row of the tables, by name."""


def tables(measured: Mapping[str, Mapping[tuple[str, str], float]]) -> str:
    """Lay the rates out as Markdown, one table of each kind."""
    parts = []
    kinds = dict.fromkeys(kind for row in measured.values() for kind, _ in row)
    for kind in kinds:
        rows = {name: row for name, row in measured.items() if any(k == kind for k, _ in row)}
        columns = dict.fromkeys(c for row in rows.values() for k, c in row if k == kind)
        lines = [f"| {kind} | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
        for name, row in rows.items():
            cells = (f"{row[kind, c]:.3f}".lstrip("0") if (kind, c) in row else "" for c in columns)
            lines.append(f"| {name} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def main(words: list[str]) -> None:
    chosen = {n: c for n, c in CHECKS.items() if not words or any(w in n for w in words)}
    measured = {}
    for name, check in chosen.items():
        measured[name] = rates(check)
        print(f"{name}: {check.runs} studies done", file=sys.stderr, flush=True)
    print(tables(measured))


if __name__ == "__main__":
    main(sys.argv[1:])
