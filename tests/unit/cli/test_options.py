"""What holds for the options and the help of all commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from kraft.cli.app import application, run
from tests.support.source_tree import ROOT

WITHOUT_JSON = {("server",)}
"""Its output is a log."""


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands below, by the words that call them."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(typer.main.get_command(application())))


@pytest.mark.parametrize("path", sorted(COMMANDS.keys() - WITHOUT_JSON))
def test_every_command_takes_json(path: tuple[str, ...]) -> None:
    assert "--json" in {name for parameter in COMMANDS[path].params for name in parameter.opts}


def test_every_command_that_asks_brokers_can_be_told_how() -> None:
    options = {
        path: {name for one in command.params for name in one.opts} for path, command in COMMANDS.items()
    }
    asking = {path: names for path, names in options.items() if "--bootstrap-server" in names}
    assert len(asking) > 40
    own = {("profile", "create")}
    assert {path for path, names in asking.items() if not {"--command-config", "--profile"} <= names} == own


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


@pytest.fixture
def command() -> Iterator[str]:
    """A folder in PATH with a `kraft` that is this tree's."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "kraft"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kraft "$@"\n')
        program.chmod(0o755)
        yield folder


def call(folder: str, *arguments: str, **variables: str) -> str:
    """Runs `kraft` by its name, in a home of its own; returns its standard output."""
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "HOME": folder,
        "PYTHONPATH": str(ROOT),
        **variables,
    }
    return subprocess.run(
        ["kraft", *arguments], env=environment, capture_output=True, text=True, check=True, timeout=50
    ).stdout


def test_it_is_called_as_a_module_too(command: str) -> None:
    assert call(command, "topics", "--help").split()[:3] == ["Usage:", "kraft", "topics"]


def test_a_shell_completes_commands(command: str) -> None:
    completed = call(command, _KRAFT_COMPLETE="complete_bash", COMP_WORDS="kraft clu", COMP_CWORD="1")
    assert completed.split() == ["cluster"]
    options = call(
        command, _KRAFT_COMPLETE="complete_bash", COMP_WORDS="kraft topics list --b", COMP_CWORD="3"
    )
    assert options.split() == ["--bootstrap-server"]


def test_completion_is_installed_for_the_shell_that_runs(command: str) -> None:
    environment = {"PATH": f"{command}:{os.environ['PATH']}", "HOME": command, "PYTHONPATH": str(ROOT)}
    asked = ["bash", "-c", "kraft --install-completion; exit $?"]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True, timeout=50)
    assert "bash completion installed in" in done.stdout
    script = Path(command) / ".bash_completions" / "kraft.sh"
    assert "_KRAFT_COMPLETE=complete_bash" in script.read_text()
    assert str(script) in (Path(command) / ".bashrc").read_text()
