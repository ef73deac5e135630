from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GroupShuffleSplit

from scalecal.checks import InputError, ScalecalWarning
from scalecal.datasets import load_lidc
from scalecal.splits import PARTS, hold_out, split

SHARES = (0.7, 0.1, 0.2)


def sizes(part):
    return np.array([(part == name).sum() for name in PARTS])


@st.composite
def labelled_groups(draw):
    """Two classes, each found in at least three groups: every class can be in every part."""
    seed = draw(st.integers(0, 2**32 - 1))
    n_groups = draw(st.integers(6, 30))
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), rng.integers(1, draw(st.integers(2, 12)), n_groups))
    y = rng.integers(0, 2, len(groups))
    first = np.searchsorted(groups, np.arange(6))
    y[first] = [0, 1, 0, 1, 0, 1]
    order = rng.permutation(len(y))
    return y[order], groups[order], seed


@given(labelled_groups())
@example(([1, 0, 1, 0, 0, 1, 1, 0, 0], [5, 2, 3, 2, 0, 2, 1, 4, 0], 25))
@settings(max_examples=60, deadline=None)
def test_grouped_split_keeps_its_promises(case):
    y, groups, seed = np.array(case[0]), np.array(case[1]), case[2]
    part = split(y, groups=groups, shares=SHARES, seed=seed)
    assert set(part) == set(PARTS)
    for group in np.unique(groups):
        assert len(set(part[groups == group])) == 1
    for name in PARTS:
        assert set(y[part == name]) == {0, 1}
    largest = np.bincount(groups).max()
    # Having both classes in a small part can cost a few groups.
    assert np.abs(sizes(part) - np.array(SHARES) * len(y)).max() <= 3 * largest
    assert (part == split(y, groups=groups, shares=SHARES, seed=seed)).all()


@given(labelled_groups())
@settings(max_examples=40, deadline=None)
def test_unstratified_groups_stay_within_the_largest_group(case):
    y, groups, seed = case
    part = split(y, groups=groups, shares=SHARES, seed=seed, stratify=False)
    for group in np.unique(groups):
        assert len(set(part[groups == group])) == 1
    assert np.abs(sizes(part) - np.array(SHARES) * len(y)).max() <= np.bincount(groups).max()


@given(
    st.lists(st.integers(0, 3), min_size=12, max_size=300),
    st.integers(0, 10**6),
    st.sampled_from([SHARES, (0.5, 0.25, 0.25), (0.8, 0.1, 0.1), (0.34, 0.33, 0.33)]),
)
@settings(max_examples=80, deadline=None)
def test_stratified_counts_are_the_targets_rounded(labels, seed, shares):
    y = np.repeat(labels, 3)
    part = split(y, seed=seed, shares=shares)
    assert (sizes(part) > 0).all()
    for c in np.unique(y):
        got = sizes(part[y == c])
        assert (got >= 1).all()
        # Off by rounding, and by the case or two a part of a rare class is granted.
        assert np.abs(got - np.array(shares) * (y == c).sum()).max() < 2.0
    assert np.abs(sizes(part) - np.array(shares) * len(y)).max() <= 1 + len(set(labels))


def test_exact_when_the_targets_are_whole():
    y = np.repeat([0, 1, 2], [100, 50, 20])
    part = split(y)
    assert [tuple(sizes(part[y == c])) for c in range(3)] == [(70, 10, 20), (35, 5, 10), (14, 2, 4)]


def test_every_case_is_as_likely_to_be_tested():
    y = np.repeat([0, 1], [30, 20])
    groups = np.repeat(np.arange(25), 2)
    for grouping in (None, groups):
        tested = np.mean([split(y, groups=grouping, seed=s) == "test" for s in range(400)], axis=0)
        assert np.abs(tested - 0.2).max() < 0.08  # four standard errors of a share of 400


def test_plain_random_split_ignores_the_classes():
    y = np.repeat([0, 1], 50)
    share = [y[split(y, seed=s, stratify=False) == "test"].mean() for s in range(300)]
    parts = split(y, stratify=False)
    assert tuple(sizes(parts)) == (70, 10, 20)
    # Hypergeometric: 20 of 100 without replacement.
    assert np.std(share) == pytest.approx(np.sqrt(0.25 / 20 * 80 / 99), rel=0.15)


def test_closer_to_the_classes_than_a_plain_group_split():
    data = load_lidc()

    def off(held):
        return abs(len(held) / len(data) - 0.2) + abs(data.y[held].mean() - data.y.mean())

    ours = [off(hold_out(data.y, share=0.2, groups=data.groups, seed=s)[1]) for s in range(10)]
    plain = GroupShuffleSplit(10, test_size=0.2, random_state=0).split(data.X, data.y, data.groups)
    assert max(ours) < min(0.01, np.mean([off(held) for _, held in plain]) / 4)


def test_hold_out_parts_the_rows():
    kept, held = hold_out(["a", "b"] * 10, share=0.1, seed=3)
    assert sorted([*kept, *held]) == list(range(20))
    assert len(held) == 2
    assert (np.diff(kept) > 0).all()


def test_an_empty_share_leaves_the_part_empty():
    part = split(np.repeat([0, 1], 10), shares=(0.8, 0.0, 0.2))
    assert tuple(sizes(part)) == (16, 0, 4)


def test_a_class_in_too_few_groups_warns_and_goes_to_the_largest_parts():
    y = np.array([0] * 20 + [1] * 2)
    with pytest.warns(ScalecalWarning, match="not every class is in val"):
        part = split(y)
    assert set(part[y == 1]) == {"train", "test"}
    groups = np.concatenate([np.arange(20), [20, 20]])
    with pytest.warns(ScalecalWarning, match="too few groups"):
        part = split(y, groups=groups)
    assert len(set(part[y == 1])) == 1


@pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning")
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=3, max_size=12))
@settings(max_examples=100, deadline=None)
def test_no_part_is_ever_empty(cases):
    groups, y = np.array(cases).T
    if len(set(groups)) < 3:
        groups = np.arange(len(groups))
    for stratify in (True, False):
        part = split(y, groups=groups, stratify=stratify)
        assert set(part) == set(PARTS)
        assert all(len(set(part[groups == g])) == 1 for g in groups)
        assert set(split(y, stratify=stratify)) == set(PARTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [0, 1]}, "2 cases cannot fill 3 parts"),
        ({"y": [0, 1, 0, 1], "groups": [1, 1, 2, 2]}, "2 groups cannot fill 3 parts"),
        ({"y": []}, "one class label per case"),
        ({"y": [0.0, np.nan, 1.0]}, "row 1"),
        ({"y": [0.0, 0.3, 1.0]}, "not soft ones"),
        ({"y": [0, 1, 1], "shares": (0.5, 0.5)}, "three numbers"),
        ({"y": [0, 1, 1], "shares": (0.5, 0.5, 0.5)}, "sum to 1"),
        ({"y": [0, 1, 1], "groups": [1, 2]}, "one value per case"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        split(arguments.pop("y"), **arguments)


def test_share_held_out_must_be_a_share():
    with pytest.raises(InputError, match="strictly between"):
        hold_out([0, 1], share=1.0)
