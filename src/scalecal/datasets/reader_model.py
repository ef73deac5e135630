"""A panel of readers whose votes follow from the features by a known law.

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

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, softmax

from scalecal.checks import Float, InputError
from scalecal.jury import jury_probability

__all__ = ["ReaderModel"]

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
        return self.vote_probability_at(self.scores(X))

    def vote_distribution(self, X: Float) -> Float:
        """P(v of m readers vote for class 1 | features), v = 0 .. m: (n, m + 1), two classes only."""
        return self.vote_distribution_at(self.scores(X))

    def label_probability_at(self, t: Float) -> Float:
        """`label_probability` as a function of the scores."""
        if self.n_classes == 2:
            return majority_share(self.vote_distribution_at(t))
        return _in_chunks(self._plurality_at, t)

    def vote_probability_at(self, t: Float) -> Float:
        """`vote_probability` as a function of the scores."""
        if self.n_classes == 2:
            m = self.n_raters
            return self.vote_distribution_at(t) @ (np.arange(m + 1) / m)
        return _in_chunks(lambda part: self.class_shares(part[:, None], bumps(self)).mean(1), t)

    def vote_distribution_at(self, t: Float) -> Float:
        """`vote_distribution` as a function of the scores."""
        if self.n_classes != 2:
            raise InputError(
                f"the distribution of one vote count needs two classes, got {self.n_classes}"
            )
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


def majority_share(law: Float) -> Float:
    """P(majority votes for class 1) from the law of the vote count, an even split counting half."""
    m = law.shape[-1] - 1
    v = np.arange(m + 1)
    share: Float = law @ np.where(2 * v > m, 1.0, np.where(2 * v == m, 0.5, 0.0))
    return share


def _plurality(shares: Float, n_raters: int) -> Float:
    """P(class k gets the most of m multinomial votes), ties split evenly, along the last axis."""
    flat = shares.reshape(-1, shares.shape[-1])
    return jury_probability(flat, n_raters).reshape(shares.shape)


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
