"""Words claim no more than the tests bear, and the paragraphs never contradict the verdict."""

from __future__ import annotations

import os

import numpy as np
import pytest

from scalecal import audit, compare_audits
from scalecal.evaluation.words import answers, tally, verdict, vote_paragraph

SLOW = os.environ.get("SCALECAL_SLOW") == "1"


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def bent(bend, n=2000, seed=0, centre=0.0):
    """The audit of true logits z and the model's logits bend(z)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(centre, 1.5, n)
    y = (rng.random(n) < sigmoid(z)).astype(int)
    return audit(y, sigmoid(bend(z)), n_resamples=200)


@pytest.mark.parametrize("centre", [-2.0, 0.0, 2.0])
@pytest.mark.parametrize(
    ("bend", "heading", "headline"),
    [
        (
            lambda z: 2.0 * z,
            "No: over-confident",
            "Its probabilities are over-confident: on average",
        ),
        (
            lambda z: 0.5 * z,
            "No: under-confident",
            "Its probabilities are under-confident: on average",
        ),
        (lambda z: z - 1.5, "No: too low", "Its probabilities are too low: it expects"),
        (lambda z: z + 1.5, "No: too high", "Its probabilities are too high: it expects"),
    ],
)
def test_the_verdict_names_the_way_it_is_wrong(bend, heading, headline, centre):
    result = bent(bend, centre=centre)
    assert result.core["lead"][0]["heading"] == heading
    assert result.verdict["headline"].startswith(headline)
    row = result["overall"]
    if "over" in heading:
        assert row["overconfidence_low"] > 0
    if "under" in heading:
        assert row["overconfidence_high"] < 0


@pytest.mark.parametrize("seed", range(25))
def test_a_shift_on_few_cases_is_called_neither_over_nor_under_confident(seed):
    result = bent(lambda z: z - 1.5, n=250, seed=seed)
    assert result["overall"]["overconfidence"] > 0
    assert result.core["lead"][0]["heading"] == "No: too low"


def test_where_no_interval_tells_the_way_none_is_named():
    known = bent(lambda z: 2.0 * z).core["audits"]["model"]
    judged = known["judgement"] | {"kind": "", "subjects": []}
    answers = verdict(known | {"judgement": judged})
    assert answers["answers"][0]["heading"] == "No"
    assert answers["headline"].startswith("Its probabilities deviate from the labels")


@pytest.mark.parametrize("n", [1, 2, 12])
def test_a_handful_of_cases_has_no_verdict(n):
    rng = np.random.default_rng(n)
    votes = rng.integers(3, 5, n)
    result = audit(votes > 3, rng.uniform(0.1, 0.9, n), votes=votes, n_raters=7, n_resamples=20)
    assert result.verdict["badge"] == "inconclusive"
    assert "too few cases" in str(result).lower()


def test_of_several_classes_the_confidence_is_what_is_wrong():
    rng = np.random.default_rng(0)
    truth = rng.dirichlet([1.0, 0.8, 0.6], size=1500)
    y = np.array([rng.choice(3, p=each) for each in truth])
    sharp = truth**2.5 / (truth**2.5).sum(axis=1, keepdims=True)
    # Every probability of the top class is too high, whichever class it is: all slopes are below 1.
    made = audit(y, sharp, n_resamples=50)
    headline = made.verdict["headline"]
    assert "positive" not in headline
    assert headline.count("calibration slope 0.") == 3
    # Where no class is known to be wrong, the confidence is.
    known = made.core["audits"]["model"]
    judged = known["judgement"] | {"subjects": []}
    assert "confiden" in verdict(known | {"judgement": judged})["headline"]


def test_files_may_have_the_names_of_methods():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, size=600)
    y = (rng.random(600) < p).astype(int)
    audits = [audit(y, each, n_resamples=50) for each in (p**3, p)]
    both = compare_audits(*audits, names=["none", "vote-fraction"], n_resamples=200)
    assert "candidates." not in both.verdict["answers"][2]["text"]
    assert both.recommended["p"]["method"] == "vote-fraction"


def test_the_first_answer_on_several_models_is_their_badge():
    cells = []
    for p, badge in ((0.04, "attention"), (0.4, "good"), (0.5, "good")):
        judged = {"badge": badge, "p": p, "error": 0.01, "failing": []}
        row = {"method": "p", "stratum": "overall", "ece": 0.02, "floor": 0.01, "changes": {}}
        cell = {"name": f"{p}", "verdict": judged, "recommended": None, "rows": [row]}
        cells.append(cell | {"baseline": "p", "judged": "p"})
    found = tally(cells)
    assert found["badge"] == "inconclusive"
    assert answers(cells, found)[0]["heading"] == "Unclear for some"


def voted_audit(*, reader, n_raters=(7,), **change):
    """What facts hold of an audited method, with votes whose numbers are given."""
    votes = {"n_votes": 700, "vote_nll": 0.5, "vote_nll_floor": 0.49}
    ends = {"vote_excess": 0.01, "vote_excess_low": -0.02, "vote_excess_high": 0.04}
    gap = {"vote_gap": 0.001, "vote_gap_low": -0.02, "vote_gap_high": 0.02}
    judges = "p_reader" if reader else "p"
    meta = {"votes_judge": judges, "n_raters": list(n_raters)}
    # The verdict's own test decides whether an error is stated.
    p = change.pop("p_votes_holm", 0.5)
    part = {"kind": "votes", "name": "hard", "n": 100, "p": p, "failed": (p or 1.0) < 0.05}
    return {
        "rows": [votes | ends | gap | change],
        "meta": meta,
        "judgement": {"parts": [part]},
    }


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({}, "no miscalibration of p_reader is found (difference 0.010, 95 % interval -0.020 to"),
        ({"vote_excess_low": 0.002}, "no miscalibration of p_reader is found"),
        (
            {"vote_excess_low": 0.002, "p_votes_holm": 0.01},
            "p_reader is over-confident about single votes (difference 0.010",
        ),
        (
            {"vote_excess_high": -0.002, "p_votes_holm": 0.01},
            "p_reader is under-confident about single votes",
        ),
        (
            {"vote_gap_low": 0.0005, "p_votes_holm": 0.01},
            "p_reader is too high on average (mean less vote share 0.001",
        ),
        ({"vote_gap_high": -0.001, "p_votes_holm": 0.01}, "p_reader is too low on average"),
        (
            {"vote_excess_low": 0.002, "vote_gap_high": -0.001, "p_votes_holm": 0.01},
            "0.002 to 0.040); p_reader is too low on average",
        ),
        (
            {"vote_excess_low": 0.002, "p_votes_holm": 0.06},
            "no miscalibration of p_reader is found",
        ),
        ({"p_votes_holm": None}, "votes do not test p_reader here"),
        ({"p_votes_holm": 0.01}, "errors of opposite sign cancel over all cases (difference"),
    ],
)
def test_what_votes_say_of_a_readers_probability(change, kind):
    text = vote_paragraph(voted_audit(reader=True, **change))
    start = (
        "On the readers' 700 votes the vote NLL is 0.500; for votes drawn from these probabilities it "
        "would be 0.490: "
    )
    assert text.startswith(start)
    assert kind in text


@pytest.mark.parametrize(
    ("n_raters", "panel"),
    [([7], "of 7 readers"), ([0, 1, 3, 7], "of 3 to 7 readers"), ([1, 2], None), ([], None)],
)
def test_one_probability_cannot_be_right_for_a_vote_and_for_the_majority(n_raters, panel):
    text = vote_paragraph(voted_audit(reader=False, n_raters=n_raters))
    assert "for votes drawn from these probabilities it would be 0.490." in text
    if panel is None:
        assert "majority" not in text
    else:
        assert f"right for the majority {panel} is more extreme than one reader's" in text


@pytest.mark.validity
def test_right_probabilities_of_a_vote_are_seldom_blamed_and_never_twice_over():
    runs = 600 if SLOW else 60
    blamed = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        mu = rng.beta(1.2, 1.5, size=250)
        votes = rng.binomial(7, rng.beta(6 * mu, 6 * (1 - mu)))
        made = audit(votes > 3, mu, p_reader=mu, votes=votes, n_raters=7, n_resamples=20)
        # Sentence and verdict share one test, at one level.
        wrong = any(part["failed"] for part in made.core["audits"]["model"]["judgement"]["parts"])
        assert ("no miscalibration of p_reader" in str(made)) is not wrong
        blamed += wrong
    assert blamed / runs < 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
