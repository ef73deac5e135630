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

Everything works on logits, where both tails keep their digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, gammaln, log_expit, logit, logsumexp

from scalecal.checks import InputError, as_float, check_logits

__all__ = [
    "Panel",
    "fit_panel",
    "fit_panel_from_summary",
    "label_logit",
    "reader_logit",
    "vote_log_pmf",
]

Float = NDArray[np.float64]
Int = NDArray[np.int64]

MOST_RHO = 0.99
"""The largest correlation considered: at 1 all readers agree and nothing is left to estimate."""


def check_rho(rho: float) -> float:
    """Return a correlation in [0, 0.99] as a float."""
    value = float(rho)
    if not 0.0 <= value <= MOST_RHO:
        raise InputError(f"rho must lie in [0, {MOST_RHO}], got {rho!r}")
    return value


def check_sizes(n_raters: ArrayLike, n: int, name: str = "n_raters") -> Int:
    """Return the number of readers of each of n cases."""
    m = as_float(n_raters, name)
    if m.ndim > 1 or (m.ndim == 1 and len(m) != n):
        raise InputError(f"{name} must be one number or one per case ({n}), got shape {m.shape}")
    bad = ~(np.isfinite(m) & (m >= 1) & (m == np.round(m)))
    if bad.any():
        raise InputError(f"{name} must be whole numbers of at least 1, got {m[bad].flat[0]:g}")
    return np.broadcast_to(m, (n,)).astype(np.int64)


# The law of k of m votes --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Law:
    """log P(k of m) for logits z of the mean (n,), with derivatives in z and in rho where wanted."""

    log_pmf: Float
    by_logit: Float
    by_rho: Float


def _law(z: Float, rho: float, m: int) -> _Law:
    r"""The beta-binomial law as a product, continuous at rho = 0.

    .. math:: P(k) = \binom{m}{k} \frac{\prod_{i<k} ((1-\rho)\mu + i\rho)
              \prod_{j<m-k} ((1-\rho)(1-\mu) + j\rho)}{\prod_{l<m} (1-\rho + l\rho)}
    """
    i = np.arange(m, dtype=np.float64)
    with np.errstate(divide="ignore"):
        step = np.log(i * rho)
    keep = np.log1p(-rho)
    log_mu, log_nu = log_expit(z)[:, None], log_expit(-z)[:, None]
    up = np.logaddexp(keep + log_mu, step)
    down = np.logaddexp(keep + log_nu, step)
    # d log a_i / dz = (1 - rho) mu (1 - mu) / a_i, and at i = 0 exactly 1 - mu.
    common = keep + log_mu + log_nu
    up_z, down_z = np.exp(common - up), -np.exp(common - down)
    up_rho = (i - np.exp(log_mu)) * np.exp(-up)
    down_rho = (i - np.exp(log_nu)) * np.exp(-down)
    up_rho[:, 0] = down_rho[:, 0] = -1.0 / (1.0 - rho)
    whole = np.log1p(rho * (i - 1.0))
    k = np.arange(m + 1)
    constant = gammaln(m + 1) - gammaln(k + 1) - gammaln(m - k + 1) - whole.sum()
    whole_rho = float(((i - 1.0) / (1.0 + rho * (i - 1.0))).sum())

    def joined(a: Float, b: Float) -> Float:
        first = np.zeros((len(z), m + 1))
        second = np.zeros((len(z), m + 1))
        np.cumsum(a, axis=1, out=first[:, 1:])
        np.cumsum(b, axis=1, out=second[:, 1:])
        return first + second[:, ::-1]

    return _Law(
        constant + joined(up, down), joined(up_z, down_z), joined(up_rho, down_rho) - whole_rho
    )


