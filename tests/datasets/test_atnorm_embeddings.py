"""The packaged embeddings of AtNorM-MD."""

from __future__ import annotations

import importlib.util
import zipfile
from importlib.resources import files
from pathlib import Path

import numpy as np
from PIL import Image

from scalecal.datasets import load_atnorm_md
from scalecal.datasets.catalogue import ATNORM_MD_COUNTS
from scalecal.votes import fleiss_kappa

SCRIPT = Path(__file__).parents[2] / "scripts/make_atnorm_md.py"
HOME = Path(str(files("scalecal.datasets") / "atnorm_md_data"))


def script():
    spec = importlib.util.spec_from_file_location("make_atnorm_md", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_figures_votes_and_labels_are_the_published_ones():
    data = load_atnorm_md()
    assert data.X.shape == (2107, 1280)
    assert data.X.dtype == np.float32
    assert np.isfinite(data.X).all()
    assert tuple(np.bincount(data.votes)) == ATNORM_MD_COUNTS
    assert (data.n_raters == 5).all()
    np.testing.assert_array_equal(data.y, data.votes >= 3)
    assert sorted(map(int, data.ids)) == list(range(1, 2108))
    assert round(fleiss_kappa(data.cases.votes), 2) == 0.41
    assert data.groups is None
    assert any("AtNorM-MD names no slides" in note for note in data.cases.notes)


def test_two_loads_are_the_same_and_independent():
    one, two = load_atnorm_md(), load_atnorm_md()
    assert one.fingerprint == two.fingerprint
    one.X[:] = 0
    assert two.X.any()


def test_thumbnails_are_small_and_have_an_owner():
    data = load_atnorm_md()
    named = {path for path in data.cases.paths if path}
    assert named == {file.name for file in (HOME / "thumbnails").iterdir()}
    for name in sorted(named)[:5]:
        with Image.open(Path(data.images) / name) as image:
            assert image.size == (64, 64)
    assert sum(file.stat().st_size for file in HOME.rglob("*")) < 8e6


def test_the_credit_goes_with_the_data():
    assert "MIT License" in (HOME / "LICENSE").read_text()
    credits = (HOME.parent / "CREDITS.md").read_text()
    for words in ("AMi-Br_Benchmark", "Banerjee", "2506.21444", "MIDOG++", "MIT", "EfficientNet"):
        assert words in credits


def test_the_script_sorts_by_number_and_repeats(tmp_path):
    made = script()
    rng = np.random.default_rng(0)
    source = {"X": rng.normal(size=(3, 4)), "votes": np.array([5, 0, 2]), "n_raters": np.full(3, 5)}
    np.savez(tmp_path / "in.npz", id=np.array(["10.png", "9.png", "1.png"]), **source)
    for name in ("a.npz", "b.npz"):
        assert made.make_embeddings(tmp_path / "in.npz", tmp_path / name) == 3
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with np.load(tmp_path / "a.npz") as packed:
        assert packed["id"].tolist() == ["1", "9", "10"]
        assert packed["votes"].tolist() == [2, 0, 5]
        np.testing.assert_array_equal(packed["X"], source["X"][[2, 1, 0]].astype(np.float16))
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        for name in ("1", "9", "10"):
            archive.writestr(f"{name}.jpg", name * 3)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "7.jpg").write_text("of an earlier run")
    assert made.make_thumbnails(tmp_path / "t.zip", tmp_path / "t", {"1", "10"}) == 9
    assert sorted(file.name for file in (tmp_path / "t").iterdir()) == ["1.jpg", "10.jpg"]
