"""Reference pages made from the code: a line ``<!-- generated: NAME [ARGUMENT] -->`` becomes text.

The text comes from the registries, signatures and help texts themselves while the site is built, so a page
cannot say anything else than the code does.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from sphinx.pycode import ModuleAnalyzer

LINE = re.compile(r"^<!-- generated: (\S+)(?: (\S+))? -->$", re.MULTILINE)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return (
        "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)
        + "\n"
    )


def cell(value: Any) -> str:
    """Write a value so that it stays within its cell of a table."""
    return re.sub(r"\s+", " ", str(value)).replace("|", "\\|").strip()


def code(text: Any) -> str:
    """Write code, or nothing where there is none."""
    return f"`{text}`" if text not in (None, "") else ""


def public_names(module: ModuleType) -> list[str]:
    """Names that a module says are public, in the order of its source where that is known."""
    return [name for name in module.__all__ if not name.startswith("__")]


def api(name: str) -> str:
    """Write what a module makes public: a table of it, then every object with its docstring."""
    module = import_module(name)
    names = public_names(module)
    own = [n for n in names if not inspect.ismodule(getattr(module, n))]
    about = (inspect.getdoc(module) or "").split("\n\nExamples\n---")[0]
    lines = ["```{eval-rst}", f".. currentmodule:: {name}", "", about, ""]
    lines += [".. autosummary::", "   :nosignatures:", ""]
    lines += [
        f"   {_shown(module, n)}" for n in own if callable(getattr(module, n))
    ]
    for n in own:
        thing = getattr(module, n)
        if _shown(module, n) != n:
            continue
        if inspect.isclass(thing):
            lines += ["", f".. autoclass:: {n}", "   :members:"]
            lines += [
                f"   :inherited-members: {', '.join(_foreign_bases(thing))}"
            ]
        elif callable(thing):
            lines += ["", f".. autofunction:: {n}"]
        else:
            lines += [
                "",
                f".. data:: {n}",
                "",
                f"   {_data_text(name, n, thing)}",
            ]
    return "\n".join([*lines, "```", ""])


def _data_text(package: str, name: str, thing: Any) -> str:
    """The text below a constant, wherever it is defined, and the names that a registry knows."""
    text = ""
    for home in [
        m for n, m in sys.modules.items() if f"{n}.".startswith(f"{package}.")
    ]:
        if getattr(home, name, None) is thing:
            documented = ModuleAnalyzer.for_module(home.__name__).find_attr_docs()
            text = text or " ".join(documented.get(("", name), []))
    names = (
        [f"``{key}``" for key in thing]
        if isinstance(thing, Mapping | tuple)
        else []
    )
    return f"{text} Names: {', '.join(names)}." if names else text


def _shown(module: ModuleType, name: str) -> str:
    """Where an object is shown: here, or among what the package itself makes public."""
    top = import_module("scalecal")
    elsewhere = module is not top and name in top.__all__
    return f"~scalecal.{name}" if elsewhere else name


def _foreign_bases(thing: type) -> list[str]:
    """Names of the bases from other packages, whose methods are not ours to document."""
    return [
        b.__name__
        for b in thing.__mro__
        if not b.__module__.startswith("scalecal")
    ]


def commands(_: str = "") -> str:
    """Write every command: its help, arguments, options with defaults, and its example."""
    import typer

    from scalecal.cli import app
    from scalecal.cli.app import COMMANDS, default_text, help_text

    parts = []
    for name, known in sorted(COMMANDS.items()):
        record: Any = typer.main.get_command(app)
        for word in name.split():
            record = record.commands[word]
        parts += [
            f"## {name}\n",
            _paragraphs(record.help or ""),
            f"```sh\nscalecal {known.example}\n```\n",
        ]
        arguments = [p for p in record.params if p.param_type_name == "argument"]
        if arguments:
            rows = [
                (code(p.metavar or p.name.upper()), help_text(p.help))
                for p in arguments
            ]
            parts.append(table(["argument", "meaning"], rows))
        rows = []
        for p in record.params:
            if p.param_type_name == "argument" or p.hidden:
                continue
            spelled = ", ".join(f"`{o}`" for o in [*p.opts, *p.secondary_opts])
            value = f" {code(p.metavar)}" if p.metavar else ""
            default = (
                p.default
                if p.default not in (None, False)
                else default_text(p.name, known.works)
            )
            rows.append((spelled + value, help_text(p.help), code(default)))
        parts.append(table(["option", "meaning", "default"], rows))
    return "\n".join(parts)


def _paragraphs(text: str) -> str:
    """Write a help text as Markdown that shows its signs literally."""
    plain = re.sub(
        r"([<>*_|])", r"\\\1", inspect.cleandoc(text).replace("\b\n", "")
    )
    return re.sub(r"(?<!\w)(--[\w.][\w.-]*\w)", r"`\1`", plain) + "\n"


def methods(_: str = "") -> str:
    """Write the methods of `compare`."""
    from scalecal.probes.methods import METHODS

    rows = [
        (
            code(name),
            m.label,
            m.about,
            "votes" if m.needs_votes else "panel" if m.needs_panel else "",
        )
        for name, m in METHODS.items()
        if not m.variant_of
    ]
    return table(["name", "title", "what it does", "needs"], rows)


def calibrators(_: str = "") -> str:
    """Write the calibrators by name."""
    from scalecal.calibrators import CALIBRATORS

    rows = [
        (code(name), _first_sentence(kind)) for name, kind in CALIBRATORS.items()
    ]
    return table(["name", "what it does"], rows)


def encoders(_: str = "") -> str:
    """Write the encoders by name."""
    from scalecal.encoders import ENCODERS

    rows = [
        (
            code(name),
            e.dim,
            e.crop,
            code(e.hub_id or e.url or ""),
            "yes" if e.gated else "",
            e.licence,
        )
        for name, e in ENCODERS.items()
    ]
    return table(
        ["name", "length", "pixels", "weights", "gated", "licence"], rows
    )


def datasets(_: str = "") -> str:
    """Write the image data sets by name."""
    from scalecal.datasets import DATASETS

    rows = [
        (
            code(d.form),
            d.title,
            "" if d.n is None else f"{d.n:,}",
            d.licence,
            d.credit,
        )
        for d in DATASETS.values()
    ]
    return table(["name", "what it is", "images", "licence", "credit"], rows)


def roles(of: str) -> str:
    """Write the columns that a kind of file can have."""
    from scalecal.io.input_columns import INPUT_COLUMNS

    rows = [
        (code(column.role), column.holds, ", ".join(map(code, column.aliases)))
        for column in INPUT_COLUMNS.values()
        if of in column.used_by
    ]
    return table(["column", "what it holds", "also looked for as"], rows)


def suffixes(_: str = "") -> str:
    """Write the kinds of table files by ending."""
    from scalecal.io import tables

    kinds = {
        "text: comma, semicolon or tab; also `.gz`": tables.SUFFIXES["text"],
        "Parquet": tables.SUFFIXES["parquet"],
        "Excel (extra `excel`)": tables.SUFFIXES["excel"],
        "JSON Lines; also `.gz`": tables.SUFFIXES["json"],
    }
    rows = [
        (what, ", ".join(f"`{end}`" for end in ends))
        for what, ends in kinds.items()
    ]
    return table(["kind", "ending"], rows)


def docstring(name: str) -> str:
    """Write the docstring of a module or an object, as `module` or `module:object`."""
    module, _, attribute = name.partition(":")
    thing = import_module(module)
    if not attribute:
        text = inspect.getdoc(thing) or ""
        return "\n".join(
            ["```{eval-rst}", f".. currentmodule:: {module}", "", text, "```", ""]
        )
    return "\n".join(
        [
            "```{eval-rst}",
            f".. currentmodule:: {module}",
            "",
            f".. autofunction:: {attribute}",
            "   :no-index:",
            "```",
            "",
        ]
    )


def run_files(_: str = "") -> str:
    """Write which files the commands leave in a folder."""
    from scalecal.evaluation import folder

    rows = [
        ("`audit`", _files(folder.CASE_FILES + folder.AUDIT_FILES)),
        ("`audit` of several files, `compare`, `demo`", _files(folder.RUN_FILES)),
        ("`calibrate`, besides", _files(folder.CALIBRATE_FILES)),
    ]
    return table(["command", "files"], rows)


def _files(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def exit_codes(_: str = "") -> str:
    """Write what the exit codes mean."""
    about = inspect.getdoc(import_module("scalecal.cli.app")) or ""
    return (
        next(
            part for part in about.split("\n\n") if part.startswith("Exit codes")
        )
        + "\n"
    )


def limits(_: str = "") -> str:
    """Write the limits on what is read."""
    from scalecal.limits import LIMITS

    most = {
        **{n: f"{value:,}" for n, value in LIMITS.items()},
        "memory": "the machine's memory",
    }
    return table(
        ["name", "default"], [(code(n), value) for n, value in most.items()]
    )


def _first_sentence(thing: Any) -> str:
    """First sentence of a docstring."""
    return (inspect.getdoc(thing) or "").split("\n\n")[0]


PAGES: dict[str, Callable[[str], str]] = {
    f.__name__.replace("_", "-"): f
    for f in (
        *(api, commands, methods, calibrators, encoders, datasets),
        *(roles, suffixes, docstring, run_files, exit_codes, limits),
    )
}
"""What can be generated, by name."""


def fill(text: str) -> str:
    """Put generated text in the place of every line that asks for it."""
    return LINE.sub(lambda m: PAGES[m[1]](m[2] or ""), text)


def code_or_link(
    name: str, rawtext: str, text: str, lineno: int, inliner: Any, **_: Any
) -> tuple[list[Any], list[Any]]:
    """A name in backticks: a link where it can be one, else code (``p_<class>``, ``a > b``)."""
    from docutils import nodes
    from sphinx.domains.python import PyXRefRole

    if re.fullmatch(r"~?[\w.]+(\(\))?", text):
        return PyXRefRole()("py:obj", f":py:obj:`{text}`", text, lineno, inliner)
    return [nodes.literal(rawtext, text)], []


def _on_source_read(_app: Any, _name: str, source: list[str]) -> None:
    source[0] = fill(source[0])


def _skip(
    _app: Any, _what: str, name: str, thing: Any, skip: bool, _options: Any
) -> bool | None:
    """Leave out the methods that scikit-learn adds to every estimator for routing metadata."""
    return (
        True
        if re.fullmatch(r"set_\w+_request|get_metadata_routing", name)
        else None
    )


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.add_role("name", code_or_link)
    app.connect("source-read", _on_source_read)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
