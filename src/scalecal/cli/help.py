"""Help texts: every command shows an example, and defaults taken from the functions that do the work.

A default is written once, in a signature. A command names those functions as text (`Work`), and only
when its help is shown are they imported and their defaults put beside the options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from typer.core import TyperCommand


@dataclass(frozen=True, init=False)
class Work:
    """A function (or record) that a command passes its options to.

    Parameters
    ----------
    function
        Where it is: "module:name".
    when
        When it is used, where another of the command's functions has other defaults.
    renamed
        Options that are called otherwise than the function's parameters: option="parameter".

    Examples
    --------
    >>> work = Work("scalecal.planning:plan_votes", when="with --votes", recover="share")
    >>> work.default("recover"), work.default("out")
    (0.9, None)
    """

    function: str
    when: str
    renamed: Mapping[str, str]

    def __init__(self, function: str, when: str = "", **renamed: str) -> None:
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "when", when)
        object.__setattr__(self, "renamed", renamed)

    def parameter(self, option: str) -> Parameter | None:
        """The parameter that an option sets, where there is one."""
        module, _, name = self.function.partition(":")
        parameters = signature(getattr(import_module(module), name)).parameters
        return parameters.get(self.renamed.get(option, option))

    def default(self, option: str) -> Any:
        """The default of an option; None where it has none."""
        parameter = self.parameter(option)
        return (
            None if parameter is None or parameter.default is Parameter.empty else parameter.default
        )


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
    >>> both = [Work("scalecal.planning:plan", readers="n_raters"),
    ...         Work("scalecal.planning:plan_votes", when="with --votes", readers="n_raters")]
    >>> default_text("readers", both), default_text("seed", both), default_text("p_column", ())
    ('3,5,7; 7 with --votes', '0', 'p')
    """
    if option.endswith("_column"):
        return option.removesuffix("_column")
    shown: dict[str, str] = {}
    for work in works:
        text = _written(option, work.default(option))
        if text and text not in shown:
            shown[text] = f"{text} {work.when}" if work.when else text
    if len(shown) == 1:
        return next(iter(shown))
    return "; ".join(shown.values())


def _written(option: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return option.replace("_", "-")
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


class DocumentedCommand(TyperCommand):
    """A command whose help shows the defaults and the example of `COMMANDS`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, each with its default."""
        plain = {param: param.help for param in self.params if hasattr(param, "help")}
        for param, text in plain.items():
            if param.default is None and param.name and not param.required:
                default = default_text(param.name, COMMANDS[str(self.name)].works)
                param.help = f"{text or ''}  [default: {default}]" if default else text
        try:
            super().format_options(ctx, formatter)
        finally:
            for param, text in plain.items():
                param.help = text

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example, on one line, ready to be copied."""
        super().format_epilog(ctx, formatter)
        formatter.write("\nExample:\n")
        formatter.write(f"  scalecal {COMMANDS[str(self.name)].example}\n")
