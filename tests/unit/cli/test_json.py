"""Each command that prints a result has --json; a call imports no other command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import typer.main

from kraft.cli.app import COMMANDS, application

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


def test_a_call_imports_what_it_needs_of_all_commands() -> None:
    """All of them together take most of a second."""
    program = "import sys; from kraft.cli.app import run; run(['storage', '--help']); print(*sys.modules)"
    imported = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    modules = {f"kraft.cli.{entry.module}" for entry in COMMANDS}
    assert modules.intersection(imported) <= {"kraft.cli.storage", "kraft.cli.features"}
