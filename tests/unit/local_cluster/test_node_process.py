"""What is said of a process that does not do what it should; nothing of it ends the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraft.local_cluster.node_process import LOG_LINES, evidence, how_it_ended, log_tail, process_stat

Start = Callable[[str], subprocess.Popen[bytes]]

READY = b"ready\n"
ANSWERS = "from kraft.runtime.stacks import print_stacks_when_asked; print_stacks_when_asked()"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


@pytest.fixture
def start(log: Path) -> Iterator[Start]:
    """Starts Python code, and returns when that has got to its end and waits there; its errors go to the log."""
    processes: list[subprocess.Popen[bytes]] = []

    def started(code: str) -> subprocess.Popen[bytes]:
        waits = "def waits_in_vain():\n    print('ready', flush=True)\n    sys.stdin.read()\n"
        text = f"import sys\n{code}\n{waits}waits_in_vain()"
        with log.open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == READY
        while (stat := process_stat(process.pid)) is not None and stat.state != "S":
            time.sleep(0.01)
        return process

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def test_a_process_that_hangs_shows_where(start: Start, log: Path) -> None:
    process = start(ANSWERS + "\nsys.stderr.write('opened the logs\\n'); sys.stderr.flush()")
    seen = evidence("node 1", process.pid, log)
    assert seen.startswith(f"node 1: process {process.pid} waits")
    assert "1 thread has had 0." in seen
    assert "opened the logs" in seen
    assert "in waits_in_vain" in seen
    assert process.poll() is None
    assert seen.count("opened the logs") == 1


def test_stacks_are_shown_as_often_as_they_are_asked_for(start: Start, log: Path) -> None:
    process = start(ANSWERS)
    for _ in range(2):
        assert "in waits_in_vain" in evidence("node 1", process.pid, log)


def test_of_other_threads_only_who_asks_for_them_sees(start: Start, log: Path) -> None:
    process = start(
        f"{ANSWERS}\nimport threading\nbegun = threading.Event()\n"
        "def works():\n    begun.set()\n    threading.Event().wait()\n"
        "threading.Thread(target=works, daemon=True).start()\nbegun.wait()"
    )
    assert "in works" not in evidence("node 1", process.pid, log)
    seen = evidence("node 1", process.pid, log, all_threads=True)
    assert "in works" in seen
    assert "in waits_in_vain" in seen


def test_a_stack_tells_which_modules_import_each_other_and_not_how(start: Start, log: Path) -> None:
    process = start(
        f"{ANSWERS}\nimport sys, time\nclass Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        print('ready', flush=True)\n        sys.stdin.read()\n"
        "sys.meta_path.insert(0, Slow())\nimport slow_to_come"
    )
    seen = evidence("node 1", process.pid, log)
    assert "in find_spec" in seen
    assert "in <module>" in seen
    assert "importlib" not in seen


def test_a_process_that_could_not_answer_yet_is_not_asked(start: Start, log: Path) -> None:
    process = start("")
    assert "has not got so far" in evidence("node 1", process.pid, log)
    assert process.poll() is None


def test_a_frozen_process_is_called_so_and_answers_when_it_goes_on(start: Start, log: Path) -> None:
    process = start(ANSWERS)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    seen = evidence("node 1", process.pid, log)
    assert "is stopped (SIGSTOP)" in seen
    assert "does not get to print them" in seen
    process.send_signal(signal.SIGCONT)
    assert process.poll() is None


def test_of_a_process_that_is_gone_the_log_is_left(start: Start, log: Path) -> None:
    process = start("sys.stderr.write('last words\\n'); sys.stderr.flush()")
    process.kill()
    process.wait()
    assert evidence("node 1", process.pid, log).endswith("its log ends\nlast words")
    assert evidence("node 1", None, log).endswith("its log ends\nlast words")


def test_a_zombie_is_gone_and_has_an_age_and_a_share_of_the_cpu(start: Start) -> None:
    process = start("sum(range(3_000_000))")
    living = process_stat(process.pid)
    assert living is not None
    assert not living.is_gone
    assert 0 < living.cpu_s <= living.age_s + 0.1
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    zombie = process_stat(process.pid)
    assert zombie is not None
    assert zombie.is_gone
    process.wait()
    assert process_stat(process.pid) is None


def test_what_an_earlier_process_printed_is_not_this_ones(start: Start, log: Path) -> None:
    log.write_text("bye\n")
    os.utime(log, (1, 1))
    process = start(ANSWERS)
    assert "it has printed nothing yet, an earlier one\nbye\n" in evidence("node 1", process.pid, log)
    assert "its log ends\n" in evidence("node 1", process.pid, log)  # with the stacks that it was asked for


def test_of_a_process_whose_beginning_is_known_the_log_begins_there(start: Start, log: Path) -> None:
    log.write_text("bye\n")
    begin = log.stat().st_size
    process = start(ANSWERS)
    silent = evidence("node 1", process.pid, log, since=begin)
    assert "; it has printed nothing yet\n" in silent.replace("CPUs;", ";")
    assert "bye" not in silent
    assert "bye" not in evidence("node 1", process.pid, log, since=begin)
    with log.open("a") as printed:
        printed.write("hello\n")
    assert log_tail(log, 1, since=begin) == "hello"
    assert "bye" not in evidence("node 1", None, log, since=begin)


def test_only_the_end_of_a_long_log_is_shown(log: Path) -> None:
    assert log_tail(log) == "(no log)"
    log.write_text("".join(f"line {number}\n" for number in range(100_000)))
    tail = log_tail(log).splitlines()
    assert len(tail) == LOG_LINES
    assert tail[-1] == "line 99999"


@pytest.mark.parametrize(
    ("returncode", "words"),
    [
        (None, ""),
        (0, " (exit code 0)"),
        (3, " (exit code 3)"),
        (-9, " (by SIGKILL)"),
        (-signal.SIGRTMIN - 6, f" (by signal {signal.SIGRTMIN + 6})"),
    ],
)
def test_how_a_process_ended(returncode: int | None, words: str) -> None:
    assert how_it_ended(returncode) == words
