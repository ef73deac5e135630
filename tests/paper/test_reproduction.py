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
from scalecal.evaluation.cells import joined_cell, read_cell, write_cell
from scalecal.paper.evidence import contradiction
from scalecal.paper.reproduction import (
    PAPER_DATASETS,
    SWEEP,
    Source,
    SourceError,
    Training,
    asked_for,
    embedded,
    find_features,
    find_images,
    judge_run,
    reproduce,
    skipped_images,
    train_cell,
)
from scalecal.runs.grid import run_grid
from tests.datasets.trees import BREAKHIS_SLIDES, make_breakhis, make_mhist, make_pcam
from tests.evaluation.made import cell as made_cell
from tests.evaluation.made import sharp

METHODS = ["none", "temperature", "vanilla-ls", "scale", "scale-shuffled"]
runner = CliRunner()
pytestmark = [
    pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning"),
    pytest.mark.usefixtures("brief_training"),
]


def source(name="simulated", encoder="a", n=220, dim=5, seed=0):
    data = replace(simulate(n, dim=dim, auc=0.9, seed=seed), encoder=encoder)
    return Source(name, encoder, "simulated", lambda: data)


def quiet(_):
    pass


def train(source, folder, *, progress=quiet, **training):
    return train_cell(source, folder, Training(**training), progress=progress)


def run(sources, out, *, left_out=None, also=(), progress=quiet, **training):
    options = {"left_out": left_out, "also": also, "progress": progress}
    return reproduce(sources, out, Training(**training), **options)


