"""A fitted probe as one ONNX model: scaling, probe, calibrator and panel, with both answers.

The model takes float32 embeddings and computes in double precision. Before it is written it is run in
onnxruntime, and refused where its probabilities differ from the probe's. `BUILDERS` says how the fitted
map of every calibrator is written: as arithmetic of `Tensor`, over ``onnx.helper``; numbers and arrays become
constants of the graph.

A panel's map from the label's logit to the reader's is a function of one number: a cubic spline through
points of the exact map, 64 of them per unit of the reader's logit up to 40 and a straight line beyond,
reproduces it to 1e-8. With more than two classes it would have to be solved inside the graph: there `p`
alone is exported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline

from scalecal import __version__
from scalecal.calibrators import Calibrator, Chain, Identity, PanelCalibrator, ReaderOnTop
from scalecal.calibrators.base import _EDGE
from scalecal.checks import Float, InputError, check_positive_int, library
from scalecal.panel import _log_choose, _log_whole, label_logit
from scalecal.probes import LinearProbe, ScaleProbe

OPSET = 17
IR_VERSION = 8
"""Of ONNX 1.12: what onnxruntime reads since 1.13."""


def onnx_library() -> Any:
    """Import onnx, or say how to install it."""
    return library("onnx", "writing an ONNX file", "'scalecal[onnx]'")


class Tensor:
    """A value of a graph, (n, ...), with the arithmetic of an array."""

    __array_ufunc__ = None  # numpy leaves array + tensor to the tensor

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def __add__(self, other: Any) -> Tensor:
        return self.graph.op("Add", self, other)

    def __sub__(self, other: Any) -> Tensor:
        return self.graph.op("Sub", self, other)

    def __mul__(self, other: Any) -> Tensor:
        return self.graph.op("Mul", self, other)

    def __truediv__(self, other: Any) -> Tensor:
        return self.graph.op("Div", self, other)

    def __matmul__(self, other: Any) -> Tensor:
        return self.graph.op("MatMul", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return self.graph.op("Add", other, self)

    def __rsub__(self, other: Any) -> Tensor:
        return self.graph.op("Sub", other, self)

    def __rmul__(self, other: Any) -> Tensor:
        return self.graph.op("Mul", other, self)

    def __neg__(self) -> Tensor:
        return self.graph.op("Neg", self)

    def exp(self) -> Tensor:
        """Exponential."""
        return self.graph.op("Exp", self)

    def log(self) -> Tensor:
        """Natural logarithm."""
        return self.graph.op("Log", self)

    def abs(self) -> Tensor:
        """Absolute value."""
        return self.graph.op("Abs", self)

    def at_least(self, least: Any) -> Tensor:
        """The larger of each entry and `least`."""
        return self.graph.op("Max", self, least)

    def at_most(self, most: Any) -> Tensor:
        """The smaller of each entry and `most`."""
        return self.graph.op("Min", self, most)

    def sum(self, *, keep: bool = False) -> Tensor:
        """Sum along the last axis."""
        return self.graph.op("ReduceSum", self, np.array([-1]), keepdims=int(keep))

    def take(self, index: ArrayLike) -> Tensor:
        """Entries at constant positions of the last axis; a single position removes the axis."""
        return self.graph.op("Gather", self, np.asarray(index, dtype=np.int64), axis=-1)

    def expand(self) -> Tensor:
        """Append an axis of length one."""
        return self.graph.op("Unsqueeze", self, np.array([-1]))

    def cast(self, kind: str) -> Tensor:
        """Entries of another type: DOUBLE, FLOAT, INT64 or BOOL."""
        return self.graph.op("Cast", self, to=getattr(onnx_library().TensorProto, kind))


class Graph:
    """Nodes and constants in the order in which they were written."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._known: dict[Any, Tensor] = {}

    def _name(self) -> str:
        return f"v{len(self.nodes) + len(self.constants)}"

    def input(self, name: str) -> Tensor:
        """A value that comes from outside."""
        return Tensor(self, name)

    def constant(self, value: ArrayLike) -> Tensor:
        """A constant; numbers that are not whole-number or truth arrays are doubles."""
        array = np.asarray(value)
        if array.dtype != np.int64 and array.dtype != np.bool_:
            array = array.astype(np.float64)
        # The same number stands in a graph many times: one constant serves all.
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._known:
            self._known[key] = Tensor(self, self._name())
            made = onnx_library().numpy_helper.from_array(array, self._known[key].name)
            self.constants.append(made)
        return self._known[key]

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> Tensor:
        """The output of one node; inputs that are no tensors become constants."""
        names = []
        for value in inputs:
            if isinstance(value, Tensor):
                names.append(value.name)
            else:
                names.append(self.constant(value).name)
        made = self._name()
        self.nodes.append(onnx_library().helper.make_node(kind, names, [made], **attributes))
        return Tensor(self, made)

    def model(
        self,
        inputs: Mapping[str, Sequence[Any]],
        outputs: Mapping[str, tuple[Tensor, Sequence[Any]]],
        *,
        about: Mapping[str, str],
        description: str,
    ) -> Any:
        """The finished model: float32 inputs, double outputs, each with its shape."""
        onnx = onnx_library()
        helper, types = onnx.helper, onnx.TensorProto
        taken = []
        for name, shape in inputs.items():
            taken.append(helper.make_tensor_value_info(name, types.FLOAT, shape))
        given = []
        for name, (tensor, shape) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [tensor.name], [name]))
            given.append(helper.make_tensor_value_info(name, types.DOUBLE, shape))
        graph = helper.make_graph(self.nodes, "scalecal", taken, given, self.constants)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="scalecal",
            producer_version=__version__,
            doc_string=description,
        )
        helper.set_model_props(model, dict(about))
        onnx.checker.check_model(model, full_check=True)
        return model


