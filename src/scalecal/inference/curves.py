r"""The flexible calibration curve, its bands, and the errors read from it (ICI, E50, E90, Emax).

The curve is a logistic regression of the outcome on a restricted cubic spline of logit p (Harrell, 2015), and
not loess, for four reasons. It has a likelihood, and Cox's line is a special case of it. It works in logits,
so that it stays between 0 and 1 and resolves rare findings. Its tails are linear, where loess has few cases.
And its covariance over groups is a sandwich, where loess needs a bootstrap. It is the curve of R's `rms`
(``lrm(y ~ rcs(qlogis(p), 5))``) and one of those in `pmcalibration`. Shares of votes are fitted by the same
estimating equations (quasi-binomial).

Knots lie at Harrell's quantiles of logit p: five, fewer if the rarer outcome or the groups are scarce or p
has few distinct values (`knots_supported`). Cases of nearly the same p are gathered into cells first, so that
the cost hardly depends on their number.

With :math:`c` the curve, ICI is the mean of :math:`|c(p_i) - p_i|` over the cases, E50 and E90 are its
quantiles, and Emax is its maximum (Austin and Steyerberg, 2019). All four are positive for a calibrated model
too: their **floor** is the mean that a calibrated model with these p and groups would show. Their intervals
invert a test. Among the curves on the line from the diagonal through the estimate, the interval holds those
under which the estimate is no outlier, so it starts at 0 if a calibrated model could have shown as much. Its
upper end is at least the 97.5th percentile of curves drawn about the estimate, which allows for curves off
that line. (Both percentiles of a bootstrap lie too high: resampling adds noise of its own to an absolute
error.)

References
----------
Harrell (2015), Regression Modeling Strategies, 2nd ed., section 2.4.5 (knots). Austin, Steyerberg (2019),
Statistics in Medicine 38, 4051-4065 (ICI, E50, E90). Austin, Harrell, van Klaveren (2020), Statistics in
Medicine 39, 2714-2742 (the curve by splines). Mancl, DeRouen (2001), Biometrics 57, 126-134 (sandwich of few
groups). Montiel Olea, Plagborg-Moller (2019), Journal of Applied Econometrics 34, 1-17 (simultaneous bands).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import expit, logit, stdtrit

from scalecal.checks import Float, Int, as_rng
from scalecal.inference.units import NORMAL_95, Units, effective_units
from scalecal.metrics.grouping import MIN_GROUPS, too_few

ERRORS = ("ici", "e50", "e90", "emax")
"""Errors that are read from the curve, in the order of `FlexibleCurve.errors`."""

SELECTED = "the votes made this stratum, and that selection bends the curve of a calibrated model"
"""Why strata of agreement have no curve."""

KNOTS: dict[int, tuple[float, ...]] = {
    2: (),
    3: (0.1, 0.5, 0.9),
    4: (0.05, 0.35, 0.65, 0.95),
    5: (0.05, 0.275, 0.5, 0.725, 0.95),
}
"""Number of coefficients -> shares of cases below each knot (Harrell, 2015, table 2.3); 2 is a line."""

CENTRAL = (0.025, 0.975)
"""Shares of cases below the ends of the curve's range: the central 95 % of p."""

NEAREST = 1e-8
"""Distance to 0 and 1 at which p is kept for its logit."""

MAX_CELLS = 1024
"""Cells into which the cases are gathered at most; fewer distinct p are cells of their own."""

GRID_POINTS = 41
ERROR_POINTS = 128
"""Points at which drawn curves are compared with the diagonal, of equal mass; and both ends."""

BAND_DRAWS, ERROR_DRAWS = 2000, 400
LADDER, REACH = 15, 4.0
"""Curves tried for the intervals, from the diagonal to `REACH` standard errors past the estimate."""

SUPPORT = ((5, 100.0, 40.0), (4, 70.0, 25.0), (3, 40.0, 12.0))
"""Coefficients, with the cases of the rarer outcome and the independent units that they need at least."""

MAX_STEPS, CONVERGED = 40, 1e-8  # of Newton's method; the latter in logits
SINGULAR = 1e-9
WIDEST = 1.5  # standard error in logits beyond which a curve has too many coefficients
MIN_LENGTH = 1e-6  # standard errors from the diagonal
MAX_PULL = 0.9


