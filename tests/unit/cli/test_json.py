"""Each command that prints a result has --json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from kraft.cli.app import application

WITHOUT = {
    "server",  # it serves until it is told to stop
    "consume",  # its result is what is in the topic
}


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_every_command_has_json() -> None:
    found = dict(commands(typer.main.get_command(application())))
    assert {"topics describe", "log-dirs", "chaos simulate"} <= found.keys()
    without = {
        name
        for name, command in found.items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without <= WITHOUT
