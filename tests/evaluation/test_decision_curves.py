"""Decision curves of an audit: values against the metric, intervals against their promise."""

import json
import os

import numpy as np
import pytest
from scipy.special import expit, ndtri

from scalecal import audit
from scalecal.evaluation.exhibits import CHOSEN, DECISION_COLUMNS, benefit_rows
from scalecal.evaluation.stream import StreamingAudit
from scalecal.inference.units import Units
from scalecal.metrics import net_benefit, treat_all

RUNS = 2000 if os.environ.get("SCALECAL_SLOW") == "1" else 200
READERS = 7


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def study(rng, n=300):
    chance = rng.beta(0.7, 1.0, size=n)
    votes = rng.binomial(READERS, chance)
    return (
        (votes > READERS / 2).astype(int),
        expit(1.3 * rng.normal(size=n) * 0.2 + ndtri(chance)),
        votes,
    )


def test_values_are_those_of_the_metric(rng):
    y, p, votes = study(rng)
    reader = np.clip(p + 0.1, 0, 1)
    result = audit(y, p, votes=votes, n_raters=READERS, p_reader=reader, n_resamples=20)
    table = result.decision_curve([0.1, 0.4])
    assert tuple(table.columns) == DECISION_COLUMNS
    assert len(table) == 2 * 4 * 2
    strata = result.predictions.cases.strata
    for (judge, stratum), part in table.groupby(["judge", "stratum"]):
        inside = np.full(len(y), True) if stratum == "overall" else strata.values == stratum
        outcome, q = (y, p) if judge == "labels" else (votes / READERS, reader)
        outcome, q = outcome[inside], q[inside]
        every, own = treat_all(outcome, [0.1, 0.4]), net_benefit(outcome, q, [0.1, 0.4])
        assert part["probability"].iloc[0] == ("p" if judge == "labels" else "p_reader")
        assert part["n"].tolist() == [inside.sum()] * 2
        assert part["net_benefit"].to_numpy() == pytest.approx(own)
        assert part["treat_all"].to_numpy() == pytest.approx(every)
        assert part["gain"].to_numpy() == pytest.approx(own - np.maximum(every, 0))
        assert part["prevalence"].to_numpy() == pytest.approx([outcome.mean()] * 2)
        assert part["treated"].to_numpy() == pytest.approx([(q >= t).mean() for t in (0.1, 0.4)])


def test_cases_without_votes_count_by_labels_alone(rng):
    y, p, votes = study(rng, 60)
    table = np.column_stack([READERS - votes, votes])
    table[:20] = 0
    result = audit(y, p, votes=table, n_resamples=20)
    found = result.decision_curve([0.3]).set_index(["judge", "stratum"])
    assert found.loc[("labels", "overall"), "n"] == 60
    assert found.loc[("votes", "overall"), "n"] == 40
    expected = net_benefit(votes[20:] / READERS, p[20:], [0.3])[0]
    assert found.loc[("votes", "overall"), "net_benefit"] == pytest.approx(expected)


def test_interval_is_that_of_a_mean(rng):
    y, p, _ = study(rng)
    row = benefit_rows(y.astype(float), p, Units.of(len(y)), [0.2])[0]
    each = np.where(p >= 0.2, (y - 0.2) / 0.8, 0.0)
    half = 1.97 * each.std(ddof=1) / np.sqrt(len(y))
    assert row["net_benefit_high"] - row["net_benefit_low"] == pytest.approx(2 * half, rel=0.02)


def test_groups_widen_the_interval(rng):
    y, p, _ = study(rng, 40)
    y, p = np.repeat(y, 10), np.repeat(p, 10)
    alone, grouped = (
        benefit_rows(y.astype(float), p, Units.of(400, groups=g), [0.2])[0]
        for g in (None, np.arange(400) // 10)
    )
    assert alone["net_benefit"] == pytest.approx(grouped["net_benefit"])
    width = [row["net_benefit_high"] - row["net_benefit_low"] for row in (alone, grouped)]
    assert width[1] > 2.5 * width[0]


def test_no_interval_where_nobody_is_treated(rng):
    y, p, _ = study(rng)
    row = benefit_rows(y.astype(float), 0.5 * p, Units.of(len(y)), [0.9])[0]
    assert row["net_benefit"] == row["treated"] == 0.0
    assert np.isnan([row["net_benefit_low"], row["gain_low"], row["gain_high"]]).all()


def test_a_stream_says_the_same(rng):
    y, p, votes = study(rng, 2000)
    options = {"votes": votes, "n_raters": READERS, "p_reader": np.sqrt(p)}
    whole = audit(y, p, n_resamples=20, **options).decision_curve(CHOSEN)
    stream = StreamingAudit(n_resamples=20).update(y, p, **options).finish().decision_curve(CHOSEN)
    assert stream["n"].tolist() == whole["n"].tolist()
    overall = whole["stratum"] == "overall"  # elsewhere few cases are treated at some thresholds
    for name in ("net_benefit", "treat_all", "gain", "net_benefit_low", "gain_high"):
        rows = overall if name.endswith(("low", "high")) else whole["n"] > 0
        assert stream.loc[rows, name].to_numpy() == pytest.approx(
            whole.loc[rows, name].to_numpy(), abs=2e-3, nan_ok=True
        )


def test_json_has_the_chosen_thresholds_and_classes_are_two(rng):
    y, p, votes = study(rng)
    found = json.loads(audit(y, p, votes=votes, n_raters=READERS, n_resamples=20).to_json())
    assert {row["threshold"] for row in found["decision"]} == set(CHOSEN)
    several = audit(rng.integers(3, size=60), rng.dirichlet([1, 1, 1], size=60), n_resamples=20)
    assert several.to_dict()["decision"] == []
    assert tuple(several.decision_curve().columns) == DECISION_COLUMNS


@pytest.mark.validity
@pytest.mark.parametrize("size", [1, 10])
@pytest.mark.parametrize("threshold", [0.1, 0.335, 0.6])
def test_intervals_hold_the_truth(size, threshold):
    """400 cases of prevalence one third, so that at .335 treating all and none are as good."""
    grid = ndtri((np.arange(200_000) + 0.5) / 200_000)
    chance = expit(1.5 * grid - 1.0)
    treated = chance >= threshold
    own = ((chance - threshold) * treated).mean() / (1 - threshold)
    truth = {
        "net_benefit": own,
        "gain": own - max(0.0, (chance.mean() - threshold) / (1 - threshold)),
    }
    held = dict.fromkeys(truth, 0)
    for run in range(RUNS):
        rng = np.random.default_rng([run, size])
        groups = np.arange(400) // size
        shared = rng.normal(size=400)[groups] if size > 1 else rng.normal(size=400)
        x = np.sqrt(0.4) * shared + np.sqrt(0.6) * rng.normal(size=400)
        p = expit(1.5 * x - 1.0)
        y = (rng.uniform(size=400) < p).astype(float)
        row = benefit_rows(y, p, Units.of(400, groups=None if size == 1 else groups), [threshold])[
            0
        ]
        for key, value in truth.items():
            held[key] += row[f"{key}_low"] <= value <= row[f"{key}_high"]
    margin = 3 * np.sqrt(0.05 * 0.95 / RUNS)
    for key, count in held.items():
        assert count / RUNS > 0.93 - margin, (key, count / RUNS)
