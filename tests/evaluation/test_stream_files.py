"""Files audited in pieces give what the whole file gives."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from scalecal import audit
from scalecal.checks import InputError
from scalecal.evaluation.stream import stream_file
from scalecal.io import PredictionFile, read_predictions, tables
from tests.evaluation.test_stream_audits import assert_close, cases


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(tables, "BATCH_ROWS", 700)
    monkeypatch.setattr(tables, "BLOCK_BYTES", 1 << 15)


def write(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False, sep=";" if path.name.startswith("semi") else ",")
    return path


@pytest.mark.parametrize("name", ["p.csv", "semi.csv", "p.csv.gz", "p.parquet"])
def test_pieces_equal_the_whole(tmp_path, name):
    y, p, votes = cases(4000)
    frame = pd.DataFrame(
        {"id": np.arange(len(y)), "p": p, "label": y, "votes": votes, "n_raters": 7}
    )
    path = write(frame, tmp_path / name)
    seen = []
    streamed = stream_file(path, n_resamples=50, on_batch=seen.append)
    found = read_predictions(path)
    assert_close(streamed, audit(found.cases.y, found.p, votes=found.cases.votes, n_resamples=50))
    assert len(seen) > 2
    assert sum(seen) == len(y)
    assert streamed.meta["file"] == name


def test_named_classes_strata_and_missing_labels(tmp_path):
    y, p, _ = cases(3000)
    label = np.where(y == 1, "SSA", "HP").astype(object)
    label[::100] = None
    # The strata of a sorted file differ from piece to piece.
    stratum = np.sort(np.array(["site a", "site b", "site c"])[np.arange(len(y)) % 3])
    frame = pd.DataFrame({"score": p, "label": label, "stratum": stratum})
    path = write(frame, tmp_path / "p.csv")
    streamed = stream_file(path, columns={"p": "score"}, positive="SSA", n_resamples=50)
    kept = frame["label"].notna().to_numpy()
    assert_close(streamed, audit(y[kept], p[kept], strata=stratum[kept], n_resamples=50))
    assert "30 of 3,000 cases without a label were left out." in streamed.notes


def test_several_classes(tmp_path):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet([1.0, 1.0, 1.0], size=2000)
    y = np.array([rng.choice(3, p=row) for row in probs])
    frame = pd.DataFrame(probs, columns=["p_b", "p_a", "p_c"])
    frame["label"] = np.array(["b", "a", "c"])[y]
    streamed = stream_file(write(frame, tmp_path / "p.parquet"), n_resamples=20)
    assert streamed["overall"]["nll"] == pytest.approx(
        audit(y, probs, n_resamples=20)["overall"]["nll"], rel=1e-9
    )


def test_errors_are_plain(tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("p,label\n" + "0.5,1\n" * 9000 + "much,1\n")
    with pytest.raises(InputError, match=r"bad\.csv cannot be read .*'much'.*without --stream"):
        stream_file(bad)
    empty = tmp_path / "empty.csv"
    empty.write_text("p,label\n0.5,\n")
    with pytest.raises(InputError, match="no case with a label"):
        stream_file(empty)
    with pytest.raises(InputError, match="no file"):
        stream_file(tmp_path / "none.csv")
    bad.write_text("p,label\n2.5,1\n")
    with pytest.raises(InputError, match="Did you pass logits"):
        stream_file(bad)


def test_ids_are_named_but_not_used(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("case,p,label\n" + "a,0.5,1\nb,0.25,0\n" * 20)
    streamed = stream_file(path, columns={"id": "case"}, n_resamples=20)
    assert any(note.startswith("The ids in the file are not used") for note in streamed.notes)
    with pytest.raises(InputError, match="no column 'cas'"):
        stream_file(path, columns={"id": "cas"})


def test_notes_count_over_all_pieces(tmp_path):
    n = 4000
    frame = pd.DataFrame({"p_a": 0.251, "p_b": 0.75, "votes_a": np.arange(n) % 5, "votes_b": 2})
    frame.loc[0, "p_a"] = 0.255
    frame.loc[:1999, ["votes_a", "votes_b"]] = np.nan
    path = write(frame, tmp_path / "p.parquet")
    streamed, whole = (
        stream_file(path, ties="drop", n_resamples=20),
        read_predictions(path, ties="drop"),
    )
    assert "; in 400 they are tied and there is none." in " ".join(whole.cases.notes)
    assert "(off by up to 0.005)" in " ".join(whole.cases.notes)
    assert set(whole.cases.notes) <= set(streamed.notes)
    assert "2,400 of 4,000 cases without a label were left out." in streamed.notes
    assert streamed["overall"]["mean_p"] == pytest.approx(whole.p.mean())


def test_an_error_says_in_which_piece(tmp_path):
    frame = pd.DataFrame({"p": np.full(2000, 0.5), "label": 1})
    frame.loc[1500, "p"] = 1.5
    with pytest.raises(InputError, match=r"p\.parquet: .* got 1\.5 at row 1500"):
        stream_file(write(frame, tmp_path / "p.parquet"))


def test_an_error_names_the_line_of_the_file(tmp_path):
    frame = pd.DataFrame({"p": np.full(9000, 0.5), "label": 1})
    frame.loc[8500, "p"] = 1.5
    path = write(frame, tmp_path / "p.csv")
    assert path.read_text().splitlines()[8502 - 1].startswith("1.5")
    with pytest.raises(InputError, match=r"p\.csv: .* got 1\.5 at line 8502"):
        stream_file(path)


def test_classes_of_all_pieces_must_fit_together(tmp_path):
    frame = pd.DataFrame({"p": 0.5, "label": ["HP", "SSA"] * 1000 + ["SSA", "XX"] * 1000})
    path = write(frame, tmp_path / "p.parquet")
    with pytest.raises(InputError, match="3 classes"):
        stream_file(path, positive="SSA")
    with pytest.raises(InputError, match="3 classes"):
        read_predictions(path, positive="SSA")


def test_random_ties_are_drawn_as_in_the_whole_file(tmp_path):
    frame = pd.DataFrame({"p": np.linspace(0.1, 0.9, 3000), "votes": 1, "n_raters": 2})
    path = write(frame, tmp_path / "p.parquet")
    file = PredictionFile(path, ties="random", seed=3)
    drawn = np.concatenate([piece.cases.y for piece in file.pieces()])
    np.testing.assert_array_equal(drawn, read_predictions(path, ties="random", seed=3).cases.y)
    assert 0.4 < drawn.mean() < 0.6


def test_decimal_commas_in_pieces(tmp_path):
    y, p, _ = cases(2000)
    frame = pd.DataFrame({"p": p, "label": y})
    path = tmp_path / "p.csv"
    frame.to_csv(path, sep=";", decimal=",", index=False)
    whole = read_predictions(path)
    pieces = [piece.p for piece in PredictionFile(path).pieces()]
    assert len(pieces) > 1
    np.testing.assert_array_equal(np.concatenate(pieces), whole.p)


@pytest.mark.parametrize("labels", [("0.0", "1.0"), ("False", "True"), ("00", "01")])
def test_numbers_and_booleans_are_the_same_classes_in_pieces(tmp_path, labels):
    path = tmp_path / "p.csv"
    path.write_text("p,label\n0.2,{}\n0.9,{}\n0.5,\n".format(*labels))
    assert read_predictions(path).cases.y.tolist() == [0, 1]
    assert [len(piece) for piece in PredictionFile(path).pieces()] == [2]
