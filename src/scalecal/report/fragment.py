"""An audit inside a notebook, or as a small page of its own."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from scalecal.auditing.sentences import SHOWN, cell, shown_columns
from scalecal.auditing.vote_bins import vote_reliability
from scalecal.io.text import number
from scalecal.report import figures
from scalecal.report.svg import COLOURS, colour_rules
from scalecal.report.views import stratum_title
from scalecal.runs.facts import reliability_facts

if TYPE_CHECKING:
    from scalecal.auditing.audits import Audit

_MOST_PANELS = 6


def _panels(audit: Audit) -> str:
    """Reliability diagrams of the first strata, and that against votes, as SVG."""
    drawn = []
    agreement = audit.meta["strata"] == "agreement"
    for panel in (*reliability_facts(audit)[:_MOST_PANELS], *vote_reliability(audit)[:1]):
        title = stratum_title(panel["stratum"], agreement)
        if "votes" in panel:
            title = "one reader’s vote"
        svg = figures.reliability_panel(
            panel, title=title, event=audit.meta["event"], role="accent"
        )
        caption = f"<b>{escape(title)}</b>, n = {number(panel['n'])}"
        drawn.append(f'<div style="width:240px">{caption}<br>{svg.svg()}</div>')
    return "".join(drawn)


def audit_html(audit: Audit) -> str:
    """Return an audit as a piece of HTML: sentences, table, reliability diagrams; everything escaped.

    It brings its own colours and touches nothing outside itself, as a notebook wants it.
    """
    agreement = audit.meta["strata"] == "agreement"
    used = shown_columns(audit.rows, SHOWN[1:])
    head = "".join(f'<th style="text-align:right">{escape(c.title)}</th>' for c in used)
    body = []
    for row in audit.rows:
        cells = "".join(
            f'<td style="text-align:right">{escape(cell(c.key, row.get(c.key)))}</td>' for c in used
        )
        name = escape(stratum_title(row["name"], agreement))
        body.append(f'<tr><th style="text-align:left">{name}</th>{cells}</tr>')
    rules = colour_rules(".scalecal ")
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in audit.sentences)
    notes = "".join(f"<li>{escape(note)}</li>" for note in audit.notes)
    return (
        f'<div class="scalecal" style="font-family:system-ui,sans-serif;background:{COLOURS["paper"]};'
        f'color:{COLOURS["ink"]};padding:12px;max-width:1040px"><style>{rules}</style>{said}'
        '<div style="overflow-x:auto"><table style="border-spacing:12px 4px;'
        f'font-variant-numeric:tabular-nums"><thead><tr><th style="text-align:left">cases</th>{head}'
        f"</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        f'<div style="display:flex;flex-wrap:wrap;gap:12px">{_panels(audit)}</div>'
        + (f"<ul>{notes}</ul>" if notes else "")
        + "</div>"
    )


def audit_page(audit: Audit) -> str:
    """Return the same as a page of its own, for `Audit.to_html`."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Audit · scalecal</title></head><body>{audit_html(audit)}</body></html>\n"
    )
