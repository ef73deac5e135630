"""Facts to HTML: one self-contained page of runs, and an audit in a notebook or on a page of its own."""

from __future__ import annotations

import base64
import io
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

from scalecal.checks import InputError
from scalecal.datasets.decoding import IMAGE_FORMATS
from scalecal.evaluation.curves import reliability_facts
from scalecal.evaluation.folder import report_facts
from scalecal.evaluation.texts import mean_results
from scalecal.evaluation.vote_bins import vote_reliability
from scalecal.io.store import check_output_file, plain, write_file, written_by
from scalecal.io.text import csv_text, number, percent
from scalecal.report import figures
from scalecal.report.svg import Drawing
from scalecal.report.views import audit_table, error_text, page_view, svg, words_of

if TYPE_CHECKING:
    from scalecal.evaluation.audits import Audit
    from scalecal.evaluation.evaluations import Evaluation

MAX_BYTES = 1_000_000
"""Size of a page without thumbnails, at most."""

MAX_BYTES_WITH_IMAGES = 7_000_000
"""Size of a page with thumbnails, at most."""

MAX_RESULTS = 200_000
"""Characters of results inside the page, at most; larger tables stay in the run's folder."""

DETAILS = ((8, 24), (8, 12), (5, 6), (5, 4), (3, 3), (2, 2), (1, 1))
"""Cases listed of each stratum and models drawn, tried in turn until the page is small enough."""

THUMBNAIL = 112  # pixels, the longer side
MAX_PIXELS = 1 << 26  # of an image that is opened for a thumbnail
MAX_PANELS = 6  # diagrams of an audit


def template(name: str) -> Any:
    """Return a template of this package, with escaping on."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # A name that the facts lack must fail in a test, not vanish from the page.
    loader = PackageLoader("scalecal.report", ".")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"number": number, "percent": percent, "words": words_of}
    return environment.get_template(name)


def asset(name: str) -> Markup:
    """Return a style sheet or script. Written by us, without a closing tag: nothing to escape."""
    return Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))


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
    kind = "report"
    if out.name == "report.html":
        # The report in a run's own folder belongs to the run, which makes it anew when it is run again.
        kind = written_by(out.parent / "run.json") or kind
    check_output_file(out, kind=kind, inputs=inputs)
    facts = report_facts(runs)
    if images is not None:
        check_images(images, [case["path"] for cell in facts["cells"] for case in _listed(cell)])
    thumbnails = 0
    for cell in facts["cells"]:
        room = MAX_BYTES_WITH_IMAGES - MAX_BYTES - thumbnails
        folder = images or cell["images"]
        used, cell["image_note"] = add_images(_listed(cell), folder, out, max_bytes=room)
        thumbnails += used
    text = ""
    # Cases go before models: a reader misses a model more than its sixth case.
    for max_cases, max_models in DETAILS:
        text = _page(facts, max_cases, max_models)
        if len(text.encode("utf-8", "backslashreplace")) - thumbnails <= MAX_BYTES:
            break
    write_file(out, text, kind=kind, inputs=inputs)
    return out


def _page(facts: Mapping[str, Any], max_cases: int, max_models: int) -> str:
    cells = [_shortened(cell, max_cases) for cell in facts["cells"][:max_models]]
    results = csv_text(mean_results(facts["cells"]))
    uri, note = "", "The results are too many for this page: see the run’s results.csv."
    if len(results) <= MAX_RESULTS:
        packed = base64.b64encode(results.encode("utf-8", "backslashreplace")).decode("ascii")
        uri = f"data:text/csv;base64,{packed}"
        note = "Means over seeds, a row per model, method, stratum and metric."
    return str(
        template("template.html").render(
            **page_view(facts, cells),
            css=asset("shared.css") + asset("report.css"),
            js=asset("report.js"),
            results_uri=uri,
            results_note=note,
        )
    )


def _shortened(cell: Mapping[str, Any], max_cases: int) -> dict[str, Any]:
    """Facts of a cell with at most so many cases of each stratum."""
    kept: list[Any] = []
    count: Counter[str] = Counter()
    for case in cell["cases"]:
        count[case["stratum"]] += 1
        if count[case["stratum"]] <= max_cases:
            kept.append(case)
    return {**cell, "cases": kept, "splits": cell["splits"][: max_cases + max_cases // 2]}


# An audit in a notebook


def _audit_panels(audit: Audit) -> list[dict[str, Any]]:
    """Facts of the first strata's diagrams, and of that against votes."""
    # Further strata are in the table: nobody compares more diagrams than stand side by side.
    panels = [*reliability_facts(audit, MAX_PANELS), *vote_reliability(audit)[:1]]
    return [dict(panel) for panel in plain(panels)]


