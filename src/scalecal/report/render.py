"""Facts to one self-contained HTML file, by a Jinja template with escaping on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalecal.checks import InputError
from scalecal.io.store import check_output_file, write_file, written_by
from scalecal.io.text import csv_text
from scalecal.report.casework import add_images
from scalecal.report.downloads import data_uri
from scalecal.report.page import page_view
from scalecal.report.payload import as_parsed, case_arrays, payload
from scalecal.report.runs import Cell, read_runs
from scalecal.report.summary import collect
from scalecal.report.views import cell_view

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MOST_BYTES", "MOST_WITH_IMAGES", "write_report"]

MOST_BYTES = 2_000_000
"""Size of a page without thumbnails, at most."""

MOST_WITH_IMAGES = 8_000_000
"""Size of a page with thumbnails, at most."""


@dataclass(frozen=True)
class Detail:
    """How much a page holds: bytes of case arrays and of results, cases listed, models drawn."""

    arrays: int
    results: int
    cases: int
    models: int


# Tried in turn until the page is small enough.
DETAILS = (
    Detail(800_000, 300_000, 8, 24),
    Detail(300_000, 150_000, 5, 12),
    Detail(100_000, 50_000, 3, 6),
    Detail(0, 0, 2, 2),
    Detail(0, 0, 1, 1),
)


def write_report(
    runs: Sequence[str | Path], out: str | Path, *, images: Path | None = None
) -> Path:
    """Write one self-contained page on one or several run folders of any kind.

    Parameters
    ----------
    runs
        Folders that `scalecal audit`, `compare`, `reproduce` or `demo` wrote.
    out
        The HTML file to write.
    images
        Folder that the cases' paths start from, for thumbnails and links; by default the folder
        that the run names.

    Returns
    -------
    The file written.
    """
    out = Path(out)
    if images is not None and not Path(images).is_dir():
        raise InputError(f"no folder at {images}: --images names the folder of the images")
    inputs = [*runs, images]
    # The report in a run's own folder belongs to the run, which makes it anew when it is run again.
    kind = (out.name == "report.html" and written_by(out.parent / "run.json")) or "report"
    check_output_file(out, kind=kind, inputs=inputs)
    read = read_runs(runs)
    facts, cells, tidy = collect(read)
    notes, thumbnails = _images(facts, cells, out, images)
    text = ""
    for detail in DETAILS:
        text = _page(facts, cells, tidy, detail, notes)
        if len(text.encode("utf-8")) - thumbnails <= MOST_BYTES:
            break
    write_file(out, text, kind=kind, inputs=inputs)
    return out


def _images(
    facts: Mapping[str, Any], cells: Sequence[Cell], out: Path, images: Path | None
) -> tuple[dict[str, str], int]:
    room, notes = MOST_WITH_IMAGES - MOST_BYTES, {}
    start = room
    for found, cell in zip(facts["cells"], cells, strict=True):
        named = (cell.info.get("dataset") or {}).get("data")
        folder = images if images is not None else Path(named) if named else None
        used, notes[found["key"]] = add_images(found["cases"], folder, out, most_bytes=room)
        room -= used
    return notes, start - room


def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("scalecal.report", ".")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template(
        "template.html"
    )


def _asset(name: str) -> Any:
    from markupsafe import Markup

    # Written by us, and without a closing tag of their element: nothing to escape.
    return Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _page(
    facts: Mapping[str, Any],
    cells: Sequence[Cell],
    tidy: pd.DataFrame,
    detail: Detail,
    image_notes: Mapping[str, str],
) -> str:
    from markupsafe import Markup

    drawn = facts["cells"][: detail.models]
    arrays: dict[str, Any] = {}
    full: list[dict[str, Any]] = []
    room = detail.arrays
    for found, cell in zip(drawn, cells, strict=False):
        order = [*found["shown"], *(m for m in found["methods"] if m not in found["shown"])]
        packed, note = case_arrays(cell, order, most_bytes=room // (len(drawn) - len(full)))
        if packed is not None:
            arrays[found["key"]] = packed
            room -= sum(len(a["p"]) + len(a["y"]) for a in packed["methods"].values())
        offered = found["shown"]
        if packed is not None:
            offered = [m for m in order if as_parsed(m) in packed["methods"]]
        full.append(
            cell_view(
                found,
                offered=offered,
                sampled=note,
                most_cases=detail.cases,
                image_note=image_notes[found["key"]],
            )
        )
    text = csv_text(tidy)
    note = "One row per model, method, seed, stratum and metric."
    if len(text) > detail.results:
        keys = [c for c in tidy.columns if c not in ("seed", "value", "floor")]
        text = csv_text(
            tidy.groupby(keys, sort=False, dropna=False).mean(numeric_only=True).reset_index()
        )
        note = "Means over seeds: the results of every seed are in the run’s results.csv."
    if len(text) > detail.results:
        text, note = "", "The results are too many for this page: see the run’s results.csv."
    return str(
        _template().render(
            **page_view(facts, n_full=len(full)),
            full=full,
            facts=facts,
            cells=facts["cells"],
            css=_asset("report.css"),
            js=_asset("report.js"),
            payload=Markup(payload(arrays)),
            results_uri=data_uri(text) if text else "",
            results_note=note,
        )
    )
