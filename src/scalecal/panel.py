"""The panel: from one reader's vote to the label of a panel, and back.

Readers are exchangeable, so given what a model sees of a case its votes are draws with a common
probability P that has a law of its own (de Finetti). Here that law is Beta with mean :math:`\\mu` and
correlation :math:`\\rho`, so that

* k of m votes are beta-binomial (Dirichlet-multinomial with more than two classes);
* the label, what most of m readers said, has the probability :math:`T_m(\\mu, \\rho)`, the upper tail
  of that law (a tie counts half);
* a calibrated probability q of the label implies a reader's probability :math:`T_m^{-1}(q; \\rho)`.

:math:`\\rho` is the correlation of two readers' votes on a case that the features do not explain.
:math:`\\rho = 0` is the jury map of Condorcet (the vote probability is a function of the features);
towards 1 all readers agree given the features, and a vote is the label.

Everything works on logits, where both tails keep their digits: (n,) of the positive class for two
classes, or (n, C), whose answers are normalised log-probabilities.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize, minimize_scalar, root
from scipy.special import (
    expit,
    gammaln,
    log_expit,
    log_softmax,
    logit,
    logsumexp,
    softmax,
    stdtrit,
)

from scalecal.checks import (
    MAX_RHO,
    Float,
    InputError,
    Int,
    as_float,
    check_above,
    check_choice,
    check_counts,
    check_finite,
    check_groups,
    check_logits,
    check_number,
    check_unit,
    check_weights,
    plain,
)
from scalecal.limits import MIN_GROUPS, check_count, check_limit
from scalecal.votes import check_sides, clear_majority

__all__ = [
    "Panel",
    "fit_panel",
    "fit_panel_from_summary",
    "label_logit",
    "panel_range",
    "reader_logit",
    "split_probability",
    "vote_log_pmf",
]

_BLOCK = 8192


def check_rho(rho: float) -> float:
    """Return a correlation in [0, 0.99] as a float."""
    value = check_number(rho, "rho", f"lie in [0, {MAX_RHO}]")
    if not 0.0 <= value <= MAX_RHO:
        raise InputError(f"rho must lie in [0, {MAX_RHO}], got {rho!r}")
    return value


def check_sizes(n_raters: ArrayLike, n: int, name: str = "n_raters") -> Int:
    """Return the number of readers of each of n cases."""
    m = as_float(n_raters, name)
    if m.ndim > 1 or (m.ndim == 1 and len(m) != n):
        raise InputError(f"{name} must be one number or one per case ({n}), got shape {m.shape}")
    bad = ~(np.isfinite(m) & (m >= 1) & (m == np.round(m)))
    if bad.any():
        raise InputError(f"{name} must be whole numbers of at least 1, got {m[bad].flat[0]:g}")
    check_limit(int(m.max()), "readers", name)
    return np.broadcast_to(m, (n,)).astype(np.int64)


def _parts(sizes: Int) -> Iterator[tuple[int, Int]]:
    """Each number of readers with its rows, a block of them at a time."""
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size)
        for start in range(0, len(rows), _BLOCK):
            yield int(size), rows[start : start + _BLOCK]


# The two forms of logits ---------------------------------------------------------------------------


def count_classes(z: Float) -> int:
    """Number of classes of logits of either form."""
    return 2 if z.ndim == 1 else z.shape[1]


def probabilities(z: Float) -> Float:
    """Probabilities of the positive class (n,), or of all classes (n, C), in the form of the logits."""
    if z.ndim == 1:
        return np.asarray(expit(z))
    return np.asarray(softmax(z, axis=1))


def class_probabilities(logits: Float) -> Float:
    """Probabilities of each class (n, C), from logits of either form.

    Examples
    --------
    >>> class_probabilities(np.array([0.0]))
    array([[0.5, 0.5]])
    """
    if logits.ndim == 1:
        return np.column_stack([expit(-logits), expit(logits)])
    return np.asarray(softmax(logits, axis=1))


def normalised(z: Float) -> Float:
    """Two-class logits as they are, others as log-probabilities."""
    return z if z.ndim == 1 else np.asarray(log_softmax(z, axis=1))


def log_odds(z: Float, c: int) -> Float:
    """Log-odds of class c against all others, from (n, C) logits."""
    return np.asarray(z[:, c] - logsumexp(np.delete(z, c, axis=1), axis=1))


# The law of k of m votes --------------------------------------------------------------------------


class _Factors:
    r"""The factors of the beta-binomial law, for logits z of its mean (n,); continuous at rho = 0.

    .. math:: P(k) = \binom{m}{k}
              \frac{\prod_{i<k} a_i \prod_{j<m-k} b_j}{\prod_{l<m} (1 - \rho + l \rho)}, \quad
              a_i = (1 - \rho) \mu + i \rho, \quad b_j = (1 - \rho) (1 - \mu) + j \rho

    `up` and `down` hold log a_i and log b_j, (n, m), and `up_z` and `down_z` their derivatives in z.
    The first factors come from the logit itself, so that both tails keep their digits.
    """

    def __init__(self, z: Float, rho: float, m: int) -> None:
        self.rho = rho
        self.mu, self.nu = expit(z)[:, None], expit(-z)[:, None]
        self.up, self.up_z = _log_factors(log_expit(z), self.mu, self.nu, rho, m)
        self.down, self.down_z = _log_factors(log_expit(-z), self.nu, self.mu, rho, m)
        np.negative(self.down_z, out=self.down_z)

    def by_rho(self) -> tuple[Float, Float]:
        """Derivatives of `up` and `down` in rho, which must be positive."""
        i = np.arange(self.up.shape[1])
        both = []
        for p in (self.mu, self.nu):
            factors = (1.0 - self.rho) * p + i * self.rho
            factors[:, 0] = 1.0
            slopes = (i - p) / factors
            slopes[:, 0] = -1.0 / (1.0 - self.rho)
            both.append(slopes)
        return both[0], both[1]


def _log_factors(log_p: Float, p: Float, rest: Float, rho: float, m: int) -> tuple[Float, Float]:
    """Logarithms of (1 - rho) p + i rho, i < m, and their derivatives in the logit of p."""
    log_first = log_p + np.log1p(-rho)
    if rho == 0.0:
        return np.repeat(log_first[:, None], m, axis=1), np.repeat(rest, m, axis=1)
    kept = (1.0 - rho) * p
    factors = kept + np.arange(m) * rho
    factors[:, 0] = 1.0
    logs, slopes = np.log(factors), kept * rest / factors
    logs[:, 0], slopes[:, 0] = log_first, rest[:, 0]
    return logs, slopes


def _by_count(up: Float, down: Float) -> Float:
    """Sum `up` over i < k and `down` over j < m - k, for k = 0 .. m."""
    n, m = up.shape
    total = np.zeros((n, m + 1))
    np.cumsum(up, axis=1, out=total[:, 1:])
    total[:, :m] += np.cumsum(down, axis=1)[:, ::-1]
    return total


@lru_cache(maxsize=64)
def _log_choose(m: int) -> Float:
    k = np.arange(m + 1)
    return np.asarray(gammaln(m + 1) - gammaln(k + 1) - gammaln(m - k + 1))


def _log_whole(rho: float, m: int) -> float:
    """Logarithm of the law's denominator."""
    return float(np.log1p(rho * (np.arange(m) - 1.0)).sum())


def _log_pmf(z: Float, rho: float, m: int) -> Float:
    factors = _Factors(z, rho, m)
    return np.asarray(_by_count(factors.up, factors.down) + _log_choose(m) - _log_whole(rho, m))


def vote_log_pmf(logits: ArrayLike, rho: float, n_raters: int) -> Float:
    """Log-probability that k of m readers vote for the positive class, k = 0 .. m.

    Parameters
    ----------
    logits : array (n,) or (n, C)
        Logits of the probability that one reader does, or of each class.
    rho : float
        Correlation of two readers' votes on a case, 0 to 0.99.
    n_raters : int
        Readers m.

    Returns
    -------
    array (n, m + 1) or (n, C, m + 1)
        For C classes the law of each class's own count.

    Examples
    --------
    >>> np.exp(vote_log_pmf([0.0], 0.0, 2)).round(3).tolist()
    [[0.25, 0.5, 0.25]]
    >>> np.exp(vote_log_pmf([0.0], 0.5, 2)).round(3).tolist()
    [[0.375, 0.25, 0.375]]
    """
    z = check_logits(logits)
    m = check_count(n_raters, "n_raters", "readers")
    rho = check_rho(rho)
    if z.ndim == 1:
        return _log_pmf(z, rho, m)
    return _log_pmf(_class_logits(z).ravel(), rho, m).reshape(*z.shape, m + 1)


def _class_logits(z: Float) -> Float:
    """Logit of each class against all others, from (n, C)."""
    return np.column_stack([log_odds(z, c) for c in range(z.shape[1])])