def vote_log_pmf(logits: ArrayLike, rho: float, n_raters: int) -> Float:
    """Log-probability that k of m readers vote for the positive class, k = 0 .. m.

    Parameters
    ----------
    logits : array (n,)
        Logits of the probability that one reader does.
    rho : float
        Correlation of two readers' votes on a case, 0 to 0.99.
    n_raters : int
        Readers m.

    Returns
    -------
    array (n, m + 1)

    Examples
    --------
    >>> np.exp(vote_log_pmf([0.0], 0.0, 2)).round(3).tolist()
    [[0.25, 0.5, 0.25]]
    >>> np.exp(vote_log_pmf([0.0], 0.5, 2)).round(3).tolist()
    [[0.375, 0.25, 0.375]]
    """
    z = check_logits(logits)
    m = int(check_sizes(n_raters, 1)[0])
    return _law(z, check_rho(rho), m).log_pmf


def _odd(m: int) -> int:
    """Readers of the odd panel with the same label law: with ties shared, 2 k readers are as 2 k - 1."""
    return m - 1 if m % 2 == 0 else m


def _label(z: Float, rho: float, m: int) -> tuple[Float, Float, Float]:
    """Logit of the label's probability, and its derivatives in z and in rho."""
    m = _odd(m)
    if m == 1:
        return z, np.ones_like(z), np.zeros_like(z)
    law = _law(z, rho, m)
    half = (m + 1) // 2
    total: list[Float] = []
    by_logit: list[Float] = []
    by_rho: list[Float] = []
    for part in (slice(half, None), slice(None, half)):
        inside = law.log_pmf[:, part]
        whole = logsumexp(inside, axis=1)
        share = np.exp(inside - whole[:, None])
        total.append(whole)
        by_logit.append((share * law.by_logit[:, part]).sum(axis=1))
        by_rho.append((share * law.by_rho[:, part]).sum(axis=1))
    return total[0] - total[1], by_logit[0] - by_logit[1], by_rho[0] - by_rho[1]


def label_logit(logits: ArrayLike, rho: float, n_raters: ArrayLike) -> Float:
    r"""Logit of the panel's label, from the logit of one reader's vote: :math:`T_m`.

    Ties of an even panel are shared, so that :math:`T_m = T_{m-1}` for even m and :math:`T_2` is the
    identity.

    Parameters
    ----------
    logits : array (n,)
        Logits of a reader's probability.
    rho : float
    n_raters : int or array (n,)

    Examples
    --------
    >>> expit(label_logit(logit([0.6, 0.9]), 0.0, 7)).round(3).tolist()
    [0.71, 0.997]
    >>> expit(label_logit(logit([0.6, 0.9]), 0.3, 7)).round(3).tolist()
    [0.63, 0.941]
    """
    z = check_logits(logits)
    m = check_sizes(n_raters, len(z))
    rho = check_rho(rho)
    out = np.empty_like(z)
    for size in np.unique(m):
        here = m == size
        out[here] = _label(z[here], rho, int(size))[0]
    return out


def reader_logit(logits: ArrayLike, rho: float, n_raters: ArrayLike) -> Float:
    r"""Logit of one reader's vote, from the logit of the panel's label: :math:`T_m^{-1}`.

    Parameters
    ----------
    logits : array (n,)
        Logits of calibrated probabilities of the label.
    rho : float
    n_raters : int or array (n,)

    Examples
    --------
    >>> expit(reader_logit(logit([0.5, 0.71, 0.997]), 0.0, 7)).round(2).tolist()
    [0.5, 0.6, 0.9]
    >>> reader_logit([3.0], 0.2, 1).tolist()
    [3.0]
    """
    q = check_logits(logits)
    m = check_sizes(n_raters, len(q))
    rho = check_rho(rho)
    out = np.empty_like(q)
    for size in np.unique(m):
        here = m == size
        out[here] = _reader(q[here], rho, int(size))
    return out


