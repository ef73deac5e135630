"""Class weights: scikit-learn's convention, early stopping that sees them, calibration that undoes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_class_weight
from typer.testing import CliRunner

from scalecal import LinearProbe, ScaleProbe
from scalecal.checks import InputError
from scalecal.cli import app
from scalecal.probes import load_probe
from scalecal.probes.fitting import class_weights
from scalecal.solvers import Task, train

pytestmark = pytest.mark.filterwarnings("ignore::scalecal.checks.ScalecalWarning")

# At a rate of 0.01 Adam still moves to and fro by 1e-3 around the optimum.
CONVERGED: dict[str, Any] = {
    **{"max_epochs": 6000, "min_steps": 0, "learning_rate": 0.005},
    **{"scaling": "none", "validation_share": 0.0},
}


def rare(n: int = 400, classes: int = 2, seed: int = 0) -> tuple[Any, Any]:
    """Cases of which few are of the last class."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    logits = 1.5 * X[:, :classes] + np.linspace(0, -2.5, classes)
    return X, (logits + rng.gumbel(size=(n, classes))).argmax(axis=1)


@pytest.mark.parametrize("classes", [2, 3])
def test_balanced_weights_are_scikit_learns(classes: int) -> None:
    _, y = rare(classes=classes)
    peer = compute_class_weight("balanced", classes=np.arange(classes), y=y)
    np.testing.assert_allclose(class_weights("balanced", y, classes), peer)


def test_a_weight_counts_identical_cases() -> None:
    _, y = rare()
    w = np.random.default_rng(1).integers(0, 4, len(y))
    repeated = class_weights("balanced", np.repeat(y, w), 2)
    np.testing.assert_allclose(class_weights("balanced", y, 2, w), repeated)


@pytest.mark.parametrize("classes", [2, 3])
def test_balanced_probes_equal_scikit_learn(classes: int) -> None:
    X, y = rare(classes=classes)
    ours = LinearProbe(
        decay=1 / len(X), batch_size=len(X), class_weight="balanced", **CONVERGED
    ).fit(X, y)
    peer = LogisticRegression(class_weight="balanced", tol=1e-10, max_iter=2000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-3)
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        *((LinearProbe, weights) for weights in ("balanced", {0: 0.5, 1: 4.0}, {1: 3})),
        (ScaleProbe, "balanced"),
    ],
)
def test_class_weights_are_sample_weights(kind: Any, weights: Any) -> None:
    """The held-out part, which stops the training, included."""
    X, y = rare()
    each = class_weights("balanced", y, 2)
    if isinstance(weights, dict):
        each = np.array([weights.get(0, 1.0), weights[1]])
    named = kind(min_steps=200, class_weight=weights).fit(X, y)
    explicit = kind(min_steps=200).fit(X, y, sample_weight=each[y])
    np.testing.assert_allclose(named.coef_, explicit.coef_, atol=1e-10)
    np.testing.assert_allclose(named.history_, explicit.history_, atol=1e-10)


def test_class_weights_multiply_sample_weights() -> None:
    X, y = rare()
    w = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    both = LinearProbe(min_steps=500, class_weight={1: 3.0}).fit(X, y, sample_weight=w)
    product = LinearProbe(min_steps=500).fit(X, y, sample_weight=w * np.where(y == 1, 3.0, 1.0))
    np.testing.assert_allclose(both.coef_, product.coef_, atol=1e-10)


def test_early_stopping_sees_the_weights() -> None:
    """An unweighted held-out loss would rise from the first step, and keep the weights at zero."""
    X, y = rare(800)
    probe = LinearProbe(class_weight={0: 50.0}, min_steps=1000, learning_rate=0.01).fit(X, y)
    assert probe.best_iter_ > 10
    assert probe.predict_proba(X)[:, 0].mean() > 0.9


