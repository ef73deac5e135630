from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq, minimize
from scipy.stats import chi2, ncx2

from scalecal.checks import InputError
from scalecal.datasets import simulate
from scalecal.panel import Panel, fit_panel, label_logit, reader_logit
from scalecal.planning.power import PUBLISHED, plan, plan_votes
from scalecal.votes import fleiss_kappa


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


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_the_error_planted_is_the_error_asked_for(share):
    from scalecal.planning.power import _SCORES, _stratum

    part = _stratum(5, share, 0.04)
    rng = np.random.default_rng(0)
    t = np.interp(rng.random(200_000), part.cumulative, _SCORES)
    truth, claim = np.interp(t, _SCORES, part.truth), np.interp(t, _SCORES, part.claim)
    assert np.abs(claim - truth).mean() == pytest.approx(0.04, abs=5e-4)
    assert part.share == pytest.approx(share, abs=1e-3)
    assert (np.abs(claim - 0.5) >= np.abs(truth - 0.5) - 1e-9).all()


@pytest.mark.validity
def test_with_next_to_no_error_the_test_rejects_at_its_level():
    result = plan(1e-4, n_raters=(7,), n_cases=[1000, 4000], n_simulations=800, power=0.5)
    assert np.abs(result.table["power"] - 0.05).max() < 4 * np.sqrt(0.05 * 0.95 / 800)


@pytest.mark.validity
def test_the_cases_needed_give_the_power_wanted():
    first = plan(0.08, stratum_share=0.25, n_raters=(3, 7), n_simulations=200)
    assert not first.needed["extrapolated"].any()
    for m, n in zip(first.needed["n_raters"], first.needed["n_cases"], strict=True):
        again = plan(
            0.08, stratum_share=0.25, n_raters=(m,), n_cases=[n], n_simulations=500, seed=99
        )
        assert again.table["power"].iloc[0] == pytest.approx(0.8, abs=0.075)


@pytest.mark.parametrize("n_simulations", [20, 100, 400])
def test_the_fit_finds_the_cases_needed_from_curves_of_its_own_model(n_simulations):
    from scalecal.planning.power import _needed, _noncentrality, _round_sizes

    rng = np.random.default_rng(n_simulations)
    covered = []
    for _ in range(80):
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
    from scalecal.planning.power import _needed

    rows = pd.DataFrame({"n_cases": [100, 200, 400], "power": hits, "stratum_share": 0.2})
    found = _needed(rows.assign(power=rows["power"] / 40), 40, 0.05, 0.8)
    assert 1 <= found["n_low"] <= found["n_cases"] <= found["n_high"] < 1e12


