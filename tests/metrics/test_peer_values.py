"""The clinical numbers against R and Python packages, whose values are in `peer_values.json`.

`scripts/peer_values.py` writes the file: data, values and versions.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from scalecal.metrics import METRICS, cox, spiegelhalter
from scalecal.metrics.arguments import Sample

SETS = json.loads(Path(__file__).with_name("peer_values.json").read_text())["sets"]

SAME = {
    "oe": ["statsmodels.oe"],
    "citl": ["glm.citl", "calzone.citl"],
    "slope": ["glm.slope", "rms.Slope", "calzone.slope"],
    "brier": ["rms.Brier"],
    "auc": ["pROC.auc", "rms.C"],
}
"""Ours -> theirs, of one definition."""


@pytest.fixture(params=SETS)
def peers(request):
    return SETS[request.param]["values"]


@pytest.fixture
def sample(peers):
    data = next(s["data"] for s in SETS.values() if s["values"] is peers)
    return Sample(np.array(data["y"], float), np.array(data["p"]), None), np.array(data["group"])


@pytest.mark.parametrize("ours", SAME)
def test_estimates_agree(ours, peers, sample):
    for theirs in SAME[ours]:
        assert METRICS[ours].value(sample[0]) == pytest.approx(peers[theirs], abs=1e-4), theirs


def test_scaled_brier_is_one_less_rms_brier_over_that_of_the_prevalence(peers, sample):
    share = sample[0].y.mean()
    expected = 1 - peers["rms.Brier"] / (share * (1 - share))
    assert METRICS["scaled_brier"].value(sample[0]) == pytest.approx(expected, abs=1e-9)


def test_the_line_and_the_test_of_spiegelhalter_agree(peers, sample):
    event, _ = sample
    line = cox(event.y, event.p).details
    for name in ("intercept", "slope"):
        assert line[name] == pytest.approx(peers[f"glm.{name}"], abs=1e-6)
    found = spiegelhalter(event.y, event.p).p_value
    assert found == pytest.approx(peers["calzone.spiegelhalter_p"], abs=1e-6)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", ["oe", "citl", "slope"])
def test_standard_errors_are_those_of_the_sandwich(name, grouped, peers, sample):
    """HC0, or with groups the cluster sandwich, without a correction for few of them."""
    event, group = sample
    values = METRICS[name].pseudo_values(event)
    parts = (values - values.mean()) / len(values)
    error = np.sqrt((parts**2).sum())
    if grouped:
        error = np.sqrt((np.bincount(group, parts) ** 2).sum())
    expected = peers[f"statsmodels.{name}_se_{'groups' if grouped else 'alone'}"]
    if name == "oe":
        expected *= peers["statsmodels.oe"]  # of O:E, not of its logarithm
    assert error == pytest.approx(expected, abs=1e-4)
    if name == "slope":
        other = peers["rms.robcov_slope_se" + "_alone" * (not grouped)]
        assert error == pytest.approx(other, abs=1e-4)


def test_the_standard_error_of_the_auc_is_delongs(peers, sample):
    event, _ = sample
    values = METRICS["auc"].pseudo_values(event)
    parts = (values - values.mean()) / len(values)
    positives = event.y == 1
    # DeLong divides by one less in each class.
    squared = [(p**2).sum() * len(p) / (len(p) - 1) for p in (parts[positives], parts[~positives])]
    assert np.sqrt(sum(squared)) == pytest.approx(peers["pROC.delong_se"], abs=1e-4)
