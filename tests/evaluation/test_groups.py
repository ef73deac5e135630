"""Audits of cases that come in groups."""

import json

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

from scalecal import audit, compare_audits, metrics
from scalecal.evaluation.exhibits import vote_reliability
from scalecal.evaluation.rows import TESTS
from scalecal.metrics.grouping import MIN_GROUPS, draw_uniforms


def patients(groups=40, size=12, seed=0, share=0.4, m=7):
    """Labels, probabilities, votes and groups of a calibrated model with patient effects."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), size)
    p = expit(1.5 * rng.normal(size=len(group)))
    y = (draw_uniforms(1, len(p), group, share, rng)[0] < p).astype(int)
    votes = np.where(y == 1, rng.integers(4, m + 1, len(p)), rng.integers(0, 4, len(p)))
    return y, p, votes, group


def test_every_number_of_a_row_is_the_plain_function_with_groups():
    y, p, votes, group = patients()
    result = audit(y, p, votes=votes, n_raters=7, groups=group)
    for name in ("overall", "low"):
        row = result[name]
        inside = result.predictions.cases.within(name)
        yy, pp, gg = y[inside], p[inside], group[inside]
        for test in TESTS:
            found = getattr(metrics, test)(yy, pp, groups=gg).p_value
            if name == "low":  # made of the votes
                found = np.nan
            assert row[f"p_{test}"] == pytest.approx(found, nan_ok=True), test
        assert row["floor"] == pytest.approx(metrics.noise_floor(pp, y=yy, groups=gg))
        assert row["n_groups"] == len(np.unique(gg))
    assert "on 480 cases of 40 groups" in result.sentences[1]
    assert "are computed over 40 groups" in str(result)
    assert "independent given the model" not in str(result)


def test_groups_that_say_nothing_change_nothing():
    y, p, votes, _ = patients()
    alone = audit(y, p, votes=votes, n_raters=7)
    each = audit(y, p, votes=votes, n_raters=7, groups=np.arange(len(y)))
    assert each.to_json() == alone.to_json()


@pytest.mark.parametrize("count", [1, 3, MIN_GROUPS - 1])
def test_few_groups_have_no_verdict_and_no_interval_but_the_reason(count):
    y, p, votes, _ = patients()
    group = np.arange(len(y)) % count
    reader = np.clip(p, 0.2, 0.8)
    result = audit(y, p, votes=votes, n_raters=7, groups=group, p_reader=reader)
    why = f"too few groups ({count}, at least {MIN_GROUPS} are needed)"
    for row in result.rows:
        assert row["reason"].startswith(why)
        undefined = ("floor", "excess", "null", "p_null", *(f"p_{test}" for test in TESTS))
        assert all(np.isnan(row[key]) for key in undefined if key in row)
        assert all(np.isnan(row[k]) for k in row if k.endswith(("_low", "_high", "_holm")))
        assert np.isfinite(row["ece"])
    said = " ".join(result.sentences)
    assert "There is no verdict: too few groups" in said
    assert "No subset of the cases can be judged" in said
    assert "miscalibrat" not in said
    assert "95 % interval" not in said
    assert json.loads(result.to_json())["strata"][0]["floor"] is None
    assert "nan" not in result._repr_html_().lower()
    assert result.plot() is not None
    change = compare_audits(result, result).differences
    assert change[["low", "high", "p_value"]].isna().all(axis=None)


def test_few_cases_have_no_interval_either():
    row = audit([0, 1, 1], [0.2, 0.6, 0.7])["overall"]
    assert np.isnan(row["gap_low"])
    assert np.isfinite(row["p_cox"])
    assert row["reason"] == f"too few cases (3, at least {MIN_GROUPS} are needed) for an interval"


def test_the_null_of_strata_respects_groups():
    y, p, votes, group = patients(groups=12, size=60, share=0.9)
    alone = audit(y, p, votes=votes, n_raters=7)
    grouped = audit(y, p, votes=votes, n_raters=7, groups=group)
    for name in ("high", "medium", "low"):
        assert grouped[name]["null"] > alone[name]["null"]
        width = [row[name]["null_high"] - row[name]["null_low"] for row in (alone, grouped)]
        assert width[1] > 1.1 * width[0]


def test_bars_respect_groups():
    y, p, votes, group = patients(groups=12, size=60, share=0.9)
    alone = audit(y, p, votes=votes, n_raters=7)
    grouped = audit(y, p, votes=votes, n_raters=7, groups=group)
    width = [
        np.nanmean(np.subtract(*a.audit.reliability("overall")[1][::-1])) for a in (alone, grouped)
    ]
    assert width[1] > 1.2 * width[0]
    null = [vote_reliability(a.audit)[0]["null"] for a in (alone, grouped)]
    assert null[1] != null[0]


def delong(y, p):
    """Placements of positives and negatives (DeLong et al., 1988), by comparing every pair."""
    higher = (p[y == 1][:, None] > p[y == 0]) + 0.5 * (p[y == 1][:, None] == p[y == 0])
    return higher.mean(axis=1), higher.mean(axis=0)


def test_the_interval_of_auc_is_delong_s_on_the_logit_scale():
    y, p, _, _ = patients(seed=3)
    row = audit(y, p)["overall"]
    up, down = delong(y, p)
    area = up.mean()
    error = np.sqrt(up.var() / len(up) + down.var() / len(down))
    half = stats.norm.ppf(0.975) * error / (area * (1 - area))
    expected = expit(logit(area) + half * np.array([-1, 1]))
    assert [row["auc_low"], row["auc_high"]] == pytest.approx(expected, abs=5e-4)


def test_the_interval_of_auc_with_groups_is_obuchowski_s():
    y, p, _, group = patients(seed=4)
    row = audit(y, p, groups=group)["overall"]
    up, down = delong(y, p)
    area, count = up.mean(), 40
    own = np.array(
        [
            (
                (up[group[y == 1] == g] - area).sum(),
                (down[group[y == 0] == g] - area).sum(),
            )
            for g in range(count)
        ]
    )
    m, n = len(up), len(down)
    scale = count / (count - 1)
    s10, s01 = scale * (own[:, 0] ** 2).sum() / m, scale * (own[:, 1] ** 2).sum() / n
    s11 = scale * (own[:, 0] * own[:, 1]).sum()
    error = np.sqrt(s10 / m + s01 / n + 2 * s11 / (m * n))
    low = logit(area) - logit(row["auc_low"])
    # Student's t, of as many degrees as the groups' sums are worth: not more than groups less one.
    t = low * area * (1 - area) / error
    assert stats.t.ppf(0.975, 39) - 1e-6 <= t < 1.1 * stats.t.ppf(0.975, 39)
    assert row["auc_high"] == pytest.approx(expit(logit(area) + low))


def test_the_interval_of_a_perfect_auc_is_not_a_point():
    y = np.arange(100) % 2
    p = np.where(y == 1, 0.9, 0.1) + np.linspace(0, 0.05, 100)
    row = audit(y, p)["overall"]
    assert row["auc"] == row["auc_high"] == 1
    assert 0.94 < row["auc_low"] < 0.99
    grouped = audit(y, p, groups=np.arange(100) // 10)["overall"]
    assert grouped["auc_low"] < row["auc_low"]
    wrong = audit(1 - y, p)["overall"]
    assert (wrong["auc_low"], wrong["auc_high"]) == pytest.approx((0, 1 - row["auc_low"]))
