import json
import os

import numpy as np
import pytest
from scipy import stats

from scalecal import audit, compare_audits, metrics
from scalecal.checks import InputError
from scalecal.evaluation.rows import TESTS, case_sums, debiased_interval, sum_values
from scalecal.inference.difficulty import votes_by_difficulty
from scalecal.inference.units import Units
from scalecal.votes import STRATA

SLOW = os.environ.get("SCALECAL_SLOW") == "1"


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def make(n=500, seed=0, sharp=1.0, m=7, spread=2.0, noise=1.0):
    """Readers whose vote probability is only partly explained by the features behind p."""
    rng = np.random.default_rng(seed)
    x = spread * rng.normal(size=n) - 0.7
    votes = rng.binomial(m, sigmoid(x + noise * rng.normal(size=n)))
    return (votes > m / 2).astype(int), sigmoid(sharp * x), votes


@pytest.fixture(scope="module")
def seven():
    y, p, votes = make()
    return audit(y, p, votes=votes, n_raters=7)


def test_rows_come_in_the_promised_order_with_their_counts(seven):
    votes = make()[2]
    assert [r["name"] for r in seven.rows] == ["overall", "high", "medium", "low"]
    side = np.maximum(votes, 7 - votes)
    assert [r["n"] for r in seven.rows] == [
        500,
        (side >= 6).sum(),
        (side == 5).sum(),
        (side == 4).sum(),
    ]


def test_facts_hold_the_nulls_that_the_rows_were_judged_by(seven):
    rows = {r["stratum"]: r for r in seven.facts["rows"] if r["method"] == seven.facts["baseline"]}
    for name in STRATA:
        for key in ("null", "null_low", "null_high"):
            assert rows[name][key] == seven[name][key]


def test_every_number_equals_the_plain_function_on_the_stratum(seven):
    y, p, votes = make()
    side = np.maximum(votes, 7 - votes)
    for name, inside in (
        ("overall", side > 0),
        ("high", side >= 6),
        ("medium", side == 5),
        ("low", side == 4),
    ):
        row, yy, pp, vv = seven[name], y[inside], p[inside], votes[inside]
        assert row["ece"] == pytest.approx(metrics.ece(yy, pp))
        assert row["floor"] == pytest.approx(metrics.noise_floor(pp))
        assert row["excess"] == pytest.approx(row["ece"] - row["floor"])
        assert row["debiased_error"] == pytest.approx(metrics.debiased_error(yy, pp))
        assert row["smece"] == pytest.approx(metrics.smece(yy, pp))
        assert row["brier"] == pytest.approx(metrics.brier(yy, pp))
        assert row["nll"] == pytest.approx(metrics.nll(yy, pp))
        assert row["auc"] == pytest.approx(metrics.auc(yy, pp))
        assert row["accuracy"] == pytest.approx(metrics.accuracy(yy, pp))
        assert row["prevalence"] == pytest.approx(yy.mean())
        assert row["gap"] == pytest.approx(pp.mean() - yy.mean())
        assert row["vote_nll"] == pytest.approx(metrics.vote_nll(vv, pp, n_raters=7))
        assert row["vote_error"] == pytest.approx(metrics.vote_error(vv, pp, n_raters=7))
        assert row["dist_ce"] == pytest.approx(metrics.dist_ce(vv, pp, n_raters=7))
        # The votes made these strata: within them tests of calibration do not hold.
        cox = metrics.cox(yy, pp).p_value if name == "overall" else np.nan
        assert row["p_cox"] == pytest.approx(cox, nan_ok=True)


def test_holm_runs_over_strata_that_the_votes_did_not_make():
    y, p, votes = make()
    site = np.array(["a", "b", "c"])[np.arange(len(y)) % 3]
    rows = audit(y, p, votes=votes, n_raters=7, strata=site).rows[1:]
    raw = [r["p_cox"] for r in rows]
    assert np.isfinite(raw).all()
    assert [r["p_cox_holm"] for r in rows] == pytest.approx(list(metrics.holm(raw)))


