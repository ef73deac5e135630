"""Every public function and estimator against inputs that are not what it takes.

An odd input ends in an `InputError` that names the argument, or is taken for what it holds: never in
another exception, never in another number. What is public is read from the packages, so that a new
function is tested by being there; one with a required argument not known here fails until `EXAMPLES`
has an example of it.

Arguments annotated `ArrayLike` take anything; those annotated `Float` or `Int` take checked arrays.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

import scalecal
from scalecal.calibrators import CALIBRATORS
from scalecal.checks import InputError

MODULES = (
    "scalecal",
    "scalecal.calibrators",
    "scalecal.datasets",
    "scalecal.metrics",
    "scalecal.panel",
    "scalecal.planning",
    "scalecal.probes",
    "scalecal.smoothing",
    "scalecal.splits",
    "scalecal.synthesis",
    "scalecal.votes",
)
LEFT_OUT = {
    # what they take are other objects of this package, or paths
    "compare_audits",
    "fit_many",
    "from_dict",
    "linear_logits",
    "load_lidc",
    "load_probe",
    "read_features",
    "read_predictions",
    "merge_audits",
    "open_dataset",
    "tied_error",
    "with_preset",
}

N = 60
RNG = np.random.default_rng(0)
P = RNG.uniform(0.02, 0.98, N)
VOTES = RNG.binomial(7, P)
Y = (VOTES > 3).astype(np.int64)
Y3, LOGITS3 = RNG.integers(0, 3, N), RNG.normal(size=(N, 3))
X = np.column_stack([P, RNG.normal(size=(N, 2))])

EXAMPLES: dict[str, Any] = {
    "X": X,
    "X_val": X[:20],
    "case": np.repeat(np.arange(N // 2), 2),
    "coef": np.ones((1, 3)),
    "counts": np.column_stack([7 - VOTES, VOTES]),
    "groups": np.arange(N) // 2,
    "intercept": np.zeros(1),
    "kappa": 0.4,
    "label": Y,
    "logits": np.log(P / (1 - P)),
    "n_raters": np.full(N, 7),
    "p_reader": P,
    "p_split": P * (1 - P),
    "p_values": P,
    "panel_size": np.full(N, 7),
    "predictions": P,
    "probs": P,
    "rater": np.tile([0, 1], N // 2),
    "sample_weight": np.ones(N),
    "split": np.repeat(["train", "val", "test"], N // 3),
    "strata": np.tile(["a", "b"], N // 2),
    "targets": Y.astype(float),
    "thresholds": np.array([0.2, 0.5]),
    "truth": P,
    "votes": VOTES,
    "vote_share": 0.5,
    "weights": np.ones(N),
    "y": Y,
    "y_val": Y[:20],
    "metric": "vote_nll",
    "rho": 0.1,
    # small and quick
    "interval": False,
    "max_bins": 64,
    "max_epochs": 2,
    "min_steps": 0,
    "n_folds": 2,
    "n_labelled": 100,
    "n_resamples": 20,
    "n_simulations": 20,
}
"""A good value of every argument that has no default, by its name: names mean the same everywhere."""

OTHERWISE: dict[str, dict[str, Any]] = {
    "scalecal.compare": {"panel_size": 7, "methods": ["none", "temperature"], "seeds": 1},
    "scalecal.calibrate": {"method": "temperature", "kappa": None, "vote_share": None},
    "calibrators.PanelCalibrator.predict_votes": {"n_raters": 7},
    "probes.LinearProbe.predict_votes": {"n_raters": 7},
    "probes.ScaleProbe.predict_votes": {"n_raters": 7},
    "calibrators.PanelCalibrator": {"kappa": None, "vote_share": None, "rho": None},
    "datasets.simulate": {"n": 40, "n_raters": 7, "auc": None},
    "datasets.simulate_paper": {"auc": 0.9},
    "panel.vote_log_pmf": {"n_raters": 7},
    "panel.panel_range": {"n_raters": 7},
    "planning.plan": {"n_raters": (3,), "n_cases": (200,)},
    "planning.plan_precision": {"n_raters": 7},
    "planning.plan_votes": {"n_raters": 7, "rho": (0.1,), "n_voted": (0, 25)},
    "probes.LinearProbe": {"kappa": None, "vote_share": None, "rho": None},
    "probes.ScaleProbe": {"kappa": None, "vote_share": None, "rho": None, "n_raters": 7},
    "synthesis.plan": {"n_raters": 7},
    "votes.majority": {"ties": "first"},
}
"""Values that differ for one function."""


class Call(NamedTuple):
    """Something public that can be called with arguments by name."""

    name: str
    run: Callable[..., Any]
    parameters: dict[str, inspect.Parameter]

    @property
    def arguments(self) -> dict[str, Any]:
        """Good arguments."""
        own = OTHERWISE.get(self.name, {})
        known = {name: own.get(name, EXAMPLES.get(name)) for name in self.parameters}
        if "groups" in known:  # which do not go with weights that count cases
            known.pop("sample_weight", None)
        for name, parameter in self.parameters.items():
            assert known.get(name) is not None or parameter.default is not parameter.empty, (
                f"{self.name}: add an example of {name} to EXAMPLES"
            )
        return {name: value for name, value in known.items() if value is not None}

    def of_kind(self, array: bool) -> Iterator[str]:
        """Names of the arguments that are arrays, or are not."""
        for name, parameter in self.parameters.items():
            annotation = str(parameter.annotation)
            if annotation.startswith("Callable"):
                continue
            if ("ArrayLike" in annotation) is array and not annotation.startswith(
                ("Float", "Int", "NDA")
            ):
                yield name


def _parameters(*functions: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return {
        name: parameter
        for function in functions
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def _fitted(estimator: type) -> Iterator[Call]:
    """Fitting an estimator, and each of its predictions."""
    name = (
        f"{'calibrators' if estimator in CALIBRATORS.values() else 'probes'}.{estimator.__name__}"
    )
    options, fit = _parameters(estimator), _parameters(estimator.fit)

    def fitted(**arguments: Any) -> Any:
        """Fit; an option of both, such as n_raters, is the constructor's."""
        return estimator(**{k: arguments[k] for k in options if k in arguments}).fit(
            **{k: arguments[k] for k in fit if k in arguments}
        )

    call = Call(name, fitted, {**fit, **options})
    yield call

    @cache
    def once() -> Any:
        return fitted(**call.arguments)

    for method in (
        "transform",
        "predict_interval",
        *filter(lambda m: m.startswith("predict"), dir(estimator)),
    ):
        if hasattr(estimator, method):
            parameters = _parameters(getattr(estimator, method))
            yield Call(
                f"{name}.{method}", lambda m=method, **a: getattr(once(), m)(**a), parameters
            )


