"""What becomes of a command whose standard streams are closed, or cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.metadata_files import story, write_segment

FULL = b"error: cannot write to standard output: No space left on device"


def kraft(command: str, *, unbuffered: str = "") -> subprocess.CompletedProcess[bytes]:
    """`kraft …`, from a shell."""
    return subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m kraft.cli.entry {command}', sys.executable],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONDEVMODE": ""},
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [("version", ""), ("version", "1"), ("chaos faults", ""), ("topics --help", "")],
)
def test_a_full_disk_under_the_output_is_a_sentence(command: str, unbuffered: str) -> None:
    ended = kraft(f"{command} > /dev/full", unbuffered=unbuffered)
    assert (ended.returncode, ended.stderr.splitlines()) == (1, [FULL])


def test_output_that_cannot_be_written_is_not_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    checkpoint = tmp_path / "leader-epoch-checkpoint"
    checkpoint.write_text("0\n1\n0 0\n")
    ended = kraft(f"log dump {checkpoint} > /dev/full")
    assert (ended.returncode, ended.stderr.splitlines()) == (1, [FULL])


@pytest.mark.parametrize(
    ("command", "exit_code"), [("topics frobnicate", 2), ("log verify /nowhere", 2), ("chaos faults", 0)]
)
def test_a_full_disk_under_the_errors_changes_no_exit_code(command: str, exit_code: int) -> None:
    assert kraft(f"{command} 2> /dev/full").returncode == exit_code


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("version >&-", 0),
        ("version 2>&-", 0),
        ("topics frobnicate 2>&-", 2),
        ("server /nowhere/server.properties >&-", 1),
        ("produce t --bootstrap-server 127.0.0.1:1 <&-", 0),
        ("version <&- >&- 2>&-", 0),
    ],
)
def test_a_closed_stream_is_an_empty_one(command: str, exit_code: int) -> None:
    ended = kraft(command)
    assert ended.returncode == exit_code
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        ("version", ""),
        ("version", "1"),
        ("topics --help", ""),
        ("chaos faults", ""),
        ("log dump {}/leader-epoch-checkpoint", ""),
        ("metadata dump --dir {}", ""),
    ],
)
def test_a_reader_that_has_enough_is_no_failure(command: str, unbuffered: str, tmp_path: Path) -> None:
    """Its end is closed before the command writes."""
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (tmp_path / "__cluster_metadata-0").mkdir()
    write_segment(tmp_path / "__cluster_metadata-0", story())
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing) as pipe:
        ended = subprocess.run(
            [sys.executable, "-m", "kraft.cli.entry", *command.format(tmp_path).split()],
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONDEVMODE": ""},
            timeout=50,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_name_that_is_no_text_goes_out_as_it_came(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    path = folder + b"/leader-epoch-checkpoint"
    Path(os.fsdecode(path)).write_text("0\n1\n0 0\n")
    ended = kraft(f"log dump {os.fsdecode(path)}")
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (0, b"Dumping " + path)


def test_what_takes_the_place_of_a_closed_stream_is_there_for_children_too() -> None:
    program = (
        "import os; from kraft.cli.shared.streams import open_closed_streams; open_closed_streams();"
        " raise SystemExit(not all(map(os.get_inheritable, range(3))))"
    )
    ended = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -c "{program}" <&- >&- 2>&-', sys.executable], timeout=50, check=False
    )
    assert ended.returncode == 0
