"""How many cases an audit needs, and how many cases with votes a panel needs, before any data exist.

`plan`, by simulation: draw the stratum of a study of N cases judged by m readers
(`scalecal.datasets`), give it predictions that are wrong by a known amount, test, and count
rejections. `plan_votes`, by simulation too: draw labels and votes from a panel (`scalecal.panel`),
fit the panel to them, and compare its reader's probability with the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import expit, logit, ndtr, rel_entr
from scipy.stats import binomtest, chi2, ncx2

from scalecal.checks import (
    Float,
    InputError,
    Int,
    LazyModule,
    as_rng,
    check_inside,
    check_list,
    check_unit,
)
from scalecal.datasets.simulated import simulate
from scalecal.inference.units import NORMAL_95
from scalecal.limits import check_count
from scalecal.metrics import cox, noise_floor
from scalecal.metrics.grouping import MIN_GROUPS
from scalecal.panel import (
    Panel,
    check_rho,
    fit_panel,
    fit_panel_from_summary,
    reader_logit,
    vote_log_pmf,
)
from scalecal.planning.precision import design_effect

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = LazyModule("pandas")

_SCORES = np.linspace(-5.5, 5.5, 2201)  # scores at which the truth is tabulated
_FLIPS = 399  # sign flips of the test with groups: its p-value is compared with one level only
_GRID = np.geomspace(0.4, 2.5, 7)  # studies simulated, around the size theory expects


@dataclass(frozen=True)
class Plan:
    """Power of audits by number of cases and readers, and what the desired power needs.

    Attributes
    ----------
    table : DataFrame
        One row per simulated study: ``n_raters``, ``n_cases``, ``stratum_share``,
        ``n_in_stratum`` (expected), ``floor`` (mean ECE a calibrated model would show there),
        ``power`` and its 95 % interval ``power_low``, ``power_high``.
    needed : DataFrame
        One row per number of readers: ``n_raters``, ``n_cases`` for the desired power with its 95 %
        interval ``n_low``, ``n_high``, ``n_in_stratum``, and ``extrapolated`` (true where that
        lies outside the studies simulated).
    power : float
        The desired power.
    title : str
        The question, in words.
    """

    table: pd.DataFrame
    needed: pd.DataFrame
    power: float
    title: str

    def __str__(self) -> str:
        lines = [self.title, "", "readers    cases  in stratum  floor  power"]
        row: Any
        for row in self.table.itertuples():
            bar = "#" * round(20 * row.power)
            lines.append(
                f"{row.n_raters:7d}  {row.n_cases:7,d}  {row.n_in_stratum:10,.0f}  "
                f"{row.floor:.3f}  {row.power:.2f}   |{bar:<20}|"
            )
        lines += ["", f"Cases needed for a power of {self.power:g}:"]
        for row in self.needed.itertuples():
            beyond = "; outside the simulated range" if row.extrapolated else ""
            lines.append(
                f"{row.n_raters:3d} readers: {row.n_cases:,d} ({row.n_low:,d} to {row.n_high:,d}), "
                f"{row.n_in_stratum:,.0f} of them in the stratum{beyond}"
            )
        return "\n".join(lines)


class _Stratum(NamedTuple):
    """Truth in a stratum, tabulated at `_SCORES`: their law, label probability, model's claim."""

    share: float
    cumulative: Float
    truth: Float
    claim: Float

    def draw(
        self, n: int, rng: np.random.Generator, uniforms: Float | None = None
    ) -> tuple[Float, Float]:
        """Labels and predictions of `n` cases of the stratum; `uniforms` decide the labels."""
        t = np.interp(rng.random(n), self.cumulative, _SCORES)
        if uniforms is None:
            uniforms = rng.random(n)
        y = (uniforms < np.interp(t, _SCORES, self.truth)).astype(np.float64)
        return y, np.interp(t, _SCORES, self.claim)


