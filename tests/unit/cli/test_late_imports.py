"""What a command does not need is not imported when it starts: users wait for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kraft.cli.app import COMMANDS, _named_first
from tests.support.source_tree import ROOT

HEAVY = (
    "pyspark",
    "pyarrow.compute",
    "pyarrow",
    "numpy",
    "pandas",
    "deltalake",
    "matplotlib",
    "aiohttp",
    "kraft.coordinator",
)


def imported_by(program: str) -> set[str]:
    """Those of HEAVY that a fresh interpreter has after these statements."""
    program += f"\nimport sys\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("command", ["ingest", "topics", "produce", "audit", "groups"])
def test_a_command_starts_without_what_only_others_need(command: str) -> None:
    program = f"from kraft.cli.app import application, _named_first\napplication(_named_first([{command!r}]))"
    assert not imported_by(program)


def test_an_ingestion_decides_whether_there_is_news_without_spark() -> None:
    """Spark is imported, and its JVM started, by the first cut."""
    pytest.importorskip("deltalake")
    program = "import kraft.cli.ingest.run, kraft.ingest.run, kraft.ingest.spark_job, kraft.ingest.delta"
    assert not {"pyspark", "pyarrow.compute"} & imported_by(program)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["topcs"], ["--version", "topics"]])
def test_all_commands_are_there_where_none_is_named(arguments: list[str]) -> None:
    assert _named_first(arguments) == COMMANDS