def _reader(q: Float, rho: float, m: int) -> Float:
    """Invert `_label`, which is odd and increasing: safeguarded Newton between 0 and the label's logit."""
    m = _odd(m)
    if m == 1 or len(q) == 0:
        return q.copy()
    target = np.abs(q)
    low, high = np.zeros_like(target), target.copy()
    z = target / _label(np.zeros(1), rho, m)[1]
    active = np.flatnonzero(target > 0.0)
    for _ in range(200):
        if len(active) == 0:
            break
        value, slope, _ = _label(z[active], rho, m)
        gap = value - target[active]
        above = gap > 0
        high[active[above]] = z[active[above]]
        low[active[~above]] = z[active[~above]]
        new = z[active] - gap / slope
        outside = ~((new > low[active]) & (new < high[active]))
        new[outside] = 0.5 * (low[active[outside]] + high[active[outside]])
        moved = np.abs(new - z[active])
        z[active] = new
        active = active[moved > 1e-13 * (1e-3 + new)]
    else:
        raise RuntimeError(f"the label's inverse did not converge for {len(active)} cases")
    return np.asarray(np.copysign(z, q))


# More than two classes ----------------------------------------------------------------------------

_BLOCK = 512
_LOG_TAIL = -300.0
"""Labels less likely than this, in logs against the first class, are solved here and continued."""


def _plurality(p: Float, rho: float, m: int) -> Float:
    """Probability that each class has the plurality of m Dirichlet-multinomial votes, ties shared."""
    if m <= 2:  # with two votes a tie is shared: half of each vote, hence the vote itself
        return p.copy()
    out = np.empty_like(p)
    for start in range(0, len(p), _BLOCK):
        part = slice(start, start + _BLOCK)
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
    with np.errstate(divide="ignore"):
        z = np.log(p) - np.log1p(-p)
    total = np.exp(_law(np.clip(z.ravel(), -745, 745), rho, m).log_pmf[:, majority + 1 :]).sum(
        axis=1
    )
    total = np.where(p > 0, total.reshape(p.shape), 0.0)
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


