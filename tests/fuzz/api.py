"""The Python API: odd values for every argument of estimators, calibrators, metrics and audits."""

from __future__ import annotations

import array
import datetime
import decimal
import fractions
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.engine import Case, Surface

N = 24
SCALARS = (
    "n_bins",
    "max_bins",
    "n_resamples",
    "seed",
    "level",
    "rho",
    "prevalence",
    "kappa",
    "method",
)


def _usual(name: str, classes: int) -> Any:
    """A valid value of an argument."""
    rng = np.random.default_rng(3)
    y = np.arange(N) % classes
    p = np.clip(0.2 + 0.6 * (y == 1) + 0.1 * rng.normal(size=N), 0.05, 0.95)
    several = rng.dirichlet(np.ones(classes), size=N)
    votes = np.stack([1 + 2 * (y == c) for c in range(classes)], axis=1)
    values: dict[str, Any] = {
        "y": y,
        "probs": p if classes == 2 else several,
        "p_reader": p if classes == 2 else several,
        "logits": np.log(p / (1 - p)) if classes == 2 else np.log(several),
        "votes": votes,
        "n_raters": None,
        "thresholds": np.array([0.1, 0.5]),
        "p_values": np.array([0.01, 0.5]),
        "groups": np.arange(N) // 2,
        "strata": np.array(["a", "b"] * (N // 2)),
        "sample_weight": np.ones(N),
        "X": rng.normal(size=(N, 3)),
        "X_val": rng.normal(size=(N, 3)),
        "y_val": y,
        "n_resamples": 20,
        "metric": "vote_nll",
        "panel_size": 3,
        "case": np.repeat(np.arange(N // 2), 2),
        "rater": np.arange(N) % 2,
        "label": y,
        "steps": [],
        "predictions": p,
    }
    return values.get(name)


def _odd(rng: Random, usual: Any) -> Any:
    """A value that nobody meant, made of a valid one where it is an array."""
    if rng.random() < 0.65 and usual is not None and np.ndim(usual) > 0:
        return rng.choice(_ARRAYS)(np.asarray(usual), rng)
    return rng.choice(_VALUES)(rng)


def _numbers(a: Any) -> Any:
    """An array as numbers; those of text count its elements."""
    return np.asarray(a if a.dtype.kind in "biuf" else np.arange(a.size).reshape(a.shape), float)


def _tensor(a: Any, grad: bool = False) -> Any:
    import torch

    return torch.tensor(_numbers(a), requires_grad=grad)


def _frame(a: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(np.asarray(a).reshape(len(a), -1))


def _series(a: Any, kind: str) -> Any:
    import pandas as pd

    if np.ndim(a) > 1:
        return pd.DataFrame(a).astype(kind, errors="ignore")
    return pd.Series(a, index=range(5, 5 + len(a))).astype(kind, errors="ignore")


def _sparse(a: Any) -> Any:
    from scipy import sparse

    return sparse.csr_matrix(_numbers(a).reshape(len(a), -1))


def _with(a: Any, value: Any) -> Any:
    out = _numbers(a).copy()
    out.reshape(-1)[0] = value
    return out


def _objects(a: Any, value: Any) -> Any:
    out = np.asarray(a).astype(object)
    out.reshape(-1)[0] = value
    return out


class _Raises:
    """An array-like whose conversion fails."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array")


_ARRAYS: tuple[Callable[[Any, Random], Any], ...] = (
    lambda a, _: _tensor(a),
    lambda a, _: _tensor(a, grad=True),
    lambda a, _: a.astype(np.longdouble),
    lambda a, _: a.astype(complex) + 1j,
    lambda a, _: np.ma.masked_array(a, mask=np.arange(a.size).reshape(a.shape) % 3 == 0),
    lambda a, _: _sparse(a),
    lambda a, _: a.astype("S8"),
    lambda a, _: a.astype(str),
    lambda a, _: a.astype(object),
    lambda a, r: _objects(a, r.choice((None, "x", [1], {}, object(), decimal.Decimal(1), np.nan))),
    lambda a, r: a.astype(r.choice(("f2", ">f8", "f4", "i1", "u1", "u8", "?"))),
    lambda a, _: a[:0],
    lambda a, _: a[:1],
    lambda a, _: a[:-1],
    lambda a, _: np.concatenate([a, a]),
    lambda a, _: a[::-1],
    lambda a, _: a.reshape(*a.shape, 1),
    lambda a, _: a.reshape(1, *a.shape),
    lambda a, _: a.reshape(-1),
    lambda a, _: a.reshape(len(a), -1),
    lambda a, r: _with(a, r.choice((np.nan, np.inf, -np.inf, -1, 2, 1e160, 1e308, 1e-320, 0.5))),
    lambda a, r: np.full(a.shape, r.choice((np.nan, 0.0, 1.0, -1.0, 1e160, 2.5))),
    lambda a, _: a.tolist(),
    lambda a, r: [*a.tolist()[:-1], r.choice(([1, 2, 3], "x", None))],
    lambda a, _: tuple(a.tolist()),
    lambda a, _: iter(a.tolist()),
    lambda a, _: (x for x in a.tolist()),
    lambda a, _: dict(enumerate(a.tolist())),
    lambda a, _: set(map(str, a.tolist())),
    lambda a, _: _frame(a),
    lambda a, r: _series(
        a,
        r.choice(("float64", "Float64", "category", "string", "datetime64[ns]", "object", "Int64")),
    ),
    lambda a, _: np.matrix(a),
    lambda a, _: memoryview(np.ascontiguousarray(_numbers(a))),
    lambda a, _: array.array("d", _numbers(a).reshape(-1).tolist()),
    lambda a, _: a.astype("M8[s]") if a.dtype.kind in "iu" else a.astype("V8"),
    lambda a, _: np.zeros(len(a), [("a", "f4"), ("b", "i4")]),
    lambda a, _: np.broadcast_to(np.asarray(a.reshape(-1)[0]), a.shape),
    lambda a, _: -np.asarray(a, float) if a.dtype.kind in "iuf" else a,
    lambda a, _: np.asarray(a, float) * 1e160 if a.dtype.kind in "iuf" else a,
)

_VALUES: tuple[Callable[[Random], Any], ...] = (
    lambda r: r.choice(
        (None, True, False, "", "x", b"x", "auto", "none", Ellipsis, NotImplemented)
    ),
    lambda r: r.choice((0, 1, -1, 2, 10**6, 10**12, 2**63, -(2**63), 10**30, 3)),
    lambda r: r.choice(
        (0.0, -0.5, 0.5, 1.0, 1.5, 1e160, 1e308, 5e-324, float("nan"), float("inf"))
    ),
    lambda r: r.choice(
        (1j, np.complex64(1), np.float16(0.5), np.longdouble(0.5), np.int8(3), np.bool_(True))
    ),
    lambda r: r.choice(
        (decimal.Decimal("0.5"), fractions.Fraction(1, 2), datetime.date(2020, 1, 1))
    ),
    lambda r: r.choice(
        ([], {}, set(), (), [[]], [None], ["a"], [0.5, "a"], {"a": 1}, [[1], [1, 2]])
    ),
    lambda r: r.choice(
        (np.array(0.5), np.array([]), np.array(None), np.array("x"), np.zeros((2, 2, 2)))
    ),
    lambda r: r.choice((object(), int, len, lambda *_: 1, _Raises(), range(3), Path("x"))),
    lambda r: r.choice((np.random.default_rng(0), np.random.RandomState(0), np.datetime64("NaT"))),
)


def _targets() -> dict[str, Callable[..., Any]]:
    """Everything public, as functions that take keywords."""
    import scalecal
    from scalecal import calibrators, metrics, smoothing, splits, votes
    from scalecal.evaluation.recalibration import calibrate

    found: dict[str, Callable[..., Any]] = {
        f"metrics.{name}": getattr(metrics, name)
        for name in metrics.__all__
        if inspect.isfunction(getattr(metrics, name))
    }
    for name in (
        "fleiss_kappa",
        "krippendorff_alpha",
        "majority",
        "strata",
        "from_long",
    ):
        found[f"votes.{name}"] = getattr(votes, name)
    for name in ("folds", "hold_out", "split"):
        found[f"splits.{name}"] = getattr(splits, name)
    for name in ("vanilla", "soft_labels", "confidence"):
        found[f"smoothing.{name}"] = getattr(smoothing, name)
    found["audit"] = scalecal.audit
    found["calibrate"] = calibrate
    for name, kind in calibrators.CALIBRATORS.items():
        found[f"calibrators.{name}"] = kind
    found["LinearProbe"] = scalecal.LinearProbe
    found["ScaleProbe"] = scalecal.ScaleProbe
    return found


def _prepare(_: Path) -> dict[str, Any]:
    targets = _targets()
    light = [name for name in targets if name not in HEAVY]
    parameters = {
        name: list(inspect.signature(f).parameters.values()) for name, f in targets.items()
    }
    # What a call fits to, beside the arguments of its constructor.
    return {"targets": targets, "light": light, "parameters": parameters}


HEAVY = (
    "audit",
    "calibrate",
    "LinearProbe",
    "ScaleProbe",
    "calibrators.panel",
    "calibrators.structured-matrix",
)


def _draw(rng: Random, seeds: Any, _: Path) -> Case:
    name = rng.choice(HEAVY) if rng.random() < 0.05 else rng.choice(seeds["light"])
    target, parameters = seeds["targets"][name], seeds["parameters"][name]
    classes = rng.choice((2, 2, 3))
    estimator = inspect.isclass(target)
    own = {p.name: p for p in parameters}
    given = {
        p.name: _usual(p.name, classes)
        for p in parameters
        if p.default is inspect.Parameter.empty and p.kind is not inspect.Parameter.VAR_KEYWORD
    }
    if "n_resamples" in own:
        given["n_resamples"] = 20
    fitting = _fitting(name, classes) if estimator else {}
    changed = rng.sample([*own, *fitting], min(rng.choice((1, 1, 1, 2)), len(own) + len(fitting)))
    changed = [
        c for c in changed if own.get(c) is None or own[c].kind is not inspect.Parameter.VAR_KEYWORD
    ]
    for argument in changed:
        odd = _odd(rng, _usual(argument, classes))
        if argument in fitting:
            fitting[argument] = odd
        else:
            given[argument] = odd
    if name.endswith("Probe"):
        given = {"max_epochs": 1, "min_steps": 1, **given}

    def call() -> object:
        if not estimator:
            return target(**given)
        made = target(**given)
        if name.endswith("Probe"):
            made.fit(**fitting)
            return made.predict_proba(fitting["X"])
        made.fit(**fitting)
        return made.predict_proba(fitting["logits"])

    about = f"{name}({', '.join(changed)})"
    return Case(call, (), about, allowed=_from_sklearn if estimator else None)


def _fitting(name: str, classes: int) -> dict[str, Any]:
    if name.endswith("Probe"):
        return {
            "X": _usual("X", classes),
            "y": _usual("y", classes),
            "sample_weight": None,
            "groups": None,
            "votes": None,
        }
    return {"logits": _usual("logits", classes), "y": _usual("y", classes), "sample_weight": None}


def _from_sklearn(error: BaseException) -> bool:
    """Whether scikit-learn's own checks raised an error, as its conventions ask for."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    return isinstance(error, ValueError | TypeError) and "sklearn" in last


SURFACES = {"api": Surface("Python API", _prepare, _draw, share=5, tested=400)}
