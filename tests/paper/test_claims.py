"""Verdicts on cells whose truth is known by construction."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import bdtr, expit

from scalecal.cases import Cases
from scalecal.io.store import write_json
from scalecal.paper.claims import CLAIMS, claims_json, claims_table, judge
from scalecal.paper.decisions import low_over_high
from scalecal.paper.evidence import Evidence
from scalecal.paper.premise import Embeddings, check_axis, check_neighbours
from scalecal.paper.printed import FACTS
from scalecal.paper.verdicts import VERDICTS, Verdict, lower, lower_everywhere
from scalecal.runs.cells import Cell, Prediction
from scalecal.runs.scores import Contrast
from tests.runs.made import cell, sharp, votes

ENCODERS = ("uni", "plip")


def mixed(seen_part, hidden_part):
    """A model that knows a part of what the readers saw beyond the features."""
    return lambda seen, hidden, y, rng: seen_part * seen + hidden_part * hidden  # noqa: ARG005


def verdict(claim, evidence):
    return CLAIMS[claim].judge(evidence)


def evidence_of(methods, encoders=ENCODERS, **options):
    extra = {k: options.pop(k) for k in ("embeddings", "seconds") if k in options}
    cells = [cell(methods, encoder=e, **options) for e in encoders]
    return Evidence(cells, n_resamples=400, **extra)


def contrast(difference, half, *, p, n=500, reference=0.2, p_seeds=0.001, units=500):
    return Contrast(
        difference=difference,
        low=difference - half,
        high=difference + half,
        p_cases=p,
        p_seeds=p_seeds,
        value=reference + difference,
        reference=reference,
        n=n,
        units=units,
        n_seeds=10,
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (contrast(-0.05, 0.02, p=0.002), "holds"),
        (contrast(0.05, 0.02, p=0.002), "does not hold"),
        (contrast(0.0, 0.002, p=0.9), "does not hold"),  # nothing, and surely nothing
        (contrast(-0.001, 0.0005, p=0.002), "does not hold"),  # surely lower, by next to nothing
        (contrast(-0.05, 0.08, p=0.2), "inconclusive"),
        (contrast(-0.05, 0.02, p=0.002, p_seeds=0.3), "inconclusive"),  # unsteady over seeds
        (contrast(-0.05, 0.02, p=0.002, n=12), "inconclusive"),
        (contrast(-0.05, 0.02, p=0.002, units=4), "inconclusive"),
    ],
)
def test_the_rule_for_a_difference(found, expected):
    assert lower(found, "x").verdict == expected


def test_one_failing_encoder_fails_a_claim_on_all_of_them_and_is_named():
    good, bad = contrast(-0.05, 0.02, p=0.002), contrast(0.05, 0.02, p=0.002)
    assert lower_everywhere({"uni": good, "plip": good}, "x").verdict == "holds"
    found = lower_everywhere({"uni": good, "plip": bad}, "x")
    assert found.verdict == "does not hold"
    assert "PLIP" in found.reason
    assert "UNI" not in found.reason


def test_holm_over_encoders():
    borderline = contrast(-0.05, 0.049, p=0.03)
    assert lower_everywhere({"uni": borderline}, "x").verdict == "holds"
    eight = {str(k): borderline for k in range(8)}
    assert lower_everywhere(eight, "x").verdict == "inconclusive"


def test_a_method_that_truly_helps():
    found = evidence_of(
        {
            "none": sharp(2.6),
            "temperature": sharp(2.3),
            "vanilla-ls": sharp(2.1),
            "scale": mixed(0.3, 0.7),
        }
    )
    for claim in ("scale-below-none", "scale-below-temperature", "beats-softening-votes"):
        assert verdict(claim, found).verdict == "holds", verdict(claim, found)
    assert verdict("auc-preserved", found).verdict == "holds"


def test_a_method_that_does_nothing():
    found = evidence_of({"none": sharp(2.2), "scale": sharp(2.2), "real-piecewise": sharp(1.0)})
    for claim in ("scale-below-none", "scale-overall", "beats-softening-votes"):
        assert verdict(claim, found).verdict == "does not hold", verdict(claim, found)
    recovered = verdict("recovers-real", found)
    assert recovered.verdict == "does not hold"
    assert recovered.measured == "0 %"
    assert verdict("auc-preserved", found).verdict == "holds"
    assert verdict("accuracy-preserved", found).verdict == "holds"


def test_a_method_that_only_softens_does_not_beat_softening():
    found = evidence_of({"none": sharp(3.0), "scale": sharp(1.0)}, jitter=0.0)
    assert verdict("scale-below-none", found).verdict == "holds"
    for claim in ("beats-softening", "beats-softening-votes"):
        assert verdict(claim, found).verdict == "does not hold"


def test_a_method_that_ruins_the_ranking():
    def ruined(seen, hidden, y, rng):  # noqa: ARG001
        return 0.5 * seen + 2 * rng.normal(size=len(seen))

    found = evidence_of({"none": sharp(1.7), "scale": ruined})
    assert verdict("auc-preserved", found).verdict == "does not hold"
    assert verdict("accuracy-preserved", found).verdict == "does not hold"


def test_few_cases_decide_nothing():
    found = evidence_of({"none": sharp(2.6), "scale": sharp(1.0)}, n=60)
    for claim in ("scale-below-none", "low-above-high", "beats-softening"):
        one = verdict(claim, found)
        assert one.verdict == "inconclusive"
        assert one.n < 30


def test_where_real_agreement_gains_nothing_no_share_is_given():
    found = evidence_of(
        {"none": sharp(1.0), "scale": sharp(1.0), "real-piecewise": sharp(2.0)}, n=500
    )
    one = verdict("recovers-real", found)
    assert one.verdict == "inconclusive"
    assert "gains nothing" in one.reason


def test_generalisation_is_judged_encoder_by_encoder():
    def cells(encoder, factor):
        methods = {"none": sharp(3.0), "vanilla-ls": sharp(2.6), "scale": sharp(factor)}
        return cell(methods, n=3000, dataset="pcam", panel=False, encoder=encoder)

    both = Evidence([cells("uni", 1.4), cells("plip", 1.4)], n_resamples=400)
    assert verdict("pcam-ece", both).verdict == "holds"
    assert verdict("pcam-vanilla", both).verdict == "holds"
    one = Evidence([cells("uni", 1.4), cells("plip", 3.4)], n_resamples=400)
    found = verdict("pcam-vanilla", one)
    assert found.verdict == "does not hold"
    assert "fails for PLIP" in found.reason
    assert verdict("breakhis-ece", one).verdict == "inconclusive"


def test_a_plateau_and_a_slope():
    flat = {f"scale@K={k}": sharp(1.1) for k in (5, 10, 20, 50)}
    steep = {f"scale@K={k}": sharp(3.0 / (1 + i)) for i, k in enumerate((5, 10, 20, 50))}
    for methods, expected in ((flat, "holds"), (steep, "does not hold")):
        found = evidence_of({"none": sharp(2.2), **methods}, jitter=0.0)
        assert verdict("k-plateau", found).verdict == expected


def test_time_and_replication():
    methods = {"none": sharp(2.0), "scale": sharp(1.0)}
    quick = evidence_of(methods, n=100, seconds={("mhist", "uni"): 4.0})
    assert verdict("five-minutes", quick).verdict == "holds"
    slow = evidence_of(methods, n=100, seconds={("mhist", "uni"): 400.0})
    assert verdict("five-minutes", slow).verdict == "does not hold"
    assert verdict("five-minutes", evidence_of(methods, n=100)).verdict == "inconclusive"
    assert verdict("replication", quick).verdict == "inconclusive"
    tuned = Evidence([cell({"resnet-hard": sharp(9.0)}, encoder="resnet18")], n_resamples=50)
    assert verdict("replication", tuned).verdict == "does not hold"


def calibrated(seen, hidden, y, rng):  # noqa: ARG001
    """P(majority of seven | features) for the readers of `votes`, by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    chance = expit(seen[:, None] + nodes)
    p = (1 - bdtr(3, 7, chance)) @ (weights / weights.sum())
    return np.log(p) - np.log1p(-p)


