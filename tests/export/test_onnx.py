"""ONNX models in onnxruntime: the same probabilities as the probes they were made of."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from scipy.special import expit, logit

from scalecal.calibrators import (
    CALIBRATORS,
    BetaCalibration,
    Chain,
    Identity,
    IsotonicCalibration,
    ReaderOnTop,
)
from scalecal.checks import InputError
from scalecal.export import probe_graph as module
from scalecal.export.probe_graph import (
    BUILDERS,
    Graph,
    check_model,
    check_rows,
    expected,
    onnx_model,
    place,
)
from scalecal.panel import split_probability
from scalecal.probes import LinearProbe, ScaleProbe
from tests.calibrators.made import three_classes, two_classes
from tests.export.made import fitted, panel, probe_of

TOLERANCE = 1e-6


def run(model, X):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"embeddings": X}), strict=True))


def compare(probe, panel_size=None, X=None):
    """The model's outputs, after comparing each with what the probe says."""
    X = check_rows(probe) if X is None else X
    outputs = run(onnx_model(probe, panel_size=panel_size), X)
    answers = expected(probe, X, panel_size)
    assert list(outputs) == list(answers)
    for name, values in answers.items():
        assert outputs[name].shape == values.shape
        np.testing.assert_allclose(outputs[name], values, rtol=0, atol=TOLERANCE, err_msg=name)
    return outputs


def test_every_calibrator_has_a_builder():
    assert set(BUILDERS) == {*CALIBRATORS, Chain.name, ReaderOnTop.name}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.parametrize("kind", [LinearProbe, ScaleProbe])
def test_every_calibrator(name, n_classes, kind):
    compare(probe_of(fitted(name, n_classes), n_classes, kind=kind))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("unit", [False, True])
def test_no_calibrator(n_classes, unit):
    compare(probe_of(None, n_classes, unit=unit))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("last", CALIBRATORS)
def test_chains_hand_on_logits(last, n_classes):
    for first in ("isotonic", "beta", "platt"):
        steps = [fitted(first, n_classes), fitted(last, n_classes)]
        chain = Chain(steps)
        chain.steps_, chain.n_classes_ = steps, n_classes
        compare(probe_of(chain, n_classes))


@pytest.mark.parametrize("rho", [0.0, 1e-6, 0.05, 0.3, 0.99])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 51])
def test_panels_of_two_classes(rho, size):
    probe = probe_of(panel(2, rho, size))
    outputs = compare(probe)
    assert ("p_split" in outputs) == (size > 1)
    for other in (1, 2, 5, 101):
        compare(probe, other)


def test_a_panel_of_several_classes_gives_its_label_alone():
    probe = probe_of(panel(3, 0.2, 5), 3)
    assert list(compare(probe)) == ["p"]
    assert list(compare(probe, 5)) == ["p"]
    with pytest.raises(InputError, match="of more than two classes, the panel that was fitted"):
        onnx_model(probe, panel_size=7)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_reader_on_top_of_another_calibrator(n_classes):
    z, y = two_classes() if n_classes == 2 else three_classes()
    both = ReaderOnTop(BetaCalibration(), rho=0.1).fit(z, y, n_raters=7)
    outputs = compare(probe_of(both, n_classes))
    known = ["p", "p_reader", "p_split"]
    assert list(outputs) == known[: 3 if n_classes == 2 else 1]