def test_strata_that_the_votes_made_have_no_test_of_calibration(seven):
    for test in TESTS:
        assert np.isfinite(seven["overall"][f"p_{test}"])
        assert np.isnan([seven[s][f"p_{test}{end}"] for s in STRATA for end in ("", "_holm")]).all()


def test_votes_judge_strata_of_predicted_difficulty(seven):
    y, p, votes = make()
    found = votes_by_difficulty(votes, p, 7, of_label=True, y=y)
    assert seven.difficulty == found
    assert seven["overall"]["p_votes_holm"] == min(t["p_votes_holm"] for t in found)
    assert json.loads(seven.to_json())["difficulty"][2]["name"] == "hard"
    assert "by predicted difficulty\nstratum" in str(seven)
    assert audit(y, p).difficulty == []


def test_difficulty_may_be_predicted_by_another_model():
    y, p, votes = make()
    split = np.random.default_rng(0).random(len(y))
    result = audit(y, p, votes=votes, n_raters=7, p_split=split, n_resamples=20)
    hard = votes_by_difficulty(votes, p, 7, of_label=True, p_split=split)[2]
    assert result.difficulty[2] == hard
    assert "readers are expected to" in " ".join(result.sentences)


@pytest.mark.parametrize(
    ("bad", "words"), [(np.zeros(3), "3 rows"), (np.full(20, np.nan), "finite")]
)
def test_p_split_must_fit_the_cases(bad, words):
    y, p, votes = (values[:20] for values in make())
    with pytest.raises(InputError, match=f"p_split .*{words}"):
        audit(y, p, votes=votes, n_raters=7, p_split=bad)


def test_same_seed_same_audit_and_json_is_plain(seven):
    y, p, votes = make()
    again = audit(y, p, votes=votes, n_raters=7)
    assert again.to_json() == seven.to_json()
    loaded = json.loads(seven.to_json())
    assert [r["name"] for r in loaded["strata"]] == ["overall", "high", "medium", "low"]
    assert loaded["strata"][0]["null"] is None
    assert loaded["meta"]["n_bins"] == 15
    assert len(loaded["meta"]["data_sha256"]) == 64


def test_an_empty_stratum_is_null_with_its_reason():
    y, p, votes = make(m=3)
    result = audit(y, p, votes=votes, n_raters=3)
    assert result["medium"]["n"] == 0
    assert np.isnan(result["medium"]["ece"])
    assert result["medium"]["reason"] == "no case in this stratum"
    assert "No case in stratum medium" in str(result)
    assert json.loads(result.to_json())["strata"][2]["ece"] is None


def test_without_votes_there_is_one_row():
    y, p, _ = make()
    result = audit(y, p)
    assert [r["name"] for r in result.rows] == ["overall"]
    assert "Its calibration error (ECE) is" in str(result)


def test_strata_by_column():
    y, p, _ = make()
    site = np.where(np.arange(500) % 2, "north", "south")
    by_column = audit(y, p, strata=site)
    assert [r["name"] for r in by_column.rows] == ["overall", "north", "south"]
    with pytest.raises(InputError, match="'overall'"):
        audit(y, p, strata=np.full(500, "overall"))
    with pytest.raises(InputError, match="one name per case"):
        audit(y, p, strata=site[:4])


def test_references_know_nothing(seven):
    half = [r for r in seven.references if r["name"] == "constant 0.5"]
    assert half[0]["brier"] == pytest.approx(0.25)
    share = next(r for r in seven.references if r["name"] == "prevalence")
    assert share["ece"] == pytest.approx(0.0, abs=1e-12)


def test_more_than_two_classes():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), size=400)
    votes = np.array([rng.multinomial(5, q) for q in probs])
    y = votes.argmax(axis=1)
    result = audit(y, probs, votes=votes)
    assert result.meta["event"] == "top class is right"
    assert result["overall"]["ece"] == pytest.approx(metrics.ece(y, probs))
    assert result["overall"]["nll"] == pytest.approx(metrics.nll(y, probs))
    assert result["overall"]["brier"] == pytest.approx(metrics.brier(y, probs))
    assert result["overall"]["vote_error"] == pytest.approx(metrics.vote_error(votes, probs))