@pytest.mark.validity
def test_a_calibrated_model_is_not_worse_than_selection_gives():
    """It looks worse on low agreement, beyond finite numbers, but rarely beyond selection."""
    noise, selection = 0, 0
    trials = 20
    for seed in range(trials):
        made = cell({"none": calibrated}, n=977, n_seeds=1, jitter=0.0, seed=seed)
        noise += low_over_high(made, "noise", n_resamples=200).p_value < 0.05
        selection += low_over_high(made, "selection", n_resamples=200).p_value < 0.05
    assert noise >= 0.8 * trials
    assert selection <= 0.2 * trials


def stratified(n_low, n_high, overconfidence, rng):
    """A cell whose logits are calibrated in the high stratum and too large in the low one."""
    z = rng.normal(0, 2, n_low + n_high)
    low = np.arange(len(z)) < n_low
    y = (rng.random(len(z)) < expit(np.where(low, z / overconfidence, z))).astype(np.int64)
    positive = np.where(low, 3 + y, 7 * y)
    rows = np.arange(len(z))
    cases = Cases(
        n=len(z), classes=("a", "b"), y=y, votes=np.column_stack([7 - positive, positive])
    )
    return Cell("made", "one", cases.stratified(), {("none", 0): Prediction(rows, expit(z))})


