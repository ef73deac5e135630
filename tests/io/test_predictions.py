from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalecal import audit
from scalecal.cases import Cases, Factor, Predictions
from scalecal.checks import InputError
from scalecal.evaluation.cells import predictions_table, write_table
from scalecal.io import PredictionFile, read_predictions, read_votes
from scalecal.io.features import read_features
from scalecal.votes import majority


@pytest.fixture
def read(tmp_path):
    def go(text: str, votes: str | None = None, **options) -> Predictions:
        path = tmp_path / "p.csv"
        path.write_text(text, encoding="utf-8")
        if votes is not None:
            options["votes"] = tmp_path / "v.csv"
            options["votes"].write_text(votes, encoding="utf-8")
        return read_predictions(path, **options)

    return go


def test_labels_groups_and_strata(read):
    found = read("id,p,label,group,stratum\n07,0.2,0,s2,easy\n7,0.9,1,s1,\n")
    assert list(found.cases.ids) == ["07", "7"]
    assert found.p.tolist() == [0.2, 0.9]
    assert found.cases.y.tolist() == [0, 1]
    assert found.cases.groups.values.tolist() == ["s2", "s1"]
    assert found.cases.strata.values.tolist() == ["easy", ""]
    assert found.cases.classes == ("0", "1")
    assert found.cases.votes is None
    assert found.cases.notes == ()
    assert list(found.sources) == ["p.csv"]


@pytest.mark.parametrize(
    "labels", [("0", "1"), ("False", "True"), ("false", "true"), ("0.0", "1.0")]
)
def test_ways_to_write_two_classes(read, labels):
    assert read("p,label\n0.1,{}\n0.2,{}\n".format(*labels)).cases.y.tolist() == [0, 1]


def test_no_id_column_is_fine(read):
    assert read("p,label\n0.1,1\n").cases.ids is None


def test_one_class_only_is_allowed(read):
    assert read("p,label\n0.1,1\n0.2,1\n").cases.y.tolist() == [1, 1]
    assert read("p,label\n0.1,HP\n", positive="SSA").cases.classes == ("HP", "SSA")


def test_names_of_classes(read):
    text = "id,p,label\na,0.2,HP\nb,0.9,SSA\n"
    assert read(text, positive="SSA").cases.y.tolist() == [0, 1]
    assert read(text, positive="HP").cases.y.tolist() == [1, 0]
    with pytest.raises(InputError, match="--positive"):
        read(text)
    with pytest.raises(InputError, match="positive class has 'SS', but"):
        read(text, positive="SS")


def test_columns_per_class(read):
    text = "id,p_HP,p_SSA,label\na,0.8,0.2,HP\nb,0.1,0.9,SSA\n"
    found = read(text)
    assert found.cases.classes == ("HP", "SSA")
    assert found.p.tolist() == [0.2, 0.9]
    turned = read(text, positive="HP")
    assert turned.p.tolist() == [0.8, 0.1]
    assert turned.cases.y.tolist() == [1, 0]
    three = read("id,p_2,p_10,p_1,label\na,0.5,0.25,0.25,1\nb,0.1,0.9,0,10\n")
    assert three.cases.classes == ("1", "2", "10")
    assert three.p.tolist() == [[0.25, 0.5, 0.25], [0.0, 0.1, 0.9]]
    assert three.cases.y.tolist() == [0, 2]


def test_majority_and_ties(read):
    text = "id,p,votes,n_raters\na,0.5,3,6\nb,0.5,6,7\nc,0.5,1,3\n"
    with pytest.raises(InputError, match="1 of 3 cases are tied"):
        read(text)
    assert read(text, ties="last").cases.y.tolist() == [1, 1, 0]
    assert "1 of them tied and given the last" in " ".join(read(text, ties="last").cases.notes)
    dropped = read(text, ties="drop")
    assert list(dropped.cases.ids) == ["b", "c"]
    assert dropped.cases.votes.tolist() == [[1, 6], [2, 1]]
    assert "1 of 3 cases without a label were left out." in dropped.cases.notes


def test_an_unknown_rule_for_ties_is_refused_without_votes_too(read):
    with pytest.raises(InputError, match=r"ties must be one of .*, got 'odd'"):
        read("p,label\n0.5,1\n0.2,0\n", ties="odd")