def rcs_basis(z: Float, knots: Float) -> Float:
    r"""Restricted cubic spline: columns 1, z, and one for every knot but two, (n, max(2, knots)).

    With knots :math:`t_1 < ... < t_k` column j has :math:`(z - t_j)_+^3 - (z - t_{k-1})_+^3 (t_k - t_j) /
    (t_k - t_{k-1}) + (z - t_k)_+^3 (t_{k-1} - t_j) / (t_k - t_{k-1})`, divided by :math:`(t_k - t_1)^2`
    (Harrell, 2015, section 2.4.5): linear below the first knot and above the last.

    Examples
    --------
    >>> rcs_basis(np.array([-1.0, 0.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0]))[:, 2].tolist()
    [0.0, 0.0, 1.5, 3.0]
    """
    columns = [np.ones_like(z), z]
    if len(knots) > 2:
        last, before = knots[-1], knots[-2]
        scale = (last - knots[0]) ** 2
        beyond_last = np.maximum(z - last, 0.0) ** 3
        beyond_before = np.maximum(z - before, 0.0) ** 3
        for knot in knots[:-2]:
            cubic = np.maximum(z - knot, 0.0) ** 3
            cubic -= beyond_before * (last - knot) / (last - before)
            cubic += beyond_last * (before - knot) / (last - before)
            columns.append(cubic / scale)
    return np.column_stack(columns)


def weighted_quantiles(values: Float, mass: Float, shares: Float) -> Float:
    """Quantiles of ascending values that stand for `mass` cases each, as `numpy.quantile` of all cases.

    Examples
    --------
    >>> weighted_quantiles(np.array([1.0, 3.0]), np.array([2.0, 1.0]), np.array([0.5, 0.75]))
    array([1., 2.])
    >>> np.quantile([1.0, 1.0, 3.0], [0.5, 0.75])
    array([1., 2.])
    """
    upto = np.cumsum(mass)
    place = shares * max(upto[-1] - 1.0, 0.0)
    below = np.floor(place)
    # Rounding of sums must not move a place past the last of its equals.
    rank = np.searchsorted(upto, np.stack([below, below + 1.0]) + 1e-9, side="right")
    low, high = values[np.minimum(rank, len(values) - 1)]
    return np.asarray(low + (place - below) * (high - low))


