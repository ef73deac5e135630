"""How often each claim's verdict is wrong, in worlds where the truth is known, as a Markdown table.

Run from the repository: python -m scripts.claim_rates [--runs 400] [--only NAME ...]

The worlds are those of the tests (`tests/paper/known_truth.py`): 977 cases, ten seeds, the truth at the
bound of the claim, where a verdict is wrong most often. An hour and more on one core.
"""

from __future__ import annotations

import argparse

from tests.paper.known_truth import SCENARIOS

from scalecal.paper.claims import VERDICTS


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of scenarios")
    options = parser.parse_args()
    print("| claim: scenario | holds, % | does not hold, % | wrong there |")
    print("|---|---|---|---|")
    for name, one in SCENARIOS.items():
        if not any(part in name for part in options.only):
            continue
        given = one.verdicts(options.runs, large=True)
        rates = [f"{100 * given[verdict] / options.runs:.1f}" for verdict in VERDICTS[:2]]
        wrong = "either" if len(one.wrong) == 2 else one.wrong[0]
        print(f"| {name} | {rates[0]} | {rates[1]} | {wrong} |", flush=True)


if __name__ == "__main__":
    main()
