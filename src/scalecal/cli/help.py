"""Help texts: every command shows an example, defaults taken from signatures, names from registries.

A default is written once, in a signature. A command names those functions as text (`Work`), and only
when its help is shown are they imported and their defaults put beside the options. A registry is named in
a help text as `{module:NAME}` (or the function that returns the names), in whose place they are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from typer.core import TyperCommand


@dataclass(frozen=True)
class Work:
    """A function (or record) that a command passes its options to.

    Parameters
    ----------
    function
        Where it is: "module:name".
    renamed
        Options that are called otherwise than the function's parameters: {"option": "parameter"}.

    Examples
    --------
    >>> work = Work("scalecal.planning:plan_votes", {"recover": "share"})
    >>> work.default("recover"), work.default("out")
    (0.9, None)
    """

    function: str
    renamed: Mapping[str, str] = field(default_factory=dict)

    def parameter(self, option: str) -> Parameter | None:
        """The parameter that an option sets, where there is one."""
        return signature(_load(self.function)).parameters.get(self.renamed.get(option, option))

    def default(self, option: str) -> Any:
        """The default of an option; None where it has none."""
        parameter = self.parameter(option)
        if parameter is None or parameter.default is Parameter.empty:
            return None
        return parameter.default


def _load(place: str) -> Any:
    """Import what a text of the form "module:name" names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@dataclass(frozen=True)
class Command:
    """What is known of a command beside its signature: an example, and the functions it calls."""

    example: str
    works: Sequence[Work] = ()


COMMANDS: dict[str, Command] = {}
"""Every command by name."""


def default_text(option: str, works: Sequence[Work]) -> str:
    """Write the default of an option; "" where it has none, or is a flag that is off.

    Examples
    --------
    >>> works = [Work("scalecal.planning:plan", {"readers": "n_raters"})]
    >>> default_text("readers", works), default_text("seed", works), default_text("out", works)
    ('3,5,7', '0', '')
    """
    shown: dict[str, None] = {}
    for work in works:
        value = work.default(option)
        if value is True:
            shown[option.replace("_", "-")] = None
        elif isinstance(value, tuple | list):
            shown[",".join(map(str, value))] = None
        elif value is not None and value is not False:
            shown[str(value)] = None
    return "; ".join(shown)


def help_text(text: str | None) -> str:
    """Write a help text with the names of the registries that it refers to.

    Examples
    --------
    >>> help_text("Label of a tied vote: {scalecal.votes:TIES}.")
    'Label of a tied vote: error, first, last, random, drop.'
    """

    def listed(named: re.Match[str]) -> str:
        names = _load(named[1])
        if callable(names):
            names = names()
        return ", ".join(map(str, names))

    return re.sub(r"\{([\w.]+:\w+)\}", listed, text or "")


class DocumentedCommand(TyperCommand):
    """A command whose help shows names, defaults and the example of `COMMANDS`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, each with its default."""
        works = _described(ctx).works
        shown = copy(self)
        shown.params = [copy(param) for param in self.params]
        for param in shown.params:
            if not hasattr(param, "help"):
                continue
            param.help = help_text(param.help)
            if param.default is None and param.name and not param.required:
                default = default_text(param.name, works)
                if default:
                    param.help += f"  [default: {default}]"
        super(DocumentedCommand, shown).format_options(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example, on one line, ready to be copied."""
        super().format_epilog(ctx, formatter)
        formatter.write("\nExample:\n")
        formatter.write(f"  scalecal {_described(ctx).example}\n")


def _described(ctx: Any) -> Command:
    """The record of the command whose help is shown; in a group it is called "plan votes"."""
    program = ctx.find_root().command_path
    return COMMANDS[ctx.command_path.removeprefix(program).strip()]
