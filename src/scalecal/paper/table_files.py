"""A table and its forms: CSV with full precision, Markdown and LaTeX (booktabs) as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalecal.auditing.sentences import p_value
from scalecal.io.store import write_csv, write_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Row", "Table", "latex", "markdown", "write_tables"]

Row = dict[str, Any]

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
    "†": r"$^\dagger$",
    "−": r"$-$",
}


@dataclass(frozen=True, eq=False)
class Table:
    """A table: its rows, what it shows, and why it is empty where it is.

    `formats` gives the kind of a column: "percent" (a share), "points" (already in per cent), "p";
    other floats have three decimals. A column ``x_sd`` after a column ``x`` is its spread over seeds
    and is shown with it.
    """

    title: str
    caption: str
    rows: list[Row]
    formats: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""

    @property
    def frame(self) -> pd.DataFrame:
        """The rows as a frame; one row with the reason where there are none."""
        import pandas as pd

        return pd.DataFrame(self.rows if self.rows else [{"cannot be made": self.reason}])


def _shown(value: Any, kind: str) -> str:
    """Format one value as people read it; "-" where it is undefined."""
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "-"
    if isinstance(value, str | int | np.integer):
        return str(value)
    if kind == "p":
        return p_value(float(value))
    if kind == "percent":
        return f"{100 * value:.0f} %"
    if kind == "signed percent":
        return f"{100 * value:+.1f} %"
    if kind == "points":
        return f"{value:.1f}"
    return f"{value:.3f}"


def _cells(table: Table) -> tuple[list[str], list[list[str]]]:
    """Titles and rows as text; a spread stands beside its mean, columns with nothing to say go."""
    names = list(dict.fromkeys(name for row in table.rows for name in row))
    titles = [name for name in names if not name.endswith("_sd")]
    lines = []
    for row in table.rows:
        line = []
        for name in titles:
            kind = table.formats.get(name, "")
            text = _shown(row.get(name), kind)
            spread = _shown(row.get(f"{name}_sd"), kind)
            line.append(text if spread == "-" or text == "-" else f"{text} ± {spread}")
        lines.append(line)
    kept = [j for j in range(len(titles)) if any(line[j] not in ("-", "") for line in lines)]
    return [titles[j] for j in kept], [[line[j] for j in kept] for line in lines]


def markdown(table: Table) -> str:
    """Return a table as GitHub-flavoured Markdown, with its title and caption.

    Examples
    --------
    >>> print(markdown(Table("T", "What it shows.", [{"method": "none", "ECE": 0.1, "ECE_sd": 0.01}])))
    **T.** What it shows.
    <BLANKLINE>
    | method | ECE |
    |---|---|
    | none | 0.100 ± 0.010 |
    <BLANKLINE>
    """
    head = f"**{table.title}.** {table.caption}\n\n"
    if not table.rows:
        return head + f"This table cannot be made here: {table.reason}.\n"
    titles, lines = _cells(table)

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

    return head + line(titles) + "|" + "---|" * len(titles) + "\n" + "".join(map(line, lines))


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(sign, sign) for sign in text)


def latex(table: Table, label: str) -> str:
    """Return a table as LaTeX; it needs the package booktabs.

    Examples
    --------
    >>> text = latex(Table("T", "Shows 5 %.", [{"method": "a_b", "ECE": 0.1}]), "toy")
    >>> "a\\\\_b & 0.100" in text, "5 \\\\%" in text
    (True, True)
    """
    lines = [
        r"\begin{table}[t]",
        rf"\caption{{{_escape(table.title)}. {_escape(table.caption)}}}",
        rf"\label{{tab:{label}}}",
        r"\centering",
        r"\small",
    ]
    if table.rows:
        titles, rows = _cells(table)
        texts = [isinstance(table.rows[0].get(title), str) for title in titles]
        lines.append(rf"\begin{{tabular}}{{{''.join('l' if t else 'r' for t in texts)}}}")
        lines.append(r"\toprule")
        lines.append(" & ".join(map(_escape, titles)) + r" \\")
        lines.append(r"\midrule")
        for number, row in enumerate(rows):
            if number and row[0] != rows[number - 1][0]:
                lines.append(r"\midrule")
            lines.append(" & ".join(map(_escape, row)) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
    else:
        lines.append(rf"This table cannot be made here: {_escape(table.reason)}.")
    return "\n".join([*lines, r"\end{table}", ""])


def write_tables(folder: str | Path, tables: Mapping[str, Table]) -> list[Path]:
    """Write every table as ``name.csv``, ``name.md`` and ``name.tex``; return the paths.

    A table that cannot be made is written too, with the reason.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, table in tables.items():
        csv, md, tex = (folder / f"{name}.{kind}" for kind in ("csv", "md", "tex"))
        write_csv(table.frame, csv)
        write_text(md, markdown(table))
        write_text(tex, latex(table, name))
        paths += [csv, md, tex]
    return paths
