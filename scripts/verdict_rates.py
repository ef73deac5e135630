"""How often a verdict is wrong, and how often a calibrated model is called good: tables of docs/validity.md.

Studies are of known truth: the model's probabilities are calibrated, or wrong by exactly the bound from
which an error matters. ``python scripts/verdict_rates.py [RUNS]`` prints, for every prevalence, number of
events, number of classes and kind of groups, how often a calibrated model gets "attention" (at most .05 is
promised) and "good" (the power), and how often each wrong one gets "good" (at most .05 is promised).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtr, ndtri

from scalecal.cases import Cases, Factor, Predictions
from scalecal.evaluation.audits import audit_predictions
from scalecal.evaluation.judging import BOUNDS, LIMIT, judge

DRAWS = 199
"""Draws behind each test."""

FACTOR = BOUNDS["oe"][1]


@dataclass(frozen=True)
class Setting:
    """Studies of one kind; cases are in groups of `group_size`, whose labels go together."""

    prevalence: float
    events: int
    n_classes: int = 2
    group_size: int = 1
    spread: float = 1.5

    @property
    def n(self) -> int:
        """Number of cases."""
        return round(self.events / self.prevalence)

    def __str__(self) -> str:
        if self.n_classes > 2:
            text = f"{self.n_classes} classes, {self.events} cases of the rarest"
        else:
            text = f"prevalence {self.prevalence:g}, {self.events:,} events"
        if self.group_size > 1:
            text += f", {self.n // self.group_size} groups of {self.group_size}"
        return text


# Laws of the truth


@cache
def _large_sample(setting: Setting) -> np.ndarray:
    """Logits (two classes) or probabilities of a population from which bounds are computed."""
    rng = np.random.default_rng(0)
    return _truth(replace(setting, events=round(200_000 * setting.prevalence)), rng)


@cache
def _middle(prevalence: float, spread: float) -> float:
    """Mean of normal logits whose probabilities have this mean."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    weights = weights / weights.sum()
    return float(brentq(lambda m: weights @ expit(m + spread * nodes) - prevalence, -20, 20))


def _truth(setting: Setting, rng: np.random.Generator) -> np.ndarray:
    """True logits of the positive class, or true probabilities of several classes."""
    if setting.n_classes == 2:
        middle = _middle(setting.prevalence, setting.spread)
        return middle + setting.spread * rng.standard_normal(setting.n)
    rest = (1 - setting.prevalence) / (setting.n_classes - 1)
    share = np.array([rest] * (setting.n_classes - 1) + [setting.prevalence])
    scores = np.log(share) + setting.spread * rng.standard_normal((setting.n, setting.n_classes))
    # The rarest class is rarer or more common than its share by the softmax: its events are near enough.
    odds = np.exp(scores)
    return odds / odds.sum(axis=1, keepdims=True)


