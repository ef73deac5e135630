import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scalecal import votes as v
from scalecal.checks import InputError

counts_strategy = st.integers(2, 4).flatmap(
    lambda c: arrays(
        np.int64, st.tuples(st.integers(1, 12), st.just(c)), elements=st.integers(0, 5)
    )
)


def slow_stratum(a: int, m: int) -> str:
    if m < 2:
        return ""
    if 2 * a - m <= 1 or 7 * a <= 4 * m:
        return "low"
    return "high" if 7 * a >= 6 * m else "medium"


def test_strata_match_the_stated_panels():
    expected = {
        7: {4: "low", 5: "medium", 6: "high", 7: "high"},
        5: {3: "low", 4: "medium", 5: "high"},
        4: {2: "low", 3: "medium", 4: "high"},
        3: {2: "low", 3: "high"},
    }
    for m, by_agreement in expected.items():
        for a, name in by_agreement.items():
            assert v.strata([a], m).tolist() == [name]
            assert v.strata([m - a], m).tolist() == [name]


def test_one_reader_or_none_has_no_stratum():
    assert v.strata([[1, 0], [0, 0]]).tolist() == ["", ""]


@given(counts_strategy)
def test_strata_equal_a_scalar_reference(counts):
    expected = [slow_stratum(int(row.max()), int(row.sum())) for row in counts]
    assert v.strata(counts).tolist() == expected


@given(counts_strategy, st.randoms(use_true_random=False))
def test_long_form_and_counts_agree(counts, random):
    rows = [
        (f"case{i:02d}", f"r{j}", c)
        for i, row in enumerate(counts)
        for j, c in enumerate(itertools.chain.from_iterable([k] * n for k, n in enumerate(row)))
    ]
    if not rows:
        return
    random.shuffle(rows)
    found, cases, classes = v.from_long(*zip(*rows, strict=True))
    chosen = np.flatnonzero(counts.sum(axis=0))
    assert classes == tuple(chosen.tolist())
    voted = counts.sum(axis=1) > 0
    assert cases.tolist() == [f"case{i:02d}" for i in np.flatnonzero(voted)]
    np.testing.assert_array_equal(found, counts[voted][:, chosen])


def test_long_form_takes_missing_votes_and_refuses_double_ones():
    counts, _, classes = v.from_long(["a", "a", "b", "b"], [1, 2, 1, 2], ["x", None, "y", "x"])
    assert classes == ("x", "y")
    assert counts.tolist() == [[1, 0], [1, 1]]
    with pytest.raises(InputError, match="reader 1 votes 2 times on case a"):
        v.from_long(["a", "a"], [1, 1], [0, 1])
    with pytest.raises(InputError, match="empty"):
        v.from_long([], [], [])


def test_majority_policies():
    counts = [[2, 2], [3, 1], [0, 0]]
    assert v.majority(counts, ties="first").labels.tolist() == [0, 0, -1]
    assert v.majority(counts, ties="last").labels.tolist() == [1, 0, -1]
    assert v.majority(counts, ties="drop").labels.tolist() == [-1, 0, -1]
    assert v.majority(counts, ties="drop").tied.tolist() == [True, False, False]
    drawn = v.majority([[2, 2]] * 400, ties="random", seed=1).labels
    assert 150 < drawn.sum() < 250
    with pytest.raises(InputError, match="1 of 3 cases are tied"):
        v.majority(counts)
    with pytest.raises(InputError, match="ties must be one of"):
        v.majority(counts, ties="coin")


@pytest.mark.parametrize(
    ("votes", "n_raters", "message"),
    [
        ([8], 7, "must not exceed n_raters, got 8 of 7 at row 0"),
        ([-1], 7, "whole numbers"),
        ([1.5], 7, "whole numbers"),
        ([np.nan], 7, "finite"),
        ([3], None, "needs n_raters"),
        ([[1, 2]], 4, "add up to n_raters"),
    ],
)
def test_bad_votes_are_named(votes, n_raters, message):
    with pytest.raises(InputError, match=message):
        v.strata(votes, n_raters)


def slow_fleiss(counts):
    """Pairs of readers, one by one."""
    agree = []
    for row in counts:
        panel = [c for c, n in enumerate(row) for _ in range(n)]
        if len(panel) > 1:
            pairs = list(itertools.permutations(panel, 2))
            agree.append(sum(a == b for a, b in pairs) / len(pairs))
    used = np.array([row for row in counts if sum(row) > 1])
    chance = ((used.sum(0) / used.sum()) ** 2).sum()
    return (np.mean(agree) - chance) / (1 - chance)


def slow_alpha(counts):
    """The coincidence matrix, entry by entry."""
    c = len(counts[0])
    o = np.zeros((c, c))
    for row in counts:
        panel = [k for k, n in enumerate(row) for _ in range(n)]
        if len(panel) > 1:
            for a, b in itertools.permutations(panel, 2):
                o[a, b] += 1 / (len(panel) - 1)
    n_c, n = o.sum(1), o.sum()
    observed = o.sum() - np.trace(o)
    expected = (n * n - (n_c**2).sum()) / (n - 1)
    return 1 - observed / expected


def test_inter_reader_statistics_match_slow_references():
    rng = np.random.default_rng(3)
    for _ in range(20):
        counts = rng.integers(0, 4, size=(15, 3))
        assert v.fleiss_kappa(counts) == pytest.approx(slow_fleiss(counts.tolist()))
        assert v.krippendorff_alpha(counts) == pytest.approx(slow_alpha(counts.tolist()))


def test_inter_reader_statistics_limits():
    assert v.fleiss_kappa([[5, 0], [0, 5]]) == 1.0
    assert v.krippendorff_alpha([[5, 0], [0, 5]]) == 1.0
    assert np.isnan(v.fleiss_kappa([[5, 0], [5, 0]]))
    assert np.isnan(v.krippendorff_alpha([[5, 0], [5, 0]]))
    assert np.isnan(v.fleiss_kappa([[1, 0]]))
    rng = np.random.default_rng(0)
    chance = rng.multinomial(7, [0.5, 0.5], size=4000)
    assert abs(v.krippendorff_alpha(chance)) < 0.02


def test_labels_against_most_majorities_are_an_error():
    y = np.array([0, 1] * 10)
    right = np.column_stack([np.where(y == 0, 4, 1), np.where(y == 1, 4, 1)])
    v.check_sides(y, right)
    with pytest.raises(InputError, match=r"in 20 of 20 cases .* --positive NAME"):
        v.check_sides(y, right[:, ::-1])
    v.check_sides(y[:9], right[:9, ::-1])  # too few to tell
    half = np.where((np.arange(20) < 8)[:, None], right, right[:, ::-1])
    v.check_sides(y, half)
    v.check_sides(np.full(20, -1), right[:, ::-1])
    v.check_sides(np.full(20, np.nan), right[:, ::-1])
    v.check_sides(y, np.full((20, 2), 3))  # ties
    with pytest.raises(InputError, match="in 40 of 40"):
        v.check_sides(y[:4], right[:4, ::-1], sample_weight=np.full(4, 10.0))


def test_random_labels_of_several_classes_are_no_swap():
    rng = np.random.default_rng(0)
    votes = rng.multinomial(5, [0.25] * 4, size=300)
    v.check_sides(rng.integers(0, 4, 300), votes)
    votes = np.eye(4, dtype=int)[rng.integers(0, 4, 300)] * 5
    with pytest.raises(InputError, match="labels and votes are swapped"):
        v.check_sides((votes.argmax(axis=1) + 1) % 4, votes)
