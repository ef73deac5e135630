"""A reader's probability from labels, kappa and the share of positive votes: which law of P | x pays?

Three laws of the vote probability given the features share one recipe: the label's logit is a + b z,
the law's label map is inverted, and its one parameter solves the equation of kappa (a shift in logits
holds the share of positive votes).

    beta      P ~ Beta with a constant correlation rho: `fit_panel_from_summary`
    probit    P = Phi((s + sqrt(tau) U) / sqrt(1 - tau)): correlation falls towards sure cases
    logistic  P = sigmoid(s + sigma U)

Beside them the label's own probability, the jury map (rho = 0), the beta panel fitted to all votes, and
`best`: the beta law's rho with the lowest vote NLL (or log score of k) on the test cases themselves.
Each row is a mean over splits: correlation at a reader's probability of 1/2, vote NLL, log score of k of
m, and how much it recovers of the vote NLL that the panel fitted to all votes gains over the label.

Run: python scripts/panel_estimators.py [embeddings.npz ...]     (X, y, votes, n_raters)
"""

from __future__ import annotations

import sys
import warnings
from math import comb
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, log_expit, log_ndtr, logit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from scalecal.datasets import load_lidc, simulate
from scalecal.panel import Panel, fit_panel, fit_panel_from_summary, reader_logit, vote_log_pmf
from scalecal.votes import fleiss_kappa

Float = np.ndarray
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
GRID = np.linspace(-30.0, 30.0, 1201)


class Latent:
    """P = link(s, U) with U standard normal, tabulated over s."""

    def __init__(self, kind: str, parameter: float, m: int) -> None:
        if kind == "probit":
            scale = np.sqrt(1.0 - parameter)
            log_p = log_ndtr((GRID[:, None] + np.sqrt(parameter) * NODES) / scale)
        else:
            log_p = log_expit(GRID[:, None] + parameter * NODES)
        self.p = np.exp(log_p)
        self.m = m
        k = np.arange(m + 1)
        ways = [comb(m, j) * self.p**j * (1.0 - self.p) ** (m - j) for j in k]
        self.law = np.stack([law @ WEIGHTS for law in ways], axis=1)
        win = np.where(2 * k > m, 1.0, np.where(2 * k == m, 0.5, 0.0))
        self.label, self.mean = self.law @ win, self.p @ WEIGHTS
        self.square = self.p**2 @ WEIGHTS

    def reader(self, q: Float) -> Float:
        """Reader's logits from the label's."""
        near = (self.label > 1e-13) & (self.label < 1 - 1e-13)
        s = np.interp(q, logit(self.label[near]), GRID[near])
        return self.at(s, logit(np.clip(self.mean, 1e-300, 1 - 1e-16)))

    def at(self, s: Float, table: Float) -> Float:
        if table.ndim == 1:
            return np.interp(s, GRID, table)
        return np.column_stack([np.interp(s, GRID, column) for column in table.T])

    def place(self, reader: Float) -> Float:
        """s whose mean is the reader's probability."""
        near = (self.mean > 1e-13) & (self.mean < 1 - 1e-13)
        return np.interp(reader, logit(self.mean[near]), GRID[near])


def solve_latent(kind: str, q: Float, m: int, kappa: float, share: float) -> tuple[Latent, float]:
    """The law's parameter and the shift, by the equations of kappa and of the share."""

    def shifted(law: Latent) -> tuple[Float, float]:
        z = law.reader(q)
        c = brentq(lambda c: expit(z + c).mean() - share, -20.0, 20.0)
        return z + c, c

    def excess(parameter: float) -> float:
        law = Latent(kind, parameter, m)
        z, _ = shifted(law)
        square = law.at(law.place(z), law.square).mean()
        return float(square - share**2 - kappa * share * (1 - share))

    low, high = (1e-6, 0.98) if kind == "probit" else (1e-6, 12.0)
    if excess(low) >= 0:
        best = low
    elif excess(high) <= 0:
        best = high
    else:
        best = brentq(excess, low, high, xtol=1e-4)
    law = Latent(kind, best, m)
    return law, shifted(law)[1]


def scores(reader: Float, law: Float, k: Float, m: int) -> tuple[float, float]:
    """Vote NLL, and the log score of k of m."""
    vote = -(k * log_expit(reader) + (m - k) * log_expit(-reader)).mean() / m
    seen = np.take_along_axis(law, k.astype(int)[:, None], axis=1)
    return float(vote), float(-np.log(np.maximum(seen, 1e-300)).mean())


