from __future__ import annotations

import json
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logit
from scipy.stats import beta as beta_law

from scalecal.checks import InputError
from scalecal.metrics import METRICS
from scalecal.metrics.arguments import Sample
from scalecal.planning import plan_precision
from scalecal.planning.precision import (
    auc_cases,
    binormal_law,
    equal_law,
    net_benefit_cases,
    oe_cases,
    slope_cases,
)

PEER = json.loads(Path(__file__).with_name("precision_values.json").read_text())
ROWS = [row["setting"] | row for row in PEER["rows"]]


def drawn(setting):
    """The predictions that pmvalsampsize draws."""
    rng = np.random.RandomState(PEER["seed"])  # numpy's legacy generator, as there
    if "lpnormal" in setting:
        mean, sd = setting["lpnormal"]
        return 1 / (1 + np.exp(-rng.normal(mean, sd, PEER["draws"])))
    return beta_law.rvs(*setting["lpbeta"], size=PEER["draws"], random_state=rng)


@pytest.mark.parametrize("row", ROWS)
def test_o_e_and_auc_need_as_many_as_in_pmvalsampsize(row):
    assert (
        ceil(oe_cases(row["prevalence"], row.get("oeciwidth", 0.2))) == row["n"]["Criteria 1 - O/E"]
    )
    found = auc_cases(row["prevalence"], row["cstatistic"], row.get("cstatciwidth", 0.1))
    assert ceil(found) == row["n"]["Criteria 3 - C statistic"]


@pytest.mark.parametrize("row", [r for r in ROWS if "lpcstat" not in r])
def test_the_slope_needs_as_many_as_in_pmvalsampsize(row):
    width, theirs = row.get("csciwidth", 0.2), row["n"]["Criteria 2 - C-slope"]
    assert ceil(slope_cases(equal_law(logit(drawn(row))), width)) == theirs
    # Tabulated exactly, the law differs from the draws by their chance alone.
    names = {"lpnormal": "logit_normal", "lpbeta": "beta"}
    law = {names[k]: v for k, v in row["setting"].items() if k in names}
    ours = plan_precision(row["prevalence"], row["cstatistic"], slope_width=width, **law).table
    assert ours["n_independent"][1] == pytest.approx(theirs, rel=0.01)


def test_without_a_law_the_slope_needs_about_as_many_as_in_pmvalsampsize():
    (row,) = [r for r in ROWS if "lpcstat" in r]
    found = plan_precision(row["prevalence"], row["cstatistic"]).table["n_cases"][1]
    # There the mean of the logits is searched for in steps, by simulation.
    assert found == pytest.approx(row["n"]["Criteria 2 - C-slope"], rel=0.02)


@pytest.mark.parametrize("row", [r for r in ROWS if "threshold" in r])
def test_net_benefit_needs_as_many_as_in_pmvalsampsize(row):
    found = net_benefit_cases(
        row["prevalence"],
        row["sensitivity"],
        row["specificity"],
        row["threshold"],
        PEER["net_benefit_width"],
    )
    assert ceil(found - 1e-9) == row["n"]["Criteria 4 - St Net Benefit"]


@given(st.floats(0.01, 0.95), st.floats(0.55, 0.98))
def test_the_binormal_law_is_calibrated_and_has_the_prevalence_and_auc(prevalence, auc):
    law = binormal_law(prevalence, auc)
    assert law.mean_p == pytest.approx(prevalence, rel=1e-3)
    assert law.auc == pytest.approx(auc, abs=2e-3)


def test_rates_and_auc_of_a_law_are_those_of_its_cases():
    p = np.array([0.1, 0.1, 0.4, 0.7, 0.9])
    law = equal_law(logit(p))
    sensitivity, specificity = law.rates(0.35)
    assert sensitivity == pytest.approx(2.0 / 2.2)
    assert specificity == pytest.approx(1.8 / 2.8)
    pairs = [a * (1 - b) * (1.0 if a > b else 0.5 if a == b else 0.0) for a in p for b in p]
    assert law.auc == pytest.approx(sum(pairs) / (p.sum() * (1 - p).sum()))