# The fitted panel ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """A fitted panel: from a probe's logit to the label's and to a reader's probability.

    With z the probe's logit, the label of a panel of `panel_size` readers has the logit
    ``intercept + slope * z``; a reader's is its inverse under `rho`, plus `shift`.

    Attributes
    ----------
    intercept, slope : float
    rho : float
        Correlation of two readers' votes on a case that the features do not explain.
    panel_size : int
        Readers behind the labels.
    shift : float
        How much more readily a reader says positive than the label's probability implies, in logits;
        0 where votes were fitted.
    covariance : array (3, 3) or None
        Of (intercept, log slope, logit rho), from the curvature at the estimate.
    rho_low, rho_high : float
        95 % interval of `rho`; NaN where it was not estimated from votes.
    note : str
        What a user should know about the fit.
    """

    intercept: float
    slope: float
    rho: float
    panel_size: int | None
    shift: float = 0.0
    covariance: Float | None = None
    rho_low: float = float("nan")
    rho_high: float = float("nan")
    note: str = ""

    def label_logit(self, logits: ArrayLike, n_raters: ArrayLike | None = None) -> Float:
        """Logit of the probability that the label is positive.

        `n_raters` are the readers behind that label, where they differ from `panel_size`; it needs rho.
        """
        q = np.asarray(self.intercept + self.slope * check_logits(logits))
        if n_raters is None or self.panel_size is None or not np.isfinite(self.rho):
            return q
        m = check_sizes(n_raters, len(q))
        other = (m + 1) // 2 != (self.panel_size + 1) // 2
        if other.any():
            reader = reader_logit(q[other], self.rho, self.panel_size)
            q[other] = label_logit(reader, self.rho, m[other])
        return q

    def sentence(self) -> str:
        """What the panel found, in words."""
        if not np.isfinite(self.rho):
            return "How far readers agree beyond the features is unknown: there is no reader's answer."
        between = ""
        if np.isfinite(self.rho_low):
            between = f" (95 % interval {self.rho_low:.2f} to {self.rho_high:.2f})"
        return (
            f"Panel of {self.panel_size}: votes on a case correlate by rho = {self.rho:.2f}{between} beyond "
            f"what the features explain{'; ' + self.note if self.note else ''}."
        )

    def to_dict(self):
        from dataclasses import asdict
        d = asdict(self); d["covariance"] = None
        return d
    @classmethod
    def from_dict(cls, d):
        return cls(**d)

    def reader_logit(self, logits: ArrayLike) -> Float:
        """Logit of the probability that one reader votes positive."""
        return reader_logit(self.label_logit(logits), self.rho, self.panel_size) + self.shift

    def vote_pmf(self, logits: ArrayLike, n_raters: int | None = None) -> Float:
        """Probability of k of m positive votes, (n, m + 1)."""
        m = self.panel_size if n_raters is None else n_raters
        return np.asarray(np.exp(vote_log_pmf(self.reader_logit(logits), self.rho, m)))

    def split_probability(self, logits: ArrayLike, n_raters: int | None = None) -> Float:
        """Probability that a panel of m readers splits: low agreement as `votes.strata` defines it."""
        from scalecal.votes import stratum_codes

        m = self.panel_size if n_raters is None else n_raters
        k = np.arange(m + 1)
        low = stratum_codes(np.column_stack([m - k, k])) == 2
        return np.asarray(self.vote_pmf(logits, m)[:, low].sum(axis=1))

    def mismatch(self, logits: ArrayLike) -> float:
        """Mean distance between the label's probability and the tail of the law of votes.

        Zero without a shift; with one it says how far the two answers are from one model.
        """
        tail = label_logit(self.reader_logit(logits), self.rho, self.panel_size)
        return float(np.abs(expit(tail) - expit(self.label_logit(logits))).mean())


PRIOR_SD_INTERCEPT = 0.3
PRIOR_SD_LOG_SLOPE = 1.0
PRIOR_RHO = (0.15, 1.0)
"""Mean (as a correlation) and standard deviation (in logits) of the prior of rho."""


class _Objective:
    """Negative log posterior of (intercept, log slope, logit rho), with its gradient."""

    def __init__(
        self,
        z: Float,
        y: Float,
        k: Float,
        m: Int,
        panel_size: Int,
        reference: int,
        weight: Float,
        sd_intercept: float,
    ) -> None:
        self.z, self.reference, self.sd_intercept = z, reference, sd_intercept
        voted = m > 0
        labelled = ~voted & np.isfinite(y)
        self.used = voted | labelled
        self.parts: list[tuple[str, int, Int, Float, Float]] = []
        for size in np.unique(m[voted]):
            rows = np.flatnonzero(voted & (m == size))
            self.parts.append(("votes", int(size), rows, k[rows], weight[rows]))
        for size in np.unique([_odd(int(s)) for s in panel_size[labelled]]):
            odd = np.where(panel_size % 2 == 0, panel_size - 1, panel_size)
            rows = np.flatnonzero(labelled & (odd == size))
            self.parts.append(("label", int(size), rows, y[rows], weight[rows]))

    def __call__(self, theta: Float) -> tuple[float, Float]:
        a, b, rho = theta[0], np.exp(theta[1]), float(expit(theta[2]))
        rho = min(rho, MOST_RHO)
        q = a + b * self.z
        mu = _reader(q, rho, self.reference)
        _, slope, by_rho = _label(mu, rho, self.reference)
        # How the reader's logit moves with the label's and with rho.
        mu_q, mu_rho = 1.0 / slope, -by_rho / slope
        value, d_q, d_rho = 0.0, np.zeros_like(q), 0.0
        for kind, size, rows, seen, weight in self.parts:
            if kind == "votes":
                law = _law(mu[rows], rho, size)
                at = (np.arange(len(rows)), seen.astype(np.int64))
                value += float(weight @ law.log_pmf[at])
                d_mu, own = law.by_logit[at], law.by_rho[at]
            else:
                if size == _odd(self.reference):
                    label, d_label, r_label = q[rows], slope[rows], by_rho[rows]
                else:
                    label, d_label, r_label = _label(mu[rows], rho, size)
                value += float(weight @ (seen * log_expit(label) + (1 - seen) * log_expit(-label)))
                residual = seen - expit(label)
                d_mu, own = residual * d_label, residual * r_label
            d_q[rows] += weight * d_mu * mu_q[rows]
            d_rho += float(weight @ (own + d_mu * mu_rho[rows]))
        centre, sd_rho = logit(PRIOR_RHO[0]), PRIOR_RHO[1]
        value -= 0.5 * (a / self.sd_intercept) ** 2
        value -= 0.5 * (theta[1] / PRIOR_SD_LOG_SLOPE) ** 2
        value -= 0.5 * ((theta[2] - centre) / sd_rho) ** 2
        gradient = np.array(
            [
                d_q.sum() - a / self.sd_intercept**2,
                (d_q * b * self.z).sum() - theta[1] / PRIOR_SD_LOG_SLOPE**2,
                d_rho * rho * (1.0 - rho) - (theta[2] - centre) / sd_rho**2,
            ]
        )
        return -value, -gradient


def fit_panel(
    logits: ArrayLike,
    y: ArrayLike | None = None,
    votes: ArrayLike | None = None,
    n_raters: ArrayLike | None = None,
    *,
    panel_size: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    prior_sd: float = PRIOR_SD_INTERCEPT,
    interval: bool = True,
) -> Panel:
    """Fit a panel to any mix of voted, singly read and labelled cases, by maximum a posteriori.

    A case with votes enters by them (its label is made of them), one with a label only by its label.
    The logits must be out of sample: of a validation part or cross-fitted.

    Parameters
    ----------
    logits : array (n,)
        A probe's logits.
    y : array (n,), optional
        Labels 0 / 1; NaN where unknown.
    votes : array (n,), optional
        Positive votes; NaN where a case was not read.
    n_raters : int or array (n,), optional
        Readers in `votes`, per case.
    panel_size : int or array (n,), optional
        Readers behind `y`; default: `n_raters` where that is the same for all voted cases.
    sample_weight : array (n,), optional
    prior_sd : float
        Prior standard deviation of the intercept; larger (2) for logits of a foreign model.
    interval : bool
        Whether to give rho a 95 % interval, by its profile.

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
    from scipy.optimize import minimize

    z = check_logits(logits)
    n = len(z)
    labels, k, m = _observed(n, y, votes, n_raters)
    sizes = _panel_sizes(n, panel_size, m, np.isfinite(labels))
    weight = np.ones(n) if sample_weight is None else as_float(sample_weight, "sample_weight")
    reference = _commonest(sizes)
    _check_identified(z, labels, m, sizes)
    objective = _Objective(z, labels, k, m, sizes, reference, weight, prior_sd)
    start = np.array([0.0, 0.0, logit(PRIOR_RHO[0])])
    fit = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-6 * max(n, 1)})
    theta = fit.x
    covariance = _covariance(objective, theta)
    low, high = _profile(objective, theta, covariance) if interval else (np.nan, np.nan)
    return Panel(
        intercept=float(theta[0]),
        slope=float(np.exp(theta[1])),
        rho=float(min(expit(theta[2]), MOST_RHO)),
        panel_size=reference,
        covariance=covariance,
        rho_low=low,
        rho_high=high,
    )


