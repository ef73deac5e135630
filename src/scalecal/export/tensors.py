"""ONNX graphs written as arithmetic: tensors with operators, over ``onnx.helper``.

Everything is computed in double precision; numbers and arrays become constants of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scalecal.checks import Float, library

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
        from scalecal import __version__

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