def test_seeds_are_kept_and_a_killed_run_goes_on(tmp_path):
    options = {"methods": METHODS, "preset": "default", "sweep": False, "progress": quiet}
    whole = train(source(), tmp_path / "whole", seeds=[0, 1], **options)
    train(source(), tmp_path / "cut", seeds=[0], **options)
    again = train(source(), tmp_path / "cut", seeds=[0, 1], **options)
    for key, part in whole.answers.items():
        np.testing.assert_array_equal(again.answers[key].rows, part.rows)
        np.testing.assert_array_equal(again.answers[key].p, part.p)
    for name in ("cases.parquet", "predictions.parquet"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    said = []
    train(source(), tmp_path / "cut", seeds=[0, 1], **{**options, "progress": said.append})
    assert said == []  # nothing was left to train


def test_other_options_on_the_same_folder_are_refused(tmp_path):
    train(source(), tmp_path, seeds=[0], methods=["none"], sweep=False, progress=quiet)
    with pytest.raises(InputError, match="was started with methods"):
        train(source(), tmp_path, seeds=[0], methods=["none", "scale"], sweep=False, progress=quiet)
    with pytest.raises(InputError, match="preset = not given, now it is default"):
        train(*(source(), tmp_path), seeds=[0], methods=["none"], preset="default", progress=quiet)
    with pytest.raises(InputError, match="data_sha256"):
        train(source(seed=9), tmp_path, seeds=[0], methods=["none"], sweep=False, progress=quiet)


def test_the_sweep_over_anchors_covers_three_smoothings(tmp_path):
    assert {name.partition("@K=")[2] for name in SWEEP} == {"5", "10", "20", "50", "100", "all"}
    cell = train(source(), tmp_path, seeds=[0], methods=["none"], progress=quiet)
    assert set(SWEEP) <= set(cell.methods)


def test_every_seed_sweeps_over_anchors(tmp_path, monkeypatch):
    from scalecal.paper import reproduction

    monkeypatch.setattr(reproduction, "SWEEP", {"scale@K=5": SWEEP["scale@K=5"]})
    cell = train(source(), tmp_path, seeds=[0, 1, 2, 3], methods=["none"], progress=quiet)
    assert cell.seeds("scale@K=5") == [0, 1, 2, 3]


def test_encoders_that_contradict_each_other_are_named():
    a, b = (made_cell({"none": sharp(1)}, n=60, encoder=e) for e in ("a", "b"))
    assert contradiction([a, b]) is None
    labels, votes = b.y.copy(), b.cases.votes.copy()
    labels[:3] = 1 - labels[:3]
    votes[7] += 1
    for changes, count in (({"y": labels}, 3), ({"votes": votes}, 1)):
        other = replace(b, cases=replace(b.cases, **changes))
        assert f"a and b contradict each other in the labels or votes of {count} of 60" in str(
            contradiction([a, other])
        )
    renamed = replace(b, cases=replace(b.cases, classes=("SSA", "HP")))
    assert "differ in their classes: HP, SSA and SSA, HP" in str(contradiction([a, renamed]))


def test_a_contradiction_is_told_and_the_run_goes_on(tmp_path):
    options = {"methods": ["none"], "preset": "default", "sweep": False, "progress": quiet}
    sources = [source("mhist", "a"), source("mhist", "b", seed=1), source("other", "a")]
    outcome = run(sources, tmp_path, seeds=[0], **options)
    assert {c.name for c in outcome.evidence.cells} == {"mhist/a", "mhist/b", "other/a"}
    told = json.loads((tmp_path / "run.json").read_text())["notes"]
    assert any(note.startswith("mhist: a and b contradict each other") for note in told)
    assert judge_run(tmp_path, progress=quiet).notes == outcome.notes


def test_simulated_encoders_see_the_same_cases():
    for dataset in ("simulated-mhist", "simulated-breakhis"):
        narrow, wide = (s.open() for s in embedded() if s.dataset == dataset)
        assert (narrow.X.shape[1], wide.X.shape[1]) == (64, 256)
        np.testing.assert_array_equal(narrow.y, wide.y)
        np.testing.assert_array_equal(narrow.groups, wide.groups)
        assert narrow.fingerprint != wide.fingerprint
        if narrow.votes is not None:
            np.testing.assert_array_equal(narrow.votes, wide.votes)


def test_what_did_not_converge_is_told_of_all_seeds(tmp_path, monkeypatch):
    from scalecal.paper import reproduction

    def capped(*args, **options):
        grid = run_grid(*args, **options)
        return replace(grid, capped={"none": 4}, left_out={"panel-votes": "of a reason"})

    monkeypatch.setattr(reproduction, "run_grid", capped)
    options = {"methods": ["none"], "preset": "default", "sweep": False, "progress": quiet}
    outcome = run([source(), source("d2")], tmp_path, seeds=[0, 1], **options)
    both = "d2/a, simulated/a: "
    assert outcome.notes[0].startswith(f"{both}8 probes stopped at the limit of epochs")
    assert outcome.notes[1] == f"{both}panel-votes is left out: of a reason."
    assert json.loads((tmp_path / "run.json").read_text())["notes"] == outcome.notes
    assert judge_run(tmp_path, progress=quiet).notes == outcome.notes


def test_joined_seeds_keep_every_case_once():
    table = simulate(150, dim=3, seed=1)
    drawn = [
        run_grid(table.with_cases(split=None), methods=["none"], seeds=[s]).cell for s in (0, 1)
    ]
    joined = joined_cell(drawn)
    assert len(np.unique(joined.cases.names)) == joined.cases.n
    for seed, cell in enumerate(drawn):
        part, own = (c.answers["none", seed] for c in (joined, cell))
        np.testing.assert_array_equal(joined.cases.names[part.rows], cell.cases.names[own.rows])
        np.testing.assert_array_equal(part.p, own.p)


def test_embedded_data_need_nothing(tmp_path):
    lidc = [s for s in embedded() if s.encoder == "geometry"]
    outcome = run(
        lidc,
        tmp_path,
        seeds=[0, 1],
        methods=[*METHODS, "real-piecewise", "vote-fraction"],
        preset="default",
        sweep=False,
        progress=quiet,
    )
    claims = json.loads((tmp_path / "claims.json").read_text())
    assert claims == outcome.claims
    assert {"id", "claim", "paper", "measured", "n", "verdict", "reason"} <= set(claims[0])
    assert {c["verdict"] for c in claims} <= {"holds", "does not hold", "inconclusive"}
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
    broken = sorted((tmp_path / "data" / "mhist").rglob("*.png"))[3]
    broken.write_bytes(b"not an image")
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
    result = runner.invoke(app, [str(c) for c in command], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    for dataset in PAPER_DATASETS:
        cell = read_cell(out / "cells" / dataset / "efficientnet-lite0")
        assert {"none", "vanilla-ls", "scale"} <= set(cell.methods)
    assert read_cell(out / "cells" / "mhist" / "efficientnet-lite0").cases.votes is not None
    assert (out / "report.html").stat().st_size > 10_000
    assert "inconclusive" in result.output
    told = json.loads((out / "run.json").read_text())["notes"]
    assert any("of mhist that could not be read and were left out: 1 (see" in note for note in told)
    assert "Images of mhist that could not be read" in result.output.replace("\n", " ")
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
        run([], tmp_path / "out", seeds=[0], left_out=why, progress=quiet)


def test_the_reason_is_that_of_the_folder_that_exists(tmp_path):
    make_mhist(tmp_path / "mhist", 12)
    _, why = find_images(tmp_path, ["mhist"], ["uni"], tmp_path / "f")
    assert "12 found, 3,152 published" in why["mhist"]


def test_images_that_were_skipped_are_counted(tmp_path, monkeypatch):
    (tmp_path / "manifest.json").touch()
    monkeypatch.setattr("scalecal.paper.reproduction.read_manifest", lambda _: {"n_skipped": 1200})
    (note,) = skipped_images(Source("mhist", "uni", str(tmp_path), quiet))
    assert note.startswith("Images of mhist that could not be read and were left out: 1,200 (see ")
    assert skipped_images(source()) == []


def test_folders_of_other_data_sets_may_be_there_twice(tmp_path):
    for folder, dataset in (("a", "mhist"), ("b", "pcam"), ("c", "pcam")):
        (tmp_path / folder).mkdir()
        told = {"dataset": {"name": dataset}, "encoder": {"name": "uni"}}
        (tmp_path / folder / "manifest.json").write_text(json.dumps(told))
    assert [s.dataset for s in asked_for(find_features(tmp_path), ["mhist"], None)] == ["mhist"]
    assert asked_for(find_features(tmp_path), None, ["conch"]) == []
    with pytest.raises(InputError, match="are both of data set pcam"):
        asked_for(find_features(tmp_path), ["mhist", "pcam"], None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seeds", "0"], "seeds must be at least 1"),
        (["--seeds", "-1"], "seeds must be at least 1"),
        (["--methods", "foo"], "unknown method 'foo'. Known: none, "),
        (["--datasets", "foo"], "unknown data set 'foo'. Known: lidc, atnorm-md, simulated-mhist"),
        (["--encoders", "foo"], "unknown encoder 'foo'. Known: geometry, "),
        (["--datasets", "lidc", "--encoders", "simulated-64"], "nothing to reproduce"),
        (["--datasets", ","], "--datasets must be names"),
    ],
)
def test_what_cannot_run_is_refused_before_a_folder_is_begun(tmp_path, options, said):
    result = runner.invoke(app, ["reproduce", "--out", str(tmp_path / "r"), *options])
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)
    assert not (tmp_path / "r").exists()