def _observed(
    n: int, y: ArrayLike | None, votes: ArrayLike | None, n_raters: ArrayLike | None
) -> tuple[Float, Float, Int]:
    """Labels (NaN: none), positive votes and readers (0: none) of n cases."""
    labels = np.full(n, np.nan) if y is None else as_float(y, "y")
    if labels.shape != (n,):
        raise InputError(f"y must have one label per case ({n},), got shape {labels.shape}")
    known = np.isfinite(labels)
    if ((labels[known] < 0) | (labels[known] > 1)).any():
        raise InputError("y must be 0 or 1, or NaN where a label is unknown")
    if votes is None:
        return labels, np.zeros(n), np.zeros(n, dtype=np.int64)
    k = as_float(votes, "votes")
    if k.ndim == 2 and k.shape[1] == 2:
        n_raters = k.sum(axis=1)
        k = np.where(n_raters > 0, k[:, 1], np.nan)
    if k.shape != (n,):
        raise InputError(f"votes must have one count per case ({n},), got shape {k.shape}")
    if n_raters is None:
        raise InputError("votes need n_raters: the number of readers behind each count")
    m = np.broadcast_to(as_float(n_raters, "n_raters"), (n,))
    read = np.isfinite(k) & np.isfinite(m) & (m > 0)
    if ((k[read] < 0) | (k[read] > m[read]) | (k[read] != np.round(k[read]))).any():
        raise InputError("votes must be whole numbers between 0 and n_raters")
    return labels, np.where(read, k, 0.0), np.where(read, m, 0.0).astype(np.int64)


