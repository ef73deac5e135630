from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq, minimize
from scipy.stats import chi2, ncx2

from scalecal.checks import InputError
from scalecal.datasets import simulate
from scalecal.planning import ERRORS, plan
from scalecal.votes import strata


def logit(p):
    return np.log(p / (1 - p))


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def slow_cox_p_value(y, p):
    z = logit(p)

    def loss(line):
        eta = line[0] + line[1] * z
        return np.logaddexp(0, eta).sum() - y @ eta

    return chi2.sf(2 * (loss([0.0, 1.0]) - minimize(loss, [0.0, 1.0]).fun), 2)


def test_power_equals_that_of_whole_simulated_studies():
    """Draw whole data sets, take the hardest fifth, stretch its logits, test: no shortcut."""
    n, share, excess = 600, 0.2, 0.12
    many = simulate(60_000, dim=1, seed=9).label_probability
    hard = np.abs(many - 0.5) <= np.quantile(np.abs(many - 0.5), share)
    border = np.abs(many[hard] - 0.5).max()
    q = many[hard]
    stretch = brentq(lambda c: np.abs(sigmoid(c * logit(q)) - q).mean() - excess, 1.0, 50.0)
    rejected = 0
    for seed in range(150):
        data = simulate(n, dim=1, seed=seed)
        inside = np.abs(data.label_probability - 0.5) <= border
        p = sigmoid(stretch * logit(data.label_probability[inside]))
        rejected += slow_cox_p_value(data.y[inside], p) < 0.05
    result = plan(excess, stratum_share=share, n_raters=(7,), n_cases=[n], n_simulations=600)
    error = np.sqrt(0.25 / 150 + 0.25 / 600)
    assert result.table["power"].iloc[0] == pytest.approx(rejected / 150, abs=3 * error)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("share", [0.3, 1.0, None])
def test_the_error_planted_is_the_error_asked_for(error, share):
    from scalecal.planning import _SCORES, _stratum

    part = _stratum(5, share, 0.04, error)
    rng = np.random.default_rng(0)
    t = np.interp(rng.random(200_000), part.cumulative, _SCORES)
    truth, claim = np.interp(t, _SCORES, part.truth), np.interp(t, _SCORES, part.claim)
    assert np.abs(claim - truth).mean() == pytest.approx(0.04, abs=5e-4)
    if share is not None:
        assert part.share == pytest.approx(share, abs=1e-3)
    if error == "shifted":
        assert (claim > truth - 1e-9).all()
    if error == "overconfident" and share is not None:
        assert (np.abs(claim - 0.5) >= np.abs(truth - 0.5) - 1e-9).all()


@pytest.mark.parametrize("m", [3, 5, 7])
def test_the_agreement_stratum_is_that_of_simulated_votes(m):
    """Share and labels of the low stratum, against votes really drawn."""
    from scalecal.planning import _SCORES, _stratum

    part = _stratum(m, None, 0.02, "overconfident")
    data = simulate(20_000, dim=1, n_raters=m, seed=2)
    low = strata(data.votes, data.n_raters) == "low"
    assert part.share == pytest.approx(low.mean(), abs=0.015)
    t = data.model.scores(data.X)[low]
    expected = np.interp(t, _SCORES, part.truth)
    for tenth in np.array_split(np.argsort(expected), 10):
        gap = data.y[low][tenth].mean() - expected[tenth].mean()
        assert abs(gap) < 4 * 0.5 / np.sqrt(len(tenth))


@pytest.mark.validity
def test_with_next_to_no_error_the_test_rejects_at_its_level():
    result = plan(1e-4, n_raters=(7,), n_cases=[1000, 4000], n_simulations=800, power=0.5)
    assert np.abs(result.table["power"] - 0.05).max() < 4 * np.sqrt(0.05 * 0.95 / 800)


@pytest.mark.validity
@pytest.mark.parametrize("share", [0.25, None])
def test_the_cases_needed_give_the_power_wanted(share):
    first = plan(0.08, stratum_share=share, n_raters=(3, 7), n_simulations=200)
    assert not first.needed["extrapolated"].any()
    for m, n in zip(first.needed["n_raters"], first.needed["n_cases"], strict=True):
        again = plan(
            0.08, stratum_share=share, n_raters=(m,), n_cases=[n], n_simulations=500, seed=99
        )
        assert again.table["power"].iloc[0] == pytest.approx(0.8, abs=0.075)


