"""A fitted probe as one ONNX model: scaling, probe, calibrator and panel, with both answers.

The model takes float32 embeddings and computes in double precision. Before it is written it is run in
onnxruntime, and refused where its probabilities differ from the probe's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalecal.calibrators import Calibrator, Chain, Identity, PanelCalibrator
from scalecal.checks import Float, InputError, check_positive_int, library
from scalecal.export.calibrator_graphs import Answer, calibrated, reader_logit, split_of_reader
from scalecal.export.tensors import Graph, Tensor, sigmoid
from scalecal.probes import LinearProbe, ScaleProbe

Probe = LinearProbe | ScaleProbe

TOLERANCE = 1e-6
"""Most that a probability of the model may differ from the probe's."""

CHECK_LOGITS = 40.0
"""Logits of the rows on which both are compared lie within this, and some far beyond."""

OUTPUTS: dict[str, str] = {
    "p": "probability of the label",
    "p_reader": "probability that one reader votes so",
    "p_split": "probability that the panel splits (low agreement)",
}
"""Outputs of a model, and what each is; a probe that knows no readers has the first alone."""


def onnx_model(probe: Probe, *, panel_size: int | None = None) -> Any:
    """Return a fitted probe as an ONNX model.

    Parameters
    ----------
    probe
        A fitted `LinearProbe` or `ScaleProbe`.
    panel_size
        Readers of the panel whose label and split are predicted; None: the panel that was fitted.

    Returns
    -------
    onnx.ModelProto
        Input `embeddings`, float32 (n, d). Outputs, double: `p`, (n,) of the second of two classes or
        (n, C); and, of two classes, where the probe knows the readers `p_reader` (n,) and, of a panel of
        two or more, `p_split` (n,).

    Examples
    --------
    >>> from scalecal.datasets import load_lidc
    >>> data = load_lidc()
    >>> probe = LinearProbe().fit(data.X, data.y, votes=data.votes, n_raters=data.n_raters)
    >>> [output.name for output in onnx_model(probe).graph.output]
    ['p', 'p_reader', 'p_split']
    """
    size = predicted_panel(probe, panel_size)
    n_classes, d = len(probe.classes_), probe.n_features_in_
    columns: list[Any] = ["n"]
    if n_classes > 2:
        columns.append(n_classes)
    graph = Graph()
    z = _linear(graph.input("embeddings").cast("DOUBLE"), probe)
    calibrator = probe.calibrator_
    label = Answer(z, True, n_classes)
    if calibrator is not None:
        label = calibrated(calibrator, z, size)
    outputs = {"p": (label.probs(), columns)}
    panel = _reader_panel(probe)
    if panel is not None:
        reader = reader_logit(panel, z)
        outputs["p_reader"] = (sigmoid(reader), columns)
        if size is not None and size > 1:
            outputs["p_split"] = (split_of_reader(reader, panel.panel_.rho, size), columns)
    return graph.model(
        {"embeddings": ["n", d]},
        outputs,
        about=_properties(probe, size),
        description="; ".join(f"{name}: {OUTPUTS[name]}" for name in outputs),
    )


def predicted_panel(probe: Probe, wanted: int | None) -> int | None:
    """Readers of the panel that is predicted, where the probe knows the readers."""
    calibrator = probe.calibrator_
    steps: Sequence[Calibrator | None] = [calibrator]
    if isinstance(calibrator, Chain):
        steps = calibrator.steps_
    for step in steps:
        if isinstance(step, PanelCalibrator) and step.panel_.knows_readers:
            fitted = step.panel_.panel_size
            if wanted is None or wanted == fitted:
                return fitted
            if len(probe.classes_) > 2:
                raise InputError(
                    f"of more than two classes, the panel that was fitted ({fitted} readers) can be "
                    "exported alone: leave the panel size out"
                )
            return check_positive_int(wanted, "panel_size")
    if wanted is None:
        return None
    raise InputError(
        "a panel size was given, but the probe does not know the readers: leave it out, or fit the "
        "probe with votes, or with kappa and the panel's size"
    )


def _reader_panel(probe: Probe) -> PanelCalibrator | None:
    """The calibrator that gives a reader probability; None if it is not known, or not exported."""
    calibrator = probe.calibrator_
    if not isinstance(calibrator, PanelCalibrator) or len(probe.classes_) > 2:
        return None
    if not calibrator.panel_.knows_readers:
        return None
    return calibrator