# Functions of tensors -----------------------------------------------------------------------------


def sigmoid(z: Tensor) -> Tensor:
    """1 / (1 + exp(-z)), with all digits in both tails."""
    # Only ever exponentials of negative numbers: those of positive ones overflow.
    small = (-z.abs()).exp()
    return (z.graph.op("Where", z.graph.op("GreaterOrEqual", z, 0.0), 1.0, small)) / (1.0 + small)


def log_sigmoid(z: Tensor) -> Tensor:
    """Logarithm of `sigmoid`."""
    return z.at_most(0.0) - (1.0 + (-z.abs()).exp()).log()


def normalised(z: Tensor, n_classes: int) -> Tensor:
    """Logits of two classes as they are, (n,), or log-probabilities of more, (n, C)."""
    if n_classes == 2:
        return z
    return z.graph.op("LogSoftmax", z, axis=-1)


def probabilities(z: Tensor, n_classes: int) -> Tensor:
    """Probabilities of the second of two classes, (n,), or of all of more, (n, C)."""
    if n_classes == 2:
        return sigmoid(z)
    return z.graph.op("Softmax", z, axis=-1)


def log_odds(z: Tensor, n_classes: int) -> Tensor:
    """Log-odds of each class against the rest, from logits (n, C)."""
    every = np.arange(n_classes)
    others = z.take([np.delete(every, c) for c in every])
    return z - z.graph.op("ReduceLogSumExp", others, axes=[-1], keepdims=0)


def place(x: Tensor, points: Float, *, side: str = "right") -> Tensor:
    """How many of the ascending `points` are at most x ("right"), or below it ("left").

    A binary search, as `numpy.searchsorted`.
    """
    compare = "LessOrEqual" if side == "right" else "Less"
    graph, depth = x.graph, len(points).bit_length()
    padded = graph.constant(np.append(points, np.full(2**depth - 1 - len(points), np.inf)))
    zero = onnx_library().numpy_helper.from_array(np.zeros(1, dtype=np.int64))
    position = graph.op("ConstantOfShape", graph.op("Shape", x), value=zero)
    for step in (1 << k for k in reversed(range(depth))):
        at = graph.op("Gather", padded, graph.op("Add", position, np.array(step - 1)))
        position = graph.op(
            "Where",
            graph.op(compare, at, x),
            graph.op("Add", position, np.array(step)),
            position,
        )
    return position


def steps(x: Tensor, edges: Float, values: Float, *, side: str = "right") -> Tensor:
    """A step function: the value after as many edges as `place` counts."""
    return x.graph.op("Gather", x.graph.constant(values), place(x, edges, side=side))