@pytest.mark.parametrize("n_simulations", [20, 100, 400])
def test_the_fit_finds_the_cases_needed_from_curves_of_its_own_model(n_simulations):
    from scalecal.planning import _needed, _noncentrality, _round_sizes

    rng = np.random.default_rng(n_simulations)
    covered = []
    for _ in range(150):
        power, size = rng.choice([0.5, 0.8, 0.95]), 10 ** rng.uniform(1.5, 6.0)
        sizes = np.array(_round_sizes(size, size * rng.uniform(1.0, 2.0)))
        need = np.exp(rng.uniform(*np.log(sizes[[0, -1]])))
        noncentrality = _noncentrality(0.05, power) * (sizes / need) ** rng.normal(1.0, 0.1)
        hits = rng.binomial(n_simulations, ncx2.sf(chi2.isf(0.05, 2), 2, noncentrality))
        rows = pd.DataFrame({"n_cases": sizes, "power": hits / n_simulations, "stratum_share": 0.2})
        found = _needed(rows, n_simulations, 0.05, power)
        error = np.log(found["n_high"] / found["n_cases"]) / 1.96
        assert abs(np.log(found["n_cases"] / need)) < 5 * error + 1 / need
        covered.append(found["n_low"] <= need <= found["n_high"])
    assert np.mean(covered) > 0.9


@pytest.mark.parametrize("hits", [[0, 0, 0], [1, 0, 2], [40, 40, 40], [3, 1, 0], [40, 20, 0]])
def test_the_fit_is_finite_where_the_studies_tell_little(hits):
    from scalecal.planning import _needed

    rows = pd.DataFrame({"n_cases": [100, 200, 400], "power": hits, "stratum_share": 0.2})
    found = _needed(rows.assign(power=rows["power"] / 40), 40, 0.05, 0.8)
    assert 1 <= found["n_low"] <= found["n_cases"] <= found["n_high"] < 1e12


@pytest.mark.parametrize(
    "options",
    [
        {"power": 0.95},
        {"n_raters": (3, 7), "n_simulations": 50},
        {"n_raters": (2, 4, 6), "n_simulations": 100},
        {"stratum_share": 0.02, "n_simulations": 100},
    ],
)
def test_the_cases_needed_lie_between_the_studies_that_bracket_the_power(options):
    result = plan(**options)
    for row in result.needed.itertuples():
        studies = result.table[result.table["n_raters"] == row.n_raters]
        too_small = studies.loc[studies["power_high"] < result.power, "n_cases"].max()
        enough = studies.loc[studies["power_low"] > result.power, "n_cases"].min()
        assert too_small < row.n_cases < enough
        assert not row.extrapolated


def test_power_grows_with_cases_and_with_the_error():
    n = [300, 1000, 3000]
    small, large = (
        plan(e, n_raters=(5,), n_cases=n, n_simulations=150).table["power"] for e in (0.05, 0.15)
    )
    assert (np.diff(small) > 0).all()
    assert (large.to_numpy() > small.to_numpy()).all()


def test_more_readers_make_the_low_agreement_stratum_rarer():
    result = plan(0.1, stratum_share=None, n_raters=(3, 5, 7), n_cases=[500], n_simulations=20)
    assert (np.diff(result.table["stratum_share"]) < 0).all()


def test_the_answer_is_a_tidy_table_and_reads_well():
    result = plan(0.1, n_raters=(3, 7), n_simulations=30, seed=4)
    assert list(result.table) == [
        "n_raters",
        "n_cases",
        "stratum_share",
        "n_in_stratum",
        "floor",
        "power",
        "power_low",
        "power_high",
    ]
    assert (result.table["power_low"] <= result.table["power"]).all()
    assert (result.table["power"] <= result.table["power_high"]).all()
    assert (result.needed["n_low"] <= result.needed["n_cases"]).all()
    assert (result.needed["n_cases"] <= result.needed["n_high"]).all()
    text = str(result)
    assert "Cases needed for a power of 0.8" in text
    assert "7 readers" in text
    again = plan(0.1, n_raters=(3, 7), n_simulations=30, seed=4)
    assert result.table.equals(again.table)
    assert result.needed.equals(again.needed)


def test_studies_far_too_small_or_large_say_that_they_extrapolate():
    for n in (20, 50_000):
        result = plan(0.1, n_raters=(7,), n_cases=[n], n_simulations=40)
        assert result.needed["extrapolated"].all()
        assert "outside the studies simulated" in str(result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"excess": 0.0}, "excess must lie strictly"),
        ({"excess": 0.9}, "by at most"),
        ({"power": 0.04}, "power must exceed the level"),
        ({"stratum_share": 1.5}, "stratum_share must lie in"),
        ({"stratum_share": 0.0}, "above 0"),
        ({"stratum_share": None, "n_raters": (1,)}, "no agreement"),
        ({"stratum_share": None, "n_raters": (4,)}, "an odd number of readers"),
        ({"n_raters": ()}, "at least one number of readers"),
        ({"n_raters": (0,)}, "n_raters must be at least 1"),
        ({"error": "odd"}, "must be one of"),
        ({"n_simulations": 3}, "at least 20"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        plan(**arguments)
