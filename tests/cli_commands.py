"""The commands of the application by name: `plan votes` is one of a group."""

from typing import Any

from typer.main import get_command

from scalecal.cli import app


def find_command(name: str) -> Any:
    """Return the command that a name such as "plan votes" stands for."""
    command: Any = get_command(app)
    for word in name.split():
        command = command.commands[word]
    return command