def piecewise(x: Tensor, edges: Float, origins: Float, coefficients: Sequence[Float]) -> Tensor:
    """A polynomial in ``x - origin`` between each two edges (closed on the left), and beyond them.

    `origins` and each of the `coefficients`, the highest power first, have one entry more than `edges`.
    """
    graph, index = x.graph, place(x, edges)

    def at(values: Float) -> Tensor:
        return graph.op("Gather", graph.constant(values), index)

    value, offset = at(coefficients[0]), x - at(origins)
    for lower in coefficients[1:]:
        value = value * offset + at(lower)
    return value


# The probe ----------------------------------------------------------------------------------------

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
    chain: Sequence[Calibrator | None] = [calibrator]
    if isinstance(calibrator, Chain):
        chain = calibrator.steps_
    for step in chain:
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


# Calibrators ------------------------------------------------------------------------------------

FARTHEST = 40.0
"""Reader's logit up to which the map is tabulated: beyond, its probability is 0 or 1 to 1e-17."""
POINTS_PER_UNIT = 64


@dataclass(frozen=True)
class Answer:
    """What a calibrator gives: logits or probabilities, whichever it computes first."""

    tensor: Tensor
    is_logits: bool
    n_classes: int

    def logits(self) -> Tensor:
        """Logits, as `Calibrator.transform` gives them."""
        if self.is_logits:
            return self.tensor
        # The edge at which calibrators clip: a probability of 0 has no logit.
        p = self.tensor.at_least(_EDGE).at_most(1.0 - _EDGE)
        if self.n_classes == 2:
            return p.log() - (1.0 - p).log()
        return p.log()

    def probs(self) -> Tensor:
        """Probabilities: (n,) of the second of two classes, or (n, C)."""
        if not self.is_logits:
            return self.tensor
        return probabilities(self.tensor, self.n_classes)


Builder = Callable[[Any, Tensor, int | None], Answer]
"""From a fitted calibrator, logits (n,) or (n, C > 2), and the size of the panel, to its answer."""


def calibrated(calibrator: Calibrator, z: Tensor, n_raters: int | None = None) -> Answer:
    """Write a fitted calibrator after logits (n,), or (n, C) of more than two classes."""
    return BUILDERS[calibrator.name](calibrator, z, n_raters)


def _logits(calibrator: Calibrator, tensor: Tensor) -> Answer:
    return Answer(tensor, True, calibrator.n_classes_)


def _identity(calibrator: Any, z: Tensor, _: int | None) -> Answer:
    return _logits(calibrator, normalised(z, calibrator.n_classes_))


def _temperature(calibrator: Any, z: Tensor, _: int | None) -> Answer:
    return _logits(calibrator, z / calibrator.temperature_)


def _platt(calibrator: Any, z: Tensor, _: int | None) -> Answer:
    base = normalised(z, calibrator.n_classes_)
    return _logits(calibrator, base * calibrator.slope_ + calibrator.intercept_)


def _ensemble_temperature(calibrator: Any, z: Tensor, _: int | None) -> Answer:
    tempered, plain, uniform = map(float, calibrator.share_)
    n_classes, tiny = int(calibrator.n_classes_), float(np.finfo(np.float64).tiny)

    # Logs before the difference: 1 - p has no digits left where p is nearly 1.
    def log_mixed(z: Tensor) -> Tensor:
        cooled = probabilities(z / calibrator.temperature_, n_classes)
        mixed: Tensor = (
            cooled * tempered + probabilities(z, n_classes) * plain + uniform / n_classes
        )
        return mixed.at_least(tiny).log()

    if n_classes == 2:
        return _logits(calibrator, log_mixed(z) - log_mixed(-z))
    return _logits(calibrator, log_mixed(z))


def _structured_matrix(calibrator: Any, z: Tensor, _: int | None) -> Answer:
    matrix, intercept = np.asarray(calibrator.matrix_), calibrator.intercept_
    if calibrator.n_classes_ == 2:
        return _logits(calibrator, z * matrix + intercept)
    base = normalised(z / calibrator.temperature_, calibrator.n_classes_)
    if calibrator.uniform_ > 0.0:
        share = calibrator.uniform_
        base = (base.exp() * (1.0 - share) + share / calibrator.n_classes_).log()
    return _logits(calibrator, base @ matrix.T + intercept)


