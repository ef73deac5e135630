"""Simulated readers: features, votes and the truth behind them, so that errors are known exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from scalecal.cases import Cases, Factor
from scalecal.checks import (
    Float,
    InputError,
    Int,
    as_rng,
    check_choice,
    check_positive_int,
    check_probs,
    check_same_length,
    check_unit,
)
from scalecal.datasets.reader_model import ReaderModel, best_auc, bumps, solve_intercept
from scalecal.io.features import Features, array_hash
from scalecal.votes import majority

__all__ = ["SimulatedCases", "simulate", "simulate_paper", "true_calibration_error"]

_PAPER_CASES, _PAPER_TRAIN, _PAPER_POSITIVE = 3152, 2175, 990
_GROUP_SHARE = 0.3  # share of the features' variance that cases of one group have in common
_MOST_SPREAD = 12.0  # beyond it readers are all but unanimous and the AUC stands still


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatedCases(Features):
    """`Features` with the truth that made them.

    Attributes
    ----------
    model : ReaderModel
        The law of the votes; ``model.label_probability(X)`` works for any features.
    """

    model: ReaderModel

    @property
    def vote_probability(self) -> Float:
        """Chance that a reader of the panel votes for class 1, (n,), or for each class, (n, C).

        It is that of the case as it is: what the vote share tends to with ever more such readers.
        """
        return self.extra["vote_probability"]

    @property
    def expected_vote_probability(self) -> Float:
        """The same given the features only: the best prediction of a vote."""
        return self.extra["expected_vote_probability"]

    @property
    def label_probability(self) -> Float:
        """P(label | features): the best prediction of the label, calibrated by definition."""
        return self.extra["label_probability"]


def simulate(
    n: int = _PAPER_CASES,
    *,
    n_raters: int = 7,
    n_classes: int = 2,
    dim: int = 64,
    spread: float = 2.0,
    auc: float | None = None,
    unexplained: float = 0.05,
    prevalence: float | None = None,
    noise: float = 1.0,
    readers: Literal["alike", "unequal"] = "alike",
    correlation: float = 0.0,
    n_train: int | None = None,
    n_groups: int | None = None,
    seed: int | np.random.Generator | None = 0,
) -> SimulatedCases:
    """Draw cases, embeddings and readers' votes from a model whose truth is known.

    The score t = u'x of a case is standard normal; readers vote for class 1 with probability
    sigmoid(a + s (sqrt(1 - h) t + sqrt(h) e)), where s is `spread`, h is `unexplained` and e is a
    standard normal that no feature shows. The label is the majority of the votes (ties drawn).
    `scalecal.datasets.reader_model` has the formulas for unequal and correlated readers and for
    more classes.

    Parameters
    ----------
    n : int
        Number of cases.
    n_raters : int
        Readers per case.
    n_classes : int
        Number of classes.
    dim : int
        Width of the embeddings: one informative direction (one per class for more than two), the
        others nuisance, all turned by a random rotation.
    spread : float
        Standard deviation of the vote logit over cases. More: readers agree more, and the AUC rises.
    auc : float, optional
        Solve for the `spread` at which a perfect model of the features has this AUC for the label
        (two classes; .80 to .97 and beyond); `spread` is then not used.
    unexplained : float
        Share of the vote logit's variance that the features do not show, in [0, 1).
    prevalence : float, optional
        Share of class 1 among labels (two classes). Default: classes equally frequent.
    noise : float
        Standard deviation of the nuisance directions; the informative one has 1.
    readers : {"alike", "unequal"}
        Unequal readers differ in bias (normal, sd 0.7 on the logit) and acuity (log-normal slope,
        sd 0.3). Two classes only.
    correlation : float
        Correlation of two (alike) readers' votes on a case beyond what its vote probability
        explains, in [0, 1).
    n_train : int, optional
        Cases marked ``"train"``. Default: the paper's share, 2,175 of 3,152. With groups, the
        nearest number that splits none.
    n_groups : int, optional
        Draw cases from this many groups (patients) whose members' features are alike: 30 % of the
        variance is between groups. Default: every case is its own group.
    seed : int, Generator or None
        Randomness.

    Returns
    -------
    SimulatedCases

    Examples
    --------
    >>> from scalecal.datasets import simulate, true_calibration_error
    >>> data = simulate(2000, auc=0.9, seed=0)
    >>> data.X.shape, int(data.votes.max())
    ((2000, 64), 7)

    The label probability is calibrated; multiplying its logits by 1.5 makes it over-confident by
    a known amount:

    >>> q = data.label_probability
    >>> true_calibration_error(q, q)
    0.0
    >>> sharper = q**1.5 / (q**1.5 + (1 - q) ** 1.5)
    >>> round(true_calibration_error(sharper, q), 3)
    0.051
    """
    n = check_positive_int(n, "n")
    rng = as_rng(seed)
    model = _make_model(
        n_raters=check_positive_int(n_raters, "n_raters"),
        n_classes=check_positive_int(n_classes, "n_classes", least=2),
        dim=check_positive_int(dim, "dim"),
        spread=spread,
        auc=auc,
        unexplained=unexplained,
        prevalence=prevalence,
        readers=readers,
        correlation=correlation,
        rng=rng,
    )
    if not noise >= 0.0 or not np.isfinite(noise):
        raise InputError(f"noise must be a number >= 0, got {noise}")
    groups = _draw_groups(n, n_groups, rng)
    X = _draw_features(groups, model.directions, noise, rng)
    vote_probability, votes = _draw_votes(model, model.scores(X), rng)
    counts = votes if votes.ndim == 2 else np.column_stack([model.n_raters - votes, votes])
    cases = Cases(
        n=n,
        classes=tuple(str(c) for c in range(model.n_classes)),
        ids=np.arange(n).astype(np.str_),
        y=majority(counts, ties="random", seed=rng).labels,
        votes=counts,
        groups=Factor.of(groups),
        split=Factor.of(_split(groups, n_train)),
    )
    return SimulatedCases(
        X=X,
        cases=cases,
        dataset="simulated",
        fingerprint=array_hash(X, counts),
        extra={
            "vote_probability": vote_probability,
            "expected_vote_probability": model.vote_probability(X),
            "label_probability": model.label_probability(X),
        },
        model=model,
    )


def simulate_paper(
    *, auc: float = 0.93, unexplained: float = 0.1, dim: int = 64, seed: int = 0
) -> SimulatedCases:
    """Simulate the paper's set-up: 3,152 cases, 7 readers, 2,175 for training and 977 for testing.

    The positive class has MHIST's share, 990 of 3,152, and readers agree about as often as there;
    `auc` and the other knobs as in `simulate`.

    Examples
    --------
    >>> from scalecal.datasets import simulate_paper
    >>> data = simulate_paper()
    >>> len(data), int((data.split == "train").sum()), int((data.split == "test").sum())
    (3152, 2175, 977)
    """
    return simulate(
        _PAPER_CASES,
        n_raters=7,
        dim=dim,
        auc=auc,
        unexplained=unexplained,
        prevalence=_PAPER_POSITIVE / _PAPER_CASES,
        n_train=_PAPER_TRAIN,
        seed=seed,
    )


def true_calibration_error(probs: ArrayLike, truth: ArrayLike, *, n_bins: int | None = 15) -> float:
    """Calibration error of predictions whose true probabilities are known: no label noise in it.

    With q the truth given the features, sum_b |sum_{i in b} (p_i - q_i)| / N over equal-width bins
    of p: the paper's ECE with every label replaced by its expectation, which the ECE of ever more
    cases tends to. For (n, C) predictions the mean over classes.

    Parameters
    ----------
    probs : array of shape (n,) or (n, C)
        Predictions.
    truth : array of the same shape
        For example `SimulatedCases.label_probability`.
    n_bins : int or None
        None: no bins, mean of |p - q|. That is the calibration error only where p tells cases
        apart as finely as q does; elsewhere it also counts what the model does not see.

    Examples
    --------
    >>> true_calibration_error([0.25, 0.75], [0.5, 0.75], n_bins=None)
    0.125
    """
    p, q = check_probs(probs), check_probs(truth, "truth")
    check_same_length(probs=p, truth=q)
    if p.shape != q.shape:
        raise InputError(f"probs has shape {p.shape} but truth has shape {q.shape}")
    columns = [(p, q)] if p.ndim == 1 else list(zip(p.T, q.T, strict=True))
    if n_bins is None:
        return float(np.mean([np.abs(a - b).mean() for a, b in columns]))
    n_bins = check_positive_int(n_bins, "n_bins")
    errors = []
    for a, b in columns:
        bin_of = np.minimum((a * n_bins).astype(np.int64), n_bins - 1)
        errors.append(np.abs(np.bincount(bin_of, a - b, n_bins)).sum() / len(a))
    return float(np.mean(errors))


def _make_model(
    *,
    n_raters: int,
    n_classes: int,
    dim: int,
    spread: float,
    auc: float | None,
    unexplained: float,
    prevalence: float | None,
    readers: str,
    correlation: float,
    rng: np.random.Generator,
) -> ReaderModel:
    """Readers and directions drawn, spread and intercept solved for."""
    check_choice(readers, ("alike", "unequal"), "readers")
    for name, value in {"unexplained": unexplained, "correlation": correlation}.items():
        if check_unit(value, name) == 1.0:
            raise InputError(f"{name} must be below 1, got 1")
    if not spread > 0.0 or not np.isfinite(spread):
        raise InputError(f"spread must be a number > 0, got {spread}")
    n_directions = 1 if n_classes == 2 else n_classes
    if dim < n_directions:
        raise InputError(f"dim must be at least {n_directions} for {n_classes} classes, got {dim}")
    if n_classes > 2 and (auc is not None or prevalence is not None or readers == "unequal"):
        raise InputError(
            f"auc, prevalence and unequal readers are for two classes, n_classes is {n_classes}. "
            "Set the difficulty with spread."
        )
    alike = readers == "alike"
    model = ReaderModel(
        directions=np.linalg.qr(rng.standard_normal((dim, n_directions)))[0],
        intercept=0.0,
        spread=float(spread),
        unexplained=float(unexplained),
        correlation=float(correlation),
        slopes=np.ones(n_raters) if alike else np.exp(0.3 * rng.standard_normal(n_raters)),
        biases=np.zeros(n_raters) if alike else 0.7 * rng.standard_normal(n_raters),
    )
    if n_classes > 2:
        return model
    target = 0.5 if prevalence is None else check_unit(prevalence, "prevalence")
    if not 0.0 < target < 1.0:
        raise InputError(f"prevalence must lie strictly between 0 and 1, got {target:g}")

    def at_spread(s: float) -> ReaderModel:
        moved = replace(model, spread=s)
        # By symmetry alike readers and equal classes need no intercept.
        return moved if alike and target == 0.5 else _with_prevalence(moved, target)

    return at_spread(model.spread if auc is None else _solve_spread(at_spread, auc))


def _with_prevalence(model: ReaderModel, target: float) -> ReaderModel:
    return replace(model, intercept=solve_intercept(model, target))


def _solve_spread(at_spread: Callable[[float], ReaderModel], auc: float) -> float:
    """Spread at which a perfect model reaches `auc`."""
    check_unit(auc, "auc")
    most = best_auc(at_spread(_MOST_SPREAD))
    if not 0.5 < auc < most:
        raise InputError(
            f"auc must lie between 0.5 and {most:.3f} (the most that can be had with this share of "
            f"unexplained variance), got {auc:g}. Lower unexplained."
        )
    root = brentq(lambda s: best_auc(at_spread(s)) - auc, 1e-3, _MOST_SPREAD, xtol=1e-6)
    return float(root)


def _draw_groups(n: int, n_groups: int | None, rng: np.random.Generator) -> Int:
    """Group codes, ascending; every group has a case."""
    if n_groups is None:
        return np.arange(n)
    n_groups = check_positive_int(n_groups, "n_groups")
    if n_groups > n:
        raise InputError(f"n_groups must not exceed the number of cases {n}, got {n_groups}")
    extra = rng.integers(0, n_groups, n - n_groups)
    return np.sort(np.concatenate([np.arange(n_groups), extra]))


def _draw_features(groups: Int, directions: Float, noise: float, rng: np.random.Generator) -> Float:
    """Embeddings with standard normal scores along `directions`, nuisance across them."""
    n, dim = len(groups), directions.shape[0]
    x = rng.standard_normal((n, dim))
    if groups[-1] + 1 < n:
        centre = rng.standard_normal((groups[-1] + 1, dim))
        x = np.sqrt(1.0 - _GROUP_SHARE) * x + np.sqrt(_GROUP_SHARE) * centre[groups]
    along = x @ directions
    return np.asarray(noise * x + (1.0 - noise) * along @ directions.T)


def _draw_votes(model: ReaderModel, t: Float, rng: np.random.Generator) -> tuple[Float, Int]:
    """Vote probability per case, and the votes themselves."""
    n, m, g = len(t), model.n_raters, np.sqrt(model.correlation)
    joins = rng.random((n, m)) < g
    if model.n_classes == 2:
        alone = model.reader_shares(t, rng.standard_normal(n))
        shares = alone.mean(axis=0)
        common = rng.random(n) < shares
        ballots = np.where(joins, common[:, None], rng.random((n, m)) < alone.T)
        return shares, ballots.sum(axis=1).astype(np.int64)
    table = bumps(model)
    shares = model.class_shares(t, table[rng.integers(0, len(table), n)])
    edges = np.cumsum(shares, axis=1)[:, :-1]
    opinion = (rng.random((n, 1)) > edges).sum(axis=1)
    own = (rng.random((n, m, 1)) > edges[:, None]).sum(axis=2)
    ballots = np.where(joins, opinion[:, None], own)
    return shares, (ballots[..., None] == np.arange(model.n_classes)).sum(axis=1).astype(np.int64)


def _split(groups: Int, n_train: int | None) -> NDArray[np.str_]:
    """Mark the first cases for training, up to the group border nearest `n_train`."""
    n = len(groups)
    share = _PAPER_TRAIN / _PAPER_CASES
    wanted = (
        round(share * n) if n_train is None else check_positive_int(n_train, "n_train", least=0)
    )
    if wanted > n:
        raise InputError(f"n_train must not exceed the number of cases {n}, got {wanted}")
    borders = np.concatenate([[0], np.flatnonzero(np.diff(groups)) + 1, [n]])
    border = borders[np.abs(borders - wanted).argmin()]
    return np.where(np.arange(n) < border, "train", "test")