def _calls() -> Iterator[Call]:
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) and name not in LEFT_OUT:
                yield Call(f"{module.__name__.split('.')[-1]}.{name}", value, _parameters(value))
    for estimator in (*CALIBRATORS.values(), scalecal.LinearProbe, scalecal.ScaleProbe):
        yield from _fitted(estimator)


CALLS = {call.name: call for call in _calls()}


def run(call: Call, **changed: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = {**call.arguments, **changed}
        if arguments.get("sample_weight") is not None:
            arguments.pop("groups", None)
        return call.run(**arguments)


def _frame(good: Any, **options: Any) -> Any:
    return (pd.Series if good.ndim == 1 else pd.DataFrame)(good, **options)


def _with_na(good: Any) -> Any:
    return pd.array([*good.tolist()[:-1], None])


CHANGED: dict[str, Callable[[Any], Any]] = {
    "complex": lambda good: np.arange(len(good)) + 1j,
    "masked": lambda good: np.ma.masked_array(good, np.arange(good.size).reshape(good.shape) == 0),
    "sparse": lambda good: scipy.sparse.csr_matrix(np.ones((1, len(good)))),
    "sparse array": lambda good: scipy.sparse.coo_array(np.ones((1, len(good)))),
    "sparse tensor": lambda good: torch.ones(len(good)).to_sparse(),
    "complex tensor": lambda good: torch.tensor(np.arange(len(good)) + 1j),
    "ragged": lambda _: [[0.1], [0.1, 0.2]],
    "records": lambda good: np.zeros(len(good), dtype=[("a", float)]),
}
"""Inputs that numpy would take for others, made from a good one: refused, naming the argument."""

SAME: dict[str, Callable[[Any], Any]] = {
    "longdouble": lambda good: good.astype(np.longdouble),
    "tensor": lambda good: torch.tensor(good),
    "tensor that requires grad": lambda good: torch.tensor(good.astype(float), requires_grad=True),
    "objects": lambda good: good.astype(object),
    "list": lambda good: good.tolist(),
    "frame or series": lambda good: _frame(good, index=range(5, 5 + len(good))),
    "nullable": lambda good: _frame(good).convert_dtypes(),
}
"""Inputs that hold the same numbers: refused, or the same answer."""

ODD: dict[str, Callable[[Any], Any]] = {
    "nullable with NA": _with_na,
    "None inside": lambda good: [*good.tolist()[:-1], None],
    "bytes": lambda good: good.astype("S8"),
    "bytes that are no text": lambda good: [b"\xff"] * len(good),
    "bytes objects": lambda good: good.astype("S8").astype(object),
    "text of numbers": lambda good: good.astype(str),
    "dates": lambda good: np.arange(len(good)).astype("M8[D]"),
    "0-d": lambda good: np.array(good.flat[0]),
    "empty": lambda _: np.array([]),
    "one text": lambda _: "x",
    "None": lambda _: None,
    "3-d": lambda good: np.ones((len(good), 1, 1)),
    "dict": lambda _: {"a": 1},
    "set": lambda _: {1, 2},
    "infinite": lambda good: np.full(len(good), np.inf),
    "huge": lambda good: np.full(good.shape, 1e300),
}
"""Inputs that are refused, or mean something to the function."""

SCALARS: tuple[Any, ...] = (
    "x", float("nan"), b"1", object(), True, -1, 1.5, float("inf"), 10**12, 10**400, 1j, [1, 2], {}, None,
    np.array([0.5, 0.5]), np.ma.masked, torch.tensor(0.5, requires_grad=True), np.datetime64("2020-01-01"),
    pd.NA,
)  # fmt: skip
"""Values of other arguments that are refused, or mean something to the function."""

SLOW = {
    "calibrators.PanelCalibrator",
    "datasets.simulate_paper",
    "panel.fit_panel",
    "panel.fit_panel_from_summary",
    "panel.panel_range",
    "planning.plan",
    "planning.plan_votes",
    "probes.LinearProbe",
    "probes.ScaleProbe",
    "scalecal.audit",
    "scalecal.calibrate",
    "scalecal.compare",
}
"""Given only what they refuse, which is quick."""

IGNORED = {"calibrators.PanelCalibrator": "vote_share", "probes.ScaleProbe": "vote_share"}
"""Arguments that have no part in what is computed from the examples."""


def _is_ignored(call: Call, argument: str) -> bool:
    if "Panel" not in call.name and call.name.startswith("calibrators.") and argument == "n_raters":
        return True  # only the panel looks at it
    return IGNORED.get(call.name) == argument


def _refusal(call: Call, argument: str, value: Any) -> str | None:
    """The message of the `InputError`; None where there is none; any other exception is a failure."""
    try:
        run(call, **{argument: value})
    except InputError as error:
        return str(error)
    except (TypeError, ValueError) as error:
        # scikit-learn's own, of embeddings and labels given to its kind of estimator.
        if call.name.startswith("probes.") and argument in ("X", "X_val", "y", "y_val"):
            return f"{argument}: {error}"
        raise AssertionError(f"{call.name}({argument}={value!r}): {error!r}") from error
    except Exception as error:
        raise AssertionError(f"{call.name}({argument}={value!r}): {error!r}") from error
    return None


def _array(call: Call, argument: str) -> Any:
    return np.atleast_1d(np.asarray(call.arguments.get(argument, EXAMPLES[argument])))


def _numbers(result: Any) -> list[Any]:
    """All numbers of a result, in order."""
    if isinstance(result, dict):
        return [n for value in result.values() for n in _numbers(value)]
    if isinstance(result, list | tuple):
        return [n for value in result for n in _numbers(value)]
    if isinstance(result, np.ndarray):
        return result.ravel().tolist()
    if isinstance(result, int | float | np.generic | str):
        return [result]
    return _numbers(vars(result)) if hasattr(result, "__dict__") else []


@pytest.mark.parametrize("name", CALLS)
def test_arrays_that_would_be_changed_are_refused(name):
    call = CALLS[name]
    for argument in call.of_kind(array=True):
        if _is_ignored(call, argument):
            continue
        for what, make in CHANGED.items():
            message = _refusal(call, argument, make(_array(call, argument)))
            assert message is not None, f"{name} took {argument} that is {what}"
            assert argument in message, f"{name}, {what}: {message!r} does not name {argument}"


@pytest.mark.parametrize("name", sorted(set(CALLS) - SLOW))
def test_an_array_of_another_kind_gives_the_same_numbers(name):
    call = CALLS[name]
    expected = _numbers(run(call))
    for argument in call.of_kind(array=True):
        if call.arguments.get(argument) is None:
            continue
        for what, make in SAME.items():
            value = make(_array(call, argument))
            if _refusal(call, argument, value) is None:
                np.testing.assert_array_equal(
                    _numbers(run(call, **{argument: value})),
                    expected,
                    f"{name}: {argument} as {what}",
                )


@pytest.mark.parametrize("name", sorted(set(CALLS) - SLOW))
def test_odd_arrays_are_refused_or_understood(name):
    call = CALLS[name]
    for argument in call.of_kind(array=True):
        for make in ODD.values():
            _refusal(call, argument, make(_array(call, argument)))


@pytest.mark.parametrize("name", CALLS)
def test_odd_options_are_refused_or_understood(name):
    call = CALLS[name]
    for argument in call.of_kind(array=False):
        for value in SCALARS[:4] if name in SLOW else SCALARS:
            message = _refusal(call, argument, value)
            assert message is None or len(message) < 1000