@pytest.mark.parametrize(
    "options",
    [
        {"power": 0.95, "n_simulations": 300},
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
        assert "outside the simulated range" in str(result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"excess": 0.0}, "excess must lie strictly"),
        ({"excess": 0.9}, "by at most"),
        ({"power": 0.04}, "power must exceed the level"),
        ({"stratum_share": 1.5}, "stratum_share must lie in"),
        ({"stratum_share": 0.0}, "above 0"),
        ({"n_raters": ()}, "n_raters must be a list of at least one value"),
        ({"n_raters": (0,)}, "n_raters must be at least 1"),
        ({"n_simulations": 3}, "at least 20"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        plan(**arguments)


# Votes --------------------------------------------------------------------------------------------

PANEL, SINGLE = "votes of the whole panel", "votes of one reader"


def draw_panel(n, cases, rng):
    """Logits of the label, a reader's probability and votes of n cases, by normals and betas."""
    middle = len(cases.label) // 2
    spread = (cases.label[middle + 1] - cases.label[middle]) / 0.1
    z = cases.label[middle] + spread * rng.normal(size=n)
    mu, rho = sigmoid(reader_logit(z, cases.rho, cases.n_raters)), cases.rho
    p = rng.beta(mu * (1 - rho) / rho, (1 - mu) * (1 - rho) / rho)
    return z, mu, rng.binomial(cases.n_raters, p)


def cross_entropy(mu, p):
    return -(mu * np.log(p) + (1 - mu) * np.log(1 - p)).mean()


@pytest.mark.parametrize(("m", "rho", "prevalence"), [(7, 0.2, 0.5), (5, 0.4, 0.3), (4, 0.1, 0.5)])
def test_the_panel_planned_for_is_the_one_asked_for(m, rho, prevalence):
    """AUC, prevalence, kappa and gap against drawn cases."""
    from scalecal.planning.power import _panel_cases

    cases = _panel_cases(0.8, prevalence, m, rho)
    rng = np.random.default_rng(m)
    z, mu, votes = draw_panel(200_000, cases, rng)
    y = np.where(2 * votes == m, rng.random(len(z)) < 0.5, 2 * votes > m)
    ranks = z.argsort().argsort() + 1
    n = y.sum()
    auc = (ranks[y].sum() - n * (n + 1) / 2) / (n * (len(y) - n))
    assert auc == pytest.approx(0.8, abs=0.004)
    assert y.mean() == pytest.approx(prevalence, abs=0.004)
    assert cases.mean == pytest.approx((votes / m).mean(), abs=0.004)
    assert cases.kappa == pytest.approx(fleiss_kappa(votes, m), abs=0.006)
    gap = cross_entropy(mu, sigmoid(z)) - cross_entropy(mu, mu)
    assert cases.gap == pytest.approx(gap, abs=3e-4)


@pytest.mark.parametrize("rho", [0.0, 0.15, 0.6])
def test_the_true_panel_has_no_excess(rho):
    from scalecal.planning.power import _panel_cases

    cases = _panel_cases(0.85, 0.4, 7, rho)
    assert cases.excess(Panel(0.0, 1.0, rho, 7)) == pytest.approx(0.0, abs=1e-11)
    assert label_logit(cases.reader, rho, 7) == pytest.approx(cases.label, abs=1e-8)
    # A panel of one reader claims the label's probability.
    assert cases.excess(Panel(0.0, 1.0, rho, 1)) == pytest.approx(cases.gap)
    assert cases.excess(Panel(0.2, 1.1, rho, 7)) > 1e-4


def test_the_excess_equals_that_of_whole_simulated_studies():
    """Cases, votes and test cases drawn one by one: no grid, no counts."""
    from scalecal.planning.power import _panel_cases

    m, rho, n_labelled, n_voted, n_studies = 5, 0.4, 100, 40, 40
    cases, rng = _panel_cases(0.85, 0.5, m, rho), np.random.default_rng(3)
    test, mu, _ = draw_panel(4000, cases, rng)
    new = np.arange(n_labelled + n_voted) >= n_labelled
    excess = {PANEL: [], SINGLE: []}
    for _ in range(n_studies):
        z, _, votes = draw_panel(len(new), cases, rng)
        y = np.where(new, np.nan, 2 * votes > m)
        single = rng.hypergeometric(votes, m - votes, 1)
        for known, counts, readers in ((PANEL, votes, m), (SINGLE, single, 1)):
            counts = np.where(new, counts, np.nan)
            panel = fit_panel(z, y, counts, readers, panel_size=m, interval=False)
            nll = cross_entropy(mu, sigmoid(panel.reader_logit(test)))
            excess[known].append(nll - cross_entropy(mu, mu))
    table = plan_votes(
        0.85, [rho], n_raters=m, n_labelled=n_labelled, n_voted=[n_voted], n_simulations=60
    ).table.set_index("known")
    for known, drawn in excess.items():
        row = table.loc[known]
        error = (row["recovered_high"] - row["recovered_low"]) / 3.92 * row["gap"]
        error = np.hypot(error, np.std(drawn, ddof=1) / np.sqrt(n_studies))
        assert row["excess"] == pytest.approx(np.mean(drawn), abs=3.5 * error)


@pytest.fixture(scope="module")
def votes_plan():
    lines = []
    result = plan_votes(
        0.85, [0.3], n_voted=[0, 10, 40, 160], n_simulations=20, seed=5, progress=lines.append
    )
    return result, lines


def test_more_votes_recover_more_and_whole_panels_more_than_single_reads(votes_plan):
    table = votes_plan[0].table
    panel, single = (table[table["known"] == known] for known in (PANEL, SINGLE))
    assert (np.diff(panel["recovered"]) > 0).all()
    assert (panel["recovered"].to_numpy() > single["recovered"].to_numpy()).all()
    assert (np.diff(panel["rho_high"] - panel["rho_low"]) < 0).all()
    assert panel["rho_low"].iloc[-1] < 0.3 < panel["rho_high"].iloc[-1]
    assert panel["recovered"].max() < 1.0


def test_a_wrong_kappa_costs(votes_plan):
    table = votes_plan[0].table.set_index("known")
    right, low, high = (table.loc[known] for known in PUBLISHED)
    assert right["recovered"] > max(low["recovered"], high["recovered"])
    assert low["rho_fitted"] < right["rho_fitted"] < high["rho_fitted"]
    assert right["rho_fitted"] == pytest.approx(0.3, abs=0.03)
    assert right["n_voted"] == 0


def test_the_votes_planned_are_a_tidy_table_and_read_well(votes_plan):
    result, lines = votes_plan
    assert list(result.table) == [
        "rho",
        "kappa",
        "gap",
        "known",
        "n_voted",
        "excess",
        "recovered",
        "recovered_low",
        "recovered_high",
        "rho_fitted",
        "rho_low",
        "rho_high",
    ]
    assert result.table["n_voted"].tolist() == [0, 0, 0, 10, 40, 160, 10, 40, 160]
    assert result.table["excess"].to_numpy() == pytest.approx(
        result.table["gap"] * (1 - result.table["recovered"])
    )
    text = str(result)
    assert "Cases with votes needed to recover 0.9" in text
    assert result.sentence in text
    assert "read by all 7 readers to get 0.9" in result.sentence
    assert lines == ["rho 0.3: 0 of 20 simulations"]
    again = plan_votes(0.85, [0.3], n_voted=[10, 40, 160], n_simulations=20, seed=5)
    assert again.table.equals(result.table)
    assert again.needed.equals(result.needed)


def test_the_sentence_is_about_the_correlation_that_needs_most(votes_plan):
    from dataclasses import replace

    needed = pd.DataFrame(
        {
            "rho": [0.1, 0.2, 0.4],
            "known": PANEL,
            "n_voted": [60, 120, 50],
            "bound": ["", "", "at most"],
        }
    )
    result = replace(votes_plan[0], needed=needed)
    assert result.sentence.startswith("With rho 0.2, where most are needed, it takes 120 cases")
    beyond = replace(result, needed=needed.assign(bound=["more than", "", ""]))
    assert beyond.sentence.startswith("With rho 0.1, where most are needed, it takes more than 60")
    alone = replace(result, needed=needed.iloc[2:])
    assert alone.sentence.startswith("With rho 0.4 it takes at most 50 cases")


@pytest.mark.parametrize("rho", [0.0, 0.7])
def test_votes_are_planned_at_the_ends_of_rho(rho):
    result = plan_votes(0.7, [rho], n_raters=3, n_labelled=200, n_voted=[20], n_simulations=20)
    numbers = result.table.select_dtypes("number").to_numpy()
    assert np.isfinite(numbers).all()
    assert (result.table["excess"] >= 0).all()
    if rho == 0.0:
        assert result.table["recovered"].iloc[0] > 0.5


def test_the_needed_votes_are_where_the_curve_crosses():
    from scalecal.planning.power import _votes_needed

    sizes, rng = [10, 100, 1000], np.random.default_rng(0)
    curve = np.tile([0.5, 0.7, 0.9], (25, 1))
    assert _votes_needed(sizes, curve, 0.7, rng) == {
        "n_voted": 100,
        "n_low": 100,
        "n_high": 100,
        "bound": "",
    }
    assert _votes_needed(sizes, curve, 0.8, rng)["n_voted"] == 317  # 10 ** 2.5
    assert _votes_needed(sizes, curve, 0.4, rng)["bound"] == "at most"
    assert _votes_needed(sizes, curve, 0.4, rng)["n_voted"] == 10
    assert _votes_needed(sizes, curve, 0.95, rng)["bound"] == "more than"
    assert _votes_needed(sizes, curve, 0.95, rng)["n_voted"] == 1000
    assert _votes_needed(sizes[:1], curve[:, :1], 0.95, rng)["n_voted"] == 10


@pytest.mark.validity
def test_the_interval_of_the_needed_votes_covers():
    from scalecal.planning.power import _votes_needed

    sizes, rng, covered = [25, 50, 100, 200], np.random.default_rng(1), []
    middle = 1.0 - 4.0 / np.array(sizes)
    need = np.exp(np.interp(0.95, middle, np.log(sizes)))
    for _ in range(200):
        common = rng.exponential(size=(100, 1))  # excess is skewed, and paired over sizes
        noise = 0.5 * common + 0.5 * rng.exponential(size=(100, 4))
        found = _votes_needed(sizes, 1.0 - noise * (1.0 - middle), 0.95, rng)
        covered.append(found["n_low"] - 1 <= need <= found["n_high"])
    assert 0.89 < np.mean(covered) < 0.99


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"auc": 0.5}, "auc must lie above 0.5"),
        ({"auc": 0.99}, "at most 0.98"),
        ({"rho": []}, "rho must be a list of at least one value"),
        ({"rho": [1.0]}, "rho must lie in"),
        ({"rho": [0.1, 0.99]}, "with rho 0.99 the label's probability is a reader's"),
        ({"prevalence": 0.0}, "prevalence must lie strictly"),
        ({"share": 1.0}, "share must lie strictly"),
        ({"n_raters": 1}, "label of 1 reader is as likely as one reader's vote"),
        ({"n_raters": 2}, "at least 3"),
        ({"n_labelled": 5}, "n_labelled must be at least 20"),
        ({"n_voted": [0]}, "at least one number above 0"),
        ({"n_voted": [-5]}, "n_voted must be at least 0"),
        ({"n_simulations": 3}, "at least 20"),
    ],
)
def test_bad_input_to_plans_of_votes_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        plan_votes(**arguments)