def test_two_columns_are_the_binary_audit(seven):
    y, p, votes = make()
    two = audit(y, np.column_stack([1 - p, p]), votes=np.column_stack([7 - votes, votes]))
    assert two["low"]["ece"] == pytest.approx(seven["low"]["ece"])


def test_compare_is_paired_and_signed():
    y, p, votes = make()
    a = audit(y, p, votes=votes, n_raters=7)
    same = compare_audits(a, a)
    assert (same.differences["difference"] == 0).all()
    assert (same.differences["p_value"] == 1).all()
    softer = audit(y, 0.25 + 0.5 * p, votes=votes, n_raters=7)
    table = compare_audits(a, softer).differences.set_index(["stratum", "metric"])
    row = table.loc[("overall", "nll")]
    assert row["difference"] == pytest.approx(softer["overall"]["nll"] - a["overall"]["nll"])
    assert row["low"] < row["difference"] < row["high"]
    with pytest.raises(InputError, match="different cases"):
        compare_audits(a, audit(y[:-1], p[:-1], votes=votes[:-1], n_raters=7))
    with pytest.raises(InputError, match="their labels differ"):
        compare_audits(
            a, audit(np.where(np.arange(len(y)) < 9, 1 - y, y), p, votes=votes, n_raters=7)
        )


def test_compare_interval_matches_a_plain_bootstrap():
    y, p, _ = make(300)
    a, b = audit(y, p), audit(y, 0.2 + 0.6 * p)
    row = compare_audits(a, b, n_resamples=4000).differences.set_index("metric").loc["ece"]
    rng = np.random.default_rng(5)
    drawn = []
    for _ in range(1500):
        i = rng.integers(300, size=300)
        drawn.append(metrics.ece(y[i], 0.2 + 0.6 * p[i]) - metrics.ece(y[i], p[i]))
    assert [row["low"], row["high"]] == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.012)


def test_groups_widen_intervals_when_residuals_go_together():
    rng = np.random.default_rng(1)
    effect = np.repeat(rng.normal(size=40), 15)
    p = sigmoid(rng.normal(size=600))
    y = (rng.random(600) < sigmoid(np.log(p / (1 - p)) + effect)).astype(int)
    alone = audit(y, p)["overall"]
    grouped = audit(y, p, groups=np.repeat(np.arange(40), 15))["overall"]
    assert grouped["n_groups"] == 40
    assert grouped["gap_high"] - grouped["gap_low"] > 1.3 * (alone["gap_high"] - alone["gap_low"])


def test_sums_give_back_the_metrics_after_dropping_a_unit():
    y, p, votes = make(80)
    counts = np.column_stack([7 - votes, votes])
    units = Units.of(80)
    sums = case_sums(y, p, counts, units=units)
    less = {k: (s.sum(axis=0) - s[3])[None] for k, s in sums.items()}
    keep = np.arange(80) != 3
    values = sum_values(less)
    assert values["ece"][0] == pytest.approx(metrics.ece(y[keep], p[keep]))
    assert values["nll"][0] == pytest.approx(metrics.nll(y[keep], p[keep]))
    assert values["auc"][0] == pytest.approx(metrics.auc(y[keep], p[keep]), abs=0.01)