def _labels(setting: Setting, chance: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels of these chances, which go together within groups."""
    n = len(chance)
    uniform = rng.random(n)
    if setting.group_size > 1:
        group = _groups(setting, n)
        common = rng.standard_normal(group.max() + 1)[group]
        uniform = ndtr(np.sqrt(0.2) * common + np.sqrt(0.8) * ndtri(uniform))
    if chance.ndim == 1:
        return (uniform < chance).astype(np.int64)
    return (uniform[:, None] > np.cumsum(chance, axis=1)[:, :-1]).sum(axis=1)


def _groups(setting: Setting, n: int) -> np.ndarray:
    return np.arange(n) // setting.group_size


# Errors at their bounds: true logits -> what the model says


def _odds(_: Setting, z: np.ndarray) -> np.ndarray:
    return expit(z + np.log(FACTOR))


def _odds_low(_: Setting, z: np.ndarray) -> np.ndarray:
    return expit(z - np.log(FACTOR))


@cache
def _offset_of_slope(setting: Setting, slope: float) -> float:
    z = _large_sample(setting)
    mean = expit(z).mean()
    return float(brentq(lambda a: expit(a + z / slope).mean() - mean, -30, 30))


def _steep(setting: Setting, z: np.ndarray) -> np.ndarray:
    slope = BOUNDS["slope"][0]
    return expit(_offset_of_slope(setting, slope) + z / slope)


def _flat(setting: Setting, z: np.ndarray) -> np.ndarray:
    slope = BOUNDS["slope"][1]
    return expit(_offset_of_slope(setting, slope) + z / slope)


@cache
def _shift_of_ratio(setting: Setting, ratio: float) -> float:
    z = _large_sample(setting)
    mean = expit(z).mean()
    return float(brentq(lambda a: mean / expit(a + z).mean() - ratio, -30, 30))


def _too_few(setting: Setting, z: np.ndarray) -> np.ndarray:
    return expit(z + _shift_of_ratio(setting, FACTOR))


def _too_many(setting: Setting, z: np.ndarray) -> np.ndarray:
    return expit(z + _shift_of_ratio(setting, 1 / FACTOR))


def _wavy(setting: Setting, z: np.ndarray) -> np.ndarray:
    """Typical error `LIMIT` of both signs along p, which leaves O:E and slope as they are."""
    p = expit(z)
    inside = np.clip(p, 0.15, 0.85)
    wave = np.sqrt(2) * LIMIT * np.sin(6 * np.pi * inside)
    population = expit(_large_sample(setting))
    missed = np.sin(6 * np.pi * np.clip(population, 0.15, 0.85))
    scale = 1 / (np.sqrt(2) * np.sqrt(np.mean(missed**2)))
    return np.clip(p + scale * wave, 1e-3, 1 - 1e-3)


TWO_CLASSES: dict[str, Callable[[Setting, np.ndarray], np.ndarray]] = {
    "odds x 1.5": _odds,
    "odds / 1.5": _odds_low,
    "slope 0.8": _steep,
    "slope 1.25": _flat,
    "O:E 1.5": _too_few,
    "O:E 2/3": _too_many,
}


@cache
def _class_shift(setting: Setting, way: float) -> float:
    """Shift of the last class's score at which its own odds are wrong by the bound on average."""
    table = _large_sample(setting)
    total = table[:, -1].sum()

    def offset(shift: float) -> float:
        said = logit(_shifted(table, shift)[:, -1])
        found = brentq(lambda a: expit(a + said).sum() - total, -10, 10)
        return float(found + way * np.log(FACTOR))

    return float(brentq(offset, -6, 6))


def _shifted(table: np.ndarray, shift: float) -> np.ndarray:
    out = table * np.array([1.0] * (table.shape[1] - 1) + [np.exp(shift)])
    return out / out.sum(axis=1, keepdims=True)


def _errors(setting: Setting) -> dict[str, Callable[[Setting, np.ndarray], np.ndarray]]:
    if setting.n_classes > 2:
        return {
            "odds x 1.5": lambda s, table: _shifted(table, _class_shift(s, 1.0)),
            "odds / 1.5": lambda s, table: _shifted(table, _class_shift(s, -1.0)),
        }
    errors = dict(TWO_CLASSES)
    if setting.prevalence == 0.5:
        errors["typical error 10 points"] = _wavy
    return errors


# Studies


def badge(
    setting: Setting,
    rng: np.random.Generator,
    says: Callable[[Setting, np.ndarray], np.ndarray] | None,
) -> str:
    """The verdict on one study."""
    truth = _truth(setting, rng)
    chance = truth
    if setting.n_classes == 2:
        chance = expit(truth)
    y = _labels(setting, chance, rng)
    p = chance
    if says is not None:
        p = says(setting, truth)
    groups = None
    if setting.group_size > 1:
        groups = Factor.of(_groups(setting, len(y)))
    names = tuple(map(str, range(setting.n_classes)))
    cases = Cases(n=len(y), classes=names, y=y, groups=groups)
    found = audit_predictions(Predictions.single(cases, p), n_resamples=DRAWS)
    return str(judge(found.rows, (), found.classes, agreement=False)["badge"])


def settings() -> Iterator[Setting]:
    """The studies of the table."""
    for prevalence in (0.5, 0.05, 0.005):
        for events in (10, 30, 100, 500, 1000):
            yield Setting(prevalence, events)
    for events in (500, 1000):
        yield Setting(0.2, events)
    for prevalence, size in ((0.5, 10), (0.5, 25), (0.05, 10)):
        for events in (100, 500):
            yield Setting(prevalence, events, group_size=size)
    for n_classes in (3, 6):
        for events in (30, 100, 500):
            yield Setting(1 / n_classes, events, n_classes)


def line(setting: Setting, runs: int, seed: int = 0) -> dict[str, float]:
    """Rates of one setting: column -> rate."""
    # Fewer studies of very many cases: they take as long as all others together.
    runs = max(40, min(runs, 20_000_000 // (10 * setting.n)))
    of_right = [badge(setting, np.random.default_rng([seed, run]), None) for run in range(runs)]
    out = {
        "runs": runs,
        "calibrated: attention": of_right.count("attention") / runs,
        "calibrated: good": of_right.count("good") / runs,
    }
    for name, says in _errors(setting).items():
        found = [
            badge(setting, np.random.default_rng([seed + 1, run]), says) for run in range(runs)
        ]
        out[f"{name}: good"] = found.count("good") / runs
    return out


def main(words: list[str]) -> None:
    """Print a row of the table for every setting as it is done."""
    runs = int(words[0]) if words else 200
    print(
        "| studies of | number | calibrated: attention | calibrated: good | wrong by a bound: good, most |"
    )
    print("|---|---|---|---|---|")
    for setting in settings():
        rates = line(setting, runs)
        wrong = {
            name: rate
            for name, rate in rates.items()
            if not name.startswith(("calibrated", "runs"))
        }
        worst = max(wrong, key=lambda name: wrong[name])
        named = f"{wrong[worst]:.3f}"
        if wrong[worst] > 0:
            named += f" ({worst.removesuffix(': good')})"
        right = f"{rates['calibrated: attention']:.3f} | {rates['calibrated: good']:.3f}"
        print(f"| {setting} | {rates['runs']:.0f} | {right} | {named} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