class Groups(NamedTuple):
    """Patients: cases of each, and the correlation of two cases' residuals."""

    size: int
    icc: float

    def draw(self, n: int, share: float, rng: np.random.Generator) -> tuple[Int, Float]:
        """Patients of the cases that fall into a stratum, of `n` in all, and what decides their labels."""
        code = np.arange(n) // self.size
        code = code[rng.random(n) < share]
        common = rng.random(n // self.size + 1)[code]
        shared = rng.random(len(code)) < np.sqrt(self.icc)
        return code, np.where(shared, common, rng.random(len(code)))


def plan(
    excess: float = 0.05,
    *,
    stratum_share: float = 0.17,
    power: float = 0.8,
    n_raters: Sequence[int] = (3, 5, 7),
    n_cases: Sequence[int] | None = None,
    group_size: int = 1,
    icc: float = 0.1,
    level: float = 0.05,
    n_simulations: int = 400,
    seed: int | np.random.Generator | None = 0,
) -> Plan:
    """Find how many cases, read by how many readers, detect over-confidence of size `excess`.

    By Cox's test, the strongest on few cases; cases and readers are those of `simulate`.

    Parameters
    ----------
    excess : float
        True calibration error of the model in the stratum: the mean of abs(p - q), q the label's
        true probability given the features. The model's logits are the true ones times what gives
        this error.
    stratum_share : float
        Share of the cases in the stratum: the hardest by the features, those whose label is
        nearest to a coin toss.
    power : float
        Desired power: the chance that the test rejects.
    n_raters : sequence of int
        Panels to consider; the label is their majority.
    n_cases : sequence of int, optional
        Studies to simulate, cases in all strata together. Default: seven sizes around what theory
        expects to be needed.
    group_size : int
        Cases a patient. With 2 or more the test is that of an audit with groups.
    icc : float
        Correlation of the residuals (label less its true probability) of two cases of one patient whose
        probabilities are alike; without groups it plays no part.
    level : float
        Level of the test in this stratum (divide it by the number of strata for Holm's first step).
    n_simulations : int
        Studies per row.
    seed : int, Generator or None
        Randomness.

    Notes
    -----
    With more readers the label of the same case gets less noisy, since P(Bin(m, P) > m/2) is nearer to
    0 or 1 than P, so each case is more informative.

    The needed number of cases comes from a fit to all rows of one panel: Cox's statistic has the
    non-central chi-square law with 2 degrees of freedom, whose non-centrality is proportional to n
    for large n; fitted is non-centrality = exp(a + b log n) by maximum likelihood, b held near 1.

    With groups a case's label is positive if a uniform number lies below its true probability. With
    probability sqrt(icc) this number is its patient's, else its own, so that two cases share one with
    probability icc. Patients have cases in and outside of the stratum.

    References
    ----------
    D. R. Cox, "Two further applications of a model for binary regression", Biometrika 45, 1958.

    Examples
    --------
    >>> result = plan(0.1, stratum_share=0.2, n_raters=(3, 7), n_simulations=50)
    >>> result.table[["n_raters", "n_cases", "power"]].shape
    (14, 3)
    >>> result.needed["n_raters"].tolist()
    [3, 7]
    """
    check_inside(excess, "excess")
    check_inside(power, "power")
    check_inside(level, "level")
    if power <= level:
        raise InputError(f"power must exceed the level {level:g}, got {power:g}")
    n_simulations = check_count(n_simulations, "n_simulations", "resamples", least=20)
    groups = Groups(check_count(group_size, "group_size", "cases"), check_unit(icc, "icc"))
    rng = as_rng(seed)
    panels = [check_count(m, "n_raters", "readers") for m in check_list(n_raters, "n_raters")]
    parts = {m: _stratum(m, stratum_share, excess) for m in panels}
    if n_cases is None:
        expected = [_expected_cases(part, level, power) for part in parts.values()]
        # Of a patient's cases only some fall into the stratum, so the effect is at most Kish's.
        in_stratum = max(1.0, groups.size * min(part.share for part in parts.values()))
        effect = design_effect(in_stratum, groups.icc)
        least, most = min(expected), effect * max(expected)
        if groups.size > 1:
            # With fewer patients there is no test.
            least = max(least, MIN_GROUPS * groups.size / float(_GRID[0]))
        sizes = _round_sizes(least, max(least, most))
    else:
        wanted = check_list(n_cases, "n_cases")
        sizes = sorted({check_count(n, "n_cases", "cases", least=2) for n in wanted})
    table = pd.DataFrame(
        [
            {"n_raters": m, "n_cases": n} | _study(part, n, level, n_simulations, groups, rng)
            for m, part in parts.items()
            for n in sizes
        ]
    )
    needed = pd.DataFrame(
        [
            {"n_raters": m} | _needed(rows, n_simulations, level, power)
            for m, rows in table.groupby("n_raters", sort=False)
        ]
    )
    title = (
        f"Detecting a calibration error of {excess:g} (overconfident) in "
        f"{100 * stratum_share:.0f} % of cases: "
        f"Cox's test at level {level:g}, {n_simulations} simulated studies per line"
    )
    if groups.size > 1:
        title += f"; {groups.size} cases a patient, ICC {groups.icc:g}"
    return Plan(table, needed, float(power), title)


def _stratum(m: int, share: float, excess: float) -> _Stratum:
    """Tabulate a panel's stratum and predictions that are over-confident by `excess` in it."""
    if not check_unit(share, "stratum_share") > 0.0:
        raise InputError("stratum_share must be above 0")
    model = simulate(1, dim=1, n_raters=m).model
    truth = _inside(model.label_probability_at(_SCORES))
    density = np.exp(-0.5 * _SCORES**2)
    mass = density * _hardest(truth, share)
    weights = mass / mass.sum()
    z = logit(truth)

    def claim(g: float) -> Float:
        return np.asarray(expit(z * np.exp(g)))

    def error(g: float) -> float:
        return float(weights @ np.abs(claim(g) - truth))

    most = error(6.0)
    if most <= excess:
        raise InputError(
            f"a model can be overconfident by at most {most:.3f} in this stratum of {m} readers, "
            f"got excess {excess:g}: ask for less"
        )
    g = float(brentq(lambda g: error(g) - excess, 0.0, 6.0, xtol=1e-10))
    cumulative = np.cumsum(weights) - 0.5 * weights
    return _Stratum(float(mass.sum() / density.sum()), cumulative, truth, claim(g))


def _inside(p: Float) -> Float:
    """Keep probabilities where logits and divergences are finite."""
    return np.clip(p, 1e-12, 1.0 - 1e-12)


def _hardest(q: Float, share: float) -> Float:
    """Weight of each score in the stratum: 1 where it lies among the `share` nearest to q = 1/2."""
    if share == 1.0:
        return np.ones_like(q)
    middle = float(np.interp(0.5, q, _SCORES))
    reach = brentq(lambda c: ndtr(middle + c) - ndtr(middle - c) - share, 0.0, 20.0)
    step = _SCORES[1] - _SCORES[0]
    # The cells at both borders count in part, so that the share is exact.
    return np.asarray(np.clip((reach - np.abs(_SCORES - middle)) / step + 0.5, 0.0, 1.0))


def _expected_cases(part: _Stratum, level: float, power: float) -> float:
    """Cases in all for the desired power by theory: non-centrality 2 KL(truth, claim) per case."""
    weights = np.diff(part.cumulative, prepend=0.0)
    per_case = 2.0 * _divergence(weights, part.truth, part.claim)
    return _noncentrality(level, power) / per_case / part.share


def _divergence(weights: Float, truth: Float, claim: Float) -> float:
    """Mean KL(truth, claim) over cases: the NLL of a claimed probability beyond that of the truth."""
    p = _inside(claim)
    return float(weights @ (rel_entr(truth, p) + rel_entr(1.0 - truth, 1.0 - p)))


def _noncentrality(level: float, power: float) -> float:
    bound = chi2.isf(level, 2)
    return float(brentq(lambda x: ncx2.sf(bound, 2, x) - power, 1e-9, 1e4))


def _round_sizes(low: float, high: float) -> list[int]:
    """Seven study sizes from below `low` to above `high`, to two significant figures."""
    sizes = np.geomspace(max(_GRID[0] * low, 10.0), max(_GRID[-1] * high, 40.0), len(_GRID))
    digits = 10.0 ** (np.floor(np.log10(sizes)) - 1.0)
    return sorted({int(n) for n in np.round(sizes / digits) * digits})


def _study(
    part: _Stratum,
    n: int,
    level: float,
    n_simulations: int,
    groups: Groups,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Simulate studies of `n` cases and count rejections in the stratum."""
    rejected = 0
    for size in rng.binomial(n, part.share, n_simulations):
        code, uniforms = None, None
        if groups.size > 1:
            code, uniforms = groups.draw(n, part.share, rng)
            size = len(code)
        y, p = part.draw(int(size), rng, uniforms)
        # One class only, or nobody in the stratum: no test.
        if 0.0 < y.sum() < size:
            rejected += cox(y, p, groups=code, n_resamples=_FLIPS, seed=rng).p_value <= level
    typical = part.draw(max(1, round(n * part.share)), rng)[1]
    low, high = binomtest(int(rejected), n_simulations).proportion_ci(0.95, method="wilson")
    return {
        "stratum_share": part.share,
        "n_in_stratum": n * part.share,
        "floor": noise_floor(typical),
        "power": rejected / n_simulations,
        "power_low": float(low),
        "power_high": float(high),
    }


def _needed(
    rows: pd.DataFrame, n_simulations: int, level: float, power: float
) -> dict[str, float | bool]:
    """Cases for the desired power, from the fit of non-centrality = exp(a + b log n)."""
    sizes = rows["n_cases"].to_numpy(dtype=np.float64)
    target = np.log(_noncentrality(level, power))
    (a, b), covariance = _fit_power(sizes, rows["power"].to_numpy(), n_simulations, level)
    b = max(b, 0.1)  # power that falls with n is chance
    beyond = (target - a) / b
    log_n = float(np.log(sizes).mean()) + beyond
    slope = np.array([-1.0 / b, -beyond / b])
    error = float(np.sqrt(slope @ covariance @ slope))
    low, n, high = (
        int(np.ceil(np.exp(min(log_n + k * NORMAL_95 * error, 40.0)))) for k in (-1, 0, 1)
    )
    return {
        "n_cases": n,
        "n_low": low,
        "n_high": high,
        "n_in_stratum": n * float(rows["stratum_share"].iloc[0]),
        "extrapolated": not sizes.min() <= n <= sizes.max(),
    }


def _fit_power(sizes: Float, seen: Float, n_simulations: int, level: float) -> tuple[Float, Float]:
    """Most probable (a, b) and their covariance, for log n less its mean."""
    bound = chi2.isf(level, 2)
    x = np.column_stack([np.ones(len(sizes)), np.log(sizes) - np.log(sizes).mean()])
    # Non-centrality grows about as n. The intercept's prior is all but flat; it matters where every
    # row rejects always, or no more often than the level: no finite intercept is likeliest then.
    expected = np.array([np.log(_noncentrality(level, 0.5 * (1.0 + level))), 1.0])
    prior = np.diag([0.1, 25.0])

    def look(beta: Float) -> tuple[float, Float, Float]:
        """Log posterior, its gradient, and the expected information."""
        noncentrality = np.exp(np.clip(x @ beta, -20.0, 8.0))
        fitted = np.clip(ncx2.sf(bound, 2, noncentrality), 1e-9, 1.0 - 1e-9)
        rise = 0.5 * noncentrality * (ncx2.sf(bound, 4, noncentrality) - fitted)
        precision = n_simulations / (fitted * (1.0 - fitted))
        off = beta - expected
        value = n_simulations * float(seen @ np.log(fitted) + (1.0 - seen) @ np.log1p(-fitted))
        gradient = x.T @ (precision * rise * (seen - fitted)) - prior @ off
        information = (x * (precision * rise**2)[:, None]).T @ x + prior
        return value - 0.5 * float(off @ prior @ off), gradient, information

    # The posterior need not be concave, so start at the best of a grid of intercepts.
    starts = [np.array([a, 1.0]) for a in np.linspace(-6.0, 8.0, 29)]
    start = max(starts, key=lambda beta: look(beta)[0])

    def loss(beta: Float) -> tuple[float, Float]:
        value, gradient, _ = look(beta)
        return -value, -gradient

    beta = minimize(loss, start, jac=True, method="BFGS").x
    return beta, np.asarray(np.linalg.inv(look(beta)[2]), dtype=np.float64)


# Votes --------------------------------------------------------------------------------------------

PUBLISHED = {
    "kappa and share of votes": 1.0,
    "kappa 30 % too low": 0.7,
    "kappa 30 % too high": 1.3,
}
"""What readers' published agreement may be known as, without a vote: factors on kappa."""

_PANEL, _SINGLE = "votes of the whole panel", "votes of one reader"
_MAX_AUC = 0.98  # of a probe; beyond it labels are all but certain
_MIN_GAP = 1e-5  # nats; below it a share of the gap means nothing
_INTERVALS = 40  # simulations in which rho gets its interval, which takes longer than the fit


@dataclass(frozen=True)
class VotePlan:
    """The gain from votes of a panel's readers, by the number of cases that have them.

    Attributes
    ----------
    table : DataFrame
        One row per assumed ``rho`` and state of knowledge: ``kappa`` (Fleiss') and ``gap`` (vote NLL
        of the label's probability taken for a reader's, less that of the truth) that `rho` implies;
        ``known`` and ``n_voted`` cases; ``excess``, the mean vote NLL beyond the truth;
        ``recovered``, the share of the gap closed, and its 95 % Monte Carlo interval
        ``recovered_low``, ``recovered_high``; ``rho_fitted``, ``rho_low``, ``rho_high``: medians of
        the estimate and of its 95 % interval (of published numbers: where 95 % of estimates lie).
    needed : DataFrame
        One row per ``rho`` and kind of vote: ``known``, ``n_voted`` for the desired share with its
        95 % Monte Carlo interval ``n_low``, ``n_high``, and ``bound``: ``"at most"`` or
        ``"more than"`` if that lies outside the numbers simulated, which end the interval too.
    share : float
        The desired share.
    n_raters : int
        Readers in the panel.
    title : str
        The question, in words.
    """

    table: pd.DataFrame
    needed: pd.DataFrame
    share: float
    n_raters: int
    title: str

    def __str__(self) -> str:
        lines = [self.title]
        for rho, part in self.table.groupby("rho", sort=False):
            first = part.iloc[0]
            lines += [
                "",
                f"rho {rho:g}: kappa {first['kappa']:.2f}, gap {first['gap']:.4f}",
                f"{'known':<26} cases  excess  recovered [95 %]       rho [95 %]",
            ]
            rows: Iterable[Any] = part.itertuples()
            lines += [
                f"{row.known:<26} {row.n_voted:5,d}  {row.excess:.4f}  "
                f"{row.recovered:5.2f} [{row.recovered_low:5.2f}, {row.recovered_high:5.2f}]  "
                f"{row.rho_fitted:.2f} [{row.rho_low:.2f}, {row.rho_high:.2f}]"
                for row in rows
            ]
        lines += ["", f"Cases with votes needed to recover {self.share:g}:"]
        sizes = self.table.loc[self.table["n_voted"] > 0, "n_voted"]
        row: Any
        for row in self.needed.itertuples():
            low = f"{'<= ' if row.n_low == sizes.min() else ''}{row.n_low:,d}"
            high = f"{'>= ' if row.n_high == sizes.max() else ''}{row.n_high:,d}"
            between = "" if row.bound else f" ({low} to {high})"
            number = f"{row.bound} {row.n_voted:,d}".strip() + between
            lines.append(f"rho {row.rho:g}, {row.known}: {number}")
        return "\n".join([*lines, "", self.sentence])

    @property
    def sentence(self) -> str:
        """The answer for the assumed rho that needs the most cases read by the whole panel."""
        panels = self.needed[self.needed["known"] == _PANEL]
        beyond = panels["bound"] == "more than"
        worst = panels.assign(beyond=beyond).sort_values(["beyond", "n_voted"]).iloc[-1]
        where = ", where most are needed," if len(panels) > 1 else ""
        number = f"{worst['bound']} {worst['n_voted']:,d}".strip()
        return (
            f"With rho {worst['rho']:g}{where} it takes {number} cases read by all "
            f"{self.n_raters} readers to get {self.share:g} of the gain from knowing every vote."
        )


def plan_votes(
    auc: float = 0.85,
    rho: Sequence[float] = (0.05, 0.15, 0.3),
    *,
    n_raters: int = 7,
    prevalence: float = 0.5,
    n_labelled: int = 1000,
    n_voted: Sequence[int] = (0, 25, 50, 100, 200),
    share: float = 0.9,
    n_simulations: int = 300,
    seed: int | np.random.Generator | None = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> VotePlan:
    r"""Find how many cases need readers' votes so that a probe can tell how a single reader would vote.

    A probe predicts labels, which are the majority of `n_raters` readers. A panel is fitted to
    labelled cases and one more source: Fleiss' kappa and the share of positive votes, as published
    (right, or with kappa 30 % off); all votes on some further cases; or one vote on each of them.

    Parameters
    ----------
    auc : float
        AUC of the probe for the label, above 0.5 and at most 0.98.
    rho : sequence of float
        Correlations of two readers' votes on a case that the probe's features do not explain. Nobody
        knows rho before there are votes, so several are tried; the kappa each implies is shown.
    n_raters : int
        Readers behind a label, three or more.
    prevalence : float
        Share of positive labels.
    n_labelled : int
        Cases with a label only, on which the probe is calibrated.
    n_voted : sequence of int
        Numbers of further cases, with votes. Published numbers stand for 0, which adds nothing.
    share : float
        Desired share of the gain from knowing every vote.
    n_simulations : int
        Simulations for each rho.
    seed : int, Generator or None
        Randomness.
    progress : callable
        Called with a line of text now and then.

    Notes
    -----
    The label's logit is normal over cases, with the spread that has the assumed AUC; a reader's
    probability is :math:`\mu = T_m^{-1}(q; \rho)` and votes are beta-binomial (`scalecal.panel`). The
    probe's own probability is taken as calibrated, while fits estimate a line on its logits from
    `n_labelled` cases: where rho is large there is little to gain, and that error alone can exceed
    it. The prior of fits expects a rho near 0.15, so least is needed if that is the truth.

    Scores lie on a grid, so that cases can be counted and the vote NLL of a fit is a sum. Every
    number of voted cases has the cases of the smaller ones. The needed number is where the mean share
    first reaches `share`, linear in log n between the numbers simulated; its interval is a bootstrap
    over simulations.

    Examples
    --------
    >>> result = plan_votes(0.85, [0.3], n_voted=[20, 80], n_simulations=20)
    >>> result.table[["known", "n_voted"]].tail(2).to_numpy().tolist()
    [['votes of one reader', 20], ['votes of one reader', 80]]
    >>> result.needed["known"].tolist()
    ['votes of the whole panel', 'votes of one reader']
    """
    if not 0.5 < check_unit(auc, "auc") <= _MAX_AUC:
        raise InputError(f"auc must lie above 0.5 and be at most {_MAX_AUC}, got {auc:g}")
    check_inside(prevalence, "prevalence")
    check_inside(share, "share")
    correlations = list(dict.fromkeys(map(check_rho, check_list(rho, "rho"))))
    m = check_count(n_raters, "n_raters", "readers")
    if m < 3:
        raise InputError(
            f"the label of {m} reader{'s' * (m > 1)} is as likely as one reader's vote: votes have "
            "nothing to add. Give n_raters of at least 3"
        )
    n_labelled = check_count(n_labelled, "n_labelled", "cases", least=20)
    wanted = check_list(n_voted, "n_voted")
    sizes = sorted({check_count(n, "n_voted", "cases", least=0) for n in wanted} - {0})
    if not sizes:
        raise InputError("n_voted must name at least one number above 0")
    n_simulations = check_count(n_simulations, "n_simulations", "resamples", least=20)
    rng = as_rng(seed)
    laws = [_panel_cases(auc, prevalence, m, value) for value in correlations]
    for cases in laws:
        if cases.gap < _MIN_GAP:
            raise InputError(
                f"with rho {cases.rho:g} the label's probability is a reader's to within "
                f"{cases.gap:.1g} nats: votes have nothing to add. Give a smaller rho"
            )
    rows, needed = [], []
    for cases in laws:
        runs = []
        for i in range(n_simulations):
            if i % 50 == 0:
                progress(f"rho {cases.rho:g}: {i} of {n_simulations} simulations")
            panels = _fit_panels(cases, n_labelled, sizes, rng, interval=i < _INTERVALS)
            runs.append(
                [
                    (cases.excess(panel), panel.rho, panel.rho_low, panel.rho_high)
                    for panel in panels
                ]
            )
        results = np.moveaxis(np.array(runs), 1, 0)  # (panel, simulation, quantity)
        settings = [(known, 0) for known in PUBLISHED]
        settings += [(known, n) for known in (_PANEL, _SINGLE) for n in sizes]
        rows += [
            {"rho": cases.rho, "kappa": cases.kappa, "gap": cases.gap, "known": known, "n_voted": n}
            | _vote_row(found, cases.gap)
            for (known, n), found in zip(settings, results, strict=True)
        ]
        for known in (_PANEL, _SINGLE):
            excess = results[[name == known for name, _ in settings], :, 0].T
            found = _votes_needed(sizes, 1.0 - excess / cases.gap, share, rng)
            needed.append({"rho": cases.rho, "known": known} | found)
    title = (
        f"Votes needed to tell how one of {m} readers votes: label AUC {auc:g}, {n_labelled:,d} "
        f"labelled cases, {100 * prevalence:g} % positive; {n_simulations} simulations\n"
        "rho: assumed correlation of two readers' votes on a case beyond what the probe sees\n"
        "gap: vote NLL of the label's probability taken for a reader's, less that of the truth\n"
        "recovered: share of the gap that is closed"
    )
    return VotePlan(pd.DataFrame(rows), pd.DataFrame(needed), float(share), m, title)


class _PanelCases(NamedTuple):
    """A law of cases at `_SCORES[::20]`: weights, label's logits, a reader's, and rho of m readers."""

    weights: Float
    label: Float
    reader: Float
    rho: float
    n_raters: int

    @property
    def mean(self) -> float:
        """Share of all votes that are positive."""
        return float(self.weights @ expit(self.reader))

    @property
    def kappa(self) -> float:
        """Fleiss' kappa: the variance of the vote probability over cases, over that of a vote."""
        p, mean = expit(self.reader), self.mean
        variance = self.weights @ (p - mean) ** 2 + self.rho * (self.weights @ (p * (1.0 - p)))
        return float(variance / (mean * (1.0 - mean)))

    @property
    def gap(self) -> float:
        """Vote NLL of the label's probability, beyond that of the truth."""
        return _divergence(self.weights, expit(self.reader), expit(self.label))

    def excess(self, panel: Panel) -> float:
        """Vote NLL of a fitted panel, beyond that of the truth."""
        claim = expit(panel.reader_logit(self.label))
        return _divergence(self.weights, expit(self.reader), claim)


def _panel_cases(auc: float, prevalence: float, m: int, rho: float) -> _PanelCases:
    """Cases whose label has normal logits: those of a single reader who votes as the label falls."""
    model = simulate(1, dim=1, n_raters=1, unexplained=0.0, auc=auc, prevalence=prevalence).model
    scores = _SCORES[::20]
    weights = np.exp(-0.5 * scores**2)
    label = model.intercept + model.spread * scores
    return _PanelCases(weights / weights.sum(), label, reader_logit(label, rho, m), rho, m)


def _fit_panels(
    cases: _PanelCases,
    n_labelled: int,
    sizes: list[int],
    rng: np.random.Generator,
    *,
    interval: bool,
) -> list[Panel]:
    """Draw one study, and fit a panel to each state of knowledge about it."""
    m, most = cases.n_raters, sizes[-1]
    counts = rng.multinomial(n_labelled, cases.weights)
    positive = rng.binomial(counts, expit(cases.label))
    weight = np.concatenate([counts - positive, positive]).astype(np.float64)
    seen = weight > 0.0
    z = np.tile(cases.label, 2)[seen]
    y = np.repeat([0.0, 1.0], len(counts))[seen]
    weight = weight[seen]
    where = rng.choice(len(counts), most, p=cases.weights)
    below = np.cumsum(np.exp(vote_log_pmf(cases.reader, cases.rho, m)), axis=1)[where, :-1]
    votes = (rng.random((most, 1)) > below).sum(axis=1).astype(np.float64)
    one = (rng.random(most) < votes / m).astype(np.float64)

    def fit(votes: Float, readers: int, n: int) -> Panel:
        return fit_panel(
            np.concatenate([z, cases.label[where[:n]]]),
            np.concatenate([y, np.full(n, np.nan)]),
            np.concatenate([np.full(len(z), np.nan), votes[:n]]),
            readers,
            panel_size=m,
            sample_weight=np.concatenate([weight, np.ones(n)]),
            interval=interval,
        )

    return [
        *(
            # Some of these numbers are wrong on purpose.
            fit_panel_from_summary(
                *(z, y, m, min(factor * cases.kappa, 1.0), cases.mean),
                sample_weight=weight,
                max_mismatch=1.0,
            )
            for factor in PUBLISHED.values()
        ),
        *(fit(votes, m, n) for n in sizes),
        *(fit(one, 1, n) for n in sizes),
    ]


def _vote_row(results: Float, gap: float) -> dict[str, float]:
    """Means over simulations of (excess, rho, its interval) with their Monte Carlo interval."""
    recovered = 1.0 - results[:, 0] / gap
    error = NORMAL_95 * float(recovered.std(ddof=1)) / np.sqrt(len(recovered))
    middle = float(recovered.mean())
    estimates, ends = results[:, 1], results[:, 2:]
    ends = ends[np.isfinite(ends).all(axis=1)]
    low, high = np.median(ends, axis=0) if len(ends) else np.quantile(estimates, [0.025, 0.975])
    return {
        "excess": float(results[:, 0].mean()),
        "recovered": middle,
        "recovered_low": middle - error,
        "recovered_high": middle + error,
        "rho_fitted": float(np.median(estimates)),
        "rho_low": float(low),
        "rho_high": float(high),
    }


def _votes_needed(
    sizes: Sequence[int], recovered: Float, share: float, rng: np.random.Generator
) -> dict[str, int | str]:
    """Where the mean of `recovered` (simulations, sizes) first reaches `share`, by a bootstrap."""
    n = len(recovered)
    resampled = rng.multinomial(n, np.full(n, 1.0 / n), 1000) / n
    curves = np.maximum.accumulate(
        np.vstack([recovered.mean(axis=0), resampled @ recovered]), axis=1
    )
    found = np.exp([np.interp(share, curve, np.log(sizes)) for curve in curves])
    low, high = np.quantile(found[1:], [0.025, 0.975])
    bound = ""
    if curves[0, 0] >= share:
        bound = "at most"
    elif curves[0, -1] < share:
        bound = "more than"
    return {
        "n_voted": int(np.ceil(found[0] - 1e-9)),
        "n_low": int(np.ceil(low - 1e-9)),
        "n_high": int(np.ceil(high - 1e-9)),
        "bound": bound,
    }
