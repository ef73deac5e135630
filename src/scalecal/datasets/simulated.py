"""Simulated readers: features, votes and the truth behind them, so that errors are known exactly.

Two classes. A case with features x has the score t = u'x, standard normal over cases, and

    eta = a + s (sqrt(1 - h) t + sqrt(h) e),        e ~ N(0, 1) unseen by any model,
    reader r votes for class 1 with probability P_r = sigmoid(c_r eta + b_r),

s the *spread* (how clear-cut cases are), h the *unexplained* share of the logit's variance. Readers
are alike when all c_r = 1 and b_r = 0. They are correlated when each, with probability g, takes over
one opinion common to the case (class 1 with the panel's mean probability P), else judges alone; two
alike readers' votes on one case then correlate by g^2, and P stays the chance of a vote.

More classes: t has C components, eta_c = s (sqrt(1 - h) t_c + d_c), P = softmax(eta), where the
unseen d moves one class, drawn evenly, up or down by sqrt(C h).

Everything a perfect model could know is an integral over e alone (or a sum over d), so the truth is
exact: P(v of m votes | x), P(label | x), P(vote | x).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, softmax

from scalecal.cases import Cases, Factor, Features, array_hash
from scalecal.checks import (
    Float,
    InputError,
    Int,
    as_rng,
    check_above,
    check_choice,
    check_inside,
    check_positive_int,
    check_unit,
)
from scalecal.limits import check_count, check_limit
from scalecal.panel import label_logit
from scalecal.votes import majority

# The integrands are analytic near the real line, where the trapezoid rule converges faster than any
# power of the step: 81 nodes leave an error below 1e-8 for spreads up to 6, whatever the panel.
_NODES = np.linspace(-8.0, 8.0, 81)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()
_CHUNK = 256  # rows at once: the table of rows x nodes x votes stays small


@dataclass(frozen=True, eq=False)
class ReaderModel:
    """How readers vote given the features; the module's docstring has the formulas.

    Attributes
    ----------
    directions : ndarray of shape (d, k)
        Orthonormal columns u; scores are ``X @ directions``. One column for two classes, C for C.
    intercept, spread, unexplained, correlation : float
        a, s, h and g^2 above.
    slopes, biases : ndarray of shape (n_raters,)
        c_r and b_r above.
    """

    directions: Float
    intercept: float
    spread: float
    unexplained: float
    correlation: float
    slopes: Float
    biases: Float

    @property
    def n_raters(self) -> int:
        """Number of readers in the panel."""
        return len(self.slopes)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return max(2, int(self.directions.shape[1]))

    def scores(self, X: Float) -> Float:
        """Informative part of the features: (n,) for two classes, else (n, C)."""
        t = np.asarray(X, dtype=np.float64) @ self.directions
        return t[:, 0] if self.n_classes == 2 else t

    def label_probability(self, X: Float) -> Float:
        """P(label | features), ties split evenly: (n,) of class 1, or (n, C)."""
        return self.label_probability_at(self.scores(X))

    def vote_probability(self, X: Float) -> Float:
        """P(a reader's vote | features), mean over the panel: (n,) of class 1, or (n, C)."""
        t, m = self.scores(X), self.n_raters
        if self.n_classes == 2:
            return self.vote_distribution_at(t) @ (np.arange(m + 1) / m)
        return _in_chunks(lambda part: self.class_shares(part[:, None], bumps(self)).mean(1), t)

    def label_probability_at(self, t: Float) -> Float:
        """`label_probability` as a function of the scores."""
        if self.n_classes == 2:
            law = self.vote_distribution_at(t)
            m = self.n_raters
            v = np.arange(m + 1)
            # An even split counts half.
            share: Float = law @ np.where(2 * v > m, 1.0, np.where(2 * v == m, 0.5, 0.0))
            return share
        return _in_chunks(self._plurality_at, t)

    def vote_distribution_at(self, t: Float) -> Float:
        """P(v of m readers vote for class 1 | scores), v = 0 .. m: (n, m + 1), two classes only."""
        return _in_chunks(self._counts_at, t)

    def reader_shares(self, t: Float, e: Float) -> Float:
        """P_r for scores `t` and unseen parts `e` (broadcast together): (n_raters, ...)."""
        eta = self.intercept + self.spread * (
            np.sqrt(1.0 - self.unexplained) * t + np.sqrt(self.unexplained) * e
        )
        shape = (-1, *(1,) * eta.ndim)
        logits = self.slopes.reshape(shape) * eta + self.biases.reshape(shape)
        return np.asarray(expit(logits), dtype=np.float64)

    def class_shares(self, t: Float, d: Float) -> Float:
        """Softmax vote probabilities for score vectors `t` and unseen bumps `d`: (..., C)."""
        eta = self.spread * (np.sqrt(1.0 - self.unexplained) * t + d)
        return np.asarray(softmax(eta, axis=-1), dtype=np.float64)

    def _counts_at(self, t: Float) -> Float:
        seen = self.unexplained == 0.0
        nodes, weights = (np.zeros(1), np.ones(1)) if seen else (_NODES, _WEIGHTS)
        alone = self.reader_shares(t[:, None], nodes)
        if self.correlation == 0.0:
            law = vote_counts(alone)
        else:
            g = np.sqrt(self.correlation)
            common = alone.mean(axis=0)
            law = common * vote_counts(g + (1.0 - g) * alone)
            law += (1.0 - common) * vote_counts((1.0 - g) * alone)
        return np.asarray((law @ weights).T)

    def _plurality_at(self, t: Float) -> Float:
        shares = self.class_shares(t[:, None], bumps(self))
        if self.correlation == 0.0:
            return np.asarray(_plurality(shares, self.n_raters).mean(axis=1))
        g = np.sqrt(self.correlation)
        total = np.zeros_like(shares)
        for k in range(self.n_classes):
            opinion = np.eye(self.n_classes)[k]
            law = _plurality(g * opinion + (1.0 - g) * shares, self.n_raters)
            total += shares[..., k, None] * law
        return np.asarray(total.mean(axis=1))


def bumps(model: ReaderModel) -> Float:
    """Unseen logit shifts of the C-class model, equally likely: (2C, C), or one row of zeros."""
    n_classes = model.n_classes
    if model.unexplained == 0.0:
        return np.zeros((1, n_classes))
    size = np.sqrt(n_classes * model.unexplained)
    return np.asarray(size * np.concatenate([np.eye(n_classes), -np.eye(n_classes)]))


def vote_counts(shares: Float) -> Float:
    """Law of the number of votes of independent readers with unequal `shares` (Poisson-binomial).

    One reader at a time: the count's law is convolved with (1 - P_r, P_r). Readers come along the
    first axis and so do the counts 0 .. m of the answer.

    Examples
    --------
    >>> vote_counts(np.array([0.5, 0.5]))
    array([0.25, 0.5 , 0.25])
    """
    law = np.zeros((len(shares) + 1, *shares.shape[1:]))
    law[0] = 1.0
    for r, p in enumerate(shares):
        moved = law[: r + 1] * p
        law[: r + 1] -= moved
        law[1 : r + 2] += moved
    return law


def _plurality(shares: Float, n_raters: int) -> Float:
    """P(class k gets the most of m multinomial votes), ties split evenly, along the last axis."""
    flat = shares.reshape(-1, shares.shape[-1])
    logs = np.log(np.maximum(flat, np.finfo(np.float64).tiny))
    return np.exp(label_logit(logs, 0.0, n_raters)).reshape(shares.shape)


def solve_intercept(model: ReaderModel, prevalence: float) -> float:
    """Intercept a for which class 1 is the label of a share `prevalence` of cases (two classes)."""

    def off(a: float) -> float:
        q = replace(model, intercept=a).label_probability_at(_NODES)
        return float(q @ _WEIGHTS) - prevalence

    reach = 10.0 + 8.0 * model.spread + 4.0 * float(np.abs(model.biases).max(initial=0.0))
    return float(brentq(off, -reach, reach, xtol=1e-10))


def best_auc(model: ReaderModel) -> float:
    """AUC for the label of a perfect model of the features (two classes)."""
    # Class-conditional densities on a grid: P(t+ > t-) with half of what falls on the same node.
    t = np.linspace(-8.0, 8.0, 801)
    q = model.label_probability_at(t)
    density = np.exp(-0.5 * t**2)
    positive, negative = density * q, density * (1.0 - q)
    below = np.cumsum(negative) - 0.5 * negative
    return float(positive @ below / (positive.sum() * negative.sum()))


def _in_chunks(function: Callable[[Float], Float], t: Float) -> Float:
    parts = [function(t[i : i + _CHUNK]) for i in range(0, len(t), _CHUNK)]
    return np.concatenate(parts)


_PAPER_CASES, _PAPER_TRAIN, _PAPER_POSITIVE = 3152, 2175, 990
_GROUP_SHARE = 0.3  # share of the features' variance that cases of one group have in common
_MAX_SPREAD = 12.0  # beyond it readers are all but unanimous and the AUC stands still


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
    `scalecal.datasets.simulated` has the formulas for unequal and correlated readers and for
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
    >>> from scalecal.datasets import simulate
    >>> data = simulate(2000, auc=0.9, seed=0)
    >>> data.X.shape, int(data.votes.max())
    ((2000, 64), 7)

    The label probability is calibrated; multiplying its logits by 1.5 makes it over-confident by
    a known amount:

    >>> q = data.label_probability
    >>> sharper = q**1.5 / (q**1.5 + (1 - q) ** 1.5)
    >>> round(float(np.abs(sharper - q).mean()), 3)
    0.051
    """
    n, dim = check_positive_int(n, "n"), check_positive_int(dim, "dim")
    check_limit(8 * n * dim, "memory", "n times dim features")
    rng = as_rng(seed)
    model = _make_model(
        n_raters=check_count(n_raters, "n_raters", "readers"),
        n_classes=check_count(n_classes, "n_classes", "classes", least=2),
        dim=dim,
        spread=spread,
        auc=auc,
        unexplained=unexplained,
        prevalence=prevalence,
        readers=readers,
        correlation=correlation,
        rng=rng,
    )
    groups = _draw_groups(n, n_groups, rng)
    X = _draw_features(groups, dim, rng)
    vote_probability, counts = _draw_votes(model, model.scores(X), rng)
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
    spread = check_above(spread, "spread")
    n_directions = n_classes
    if n_classes == 2:
        n_directions = 1
    if dim < n_directions:
        raise InputError(f"dim must be at least {n_directions} for {n_classes} classes, got {dim}")
    if n_classes > 2 and (auc is not None or prevalence is not None or readers == "unequal"):
        raise InputError(
            f"auc, prevalence and unequal readers are for two classes, n_classes is {n_classes}. "
            "Set the difficulty with spread."
        )
    directions = np.linalg.qr(rng.standard_normal((dim, n_directions)))[0]
    alike = readers == "alike"
    slopes, biases = np.ones(n_raters), np.zeros(n_raters)
    if not alike:
        slopes = np.exp(0.3 * rng.standard_normal(n_raters))
        biases = 0.7 * rng.standard_normal(n_raters)
    model = ReaderModel(
        directions=directions,
        intercept=0.0,
        spread=float(spread),
        unexplained=float(unexplained),
        correlation=float(correlation),
        slopes=slopes,
        biases=biases,
    )
    if n_classes > 2:
        return model
    target = 0.5 if prevalence is None else check_inside(prevalence, "prevalence")

    def at_spread(s: float) -> ReaderModel:
        moved = replace(model, spread=s)
        # By symmetry alike readers and equal classes need no intercept.
        if alike and target == 0.5:
            return moved
        return replace(moved, intercept=solve_intercept(moved, target))

    return at_spread(model.spread if auc is None else _solve_spread(at_spread, auc))


def _solve_spread(at_spread: Callable[[float], ReaderModel], auc: float) -> float:
    """Spread at which a perfect model reaches `auc`."""
    check_unit(auc, "auc")
    most = best_auc(at_spread(_MAX_SPREAD))
    if not 0.5 < auc < most:
        raise InputError(
            f"auc must lie between 0.5 and {most:.3f} (the most that can be had with this share of "
            f"unexplained variance), got {auc:g}. Lower unexplained."
        )
    root = brentq(lambda s: best_auc(at_spread(s)) - auc, 1e-3, _MAX_SPREAD, xtol=1e-6)
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


def _draw_features(groups: Int, dim: int, rng: np.random.Generator) -> Float:
    """Embeddings, standard normal in every direction; cases of a group have a part in common."""
    n = len(groups)
    x = rng.standard_normal((n, dim))
    if groups[-1] + 1 < n:
        centre = rng.standard_normal((groups[-1] + 1, dim))
        x = np.sqrt(1.0 - _GROUP_SHARE) * x + np.sqrt(_GROUP_SHARE) * centre[groups]
    return x


def _draw_votes(model: ReaderModel, t: Float, rng: np.random.Generator) -> tuple[Float, Int]:
    """Vote probability per case, and the votes themselves for each class."""
    n, m, g = len(t), model.n_raters, np.sqrt(model.correlation)
    # Drawn at a correlation of 0 too, so that a seed has the same cases at any correlation.
    joins = rng.random((n, m)) < g
    if model.n_classes == 2:
        alone = model.reader_shares(t, rng.standard_normal(n))
        shares = alone.mean(axis=0)
        common = rng.random(n) < shares
        ballots = np.where(joins, common[:, None], rng.random((n, m)) < alone.T)
        positive = ballots.sum(axis=1).astype(np.int64)
        return shares, np.column_stack([m - positive, positive])
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