def _linear(x: Tensor, probe: Probe) -> Tensor:
    """Logits (n,), or (n, C): scaling is part of the coefficients, except to unit length."""
    product = x @ probe.coef_.T
    if probe.unit_rows_:
        length = x.graph.op("Sqrt", (x * x).sum(keep=True))
        nonzero = x.graph.op("Greater", length, 0.0)
        product = product / x.graph.op("Where", nonzero, length, 1.0)
    logits = product + probe.intercept_
    if len(probe.intercept_) == 1:
        return logits.take(0)
    return logits


def _properties(probe: Probe, size: int | None) -> dict[str, str]:
    """What the model says of itself, as text."""
    from scalecal import __version__

    about, panel = probe.about_, probe.panel_
    calibrator = probe.calibrator_ or Identity()
    # Empty entries are left out below: a model says nothing rather than "None".
    known: dict[str, Any] = {
        "scalecal_version": __version__,
        "estimator": type(probe).__name__,
        "method": about.get("method"),
        "calibrator": calibrator.name,
        "classes": json.dumps(list(map(str, probe.classes_.tolist())), ensure_ascii=False),
        "panel_size": size,
        "encoder": about.get("encoder"),
        "dataset": about.get("dataset"),
        "data_sha256": about.get("data_sha256"),
        "seed": about.get("seed"),
    }
    if panel is not None and panel.knows_readers:
        known["rho"] = panel.rho
    return {name: str(value) for name, value in known.items() if value not in (None, "")}


# The check ----------------------------------------------------------------------------------------


def check_rows(probe: Probe) -> NDArray[np.float32]:
    """Embeddings whose logits reach from one end to the other and, a few, far beyond."""
    rng = np.random.default_rng(0)
    d = probe.n_features_in_
    steps = np.linspace(-CHECK_LOGITS, CHECK_LOGITS, 200)[:, None]
    # Curves bend between the smallest logits; far beyond the largest, exponentials overflow.
    logits = np.concatenate([0.1 * steps, steps, 25.0 * steps])
    if len(probe.intercept_) > 1:
        logits = logits * rng.normal(size=(len(logits), len(probe.intercept_)))
    with np.errstate(over="ignore"):
        reaching = (logits - probe.intercept_) @ np.linalg.pinv(probe.coef_).T
        size = float(np.sqrt(np.mean(reaching**2))) or 1.0
        plain = rng.normal(size=(60, d)) * np.repeat([0.1, 1.0, 100.0], 20)[:, None]
        rows = np.concatenate([reaching, size * plain, np.zeros((1, d))])
        most = float(np.finfo(np.float32).max)
        return np.asarray(np.clip(np.nan_to_num(rows), -most, most), dtype=np.float32)


def expected(probe: Probe, X: NDArray[Any], panel_size: int | None) -> dict[str, Float]:
    """What the probe itself says of embeddings, under the names of a model's outputs."""
    size = predicted_panel(probe, panel_size)
    rows = np.asarray(X, dtype=np.float64)
    probs = probe.predict_proba(rows, n_raters=size)
    if len(probe.classes_) > 2:
        return {"p": probs}
    answers = {"p": probs[:, 1]}
    if _reader_panel(probe) is not None:
        answers["p_reader"] = probe.predict_reader_proba(rows)[:, 1]
        if size is not None and size > 1:
            answers["p_split"] = probe.predict_disagreement(rows, size)
    return answers


def check_model(model: bytes, probe: Probe, *, panel_size: int | None = None) -> float:
    """Run a model in onnxruntime on made embeddings and return the most it differs from the probe.

    Parameters
    ----------
    model
        The model's bytes.
    probe
        The probe it was made of.
    panel_size
        As given to `onnx_model`.

    Raises
    ------
    InputError
        Where a probability differs by more than 1e-6.
    """
    runtime = library("onnxruntime", "checking an ONNX file", "'scalecal[onnx]'")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # its warnings are for the writers of graphs
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    rows = check_rows(probe)
    answers = expected(probe, rows, panel_size)
    results = session.run(list(answers), {"embeddings": rows})
    worst = 0.0
    for (name, values), result in zip(answers.items(), results, strict=True):
        apart = np.inf
        if result.shape == values.shape and np.isfinite(result).all():
            apart = float(np.abs(result - values).max(initial=0.0))
        if apart > TOLERANCE:
            raise InputError(
                f"the ONNX model does not reproduce the probe: {name} differs by {apart:.2g}, at most "
                f"{TOLERANCE:g} is allowed; nothing was written"
            )
        worst = max(worst, apart)
    return worst
