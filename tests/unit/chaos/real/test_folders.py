"""What a run leaves on a host when it was killed, and who removes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraft.chaos.real.faults.hosts import start_helper
from kraft.chaos.real.folders import HELPERS, HISTORY_VARIABLE, MAKING, OWNER, clean_up, run_folder
from kraft.local_cluster.node_process import process_stat

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def gone(process: subprocess.Popen[bytes]) -> bool:
    return process.wait(60) is not None


def test_nothing_is_left_when_a_run_ends_whatever_ends_it(tmp_path: Path) -> None:
    helpers = []

    def interrupted() -> None:
        with run_folder(tmp_path / "runs") as folder:
            helpers.append(start_helper(folder / HELPERS, "helper", SLEEPER))
            assert helpers[0].poll() is None
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert gone(helpers[0])
    assert list((tmp_path / "runs").iterdir()) == []


def test_the_next_run_cleans_up_after_one_that_was_killed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / "run-dead"
    (left / HELPERS).mkdir(parents=True)
    (left / OWNER).write_text(f"{dead.pid} 1\n")
    helper = start_helper(left / HELPERS, "helper", SLEEPER)
    with run_folder(tmp_path):
        assert not left.exists()
    assert gone(helper)


def test_a_run_that_lives_is_left_alone(tmp_path: Path) -> None:
    with run_folder(tmp_path) as folder:
        assert clean_up(tmp_path) == []
        assert folder.exists()


def test_a_recycled_pid_is_not_the_run(tmp_path: Path) -> None:
    left = tmp_path / "run-old"
    (left / HELPERS).mkdir(parents=True)
    stat = process_stat(os.getpid())
    assert stat is not None
    (left / OWNER).write_text(f"{os.getpid()} {int(stat.start_time) + 1}\n")
    assert clean_up(tmp_path) == ["run-old"]
    assert not left.exists()


def test_a_folder_that_was_never_finished_is_removed_and_one_that_is_being_made_is_not(
    tmp_path: Path,
) -> None:
    stat = process_stat(os.getpid())
    assert stat is not None
    mine = tmp_path / f"{MAKING}{os.getpid()}-{stat.start_time}-abcd"
    left = [
        tmp_path / f"{MAKING}{os.getpid()}-{int(stat.start_time) + 1}-abcd",
        tmp_path / f"{MAKING}999999999-1-abcd",
        tmp_path / f"{MAKING}abcd",
    ]
    for folder in (mine, *left):
        (folder / HELPERS).mkdir(parents=True)
    assert sorted(clean_up(tmp_path)) == sorted(folder.name for folder in left)
    assert list(tmp_path.iterdir()) == [mine]


def test_a_program_s_children_are_ended_though_it_has_gone_itself(tmp_path: Path) -> None:
    """One in a session of its own, that ignores what it is asked: only its environment tells whose it is."""
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    with run_folder(tmp_path / "runs") as folder:
        program = subprocess.Popen(
            ["/bin/sh", "-c", f"setsid {sys.executable} -c '{child}' & exit 0"],
            stdout=subprocess.PIPE,
            env={**os.environ, HISTORY_VARIABLE: str(folder / "command-0" / "history.jsonl")},
        )
        assert program.stdout is not None
        assert program.stdout.readline() == b"1\n"
        assert program.wait(60) == 0
    assert program.stdout.read() == b"", "nobody has the other end of the pipe any more"
    program.stdout.close()