@given(st.integers(1, 30), st.floats(0, 0.5), st.integers(2, 9), st.floats(0, 1))
def test_groups_and_readers(group_size, icc, n_raters, kappa):
    alone = plan_precision(0.3, 0.8)
    grouped = plan_precision(0.3, 0.8, group_size=group_size, icc=icc)
    assert grouped.n_cases >= alone.n_cases * (1 + (group_size - 1) * icc) - 1
    voted = plan_precision(0.3, 0.8, n_raters=n_raters, kappa=kappa)
    assert voted.n_cases <= alone.n_cases
    assert voted.n_cases * n_raters >= alone.n_cases
    if kappa == 1.0:
        assert voted.n_cases == alone.n_cases  # readers who always agree are one reader


def test_narrower_intervals_need_more_by_the_square():
    wide = plan_precision(0.3, 0.8, slope_width=0.4).table["n_independent"][1]
    narrow = plan_precision(0.3, 0.8, slope_width=0.2).table["n_independent"][1]
    assert narrow == pytest.approx(4 * wide, abs=4)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({}, "law of the predictions is missing"),
        ({"prevalence": 0.2, "auc": 0.4}, "auc must lie above 0.5"),
        ({"beta": (1, 2), "logit_normal": (0, 1)}, "given twice"),
        ({"beta": (1, 2, 3)}, "two numbers"),
        ({"prevalence": 0.2, "auc": 0.8, "n_raters": 3}, "go together"),
        ({"prevalence": 0.2, "auc": 0.8, "kappa": 0.3}, "go together"),
        ({"predictions": [0.5, 0.5]}, "all predictions are equal"),
        ({"predictions": [0.5, 1.5]}, "predictions"),
        ({"prevalence": 0.2, "auc": 0.8, "oe_width": 0}, "oe_width"),
    ],
)
def test_what_cannot_be_planned_is_refused(options, part):
    with pytest.raises(InputError, match=part):
        plan_precision(**options)


@pytest.mark.validity
@pytest.mark.parametrize(("group_size", "icc"), [(1, 0.0), (20, 0.1)])
def test_intervals_of_the_slope_are_as_wide_as_planned(group_size, icc):
    """Whole studies of the size said: sandwich errors; cases of a patient share their uniform number."""
    rng = np.random.default_rng(3)
    result = plan_precision(
        logit_normal=(-1.0, 1.5), slope_width=0.4, oe_width=0.4, group_size=group_size, icc=icc
    )
    for index, name in ((0, "oe"), (1, "slope")):
        n = int(result.table["n_cases"][index])
        estimates = []
        for _ in range(250):
            p = 1 / (1 + np.exp(-rng.normal(-1.0, 1.5, n)))
            common = np.repeat(rng.random(n // group_size), group_size)
            own = rng.random(n) > np.sqrt(icc)
            y = np.where(own, rng.random(n), common) < p
            estimates.append(METRICS[name].value(Sample(y.astype(float), p, None)))
        width = 2 * 1.96 * np.std(estimates)
        # O:E is conditional on p, and the slope's scores of a patient go together less than residuals.
        assert 0.6 * 0.4 < width < 1.08 * 0.4


def test_the_command_reads_predictions_without_labels(tmp_path):
    from typer.testing import CliRunner

    from scalecal.cli import app

    p = np.random.default_rng(0).beta(0.8, 3, 200)
    lines = [f"{i},{value}" for i, value in enumerate(p)]
    (tmp_path / "p.csv").write_text("\n".join(["id,p", *lines]))
    options = ["--predictions", str(tmp_path / "p.csv"), "--threshold", "0.2", "--group-size", "4"]
    out = tmp_path / "plan"
    result = CliRunner().invoke(
        app, ["plan", "precision", *options, "--icc", "0.1", "--out", str(out)]
    )
    assert result.exit_code == 0, result.output
    expected = plan_precision(predictions=p, threshold=0.2, group_size=4, icc=0.1)
    assert str(expected) in result.stdout
    written = np.genfromtxt(
        out / "precision.csv", delimiter=",", names=True, dtype=None, encoding="utf-8"
    )
    assert written["n_cases"].tolist() == expected.table["n_cases"].tolist()
