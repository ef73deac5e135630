"""Templates and style sheets of the page and of an audit in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from scalecal.io.text import number


def template(name: str) -> Any:
    """Return a template of this package, with escaping on."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("scalecal.report", ".")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters["number"] = number
    return environment.get_template(name)


def asset(name: str) -> Markup:
    """Return a style sheet or script. Written by us, without a closing tag: nothing to escape."""
    return Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))