def _panel_sizes(n: int, panel_size: ArrayLike | None, m: Int, labelled: NDArray[np.bool_]) -> Int:
    if panel_size is not None:
        return check_sizes(panel_size, n, "panel_size")
    found = np.unique(m[m > 0])
    if len(found) == 1:
        return np.full(n, found[0])
    if not labelled.any() and len(found):
        return np.full(n, _commonest(m[m > 0]))
    raise InputError(
        "panel_size, the number of readers behind each label, is needed"
        + (" where the numbers of votes differ" if len(found) else "")
    )


def _commonest(sizes: Int) -> int:
    values, counts = np.unique(sizes, return_counts=True)
    return int(values[counts.argmax()])


def _check_identified(z: Float, labels: Float, m: Int, sizes: Int) -> None:
    only_label = (m == 0) & np.isfinite(labels)
    kinds = np.unique((sizes[only_label] + 1) // 2)
    several = (m >= 2).any()
    single = (m == 1).any() and (kinds >= 2).any()
    if several or single or len(kinds) >= 2:
        return
    if len(kinds) and kinds.max() >= 2:
        ends = [
            fit_panel_from_summary(z[only_label], labels[only_label], sizes[only_label][0], k).rho
            for k in (0.2, 0.8)
        ]
        answer = (
            f" Readers with a kappa of 0.2 to 0.8 would mean a rho of {ends[0]:.2f} to {ends[1]:.2f}:"
            " give kappa (fit_panel_from_summary), or votes of some cases."
        )
    else:
        answer = " Give votes of two or more readers on some cases."
    raise InputError(
        "rho, the correlation of readers' votes, is not identified by labels of one panel size alone."
        + answer
    )


def _covariance(objective: _Objective, theta: Float, step: float = 1e-4) -> Float | None:
    """Inverse of the curvature, by differences of the gradient; None where it is not positive."""
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


def _profile(
    objective: _Objective, theta: Float, covariance: Float | None, drop: float = 1.920729
) -> tuple[float, float]:
    """95 % interval of rho: where the profile of the posterior has fallen by half a chi-square quantile."""
    from scipy.optimize import brentq, minimize

    best = objective(theta)[0]
    inner = theta[:2].copy()

    def excess(logit_rho: float) -> float:
        def fixed(ab: Float) -> tuple[float, Float]:
            value, gradient = objective(np.array([ab[0], ab[1], logit_rho]))
            return value, gradient[:2]

        found = minimize(fixed, inner, jac=True, method="BFGS", options={"gtol": 1e-4})
        inner[:] = found.x
        return float(found.fun - best - drop)

    sd = 1.0 if covariance is None else float(np.sqrt(covariance[2, 2]))
    ends = []
    for side in (-1.0, 1.0):
        near, far = theta[2], theta[2] + side * 2.0 * sd
        inner[:] = theta[:2]
        for _ in range(6):
            if excess(far) > 0 or abs(far) > 9:
                break
            near, far = far, far + side * sd
        if abs(far) > 9:
            ends.append(0.0 if side < 0 else MOST_RHO)
            continue
        ends.append(float(expit(brentq(excess, near, far, xtol=1e-3))))
    return ends[0], ends[1]


def fit_panel_from_summary(
    logits: ArrayLike,
    y: ArrayLike,
    n_raters: ArrayLike,
    kappa: float,
    vote_share: float | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    prior_sd: float = PRIOR_SD_INTERCEPT,
) -> Panel:
    r"""Fit a panel to labels and two published numbers: the readers' kappa and their positive share.

    Intercept and slope come from the labels. The variance of the vote probability over cases is
    :math:`\kappa \pi (1 - \pi)` with :math:`\pi = E\mu`, and also
    :math:`Var(\mu) + \rho E[\mu (1 - \mu)]`, where :math:`\mu = T_m^{-1}(q; \rho)`: one equation for
    rho. With the share of all votes that are positive, a shift in logits moves the mean of mu there.

    Parameters
    ----------
    logits : array (n,)
        Out-of-sample logits.
    y : array (n,)
        Labels 0 / 1.
    n_raters : int
        Readers behind each label.
    kappa : float
        Fleiss' kappa (or an absolute-agreement intra-class correlation) of such readers on such cases;
        not a weighted kappa.
    vote_share : float, optional
        Share of all votes that are positive.

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
    from scipy.optimize import brentq, minimize

    z = check_logits(logits)
    n = len(z)
    labels, _, _ = _observed(n, np.asarray(y, dtype=np.float64), None, None)
    sizes = check_sizes(n_raters, n)
    reference = _commonest(sizes)
    if not -1.0 <= kappa <= 1.0:
        raise InputError(f"kappa must lie in [-1, 1], got {kappa!r}")
    if vote_share is not None and not 0.0 < vote_share < 1.0:
        raise InputError(f"vote_share must lie between 0 and 1, got {vote_share!r}")
    if _odd(reference) == 1:
        raise InputError(
            f"a panel of {reference} has the label of one reader: there is nothing to tell apart"
        )
    weight = np.ones(n) if sample_weight is None else as_float(sample_weight, "sample_weight")
    known = np.isfinite(labels)
    z, labels, weight = z[known], labels[known], weight[known]

    def loss(theta: Float) -> tuple[float, Float]:
        slope = np.exp(theta[1])
        q = theta[0] + slope * z
        value = weight @ (labels * log_expit(q) + (1 - labels) * log_expit(-q))
        residual = weight * (labels - expit(q))
        prior = 0.5 * (theta[0] / prior_sd) ** 2 + 0.5 * (theta[1] / PRIOR_SD_LOG_SLOPE) ** 2
        gradient = [
            residual.sum() - theta[0] / prior_sd**2,
            (residual * slope * z).sum() - theta[1] / PRIOR_SD_LOG_SLOPE**2,
        ]
        return float(prior - value), -np.array(gradient)

    a, log_b = minimize(loss, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-6 * n}).x
    q = a + np.exp(log_b) * z
    share = weight / weight.sum()

    def moved(rho: float) -> tuple[Float, float]:
        mu = _reader(q, rho, reference)
        if vote_share is None:
            return mu, 0.0

        def off(c: float) -> float:
            return float(share @ expit(mu + c)) - vote_share

        shift = float(brentq(off, -30.0, 30.0, xtol=1e-12))
        return mu + shift, shift

    def excess(rho: float) -> float:
        p = expit(moved(rho)[0])
        mean = float(share @ p)
        explained = float(share @ (p - mean) ** 2)
        return explained + rho * float(share @ (p * (1 - p))) - kappa * mean * (1 - mean)

    note = ""
    if excess(0.0) >= 0:
        rho, note = 0.0, "the features explain as much agreement as kappa tells of: rho is 0"
    elif excess(MOST_RHO) <= 0:
        rho, note = MOST_RHO, f"kappa is higher than a rho of {MOST_RHO} reaches"
    else:
        rho = float(brentq(excess, 0.0, MOST_RHO, xtol=1e-10))
    return Panel(
        intercept=float(a),
        slope=float(np.exp(log_b)),
        rho=rho,
        panel_size=reference,
        shift=moved(rho)[1],
        note=note,
    )


# Labels alone, and the numbers that are published ----------------------------------------------------


def fit_labels(
    logits: ArrayLike,
    y: ArrayLike,
    panel_size: ArrayLike | None = None,
    *,
    rho: float | None = None,
    sample_weight: ArrayLike | None = None,
    prior_sd: float = PRIOR_SD_INTERCEPT,
) -> Panel:
    """Fit intercept and slope of the label alone; rho is what is given, or unknown (NaN).

    Parameters
    ----------
    logits : array (n,) or (n, C)
        Out-of-sample logits.
    y : array (n,) or (n, C)
        Labels, or soft labels.
    panel_size : int or array (n,), optional
        Readers behind each label, where that is known.
    rho : float, optional
        Correlation of readers' votes, where it is to be fixed.

    Examples
    --------
    >>> panel = fit_labels([-1.0, 1.0] * 50, [0, 1] * 50)
    >>> panel.slope > 1.0, np.isnan(panel.rho)
    (True, True)
    """
    z = check_logits(logits)
    labels = as_float(y, "y")
    weight = np.ones(len(z)) if sample_weight is None else as_float(sample_weight, "sample_weight")
    intercept, slope = _fit_line(z, labels, weight, prior_sd)
    sizes = None if panel_size is None else check_sizes(panel_size, len(z), "panel_size")
    return Panel(
        intercept=intercept,
        slope=slope,
        rho=float("nan") if rho is None else check_rho(rho),
        panel_size=None if sizes is None else _commonest(sizes),
    )


def vote_moments(votes: Int) -> tuple[float, Float]:
    r"""Kappa and the share of votes for each class, from votes per class (n, C).

    The two numbers `fit_panel_from_summary` takes, over cases with two or more votes:
    :math:`\pi_c = E[k_c / m]` and
    :math:`\kappa = 1 - E[1 - \sum_c k_c (k_c - 1) / (m (m - 1))] / (1 - \sum_c \pi_c^2)`. With panels of
    one size this is Fleiss' kappa; with several every case counts alike, as it does in the fit.

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
    differ = (1.0 - (k * (k - 1.0)).sum(axis=1) / (m * (m - 1.0))).mean()
    chance = 1.0 - float((share**2).sum())
    return (float(1.0 - differ / chance) if chance > 0 else float("nan")), share


def _fit_line(z: Float, labels: Float, weight: Float, prior_sd: float) -> tuple[float, float]:
    from scipy.optimize import minimize

    def loss(theta: Float) -> tuple[float, Float]:
        slope = np.exp(theta[1])
        q = theta[0] + slope * z
        value = weight @ (labels * log_expit(q) + (1 - labels) * log_expit(-q))
        residual = weight * (labels - expit(q))
        prior = 0.5 * (theta[0] / prior_sd) ** 2 + 0.5 * (theta[1] / PRIOR_SD_LOG_SLOPE) ** 2
        gradient = [
            residual.sum() - theta[0] / prior_sd**2,
            (residual * slope * z).sum() - theta[1] / PRIOR_SD_LOG_SLOPE**2,
        ]
        return float(prior - value), -np.array(gradient)

    a, log_b = minimize(loss, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-6 * len(z)}).x
    return float(a), float(np.exp(log_b))


def split_probability(logits: ArrayLike, rho: float, n_raters: ArrayLike) -> Float:
    """Probability that a panel of m readers has low agreement."""
    from scalecal.votes import stratum_codes

    z = check_logits(logits)
    sizes = check_sizes(n_raters, len(z))
    out = np.full(len(z), np.nan)
    for m in np.unique(sizes[sizes >= 2]):
        here = sizes == m
        k = np.arange(m + 1)
        low = stratum_codes(np.column_stack([m - k, k])) == 2
        out[here] = np.exp(vote_log_pmf(z[here], rho, int(m)))[:, low].sum(axis=1)
    return out