@pytest.mark.validity
def test_an_audit_of_groups_has_the_power_it_was_planned_for():
    """Against residuals that a Gaussian copula correlates, in place of shared uniform numbers."""
    from scipy.stats import norm

    from scalecal.metrics import cox
    from scalecal.planning.power import _stratum

    size, icc = 10, 0.2
    options = {"stratum_share": 1.0, "n_raters": (5,)}
    alone = plan(0.06, **options, n_simulations=100).needed["n_cases"][0]
    needed = plan(0.06, **options, n_simulations=150, group_size=size, icc=icc).needed["n_cases"][0]
    assert needed > 1.3 * alone
    part, rng = _stratum(5, 1.0, 0.06), np.random.default_rng(1)
    correlation = np.sin(np.pi / 2 * icc)  # of normals, for signs that agree so often
    hits = {}
    for n in (alone, needed):
        rejected = 0
        for _ in range(150):
            code = np.arange(n) // size
            own, common = rng.normal(size=n), rng.normal(size=code[-1] + 1)[code]
            z = np.sqrt(1 - correlation) * own + np.sqrt(correlation) * common
            y, p = part.draw(n, rng, norm.cdf(z))
            rejected += cox(y, p, groups=code, n_resamples=199, seed=rng).p_value <= 0.05
        hits[n] = rejected / 150
    assert hits[needed] == pytest.approx(0.8, abs=0.13)
    assert hits[alone] < hits[needed]