def audit_drawing(audit: Audit) -> Drawing:
    """Return the reliability diagrams of an audit in a row, for `Audit.plot`."""
    return figures.reliability_row(
        _audit_panels(audit),
        agreement=audit.meta["strata"] == "agreement",
        event=audit.meta["event"],
        role="accent",
        heading="Reliability",
    )


def audit_html(evaluation: Evaluation) -> str:
    """Return an audit as a piece of HTML: verdict, answers, diagrams, table; everything escaped.

    It brings its own colours, light and dark, and touches nothing outside itself, as a notebook wants it.
    """
    audit = evaluation.audit
    agreement = audit.meta["strata"] == "agreement"
    panels = []
    for panel in _audit_panels(audit):
        title = figures.stratum_title(panel["stratum"], agreement)
        if "votes" in panel:
            title = "one reader’s vote"
        sheet = figures.reliability_panel(
            panel, title=title, event=audit.meta["event"], role="accent"
        )
        panels.append({**panel, "title": title, "said": error_text(panel), "svg": svg(sheet)})
    colours = asset("shared.css").replace(":root", ".scalecal").replace("\n.", "\n.scalecal .")
    return str(
        template("fragment.html").render(
            verdict=evaluation.verdict,
            paragraphs=evaluation.core["paragraphs"],
            css=colours + asset("fragment.css"),
            panels=panels,
            table=audit_table("The audit in numbers", audit.shown_rows, agreement=agreement),
            notes=audit.shown_notes,
        )
    )


def audit_page(evaluation: Evaluation) -> str:
    """Return the same as a page of its own, for `Audit.to_html`."""
    body = Markup(audit_html(evaluation))
    return str(template("audit.html").render(n=evaluation.meta["n"], body=body))


# Images


def check_images(folder: str | Path, paths: Iterable[str | None]) -> None:
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


def _listed(cell: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every case that a page names, the first screen's before the others."""
    return [*cell["surest"], *cell["cases"], *cell["splits"]]


def add_images(
    cases: list[dict[str, Any]], folder: str | Path | None, out: Path, *, max_bytes: int
) -> tuple[int, str]:
    """Add a link to each case's file and, while there is room, a thumbnail inside the page.

    Parameters
    ----------
    folder
        Where the paths start; None where it is unknown.
    out
        The report's file: links are relative to its folder.
    max_bytes
        Room for all thumbnails together.

    Returns
    -------
    Bytes used, and a note to the reader ("" if all is well).
    """
    for case in cases:
        case.update(href=None, thumbnail=None)
    wanted = [case for case in cases if case["path"]]
    if not wanted:
        return 0, ""
    if folder is None:
        return 0, "For thumbnails, give the images’ folder: scalecal report RUN --images DIR."
    used, missing, without = 0, 0, 0
    for case in wanted:
        file = _inside(Path(folder), case["path"])
        if file is None:
            missing += 1
            continue
        relative = Path(os.path.relpath(file, out.resolve().parent)).as_posix()
        case["href"] = quote(relative, safe="/.-_~")
        try:
            text = _thumbnail(file)
        except Exception:  # parsers of broken files raise nearly every kind of error
            missing += 1
            continue
        if used + len(text) > max_bytes:
            without += 1
        elif text:
            used += len(text)
            case["thumbnail"] = f"data:image/jpeg;base64,{text}"
    notes = []
    if missing:
        notes.append(f"{missing} image files were not found or could not be read.")
    if without:
        notes.append(f"The page has no room for {without} further thumbnails.")
    return used, " ".join(notes)


def _inside(folder: Path, path: str) -> Path | None:
    """Return the file of a path below a folder; a path in a table must not lead out of it.

    Links that lie inside are their owner's.
    """
    root = Path(os.path.abspath(folder))
    file = Path(os.path.normpath(root / path))
    below = file.is_relative_to(root) or file.is_relative_to(folder.resolve())
    if not below or not file.is_file():
        return None
    return file


def _thumbnail(file: Path) -> str:
    """Return a small JPEG as base64; "" for an image too large to be opened here."""
    from PIL import Image

    with Image.open(file, formats=IMAGE_FORMATS) as image:
        if image.width * image.height > MAX_PIXELS:
            return ""
        # Two pixels for each of the page's, as sharp screens have them.
        image.thumbnail((2 * THUMBNAIL, 2 * THUMBNAIL))
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "JPEG", quality=72)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