def compare(
    z: Float, y: Float, k: Float, m: int, test_z: Float, test_k: Float
) -> dict[str, tuple[float, float, float]]:
    """Each estimator's parameter, vote NLL and log score on the test cases."""
    kappa, share = fleiss_kappa(k, m), float(k.mean() / m)
    beta = fit_panel_from_summary(z, y, m, kappa, share)
    votes = fit_panel(z, votes=k, n_raters=m, interval=False)
    out = {}

    def beta_scores(panel: Panel) -> tuple[float, float, float]:
        reader = panel.reader_logit(test_z)
        law = np.exp(vote_log_pmf(reader, panel.rho, m))
        found = scores(reader, law, test_k, m)
        return panel.rho, *found

    def beta_at(rho: float, shift: float) -> Panel:
        return Panel(beta.intercept, beta.slope, rho, m, shift)

    q = beta.intercept + beta.slope * z
    test_q = beta.label_logit(test_z)
    out["label"] = (np.nan, *scores(test_q, np.exp(vote_log_pmf(test_q, 0.0, m)), test_k, m))
    out["jury"] = beta_scores(beta_at(0.0, 0.0))
    out["beta"] = beta_scores(beta)
    out["beta, kappa alone"] = beta_scores(fit_panel_from_summary(z, y, m, kappa))
    for kind in ("probit", "logistic"):
        law, shift = solve_latent(kind, q, m, kappa, share)
        parameter = 4.0 * float((law.square - law.mean**2)[len(GRID) // 2])
        reader = law.reader(test_q) + shift
        pmf = law.at(law.place(reader), law.law)
        out[kind] = (parameter, *scores(reader, pmf, test_k, m))
    options = []
    for rho in np.linspace(0.0, 0.9, 46):
        mu = reader_logit(q, rho, m)
        shift = brentq(lambda c, mu=mu: expit(mu + c).mean() - share, -20.0, 20.0)
        options.append(beta_scores(beta_at(float(rho), shift)))
    out["best"] = min(options, key=lambda row: row[1])
    out["best for k"] = min(options, key=lambda row: row[2])
    out["panel on votes"] = beta_scores(votes)
    return out


def cross_fitted(X: Float, y: Float, test: Float) -> tuple[Float, Float]:
    """Out-of-fold logits of the training cases, and those of the test cases."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    strengths = {"logisticregression__C": 10.0 ** np.arange(-5, 2)}
    search = GridSearchCV(model, strengths, scoring="neg_log_loss", cv=3).fit(X, y)
    fold = StratifiedKFold(5, shuffle=True, random_state=0)
    z = cross_val_predict(search.best_estimator_, X, y, cv=fold, method="decision_function")
    return z, search.best_estimator_.decision_function(test)


def settings(paths: list[str]):
    """Name, and what makes a split: (z, y, k, m, test z, test k)."""

    def simulated(seed: int, probe: bool, **options):
        data = simulate(4500, n_train=1500, seed=seed, **options)
        first, rest = slice(0, 1500), slice(1500, None)
        if probe:
            z, test = cross_fitted(data.X[first], data.y[first], data.X[rest])
        else:
            both = 1.6 * logit(data.label_probability)
            z, test = both[first], both[rest]
        return z, data.y[first], data.votes[first], 7, test, data.votes[rest]

    def real(X: Float, y: Float, k: Float, m: int, seed: int):
        order = np.random.default_rng(seed).permutation(len(y))
        cut = int(0.6 * len(y))
        first, rest = order[:cut], order[cut:]
        z, test = cross_fitted(X[first], y[first], X[rest])
        return z, y[first], k[first], m, test, k[rest]

    for h in (0.0, 0.1, 0.3, 0.6):
        yield (
            f"simulated, {h:.0%} unseen",
            lambda s, h=h: simulated(s, False, auc=0.9 if h < 0.5 else 0.75, unexplained=h),
        )
    yield "simulated, 10 % unseen, probe", lambda s: simulated(s, True, auc=0.9, unexplained=0.1)
    yield (
        "simulated, unequal readers",
        lambda s: simulated(s, False, auc=0.9, unexplained=0.1, readers="unequal"),
    )
    yield (
        "simulated, correlated readers",
        lambda s: simulated(s, False, auc=0.9, unexplained=0.1, correlation=0.2),
    )
    yield (
        "simulated, 25 % positive",
        lambda s: simulated(s, False, auc=0.9, unexplained=0.2, prevalence=0.25),
    )
    lidc = load_lidc()
    counts = lidc.cases.votes
    yield "LIDC", lambda s: real(lidc.X, lidc.cases.y, counts[:, 1], int(counts[0].sum()), s)
    for path in paths:
        data = np.load(path)
        m = int(np.atleast_1d(data["n_raters"])[0])
        yield (
            Path(path).stem,
            lambda s, d=data, m=m: real(
                d["X"].astype(float), d["y"], d["votes"].astype(float), m, s
            ),
        )


def main(paths: list[str], splits: int = 4) -> None:
    """Print one table per setting."""
    for name, split in settings(paths):
        rows: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(splits):
            for estimator, row in compare(*split(seed)).items():
                rows.setdefault(estimator, []).append(row)
        mean = {e: np.mean(r, axis=0) for e, r in rows.items()}
        gain = mean["label"][1] - mean["panel on votes"][1]
        print(f"\n### {name}\n| | rho at 1/2 | vote NLL | log score of k | recovered |")
        print("|---|---:|---:|---:|---:|")
        for estimator, (rho, vote, score) in mean.items():
            share = (mean["label"][1] - vote) / gain
            print(
                f"| {estimator} | {rho:.2f} | {vote:.4f} | {score:.4f} | {share:.0%} |", flush=True
            )


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(sys.argv[1:])
