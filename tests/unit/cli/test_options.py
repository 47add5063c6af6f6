"""What holds for the options and the help of all commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from kraft.cli.app import app, run

WITHOUT_JSON = {("server",)}
"""Its output is a log."""


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands below, by the words that call them."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", sorted(COMMANDS.keys() - WITHOUT_JSON))
def test_every_command_takes_json(path: tuple[str, ...]) -> None:
    assert "--json" in {name for parameter in COMMANDS[path].params for name in parameter.opts}


def test_the_version_is_an_object_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0
    text = capsys.readouterr().out.rstrip("\n")
    assert run(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": text}


@pytest.mark.parametrize(
    "command",
    [
        *(("topics", name) for name in ("create", "alter", "delete", "delete-records", "elect-leaders")),
        *(("reassign", name) for name in ("start", "cancel", "verify")),
        ("configs", "alter"),
    ],
)
def test_the_help_of_a_change_tells_all_exit_codes(command: tuple[str, ...]) -> None:
    """Its connection may be lost after it was sent."""
    text = " ".join((COMMANDS[command].help or "").split())
    assert all(f" {code}: " in text for code in range(4))


def test_the_help_shows_the_defaults_of_a_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["cluster", "start", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for option, default in (("--dir", ".kraft"), ("--nodes", "3"), ("--port", "9092")):
        (line,) = (line for line in lines if f" {option} " in line)
        assert "default" in line
        assert default in line
