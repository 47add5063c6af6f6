"""Java programs beside the tests: where they are, and how one is run to its end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.shared_builds import made_once

SOURCES = Path(__file__).parent.parent / "clients" / "java"
FLAGS = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Of programs that live for seconds."""
RUN_S = 300
DOWNLOAD_S = 400
"""The first time; what was downloaded once stays in the user's repository of Maven."""


def compiled(factory: pytest.TempPathFactory, classpath: str, *programs: str) -> str:
    """The class path of these programs and what they need."""

    def make(folder: Path) -> None:
        sources = [SOURCES / f"{program}.java" for program in programs]
        subprocess.run(["javac", "-cp", classpath, "-d", folder, *sources], check=True, timeout=RUN_S)

    return f"{made_once(factory, '-'.join(programs), make)}:{classpath}"


def run_java(classpath: str, program: str | Path, *arguments: str) -> str:
    """Runs a class, or a source file; returns its standard output."""
    done = subprocess.run(
        ["java", *FLAGS, "-cp", classpath, program, *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def json_objects(text: str) -> Iterator[Any]:
    """JSON objects that stand one behind the other."""
    decoder, position = json.JSONDecoder(), 0
    while position < len(text):
        found, position = decoder.raw_decode(text, position)
        yield found