def test_dropped_ties_are_no_labels(read):
    text = "id,p,votes,n_raters\na,0.5,3,6\nb,0.5,6,7\nc,0.5,1,3\n"
    assert read(text, ties="drop").cases.notes == (
        "The label is the readers' majority in 2 of 3 cases; in 1 they are tied and there is none. "
        "Without tied cases (--ties drop) low agreement is rare or missing, and kappa and rho estimated from "
        "the votes are too high.",
        "1 of 3 cases without a label were left out.",
    )


def test_ties_in_another_file_are_named_by_id(tmp_path):
    (tmp_path / "p.csv").write_text("id,p\nx,0.5\ny,0.5\n")
    (tmp_path / "v.csv").write_text("id,rater,label\ny,1,0\ny,2,1\nx,1,0\n")
    with pytest.raises(InputError, match=r"v.csv: 1 of 2 cases are tied \(ids 'y'\). Choose"):
        read_predictions(tmp_path / "p.csv", votes=tmp_path / "v.csv")


def test_rounded_probabilities_are_divided_by_their_sum(read):
    found = read("p_a,p_b,p_c,label\n0.333,0.333,0.333,a\n0.5,0.25,0.25,b\n0.34,0.33,0.34,c\n")
    assert found.p.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    assert found.p[1].tolist() == [0.5, 0.25, 0.25]
    assert found.cases.notes == (
        "In 2 of 3 rows the probabilities did not sum to 1 (off by up to 0.01): divided by their sum.",
    )
    two = read("p_a,p_b,label\n0.201,0.8,a\n0.5,0.5,b\n")
    assert two.p == pytest.approx([0.8 / 1.001, 0.5], rel=1e-12)
    with pytest.raises(
        InputError, match=r"sum to 1, got 1\.02 at line 2\. If they were rounded, divide"
    ):
        read("p_a,p_b,label\n0.52,0.5,a\n")
    with pytest.raises(InputError, match=r"got 1\.005 at line 2"):
        read("p_a,p_b,label\n1.005,0,a\n")


def test_a_header_without_any_known_name_misses_the_probability(read):
    with pytest.raises(
        InputError, match=r"no column 'p' .*ID, Prob, Label.*--columns p=Prob "
    ) as caught:
        read("ID,Prob,Label\na,0.5,1\n")
    assert "{'p': 'Prob'}" in str(caught.value)
    with pytest.raises(InputError, match=r"no column 'label' .*--columns label=Label "):
        read("ID,Prob,Label\na,0.5,1\n", columns={"p": "Prob"})


def test_label_beside_votes(read):
    found = read("id,p,votes,n_raters,label\na,0.5,3,6,1\nb,0.5,6,7,0\nc,0.5,6,7,\nd,0.1,,,0\n")
    assert found.cases.y.tolist() == [1, 0, 1, 0]
    assert found.cases.votes.tolist() == [[3, 3], [1, 6], [1, 6], [0, 0]]
    assert found.cases.notes == (
        "In 1 of 4 cases the label is not the readers' majority.",
        "The votes are tied in 1 of 4 cases.",
        "The label is the readers' majority in 1 of 4 cases.",
    )


def test_number_of_readers_as_an_option(read):
    assert read("p,votes\n0.5,3\n", n_raters=7).cases.votes.tolist() == [[4, 3]]
    with pytest.raises(InputError, match="no column 'n_raters'"):
        read("p,votes\n0.5,3\n")
    with pytest.raises(InputError, match="must not be given"):
        read("p,votes,n_raters\n0.5,3,7\n", n_raters=7)


def test_long_votes(read):
    votes = "id,rater,label\nb,1,SSA\na,1,HP\na,2,SSA\na,3,HP\nb,2,\nz,1,HP\n"
    found = read("id,p\na,0.5\nb,0.5\nc,0.5\n", votes, positive="SSA")
    assert list(found.cases.ids) == ["a", "b"]
    assert found.cases.votes.tolist() == [[2, 1], [0, 1]]
    assert found.cases.classes == ("HP", "SSA")
    text = " ".join(found.cases.notes)
    assert "1 of 3 cases are not in v.csv ('c')." in text
    assert "1 of 3 cases in v.csv are not in p.csv ('z')" in text


def test_votes_per_class_in_another_order(read):
    votes = "id,votes_B,votes_A,votes_C\nb,0,1,2\na,3,0,0\n"
    text = "id,p_A,p_B,p_C,label\na,0.2,0.3,0.5,B\nb,0,0,1,C\nc,1,0,0,A\n"
    assert read(text, votes).cases.votes.tolist() == [[0, 3, 0], [1, 0, 2], [0, 0, 0]]