@pytest.mark.validity
@pytest.mark.parametrize(("n_low", "n_high", "times"), [(40, 100, 2.0), (90, 90, 1.35)])
def test_a_true_gap_is_seldom_refuted(n_low, n_high, times):
    """An estimate below the null's mean is no evidence against a gap."""
    rng = np.random.default_rng(0)
    trials = 60
    wrong = 0
    for _ in range(trials):
        found = Evidence([stratified(n_low, n_high, times, rng)], n_resamples=10)
        wrong += verdict("low-above-high", found).verdict == "does not hold"
    assert wrong <= 0.1 * trials  # 0.05, and two standard errors


def test_a_gap_is_refuted_where_the_data_exclude_one_that_matters():
    rng = np.random.default_rng(1)
    few, many = (Evidence([stratified(n, n, 1.0, rng)], n_resamples=10) for n in (60, 6000))
    assert verdict("low-above-high", few).verdict == "inconclusive"
    told = verdict("low-above-high", many)
    assert told.verdict == "does not hold"
    assert "a gap of 0.038, half the paper's smallest, is excluded" in told.reason


def test_an_overconfident_model_is_worse_than_selection_gives():
    found = evidence_of({"none": sharp(4.0)}, n=2000)
    assert verdict("low-above-high", found).verdict == "holds"
    assert verdict("beyond-selection", found).verdict == "holds"
    assert verdict("aggregate-hides", found).verdict == "holds"
    assert verdict("high-stays-low", found).verdict in VERDICTS


def test_few_cases_do_not_refute_a_bound_that_calibrated_models_miss_too():
    few = evidence_of({"none": sharp(1.7)}, n=200, n_seeds=1, encoders=("uni",))
    told = verdict("high-stays-low", few)
    assert float(told.measured.split()[0]) > 0.035
    assert told.verdict == "inconclusive"
    floor = few.mean("mhist", "uni", "none", "ece", "high", column="floor")
    assert f"floor {floor:.3f}" in told.reason  # the one of the tables
    assert verdict("high-stays-low", evidence_of({"none": sharp(0.2)}, n=900)).verdict == (
        "does not hold"
    )