def test_validation_given_by_the_user_is_weighted_by_class() -> None:
    X, y = rare(800)
    names = np.array(["benign", "malignant"])[y]
    options = {"class_weight": {"malignant": 9.0}, "min_steps": 1000}
    probe = LinearProbe(**options).fit(X[:500], names[:500], X_val=X[500:], y_val=names[500:])
    z = X[500:] @ probe.coef_[0] + probe.intercept_[0]
    w = np.where(y[500:] == 1, 9.0, 1.0)
    loss = np.average(np.logaddexp(0, z) - y[500:] * z, weights=w)
    assert probe.history_.min() == pytest.approx(loss, rel=1e-6)


def test_validation_weights_repeat_cases() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    t = (X[:, 0] + rng.normal(size=60) > 0).astype(float)
    held, w = np.arange(40, 60), rng.integers(1, 4, 20)
    common: dict[str, Any] = {"rows": np.arange(40), "targets": t[:40]}
    weighted = Task(**common, validation=held, validation_targets=t[held], validation_weights=w)
    again = np.repeat(held, w)
    repeated = Task(**common, validation=again, validation_targets=t[again])
    plain = Task(**common, validation=held, validation_targets=t[held])
    fits = train(X, [weighted, repeated, plain], max_epochs=30, min_steps=0)
    np.testing.assert_allclose(fits[0].history, fits[1].history, rtol=1e-10)
    assert not np.allclose(fits[0].history, fits[2].history)


def test_balanced_probabilities_are_of_equal_classes_and_a_panel_undoes_it() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = (rng.binomial(5, expit(2 * X[:, 0] - 3)) >= 3).astype(int)
    assert y.mean() < 0.1
    options: dict[str, Any] = {"min_steps": 1000, "learning_rate": 0.05}

    def mean_p(probe: LinearProbe, **known: Any) -> float:
        return float(probe.fit(X, y, **known).predict_proba(X)[:, 1].mean())

    assert mean_p(LinearProbe(**options)) == pytest.approx(y.mean(), abs=0.02)
    assert mean_p(LinearProbe(class_weight="balanced", **options)) > y.mean() + 0.05
    both = LinearProbe(class_weight="balanced", rho=0.0, **options)
    assert mean_p(both, n_raters=5) == pytest.approx(y.mean(), abs=0.01)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ("even", "class_weight must be"),
        ({2: 1.0}, "class_weight names 2, which is not a class of y: 0, 1"),
        ({1: 0.0}, "class_weight must be above 0"),
        ({1: np.nan}, "class_weight must be above 0"),
    ],
)
def test_bad_class_weights(weights: Any, words: str) -> None:
    X, y = rare()
    with pytest.raises(InputError, match=words):
        LinearProbe(class_weight=weights).fit(X, y)


@pytest.mark.parametrize("weights", ["balanced", {0: 0.5, 1: 4.0}])
def test_class_weights_are_saved(weights: Any, tmp_path: Any) -> None:
    X, y = rare()
    LinearProbe(class_weight=weights, min_steps=100).fit(X, y).save(tmp_path)
    assert load_probe(tmp_path).class_weight == weights


@pytest.mark.usefixtures("brief_training")
def test_the_command_balances(tmp_path: Any) -> None:
    X, y = rare()
    np.savez(tmp_path / "f.npz", X=X, y=y)

    def fit(*options: str) -> Any:
        common = ["fit", str(tmp_path / "f.npz"), "--preset", "default"]
        return CliRunner().invoke(app, [*common, *options])

    for method in ("none", "scale-default"):
        where = str(tmp_path / method)
        result = fit("--method", method, "--out", where, "--class-weight", "balanced")
        assert result.exit_code == 0, (result.output, result.exception)
        assert load_probe(where).class_weight == "balanced"
    plain = fit("--method", "none", "--out", str(tmp_path / "plain"))
    assert plain.exit_code == 0
    shares = [
        load_probe(tmp_path / name).predict_proba(X)[:, 1].mean() for name in ("none", "plain")
    ]
    assert shares[0] > shares[1] + 0.05
    wrong = fit("--method", "none", "--out", str(tmp_path / "x"), "--class-weight", "even")
    assert isinstance(wrong.exception, InputError)
