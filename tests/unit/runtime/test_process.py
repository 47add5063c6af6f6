"""What happens to the process: signals, halting, the environment of the real world."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from kraft.runtime.clock import monotonic_s, now_ms
from kraft.runtime.disk import RealDisk
from kraft.runtime.executor import ThreadExecutor
from kraft.runtime.loop import open_files_limit, run
from kraft.runtime.real import real_environment
from kraft.runtime.sendfile import real_sender


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_sets_the_stop_event(number: signal.Signals) -> None:
    async def main(stop: asyncio.Event) -> str:
        os.kill(os.getpid(), number)
        await stop.wait()
        return type(asyncio.get_running_loop()).__module__

    assert run(main).startswith("uvloop")


def test_a_node_may_open_as_many_files_as_the_host_allows() -> None:
    result = python(
        "import resource\n"
        "from kraft.runtime.loop import run\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        "async def main(stop):\n"
        "    return resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)\n"
        "print(run(main))\n"
    )
    assert result.stdout == "True\n"


def test_the_main_coroutines_error_comes_out() -> None:
    async def main(stop: asyncio.Event) -> None:
        raise ValueError("a sentence")

    with pytest.raises(ValueError, match="a sentence"):
        run(main)


def test_a_second_signal_does_not_wait_for_the_shutdown() -> None:
    result = python(
        "import asyncio, os, signal\n"
        "from kraft.runtime.loop import run\n"
        "async def main(stop):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    await stop.wait()\n"
        "    print('stopping', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    await asyncio.Event().wait()\n"
        "run(main)\n"
    )
    assert (result.returncode, result.stdout) == (128 + signal.SIGTERM, "stopping\n")


def test_halting_says_why_and_ends_the_process_at_once() -> None:
    result = python(
        "import sys\n"
        "from kraft.runtime.halt import halt_process\n"
        "print('before', end='')\n"
        "try:\n"
        "    halt_process('the disk failed')\n"
        "finally:\n"
        "    print('never', flush=True)\n"
    )
    assert result.returncode == 1
    assert result.stdout == "before"
    assert "Halting this node: the disk failed" in result.stderr


def test_a_process_that_is_asked_for_its_stacks_prints_them_and_goes_on() -> None:
    result = python(
        "import os, signal\n"
        "from kraft.runtime.stacks import print_stacks_when_asked\n"
        "print_stacks_when_asked()\n"
        "def stands_here():\n"
        "    os.kill(os.getpid(), signal.SIGQUIT)\n"
        "stands_here()\n"
        "print('goes on')\n"
    )
    assert (result.returncode, result.stdout) == (0, "goes on\n")
    assert "in stands_here" in result.stderr


def test_stacks_without_anywhere_to_print_them_to_keep_nobody_from_starting() -> None:
    result = python(
        "import sys\n"
        "from kraft.runtime.stacks import print_stacks_when_asked\n"
        "sys.stderr = None\n"
        "print_stacks_when_asked()\n"
        "print('starts')\n"
    )
    assert result.stdout == "starts\n"


def test_a_node_can_be_asked_for_its_stacks_while_it_is_still_importing() -> None:
    result = python(
        "import os, signal, sys\n"
        "class Importing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'kraft.cli.server':\n"
        "            os.kill(os.getpid(), signal.SIGQUIT)\n"
        "            sys.exit('goes on')\n"
        "sys.meta_path.insert(0, Importing())\n"
        "sys.argv = ['kraft', 'server', 'server.properties']\n"
        "from kraft.cli.entry import main\n"
        "main()\n"
    )
    assert "in find_spec" in result.stderr
    assert result.stderr.endswith("goes on\n")


def test_clocks() -> None:
    assert abs(now_ms() - time.time() * 1000) < 60_000
    assert monotonic_s() <= monotonic_s()


async def test_the_real_environment_is_made_of_the_real_things() -> None:
    executor = ThreadExecutor()
    environment = real_environment(executor=executor)
    assert isinstance(environment.disk, RealDisk)
    assert environment.sender_factory is real_sender
    assert await environment.executor.run(sum, (1, 2)) == 3
    assert environment.host_name
    assert environment.open_files_limit == open_files_limit() != 0
    await executor.close()