def test_a_panel_whose_labels_are_not_the_votes():
    from dataclasses import replace

    calibrator = panel(2, 0.1, 7)
    calibrator.panel_ = replace(calibrator.panel_, voted=(-0.4, 0.8))
    compare(probe_of(calibrator), 5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_extreme_embeddings(n_classes):
    largest = np.finfo(np.float32).max
    rng = np.random.default_rng(1)
    signs = rng.choice([-1.0, 1.0], size=(20, 6))
    X = np.concatenate([largest * signs, 1e10 * signs, 1e-40 * signs, 0 * signs[:1]])
    for name in CALIBRATORS:
        for unit in (False, True):
            compare(probe_of(fitted(name, n_classes), n_classes, unit=unit), X=np.float32(X))
    compare(probe_of(panel(n_classes, 0.1, 7), n_classes), X=np.float32(X))


def test_both_tails_keep_their_digits():
    """Probabilities of 1e-15 are those of the logits, not rounded to 0."""
    probe = probe_of(Identity().fit([0.0], [1]), d=1)
    probe.coef_, probe.intercept_ = np.ones((1, 1)), np.zeros(1)
    z = np.float32([[-35.0], [-20.0]])
    np.testing.assert_allclose(compare(probe, X=z)["p"], expit(z[:, 0].astype(float)), rtol=1e-13)


def test_splits_are_those_of_the_readers():
    probe = probe_of(panel(2, 0.1, 7))
    outputs = compare(probe)
    inside = np.abs(outputs["p_reader"] - 0.5) < 0.499
    again = split_probability(logit(outputs["p_reader"][inside]), 0.1, 7)
    np.testing.assert_allclose(outputs["p_split"][inside], again, atol=1e-9)


def test_a_real_fit_with_votes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)).astype(np.float32)
    votes = rng.binomial(7, expit(2 * X[:, 0]))
    for probe in (LinearProbe(min_steps=200), ScaleProbe(min_steps=200)):
        probe.fit(X, votes >= 4, votes=votes, n_raters=7)
        outputs = compare(probe, X=X)
        assert list(outputs) == ["p", "p_reader", "p_split"]
        # The package computes float32 embeddings in single precision.
        np.testing.assert_allclose(outputs["p"], probe.predict_proba(X)[:, 1], atol=1e-5)


def test_batches_of_any_size_and_what_the_model_says_of_itself():
    probe = probe_of(panel(3, 0.2, 5), 3)
    probe.about_ = {"encoder": "uni", "data_sha256": "ab", "method": "panel-votes", "seed": 3}
    model = onnx_model(probe)
    X = check_rows(probe)
    whole = run(model, X)
    for rows in (X[:1], X[5:7]):
        one = run(model, rows)
        at = 0 if len(rows) == 1 else 5
        for name, values in one.items():
            np.testing.assert_allclose(values, whole[name][at : at + len(rows)], atol=1e-9)
    said = {entry.key: entry.value for entry in model.metadata_props}
    assert said["classes"] == '["class 0", "class 1", "class 2"]'
    assert said["panel_size"] == "5"
    assert said["encoder"] == "uni"
    assert said["data_sha256"] == "ab"
    assert said["rho"] == "0.2"
    assert model.producer_name == "scalecal"
    assert model.SerializeToString() == onnx_model(probe).SerializeToString()
    onnx.checker.check_model(model, full_check=True)


def test_a_panel_size_needs_readers():
    with pytest.raises(InputError, match="does not know the readers"):
        onnx_model(probe_of(fitted("temperature", 2)), panel_size=7)


def test_a_model_that_differs_is_refused(monkeypatch):
    probe = probe_of(fitted("platt", 2))
    model = onnx_model(probe).SerializeToString()
    assert check_model(model, probe) < 1e-12
    probe.intercept_ = probe.intercept_ + 1e-4
    with pytest.raises(InputError, match="p differs by"):
        check_model(model, probe)
    monkeypatch.setattr(module, "TOLERANCE", 1.0)
    check_model(model, probe)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 8, 100])
def test_the_search_counts_points(n):
    rng = np.random.default_rng(n)
    points = np.sort(rng.normal(size=n))
    x = np.concatenate([rng.normal(size=50), points, [-1e300, 1e300]])
    graph = Graph()
    found = place(graph.input("x").cast("DOUBLE"), points.astype(np.float32).astype(np.float64))
    model = graph.model(
        {"x": ["n"]}, {"count": (found.cast("DOUBLE"), ["n"])}, about={}, description=""
    )
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    x = np.clip(x, -3e38, 3e38).astype(np.float32)
    counts = session.run(None, {"x": x})[0]
    np.testing.assert_array_equal(
        counts, np.searchsorted(points.astype(np.float32), x, side="right")
    )


def test_a_curve_with_one_knot_is_constant():
    calibrator = IsotonicCalibration()
    calibrator.knots_, calibrator.values_ = [np.array([0.5])], [np.array([0.3])]
    calibrator.n_classes_ = 2
    assert set(compare(probe_of(calibrator))["p"]) == {0.3}