def count_log_law(votes: Int, z: Float, rho: float) -> Float:
    """Log-probability of a panel's votes (n,): beta-binomial, or Dirichlet-multinomial.

    Parameters
    ----------
    votes : array (n, C)
        Votes for each class; panels may differ in size, and a case without votes gets 0.
    z : array (n,) or (n, C)
        Logits of a reader's probability.
    rho : float

    Examples
    --------
    >>> votes = np.array([[1, 1], [2, 0], [0, 0]])
    >>> np.exp(count_log_law(votes, np.zeros(3), 0.5)).round(3).tolist()
    [0.25, 0.375, 1.0]
    """
    # One row per class: numpy is slow to sum along an axis as short as the classes.
    if z.ndim == 1:
        log_p = np.stack([log_expit(-z), log_expit(z)])
    else:
        log_p = np.ascontiguousarray(log_softmax(z, axis=1).T)
    votes = np.ascontiguousarray(votes.T)
    m = votes.sum(axis=0)
    total = gammaln(m + 1) - gammaln(votes + 1).sum(axis=0)
    kept = (1.0 - rho) * np.exp(log_p)
    for i in range(int(m.max(initial=0))):
        factor = np.log(kept + i * rho) if i * rho > 0.0 else np.log1p(-rho) + log_p
        total += np.where(votes > i, factor, 0.0).sum(axis=0)
        total -= np.where(m > i, np.log1p(rho * (i - 1.0)), 0.0)
    return np.asarray(total)


