"""The jury map: between the probability of a vote and the probability of the panel's label.

If a label is what most of m independent readers said, then a reader who chooses the positive class
with probability P gives the label 1 with probability :math:`J_m(P)`, which is sharper than P
(Condorcet's jury theorem). Hence a calibrated prediction q of the *label* implies the vote
probability :math:`J_m^{-1}(q)`. There is no free parameter and no vote is needed. Ties are split
evenly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import (
    betainc,
    betaincinv,
    betaln,
    expit,
    gammaln,
    hyp2f1,
    log_expit,
    log_softmax,
)

from scalecal.checks import Float, InputError, Int, as_float, check_logits, check_probs, check_unit

__all__ = ["jury_inverse", "jury_logit", "jury_probability"]

# Below this log-probability the incomplete beta function's inverse loses digits: solve in logs.
_LOG_TAIL = -300.0
_BLOCK = 512


def _panel_sizes(n_raters: ArrayLike, n: int) -> Int:
    """Return the panel size of each of n cases."""
    m = as_float(n_raters, "n_raters")
    if m.ndim > 1 or (m.ndim == 1 and len(m) != n):
        raise InputError(f"n_raters must be one number or one per case ({n}), got shape {m.shape}")
    bad = ~(np.isfinite(m) & (m >= 1) & (m == np.round(m)))
    if bad.any():
        raise InputError(f"n_raters must be whole numbers of at least 1, got {m[bad].flat[0]:g}")
    return np.broadcast_to(m, (n,)).astype(np.int64)


def jury_probability(p: ArrayLike, n_raters: ArrayLike) -> Float:
    r"""Probability of the label, given the probability of a vote.

    For two classes and odd m, :math:`J_m(P) = I_P((m+1)/2, (m+1)/2)`, the regularised incomplete
    beta function; for even m with ties split evenly :math:`J_m = J_{m-1}`. For more classes, the
    probability that each class has the plurality of m multinomial draws.

    Parameters
    ----------
    p : array (n,) or (n, C)
        Probability that a reader chooses the positive class, or each class.
    n_raters : int or array (n,)
        Readers m, one number or one per case.

    Returns
    -------
    array
        The same shape as `p`.

    Examples
    --------
    >>> jury_probability([0.5, 0.6, 0.9], 7).round(3).tolist()
    [0.5, 0.71, 0.997]
    >>> jury_probability([[0.5, 0.3, 0.2]], 7).round(3).tolist()
    [[0.663, 0.238, 0.1]]
    """
    probs = check_probs(p)
    m = _panel_sizes(n_raters, len(probs))
    if probs.ndim == 1:
        half = (m + 1) // 2  # (m + 1) / 2 for odd m, m / 2 = ((m - 1) + 1) / 2 for even m
        return np.asarray(betainc(half, half, probs))
    if probs.shape[1] == 2:
        label = jury_probability(probs[:, 1], m)
        return np.column_stack([jury_probability(probs[:, 0], m), label])
    out = np.empty_like(probs)
    for size in np.unique(m):
        here = m == size
        out[here] = _plurality(probs[here], int(size))
    return out


def jury_inverse(q: ArrayLike, n_raters: ArrayLike) -> Float:
    """Probability of a vote, given the probability of the label: the inverse of `jury_probability`.

    Parameters
    ----------
    q : array (n,) or (n, C)
        Calibrated probabilities of the panel's label.
    n_raters : int or array (n,)
        Readers, one number or one per case.

    Examples
    --------
    >>> jury_inverse([0.0, 0.5, 0.71, 1.0], 7).round(3).tolist()
    [0.0, 0.5, 0.6, 1.0]
    """
    probs = check_probs(q)
    with np.errstate(divide="ignore"):
        if probs.ndim == 1:
            # Both tails are exact where they are small, which is all that matters.
            logits = np.log(probs) - np.log1p(-probs)
            return expit(_binary(logits, _panel_sizes(n_raters, len(probs))))
        log_vote = _inverse_logits(np.log(probs), _panel_sizes(n_raters, len(probs)))
    return np.exp(log_vote)


def jury_logit(logits: ArrayLike, n_raters: ArrayLike, strength: float = 1.0) -> Float:
    r"""Turn logits of the label into logits of a vote.

    Parameters
    ----------
    logits : array (n,) or (n, C)
        Logits of the label, as a calibrated probe gives them.
    n_raters : int or array (n,)
        Readers behind each label. One reader changes nothing.
    strength : float
        From 0 (identity) to 1 (the full map), linear in logits. The map is exact where the vote
        probability is a function of the features, and too soft where it still varies given them.

    Returns
    -------
    array
        The same shape; for (n, C) normalised, so that their exponentials sum to one.

    Examples
    --------
    >>> jury_logit([-2.0, 0.0, 2.0, 700.0], 7).round(3).tolist()
    [-0.873, 0.0, 0.873, 175.889]
    >>> jury_logit([2.0], 7, strength=0.5).round(3).tolist()
    [1.436]
    """
    z = check_logits(logits)
    strength = check_unit(strength, "strength")
    m = _panel_sizes(n_raters, len(z))
    if z.ndim == 1:
        return z if strength == 0.0 else (1.0 - strength) * z + strength * _binary(z, m)
    z = log_softmax(z, axis=1)
    if strength == 0.0:
        return z
    return np.asarray(log_softmax((1.0 - strength) * z + strength * _inverse_logits(z, m), axis=1))


def _binary(logits: Float, n_raters: Int) -> Float:
    """Return logit J_m^{-1}(sigmoid(logits)), computed on the smaller tail."""
    half = np.broadcast_to((n_raters + 1) // 2, logits.shape).astype(np.float64)
    tail = -np.abs(logits)
    far = (tail < _LOG_TAIL) & np.isfinite(tail)
    near = np.where(far, 0.0, tail)
    vote = betaincinv(half, half, expit(near))
    with np.errstate(divide="ignore"):
        size = -(np.log(vote) - np.log1p(-vote))
    if far.any():
        size[far] = -_far_tail(tail[far], half[far])
    mapped = np.where(logits == 0.0, 0.0, np.copysign(size, logits))
    return np.where(half == 1.0, logits, mapped)


def _far_tail(log_label: Float, half: Float) -> Float:
    """Solve log I_P(a, a) = log q for logit P by Newton in log P, for very small q.

    With F the hypergeometric 2F1(2a, 1; a + 1; P), I_P(a, a) = P^a (1 - P)^a F / (a B(a, a)), whose
    logarithm is concave in log P with slope a / ((1 - P) F). The start, its limit for P -> 0, lies
    below the root, so Newton climbs to it and cannot overshoot.
    """
    constant = np.log(half) + betaln(half, half)
    log_p = (log_label + constant) / half
    for _ in range(100):
        p = np.exp(log_p)
        series = hyp2f1(2.0 * half, 1.0, half + 1.0, p)
        value = half * (log_p + np.log1p(-p)) - constant + np.log(series)
        step = (log_label - value) * (1.0 - p) * series / half
        log_p = log_p + step
        if np.abs(step).max() < 1e-13 * np.abs(log_p).max():
            break
    return np.asarray(log_p - np.log1p(-np.exp(log_p)))


# More than two classes ---------------------------------------------------------------------------


def _plurality(probs: Float, m: int) -> Float:
    """Return the probability that each class has the plurality of m draws, ties split evenly."""
    if m <= 2:  # With two draws a tie is split evenly: half of each vote, hence the vote itself.
        return probs.copy()
    out = np.empty_like(probs)
    for start in range(0, len(probs), _BLOCK):
        part = slice(start, start + _BLOCK)
        out[part] = _plurality_block(np.ascontiguousarray(probs[part].T), m).T
    return out


def _plurality_block(p: Float, m: int) -> Float:
    r"""Plurality probabilities of the columns of p (C, n).

    Above m / 2 votes a class has won: a binomial tail. Below, a class wins with t votes if every
    other has fewer, or as many with luck. Give each class a uniform number to break ties: the
    winner's is s, and another class loses with fewer votes, or with t votes and a smaller number,
    which has probability s. Multinomial counts are Poisson counts given their sum, so

    .. math:: P(c) = \sum_t \int_0^1 w_c(t) [x^{m-t}] \prod_{d \ne c}
              \bigl(\sum_{k<t} w_d(k) x^k + s w_d(t) x^t\bigr) ds \big/ w(m)

    with w the Poisson weights. The integrand is a polynomial in s whose degree is the number of
    classes that can tie, so a few Gauss nodes make the integral exact; all terms are positive, so
    nothing cancels and small probabilities keep their digits.
    """
    n_classes = len(p)
    majority = m // 2
    total = betainc(majority + 1.0, float(m - majority), p)
    k = np.arange(majority + 1.0)[:, None, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        # 0 log 0 is no vote where none is possible: probability one.
        power = np.where(k == 0.0, 0.0, k * np.log(m * p))
    weights = np.exp(power - m * p - gammaln(k + 1.0))  # (votes, C, n)
    log_whole = m * np.log(m) - m - gammaln(m + 1.0)
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
            total[c] += weights[t, c] * (node_weights @ coefficient) * np.exp(-log_whole)
    return np.asarray(total)


def _running_products(factors: Float, degree: int) -> list[Float]:
    """Return the products of the first 0, 1, ..., C - 1 factors, up to x ** degree.

    `factors` has shape (coefficients, C, nodes, n); each product (degree + 1, nodes, n).
    """
    n_coefficients, n_classes = factors.shape[:2]
    one = np.zeros((degree + 1, *factors.shape[2:]))
    one[0] = 1.0
    products = [one]
    top = 0
    for c in range(n_classes - 1):
        last, new = products[-1], np.zeros_like(one)
        top_next = min(degree, top + n_coefficients - 1)
        for k in range(min(n_coefficients, degree + 1)):
            stop = min(top, degree - k) + 1
            new[k : k + stop] += factors[k, c] * last[:stop]
        products.append(new)
        top = top_next
    return products


def _inverse_logits(log_label: Float, n_raters: Int) -> Float:
    """Return the normalised log-probabilities of a vote, from those of the label, (n, C)."""
    if log_label.shape[1] == 2:
        vote = _binary(log_label[:, 1] - log_label[:, 0], n_raters)
        return np.column_stack([log_expit(-vote), log_expit(vote)])
    out = np.empty_like(log_label)
    for size in np.unique(n_raters):
        here = np.flatnonzero(n_raters == size)
        if size <= 2:
            out[here] = log_label[here]
            continue
        # Sorted, so that the answer cannot depend on the classes' order and the first class leads.
        order = np.argsort(-log_label[here], axis=1, kind="stable")
        ordered = np.take_along_axis(log_label[here], order, axis=1)
        solved = np.empty_like(ordered)
        np.put_along_axis(solved, order, _solve_plurality(ordered, int(size)), axis=1)
        out[here] = solved
    return out


def _solve_plurality(log_label: Float, m: int) -> Float:
    """Invert `_plurality` in log-odds against the first, most likely class (Broyden's method).

    Labels less likely than exp(-300) times the first are solved at that floor and continued with the
    slope 1 / ceil(m / 2), the number of votes needed against a sure majority.
    """
    log_ratio = log_label[:, 1:] - log_label[:, :1]
    target = np.maximum(log_ratio, _LOG_TAIL)
    half = float((m + 1) // 2)
    # Start as if each class met the first one alone.
    x = _binary(target, np.asarray(m))
    value = _log_odds(x, m)
    slope = _binary(target + 0.5, np.asarray(m)) - _binary(target - 0.5, np.asarray(m))
    inverse = slope[:, :, None] * np.eye(x.shape[1])
    longest = min(3.0, 100.0 / half)  # keeps label probabilities from underflowing on the way
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
        new = _log_odds(x[active], m)
        change = new - value[active]
        value[active] = new
        # Good Broyden update of the inverse Jacobian (Sherman and Morrison).
        push = np.einsum("nij,nj->ni", inverse[active], change)
        scale = np.einsum("ni,ni->n", step, push)
        left = np.einsum("ni,nij->nj", step, inverse[active])
        gain = (step - push) / np.where(scale == 0.0, np.inf, scale)[:, None]
        inverse[active] += gain[:, :, None] * left[:, None, :]
    else:
        raise RuntimeError(f"the jury map's inverse did not converge for {len(active)} cases")
    with np.errstate(invalid="ignore"):
        x = x + np.where(log_ratio < target, (log_ratio - target) / half, 0.0)
    return np.asarray(log_softmax(np.column_stack([np.zeros(len(x)), x]), axis=1))


def _log_odds(x: Float, m: int) -> Float:
    """Return the label's log-odds against the first class, for vote log-odds x (n, C - 1)."""
    vote = np.exp(log_softmax(np.column_stack([np.zeros(len(x)), x]), axis=1))
    log_label = np.log(_plurality(vote, m))
    return np.asarray(log_label[:, 1:] - log_label[:, :1])