def _slopes(calibrator: Any, z: Tensor, _: int | None) -> Answer:
    """Quadratic scaling and splines: the slope is linear between knots, and constant beyond them."""

    def curve(c: int, odds: Tensor) -> Tensor:
        knots, slopes = calibrator.knots_[c], calibrator.coef_[c][:-1]
        values = calibrator._curve(c, knots)
        bends = 0.5 * np.diff(slopes) / np.diff(knots)
        powers = (
            np.concatenate([[0.0], bends, [0.0]]),
            np.append(slopes[0], slopes),
            np.append(values[0], values),
        )
        return piecewise(odds, knots, np.append(knots[0], knots), powers)

    return _curves(calibrator, z, curve, logits=True)


def _beta(calibrator: Any, z: Tensor, _: int | None) -> Answer:
    coef = np.atleast_2d(calibrator.coef_)

    def curve(c: int, odds: Tensor) -> Tensor:
        positive, negative, intercept = map(float, coef[c])
        return positive * log_sigmoid(odds) - negative * log_sigmoid(-odds) + intercept

    return _curves(calibrator, z, curve, logits=True)


def _isotonic(calibrator: Any, z: Tensor, _: int | None) -> Answer:
    def curve(c: int, odds: Tensor) -> Tensor:
        knots, values = calibrator.knots_[c], calibrator.values_[c]
        slopes = np.diff(values) / np.diff(knots)
        # Constant before the first knot and after the last.
        return piecewise(
            odds,
            knots,
            np.append(knots[0], knots),
            [np.concatenate([[0.0], slopes, [0.0]]), np.append(values[0], values)],
        )

    return _curves(calibrator, z, curve)


def _histogram(calibrator: Any, z: Tensor, _: int | None) -> Answer:
    def curve(c: int, odds: Tensor) -> Tensor:
        return steps(odds, calibrator.edges_[c], calibrator.values_[c])

    return _curves(calibrator, z, curve)


def _venn_abers(calibrator: Any, z: Tensor, _: int | None) -> Answer:
    def curve(c: int, odds: Tensor) -> Tensor:
        low = steps(odds, calibrator.low_knots_[c], calibrator.low_values_[c])
        high = steps(odds, calibrator.high_knots_[c], calibrator.high_values_[c], side="left")
        return high / (1.0 - low + high)

    return _curves(calibrator, z, curve)


def _curves(
    calibrator: Calibrator,
    z: Tensor,
    curve: Callable[[int, Tensor], Tensor],
    *,
    logits: bool = False,
) -> Answer:
    """Apply ``curve(class, log-odds)``, which gives probabilities or logits.

    More than two classes are each taken against the rest, and their probabilities renormalised.
    """
    n_classes, graph = calibrator.n_classes_, z.graph
    if n_classes == 2:
        return Answer(curve(0, z), logits, n_classes)
    odds = log_odds(z, n_classes)
    each = []
    for c in range(n_classes):
        p = curve(c, odds.take(c))
        if logits:
            p = sigmoid(p)
        each.append(p.expand())
    together = graph.op("Concat", *each, axis=-1)
    total = together.sum(keep=True)
    # Steps may give every class 0: the classes are then equally likely, as in the calibrators.
    some = graph.op("Greater", total, 0.0)
    safe = graph.op("Where", some, total, 1.0)
    p = graph.op("Where", some, together / safe, 1.0 / n_classes)
    return Answer(p, False, n_classes)


def _panel(calibrator: Any, z: Tensor, n_raters: int | None) -> Answer:
    panel, n_classes = calibrator.panel_, calibrator.n_classes_
    q = normalised(z * panel.slope + panel.intercept, n_classes)
    if n_raters is not None and panel.knows_readers and n_raters != panel.panel_size:
        q = label_of_label(q, panel.rho, panel.panel_size, n_raters)
    return _logits(calibrator, q)


def _reader_on_top(calibrator: Any, z: Tensor, _: int | None) -> Answer:
    return calibrated(calibrator.label_, z)


