"""The checks of scripts/validity.py hold their limits. SCALECAL_SLOW=1: all of them, large."""

import os
import runpy
from pathlib import Path

import numpy as np
import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "validity.py"))
CHECKS, LIMITS, MIN_FOUND = (SCRIPT[key] for key in ("CHECKS", "LIMITS", "MIN_FOUND"))
SLOW = os.environ.get("SCALECAL_SLOW") == "1"
RUNS = 1000 if SLOW else 15
QUICK = (
    "977 cases",
    "16 groups of 60",
    "8 groups of 20",
    "98 groups of 10, paired",
    "16 groups of 60, difficulty seen",
    "977 cases, blind to difficulty",
    "200 cases enriched to half positives",
    "10 sites, 3 expected events",
    "10 sites in groups of 5",
    "10 sites of 30 to 400 cases, prevalence 0.3",
    "500 cases, calibrated, recalibrated",
    "20 groups of 20, five readers",
    "98 groups of 10, curve, prevalence .05",
)
"""Of each kind of check one."""
IGNORED = "groups ignored"  # columns that show what the package does not do


@pytest.mark.validity
@pytest.mark.parametrize("name", CHECKS if SLOW else QUICK)
def test_rates_are_within_their_limits(name):
    measured = SCRIPT["rates"](CHECKS[name], RUNS)
    assert measured
    for (table, column), rate in measured.items():
        if IGNORED in column:
            continue
        low, high = LIMITS[table]
        low = max(low, MIN_FOUND.get((name, column), 0.0))
        errors = [np.sqrt(end * (1 - end) / RUNS) for end in (low, high)]
        assert low - 3.5 * errors[0] <= rate <= high + 3.5 * errors[1], (table, column)


def test_what_must_be_found_is_measured():
    for check, column in MIN_FOUND:
        found = SCRIPT["rates"](CHECKS[check], 1)
        assert (SCRIPT["FOUND"], column) in found


def test_the_document_has_a_row_for_every_check():
    document = (Path(__file__).parent.parent / "docs" / "validity.md").read_text(encoding="utf-8")
    assert [name for name in CHECKS if f"| {name} |" not in document] == []