def test_debiased_jackknife_matches_leaving_units_out_one_by_one():
    y, p, _ = make(90, seed=4)
    groups = np.arange(90) // 3
    cell = metrics.bin_index(p, binning="mass")

    def slow(keep):
        total, used = 0.0, 0
        for b in np.unique(cell):
            inside = np.flatnonzero(keep & (cell == b))
            pairs = [(i, j) for i in inside for j in inside if groups[i] != groups[j]]
            if pairs:
                r = p - y
                total += len(inside) * np.mean([r[i] * r[j] for i, j in pairs])
                used += len(inside)
        return total / used

    value, low, high = debiased_interval(y, p, units=Units.of(90, groups=groups))
    assert value == pytest.approx(slow(np.ones(90, bool)))
    without = np.array([slow(groups != g) for g in range(30)])
    spread = np.sqrt(29 / 30 * ((without - without.mean()) ** 2).sum())
    assert high - low == pytest.approx(2 * stats.t.ppf(0.975, 29) * spread)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probs": [0.2, 3.2]}, "Did you pass logits"),
        ({"probs": [0.2, np.nan]}, "finite, got NaN or infinity at row 1"),
        ({"y": [0, 2]}, "class numbers 0 .. 1, got 2 at row 1"),
        ({"probs": [0.2]}, "same number of cases"),
        ({"votes": [8, 1], "n_raters": 7}, "must not exceed n_raters"),
        ({"votes": [3, 1]}, "needs n_raters"),
        ({"groups": ["a", None]}, "missing at row 1"),
        ({"y": [], "probs": []}, "empty"),
        ({"n_bins": 0}, "at least 1"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {"y": [0, 1], "probs": [0.2, 0.8]} | change
    with pytest.raises(InputError, match=message):
        audit(**arguments)


def test_degenerate_inputs_have_defined_answers():
    one_class = audit([1, 1, 1], [0.5, 0.6, 0.9])
    assert np.isnan(one_class["overall"]["auc"])
    assert "One class only" in str(one_class)
    single = audit([1], [0.7])
    assert single["overall"]["ece"] == pytest.approx(0.3)
    certain = audit([0, 1], [0.0, 1.0])
    assert certain["overall"]["ece"] == 0.0
    assert json.loads(certain.to_json())


def test_plot_has_a_panel_per_filled_stratum(seven):
    figure = seven.plot()
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert any(text.startswith("low agreement, n = ") for text in texts)
    assert "3,500 votes, n = 500" in texts


@pytest.mark.validity
def test_debiased_interval_covers_zero_under_calibration():
    runs = 800 if SLOW else 150
    covered = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        p = rng.beta(0.7, 0.9, size=250)
        y = (rng.random(250) < p).astype(int)
        _, low, high = debiased_interval(y, p, units=Units.of(250))
        covered += low <= 0 <= high
    assert covered / runs > 0.95 - 3 * np.sqrt(0.05 * 0.95 / runs)


@pytest.mark.validity
def test_compare_interval_covers_the_true_difference():
    """True expected loss difference between two fixed models, known from the generating law."""
    runs = 400 if SLOW else 80
    covered = 0
    big = np.random.default_rng(99).normal(size=200_000) * 2
    truth = sigmoid(big)

    def loss(q):
        return -(truth * np.log(q) + (1 - truth) * np.log(1 - q)).mean()

    expected = loss(sigmoid(0.7 * big)) - loss(sigmoid(1.5 * big))
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=200) * 2
        y = (rng.random(200) < sigmoid(x)).astype(int)
        a = audit(y, sigmoid(1.5 * x), n_resamples=20)
        b = audit(y, sigmoid(0.7 * x), n_resamples=20)
        row = compare_audits(a, b, n_resamples=400).differences.set_index("metric").loc["nll"]
        covered += row["low"] <= expected <= row["high"]
    assert covered / runs > 0.95 - 3.5 * np.sqrt(0.05 * 0.95 / runs)


def test_the_interval_of_auc_stays_a_share():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    row = audit(y, np.clip(0.3 + 0.4 * y + rng.normal(0, 0.16, 60), 0, 1))["overall"]
    assert 0.97 < row["auc"] < 1
    assert row["auc_low"] < row["auc"] < row["auc_high"] <= 1


def test_three_classes_that_are_all_right_are_not_one_class():
    probs = np.random.default_rng(0).dirichlet([1, 1, 1], 90)
    said = str(audit(probs.argmax(axis=1), probs))
    assert "One class only" not in said
    assert "refer to the predicted class" in said


def test_sentences_claim_no_more_than_the_tests_bear():
    rng = np.random.default_rng(1)
    p = rng.uniform(0.05, 0.95, 200)
    y = (rng.random(200) < p).astype(int)
    strata = np.where(np.arange(200) % 2, "scanner A", "scanner B")
    said = str(audit(y, p, strata=strata))
    assert "No subset stands out" in said
    assert "on the stratum scanner" in said
    one_class = str(audit(np.ones(200, dtype=int), p, strata=strata))
    assert (
        "No subset of the cases can be judged" in one_class
    )  # for want of a second class, not of cases