def test_column_names_by_role(read):
    votes = "case,reader,call\n1,x,1\n1,y,1\n"
    names = {"id": "case", "p": "score", "label": "truth", "rater": "reader"}
    with pytest.raises(InputError, match="no column 'label'"):
        read("case,score,truth\n1,0.5,0\n", votes, columns=names)
    votes = votes.replace("call", "label")
    found = read("case,score,truth\n1,0.5,0\n", votes, columns=names)
    assert found.cases.y.tolist() == [0]
    assert found.cases.votes.tolist() == [[0, 2]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id,p,lable\na,0.5,1\n", "no column 'label'.*Did you mean 'lable'"),
        ("id,Prob,label\na,0.5,1\n", "no column 'p'.*Columns found: id, Prob, label.*'Prob'"),
        ("id,y_prob,label\na,0.5,1\n", "no column 'p'.*Did you mean 'y_prob'.*--columns p=y_prob"),
        ("id,p,Target\na,0.5,1\n", "no column 'label'.*Did you mean 'Target'"),
        ("id,p,label\na,3,1\nb,97,1\n", "got 3 at lines 2, 3. Did you mean percent"),
        ("0.5,1\n0.25,0\n", "first line must be a header"),
        ("id,p,label\na,0.5,1\na,0.5,1\n", "must be unique.*'a' at lines 2, 3"),
        ("id,p,label\na,0.5,1\n,0.5,1\n", "'id' must name every case, missing at line 3"),
        ("id,p,label\na,0.5,1\nb,,1\n", "'p' is missing at line 3 .ids 'b'"),
        ("id,p,label\na,0.5,1\nb,nan,1\n", "'p' is missing at line 3"),
        ("id,p,label\na,0.5,1\nb,inf,1\n", "'p' must be finite.*line 3"),
        ("id,p,label\na,0.5,1\nb,high,1\n", "'p' must hold numbers, got 'high' at line 3"),
        ("id,p,label\na,0.5,1\nb,3.5,1\n", r"\[0, 1\], got 3.5 at line 3. Did you pass logits"),
        ("id,p,label\na,0.5,1\nb,-0.5,1\n", "got -0.5 at line 3"),
        ("id,p,label\na,0.5,1\nb,0.5,2\n", "'label' must hold '0', '1', got '2' at line 3"),
        ("id,p,label\na,0.5,1\nb,0.5,0.3\n", "got '0.3' at line 3"),
        ("id,p,label\na,0.5,\nb,0.5,\n", "no case has a label"),
        ("p,label\n0.5,a\n0.5,b\n0.5,c\n", "p_<class>"),
        ("p_a,p_b,label\n0.5,0.5,0\n", "but the classes are 'a', 'b'"),
        ("p_a,p_b,label\n0.5,0.4,a\n", "must sum to 1, got 0.9 at line 2"),
        ("p_a,label\n0.5,a\n", "the only column of probabilities"),
        ("p,votes,n_raters\n0.5,8,7\n", "'votes' must not exceed n_raters, got 8 of 7 at line 2"),
        ("p,votes,n_raters\n0.5,1.5,7\n", "whole numbers.*1.5 at line 2"),
        ("p,votes,n_raters\n0.5,-1,7\n", "got -1 at line 2"),
        ("p,votes,n_raters\n0.5,1,\n", "'n_raters' is empty.* at line 2"),
        ("p,votes_0,votes_1\n0.5,1,\n", "[Ww]rite 0 where nobody"),
        ("p,votes_0\n0.5,1\n", "one column per class .two or more"),
        ("p,votes,n_raters\n0.5,0,0\n", "no case has a label"),
        ("p,label,group\n0.5,1,\n0.5,1,a\n", "'group' is empty at line 2"),
        ("id,p\na,0.5\n", "no column 'label'"),
    ],
)
def test_bad_predictions_are_one_line(read, text, says):
    with pytest.raises(InputError, match=says) as caught:
        read(text)
    assert "\n" not in str(caught.value)
    assert "p.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("votes", "says"),
    [
        ("id,rater,label\nx,1,0\ny,1,0\n", "p.csv: no id is in v.csv: 'a', 'b' against 'x', 'y'"),
        ("id,rater,label\na,r,0\na,r,0\n", "reader r votes 2 times on case a"),
        ("id,rater,label\na,,0\n", "v.csv: column 'rater' is empty at line 2"),
        ("id,rater,label\na,1,HP\na,2,SSA\n", "4 classes"),
        ("id,who,label\na,1,0\n", "v.csv: no column 'rater'"),
        ("case,rater,label\na,1,0\n", "v.csv: no column 'id'"),
        ("id,votes,n_raters\na,1,2\na,1,2\n", "v.csv: column 'id' must be unique"),
    ],
)
def test_bad_votes_are_one_line(read, votes, says):
    with pytest.raises(InputError, match=says):
        read("id,p,label\na,0.5,0\nb,0.5,1\n", votes)


