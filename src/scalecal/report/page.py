"""Facts to one self-contained HTML file: a Jinja template with escaping on, case arrays, thumbnails."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from scalecal.cases import Predictions
from scalecal.checks import InputError
from scalecal.datasets.decoding import IMAGE_FORMATS
from scalecal.io.store import check_output_file, write_file, written_by
from scalecal.io.text import csv_text
from scalecal.metrics.arguments import read_hard_event
from scalecal.report.figures import PANEL
from scalecal.report.svg import COLOURS
from scalecal.report.templates import asset, template
from scalecal.report.views import cell_view, data_uri, page_view
from scalecal.runs.folder import mean_results, read_runs, results_of, side_by_side

if TYPE_CHECKING:
    import pandas as pd

MOST_BYTES = 1_000_000
"""Size of a page without thumbnails, at most."""

MOST_WITH_IMAGES = 7_000_000
"""Size of a page with thumbnails, at most."""


MOST_CASES = 20_000
"""Cases in the page at most; of more a random sample is taken, and the page says so."""

THUMBNAIL = 112  # pixels, the longer side
_MOST_PIXELS = 1 << 26  # of an image that is opened for a thumbnail


@dataclass(frozen=True)
class Detail:
    """How much a page holds: bytes of case arrays and of results, cases listed, models drawn."""

    arrays: int
    results: int
    cases: int
    models: int


# Tried in turn until the page is small enough.
DETAILS = (
    Detail(550_000, 200_000, 8, 24),
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
    inputs = [*runs, images]
    # The report in a run's own folder belongs to the run, which makes it anew when it is run again.
    kind = (out.name == "report.html" and written_by(out.parent / "run.json")) or "report"
    check_output_file(out, kind=kind, inputs=inputs)
    read = read_runs(runs)
    facts = side_by_side(read)
    cells = [
        replace(cell, cases=cell.cases.with_strata(own["strata"]))
        for run in read
        for cell, own in zip(run.cells, run.facts, strict=True)
    ]
    if images is not None:
        named = (cell.cases.paths for cell in cells if cell.cases.paths is not None)
        check_images(images, [path for paths in named for path in paths])
    tidy = results_of(read, facts)
    notes, thumbnails = _images(facts, cells, out, images)
    text = ""
    for detail in DETAILS:
        text = _page(facts, cells, tidy, detail, notes)
        if len(text.encode("utf-8", "backslashreplace")) - thumbnails <= MOST_BYTES:
            break
    write_file(out, text, kind=kind, inputs=inputs)
    return out


def _images(
    facts: Mapping[str, Any], cells: Sequence[Predictions], out: Path, images: Path | None
) -> tuple[dict[str, str], int]:
    room, notes = MOST_WITH_IMAGES - MOST_BYTES, {}
    start = room
    for own, cell in zip(facts["cells"], cells, strict=True):
        named = (cell.meta.get("dataset") or {}).get("data")
        folder = images if images is not None else Path(named) if named else None
        listed = [*own["surest"], *own["cases"], *own["splits"]]
        used, notes[own["key"]] = add_images(listed, folder, out, most_bytes=room)
        room -= used
    return notes, start - room


def _page(
    facts: Mapping[str, Any],
    cells: Sequence[Predictions],
    tidy: pd.DataFrame,
    detail: Detail,
    image_notes: Mapping[str, str],
) -> str:
    from markupsafe import Markup

    drawn = facts["cells"][: detail.models]
    arrays: dict[str, Any] = {}
    full: list[dict[str, Any]] = []
    room = detail.arrays
    for own, cell in zip(drawn, cells, strict=False):
        order = [*own["shown"], *(m for m in own["methods"] if m not in own["shown"])]
        packed, note = case_arrays(cell, order, most_bytes=room // (len(drawn) - len(full)))
        if packed is not None:
            arrays[own["key"]] = packed
            room -= sum(len(a["p"]) + len(a["y"]) for a in packed["methods"].values())
        offered = own["shown"]
        if packed is not None:
            offered = [m for m in order if as_parsed(m) in packed["methods"]]
        full.append(
            cell_view(
                own,
                offered=offered,
                sampled=note,
                most_cases=detail.cases,
                image_note=image_notes[own["key"]],
            )
        )
    text = csv_text(tidy)
    note = "One row per model, method, seed, stratum and metric."
    if len(text) > detail.results:
        text = csv_text(mean_results(facts["cells"]))
        note = "Means over seeds: the results of every seed are in the run’s results.csv."
    if len(text) > detail.results:
        text, note = "", "The results are too many for this page: see the run’s results.csv."
    return str(
        template("template.html").render(
            **page_view(facts, n_full=len(full)),
            full=full,
            facts=facts,
            cells=facts["cells"],
            css=asset("shared.css") + asset("report.css"),
            js=asset("report.js"),
            payload=Markup(payload(arrays)),
            results_uri=data_uri(text) if text else "",
            results_note=note,
        )
    )


# What the script works on: predictions and labels of single cases, packed small


def payload(arrays: Mapping[str, Any]) -> str:
    """Return geometry, colours and case arrays as JSON that cannot end or comment out its script element.

    Examples
    --------
    >>> set("<>&") & set(payload({"id": "</script><!-- &amp;"}))
    set()
    """
    value = {"panel": PANEL, "colours": COLOURS, "cells": arrays}
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def as_parsed(name: str) -> str:
    r"""Return a name as a page's attribute holds it: HTML turns every line ending into a newline.

    Examples
    --------
    >>> as_parsed("a\r\nb\rc")
    'a\nb\nc'
    """
    return name.replace("\r\n", "\n").replace("\r", "\n")


def _packed(values: Any, kind: str) -> str:
    return base64.b64encode(np.asarray(values).astype(kind).tobytes()).decode("ascii")


def case_arrays(
    cell: Predictions, methods: Sequence[str], *, most_bytes: int
) -> tuple[dict[str, Any] | None, str]:
    """Pack p, label and stratum of the first seed's cases, for as many methods as there is room.

    Returns
    -------
    The arrays by method, base64 of little-endian float64 and uint8, or None where there is no room;
    and a sentence on what was left out ("" if nothing).
    """
    base = cell.first(methods[0])
    rows, note = base.index, ""
    if len(rows) > MOST_CASES:
        rows = np.sort(np.random.default_rng(0).choice(rows, MOST_CASES, replace=False))
        note = (
            f"The slider works on a random sample of {MOST_CASES:,} of {len(base.index):,} cases."
        )
    per_method = len(rows) * 9 * 4 // 3
    room = (most_bytes - len(rows) * 4 // 3) // max(per_method, 1)
    if room < 1:
        return None, "With this many cases and models the number of bins is fixed."
    out: dict[str, Any] = {
        "strata": [as_parsed(name) for name in cell.stratum_names],
        "stratum": _packed(cell.codes[rows] + 1, "<u1"),
        "methods": {},
    }
    place = np.full(len(cell.y), -1)
    for method in methods[:room]:
        part = cell.first(method)
        place[:] = -1
        place[part.index] = np.arange(len(part.index))
        if (place[rows] < 0).any():
            continue  # tested on other cases, so it cannot share their labels and strata
        event = read_hard_event(cell.y[rows], part.p[place[rows]])
        arrays = {"p": _packed(event.p, "<f8"), "y": _packed(event.y, "<u1")}
        out["methods"][as_parsed(method)] = arrays
    return out, note


# Images


def check_images(folder: str | Path, paths: Iterable[str]) -> None:
    """Fail unless there is such a folder, and at least one of the cases' files in it."""
    if not Path(folder).is_dir():
        raise InputError(f"no folder at {folder}: --images names the folder of the images")
    named = [str(path) for path in paths if path]
    if not named:
        raise InputError(
            f"--images {folder}: the cases name no image files. Paths are kept in folders made by "
            "scalecal extract"
        )
    if not any(Path(folder, path).is_file() for path in named):
        raise InputError(
            f"--images {folder}: none of the {len(named):,} image files is in it, such as {named[0]!r}: "
            "name the folder that these paths start from"
        )


