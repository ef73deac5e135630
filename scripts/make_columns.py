"""Write docs/columns.md: every quantity of an audit or a run, from `scalecal.metrics.COLUMNS`."""

from __future__ import annotations

from pathlib import Path

from scalecal.metrics import COLUMNS

TARGET = Path(__file__).parent.parent / "docs" / "columns.md"

HEAD = """# What the columns mean

Keys of `audit.csv`, `audit.json`, `Audit.rows` and of the column `metric` of `results.csv`, in the
order of the tables. `python scripts/make_columns.py` writes this page from `scalecal.metrics.COLUMNS`.

Labels judge the probability of the label, `p`; where the last column says so, votes judge the probability
of a reader's vote, `p_reader` (`p` where there is none).

Where cases come in groups (patients, slides), floors, nulls, p-values and intervals take groups as
independent, not cases. With fewer than eight groups they are missing, and so are intervals with fewer
than eight cases: `reason` says so. [docs/validity.md](validity.md) has what was measured of them.

| key | title | meaning | better | floor | judge |
|---|---|---|---|---|---|
"""

BETTER = {"lower": "lower", "higher": "higher", "zero": "near 0", "none": ""}


def text() -> str:
    """Return the page."""
    lines = [
        f"| `{c.key}` | {c.title} | {c.meaning}. | {BETTER[c.direction]} | "
        f"{f'`{c.floor}`' if c.floor else ''} | {'votes' if c.votes else ''} |\n"
        for c in COLUMNS.values()
    ]
    return HEAD + "".join(lines)


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
