"""The main job, as a person runs it: a cluster, a stream, a killed leader, Spark, the audit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.node_processes import until

pytestmark = pytest.mark.timeout(600)

ODD_FILES = {
    "carriage returns.log": b"one\r\ntwo\r\n\r\nfour",
    "repeats.log": b"same\n" * 400 + b"\n" * 30,
    "odd bytes.log": b"".join(b"\xff\x00 %d \xc3\x28\n" % n for n in range(300)) + b"\xf0\x9f\x98",
    "long.log": b"x" * 200_000 + b"\n" + b"short\n",
}
LINES = 4 + 430 + 301 + 2
START_S = 240.0

HEARS_INTERRUPTS = [
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL);"
    " os.execv(sys.executable, [sys.executable, *sys.argv[1:]])",
]
"""Whoever runs the tests in the background may have had SIGINT ignored for all below it. Not by preexec_fn:
code between fork and exec of a process with threads may crash."""


def demo(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Starts `kraft demo` in a session of its own, its output in files."""
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        return subprocess.Popen(
            [
                *HEARS_INTERRUPTS,
                "-m",
                "kraft.cli.entry",
                "demo",
                "--output",
                str(folder / "output"),
                *arguments,
            ],
            stdout=out,
            stderr=err,
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder)},
            start_new_session=True,
        )


def server_processes(folder: Path) -> list[str]:
    """The node processes whose configuration lies below `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(folder) in command and " server " in command:
                found.append(command)
    return found


def test_every_line_of_odd_files_survives_the_killed_leader(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    for name, data in ODD_FILES.items():
        (tmp_path / name).write_bytes(data)
    process = demo(tmp_path, "--json", *ODD_FILES)
    assert process.wait(540) == 0, (tmp_path / "err").read_text()[-3000:]
    document = json.loads((tmp_path / "out").read_text().splitlines()[-1])
    partitions = document["partitions"]
    totals = {key: sum(row[key] for row in partitions) for key in partitions[0]}
    assert len(partitions) == 6
    assert (totals["sent"], totals["acked"], totals["ingested"]) == (LINES, LINES, LINES)
    assert (totals["lost"], totals["duplicated"]) == (0, 0)
    assert document["acked_after_kill"] >= LINES // 5
    assert max(row["leaderless_ms"] for row in partitions) > 0
    table = parquet.read_table(document["parquet"], columns=["value"])
    wanted = Counter(line for data in ODD_FILES.values() for line in data.removesuffix(b"\n").split(b"\n"))
    assert Counter(table.column("value").to_pylist()) == wanted
    assert Path(document["picture"]).read_bytes().startswith(b"\x89PNG")
    assert server_processes(tmp_path) == []


def test_ctrl_c_leaves_nothing_running(tmp_path: Path) -> None:
    process = demo(tmp_path)
    until(lambda: b"killed -9" in (tmp_path / "err").read_bytes(), "the demo to kill a broker", START_S)
    assert len(server_processes(tmp_path)) >= 2
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert server_processes(tmp_path) == []
    assert not list(tmp_path.glob("kraft-demo-*"))


def test_an_unreadable_file_starts_nothing(tmp_path: Path) -> None:
    process = demo(tmp_path, "missing.log")
    assert process.wait(60) == 1
    error = (tmp_path / "err").read_text()
    assert "cannot read missing.log: No such file or directory" in error
    assert "Traceback" not in error