def _chain(calibrator: Any, z: Tensor, n_raters: int | None) -> Answer:
    for step in calibrator.steps_[:-1]:
        z = calibrated(step, z, n_raters).logits()
    return calibrated(calibrator.steps_[-1], z, n_raters)


BUILDERS: dict[str, Builder] = {
    "identity": _identity,
    "temperature": _temperature,
    "ensemble-temperature": _ensemble_temperature,
    "platt": _platt,
    "quadratic": _slopes,
    "beta": _beta,
    "spline": _slopes,
    "isotonic": _isotonic,
    "venn-abers": _venn_abers,
    "histogram": _histogram,
    "structured-matrix": _structured_matrix,
    "panel": _panel,
    ReaderOnTop.name: _reader_on_top,
    Chain.name: _chain,
}
"""How each calibrator is written, by its name."""


# Readers of a panel of two classes ---------------------------------------------------------------


def label_of_label(q: Tensor, rho: float, m: int, other: int) -> Tensor:
    """The logit (n,) of the label of `other` readers from that of the label of m readers.

    The label of one reader is that reader's vote.
    """
    # The map has no closed inverse, and is odd: it is tabulated at chosen values of a reader's logit.
    reader = np.linspace(0.0, FARTHEST, int(FARTHEST * POINTS_PER_UNIT) + 1)
    points = label_logit(reader, rho, m)
    values = label_logit(reader, rho, other)
    spline = CubicSpline(points, values, bc_type=("natural", "not-a-knot"))
    beyond = np.array([0.0, 0.0, float(spline(points[-1], 1)), float(values[-1])])
    coefficients = np.column_stack([spline.c, beyond])
    size = piecewise(q.abs(), points[1:], points, list(coefficients))
    return q.graph.op("Sign", q) * size


def reader_logit(calibrator: PanelCalibrator, z: Tensor) -> Tensor:
    """A reader's logit (n,), of two classes: `PanelCalibrator.reader_logits`."""
    panel = calibrator.panel_
    if isinstance(calibrator, ReaderOnTop):
        z = calibrated(calibrator.label_, z).logits()
    slope, intercept = panel.slope, panel.intercept
    if panel.voted is not None:
        intercept, slope = panel.voted
    reader = z * slope + intercept
    # The label of one or two readers is as likely as a reader's vote.
    if panel.size_of() > 2:
        reader = label_of_label(reader, panel.rho, panel.size_of(), 1)
    shifted: Tensor = reader + panel.shift
    return shifted


def split_of_reader(z: Tensor, rho: float, m: int) -> Tensor:
    """Probability that m readers split, from a reader's logit; see `scalecal.panel.split_probability`."""
    most = max((m + 1) // 2, 4 * m // 7)
    counts = np.arange(m - most, most + 1)
    i = np.arange(m)
    constant = _log_choose(m)[counts] - _log_whole(rho, m)
    # The beta-binomial law: factors of the votes for the class, and of those against it.
    up = _log_factors(log_sigmoid(z), rho, m) @ (i[:, None] < counts).astype(np.float64)
    down = _log_factors(log_sigmoid(-z), rho, m) @ (i[:, None] < m - counts).astype(np.float64)
    log_law: Tensor = up + down + constant
    return log_law.exp().sum()


def _log_factors(log_p: Tensor, rho: float, m: int) -> Tensor:
    """Logarithms of (1 - rho) p + i rho for i < m, along a new last axis."""
    first = (log_p + float(np.log1p(-rho))).expand()
    if rho == 0.0:
        return first.graph.op("Add", first, np.zeros(m))
    # The first factor has no rho to keep it from 0: it is p's own logarithm, in both tails.
    later = (first.exp() + rho * np.arange(1.0, m)).log()
    return first.graph.op("Concat", first, later, axis=-1)


# The check ----------------------------------------------------------------------------------------


def check_rows(probe: Probe) -> NDArray[np.float32]:
    """Embeddings whose logits reach from one end to the other and, a few, far beyond."""
    rng = np.random.default_rng(0)
    d = probe.n_features_in_
    even = np.linspace(-CHECK_LOGITS, CHECK_LOGITS, 200)[:, None]
    # Curves bend between the smallest logits; far beyond the largest, exponentials overflow.
    logits = np.concatenate([0.1 * even, even, 25.0 * even])
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