def test_a_folder_begun_otherwise_is_refused(tmp_path):
    chosen = next(s for s in embedded() if s.encoder == "geometry")
    folder = tmp_path / "cells" / "lidc" / "geometry"
    train(
        chosen, folder, seeds=[0], methods=["none"], preset="default", sweep=False, progress=quiet
    )
    command = ["reproduce", "--out", str(tmp_path), "--encoders", "geometry", "--methods", "none"]
    result = runner.invoke(app, [*command, "--preset", "paper"])
    assert "was started with preset = default, now it is paper" in str(result.exception)


def test_a_source_that_cannot_be_opened_is_left_out_and_said(tmp_path):
    def fail():
        raise SourceError("its weights cannot be had")

    bad = Source("simulated", "b", "nowhere", fail)
    options = {"methods": ["none"], "preset": "default", "sweep": False, "progress": quiet}
    outcome = run([bad, source()], tmp_path, seeds=[0], **options)
    assert outcome.left_out == {"simulated/b": "its weights cannot be had"}
    again = judge_run(tmp_path, progress=quiet)
    assert again.left_out == outcome.left_out  # also where nothing is trained
    with pytest.raises(InputError, match="nothing to reproduce: simulated/b: its weights"):
        run([bad], tmp_path / "none", seeds=[0], **options)


def test_finding_images_extracts_nothing(tmp_path):
    make_mhist(tmp_path / "mhist", n=30)
    encoders = ["efficientnet-lite0", "ctranspath"]
    images = {"partial_data": True, "progress": quiet}
    found, out = find_images(tmp_path, ["mhist"], encoders, tmp_path / "f", **images)
    assert [s.encoder for s in found] == ["efficientnet-lite0"]
    assert "get them from https://github.com" in out["mhist/ctranspath"]
    assert not (tmp_path / "f").exists()


def test_cells_know_the_files_of_their_cases(tmp_path):
    data = source().open()
    paths = np.array([f"images/{name}.png" for name in data.cases.names])
    made = replace(data.with_cases(paths=paths), images="folder/of/images")
    known = Source("simulated", "a", "simulated", lambda: made)
    cell = train(known, tmp_path, seeds=[0, 1], methods=["none"], sweep=False, progress=quiet)
    assert cell.cases.paths.tolist() == [f"images/{name}.png" for name in cell.cases.names]
    assert read_cell(tmp_path).meta["dataset"]["data"] == "folder/of/images"


def test_what_is_judged_after_a_kill_is_what_was_judged_before(tmp_path):
    options = {"methods": ["none", "scale"], "preset": "default", "sweep": False, "progress": quiet}
    whole = run([source("mhist")], tmp_path, seeds=[0, 1], **options)
    resumed = run([source("mhist")], tmp_path, seeds=[0, 1], **options)
    rebuilt = judge_run(tmp_path, progress=quiet)
    told = {c["id"]: c for c in whole.claims}
    assert told["premise-axis"]["n"] > 100
    assert resumed.claims == whole.claims
    assert rebuilt.claims == whole.claims


def test_a_fine_tuned_network_joins_the_evidence(tmp_path):
    options = {"methods": ["none"], "preset": "default", "sweep": False, "progress": quiet}
    sources = [source("mhist", "a"), source("mhist", "b", seed=0)]
    network = train(source("mhist", "resnet18"), tmp_path / "ft", seeds=[0], **options)
    renamed = {("resnet-hard", 0): network.answers["none", 0]}
    write_cell(tmp_path / "net", replace(network, answers=renamed))
    outcome = run(sources, tmp_path / "r", seeds=[0], also=[tmp_path / "net"], **options)
    assert {c.encoder for c in outcome.evidence.cells} == {"a", "b", "resnet18"}