def test_groups_under_another_name_are_noted(read):
    found = read("id,p,label,patient\na,0.5,1,x\nb,0.4,0,x\n")
    assert found.cases.groups is None
    assert "'patient' could be it: --columns group=patient" in found.cases.notes[0]


def test_misnamed_columns(read):
    text = "id,prob,label\na,0.5,1\n"
    with pytest.raises(InputError, match=r"no column 'prb'.*Did you mean 'prob'"):
        read(text, columns={"p": "prb"})
    with pytest.raises(InputError, match=r"unknown column role 'q'. Known: id, p,"):
        read(text, columns={"q": "prob"})
    with pytest.raises(InputError, match=r"no column 'id'.*to join"):
        read("p,label\n0.5,1\n", "id,rater,label\na,1,0\n")
    with pytest.raises(InputError, match="n_raters was given"):
        read("p,label\n0.5,1\n", n_raters=3)


def test_numbers_as_ids_in_parquet_match_text(tmp_path):
    pd.DataFrame({"id": [12.0, 7.0], "p": [0.1, 0.9]}).to_parquet(tmp_path / "p.parquet")
    (tmp_path / "v.csv").write_text("id,votes,n_raters\n7,2,3\n12,0,3\n")
    found = read_predictions(tmp_path / "p.parquet", votes=tmp_path / "v.csv")
    assert list(found.cases.ids) == ["12", "7"]
    assert found.cases.votes.tolist() == [[3, 0], [1, 2]]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    n=st.integers(1, 30),
    n_classes=st.integers(2, 4),
    seed=st.integers(0, 2**32 - 1),
    separator=st.sampled_from([",", ";", "\t"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    parquet=st.booleans(),
)
def test_every_form_of_the_votes_gives_the_same_predictions(
    tmp_path, n, n_classes, seed, separator, encoding, parquet
):
    """One data set written with counts, and as rows of single votes shuffled: equal, and as drawn."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, size=(n, n_classes))
    counts[:, 0] += 1
    probs = rng.dirichlet(np.ones(n_classes), n)
    y = rng.integers(0, n_classes, n)
    y[0] = n_classes - 1
    ids = [f"{i:03d}" for i in rng.permutation(n)]
    frame = pd.DataFrame({"id": ids, "label": [f"c{c}" for c in y]})
    for c in range(n_classes):
        frame[f"p_c{c}"] = probs[:, c]
    wide = frame.assign(**{f"votes_c{c}": counts[:, c] for c in reversed(range(n_classes))})
    votes = [
        (case, f"r{k}", f"c{c}")
        for case, row in zip(ids, counts, strict=True)
        for k, c in enumerate(np.repeat(np.arange(n_classes), row))
    ]
    long = pd.DataFrame(votes, columns=["id", "rater", "label"]).sample(frac=1, random_state=0)

    def put(table: pd.DataFrame, name: str) -> Path:
        path = tmp_path / f"{name}.{'parquet' if parquet else 'csv'}"
        if parquet:
            table.to_parquet(path)
        else:
            decimal = "." if separator == "," else ","
            table.to_csv(path, sep=separator, decimal=decimal, encoding=encoding, index=False)
        return path

    one = read_predictions(put(wide, "wide"))
    two = read_predictions(put(frame, "p"), votes=put(long, "votes"))
    for found in (one, two):
        assert list(found.cases.ids) == ids
        np.testing.assert_array_equal(found.p, probs if n_classes > 2 else probs[:, 1])
        np.testing.assert_array_equal(found.cases.y, y)
        np.testing.assert_array_equal(found.cases.votes, counts)
    assert one.cases.notes == two.cases.notes


def test_read_votes_of_the_positive_class(tmp_path):
    (tmp_path / "v.csv").write_text("id,votes\na,1\nb,\n")
    panel = read_votes(tmp_path / "v.csv", n_raters=3)
    assert panel.classes == ()
    assert panel.votes.tolist() == [[2, 1], [0, 0]]


def test_cases_marked_train_are_told_of_and_can_be_left_out(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("id,p,label,split\na,0.2,0,train\nb,0.9,1,test\nc,0.4,0,test\n")
    everything = read_predictions(path)
    assert len(everything) == 3
    assert "1 of 3 cases are marked train" in " ".join(everything.cases.notes)
    found = read_predictions(path, split="test")
    assert list(found.cases.ids) == ["b", "c"]
    assert "Only the 2 of 3 cases marked test" in " ".join(found.cases.notes)
    with pytest.raises(InputError, match="no case is marked 'tset'"):
        read_predictions(path, split="tset")
    (tmp_path / "bare.csv").write_text("id,p,label\na,0.2,0\nb,0.9,1\n")
    with pytest.raises(InputError, match="'split'"):
        read_predictions(tmp_path / "bare.csv", split="test")


def test_a_readers_probability_is_no_class(read):
    found = read("p,p_reader,label\n0.2,0.3,0\n0.9,0.7,1\n")
    assert found.p.tolist() == [0.2, 0.9]
    assert found.p_reader.tolist() == [0.3, 0.7]
    assert found.take([1]).p_reader.tolist() == [0.7]
    assert read("p,label\n0.2,0\n").p_reader is None
    text = "p_b,p_a,p_reader_a,p_reader_b,label\n0.8,0.2,0.4,0.6,b\n0.1,0.9,0.7,0.3,a\n"
    two = read(text)
    assert two.cases.classes == ("b", "a")
    assert two.p.tolist() == [0.2, 0.9]
    assert two.p_reader.tolist() == [0.4, 0.7]
    three = read("p_a,p_b,p_c,p_reader_c,p_reader_b,p_reader_a,label\n1,0,0,0.5,0.25,0.25,a\n")
    assert three.p_reader.tolist() == [[0.25, 0.25, 0.5]]


def test_the_correlation_of_votes_is_one_number(read, tmp_path):
    assert read("p,label\n0.2,0\n").rho == 0.0
    found = read("p,p_reader,rho,label\n0.2,0.3,0.15,0\n0.9,0.7,0.15,1\n0.5,0.5,0.15,\n")
    assert (len(found), found.rho, found.take([1]).rho) == (2, 0.15, 0.15)
    named = read("p,icc,label\n0.2,0.4,0\n", columns={"rho": "icc"})
    assert named.rho == 0.4
    path = tmp_path / "long.csv"
    path.write_text("p,rho,label\n" + "0.5,0.2,1\n" * 300_000 + "0.5,0.1,1\n")
    file = PredictionFile(path)
    with pytest.raises(InputError, match=r"0\.2, got 0\.1 at line 300002"):
        list(file.pieces())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("p,rho,label\n0.2,0.1,0\n0.3,0.2,1\n", r"'rho' .* 0\.1, got 0\.2 at line 3"),
        ("p,rho,label\n0.2,0.1,0\n0.3,1,1\n", r"'rho' must lie in \[0, 0\.99\], got 1 at line 3"),
        ("p,rho,label\n0.2,-0.1,0\n", "'rho' must lie in .* at line 2"),
        ("p,rho,label\n0.2,0.1,0\n0.3,,1\n", "'rho' must lie in .* got nan at line 3"),
        ("p,p_reader,label\n0.2,1.5,0\n", "'p_reader' must lie in .*line 2"),
        ("p,p_reader,label\n0.2,,0\n", "'p_reader' is missing at line 2"),
        ("p,p_reader_a,p_reader_b,label\n0.2,0.5,0.5,0\n", "the same form"),
        ("p_a,p_b,p_reader,label\n0.5,0.5,0.5,a\n", "the same form"),
        ("p_reader,label\n0.5,1\n", "no column 'p'"),
    ],
)
def test_bad_probabilities_of_a_reader(read, text, says):
    with pytest.raises(InputError, match=says):
        read(text)


def test_cases_without_a_label_are_left_out_with_or_without_votes(read):
    alone = read("id,p,label\na,0.5,1\nb,0.5,\nc,0.1,0\n")
    voted = read("id,p,label,votes,n_raters\na,0.5,1,1,1\nb,0.5,,,\nc,0.1,0,0,1\n")
    for found in (alone, voted):
        assert list(found.cases.ids) == ["a", "c"]
        assert "1 of 3 cases without a label were left out." in found.cases.notes


def test_lines_of_text_rows_of_parquet(tmp_path):
    frame = pd.DataFrame({"id": ["a", "b", "c"], "p": [0.5, 0.5, 1.5], "label": [0, 1, 1]})
    frame.to_csv(tmp_path / "p.csv", index=False)
    frame.to_parquet(tmp_path / "p.parquet")
    assert (tmp_path / "p.csv").read_text().splitlines()[4 - 1].startswith("c,")
    with pytest.raises(InputError, match="at line 4"):
        read_predictions(tmp_path / "p.csv")
    with pytest.raises(InputError, match="at row 2"):
        read_predictions(tmp_path / "p.parquet")
    with pytest.raises(InputError, match="at row 2"):  # a reader leaves nothing behind
        audit([0, 1, 1], [0.5, 0.5, 1.5])


def test_a_tie_means_the_same_in_every_reader(tmp_path):
    """Where the votes are the label: an error with one message, or left out and noted."""
    (tmp_path / "p.csv").write_text("id,p,votes,n_raters\na,0.5,1,2\nb,0.5,2,2\nc,0.5,0,2\n")
    (tmp_path / "f.csv").write_text("id,f0,votes,n_raters\na,1,1,2\nb,2,2,2\nc,3,0,2\n")

    def in_pieces(**options):
        file = PredictionFile(tmp_path / "p.csv", **options)
        assert sum(map(len, file.pieces())) == 2
        return file

    readers = {
        "predictions": lambda **o: read_predictions(tmp_path / "p.csv", **o).cases,
        "pieces": in_pieces,
        "features": lambda **o: read_features(tmp_path / "f.csv", **o).labelled().cases,
    }
    message = r"1 of 3 cases are tied \(line 2\)\. Choose what a tie means: ties= \(--ties\)"
    for name, reader in readers.items():
        with pytest.raises(InputError, match=message):
            reader()
        dropped = reader(ties="drop")
        assert "in 1 they are tied and there is none." in " ".join(dropped.notes), name
        assert "1 of 3 cases without a label were left out." in dropped.notes, name
    with pytest.raises(InputError, match=message.replace("line 2", "row 0")):
        majority([1, 2, 0], 2)


def test_what_predict_writes_is_what_audit_reads(tmp_path):
    """Two and three classes, with and without a reader's probability, through CSV and Parquet."""
    rng = np.random.default_rng(0)
    for n_classes, suffix, reader in itertools.product((2, 3), (".csv", ".parquet"), (True, False)):
        classes = ("0", "1") if n_classes == 2 else ("b", "a", "c")
        p, q = rng.dirichlet(np.ones(n_classes), (2, 9))
        cases = Cases(
            n=9,
            classes=classes,
            ids=np.array([f"{i:03d}" for i in range(9)]),
            y=np.arange(9) % n_classes,
            votes=rng.integers(1, 5, (9, n_classes)),
            groups=Factor.of(["s10", "s2", "s1"] * 3),
            split=Factor.of(["test"] * 9),
        )
        if n_classes == 2:
            p, q = p[:, 1], q[:, 1]
        path = tmp_path / f"p{suffix}"
        write_table(predictions_table(Predictions.single(cases, p, q if reader else None)), path)
        found = read_predictions(path)
        np.testing.assert_array_equal(found.p, p)
        if reader:
            np.testing.assert_array_equal(found.p_reader, q)
        assert (found.p_reader is None) == (not reader)
        assert found.cases.classes == classes
        assert list(found.cases.ids) == cases.ids.tolist()
        for name in ("y", "votes"):
            np.testing.assert_array_equal(getattr(found.cases, name), getattr(cases, name))
        for name in ("groups", "split"):
            assert (
                getattr(found.cases, name).values.tolist() == getattr(cases, name).values.tolist()
            )


def test_predicted_difficulty_is_read_beside_p(read):
    found = read("p,p_split,label\n0.2,0.1,0\n0.9,0.4,\n0.6,0.7,1\n")
    assert found.only.p_split.tolist() == [0.1, 0.7]
    assert read("p,hard,label\n0.2,0.1,0\n", columns={"p_split": "hard"}).only.p_split == [0.1]
    assert read("p,label\n0.2,0\n").only.p_split is None
    with pytest.raises(InputError, match="'p_split'"):
        read("p,p_split,label\n0.2,1.5,0\n")
