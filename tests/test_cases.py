"""The records: a column is never cut without the others, nor a code parted from its name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalecal.cases import Cases, Factor, Features, Predictions, _columns
from scalecal.checks import InputError

NAMES = st.one_of(
    st.none(),
    st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=3),
    st.integers(0, 20),
)


def everything(n: int) -> Cases:
    rows = np.arange(n)
    return Cases(
        n=n,
        classes=("no", "yes"),
        ids=np.array([f"case {i}" for i in rows]),
        y=np.where(rows % 3 == 2, -1, rows % 2),
        votes=np.column_stack([7 - rows % 8, rows % 8]),
        n_raters=np.full(n, 7),
        groups=Factor.of([f"patient {i // 3}" for i in rows]),
        strata=Factor.of([["easy", "hard", ""][i % 3] for i in rows]),
        split=Factor.of([["train", "test"][i % 2] for i in rows]),
        paths=np.array([f"{i}.png" for i in rows]),
    )


@given(st.lists(NAMES, min_size=1, max_size=30), st.data())
def test_a_factor_keeps_its_names_however_it_is_cut(values, data):
    factor = Factor.of(np.array(values, dtype=object))
    written = ["" if value is None else str(value) for value in values]
    assert factor.values.tolist() == written
    assert list(factor.names) == sorted({name for name in written if name})
    rows = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=20)), dtype=int)
    part = factor.take(rows)
    assert part.values.tolist() == [written[i] for i in rows]


@pytest.mark.parametrize(
    "rows", [np.array([7, 2, 2]), np.arange(10) % 2 == 0, slice(3, 8, 2), np.zeros(0, dtype=int)]
)
def test_every_column_is_cut_alike(rows):
    cases = everything(10)
    index = np.arange(10)[rows]
    part = cases.take(rows)
    assert part.n == len(index)
    assert part.classes == cases.classes
    for name, values in _columns(cases).items():
        cut = getattr(part, name)
        if isinstance(values, Factor):
            cut, values = cut.values, values.values
        np.testing.assert_array_equal(cut, values[index], err_msg=name)
    p, X = np.linspace(0, 1, 10), np.eye(10)
    predictions = replace(
        Predictions.single(cases, p, 1 - p, rho=0.2), sources={"p.csv": "0" * 64}
    ).take(rows)
    np.testing.assert_array_equal(predictions.p, p[index])
    np.testing.assert_array_equal(predictions.p_reader, 1 - p[index])
    assert predictions.rho == 0.2
    assert predictions.sources == {"p.csv": "0" * 64}
    features = Features(X, cases, extra={"size": p}).take(rows)
    np.testing.assert_array_equal(features.X, X[index])
    np.testing.assert_array_equal(features.extra["size"], p[index])
    np.testing.assert_array_equal(features.cases.names, cases.names[index])


def test_cases_without_a_label_are_left_out_of_all_records():
    cases = everything(10)
    kept = cases.y >= 0
    left = [
        cases.labelled(),
        Predictions.single(cases, np.full(10, 0.5)).labelled().cases,
        Features(np.eye(10), cases).labelled().cases,
    ]
    for part in left:
        assert part.names.tolist() == cases.names[kept].tolist()
        assert part.notes == ("3 of 10 cases without a label were left out.",)
        assert part.labelled() is part
    with pytest.raises(InputError, match="no case has a label"):
        Cases(n=1, y=np.array([-1])).labelled()
    with pytest.raises(InputError, match="--labels"):
        Cases(n=1).labelled()


def test_columns_of_another_length_are_refused():
    with pytest.raises(InputError, match="y has 2 rows"):
        Cases(n=3, y=np.zeros(2, dtype=int))
    with pytest.raises(InputError, match="p has 2 rows"):
        Predictions.single(Cases(n=3), np.zeros(2))
    with pytest.raises(InputError, match="X has 2 rows"):
        Features(np.eye(2), Cases(n=3))


def test_votes_of_features_go_with_their_number_of_readers():
    two = Features(np.eye(4), Cases(n=4, votes=np.array([[3, 4], [7, 0], [0, 7], [5, 2]])))
    assert two.votes.tolist() == [4, 0, 7, 2]
    assert two.n_raters.tolist() == [7, 7, 7, 7]
    three = Features(np.eye(1), Cases(n=1, votes=np.array([[1, 2, 3]])))
    assert three.votes.tolist() == [[1, 2, 3]]
    alone = Features(np.eye(1), Cases(n=1, n_raters=np.array([3])))
    assert (alone.votes, alone.n_raters.tolist()) == (None, [3])


def test_cases_without_ids_keep_their_row_numbers():
    cases = Cases(n=12, y=np.zeros(12, dtype=np.int64))
    part = cases.take(np.array([11, 3, 7]))
    assert part.names.tolist() == ["11", "3", "7"]
    assert part.take(slice(1, None)).names.tolist() == ["3", "7"]


def test_a_case_without_readers_has_the_usual_number():
    votes = np.array([[0, 3], [0, 0], [2, 3], [4, 1]])
    cases = Cases(n=4, classes=("a", "b"), votes=votes)
    assert cases.usual_readers == 5
    assert cases.panel_sizes(cases.usual_readers).tolist() == [3, 5, 5, 5]
    alone = Cases(n=2, classes=("a", "b"))
    assert alone.usual_readers is None
    assert alone.panel_sizes(None) is None
    assert alone.panel_sizes(7).tolist() == [7, 7]
    assert Cases(n=1, classes=("a", "b"), votes=votes[1:2]).usual_readers is None
