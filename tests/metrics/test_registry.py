"""Promises that every metric keeps."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import scalecal.metrics as package
from scalecal.checks import InputError
from scalecal.metrics import METRICS
from scalecal.metrics.arguments import read_sample, read_votes

PUBLIC = [name for name in METRICS if hasattr(package, name)]
LABELS = [name for name in PUBLIC if not METRICS[name].votes]
VOTES = [name for name in PUBLIC if METRICS[name].votes]


def _call(name, y, p, **options):
    metric = METRICS[name]
    if metric.votes:
        options.setdefault("n_raters", 5)
    return getattr(package, name)(y, p, **options)


def _data(name, rng, n=60):
    p = rng.random(n)
    return (rng.binomial(5, p) if METRICS[name].votes else (rng.random(n) < p) * 1), p


def test_every_public_function_is_listed_or_is_no_scalar_metric():
    others = {
        "bin_index", "bins", "consistency", "consistency_bars", "cox", "holm", "kuiper",
        "net_benefit", "noise_floor", "resampled_ece",
        "spiegelhalter", "treat_all",
    }  # fmt: skip
    functions = {n for n in package.__all__ if inspect.isfunction(getattr(package, n))}
    assert functions - others == set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_record(name):
    metric = METRICS[name]
    assert metric.key == name
    assert (
        sum(getattr(metric, k) is not None for k in ("term", "pseudo_values", "bins", "function"))
        == 1
    )
    parameters = inspect.signature(getattr(package, name)).parameters
    assert list(parameters)[:2] == ["votes" if metric.votes else "y", "probs"]
    options = list(parameters.values())[2:]
    assert all(o.kind is o.KEYWORD_ONLY for o in options)
    assert parameters["sample_weight"].default is None
    with pytest.raises(AttributeError):
        metric.title = "other"


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_public_function_is_a_check_and_the_record(name, n_classes, rng):
    p = rng.dirichlet(np.ones(n_classes), 80)
    votes = rng.multinomial(5, p)
    y, w = votes.argmax(axis=1), rng.integers(1, 4, 80)
    if METRICS[name].votes:
        sample = read_votes(votes, p, sample_weight=w)
        found = getattr(package, name)(votes, p, sample_weight=w)
    else:
        sample = read_sample(y, p, w)
        found = getattr(package, name)(y, p, sample_weight=w)
    assert METRICS[name].value(sample) == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize("name", PUBLIC)
def test_contract(name, rng):
    y, p = _data(name, rng)
    value = _call(name, y, p)
    assert isinstance(value, float)
    assert np.isfinite(value)
    shuffled = rng.permutation(len(p))
    assert _call(name, y[shuffled], p[shuffled]) == pytest.approx(value, rel=1e-9, abs=1e-12)
    times = rng.integers(0, 4, len(p))
    assert _call(name, y, p, sample_weight=times) == pytest.approx(
        _call(name, np.repeat(y, times), np.repeat(p, times)), rel=1e-9, abs=1e-12
    )
    assert _call(name, list(y), list(p)) == value


@pytest.mark.parametrize("name", PUBLIC)
def test_two_columns_equal_one(name, rng):
    y, p = _data(name, rng)
    columns = np.column_stack([1 - p, p])
    if METRICS[name].votes:
        found = getattr(package, name)(np.column_stack([5 - y, y]), columns)
    else:
        found = getattr(package, name)(y, columns)
    assert found == pytest.approx(_call(name, y, p), abs=1e-12)


@pytest.mark.parametrize("name", PUBLIC)
def test_inputs_are_left_alone(name, rng):
    y, p = _data(name, rng)
    before = y.copy(), p.copy()
    y.flags.writeable = p.flags.writeable = False
    _call(name, y, p)
    np.testing.assert_array_equal(y, before[0])
    np.testing.assert_array_equal(p, before[1])


@pytest.mark.parametrize("name", PUBLIC)
def test_direction(name, rng):
    """Sharp and true beats its opposite, in the direction the record states."""
    truth = (rng.random(80) < 0.5) * 1
    votes = 5 * truth if METRICS[name].votes else truth
    good, bad = np.where(truth, 0.98, 0.02), np.where(truth, 0.1, 0.9)
    if name.startswith("split"):  # these look at whether the panel splits
        votes, good, bad = 2 * truth, np.where(truth, 0.5, 0.02), np.where(truth, 0.02, 0.5)
    if name == "ent_ce":  # looks at the spread alone, so a mirror image scores the same
        bad = np.full(80, 0.5)
    difference = _call(name, votes, good) - _call(name, votes, bad)
    assert difference < 0 if METRICS[name].direction != "higher" else difference > 0


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize(
    ("probs", "message"),
    [
        ([0.5, 3.2], "Did you pass logits"),
        ([0.5, float("nan")], "row 1"),
        ([0.5], "same number of cases"),
        ([], "empty"),
        ([[0.5], [0.5]], "one column per class"),
        ([[0.5, 0.6], [0.5, 0.5]], "sum to 1"),
    ],
)
def test_bad_probs(name, probs, message):
    with pytest.raises(InputError, match=message):
        _call(name, [0, 1], probs)


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize(
    ("y", "message"),
    [([0, 2], "y must be 0 or 1"), ([0, float("nan")], "row 1"), (["a", "b"], "y must be")],
)
def test_bad_labels(name, y, message):
    with pytest.raises(InputError, match=message):
        _call(name, y, [0.2, 0.3])


@pytest.mark.parametrize("name", VOTES)
def test_bad_votes(name):
    with pytest.raises(InputError, match="exceed n_raters"):
        _call(name, [3, 7], [0.2, 0.3])


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize(
    ("weights", "message"),
    [([1], "one value per case"), ([1, -1], "negative"), ([0, 0], "all be zero")],
)
def test_bad_weights(name, weights, message):
    with pytest.raises(InputError, match=message):
        _call(name, [0, 1], [0.2, 0.3], sample_weight=weights)


@pytest.mark.parametrize("name", PUBLIC)
def test_one_case(name):
    assert isinstance(_call(name, [1], [0.3]), float)
