"""The paper regenerated, small: images in the published layouts, a real encoder, all the way to claims."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.datasets import simulate
from scalecal.experiments.cells import read_cell, write_cell
from scalecal.experiments.estimating import image_count
from scalecal.experiments.grid import features_of, run_grid
from scalecal.experiments.joining import ensemble, joined_cell
from scalecal.experiments.reproduction import SWEEP, judge_run, reproduce, train_cell
from scalecal.experiments.shifts import shift_cells, slides
from scalecal.experiments.sources import (
    PAPER_DATASETS,
    Source,
    SourceError,
    embedded,
    find_features,
    find_images,
)
from tests.datasets.trees import BREAKHIS_SLIDES, make_breakhis, make_mhist, make_pcam

METHODS = ["none", "temperature", "vanilla-ls", "scale", "scale-shuffled"]
runner = CliRunner()
pytestmark = pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning")


def source(name="simulated", encoder="a", n=220, dim=5, seed=0):
    data = features_of(simulate(n, dim=dim, auc=0.9, seed=seed), encoder=encoder)
    return Source(name, encoder, "simulated", lambda: data)


def quiet(_):
    pass


def test_seeds_are_kept_and_a_killed_run_goes_on(tmp_path):
    options = {"methods": METHODS, "preset": None, "sweep": False, "progress": quiet}
    whole, _, _ = train_cell(source(), tmp_path / "whole", seeds=[0, 1], **options)
    train_cell(source(), tmp_path / "cut", seeds=[0], **options)
    again, _, seconds = train_cell(source(), tmp_path / "cut", seeds=[0, 1], **options)
    assert seconds is not None
    for key, (index, probs) in whole.predictions.items():
        np.testing.assert_array_equal(again.predictions[key][0], index)
        np.testing.assert_array_equal(again.predictions[key][1], probs)
    for name in ("cases.parquet", "predictions.parquet"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    _, _, nothing_left = train_cell(source(), tmp_path / "cut", seeds=[0, 1], **options)
    assert nothing_left is None


def test_other_options_on_the_same_folder_are_refused(tmp_path):
    train_cell(source(), tmp_path, seeds=[0], methods=["none"], sweep=False, progress=quiet)
    with pytest.raises(InputError, match="was begun with methods"):
        train_cell(
            source(), tmp_path, seeds=[0], methods=["none", "scale"], sweep=False, progress=quiet
        )
    with pytest.raises(InputError, match="data_sha256"):
        train_cell(
            source(seed=9), tmp_path, seeds=[0], methods=["none"], sweep=False, progress=quiet
        )


def test_the_sweep_over_anchors_covers_three_smoothings(tmp_path):
    assert {name.partition("@K=")[2] for name in SWEEP} == {"5", "10", "20", "50", "100", "all"}
    cell, _, _ = train_cell(source(), tmp_path, seeds=[0], methods=["none"], progress=quiet)
    assert set(SWEEP) <= set(cell.methods)


def test_encoders_join_to_an_ensemble():
    cells = []
    for encoder in ("a", "b"):
        grid = run_grid(source(encoder=encoder).open(), methods=["none"], seeds=1, dataset="d")
        cells.append(grid.cell)
    joined = ensemble(cells)
    assert joined is not None
    assert joined.encoder == "ensemble"
    key = ("none", 0)
    parts = [c.predictions[key][1] for c in cells]
    np.testing.assert_allclose(joined.predictions[key][1], parts[0])  # the same twice
    assert ensemble(cells[:1]) is None


def test_shift_cells_train_on_one_kind_and_test_on_each():
    data = features_of(simulate(300, dim=4, auc=0.9, n_groups=60, seed=0))
    kind = np.array(["40X", "400X"] * 150)
    cells = shift_cells(
        data, kind, dataset="breakhis", encoder="e", methods=["none", "scale"], seeds=2
    )
    assert [c.shift for c in cells] == [(a, b) for a in ("40X", "400X") for b in ("40X", "400X")]
    for cell in cells:
        assert cell.shift is not None
        tested = {kind[int(np.flatnonzero(np.asarray(data.ids) == name)[0])] for name in cell.ids}
        assert tested == {cell.shift[1]}
    assert len(slides(cells[0])) == 8


def test_joined_seeds_keep_every_case_once():
    table = features_of(simulate(150, dim=3, seed=1))
    drawn = [run_grid(replace(table, split=None), methods=["none"], seeds=[s]).cell for s in (0, 1)]
    joined = joined_cell(drawn)
    assert len(np.unique(joined.ids)) == len(joined.ids)
    for seed, cell in enumerate(drawn):
        index, probs = joined.predictions["none", seed]
        np.testing.assert_array_equal(
            joined.ids[index], cell.ids[cell.predictions["none", seed][0]]
        )
        np.testing.assert_array_equal(probs, cell.predictions["none", seed][1])


def test_embedded_data_need_nothing(tmp_path):
    lidc = [s for s in embedded() if s.encoder == "geometry"]
    outcome = reproduce(
        lidc,
        tmp_path,
        seeds=[0, 1],
        methods=[*METHODS, "real-piecewise", "vote-fraction"],
        preset=None,
        sweep=False,
        progress=quiet,
    )
    claims = json.loads((tmp_path / "claims.json").read_text())
    assert claims == outcome.claims
    assert {"id", "claim", "paper", "measured", "n", "verdict", "reason"} <= set(claims[0])
    assert {c["verdict"] for c in claims} <= {"holds", "does not hold", "cannot be told"}
    results = pd.read_csv(tmp_path / "results.csv")
    assert {"dataset", "encoder", "method", "seed", "stratum", "metric", "value", "floor"} <= set(
        results
    )
    for name in ("replication", "audit", "main", "pairwise", "generalisation", "full", "anchors"):
        for kind in ("csv", "md", "tex"):
            assert (tmp_path / "tables" / f"{name}.{kind}").is_file()


def trees(root):
    make_mhist(root / "mhist", 80)
    make_pcam(root / "pcam", {"train": 24, "valid": 10, "test": 12})
    make_breakhis(root / "breakhis", slides=BREAKHIS_SLIDES, each=2)


def test_images_in_the_published_layouts_to_claims(tmp_path):
    """MHIST, PatchCamelyon and BreakHis trees, a real pretrained encoder, one command."""
    pytest.importorskip("efficientnet_lite_pytorch")
    trees(tmp_path / "data")
    out = tmp_path / "out"
    command = [
        *(
            "reproduce",
            "--data",
            tmp_path / "data",
            "--out",
            out,
            "--encoders",
            "efficientnet-lite0",
        ),
        *("--seeds", 1, "--methods", ",".join(METHODS), "--partial", "--no-sweep"),
    ]
    planned = runner.invoke(app, [str(c) for c in (*command, "--dry-run")])
    assert planned.exit_code == 0, planned.output
    assert "mhist/efficientnet-lite0" in planned.output
    assert not (out / "cells").exists()
    result = runner.invoke(app, [str(c) for c in command], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    for dataset in PAPER_DATASETS:
        cell = read_cell(out / "cells" / dataset / "efficientnet-lite0")
        assert {"none", "vanilla-ls", "scale"} <= set(cell.methods)
    assert read_cell(out / "cells" / "mhist" / "efficientnet-lite0").counts is not None
    assert (out / "report.html").stat().st_size > 10_000
    assert list((out / "cells" / "breakhis").glob("efficientnet-lite0@40X-400X"))
    assert "cannot be told" in result.output
    again = runner.invoke(
        app, ["reproduce", "--out", str(out), "--tables-only"], catch_exceptions=False
    )
    assert again.exit_code == 0
    found = {(s.dataset, s.encoder) for s in find_features(out / "features")}
    assert found == {(d, "efficientnet-lite0") for d in PAPER_DATASETS}


def test_what_is_missing_is_said(tmp_path):
    make_mhist(tmp_path / "mhist", 12)
    sources, why = find_images(tmp_path, PAPER_DATASETS, ["uni"], tmp_path / "f", partial_data=True)
    assert sources == []
    assert "accept the terms" in why["mhist/uni"]
    assert "no folder" in why["pcam"] or "camelyonpatch" in why["pcam"]
    with pytest.raises(InputError, match="nothing to reproduce"):
        reproduce([], tmp_path / "out", seeds=[0], left_out=why, progress=quiet)


def test_a_source_that_cannot_be_opened_is_left_out_and_said(tmp_path):
    def fail():
        raise SourceError("its weights cannot be had")

    bad = Source("simulated", "b", "nowhere", fail)
    options = {"methods": ["none"], "preset": None, "sweep": False, "progress": quiet}
    outcome = reproduce([bad, source()], tmp_path, seeds=[0], **options)
    assert outcome.left_out == {"simulated/b": "its weights cannot be had"}
    again = judge_run(tmp_path, progress=quiet)
    assert again.left_out == outcome.left_out  # also where nothing is trained
    with pytest.raises(InputError, match="nothing to reproduce: simulated/b: its weights"):
        reproduce([bad], tmp_path / "none", seeds=[0], **options)


def test_a_dry_run_neither_extracts_nor_guesses_the_images(tmp_path):
    make_mhist(tmp_path / "mhist", n=30)
    encoders = ["efficientnet-lite0", "ctranspath"]
    images = {"partial_data": True, "progress": quiet}
    found, out = find_images(tmp_path, ["mhist"], encoders, tmp_path / "f", **images)
    assert [s.encoder for s in found] == ["efficientnet-lite0"]
    assert "get them from https://github.com" in out["mhist/ctranspath"]
    begun = tmp_path / "f" / "mhist" / "efficientnet-lite0"
    begun.mkdir(parents=True)  # a killed extraction
    assert image_count(found[0]) == 30
    assert list(begun.iterdir()) == []


def test_cells_know_the_files_of_their_cases(tmp_path):
    data = source().open()
    paths = np.array([f"images/{name}.png" for name in data.ids])
    made = replace(data, paths=paths, images="folder/of/images")
    known = Source("simulated", "a", "simulated", lambda: made)
    cell, _, _ = train_cell(
        known, tmp_path, seeds=[0, 1], methods=["none"], sweep=False, progress=quiet
    )
    assert cell.paths.tolist() == [f"images/{name}.png" for name in cell.ids]
    assert read_cell(tmp_path).meta["dataset"]["data"] == "folder/of/images"


def test_what_is_judged_after_a_kill_is_what_was_judged_before(tmp_path):
    options = {"methods": ["none", "scale"], "preset": None, "sweep": False, "progress": quiet}
    whole = reproduce([source("mhist")], tmp_path, seeds=[0, 1], **options)
    resumed = reproduce([source("mhist")], tmp_path, seeds=[0, 1], **options)
    rebuilt = judge_run(tmp_path, progress=quiet)
    told = {c["id"]: c for c in whole.claims}
    assert told["premise-axis"]["n"] > 100
    assert resumed.claims == whole.claims
    assert rebuilt.claims == whole.claims


def test_a_fine_tuned_network_leaves_the_ensemble_of_encoders_alone(tmp_path):
    options = {"methods": ["none"], "preset": None, "sweep": False, "progress": quiet}
    sources = [source("mhist", "a"), source("mhist", "b", seed=0)]
    network, _, _ = train_cell(source("mhist", "resnet18"), tmp_path / "ft", seeds=[0], **options)
    renamed = {("resnet-hard", 0): network.predictions["none", 0]}
    write_cell(tmp_path / "net", replace(network, predictions=renamed))
    outcome = reproduce(sources, tmp_path / "r", seeds=[0], also=[tmp_path / "net"], **options)
    assert {c.encoder for c in outcome.evidence.cells} == {"a", "b", "resnet18", "ensemble"}
