"""How often a verdict is wrong, where the truth is known. SCALECAL_SLOW=1: all scenarios, large."""

from __future__ import annotations

import os

import pytest
from scipy.stats import binom

from scalecal.paper.claims import CLAIMS
from tests.paper.known_truth import SCENARIOS

SLOW = os.environ.get("SCALECAL_SLOW") == "1"
RUNS = 400 if SLOW else 10
ACCEPTED = 0.03

QUICK = (
    "scale-below-none: at the bound",
    "scale-below-none: seeds that differ much",
    "pcam-none: equal for one encoder",
    "pcam-none: equal for all encoders",
    "pcam-between: vanilla LS as no calibration",
    "recovers-real: all smoothings at the bound",
    "gap-to-real: all smoothings at the bound",
    "k-plateau: every K at the margin",
    "auc-preserved: all methods at the margin",
    "beyond-selection: calibrated",
    "high-stays-low: calibrated",
    "replication: one number at the bound",
)
"""Of each kind of rule one."""


@pytest.mark.validity
@pytest.mark.parametrize("name", SCENARIOS if SLOW else QUICK)
def test_wrong_verdicts_are_rare(name):
    """At most 3 % either way, even where the truth is at the bound."""
    one = SCENARIOS[name]
    given = one.verdicts(RUNS, large=SLOW)
    most = binom.ppf(0.999, RUNS, ACCEPTED)
    for verdict in one.wrong:
        assert given[verdict] <= most, given


def test_every_claim_on_data_has_a_world_with_a_known_truth():
    """Training times are read off a clock."""
    judged = {name for name, claim in CLAIMS.items() if claim.kind == "claim"}
    assert {one.claim for one in SCENARIOS.values()} == judged - {"five-minutes"}
    assert set(QUICK) <= set(SCENARIOS)
