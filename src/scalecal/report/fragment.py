"""An audit inside a notebook, or as a small page of its own: verdict, diagrams and numbers of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scalecal.auditing.sentences import SHOWN, cell, shown_columns
from scalecal.auditing.verdict import points
from scalecal.auditing.vote_bins import vote_reliability
from scalecal.io.store import plain
from scalecal.io.text import number
from scalecal.report import figures
from scalecal.report.templates import asset, template
from scalecal.report.views import stratum_title, svg
from scalecal.runs.facts import reliability_facts

if TYPE_CHECKING:
    from scalecal.auditing.audits import Audit

_MOST_PANELS = 6


def _panels(audit: Audit) -> list[dict[str, Any]]:
    """Reliability diagrams of the first strata, and that against votes."""
    drawn = []
    agreement = audit.meta["strata"] == "agreement"
    panels: list[Any] = plain(
        [*reliability_facts(audit, _MOST_PANELS), *vote_reliability(audit)[:1]]
    )
    for panel in panels:
        title = stratum_title(panel["stratum"], agreement)
        if "votes" in panel:
            title = "one reader’s vote"
        sheet = figures.reliability_panel(
            panel, title=title, event=audit.meta["event"], role="accent"
        )
        band = figures.calibrated_band(panel)
        said = f"error {points(panel['ece'])}{band and f'; calibrated: {band}'}"
        drawn.append({"title": title, "n": panel["n"], "said": said, "svg": svg(sheet)})
    return drawn


def audit_html(audit: Audit) -> str:
    """Return an audit as a piece of HTML: verdict, answers, diagrams, table; everything escaped.

    It brings its own colours, light and dark, and touches nothing outside itself, as a notebook wants it.
    """
    agreement = audit.meta["strata"] == "agreement"
    used = shown_columns(audit.shown_rows, SHOWN[1:])
    body = [
        (stratum_title(row["name"], agreement), [cell(c.key, row.get(c.key)) for c in used])
        for row in audit.shown_rows
    ]
    colours = asset("shared.css").replace(":root", ".scalecal").replace("\n.", "\n.scalecal .")
    return str(
        template("fragment.html").render(
            audit=audit,
            css=colours + asset("fragment.css"),
            panels=_panels(audit),
            titles=[column.title for column in used],
            body=body,
            notes=audit.shown_notes,
        )
    )


def audit_page(audit: Audit) -> str:
    """Return the same as a page of its own, for `Audit.to_html`."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><title>Audit · scalecal</title>'
        "<style>body { margin: 0; background: #fff; color: #16191d; } "
        "h1 { font: 650 1.4rem system-ui, sans-serif; max-width: 1100px; margin: 1rem auto 0; "
        "padding: 0 1rem; } @media (prefers-color-scheme: dark) "
        "{ body { background: #121518; color: #e8ebee; } }</style></head><body><main>"
        f"<h1>Audit of {number(audit.meta['n'])} case{'' if audit.meta['n'] == 1 else 's'}</h1>"
        f"{audit_html(audit)}</main></body></html>\n"
    )
