"""Several prediction files on their common cases: joined by id, contradictions refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from scalecal.checks import InputError
from scalecal.io import read_common_predictions, read_predictions

A = "id,p,label\nx,0.2,0\ny,0.9,1\nz,0.5,1\n"
B = "id,p\nz,0.6\nx,0.1\nw,0.3\n"


def by_file(paths, **options):
    """What is read, as the predictions of each file by its name."""
    both = read_common_predictions(paths, **options)
    return {name: both.of(name) for name in both.methods}


def put(folder, **files):
    paths = []
    for name, text in files.items():
        path = folder / f"{name}.csv"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        paths.append(path)
    return paths


def test_common_cases_in_the_order_of_the_first(tmp_path):
    found = by_file(put(tmp_path, a=A, b=B))
    assert {name: own.p.tolist() for name, own in found.items()} == {
        "a.csv": [0.2, 0.5],
        "b.csv": [0.1, 0.6],
    }
    for own in found.values():
        assert own.cases.names.tolist() == ["x", "z"]
        assert own.cases.y.tolist() == [0, 1]
        assert own.cases.notes[0] == (
            "2 cases are in every file, joined by id; the others were left out: 1 of 3 of a.csv, "
            "1 of 3 of b.csv."
        )
        assert set(own.sources) == {"a.csv", "b.csv"}


def test_agrees_with_reading_one_file_of_the_common_cases(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": rng.permutation(200), "p": rng.random(200)})
    frame["votes"], frame["n_raters"] = rng.integers(0, 6, 200), 5
    frame["group"] = frame["id"] % 7
    others = frame[["id"]].assign(p=rng.random(200), p_reader=rng.random(200), rho=0.2)
    frame.to_csv(tmp_path / "a.csv", index=False)
    others.sample(150, random_state=1).to_parquet(tmp_path / "b.parquet")
    both = by_file([tmp_path / "a.csv", tmp_path / "b.parquet"])
    a, b = both.values()
    whole = read_predictions(tmp_path / "a.csv")
    rows = [whole.cases.names.tolist().index(name) for name in a.cases.names]
    assert rows == sorted(rows)
    np.testing.assert_array_equal(a.p, whole.p[rows])
    for name in ("y", "votes", "group_codes"):
        np.testing.assert_array_equal(getattr(a.cases, name), getattr(whole.cases, name)[rows])
    expected = others.set_index("id").loc[a.cases.names.astype(int)]
    np.testing.assert_allclose(b.p, expected["p"])
    np.testing.assert_allclose(b.p_reader, expected["p_reader"])
    assert (a.p_reader, a.rho, b.rho) == (None, 0.0, 0.2)


@pytest.mark.parametrize(
    ("b", "message"),
    [
        (
            "id,p,label\nx,0.1,1\nz,0.2,1\n",
            "label of 'x' is '0' in one and '1' in the other .1 such",
        ),
        (
            "id,p\nu,0.1\nv,0.2\n",
            "no id is in all of a.csv, b.csv: a.csv has 'x', 'y', 'z'; b.csv has 'u', 'v'",
        ),
        ("p\n0.1\n0.2\n", r"b.csv: no column 'id' \(by which several files are joined\)"),
        ("id,p\nx,0.1\nx,0.2\n", "b.csv: column 'id' must be unique"),
        ("id,q\nx,0.1\n", "b.csv: no column 'p'"),
        ("id,p_A,p_B,p_C\nx,.2,.2,.6\n", "a.csv has one column p; .*3 classes"),
        ("id,p_A,p_B\nx,.2,.8\n", "a.csv: the classes are 'A', 'B': say which of them p"),
    ],
)
def test_what_cannot_be_set_side_by_side(tmp_path, b, message):
    with pytest.raises(InputError, match=message):
        by_file(put(tmp_path, a=A, b=b))


def test_what_several_files_say_must_be_the_same(tmp_path):
    votes = "id,p,votes,n_raters,group\nx,0.2,1,5,g1\ny,0.9,4,5,g2\n"
    same = votes.replace("0.2", "0.3")
    found = by_file(put(tmp_path, a=votes, b=same))
    assert found["b.csv"].cases.votes.tolist() == [[4, 1], [1, 4]]
    with pytest.raises(InputError, match="votes of 'y' is '4' in one and '3' in the other"):
        by_file(put(tmp_path, a=votes, b=same.replace("4,5", "3,5")))
    with pytest.raises(InputError, match="group of 'y' is 'g2' in one and 'g9' in the other"):
        by_file(put(tmp_path, a=votes, b=same.replace("g2", "g9")))


def test_labels_of_one_file_votes_of_another_groups_of_a_third(tmp_path):
    paths = put(
        tmp_path,
        a="id,p\nx,0.2\ny,0.9\n",
        b="id,p,votes_HP,votes_SSA\ny,0.8,1,4\nx,0.3,3,2\n",
        c="id,p,label,group\nx,0.1,SSA,g\ny,0.7,SSA,h\n",
    )
    for own in by_file(paths, positive="SSA").values():
        assert own.cases.classes == ("HP", "SSA")
        assert own.cases.y.tolist() == [1, 1]  # the label, though three of five voted against it
        assert own.cases.votes.tolist() == [[3, 2], [1, 4]]
        assert own.cases.groups.values.tolist() == ["g", "h"]


def test_votes_file_and_other_column_names(tmp_path):
    votes = tmp_path / "votes.csv"
    votes.write_text("id,rater,label\nx,r1,1\nx,r2,0\nx,r3,0\nz,r1,1\nz,r2,1\nz,r3,1\n")
    paths = put(tmp_path, a="case,p\nx,0.2\nz,0.4\n", b="id,score\nz,0.6\nx,0.1\n")
    found = by_file(paths, votes=votes, columns={"id": "case", "p": "score"})
    assert found["a.csv"].cases.y.tolist() == [0, 1]
    assert found["b.csv"].p.tolist() == [0.1, 0.6]
    with pytest.raises(InputError, match="no column 'nowhere'"):
        by_file(paths, votes=votes, columns={"id": "nowhere"})


def test_classes_are_matched_by_name(tmp_path):
    paths = put(
        tmp_path,
        a="id,p_A,p_B,p_C,label\nx,.2,.3,.5,C\ny,.6,.3,.1,A\n",
        b="id,p_C,p_A,p_B\ny,.7,.2,.1\nx,.5,.4,.1\n",
    )
    found = by_file(paths)
    assert found["a.csv"].cases.classes == ("A", "B", "C")
    np.testing.assert_allclose(found["b.csv"].p, [[0.4, 0.1, 0.5], [0.2, 0.1, 0.7]])


def test_names_of_files(tmp_path):
    paths = put(tmp_path, **{"run1/p": A, "run2/p": B, "q": B})
    assert list(by_file(paths)) == ["run1/p.csv", "run2/p.csv", "q.csv"]
    with pytest.raises(InputError, match="given twice"):
        by_file([paths[0], tmp_path / "run1" / ".." / "run1" / "p.csv"])


def test_groups_from_ids_and_a_split(tmp_path):
    paths = put(
        tmp_path,
        a="id,p,label,split\nP1_a,0.2,0,test\nP1_b,0.9,1,test\nP2_a,0.5,1,train\n",
        b="id,p\nP2_a,0.6\nP1_a,0.1\nP1_b,0.2\n",
    )
    found = by_file(paths, split="test", group_regex="^(P.)_")
    assert found["b.csv"].p.tolist() == [0.1, 0.2]
    assert found["b.csv"].cases.groups.values.tolist() == ["P1", "P1"]


def test_links_in_a_circle(tmp_path):
    (a,) = put(tmp_path, a=A)
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match=r"cannot read .*loop\.csv"):
        by_file([a, loop])
