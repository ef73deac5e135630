from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from scalecal.checks import InputError
from scalecal.datasets import load_lidc
from scalecal.datasets.shipped import FEATURE_SETS

SCRIPT = Path(__file__).parents[2] / "scripts/make_lidc.py"


def load_script():
    spec = importlib.util.spec_from_file_location("make_lidc", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_four_readers_vote_as_published():
    data = load_lidc(panel=4, ties="rating")
    assert [int((data.votes == v).sum()) for v in range(5)] == [329, 208, 173, 135, 51]
    assert set(data.n_raters) == {4}
    tied = data.votes == 2
    assert data.y[tied].mean() == pytest.approx(0.87, abs=0.005)
    assert "held_out_vote" not in data.extra


def test_the_panel_and_the_fourth_reader_make_up_all_four():
    four, three = load_lidc(panel=4, ties="first"), load_lidc()
    assert (three.ids == four.ids).all()
    assert (three.votes + three.extra["held_out_vote"] == four.votes).all()
    whole = np.column_stack([three.extra["ratings"], three.extra["held_out_rating"]])
    assert (np.sort(whole, axis=1) == four.extra["ratings"]).all()
    assert (three.y == (three.votes >= 2)).all()
    assert set(three.n_raters) == {3}


def test_each_of_the_four_readers_is_held_out_as_often():
    share = load_lidc(panel=4, ties="first").votes / 4
    held = np.mean([load_lidc(seed=s).extra["held_out_vote"] for s in range(200)], axis=0)
    error = np.sqrt(np.maximum(share * (1 - share), 1e-12) / 200)
    assert np.abs((held - share) / error).max() < 4.5


def test_the_same_seed_gives_the_same_table():
    a, b, c = load_lidc(seed=1), load_lidc(seed=1), load_lidc(seed=2)
    assert a.X.tobytes() == b.X.tobytes()
    assert a.votes.tobytes() == b.votes.tobytes()
    assert (a.votes != c.votes).any()
    assert (a.X == c.X).all()


@pytest.mark.parametrize("features", FEATURE_SETS)
def test_every_feature_set_loads(features):
    data = load_lidc(features=features)
    assert data.X.shape == (896, len(FEATURE_SETS[features]))
    assert data.X.dtype == np.float64
    assert np.isfinite(data.X).all()
    assert len(set(data.cases.ids)) == 896


def test_geometry_is_the_logarithm_of_the_raw_columns():
    np.testing.assert_allclose(
        np.exp(load_lidc().X) * [1000, 100, 10, 10, 1],
        load_lidc(features="geometry-raw").X,
        rtol=1e-12,
    )


def test_geometry_tells_the_classes_apart():
    data = load_lidc()
    probe = make_pipeline(StandardScaler(), LogisticRegression())
    p = cross_val_predict(
        probe, data.X, data.y, groups=data.groups, cv=GroupKFold(5), method="predict_proba"
    )[:, 1]
    assert 0.88 < roc_auc_score(data.y, p) < 0.94
    # The fourth reader took no part in the label, and is predicted all the same.
    assert roc_auc_score(data.extra["held_out_vote"], p) > 0.75


def test_tie_rules():
    with pytest.raises(InputError, match="173 of 896 cases are tied"):
        load_lidc(panel=4)
    assert len(load_lidc(panel=4, ties="drop")) == 896 - 173
    first, last = load_lidc(panel=4, ties="first"), load_lidc(panel=4, ties="last")
    assert last.y.sum() - first.y.sum() == 173
    drawn = load_lidc(panel=4, ties="random").y
    assert first.y.sum() < drawn.sum() < last.y.sum()


@pytest.mark.parametrize("bad", [{"panel": 2}, {"features": "pixels"}, {"ties": "mean"}])
def test_unknown_choices_list_the_known(bad):
    with pytest.raises(InputError, match="must be one of"):
        load_lidc(**bad)


def test_the_script_makes_the_packaged_table(tmp_path):
    script = load_script()
    packed = gzip.decompress(script.PACKAGED.read_bytes()).decode().splitlines()
    head, body = packed[0], packed[1:]
    source = tmp_path / "nodules.csv"
    unwanted = body[0].split(",")
    unwanted[0], unwanted[-5:] = "other", ["1", "0", "0", "0", "0"]
    lines = [head + ",n_readers", ",".join(unwanted) + ",1", *(row + ",4" for row in body[::-1])]
    source.write_text("\n".join(lines) + "\n")
    target = tmp_path / "table.csv.gz"
    assert script.make_table(source, target) == 896
    assert gzip.decompress(target.read_bytes()).decode().splitlines() == packed
    again = tmp_path / "again.csv.gz"
    script.make_table(source, again)
    assert again.read_bytes() == target.read_bytes()


def test_the_script_refuses_a_table_without_its_columns(tmp_path):
    source = tmp_path / "nodules.csv"
    source.write_text("nodule_id,n_readers\na,4\n")
    with pytest.raises(SystemExit, match="lacks the columns"):
        load_script().make_table(source, tmp_path / "out.gz")
