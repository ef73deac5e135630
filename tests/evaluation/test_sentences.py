from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalecal.evaluation.sentences import lay_out, sentences, short_names
from scalecal.evaluation.verdict import verdict_text

from scalecal import audit

SLOW = os.environ.get("SCALECAL_SLOW") == "1"


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def overall(bend, n=2000, seed=0, centre=0.0):
    """Row and first sentence of an audit of true logits z and the model's logits bend(z)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(centre, 1.5, n)
    y = (rng.random(n) < sigmoid(z)).astype(int)
    result = audit(y, sigmoid(bend(z)), n_resamples=200)
    return result.rows[0], result.sentences[0]


@pytest.mark.parametrize("centre", [-2.0, 0.0, 2.0])
@pytest.mark.parametrize(
    ("bend", "kind"),
    [
        (lambda z: 2.0 * z, "mostly over-confident"),
        (lambda z: 0.5 * z, "mostly under-confident"),
        (lambda z: z - 1.5, "its probabilities mostly too low"),
        (lambda z: z + 1.5, "its probabilities mostly too high"),
    ],
)
def test_the_first_sentence_names_the_way_it_is_wrong(bend, kind, centre):
    row, said = overall(bend, centre=centre)
    assert f"it is miscalibrated, {kind} (p < 0.001" in said
    if "over" in kind:
        assert row["overconfidence_low"] > 0
    if "under" in kind:
        assert row["overconfidence_high"] < 0


@pytest.mark.parametrize("seed", range(25))
def test_a_shift_on_few_cases_is_called_neither_over_nor_under_confident(seed):
    row, said = overall(lambda z: z - 1.5, n=250, seed=seed)
    assert row["overconfidence"] > 0
    assert "mostly under-confident" not in said
    assert "mostly too low" in said


def test_where_no_interval_tells_it_is_only_miscalibrated():
    row, _ = overall(lambda z: 2.0 * z)
    unsure = {"overconfidence_low": -0.01, "gap_low": -0.02, "gap_high": 0.01}
    assert "it is miscalibrated (p < 0.001" in sentences([row | unsure], agreement=False)[0]


def test_p_is_the_smaller_of_two_doubled():
    row, said = overall(lambda z: 1.15 * z)
    p = min(1.0, 2 * min(row["p_cox"], row["p_consistency"]))
    assert f"(p = {p:.3f}, corrected for two tests)" in said


def judged_row(name, p, **change):
    """A stratum of predicted difficulty whose votes were tested."""
    means = {"vote_mean_p": 0.5, "vote_share": 0.48, "vote_confidence": 0.7, "vote_agreement": 0.6}
    return {"name": name, "n": 50, "p_votes_holm": p, "reason": ""} | means | change


@pytest.mark.parametrize(
    ("hard", "expected"),
    [
        ({}, "on hard cases (n = 50): 0.700 for the side it prefers, where readers give 0.600"),
        ({"vote_share": 0.3}, "0.500 for a positive vote, where readers give 0.300, p = 0.010."),
    ],
)
def test_votes_that_do_not_bear_out_a_stratum_of_predicted_difficulty(hard, expected):
    first, _ = overall(lambda z: z, n=100)
    tests = [judged_row("easy", 0.5), judged_row("hard", 0.01, **hard)]
    for reader, whose in ((True, "its probability of a reader's"), (False, "what its p implies")):
        said = sentences([first], tests, agreement=True, reader=reader)[1]
        assert said.startswith(f"By predicted difficulty, {whose}")
        assert expected in said
        assert "easy" not in said


def test_votes_that_bear_out_all_strata_say_what_is_not_tested():
    first, _ = overall(lambda z: z, n=100)
    tests = [judged_row("easy", 0.5), judged_row("middle", np.nan), judged_row("hard", 0.2)]
    said = sentences([first], tests, agreement=True)[1]
    assert "the votes bear out what its p implies for a reader's vote (smallest p = 0.200" in said
    assert said.endswith("difficulty that the model itself does not see is not tested.")
    foreseen = sentences([first], tests, agreement=True, foreseen=True)[1]
    assert foreseen.endswith("difficulty that p_split does not predict is not tested.")


def test_strata_of_agreement_are_spoken_of_where_votes_cannot_judge():
    """The null of a stratum speaks where strata are given, or votes give no verdict."""
    first, _ = overall(lambda z: z, n=100)
    low = {"name": "low", "n": 50, "ece": 0.1, "null": 0.1, "p_null_holm": 0.5}
    bad = [judged_row("hard", np.nan, reason="too few cases (3, at least 8 are needed)")]
    both = sentences([first, low], bad, agreement=True)
    assert both[1].startswith("No stratum is measurably worse")
    assert both[2].endswith("cannot be judged by votes: too few cases (3, at least 8 are needed).")
    good = [judged_row("hard", 0.5)]
    assert [s[:13] for s in sentences([first, low], good, agreement=True)[1:]] == ["By predicted "]
    assert len(sentences([first, low], good, agreement=False)) == 3


@pytest.mark.parametrize("n", [1, 2, 12])
def test_a_handful_of_cases_has_no_verdict_by_votes(n):
    rng = np.random.default_rng(n)
    votes = rng.integers(3, 5, n)
    result = audit(votes > 3, rng.uniform(0.1, 0.9, n), votes=votes, n_raters=7, n_resamples=20)
    assert "cannot be judged by votes: too few cases" in str(result)


def voted_row(**change):
    """A row of all cases with votes whose true probabilities are given."""
    first, _ = overall(lambda z: z, n=100)
    votes = {"n_votes": 700, "vote_nll": 0.5, "vote_nll_floor": 0.49}
    ends = {"vote_excess": 0.01, "vote_excess_low": -0.02, "vote_excess_high": 0.04}
    gap = {"vote_gap": 0.001, "vote_gap_low": -0.02, "vote_gap_high": 0.02}
    return first | votes | ends | gap | change


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({}, "the votes show no miscalibration of it (difference 0.010, 95 % interval -0.020 to"),
        ({"vote_excess_low": 0.002}, "it is too sure of how a reader votes (difference 0.010"),
        ({"vote_excess_high": -0.002}, "it is not sure enough of how a reader votes"),
        ({"vote_gap_low": 0.0005}, "on average it is too high (mean less share of votes 0.001"),
        ({"vote_gap_high": -0.001}, "on average it is too low"),
        (
            {"vote_excess_low": 0.002, "vote_gap_high": -0.001},
            "0.002 to 0.040); on average it is too low",
        ),
        ({"vote_excess_low": 0.002, "p_votes_holm": 0.01}, "it is too sure of how a reader votes"),
        (
            {"vote_excess_low": 0.002, "p_votes_holm": 0.06},
            "the votes show no miscalibration of it",
        ),
        ({"p_votes_holm": 0.01}, "its errors make up for each other over all cases (difference"),
    ],
)
def test_what_votes_say_of_a_readers_probability(change, kind):
    (_, said) = sentences([voted_row(**change)], agreement=True, reader=True, n_raters=[7])
    assert said.startswith("Against the readers' 700 votes, its probability of a reader's vote has")
    assert "a vote NLL of 0.500, where true vote probabilities would show 0.490: " in said
    assert kind in said


@pytest.mark.parametrize(
    ("n_raters", "panel"),
    [([7], "of 7 readers"), ([0, 1, 3, 7], "of 3 to 7 readers"), ([1, 2], None), ([], None)],
)
def test_one_probability_cannot_be_right_for_a_vote_and_for_the_majority(n_raters, panel):
    said = sentences([voted_row()], agreement=True, n_raters=n_raters)
    assert "the same probability has a vote NLL of 0.500, where it would show 0.490 if" in said[1]
    if panel is None:
        assert len(said) == 2
    else:
        assert f"right for the majority {panel} must be surer than one reader is" in said[2]


@pytest.mark.validity
def test_right_probabilities_of_a_vote_are_seldom_blamed_and_never_twice_over():
    runs = 600 if SLOW else 60
    blamed = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        mu = rng.beta(1.2, 1.5, size=250)
        votes = rng.binomial(7, rng.beta(6 * mu, 6 * (1 - mu)))
        made = audit(votes > 3, mu, p_reader=mu, votes=votes, n_raters=7, n_resamples=20)
        by_difficulty, by_votes = (
            str(made).split("By predicted difficulty, ")[1].split("Against the")
        )
        wrong = "not borne out" in by_difficulty
        assert ("show no miscalibration" in by_votes) is not wrong
        blamed += wrong
    assert blamed / runs < 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


CELLS = st.text("abc019.-", min_size=1, max_size=9)


@given(
    st.integers(1, 12).flatmap(
        lambda k: st.lists(st.lists(CELLS, min_size=k, max_size=k), min_size=2, max_size=5)
    ),
    st.integers(30, 100),
)
def test_tables_fit_and_lose_nothing(lines, width):
    text = lay_out(lines, width=width)
    assert all(len(line) <= width for line in text.splitlines())
    blocks = [block.splitlines() for block in text.split("\n\n")]
    columns: list[list[str]] = []
    for block in blocks:
        start = next(i for i, line in enumerate(block) if set(line) == {"-"} and i) + 1
        rows = [line.split() for line in block[start:]]
        columns += [list(c) for c in zip(*rows, strict=True)][bool(columns) :]
    assert columns == [list(c) for c in zip(*lines[1:], strict=True)]


def test_titles_take_one_line_where_there_is_room():
    lines = [["stratum", "vote NLL floor"], ["low", "0.1"]]
    assert lay_out(lines).splitlines()[0] == "stratum  vote NLL floor"
    assert lay_out(lines, width=16).splitlines()[:3] == [
        "          vote",
        "           NLL",
        "stratum  floor",
    ]


@given(st.lists(st.text("ab ", min_size=1, max_size=60), max_size=6))
def test_short_names_tell_as_many_apart(names):
    short = short_names(names)
    assert len(set(short)) == len(set(names))
    assert all(a == b for a, b in zip(short, names, strict=True) if len(b) <= 22)


def test_an_audit_of_long_strata_keeps_to_a_hundred_columns():
    rng = np.random.default_rng(0)
    chance = rng.beta(0.6, 0.8, size=3000)
    votes = rng.binomial(7, chance)
    y = (votes >= 4).astype(int)
    sites = [f"University Hospital of a Rather Long Name, building {i}" for i in range(3)]
    for strata in (None, np.array(sites)[rng.integers(0, 3, 3000)]):
        result = audit(y, chance, votes=votes, n_raters=7, strata=strata, n_resamples=20)
        tables = str(result).partition(verdict_text(result.verdict))[0]
        assert max(map(len, tables.splitlines())) <= 100
        for title in ("p(Cox)", "over-conf.", "acc.", "p(votes)"):
            assert title in tables