def add_images(
    cases: list[dict[str, Any]], folder: Path | None, out: Path, *, most_bytes: int
) -> tuple[int, str]:
    """Add a link to each case's file and, while there is room, a thumbnail inside the page.

    Parameters
    ----------
    folder
        Where the paths start; None where it is unknown.
    out
        The report's file: links are relative to its folder.
    most_bytes
        Room for all thumbnails together.

    Returns
    -------
    Bytes used, and a note to the reader ("" if all is well).
    """
    wanted = [case for case in cases if case["path"]]
    if not wanted:
        return 0, ""
    if folder is None:
        return 0, "For thumbnails, give the images’ folder: scalecal report RUN --images DIR."
    try:
        from PIL import Image
    except ImportError:
        return 0, "Thumbnails need the package pillow."
    used, missing, full = 0, 0, False
    root = Path(os.path.abspath(folder))
    roots = (root, folder.resolve())
    for case in wanted:
        # A path in a table must not lead out of the folder; links that lie inside are its owner's.
        file = Path(os.path.normpath(root / case["path"]))
        if not any(map(file.is_relative_to, roots)) or not os.path.isfile(file):
            missing += 1
            continue
        relative = Path(os.path.relpath(file, out.resolve().parent)).as_posix()
        case["href"] = quote(relative, safe="/.-_~")
        if full:
            continue
        try:
            with Image.open(file, formats=IMAGE_FORMATS) as image:
                if image.width * image.height > _MOST_PIXELS:
                    continue
                image.thumbnail((2 * THUMBNAIL, 2 * THUMBNAIL))
                buffer = io.BytesIO()
                image.convert("RGB").save(buffer, "JPEG", quality=72)
        except Exception:  # parsers of broken files raise nearly every kind of error
            missing += 1
            continue
        text = base64.b64encode(buffer.getvalue()).decode("ascii")
        full = used + len(text) > most_bytes
        if not full:
            used += len(text)
            case["thumbnail"] = f"data:image/jpeg;base64,{text}"
    notes = []
    if missing:
        notes.append(f"{missing} image files were not found or could not be read.")
    if full:
        notes.append("The page has no room for further thumbnails.")
    return used, " ".join(notes)
