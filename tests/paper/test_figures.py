from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from scalecal.paper.evidence import Embeddings, Evidence
from scalecal.paper.paper_figures import (
    FIGURES,
    MARKS,
    STRATUM_MARKS,
    write_figures,
)
from scalecal.synthesis import plan
from tests.evaluation.made import cell, sharp, votes

METHODS = {
    "none": sharp(2.2),
    "temperature": sharp(1.7),
    "vanilla-ls": sharp(1.5),
    "real-piecewise": lambda s, h, y, r: 0.2 * s + 0.7 * h,  # noqa: ARG005
    "scale": sharp(1.1),
    "platt": sharp(1.6),
    **{f"scale@K={k}": sharp(1.2) for k in (5, 10, "all")},
}


def embeddings(n=200):
    seen, _, counts = votes(n, seed=4)
    X = np.column_stack([seen, np.random.default_rng(0).normal(size=(n, 4))])
    order = np.argsort(seen)
    y = (counts[:, 1] > 3).astype(np.int64)
    return Embeddings(X, y, counts, {0: order[:4], 1: order[-4:][::-1]})


@pytest.fixture(scope="module")
def evidence():
    cells = [cell(METHODS, n=250, n_seeds=2, encoder=e) for e in ("uni", "mine")]
    return Evidence(cells, embeddings={("mhist", "uni"): embeddings()}, n_resamples=50)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_here(evidence, name):
    figure, reason = FIGURES[name](evidence)
    assert figure is not None, reason
    assert FIGURES[name].caption.endswith(".")
    figure.draw_without_rendering()
    assert all(axis.get_xlabel() or axis.get_xticklabels() for axis in figure.axes[:1])


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "smoothing"])
def test_every_figure_says_why_where_it_cannot_be_drawn(name):
    figure, reason = FIGURES[name](Evidence([]))
    assert figure is None
    assert reason


@pytest.mark.usefixtures("drawn_figures")
def test_files_are_written_and_repeat(evidence, tmp_path, monkeypatch):
    kept = {name: FIGURES[name] for name in ("audit", "overview")}
    monkeypatch.setattr("scalecal.paper.paper_figures.FIGURES", kept)
    for folder in ("a", "b"):
        write_figures(tmp_path / folder, evidence)
    listed = json.loads((tmp_path / "a" / "figures.json").read_text())
    assert [one["name"] for one in listed] == ["audit", "overview"]
    for one in listed:
        assert one["files"] == [f"{one['name']}.{kind}" for kind in ("svg", "png", "pdf")]
        for name in one["files"]:
            first, second = ((tmp_path / f / name).read_bytes() for f in ("a", "b"))
            assert first == second
            assert len(first) > 1000


def test_the_audit_shows_the_results(evidence):
    axis = FIGURES["audit"](evidence)[0].axes[0]
    drawn = {
        tuple(np.round(line.get_xdata(), 12))
        for line in axis.lines
        if len(np.atleast_1d(line.get_xdata())) == 2
    }
    for stratum in ("high", "medium", "low"):
        for metric in ("ece", "null"):
            values = [evidence.mean("mhist", e, "none", metric, stratum) for e in ("uni", "mine")]
            assert tuple(np.round(values, 12)) in drawn


def test_the_references_of_a_sweep_have_its_seeds():
    made = cell(METHODS, n=250, n_seeds=4)
    kept = {k: v for k, v in made.answers.items() if "@" not in k[0] or k[1] < 2}
    made = replace(made, answers=kept)
    found = Evidence([made], n_resamples=50)
    axis = FIGURES["sensitivity"](found)[0].axes[0]
    assert "(2 seeds)" in axis.get_xlabel()
    drawn = [float(line.get_ydata()[0]) for line in axis.lines]
    for method in ("none", "real-piecewise"):
        by_seed = found.by_seed("mhist", made.encoder, method, "ece", "low")
        assert any(value == pytest.approx(by_seed[:2].mean()) for value in drawn)


def test_one_class_of_marks_differs_in_more_than_colour():
    for marks in (MARKS, STRATUM_MARKS):
        assert len({(mark.shape, mark.filled) for mark in marks.values()}) >= len(marks) - 1
    main = [MARKS[m] for m in ("none", "temperature", "vanilla-ls", "real-piecewise", "scale")]
    assert len({(mark.shape, mark.filled) for mark in main}) == 5


def test_interpolates_are_those_of_the_synthesis():
    data = embeddings()
    logits = data.X[:, 0]
    made, share = data.interpolates()
    # The first probe ranks by its logit; with the axis as logit the anchors are the extremes.
    planned = plan(data.y, logits, n_anchors=4, n_raters=7, anchors="prediction")
    assert len(planned) == len(made)
    reference = {tuple(np.round(row, 9)) for row in planned.interpolate(data.X)}
    assert {tuple(np.round(row, 9)) for row in made} == reference
    assert sorted(set(np.round(share, 9))) == pytest.approx(np.arange(1, 7) / 7)
