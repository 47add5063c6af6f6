"""README.md as a newcomer types it, and what goes on in `GO_ON`: every command and program, in order, in one folder.

Left out are the installation and `scripts/*`. Campaigns are cut to one seed, those of whole clusters to ten seconds
of it. Commands in the prose are asked for their help. Where something listens on the ports that the README names,
others take their place.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kraft.runtime.free_ports import free_port_range, is_free
from tests.support.source_tree import ROOT
from tests.unit.config.test_config import KAFKA_SAMPLE

pytestmark = pytest.mark.timeout(1500)

BLOCK_TIMEOUT_S = 600.0
GO_ON = ("kraft/spark/README.md", "kraft/chaos/README.md", "kraft/cli/README.md")
"""What is read after README.md; of the first the programs that stand alone."""
NODES = 3
PORT = 9092
LEFT_OUT = ("pip install ", "scripts/")
OTHERS_VARIABLES = ("KAFKA_", "KRAFT_", "PYTEST_", "PYSPARK_")

RUNS_UNTIL_STOPPED = r"""
until_started() {
    coproc SERVER { exec "$@"; }
    local pid=$SERVER_PID
    grep -m 1 'Kafka Server started' <&"${SERVER[0]}"
    kill -TERM "$pid"
    wait "$pid"
}
"""
"""What runs until somebody stops it is stopped once it is ready, and has to end well."""


class Block(NamedTuple):
    """One fenced block of the README."""

    language: str
    text: str


def blocks(readme: str) -> list[Block]:
    found = [Block(*match) for match in re.findall(r"^```(\w*)\n(.*?)^```$", readme, re.M | re.S)]
    assert readme.count("```") == 2 * len(found), "a block of README.md has no language, or no end"
    return found


def commands(text: str, port: int) -> str:
    """A block of commands as the test runs it."""
    kept = (line for line in text.splitlines() if not line.startswith(LEFT_OUT))
    script = re.sub(r"--seeds \d+", "--seeds 1", "\n".join(kept))
    script = re.sub(r"^kraft chaos simulate\b", "kraft chaos simulate --seconds 10", script, flags=re.M)
    script = re.sub(r"^kraft server ", "until_started kraft server ", script, flags=re.M)
    if port != PORT:
        script = re.sub(
            r"^kraft cluster start\b(?!-)", f"kraft cluster start --port {port}", script, flags=re.M
        )
    return script


def missing_line(shown: str, printed: str) -> str | None:
    """The first line of what the README shows that does not come next in what was printed; "…" stands for any lines."""
    lines = iter([line.rstrip() for line in printed.splitlines()])
    for wanted in shown.splitlines():
        if wanted != "…" and wanted not in lines:
            return wanted
    return None


class Newcomer:
    """A clean folder with `kraft` on the PATH, Kafka's stock server.properties in it, and what was printed last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "home"
        self.port = PORT if all(is_free(PORT + n) for n in range(NODES)) else free_port_range(NODES)
        self.printed = ""
        self._folder_of_output = folder
        programs = folder / "bin"
        for made in (self.folder, programs):
            made.mkdir()
        program = programs / "kraft"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kraft "$@"\n')
        program.chmod(0o755)
        stock = KAFKA_SAMPLE.replace("9092", str(self.port)).replace("9093", str(self.port + 1))
        (self.folder / "server.properties").write_text(stock)
        kept = {name: text for name, text in os.environ.items() if not name.startswith(OTHERS_VARIABLES)}
        path = f"{programs}:{kept.get('PATH', os.defpath)}"
        self._environment = {**kept, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
        self._environment["XDG_CONFIG_HOME"] = str(self.folder / "config")

    def run(self, block: Block) -> None:
        """Runs a block to its end. What it prints is in `printed`; a failure shows the command that failed."""
        if block.language == "sh":
            script = f"{RUNS_UNTIL_STOPPED}\nset -x\n{commands(block.text, self.port)}"
            self._run("bash", "-euo", "pipefail", "-c", script)
            return
        program = block.text.replace(str(PORT), str(self.port))
        if "def test_" in program:
            (self.folder / "test_example.py").write_text(program)
            self._run(sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "test_example.py")
        else:
            self._run(sys.executable, "-c", program)

    def _run(self, *command: str) -> None:
        out, err = (self._folder_of_output / name for name in ("out", "err"))
        with out.open("w") as to_out, err.open("w") as to_err:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=to_out,
                stderr=to_err,
                timeout=BLOCK_TIMEOUT_S,
                check=False,
            )
        self.printed = out.read_text()
        assert done.returncode == 0, f"{command[-1]}\n{self.printed[-2000:]}\n{err.read_text()[-4000:]}"


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    made = Newcomer(tmp_path)
    try:
        yield made
    finally:
        made.run(Block("sh", "kraft cluster destroy\nkraft cluster destroy --dir safe"))


def test_everything_in_the_readme_runs_as_it_stands(newcomer: Newcomer) -> None:
    import pyarrow.parquet as parquet

    programs = []
    texts = [(ROOT / name).read_text() for name in ("README.md", *GO_ON)]
    for block in (block for text in texts for block in blocks(text)):
        if block.language == "text":
            assert missing_line(block.text, newcomer.printed) is None, newcomer.printed
            continue
        assert block.language in ("sh", "python"), f"nobody knows how to run a block of {block.language}"
        newcomer.run(block)
        if block.language == "python":
            programs.append(newcomer.printed)
    for command in sorted({name for text in texts for name in re.findall(r"`(kraft [a-z][a-z -]*)`", text)}):
        newcomer.run(Block("sh", f"{command} --help"))
    consumed, _, _, copied = programs
    assert len(consumed.splitlines()) == 10
    # A thousand lines, and what the client produced; then a thousand more.
    assert parquet.read_table(newcomer.folder / "events.parquet", columns=["value"]).num_rows == 1001
    assert copied.splitlines()[-1] == "2001 records copied"


@pytest.mark.parametrize("name", ["README.md", *GO_ON, "kraft/ingest/README.md", "examples/README.md"])
def test_what_is_linked_to_is_there(name: str) -> None:
    readme = ROOT / name
    links = re.findall(r"\]\(([^)]+)\)", readme.read_text())
    assert links or name != "README.md"
    assert [link for link in links if not (readme.parent / link).exists()] == []


def test_what_is_left_out_and_what_is_cut() -> None:
    text = (
        "pip install .\nkraft cluster start  # three\nkraft cluster start-node 1\nkraft server a.properties\n"
    )
    assert commands(text, 20000) == (
        "kraft cluster start --port 20000  # three\nkraft cluster start-node 1\nuntil_started kraft server a.properties"
    )
    assert commands("scripts/demo\nkraft chaos quorum --seeds 1000\n", PORT) == "kraft chaos quorum --seeds 1"
    assert commands("kraft chaos simulate --seeds 20", PORT) == "kraft chaos simulate --seconds 10 --seeds 1"


def test_a_line_that_is_not_printed_is_missed() -> None:
    printed = "one   \ntwo\nthree\n"
    assert missing_line("one\n…\nthree\n", printed) is None
    assert missing_line("three\n…\none\n", printed) == "one"
    assert missing_line("four\n", printed) == "four"