def split_probability(logits: ArrayLike, rho: float, n_raters: ArrayLike) -> Float:
    r"""Probability that m readers split: low agreement, as `scalecal.votes.strata` defines it.

    The largest class then has at most :math:`t = \max(\lfloor (m+1)/2 \rfloor, \lfloor 4m/7 \rfloor)`
    votes. Two classes cannot both have more than t, so the probability is
    :math:`P(n_1 \le t) - \sum_{c > 1} P(n_c > t)`; with class 1 the most likely one nothing cancels.

    Parameters
    ----------
    logits : array (n,) or (n, C)
        Logits of a reader's probability.
    rho : float
    n_raters : int or array (n,)
        Readers m; NaN is returned if there are fewer than two.

    Examples
    --------
    >>> split_probability([0.0, 3.0], 0.0, 7).round(3).tolist()
    [0.547, 0.003]
    """
    z = check_logits(logits)
    rho = check_rho(rho)
    sizes = check_sizes(n_raters, len(z))
    if z.ndim == 2:
        against = -np.sort(-_class_logits(z), axis=1)
    else:  # one logit is enough: the law of one count is that of the other, read backwards
        against = np.abs(z)[:, None] * [1.0, -1.0]
    out = np.full(len(z), np.nan)
    for m, rows in _parts(sizes):
        if m < 2:
            continue
        most = max((m + 1) // 2, 4 * m // 7)
        split = np.exp(_log_pmf(against[rows, 0], rho, m))[:, : most + 1].sum(axis=1)
        for other in against[rows, 1:].T:
            split -= np.exp(_log_pmf(other, rho, m))[:, most + 1 :].sum(axis=1)
        out[rows] = np.maximum(split, 0.0)
    return out


# The label of a panel, and its inverse ------------------------------------------------------------


def label_logit(logits: ArrayLike, rho: float, n_raters: ArrayLike) -> Float:
    r"""Logit of the panel's label, from the logit of one reader's vote: :math:`T_m`.

    The label is the class with most of m votes. Ties are shared, so that with two classes
    :math:`T_m = T_{m-1}` for even m, and :math:`T_2` is the identity.

    Parameters
    ----------
    logits : array (n,) or (n, C)
        Logits of a reader's probability.
    rho : float
    n_raters : int or array (n,)

    Returns
    -------
    array of the same shape
        For (n, C) normalised log-probabilities.

    Examples
    --------
    >>> expit(label_logit(logit([0.6, 0.9]), 0.0, 7)).round(3).tolist()
    [0.71, 0.997]
    >>> expit(label_logit(logit([0.6, 0.9]), 0.3, 7)).round(3).tolist()
    [0.63, 0.941]
    >>> np.exp(label_logit(np.log([[0.5, 0.3, 0.2]]), 0.0, 7)).round(3).tolist()
    [[0.663, 0.238, 0.1]]
    """
    z = check_logits(logits)
    sizes = check_sizes(n_raters, len(z))
    return _mapped(z, check_rho(rho), sizes, _label, _plurality_odds)


def reader_logit(logits: ArrayLike, rho: float, n_raters: ArrayLike) -> Float:
    r"""Logit of one reader's vote, from the logit of the panel's label: :math:`T_m^{-1}`.

    Parameters
    ----------
    logits : array (n,) or (n, C)
        Logits of calibrated probabilities of the label.
    rho : float
    n_raters : int or array (n,)

    Returns
    -------
    array of the same shape
        For (n, C) normalised log-probabilities.

    Examples
    --------
    >>> expit(reader_logit(logit([0.5, 0.71, 0.997]), 0.0, 7)).round(2).tolist()
    [0.5, 0.6, 0.9]
    >>> reader_logit([3.0], 0.2, 1).tolist()
    [3.0]
    """
    z = check_logits(logits)
    sizes = check_sizes(n_raters, len(z))
    return _mapped(z, check_rho(rho), sizes, _reader, _solve_plurality)


def _mapped(
    z: Float,
    rho: float,
    sizes: Int,
    two: Callable[[Float, float, int], Float],
    several: Callable[[Float, float, int], Float],
) -> Float:
    """Apply a map of logits (two classes), or of log-odds against the most likely class (several)."""
    out = np.empty_like(z)
    for m, rows in _parts(sizes):
        part = z[rows]
        if z.ndim == 1:
            out[rows] = two(part, rho, m)
        elif z.shape[1] == 2:
            mapped = two(part[:, 1] - part[:, 0], rho, m)
            out[rows] = np.column_stack([log_expit(-mapped), log_expit(mapped)])
        else:
            out[rows] = _ordered(part, rho, m, several)
    return out


def _odd(m: Any) -> Any:
    """Readers of the odd panel with the same label law: with ties shared, 2 k readers are as 2 k - 1."""
    return (m - 1) // 2 * 2 + 1


def _label(z: Float, rho: float, m: int) -> Float:
    """Logit of the label's probability, two classes: an odd function, straight near 0."""
    m = _odd(m)
    if m == 1:
        return z.copy()
    far = np.abs(z) > _STRAIGHT
    out = z * _centre_slope(rho, m)
    out[far] = np.copysign(_tails(_Factors(np.abs(z[far]), rho, m), m)[0], z[far])
    return out


_STRAIGHT = 1e-6
"""Up to this logit rounding would cost more digits of the label's logit than a straight line does."""


@lru_cache(maxsize=64)
def _centre_slope(rho: float, m: int) -> float:
    """Derivative of the label's logit in the reader's at 0."""
    centre = _Factors(np.zeros(1), rho, m)
    return float(_label_slope(centre, _tails(centre, m)[1])[0])


def _tails(factors: _Factors, m: int) -> tuple[Float, Float]:
    """Logit of the upper tail of an odd panel's law, and what each count adds to its derivative.

    The derivative of the logit is the mean derivative of log P(k) over the upper tail less that over
    the lower one; the second answer holds these weights, (n, m + 1).
    """
    half = (m + 1) // 2
    # One row per count: numpy is slow to sum along an axis as short as a panel.
    law = _by_count(factors.up[:, :m], factors.down[:, :m]).T.copy()
    law += _log_choose(m)[:, None]
    value, sign = np.zeros(law.shape[1]), 1.0
    for part in (slice(half, None), slice(None, half)):
        inside = law[part]
        most = inside.max(axis=0)
        inside -= most
        np.exp(inside, out=inside)
        whole = inside.sum(axis=0)
        value += sign * (most + np.log(whole))
        inside *= sign / whole
        sign = -1.0
    return value, law.T


def _label_slope(factors: _Factors, weights: Float) -> Float:
    """Derivative of the label's logit in the reader's."""
    m = weights.shape[1] - 1
    by_logit = _by_count(factors.up_z[:, :m], factors.down_z[:, :m])
    return np.asarray(np.einsum("nk,nk->n", weights, by_logit))


def _reader(q: Float, rho: float, m: int) -> Float:
    """Logit of a reader's probability, two classes."""
    m = _odd(m)
    if m == 1:
        return q.copy()
    return _newton(q, rho, m)


def _newton(q: Float, rho: float, m: int, start: Float | None = None) -> Float:
    """Invert `_label` for an odd panel: Newton's method between 0 and the label's logit."""
    target = np.abs(q)
    low, high = np.zeros_like(target), target.copy()
    straight = target / _centre_slope(rho, m)
    active = np.flatnonzero(straight > _STRAIGHT)
    z = straight
    if start is not None:
        z[active] = np.clip(np.copysign(1.0, q) * start, low, high)[active]
    for _ in range(200):
        if len(active) == 0:
            return np.asarray(np.copysign(z, q))
        here = z[active]
        factors = _Factors(here, rho, m)
        value, weights = _tails(factors, m)
        gap = value - target[active]
        above = gap > 0
        high[active[above]] = here[above]
        low[active[~above]] = here[~above]
        new = here - gap / _label_slope(factors, weights)
        outside = ~((new > low[active]) & (new < high[active])) & (new != here)
        new[outside] = 0.5 * (low[active[outside]] + high[active[outside]])
        z[active] = new
        # Newton squares the error: after a step this small the next would be lost in rounding.
        active = active[np.abs(new - here) > 1e-8 * new + 1e-13]
    raise RuntimeError(f"the label's inverse did not converge for {len(active)} cases")


# More than two classes ----------------------------------------------------------------------------

_PLURALITY_BLOCK = 512
_LOG_TAIL = -300.0
"""Labels less likely than this, in logs against the first class, are solved here and continued."""
_LOG_SMALLEST = -600.0
"""Labels less likely than about this are computed here and continued, so that nothing underflows."""


def _ordered(z: Float, rho: float, m: int, function: Callable[[Float, float, int], Float]) -> Float:
    """Apply a map of log-odds against the most likely class; return normalised log-probabilities.

    Sorted, so that the answer cannot depend on the classes' order.
    """
    order = np.argsort(-z, axis=1, kind="stable")
    z = np.take_along_axis(z, order, axis=1)
    odds = z[:, 1:] - z[:, :1]
    if m > 2:  # with two votes a tie is shared: half of each vote, hence the vote itself
        odds = function(odds, rho, m)
    out = np.empty_like(z)
    np.put_along_axis(out, order, _normalised(odds), axis=1)
    return out


def _normalised(odds: Float) -> Float:
    """Log-probabilities from log-odds against the first class."""
    return np.asarray(log_softmax(np.column_stack([np.zeros(len(odds)), odds]), axis=1))


def _plurality_odds(x: Float, rho: float, m: int) -> Float:
    """The label's log-odds against the first class, from a vote's, (n, C - 1).

    A class far behind is taken to win as it would with a bare majority alone: its probability falls
    as that majority's factors do.
    """
    least = _least_odds(rho, m)
    near = np.maximum(x, least)
    log_label = np.log(_plurality(np.exp(_normalised(near)), rho, m))
    beyond = _majority_slope(np.array(least), rho, m) * (x - near)
    return np.asarray(log_label[:, 1:] - log_label[:, :1] + beyond)


def _majority_slope(log_p: Float, rho: float, m: int) -> Float:
    """Derivative of the log-probability of a bare majority of votes in log p, for small p."""
    i = np.arange((m + 1) // 2)
    kept = (1.0 - rho) * np.exp(log_p)[..., None]
    factors = kept + i * rho
    return np.asarray(
        np.where(i * rho == 0.0, 1.0, kept / np.where(factors > 0, factors, 1)).sum(-1)
    )


@lru_cache(maxsize=64)
def _least_odds(rho: float, m: int) -> float:
    """Log p at which a bare majority of votes is as unlikely as `_LOG_SMALLEST`."""
    i = np.arange((m + 1) // 2)

    def off(log_p: float) -> float:
        if rho == 0.0:
            return len(i) * log_p - _LOG_SMALLEST
        factors = np.log((1.0 - rho) * np.exp(log_p) + i[1:] * rho)
        return float(log_p + np.log1p(-rho) + (factors - np.log1p(i[1:])).sum() - _LOG_SMALLEST)

    return float(brentq(off, _LOG_SMALLEST, 0.0))


def _plurality(p: Float, rho: float, m: int) -> Float:
    """Probability that each class has the plurality of m > 2 Dirichlet-multinomial votes, ties shared."""
    out = np.empty_like(p)
    for start in range(0, len(p), _PLURALITY_BLOCK):
        part = slice(start, start + _PLURALITY_BLOCK)
        out[part] = _plurality_block(np.ascontiguousarray(p[part].T), rho, m).T
    return out


def _plurality_block(p: Float, rho: float, m: int) -> Float:
    r"""Plurality probabilities of the columns of p (C, n).

    Above m / 2 votes a class has won: the tail of its beta-binomial count. Below, a class wins with t
    votes if every other has fewer, or as many with luck. Give each class a uniform number to break
    ties: the winner's is s, and another class loses with fewer votes, or with t votes and a smaller
    number, which has probability s. Dirichlet-multinomial counts are independent counts with weights
    :math:`w_c(k) = \prod_{i<k} ((1-\rho) p_c + i \rho) / k!` given their sum, so

    .. math:: P(c) = \sum_t \int_0^1 w_c(t) [x^{m-t}] \prod_{d \ne c}
              \bigl(\sum_{k<t} w_d(k) x^k + s w_d(t) x^t\bigr) ds \big/ w(m)

    The integrand is a polynomial in s whose degree is the number of classes that can tie, so a few
    Gauss nodes make the integral exact; all terms are positive, so nothing cancels.
    """
    n_classes = len(p)
    majority = m // 2
    rest = np.maximum(1.0 - p, np.finfo(np.float64).tiny)
    tail = np.exp(_log_pmf((np.log(p) - np.log(rest)).ravel(), rho, m)[:, majority + 1 :])
    total = tail.sum(axis=1).reshape(p.shape)
    i = np.arange(majority, dtype=np.float64)[:, None, None]
    # Scaled by m ** k, which leaves the ratio as it is and the numbers near one.
    steps = m * ((1.0 - rho) * p + i * rho) / (i + 1.0)
    weights = np.concatenate([np.ones((1, *p.shape)), np.cumprod(steps, axis=0)])  # (votes, C, n)
    j = np.arange(m, dtype=np.float64)
    whole = float(np.prod(m * (1.0 - rho + j * rho) / (j + 1.0)))
    for t in range(-(-m // n_classes), majority + 1):
        ties = min(n_classes - 1, m // t - 1)
        nodes, node_weights = np.polynomial.legendre.leggauss(ties // 2 + 1)
        lucks, node_weights = 0.5 * (nodes + 1.0), 0.5 * node_weights
        below = m - t
        factors = np.repeat(weights[: t + 1, :, None, :], len(lucks), axis=2)
        factors[t] *= lucks[:, None]  # (votes, C, nodes, n)
        before = _running_products(factors, below)
        after = _running_products(factors[:, ::-1], below)
        for c in range(n_classes):
            coefficient = (before[c] * after[n_classes - 1 - c][::-1]).sum(axis=0)
            total[c] += weights[t, c] * (node_weights @ coefficient) / whole
    return np.asarray(total)


def _running_products(factors: Float, degree: int) -> list[Float]:
    """Products of the first 0, 1, ..., C - 1 factors, up to x ** degree.

    `factors` has shape (coefficients, C, nodes, n); each product (degree + 1, nodes, n).
    """
    n_coefficients, n_classes = factors.shape[:2]
    one = np.zeros((degree + 1, *factors.shape[2:]))
    one[0] = 1.0
    products = [one]
    for c in range(n_classes - 1):
        new = np.zeros_like(one)
        for k in range(min(n_coefficients, degree + 1)):
            new[k:] += factors[k, c] * products[-1][: degree + 1 - k]
        products.append(new)
    return products


def _solve_plurality(log_ratio: Float, rho: float, m: int) -> Float:
    """Invert `_plurality_odds` (Broyden's method), starting as if each class met the first one alone."""
    target = np.maximum(log_ratio, _LOG_TAIL)

    def alone(odds: Float) -> Float:
        return _reader(odds.ravel(), rho, m).reshape(odds.shape)

    x = alone(target)
    value = _plurality_odds(x, rho, m)
    slope = alone(target + 0.5) - alone(target - 0.5)
    inverse = slope[:, :, None] * np.eye(x.shape[1])
    longest = min(3.0, 200.0 / (m + 1))  # keeps label probabilities from underflowing on the way
    active = np.arange(len(x))
    for _ in range(200):
        residual = value[active] - target[active]
        open_ = np.abs(residual).max(axis=1) > 1e-10 * (1.0 + np.abs(target[active]).max(axis=1))
        active, residual = active[open_], residual[open_]
        if len(active) == 0:
            break
        step = -np.einsum("nij,nj->ni", inverse[active], residual)
        step *= np.minimum(
            1.0, longest / np.maximum(np.abs(step).max(axis=1, keepdims=True), 1e-300)
        )
        x[active] += step
        new = _plurality_odds(x[active], rho, m)
        change = new - value[active]
        value[active] = new
        # Good Broyden update of the inverse Jacobian (Sherman and Morrison).
        push = np.einsum("nij,nj->ni", inverse[active], change)
        scale = np.einsum("ni,ni->n", step, push)
        left = np.einsum("ni,nij->nj", step, inverse[active])
        gain = (step - push) / np.where(scale == 0.0, np.inf, scale)[:, None]
        inverse[active] += gain[:, :, None] * left[:, None, :]
    else:
        raise RuntimeError(f"the label's inverse did not converge for {len(active)} cases")
    return np.asarray(x + (log_ratio - target) / _majority_slope(x, rho, m))


# The fitted panel ---------------------------------------------------------------------------------

UNKNOWN_READERS = (
    "a reader probability needs the agreement of readers beyond what the features explain: fit with "
    "votes of some cases (votes=, n_raters=), or with the readers' kappa and the panel's size (kappa=, "
    "n_raters=). scalecal.panel.panel_range shows the range of answers without either"
)


@dataclass(frozen=True, eq=False)
class Panel:
    """A fitted panel: from a probe's logit to the label's and to a reader's probability.

    With z the probe's logit, the label of a panel of `panel_size` readers has the logit
    ``intercept + slope * z``; a reader's is its inverse under `rho`, plus `shift`. Where the labels
    fitted were not the votes' majorities, a reader's is the inverse of ``voted[0] + voted[1] * z``
    instead, and the label's answer is not bent to the votes.

    Attributes
    ----------
    intercept : float or array (C,)
        One number for two classes, one per class for more; `shift` likewise.
    slope : float
    rho : float
        Correlation of two readers' votes on a case that the features do not explain; NaN: unknown,
        so that there is no reader probability.
    panel_size : int or None
        Readers behind the labels, if that is known.
    shift : float or array (C,)
        How much more readily a reader says positive than the label's probability implies, in logits;
        0 where votes were fitted.
    voted : (float, float) or None
        Intercept and slope of the label that the votes imply; None: those of the label.
    covariance : array (3, 3) or None
        Of (intercept, log slope, logit rho), from the curvature at the estimate; two classes and
        votes only. With `voted` the first two lead from the label's logit to the votes'.
    rho_low, rho_high : float
        95 % interval of `rho`, from its likelihood alone (widened to `rho` itself where the prior
        took that outside); NaN if it was not estimated from votes.
    note : str
        What a user should know about the fit.

    Examples
    --------
    >>> panel = Panel(intercept=0.0, slope=1.0, rho=0.2, panel_size=7)
    >>> expit(panel.label_logit([2.0])).round(2).tolist()
    [0.88]
    >>> expit(panel.reader_logit([2.0])).round(2).tolist()
    [0.8]
    >>> Panel.from_dict(panel.to_dict()).rho
    0.2
    """

    intercept: float | Float
    slope: float
    rho: float
    panel_size: int | None
    shift: float | Float = 0.0
    voted: tuple[float, float] | None = None
    covariance: Float | None = None
    rho_low: float = float("nan")
    rho_high: float = float("nan")
    note: str = ""

    @property
    def knows_readers(self) -> bool:
        """Whether there is a reader probability."""
        return self.panel_size is not None and bool(np.isfinite(self.rho))

    def size_of(self, n_raters: Any = None) -> Any:
        """Readers asked for, by default the panel's; fails if there is no reader probability."""
        if not self.knows_readers:
            raise InputError(UNKNOWN_READERS)
        return self.panel_size if n_raters is None else n_raters

    def label_logit(self, logits: ArrayLike, n_raters: ArrayLike | None = None) -> Float:
        """Logit of the probability that the label is positive, or log-probability of each class.

        `n_raters` are the readers behind that label, if they differ from `panel_size`; without a
        reader probability they change nothing.
        """
        z = check_logits(logits)
        if z.shape[1:] != np.shape(self.intercept):
            expected = ("n", *np.shape(self.intercept))
            raise InputError(
                f"logits must have the shape ({', '.join(map(str, expected))}), got {z.shape}"
            )
        q = normalised(np.asarray(self.intercept + self.slope * z))
        if n_raters is None or not self.knows_readers:
            return q
        m = check_sizes(n_raters, len(q))
        other = m != self.panel_size
        if other.any():
            reader = reader_logit(q[other], self.rho, self.size_of())
            q[other] = label_logit(reader, self.rho, m[other])
        return q

    def reader_logit(self, logits: ArrayLike) -> Float:
        """Logit of the probability that one reader votes positive, or for each class."""
        label = self.label_logit(logits)
        if self.voted is not None:
            label = self.voted[0] + self.voted[1] * check_logits(logits)
        return normalised(reader_logit(label, self.rho, self.size_of()) + self.shift)

    def mismatch(self, logits: ArrayLike) -> float:
        """Mean distance between the label's probability and the tail of the law of votes.

        Zero where one fit serves both; else it says how far the two answers are from one model.
        """
        label = self.label_logit(logits)
        tail = label_logit(self.reader_logit(logits), self.rho, self.size_of())
        return float(np.abs(probabilities(tail) - probabilities(label)).mean())

    def sentence(self) -> str:
        """What the panel found, in words."""
        if not self.knows_readers:
            return "How far readers agree beyond the features is unknown: there is no reader probability."
        between = note = ""
        if np.isfinite(self.rho_low):
            between = f" (95 % interval {self.rho_low:.2f} to {self.rho_high:.2f})"
        if self.note:
            note = f"; {self.note}"
        return (
            f"Panel of {self.panel_size}: votes on a case correlate by rho = {self.rho:.2f}{between} beyond "
            f"what the features explain{note}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the panel as numbers and lists that JSON can hold; NaN as None."""
        stored: dict[str, Any] = plain(vars(self))
        return stored

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Panel:
        """Return the panel that `to_dict` stored."""
        try:
            values = msgspec.structs.asdict(msgspec.convert(stored, _StoredPanel))
        except msgspec.ValidationError as error:
            raise InputError(f"this is not a fitted panel: {error}") from None
        for name, value in values.items():
            if isinstance(value, list):
                values[name] = check_finite(as_float(value, name), name)
            elif value is None and name.startswith("rho"):
                values[name] = float("nan")
        if np.shape(values["shift"]) not in ((), np.shape(values["intercept"])):
            raise InputError(f"a panel's shift has the shape {np.shape(values['shift'])}")
        return cls(**values)


_Above0 = Annotated[float, msgspec.Meta(gt=0.0)]


class _StoredPanel(msgspec.Struct, forbid_unknown_fields=True):
    """A fitted panel as `Panel.to_dict` stores it; null where a number is unknown."""

    intercept: float | list[float]
    slope: _Above0
    rho: Annotated[float, msgspec.Meta(ge=0.0, le=MAX_RHO)] | None
    panel_size: Annotated[int, msgspec.Meta(ge=1)] | None
    shift: float | list[float]
    voted: tuple[float, _Above0] | None
    covariance: list[tuple[float, float, float]] | None
    rho_low: float | None
    rho_high: float | None
    note: str


# Fits ---------------------------------------------------------------------------------------------

PRIOR_SD_INTERCEPT = 0.3
PRIOR_SD_SHIFTED = 2.0
"""Of the intercept, where logits may be off by a constant: class weights, or a foreign model."""
PRIOR_SD_APART = 1.0
"""Of the intercept, where the votes are not what decided the labels."""
PRIOR_SD_LOG_SLOPE = 1.0
MAX_MISMATCH = 0.05
"""Mean distance of the label's probability from that of a majority of votes above which they are two
questions: where labels are majorities it was .002 to .038 in simulations, where they are a gold standard
.11."""
PRIOR_RHO = (0.15, 1.0)
"""Mean (as a correlation) and standard deviation (in logits) of the prior of rho."""


class _Objective:
    """Negative log posterior of (intercept, log slope, logit rho), with its gradient; two classes.

    Only the readers' logits need the label's inverse, so only voted cases and labels of panels other
    than the reference one go through it.
    """

    def __init__(
        self,
        z: Float,
        y: Float,
        k: Int,
        m: Int,
        panel_size: Int,
        reference: int,
        weight: Float,
        prior_sd: float,
    ) -> None:
        self.reference, self.prior_sd, self.sd_rho = _odd(reference), prior_sd, PRIOR_RHO[1]
        odd = _odd(panel_size)
        labelled = (m == 0) & np.isfinite(y)
        direct = labelled & (odd == self.reference)
        self.label_z, self.label_y, self.label_weight = z[direct], y[direct], weight[direct]
        other = np.flatnonzero((m > 0) | (labelled & ~direct))
        self.z, self.weight, k, m = z[other], weight[other], k[other], m[other]
        # Labels of panels other than the reference one, by the number of readers.
        self.other_labels: list[tuple[int, Int, Float]] = []
        for size in np.unique(odd[other][m == 0]):
            rows = np.flatnonzero((m == 0) & (odd[other] == size))
            self.other_labels.append((int(size), rows, y[other][rows]))
        sizes = [self.reference, int(m.max(initial=1)), *(size for size, *_ in self.other_labels)]
        self.i = np.arange(max(sizes))
        # Which factors of the law of votes each case's count has; none for a label.
        self.up = (self.i < k[:, None]).astype(np.float64)
        self.down = (self.i < (m - k)[:, None]).astype(np.float64)
        self.whole = self.weight @ (self.i < m[:, None])
        choose = gammaln(m + 1) - gammaln(k + 1) - gammaln(m - k + 1)
        self.constant = float(self.weight @ choose)
        self.last: tuple[Float, float, Float, Float, Float] | None = None

    def _readers(self, q: Float, rho: float) -> Float:
        """Readers' logits, from a first-order guess at those of the last call."""
        if self.reference == 1:
            return q
        start = None
        if self.last is not None:
            last_q, last_rho, mu, by_q, by_rho = self.last
            start = mu + by_q * (q - last_q) + by_rho * (rho - last_rho)
        return _newton(q, rho, self.reference, start)

    def log_likelihood(self, a: float, log_b: float, rho: float) -> tuple[float, Float]:
        """Log-likelihood and its derivatives in the intercept, the log slope and rho > 0."""
        b = np.exp(log_b)
        q = a + b * self.label_z
        residual = self.label_weight * (self.label_y - expit(q))
        value = float(self.label_weight @ (log_expit(q) - (1.0 - self.label_y) * q))
        gradient = np.array([residual.sum(), b * (residual @ self.label_z), 0.0])
        if len(self.z) == 0:
            return value, gradient
        q = a + b * self.z
        mu = self._readers(q, rho)
        law = _Factors(mu, rho, len(self.i))
        up_rho, down_rho = law.by_rho()

        def counted(up: Float, down: Float) -> Float:
            return np.asarray((self.up * up).sum(axis=1) + (self.down * down).sum(axis=1))

        value += float(self.weight @ counted(law.up, law.down)) + self.constant
        value -= float(self.whole @ np.log1p(rho * (self.i - 1.0)))
        by_mu = self.weight * counted(law.up_z, law.down_z)
        by_rho = float(self.weight @ counted(up_rho, down_rho))
        by_rho -= float(self.whole @ ((self.i - 1.0) / (1.0 + rho * (self.i - 1.0))))

        def label(m: int) -> tuple[Float, Float, Float]:
            if m == 1:
                return mu, np.ones_like(mu), np.zeros_like(mu)
            logits, weights = _tails(law, m)
            moved = _by_count(up_rho[:, :m], down_rho[:, :m])
            return logits, _label_slope(law, weights), np.einsum("nk,nk->n", weights, moved)

        for size, rows, y in self.other_labels:
            logits, slope, by = (part[rows] for part in label(size))
            value += float(self.weight[rows] @ (log_expit(logits) - (1.0 - y) * logits))
            residual = self.weight[rows] * (y - expit(logits))
            by_mu[rows] += residual * slope
            by_rho += float(residual @ by)
        # How a reader's logit moves with the label's and with rho.
        _, slope, by = label(self.reference)
        mu_q, mu_rho = 1.0 / slope, -by / slope
        self.last = (q, rho, mu, mu_q, mu_rho)
        by_q = by_mu * mu_q
        gradient += [by_q.sum(), b * (by_q @ self.z), by_rho + by_mu @ mu_rho]
        return value, gradient

    def __call__(self, theta: Float) -> tuple[float, Float]:
        rho = float(expit(theta[2]))
        value, gradient = self.log_likelihood(theta[0], theta[1], min(rho, MAX_RHO))
        if rho < MAX_RHO:
            gradient[2] *= rho * (1.0 - rho)
        else:
            gradient[2] = 0.0
        centre = np.array([0.0, 0.0, logit(PRIOR_RHO[0])])
        scale = np.array([self.prior_sd, PRIOR_SD_LOG_SLOPE, self.sd_rho])
        return _with_prior(value, gradient, (theta - centre) / scale, scale)

    def at_rho(self, rho: float) -> tuple[float, float]:
        """The best intercept and log slope for a correlation that is known."""

        def loss(ab: Float) -> tuple[float, Float]:
            value, gradient = self.log_likelihood(ab[0], ab[1], max(rho, 1e-9))
            scale = np.array([self.prior_sd, PRIOR_SD_LOG_SLOPE])
            return _with_prior(value, gradient[:2], ab / scale, scale)

        z = np.concatenate([self.label_z, self.z])
        weight = np.concatenate([self.label_weight, self.weight])
        rough = _start_covariance(z, weight, self.prior_sd)
        (a, log_b), _ = _minimise(loss, np.zeros(2), rough)
        return float(a), float(log_b)


def _with_prior(value: float, gradient: Float, off: Float, scale: Float) -> tuple[float, Float]:
    """Negative log posterior and its gradient, from a log-likelihood and its own.

    The prior is normal: `off` is the distance from its mean in standard deviations, `scale`.
    """
    return float(0.5 * off @ off - value), off / scale - gradient


def _start_covariance(z: Float, weight: Float, prior_sd: float) -> Float:
    """Rough covariance of intercept and log slope: as if every case were a label with q = sigmoid(z)."""
    known = weight * expit(z) * expit(-z)
    design = np.column_stack([np.ones_like(z), z])
    return np.asarray(
        np.linalg.inv(
            design.T @ (known[:, None] * design) + np.diag([prior_sd**-2, PRIOR_SD_LOG_SLOPE**-2])
        )
    )


def _minimise(
    loss: Callable[[Float], tuple[float, Float]], start: Float, covariance: Float
) -> tuple[Float, float]:
    """Where a loss is least, by BFGS in units of a rough covariance, and its value there.

    In these units a gradient of 1e-5 is an error of about 1e-5 standard deviations.
    """
    unit = np.linalg.cholesky(covariance)

    def scaled(u: Float) -> tuple[float, Float]:
        value, gradient = loss(start + unit @ u)
        return value, unit.T @ gradient

    best = minimize(scaled, np.zeros(len(start)), jac=True, method="BFGS", options={"gtol": 1e-5})
    return np.asarray(start + unit @ best.x), float(best.fun)


def fit_panel(
    logits: ArrayLike,
    y: ArrayLike | None = None,
    votes: ArrayLike | None = None,
    n_raters: ArrayLike | None = None,
    *,
    panel_size: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    prior_sd: float = PRIOR_SD_INTERCEPT,
    interval: bool = True,
) -> Panel:
    """Fit a panel to any mix of voted, singly read and labelled cases, by maximum a posteriori.

    For rho and the reader probability a case with votes enters by them, one with a label only by its
    label. Where labels are the majority of the votes, one fit serves both answers, and the label's is
    the upper tail of the law of votes. Where more than one in twenty are not (ties broken by a
    rating, a consensus) and no fewer cases have a label than votes, the label's answer is fitted to
    the labels alone, and the reader's to the votes alone. The logits must be out of sample: of a
    validation part or cross-fitted.

    With more than two classes the fit has two steps: intercepts and slope from the labels (of voted
    cases too), then rho from the votes and from labels of other panel sizes.

    Parameters
    ----------
    logits : array (n,) or (n, C)
        A probe's logits.
    y : array (n,), optional
        Labels 0 .. C - 1; NaN where unknown.
    votes : array (n,) or (n, C), optional
        Positive votes, or votes for each class; NaN or none if a case was not read.
    n_raters : int or array (n,), optional
        Readers in `votes`, per case, where `votes` is (n,); without `votes` those behind `y`.
    panel_size : int or array (n,), optional
        Readers behind `y`; default: those in `votes`, if these are as many for every case.
    sample_weight : array (n,), optional
    prior_sd : float
        Prior standard deviation of the intercept; larger (2) for logits of a foreign model.
    groups : array (n,), optional
        Patient, slide, ... of each case: the covariance and the interval of rho then treat groups, not cases,
        as independent.
    interval : bool
        Whether to give rho a 95 % interval, from its profile likelihood. With groups the drop of the
        likelihood at its ends is multiplied by the ratio of the sandwich variance to the model's (Chandler
        and Bate, 2007, Biometrika 94) and by Student's t; with fewer than eight groups there is none.

    Raises
    ------
    InputError
        Where rho is not identified: it takes cases with two or more votes, or single reads together
        with labels of three or more readers, or labels of panels of different odd sizes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=2000)
    >>> p = rng.beta(2 * expit(z), 2 * expit(-z))     # rho = 1 / 3
    >>> panel = fit_panel(z, votes=rng.binomial(7, p), n_raters=7)
    >>> panel.rho_low < 1 / 3 < panel.rho_high
    True
    """
    check_choice(interval, (True, False), "interval")
    z = _panel_logits(logits)
    labels, counts = _observed(z, y, votes, n_raters)
    weight, prior_sd = case_weights(sample_weight, len(z)), check_above(prior_sd, "prior_sd")
    labels[weight == 0], counts[weight == 0] = np.nan, 0
    m = counts.sum(axis=1)
    if votes is None and panel_size is None:
        panel_size = n_raters
    labelled = np.isfinite(labels)
    sizes = _panel_sizes(panel_size, m, labelled)
    _check_identified(z, labels, m, sizes)
    majorities = _are_majorities(labels, counts, sizes)
    group = _group_codes(groups, len(z))
    observed = m > 0 if not labelled.any() else labelled
    reference = _commonest(sizes[observed])
    if z.ndim == 2:
        return _fit_classes(z, labels, counts, sizes, reference, weight, prior_sd, interval, group)
    a, b, apart = 0.0, 1.0, not majorities and labelled.sum() >= (m > 0).sum()
    if apart:
        # The label's answer comes from labels alone, the reader's from votes alone, starting there.
        at = _label_coefficients(
            z[labelled], labels[labelled], sizes[labelled], reference, weight[labelled], prior_sd
        )
        intercept, b = at(PRIOR_RHO[0])
        a = float(intercept)
        labels, prior_sd = np.full(len(z), np.nan), max(prior_sd, PRIOR_SD_APART)
    used = (m > 0) | np.isfinite(labels)
    objective = _Objective(a + b * z, labels, counts[:, 1], m, sizes, reference, weight, prior_sd)
    rough = np.eye(3)
    rough[:2, :2] = _start_covariance(a + b * z, weight * used, prior_sd)
    rough[2, 2] = 1.0 / (1.0 + 0.1 * weight[m > 1].sum())
    theta, _ = _minimise(objective, np.array([0.0, 0.0, logit(PRIOR_RHO[0])]), rough)
    covariance = _covariance(objective, theta)
    rho = float(min(expit(theta[2]), MAX_RHO))
    low = high = float("nan")
    drop = _DROP
    if group is not None and covariance is not None:

        def case_losses(theta: Float) -> Float:
            q = a + b * z
            q = theta[0] + np.exp(theta[1]) * q
            rho = min(float(expit(theta[2])), MAX_RHO)
            return _case_losses(q, labels, counts, sizes, reference, weight, rho)

        clustered, drop = _clustered(case_losses, theta, covariance, group)
        covariance = clustered
    if interval and np.isfinite(drop):
        low, high = _profile(objective, theta, covariance, drop)
        low, high = min(low, rho), max(high, rho)
    # Of the probe's logits: the objective saw a + b z.
    stretch = float(np.exp(theta[1]))
    line = float(theta[0] + stretch * a), stretch * b
    panel = Panel(*line, rho, reference, covariance=covariance, rho_low=low, rho_high=high)
    if apart:
        return replace(panel, intercept=a, slope=b, voted=line)
    return panel


def _panel_logits(logits: ArrayLike) -> Float:
    z = check_logits(logits)
    if z.ndim == 2 and z.shape[1] == 2:
        raise InputError(
            "logits of two classes must be (n,): of the positive class against the other"
        )
    return z


def case_weights(sample_weight: ArrayLike | None, n: int) -> Float:
    """Return the weight of each case, by default 1."""
    weight = check_weights(sample_weight, n, "sample_weight")
    return np.ones(n) if weight is None else weight


def _observed(
    z: Float, y: ArrayLike | None, votes: ArrayLike | None, n_raters: ArrayLike | None
) -> tuple[Float, Int]:
    """Labels (n,) (NaN: none) and votes for each class (n, C) (all zero: none)."""
    n, n_classes = len(z), count_classes(z)
    labels = np.full(n, np.nan)
    if y is not None:
        labels = np.array(as_float(y, "y"))
    if labels.shape != (n,):
        raise InputError(f"y must have one label per case ({n},), got shape {labels.shape}")
    if not np.isin(labels[np.isfinite(labels)], np.arange(n_classes)).all():
        raise InputError(f"y must be classes 0 .. {n_classes - 1}, or NaN where a label is unknown")
    if votes is None:
        return labels, np.zeros((n, n_classes), dtype=np.int64)
    return labels, read_votes(votes, n_raters, n, n_classes)


def read_votes(votes: ArrayLike, n_raters: ArrayLike | None, n: int, n_classes: int) -> Int:
    """Votes for each class (n, C); no vote at all where a case was not read (NaN)."""
    raw = as_float(votes, "votes")
    if raw.ndim not in (1, 2):
        raise InputError(f"votes must be 1-d (n,) or 2-d (n, classes), got shape {raw.shape}")
    missing = np.asarray(np.isnan(raw) if raw.ndim == 1 else np.isnan(raw).any(axis=-1))
    size = n_raters
    if missing.any():
        raw = np.where(missing if raw.ndim == 1 else missing[:, None], 0.0, raw)
        if n_raters is not None and len(missing) == n:
            size = np.where(missing, 0.0, as_float(n_raters, "n_raters"))
    elif n_raters is not None and np.isnan(as_float(n_raters, "n_raters")).any():
        raise InputError("n_raters must be known wherever votes are: give a number, or NaN votes")
    counts = check_counts(raw, size)
    if counts.shape != (n, n_classes):
        raise InputError(
            f"votes must have one row per case and one column per class, ({n}, {n_classes}), got "
            f"{counts.shape}"
        )
    check_limit(int(counts.sum(axis=1).max(initial=0)), "readers", "n_raters")
    return counts


def _panel_sizes(panel_size: ArrayLike | None, m: Int, labelled: NDArray[np.bool_]) -> Int:
    """Readers behind each case's label: its own votes', or those of all if they are as many."""
    if panel_size is not None:
        return check_sizes(panel_size, len(m), "panel_size")
    found = np.unique(m[m > 0])
    if len(found) == 1 and found[0] > 1:
        return np.full(len(m), found[0])
    if (labelled & (m == 0)).any():
        raise InputError(
            "panel_size, the number of readers behind each label, is needed: it is taken from the "
            "votes only where these are of two or more readers, as many for every case"
        )
    return np.maximum(m, 1)


def _commonest(sizes: Int) -> int:
    return int(np.bincount(sizes).argmax())


def _check_identified(z: Float, labels: Float, m: Int, sizes: Int) -> None:
    """Refuse where nothing identifies rho; `labels` of one panel size alone never do."""
    only_label = (m == 0) & np.isfinite(labels)
    # Panels with the same law of the label; of one or two readers it is that of a vote.
    kinds = np.unique(np.maximum(sizes[only_label], 2))
    if z.ndim == 1:
        kinds = np.unique(_odd(sizes[only_label]))
    if (m >= 2).any() or len(kinds) >= 2 or ((m == 1).any() and (kinds > 2).any()):
        return
    message = "rho, the correlation of readers' votes, is not identified by "
    if len(kinds) == 0 and not (m > 0).any():
        raise InputError("nothing to fit: no case has a label or a vote")
    if len(kinds) == 0:
        raise InputError(
            f"{message}single reads alone: a case that has a vote counts by it, not by its label. Give two "
            "or more votes on some cases, or leave some that have a label of three or more readers (their "
            "number is panel_size) without a vote, or give the readers' kappa and no votes."
        )
    if kinds[0] <= 2:
        raise InputError(f"{message}labels of one or two readers. Give votes of some cases.")
    low, high = panel_range(z[only_label], labels[only_label], sizes[only_label])
    raise InputError(
        f"{message}labels of one panel size. Readers with a kappa of 0.2 to 0.8 would mean a rho of "
        f"{low.rho:.2f} to {high.rho:.2f} (panel_range gives both panels). Give votes of some cases, "
        "or the readers' kappa (fit_panel_from_summary)."
    )


def _are_majorities(labels: Float, counts: Int, sizes: Int) -> bool:
    """Whether labels of voted cases are what most readers said, all but one in twenty.

    Ties count as not: something else decided them. Where most labels are not, that is an error.
    """
    whole = np.isfinite(labels) & (counts.sum(axis=1) == sizes)
    check_sides(labels[whole], counts[whole])
    majority, clear = clear_majority(counts)
    by_votes = clear & (majority == labels)
    return bool(20 * (~by_votes[whole]).sum() <= whole.sum())


def _covariance(objective: _Objective, theta: Float, step: float = 1e-4) -> Float | None:
    """Inverse of the curvature, by differences of the gradient; None if it is not positive."""
    hessian = np.array(
        [
            (objective(theta + step * e)[1] - objective(theta - step * e)[1]) / (2 * step)
            for e in np.eye(len(theta))
        ]
    )
    hessian = 0.5 * (hessian + hessian.T)
    if np.linalg.eigvalsh(hessian).min() <= 0:
        return None
    return np.asarray(np.linalg.inv(hessian))


_NORMAL_95 = 1.959964
"""The 97.5 % quantile of the normal law."""
_DROP = _NORMAL_95**2 / 2
"""Half the 95 % quantile of chi-square with one degree of freedom."""
_LOGIT_RHO = (-9.0, float(logit(MAX_RHO)))


def _profile(
    objective: _Objective, theta: Float, covariance: Float | None, drop: float = _DROP
) -> tuple[float, float]:
    """95 % interval of rho from its profile likelihood, without its prior, which would pull it."""
    objective.sd_rho = np.inf
    rough = np.eye(3) if covariance is None else covariance
    (*inner, centre), best = _minimise(objective, theta, rough)
    inverse = np.linalg.inv(np.linalg.inv(rough)[:2, :2])

    def excess(logit_rho: float) -> float:
        def fixed(ab: Float) -> tuple[float, Float]:
            value, gradient = objective(np.array([ab[0], ab[1], logit_rho]))
            return value, gradient[:2]

        inner[:], value = _minimise(fixed, np.array(inner), inverse)
        return value - best - drop

    return _interval(excess, centre, float(np.sqrt(rough[2, 2])))


def _group_codes(groups: ArrayLike | None, n: int) -> Int | None:
    """Number of each case's group, (n,); None without groups, or where every case is one."""
    codes = check_groups(groups, n)
    if codes is None or int(codes.max(initial=0)) + 1 == n:
        return None
    return codes


def _case_losses(
    q: Float,
    labels: Float,
    counts: Int,
    sizes: Int,
    reference: int,
    weight: Float,
    rho: float,
) -> Float:
    """Negative log-likelihood of each case, (n,), by its votes, else by its label; 0 of the others.

    `q` are the logits of the label of the reference panel.
    """
    loss = np.zeros(len(q))
    voted = counts.any(axis=1)
    if voted.any():
        readers = reader_logit(q[voted], rho, reference)
        loss[voted] = -count_log_law(counts[voted], readers, rho)
    known = ~voted & np.isfinite(labels)
    if known.any():
        readers = reader_logit(q[known], rho, reference)
        log_label = label_logit(readers, rho, sizes[known])
        chosen = labels[known].astype(np.int64)
        if q.ndim == 1:
            loss[known] = -log_expit(np.where(chosen == 1, log_label, -log_label))
        else:
            loss[known] = -np.take_along_axis(log_label, chosen[:, None], axis=1)[:, 0]
    return weight * loss


def _clustered(
    case_losses: Callable[[Float], Float], theta: Float, covariance: Float, group: Int
) -> tuple[Float, float]:
    """Covariance with one independent score to a group, and the drop that ends the last one's interval.

    The sandwich (Liang and Zeger, 1986, Biometrika 73) times G / (G - 1). The drop is NaN with too few
    groups, and never below that of independent cases: a few groups may agree too well by chance.
    """
    step = 1e-4
    n_groups = int(group.max()) + 1
    scores = np.empty((n_groups, len(theta)))
    for j, e in enumerate(np.eye(len(theta))):
        slope = (case_losses(theta + step * e) - case_losses(theta - step * e)) / (2 * step)
        scores[:, j] = np.bincount(group, weights=slope, minlength=n_groups)
    # Cases that were not read and have no label are no evidence, and neither are their groups.
    count = int(scores.any(axis=1).sum())
    if count < MIN_GROUPS:
        return covariance, float("nan")
    meat = scores.T @ scores * count / (count - 1)
    clustered = np.asarray(covariance @ meat @ covariance)
    ratio = float(clustered[-1, -1] / covariance[-1, -1])
    student = float(stdtrit(count - 1, 0.975)) / _NORMAL_95
    return clustered, _DROP * max(ratio, 1.0) * student**2


def _interval(excess: Callable[[float], float], centre: float, sd: float) -> tuple[float, float]:
    """Correlations on both sides of `centre`, in logits, where `excess` passes zero."""
    ends = []
    for side, bound, open_end in zip((-1.0, 1.0), _LOGIT_RHO, (0.0, MAX_RHO), strict=True):
        far, step = float(np.clip(centre, *_LOGIT_RHO)), 2.0 * sd
        while far != bound:
            near, far = far, side * min(side * (far + side * step), side * bound)
            if excess(far) >= 0:
                ends.append(float(expit(brentq(excess, near, far, xtol=1e-3))))
                break
            step = sd
        else:
            ends.append(open_end)
    return ends[0], ends[1]


def _fit_class_labels(
    z: Float, targets: Float, weight: Float, prior_sd: float
) -> tuple[Float, float]:
    """Intercepts (C,) and slope of softmax(a + b z), from shares of labels (n, C)."""
    n_classes = z.shape[1]

    def loss(theta: Float) -> tuple[float, Float]:
        b = np.exp(theta[-1])
        log_q = log_softmax(theta[:-1] + b * z, axis=1)
        residual = weight[:, None] * (targets - np.exp(log_q))
        value = float(weight @ (targets * log_q).sum(axis=1))
        scale = np.array([*[prior_sd] * n_classes, PRIOR_SD_LOG_SLOPE])
        gradient = np.array([*residual.sum(axis=0), b * (residual * z).sum()])
        return _with_prior(value, gradient, theta / scale, scale)

    # As if all classes were equally likely, for a scale only.
    known = float(weight.sum()) / n_classes
    rough = 1.0 / np.array(
        [
            *[known + prior_sd**-2] * n_classes,
            known * z.var(axis=1).mean() + PRIOR_SD_LOG_SLOPE**-2,
        ]
    )
    theta, _ = _minimise(loss, np.zeros(n_classes + 1), np.diag(rough))
    return theta[:-1], float(np.exp(theta[-1]))


def _fit_classes(
    z: Float,
    labels: Float,
    counts: Int,
    sizes: Int,
    reference: int,
    weight: Float,
    prior_sd: float,
    interval: bool,
    group: Int | None = None,
) -> Panel:
    """`fit_panel` for more than two classes: intercepts and slope from labels, then rho from votes."""
    n, n_classes = z.shape
    m = counts.sum(axis=1)
    known = np.isfinite(labels)
    targets = np.zeros((n, n_classes))
    targets[known, labels[known].astype(np.int64)] = 1.0
    # Votes of the reference panel make a label where none is given; ties are shared.
    made = ~known & (m == reference)
    winners = counts == counts.max(axis=1, keepdims=True)
    targets[made] = (winners / winners.sum(axis=1, keepdims=True))[made]
    first = made | (known & (sizes == reference))
    if not first.any():
        raise InputError(
            f"no case has a label, or the votes, of a panel of {reference} readers: give labels"
        )
    a, b = _fit_class_labels(z[first], targets[first], weight[first], prior_sd)
    q = log_softmax(a + b * z, axis=1)
    voted = m > 0
    other = known & ~voted & (sizes != reference)
    chosen = labels[other].astype(np.int64)[:, None]

    def loss(logit_rho: float) -> float:
        rho = min(float(expit(logit_rho)), MAX_RHO)
        value = 0.0
        if voted.any():
            log_p = reader_logit(q[voted], rho, reference)
            value += float(weight[voted] @ count_log_law(counts[voted], log_p, rho))
        if other.any():
            readers = reader_logit(q[other], rho, reference)
            log_label = label_logit(readers, rho, sizes[other])
            value += float(weight[other] @ np.take_along_axis(log_label, chosen, axis=1)[:, 0])
        return -value

    def posterior(logit_rho: float) -> float:
        return loss(logit_rho) + 0.5 * ((logit_rho - logit(PRIOR_RHO[0])) / PRIOR_RHO[1]) ** 2

    def least(function: Callable[[float], float]) -> tuple[float, float]:
        best = minimize_scalar(
            function, bounds=_LOGIT_RHO, method="bounded", options={"xatol": 1e-4}
        )
        return float(best.x), float(best.fun)

    rho = min(float(expit(least(posterior)[0])), MAX_RHO)
    low = high = float("nan")
    if interval:
        centre, best = least(loss)
        drop = _DROP
        curvature = (loss(centre + 0.01) + loss(centre - 0.01) - 2.0 * best) / 0.01**2
        if group is not None and curvature > 0:

            def case_losses(theta: Float) -> Float:
                rho = min(float(expit(theta[0])), MAX_RHO)
                return _case_losses(q, known_labels, counts, sizes, reference, weight, rho)

            # Labels of the reference panel have made the intercepts, and say nothing of rho.
            known_labels = np.where(other, labels, np.nan)
            at, variance = np.array([centre]), np.array([[1.0 / curvature]])
            _, drop = _clustered(case_losses, at, variance, group)
        if np.isfinite(drop):
            low, high = _interval(lambda x: loss(x) - best - drop, centre, 0.5)
            low, high = min(low, rho), max(high, rho)
    return Panel(a, b, rho, reference, shift=np.zeros(n_classes), rho_low=low, rho_high=high)


# Published numbers in the place of votes ----------------------------------------------------------


def fit_panel_from_summary(
    logits: ArrayLike,
    y: ArrayLike,
    n_raters: ArrayLike,
    kappa: float,
    vote_share: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    prior_sd: float = PRIOR_SD_INTERCEPT,
    max_mismatch: float = MAX_MISMATCH,
) -> Panel:
    r"""Fit a panel to labels and two published numbers: the readers' kappa and their positive share.

    Intercept and slope come from the labels. The variance of the vote probability over cases is
    :math:`\kappa \pi (1 - \pi)` with :math:`\pi = E\mu`, and also
    :math:`Var(\mu) + \rho E[\mu (1 - \mu)]`, where :math:`\mu = T_m^{-1}(q; \rho)`: one equation for
    rho. With the share of all votes that are positive, a shift in logits moves the mean of mu there.
    With more classes the equation is summed over them, and there is one shift per class.

    Parameters
    ----------
    logits : array (n,) or (n, C)
        Out-of-sample logits.
    y : array (n,)
        Labels 0 .. C - 1; NaN where unknown.
    n_raters : int or array (n,)
        Readers behind each label.
    kappa : float
        Fleiss' kappa (or an absolute-agreement intra-class correlation) of such readers on such cases;
        not a weighted kappa.
    vote_share : float or array (C,), optional
        Share of all votes that are positive; with more than two classes, of each class.
    max_mismatch : float
        Mean distance of the label's probability from that of a majority of the predicted votes
        (`Panel.mismatch`) above which the fit is refused, unless it is within three standard errors of 0.
        Without `vote_share` nothing is known of it. Larger only where the numbers are known to be off.

    Raises
    ------
    InputError
        Where the labels are not the majority of such readers' votes, as after a biopsy: by `max_mismatch`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = 2 * rng.normal(size=4000)
    >>> p = rng.beta(4 * expit(z), 4 * expit(-z))     # rho = 0.2
    >>> votes = rng.binomial(7, p)
    >>> from scalecal.votes import fleiss_kappa
    >>> fit_panel_from_summary(z, votes >= 4, 7, fleiss_kappa(votes, 7)).rho.__round__(1)
    0.2
    """
    z = _panel_logits(logits)
    labels, _ = _observed(z, y, None, None)
    sizes = check_sizes(n_raters, len(z))
    weight, prior_sd = case_weights(sample_weight, len(z)), check_above(prior_sd, "prior_sd")
    kappa = check_number(kappa, "kappa", "lie in [-1, 1]")
    if not -1.0 <= kappa <= 1.0:
        raise InputError(f"kappa must lie in [-1, 1], got {kappa:g}")
    known = np.isfinite(labels) & (weight > 0)
    if not known.any():
        raise InputError("y has no label: intercept and slope come from labels")
    z, labels, sizes, weight = z[known], labels[known], sizes[known], weight[known]
    share = _check_share(vote_share, z) if vote_share is not None else None
    reference = _commonest(sizes)
    coefficients = _label_coefficients(z, labels, sizes, reference, weight, prior_sd)

    def solved(rho: float) -> tuple[float | Float, float, float | Float, Float]:
        """Intercept, slope, shift and the readers' probabilities of each class, (n, C)."""
        a, b = coefficients(rho)
        readers = reader_logit(a + b * z, rho, reference)
        shift: float | Float = 0.0
        if share is not None:
            shift = _solve_shift(readers, share, weight)
        elif z.ndim == 2:
            shift = np.zeros(z.shape[1])
        return a, b, shift, class_probabilities(readers + shift)

    def excess(rho: float) -> float:
        p = solved(rho)[3]
        mean = weight @ p / weight.sum()
        square = float(weight @ (p**2).sum(axis=1) / weight.sum())
        chance = float(mean @ mean)
        return (square - chance) + rho * (1.0 - square) - kappa * (1.0 - chance)

    note = ""
    if excess(0.0) >= 0:
        rho, note = 0.0, "the features explain as much agreement as kappa states: rho is 0"
    elif excess(MAX_RHO) <= 0:
        rho, note = MAX_RHO, f"kappa is higher than a rho of {MAX_RHO} reaches"
    else:
        rho = float(brentq(excess, 0.0, MAX_RHO, xtol=1e-8))
    a, b, shift, _ = solved(rho)
    panel = Panel(a, b, rho, reference, shift=shift, note=note)
    if share is None:
        return panel
    mismatch, most = panel.mismatch(z), check_unit(max_mismatch, "max_mismatch")
    q = class_probabilities(panel.label_logit(z))
    # Largest for the class whose share is known worst.
    variance = (weight**2 @ (q * (1.0 - q))).max() / weight.sum() ** 2
    if mismatch > max(most, 3.0 * float(np.sqrt(variance))):
        raise InputError(
            f"the majority of the predicted votes differs from the label's probability by {mismatch:.3f} on "
            f"average, where at most {most:g} is expected: the labels are not the majority of such "
            "readers' votes. What is the label? If it is a biopsy, an adjudication or the vote of other "
            "readers, leave out kappa and the share of positive votes, and give votes on some cases instead; "
            "if it is the majority, check both numbers, the positive class and the panel's size"
        )
    return _noted(
        panel,
        f"the majority of the predicted votes differs from the label's probability by "
        f"{mismatch:.3f} on average",
    )


def _noted(panel: Panel, note: str) -> Panel:
    """Add to what a user should know about a panel."""
    return replace(panel, note="; ".join(filter(None, [panel.note, note])))


def _check_share(vote_share: ArrayLike, z: Float) -> Float:
    """Shares of votes for the positive class, (), or for each class, (C,)."""
    share = as_float(vote_share, "vote_share")
    if share.shape != z.shape[1:]:
        expected = "one number" if z.ndim == 1 else f"one entry for each of {z.shape[1]} classes"
        raise InputError(f"vote_share must be {expected}, got shape {share.shape}")
    if not ((share > 0) & (share < 1)).all():
        raise InputError(f"vote_share must lie between 0 and 1, got {vote_share!r}")
    if share.ndim == 0:
        return share
    if abs(share.sum() - 1.0) > 1e-3:
        raise InputError(f"vote_share must add up to 1, got {share.sum():g}")
    return np.asarray(share / share.sum())


def _label_coefficients(
    z: Float, labels: Float, sizes: Int, reference: int, weight: Float, prior_sd: float
) -> Callable[[float], tuple[float | Float, float]]:
    """Intercept and slope of the reference panel's label, as a function of rho.

    They depend on it only through labels of other panel sizes; with more than two classes these are
    left out.
    """
    if z.ndim == 2:
        same = sizes == reference
        targets = np.eye(z.shape[1])[labels[same].astype(np.int64)]
        a_b = _fit_class_labels(z[same], targets, weight[same], prior_sd)
        return lambda _: a_b
    none = np.zeros(len(z), dtype=np.int64)
    objective = _Objective(z, labels, none, none, sizes, reference, weight, prior_sd)

    def at(rho: float) -> tuple[float, float]:
        a, log_b = objective.at_rho(rho)
        return a, float(np.exp(log_b))

    if objective.other_labels:
        return at
    same_for_all = at(0.0)
    return lambda _: same_for_all


def _solve_shift(z: Float, share: Float, weight: Float) -> float | Float:
    """Constants c for which the mean of sigmoid(z + c), or softmax(z + c), is `share`.

    For several classes the first is 0, and the equations' slope is the mean covariance of the classes.
    """
    w = weight / weight.sum()
    if z.ndim == 1:
        wanted = float(logit(share))

        def off(c: float) -> float:
            return float(w @ expit(z + c) - share)

        return float(brentq(off, wanted - z.max() - 1e-9, wanted - z.min() + 1e-9, xtol=1e-12))

    def off_and_slope(c: Float) -> tuple[Float, Float]:
        p = softmax(z + np.append(0.0, c), axis=1)
        mean = w @ p
        slope = np.diag(mean) - (w[:, None] * p).T @ p
        return (mean - share)[1:], slope[1:, 1:]

    start = np.log(share) - np.log(w @ softmax(z, axis=1))
    # So small a tolerance means: until rounding ends it.
    solved = root(off_and_slope, (start - start[0])[1:], jac=True, tol=1e-14)
    return np.append(0.0, solved.x)


def fit_labels(
    z: Float,
    targets: Float,
    panel_size: ArrayLike | None = None,
    *,
    rho: float | None = None,
    sample_weight: ArrayLike | None = None,
    prior_sd: float = PRIOR_SD_INTERCEPT,
) -> Panel:
    """Fit intercept and slope of the label alone; rho is what is given, or unknown (NaN).

    Parameters
    ----------
    z : array (n,) or (n, C)
        Out-of-sample logits.
    targets : array of the same shape
        Hard or soft labels: the share of the positive class, or of each class.
    panel_size : int or array (n,), optional
        Readers behind each label, if that is known.
    rho : float, optional
        Correlation of readers' votes, if it is to be fixed; at 0 votes are independent.
    sample_weight : array (n,), optional
    prior_sd : float
        Prior standard deviation of the intercept.

    Examples
    --------
    >>> panel = fit_labels(np.array([-1.0, 1.0] * 50), np.array([0.0, 1.0] * 50))
    >>> panel.slope > 1.0, panel.knows_readers
    (True, False)
    """
    weight, prior_sd = case_weights(sample_weight, len(z)), check_above(prior_sd, "prior_sd")
    fixed, at, reference = float("nan"), 0.0, None
    if rho is not None:
        fixed = at = check_rho(rho)
    # Without rho the labels of different panel sizes cannot be related: one line for all.
    sizes = np.ones(len(z), dtype=np.int64)
    if panel_size is not None:
        behind = check_sizes(panel_size, len(z), "panel_size")
        reference = _commonest(behind)
        if rho is not None:
            sizes = behind
    a: float | Float
    if z.ndim == 2:
        a, b = _fit_class_labels(z, targets, weight, prior_sd)
    else:
        a, b = _label_coefficients(z, targets, sizes, _commonest(sizes), weight, prior_sd)(at)
    return Panel(a, b, fixed, reference)


def vote_moments(votes: Int) -> tuple[float, Float]:
    r"""Kappa and the share of votes for each class, from votes per class (n, C).

    The two numbers `fit_panel_from_summary` takes, over cases with two or more votes:
    :math:`\pi_c = E[k_c / m]` and
    :math:`\kappa = 1 - E[1 - \sum_c k_c (k_c - 1) / (m (m - 1))] / (1 - \sum_c \pi_c^2)`. With panels
    of one size this is Fleiss' kappa; with several every case counts alike, as it does in the fit.

    Examples
    --------
    >>> kappa, share = vote_moments(np.array([[3, 0], [0, 3], [2, 1]]))
    >>> round(kappa, 3), share.round(3).tolist()
    (0.55, [0.556, 0.444])
    """
    m = votes.sum(axis=1)
    k, m = votes[m >= 2].astype(np.float64), m[m >= 2].astype(np.float64)
    if len(m) == 0:
        return float("nan"), np.full(votes.shape[1], np.nan)
    share = (k / m[:, None]).mean(axis=0)
    differ = float((1.0 - (k * (k - 1.0)).sum(axis=1) / (m * (m - 1.0))).mean())
    chance = 1.0 - float((share**2).sum())
    kappa = 1.0 - differ / chance if chance > 0.0 else float("nan")
    return kappa, share


def panel_range(
    logits: ArrayLike,
    y: ArrayLike,
    n_raters: ArrayLike,
    kappas: tuple[float, float] = (0.2, 0.8),
) -> tuple[Panel, Panel]:
    """Panels at both ends of what the readers' kappa may be, where nothing identifies rho.

    Labels of one panel size say how often the label is positive, not how far readers agree on a case:
    a reader's probability then has a range, from one panel to the other.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = 2 * rng.normal(size=1000)
    >>> low, high = panel_range(z, rng.random(1000) < expit(z), 7)
    >>> [expit(panel.reader_logit([2.0])).round(2).tolist() for panel in (low, high)]
    [[0.72], [0.85]]
    """
    ends = as_float(kappas, "kappas")
    if ends.shape != (2,):
        raise InputError(f"kappas must be two numbers, got {reprlib.repr(kappas)}")
    panels = []
    for kappa in ends.tolist():
        panel = fit_panel_from_summary(logits, y, n_raters, kappa)
        assumed = replace(panel, note=f"assumes a kappa of {kappa:g}")
        panels.append(_noted(assumed, panel.note))
    return panels[0], panels[1]