@dataclass(frozen=True, eq=False)
class Gathered:
    """Cases in cells of nearly equal p, in the order of p.

    `cell` is the cell of each case; `z`, `mass` and `share` are the mean logit, the number (or weight) of
    cases and the mean outcome of every cell; `values` and `counts` are the distinct logits and the cases of
    each, from which knots are taken.
    """

    cell: Int
    z: Float
    mass: Float
    share: Float
    values: Float
    counts: Float

    @property
    def p(self) -> Float:
        """Probability of each cell."""
        return np.asarray(expit(self.z))

    @classmethod
    def of(cls, y: Float, p: Float, weights: Float | None) -> Gathered:
        """Gather cases; equal p stay together, so that the order of the cases is no matter."""
        w = np.ones(len(p))
        if weights is not None:
            w = weights
        distinct, place = np.unique(p, return_inverse=True)
        counts = np.bincount(place, w)
        cell = np.arange(len(distinct))
        if len(distinct) > MAX_CELLS:
            middle = np.cumsum(counts) - counts / 2.0
            cell = np.unique(middle * MAX_CELLS // counts.sum(), return_inverse=True)[1]
        z = logit(np.clip(distinct, NEAREST, 1.0 - NEAREST))
        mass = np.bincount(cell, counts).astype(np.float64)
        each = cell[place]
        return cls(
            np.asarray(each, dtype=np.int64),
            np.bincount(cell, counts * z) / mass,
            mass,
            np.bincount(each, w * y) / mass,
            z,
            np.asarray(counts, dtype=np.float64),
        )


def knots_supported(rarer: float, independent: float) -> int:
    """Number of coefficients that the data support, between 2 (a line) and 5.

    `rarer` is the number of cases with the rarer outcome, `independent` that of independent cases, or of
    equal groups, that these are worth.

    Examples
    --------
    >>> [knots_supported(rarer, 1000.0) for rarer in (10, 50, 80, 500)]
    [2, 3, 4, 5]
    """
    for count, least_cases, least_units in SUPPORT:
        if rarer >= least_cases and independent >= least_units:
            return count
    return 2


@dataclass(frozen=True, eq=False)
class FlexibleCurve:
    """A fitted curve: c(p) = expit(basis(logit p) coefficients). Made by `fit_curve`.

    Attributes
    ----------
    gathered : Gathered
        The cases in their cells.
    knots : array
        Knots on the logit scale; none of a line.
    turn : array (k, k)
        Upper triangular; its inverse turns `rcs_basis` into columns that are orthonormal over the cases.
    coefficients, calibrated : array (k,)
        Of the curve and of the diagonal, in the turned basis.
    spread, calibrated_spread : array (k, k)
        Square roots S of the covariance S S' of the coefficients: as estimated, and of a calibrated model.
    degrees : float
        Degrees of freedom of Student's t.
    """

    gathered: Gathered
    knots: Float
    turn: Float
    coefficients: Float
    calibrated: Float
    spread: Float
    calibrated_spread: Float
    degrees: float

    def basis(self, p: Float) -> Float:
        """Turned columns of the spline at each p."""
        z = logit(np.clip(p, NEAREST, 1.0 - NEAREST))
        return _turned(rcs_basis(z, self.knots), self.turn)

    def at(self, p: Float) -> Float:
        """Height of the curve at each p."""
        return np.asarray(expit(self.basis(p) @ self.coefficients))

    @property
    def range(self) -> tuple[float, float]:
        """Ends of the central 95 % of p (`CENTRAL`): beyond them the curve rests on few cases."""
        ends = weighted_quantiles(self.gathered.values, self.gathered.counts, np.array(CENTRAL))
        low, high = expit(ends).tolist()
        return low, high

    def grid(self, points: int = GRID_POINTS) -> Float:
        """Probabilities over `range`, closer together near 0 and 1 (even in arcsin of the root)."""
        low, high = np.arcsin(np.sqrt(self.range)).tolist()
        return np.asarray(np.sin(np.linspace(low, high, points)) ** 2)

    def widest_error(self) -> float:
        """Largest standard error over `range`, in logits: as estimated, or of a calibrated model."""
        basis = self.basis(self.grid())
        both = np.stack([basis @ self.spread, basis @ self.calibrated_spread])
        return float(np.sqrt((both**2).sum(axis=2)).max())

    def band(self, grid: Float, *, seed: int = 0) -> dict[str, Float]:
        """Curve on a grid of p, with pointwise and simultaneous 95 % bands.

        Both are symmetric in logits. The simultaneous one is wider by the 95th percentile of the largest
        deviation, in standard errors, of 2,000 draws of the coefficients (sup-t).

        Returns
        -------
        dict
            ``value``, ``low`` and ``high`` (pointwise), ``all_low`` and ``all_high`` (simultaneous).
        """
        basis = self.basis(grid)
        middle = basis @ self.coefficients
        deviation = basis @ self.spread
        error = np.sqrt((deviation**2).sum(axis=1))
        pointwise = float(stdtrit(self.degrees, 0.975))
        drawn = _students(BAND_DRAWS, len(self.coefficients), self.degrees, seed)
        largest = np.abs(drawn @ (deviation / error[:, None]).T).max(axis=1)
        # Draws must not make the simultaneous band the narrower one.
        together = max(pointwise, float(np.quantile(largest, 0.95)))
        return {
            "value": expit(middle),
            "low": expit(middle - pointwise * error),
            "high": expit(middle + pointwise * error),
            "all_low": expit(middle - together * error),
            "all_high": expit(middle + together * error),
        }

    def observed(self) -> Float:
        """ICI, E50, E90 and Emax."""
        cells = self.gathered
        return _errors_of(self.at(cells.p), cells)

    def errors(self, *, seed: int = 0) -> dict[str, float]:
        """ICI, E50, E90 and Emax: each with ``_low``, ``_high`` and ``_floor`` (see the module's text).

        Examples
        --------
        >>> p = np.random.default_rng(0).uniform(size=4000)
        >>> y = np.random.default_rng(1).random(4000) < p**2
        >>> curve = fit_curve(y, p, Units.of(4000))
        >>> found = curve.errors()
        >>> found["ici_low"] < 1 / 6 < found["ici_high"], found["ici_floor"] < 0.02
        (True, True)
        """
        cells = self.gathered
        basis = self.basis(cells.p)
        observed = self.observed()
        departure = self.coefficients - self.calibrated
        length = float(np.linalg.norm(np.linalg.solve(self.spread, departure)))
        if length < MIN_LENGTH:
            # Of a curve on the diagonal no direction is known: any other will do.
            departure, length = self.calibrated_spread[:, 0], 1.0
            observed = np.zeros(len(ERRORS))
        reach = REACH * float(stdtrit(self.degrees, 0.975)) / NORMAL_95
        steps = np.linspace(0.0, (length + reach) / length, LADDER)

        points = self._points()
        draws = _students(ERROR_DRAWS, len(departure), self.degrees, seed)
        heights, low, high = [], [], []
        for step in steps.tolist():
            middle = self.calibrated + step * departure
            heights.append(_errors_of(expit(basis @ middle), cells))
            # The noise is a calibrated model's at the foot of the ladder, and as estimated from step 1.
            share = min(step, 1.0)
            spread = (1.0 - share) * self.calibrated_spread + share * self.spread
            drawn = _drawn_errors(
                basis[points] @ (middle[:, None] + spread @ draws.T), cells.p[points]
            )
            low.append(np.quantile(drawn, 0.025, axis=0))
            high.append(np.quantile(drawn, 0.975, axis=0))
        around = self.coefficients[:, None] + self.spread @ draws.T
        about = _drawn_errors(basis[points] @ around, cells.p[points])
        about_high = np.quantile(about, 0.975, axis=0)
        plain = _students(ERROR_DRAWS, len(departure), np.inf, seed)
        null = self.calibrated[:, None] + self.calibrated_spread @ plain.T
        floor = _drawn_errors(basis[points] @ null, cells.p[points]).mean(axis=0)

        out: dict[str, float] = {}
        for j, name in enumerate(ERRORS):
            height = np.array(heights)[:, j]
            height[0] = 0.0  # the diagonal, but for rounding
            value = float(observed[j])
            ends = []
            for quantiles in (high, low):
                crossed = np.maximum.accumulate(np.array(quantiles)[:, j])
                step = np.interp(value, crossed, steps)
                ends.append(float(np.interp(step, steps, height)))
            out |= {
                name: value,
                f"{name}_low": min(ends[0], value),
                # Curves off that line may lie further from the diagonal: the upper end allows for them.
                f"{name}_high": max(ends[1], value, float(about_high[j])),
                f"{name}_floor": float(floor[j]),
            }
        return out

    def _points(self) -> Int:
        """Cells of points of equal mass, and the first and last cell."""
        upto = np.cumsum(self.gathered.mass)
        middle = (np.arange(ERROR_POINTS) + 0.5) / ERROR_POINTS * upto[-1]
        return np.concatenate([np.searchsorted(upto, middle), [0, len(upto) - 1]])


def _turned(basis: Float, turn: Float) -> Float:
    return np.asarray(solve_triangular(turn, basis.T, trans="T").T)


def _students(n_draws: int, size: int, degrees: float, seed: int) -> Float:
    """Draws (n_draws, size) of a multivariate t of unit scale; normal where `degrees` is infinite."""
    rng = as_rng(seed)
    drawn = rng.standard_normal((n_draws, size))
    if np.isfinite(degrees):
        drawn *= np.sqrt(degrees / rng.chisquare(degrees, n_draws))[:, None]
    return drawn


def _errors_of(height: Float, cells: Gathered) -> Float:
    """ICI, E50, E90 and Emax of a curve over the cells."""
    gap = np.abs(height - cells.p)
    order = np.argsort(gap, kind="stable")
    quantiles = weighted_quantiles(gap[order], cells.mass[order], np.array([0.5, 0.9]))
    mean = float(gap @ cells.mass / cells.mass.sum())
    return np.array([mean, *quantiles, gap.max()])


def _drawn_errors(logits: Float, p: Float) -> Float:
    """The same of drawn curves, (points, draws) in, (draws, 4) out; the last two points are the ends."""
    gap = np.abs(expit(logits) - p[:, None])
    even = gap[:-2]
    ranks = [ERROR_POINTS // 2, int(0.9 * ERROR_POINTS)]
    ranked = np.partition(even, ranks, axis=0)
    return np.column_stack([even.mean(axis=0), ranked[ranks[0]], ranked[ranks[1]], gap.max(axis=0)])


def fit_curve(
    y: Float,
    p: Float,
    units: Units,
    n_coefficients: int | None = None,
    knots: Float | None = None,
) -> FlexibleCurve | str:
    """Fit the flexible curve; the reason where there is none.

    Parameters
    ----------
    y
        (n,) labels, or shares of votes.
    p
        (n,) probabilities.
    units
        What is independent, and what each row counts.
    n_coefficients
        2 (a line) to 5; None: as many as the data support (`knots_supported`).
    knots
        Knots of logit p; None: at quantiles of the cases.

    Examples
    --------
    >>> y, p = np.array([0.0, 1.0] * 20), np.full(40, 0.3)
    >>> fit_curve(y, p, Units.of(40))
    'all probabilities are equal: there is no curve'
    """
    if units.times is not None and not units.times.all():
        counted = units.times > 0
        y, p, units = y[counted], p[counted], units.within(counted)
    if why := _why_none(y, p, units):
        return why
    gathered = Gathered.of(y, p, units.weights)
    times = np.ones(len(y))
    worth = float(units.n)
    if units.times is not None:
        times = units.times
    elif units.group is not None:
        # Where the outcome is rare a few groups of high p hold nearly all that is known of the curve.
        worth = effective_units(units.size(p * (1.0 - p))[:, 0])
    elif units.importance is not None:
        worth = effective_units(units.importance.weight)
    chosen = n_coefficients is None and knots is None
    if n_coefficients is None:
        positives = float(times @ y)
        n_coefficients = knots_supported(min(positives, units.n - positives), worth)
    tried: list[Float] = []
    if knots is not None:
        tried.append(knots)
    else:
        for count in range(n_coefficients, 1, -1):
            shares = np.array(KNOTS[count])
            tried.append(weighted_quantiles(gathered.values, gathered.counts, shares))
    for each in tried:
        # Ties may leave fewer knots, or fewer values of p, than there are coefficients.
        if len(np.unique(each)) < len(each) or len(gathered.z) < len(each):
            continue
        fitted = _fit(gathered, each)
        if fitted is None:
            continue
        curve = _with_spread(y, units, gathered, each, worth, *fitted)
        # Where p is next to 0 or 1 there is no event to bend a curve by, however many cases there are.
        if not chosen or len(each) == 0 or curve.widest_error() <= WIDEST:
            return curve
    return "the probabilities separate the classes: no finite curve is best"


def _why_none(y: Float, p: Float, units: Units) -> str:
    if why := too_few(units.group):
        return f"{why} for a flexible curve"
    if units.n < MIN_GROUPS:
        return f"too few cases ({units.n}, at least {MIN_GROUPS} are needed) for a flexible curve"
    if y.min() == y.max() and y.min() in (0.0, 1.0):
        return "only one class is present: there is no curve"
    if p.min() == p.max():
        return "all probabilities are equal: there is no curve"
    if np.isin(p, (0.0, 1.0)).all():
        return "all probabilities are 0 or 1: they have no logits to fit a curve to"
    return ""


def _fit(cells: Gathered, knots: Float) -> tuple[Float, Float, Float] | None:
    """Turn, coefficients, and those of the diagonal, by Newton's method; None where there is no maximum."""
    basis = rcs_basis(cells.z, knots)
    turn = np.linalg.qr(np.sqrt(cells.mass / cells.mass.sum())[:, None] * basis)[1]
    size = np.abs(np.diag(turn))
    if size.min() < SINGULAR * size.max():
        return None
    x = _turned(basis, turn)
    whole = float(cells.mass @ cells.share / cells.mass.sum())
    coefficients: Float = turn[:, 0] * logit(whole)
    best = -np.inf
    step: Float = np.zeros_like(coefficients)
    for _ in range(MAX_STEPS):
        eta = x @ (coefficients + step)
        likelihood = float(cells.mass @ (cells.share * eta - np.logaddexp(0.0, eta)))
        if likelihood < best - 1e-9 * abs(best):
            step = step / 2.0
            continue
        best, coefficients = likelihood, coefficients + step
        mu = expit(eta)
        information = (x * (cells.mass * mu * (1.0 - mu))[:, None]).T @ x
        score = x.T @ (cells.mass * (cells.share - mu))
        if not np.linalg.cond(information) < 1.0 / SINGULAR:
            return None
        step = np.asarray(np.linalg.solve(information, score), dtype=np.float64)
        # Where the classes are separated every step moves the outermost logits by about one, without end.
        if np.abs(x @ step).max() < CONVERGED:
            return turn, coefficients + step, turn[:, 1]
    return None


def _with_spread(
    y: Float,
    units: Units,
    cells: Gathered,
    knots: Float,
    worth: float,
    turn: Float,
    coefficients: Float,
    calibrated: Float,
) -> FlexibleCurve:
    """Add the covariance of the coefficients over units to a fit."""
    x = _turned(rcs_basis(cells.z, knots), turn)
    mu = expit(x @ coefficients)
    information = (x * (cells.mass * mu * (1.0 - mu))[:, None]).T @ x
    claimed = (x * (cells.mass * cells.p * (1.0 - cells.p))[:, None]).T @ x
    meat, degrees = _meat(y, units, cells, x, mu, information)
    # Noise beyond that of independent labels: the meat, with the information as its unit.
    half = np.linalg.cholesky(information)
    scaled = solve_triangular(half, meat, lower=True)
    effect = solve_triangular(half, scaled.T, lower=True)
    least = 0.0
    if units.importance is None and np.isin(y, (0.0, 1.0)).all():
        # Labels vary at least as their probabilities say: a sandwich of few cases or groups may say less.
        least = 1.0
    root = _root(effect, least)
    null_root = root
    if units.group is None and least:
        null_root = np.eye(len(root))
    spread = solve_triangular(half, root, lower=True, trans="T")
    null_half = np.linalg.cholesky(claimed)
    null_spread = solve_triangular(null_half, null_root, lower=True, trans="T")
    if np.isfinite(degrees):
        degrees = max(1.0, min(degrees, worth - 1.0))
    return FlexibleCurve(cells, knots, turn, coefficients, calibrated, spread, null_spread, degrees)


def _root(matrix: Float, least: float) -> Float:
    """Symmetric square root, with eigenvalues of at least so much."""
    level, axes = np.linalg.eigh((matrix + matrix.T) / 2.0)
    return np.asarray((axes * np.sqrt(np.maximum(level, least))) @ axes.T)


def _meat(
    y: Float, units: Units, cells: Gathered, x: Float, mu: Float, information: Float
) -> tuple[Float, float]:
    """Sum over units of the squared score of each, as it would be without the unit's own pull on the curve.

    The jackknife's (Mancl and DeRouen, 2001): a unit's score s becomes (I - A_g / A)^-1 s, where A_g is its
    part of the information A. With it come the degrees of freedom of that sum (Satterthwaite, 1946): few if
    a few units make most of it.
    """
    residual = y - mu[cells.cell]
    variance = mu * (1.0 - mu)
    k = x.shape[1]
    if units.group is None and units.importance is None:
        squares = residual**2
        if units.times is not None:
            squares = units.times * squares
        # Each case is a unit. Its pull is its leverage, the same throughout a cell.
        pull = variance * np.einsum("ij,jk,ik->i", x, np.linalg.inv(information), x)
        mass = (
            np.bincount(cells.cell, squares, len(cells.z)) / (1.0 - np.minimum(pull, MAX_PULL)) ** 2
        )
        return np.asarray((x * mass[:, None]).T @ x), np.inf

    pairs = [(i, j) for i in range(k) for j in range(i, k)]

    def terms(part: slice, here: Units) -> dict[str, Float]:
        rows = x[cells.cell[part]]
        r, v = residual[part], variance[cells.cell[part]]
        score = [here.total(rows[:, j] * r) for j in range(k)]
        pull = [here.size(rows[:, i] * rows[:, j] * v) for i, j in pairs]
        return {"score": np.hstack(score), "pull": np.hstack(pull)}

    sums = units.totals(terms)
    part = np.empty((units.count, k, k))
    for number, (i, j) in enumerate(pairs):
        part[:, i, j] = part[:, j, i] = sums["pull"][:, number]
    rest = np.eye(k) - part @ np.linalg.inv(information)
    score = np.linalg.solve(rest, sums["score"][:, :, None])[:, :, 0]
    meat = np.asarray(score.T @ score)
    length = np.einsum("ij,jk,ik->i", score, np.linalg.pinv(meat), score)
    # The lengths sum to k: of n equal normal scores their squares sum to (k + 2) k / n.
    noise = float((length**2).sum()) - k**2 / np.count_nonzero(length)
    return meat, 2.0 * k / max(noise, 1e-12)


def curve_row(y: Float, p: Float, units: Units, seed: int = 0) -> dict[str, float | str]:
    """What an audit's row has of the flexible curve: `FlexibleCurve.errors`, and ``curve_reason``."""
    curve = fit_curve(y, p, units)
    if isinstance(curve, str):
        return no_curve(curve)
    return {**curve.errors(seed=seed), "curve_reason": ""}


def no_curve(reason: str) -> dict[str, float | str]:
    """Return the same numbers where there is no curve: NaN, and why."""
    out: dict[str, float | str] = {"curve_reason": reason}
    for name in ERRORS:
        for suffix in ("", "_low", "_high", "_floor"):
            out[f"{name}{suffix}"] = float("nan")
    return out