def embedded(direction, seed=0, n=900):
    """Embeddings whose first axis is `direction(seen, y, rng)`; its extremes are the anchors."""
    seen, _, counts = votes(n, seed=seed, unexplained=0.3)
    y = (counts[:, 1] > 3).astype(np.int64)
    rng = np.random.default_rng([seed, 1])
    axis = direction(seen, y, rng)
    X = np.column_stack([axis, 0.1 * rng.normal(size=(n, 3))])
    order = np.argsort(axis)
    return Embeddings(X, y, counts, {0: order[:10], 1: order[-10:]})


def test_the_premise_holds_where_the_axis_is_difficulty():
    data = embedded(lambda seen, y, rng: seen)  # noqa: ARG005
    found = evidence_of(
        {"none": sharp(2.0)}, n=100, encoders=("uni",), embeddings={("mhist", "uni"): data}
    )
    assert verdict("premise-axis", found).verdict == "holds"
    assert verdict("premise-neighbours", found).verdict == "holds"


def test_the_premise_fails_where_the_axis_knows_the_label_alone():
    def label_only(seen, y, rng):  # noqa: ARG001
        return 4.0 * y + rng.normal(size=len(y))

    data = embedded(label_only, n=3000)
    axis = check_axis(data)
    assert axis.overall > 0.5  # the label's part
    assert abs(axis.within) < 0.06
    found = evidence_of(
        {"none": sharp(2.0)}, n=100, encoders=("uni",), embeddings={("mhist", "uni"): data}
    )
    assert verdict("premise-axis", found).verdict == "does not hold"
    near = check_neighbours(data)
    flat = embedded(lambda seen, y, rng: rng.normal(size=len(y)))  # noqa: ARG005
    none = check_neighbours(flat)
    assert near.slope > 0.5 > none.high
    # Between two clusters there are clear cases of both kinds, no hard ones.
    hard = check_neighbours(embedded(lambda seen, y, rng: seen))  # noqa: ARG005
    assert hard.disagreement[3] > near.disagreement[3] + 0.1


def test_axis_correlation_against_scipy():
    from scipy.stats import spearmanr

    data = embedded(lambda seen, y, rng: seen + rng.normal(size=len(y)))
    found = check_axis(data, n_resamples=20)
    kept = np.ones(len(data.y), dtype=bool)
    kept[np.concatenate([data.anchors[0], data.anchors[1]])] = False
    way = data.X[data.anchors[1]].mean(axis=0) - data.X[data.anchors[0]].mean(axis=0)
    reference = spearmanr((data.X @ way)[kept], data.counts[kept, 1]).statistic
    assert found.overall == pytest.approx(reference)


def test_facts_contradict_the_paper_whatever_the_data():
    found = judge(Evidence([]))
    for one in FACTS:
        assert found[one.id].verdict == "does not hold"
        assert found[one.id].measured == one.public != one.paper
    assert "627 / 186 / 164" in found["fact-strata"].measured


def test_every_claim_has_a_verdict_with_n_and_reason_whatever_is_missing(tmp_path):
    partial = evidence_of({"none": sharp(2.0), "scale": sharp(1.2)}, n=120, n_seeds=1)
    for evidence in (Evidence([]), partial):
        listed = claims_json(judge(evidence))
        assert [one["id"] for one in listed] == list(CLAIMS)
        for one in listed:
            assert list(one) == ["id", "claim", "paper", "measured", "n", "verdict", "reason"]
            assert one["verdict"] in VERDICTS
            assert one["reason"]
            assert isinstance(one["n"], int)
        write_json(tmp_path / "claims.json", listed)
        assert json.loads((tmp_path / "claims.json").read_text()) == listed
        text = claims_table(listed)
        assert max(map(len, text.splitlines())) <= 100
    decided = [one for one in claims_json(judge(Evidence([]))) if "fact" not in one["id"]]
    assert {one["verdict"] for one in decided} == {"inconclusive"}


def test_the_table_wraps_long_words_and_counts_verdicts():
    found = {name: Verdict("x" * 60, 10**6, "holds", "because") for name in CLAIMS}
    text = claims_table(claims_json(found))
    assert max(map(len, text.splitlines())) <= 100
    assert f"holds {len(CLAIMS)}" in text
