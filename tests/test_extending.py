"""CONTRIBUTING's table holds: a thing added from outside, in its registry, is found everywhere.

Each test registers a dummy as the table says and looks for it where users would.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from scalecal import audit, compare_audits
from scalecal.cases import Answers, Cases, Predictions
from scalecal.evaluation.evaluations import evaluate_files
from scalecal.evaluation.gates import parse_condition
from scalecal.evaluation.stream import StreamingAudit
from scalecal.metrics import COLUMNS, METRICS
from scalecal.metrics.columns import Metric
from scalecal.report import audit_html

ROOT = Path(__file__).parents[1]


def _made():
    """Labels, votes and two models' probabilities of three hundred cases."""
    rng = np.random.default_rng(0)
    p = rng.uniform(size=300)
    votes = rng.binomial(5, p)
    return (votes > 2).astype(int), votes, p, np.clip(1.4 * p - 0.2, 0.01, 0.99)


DUMMIES = {
    "labels": Metric(
        "dummy_error",
        "dummy error",
        "Mean absolute distance to the label",
        "lower",
        term=lambda sample: np.abs(sample.table - np.eye(2)[sample.y.astype(int)]).sum(axis=1) / 2,
        scale="log",
        tested=True,
    ),
    "votes": Metric(
        "dummy_votes",
        "dummy votes",
        "Mean absolute distance to the share of votes, of cases with a vote",
        "lower",
        "dummy_votes_floor",
        votes=True,
        term=lambda sample: np.abs(sample.table - sample.shares).sum(axis=1) / 2,
        least_votes=1,
        expected=lambda _: 0.125,
        scale="log",
        tested=True,
    ),
    "bins": Metric(
        "dummy_bins",
        "dummy bins",
        "Root of the mean squared sums of bins",
        "lower",
        bins=lambda residuals: np.sqrt((residuals**2).sum(axis=-1)),
        tested=True,
    ),
}


@pytest.mark.parametrize("kind", DUMMIES)
def test_metric(kind, monkeypatch):
    metric = DUMMIES[kind]
    y, votes, p, sharp = _made()
    expected = {
        "labels": np.abs(p - y).mean(),
        "votes": np.abs(p - votes / 5).mean(),
        "bins": np.sqrt((np.bincount((15 * p).astype(int), p - y) ** 2).sum()) / 300,
    }[kind]
    monkeypatch.setitem(METRICS, metric.key, metric)
    keys = [metric.key]
    if metric.scale is not None:
        keys += [f"{metric.key}_low", f"{metric.key}_high"]
    if metric.floor is not None:
        keys.append(metric.floor)

    # the audit: its rows, its table, its page, gates, and a stream
    result = audit(y, p, votes=votes, n_raters=5, n_resamples=50)
    assert result["overall"][metric.key] == pytest.approx(expected)
    assert set(keys) <= set(result.to_frame().columns)
    assert set(metric.title.split()) <= set(str(result).split())
    assert metric.title in audit_html(result)
    assert parse_condition(f"low: {metric.key} > 0.2").column == metric.key
    assert len(result.failures([f"{metric.key} > 0", f"low: {metric.key} < 0"])) == 1
    streamed = StreamingAudit(n_resamples=50).update(y, p, votes=votes, n_raters=5).finish()
    assert streamed["overall"][metric.key] == pytest.approx(expected, abs=1e-4)

    # differences between models
    other = audit(y, sharp, votes=votes, n_raters=5, n_resamples=50)
    table = compare_audits(result, other, n_resamples=50).differences
    row = table[(table["metric"] == metric.key) & (table["stratum"] == "overall")].iloc[0]
    assert row["low"] < row["difference"] < row["high"]
    assert np.isfinite(row["p_holm"])

    # results and the comparison of methods
    cases = Cases(n=300, classes=("0", "1"), y=y, votes=np.column_stack([5 - votes, votes]))
    both = Predictions(cases, {("a.csv", 0): Answers(p), ("b.csv", 0): Answers(sharp)})
    comparison = evaluate_files(both, n_resamples=50)
    assert {metric.key, f"{metric.key}_change_low"} <= set(comparison.table)
    assert metric.key in set(comparison.results["metric"])
    assert metric.name in str(comparison)

    # the documentation
    page = runpy.run_path(str(ROOT / "scripts" / "make_columns.py"))["text"]()
    for key in keys:
        assert f"| `{key}` |" in page
        assert key in COLUMNS
