"""One seed is one history, in every process; and the process is itself again afterwards."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import select
import socket
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp.connector
import pytest
from aiohttp._websocket.writer import WebSocketWriter

from kraft.chaos.world.determinism import EPOCH_S, GuardError
from kraft.chaos.world.scheduler import SimulationFailed
from kraft.chaos.world.simulation import Simulation

ROOT = Path(__file__).parents[3]
TOY = Path(__file__).with_name("toy.py")
SEEDS = range(1, 9)


def run_toy(hash_seed: int, *options: str) -> list[dict]:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(TOY), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=55)
    return json.loads(done.stdout)


def run_twice(*options: str) -> list[list[dict]]:
    """What the toy tells in two processes, which hash strings differently."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda hash_seed: run_toy(hash_seed, *options), (1, 4242)))


def test_equal_histories_across_processes_and_hash_seeds():
    first, second = run_twice("2", *map(str, SEEDS))
    assert [run["digest"] for run in first] == [run["digest"] for run in second]
    assert len({run["digest"] for run in first}) == len(SEEDS)
    assert first == second
    totals: dict[str, int] = {}
    for run in first:
        assert run["errors"] == []
        for name, count in run["counters"].items():
            totals[name] = totals.get(name, 0) + count
    for name in ("rpc", "echo", "websocket", "synced", "kill", "power loss", "pause", "block", "reset"):
        assert totals[name] > 0, name


def test_a_dependence_on_string_hashes_is_noticed():
    [first], [second] = run_twice("1", "1", "--leak")
    assert first["digest"] != second["digest"]


async def chatter(process):
    """Draws from every source of chance and time that Python code may know."""
    while True:
        random_now = (random.random(), uuid.uuid4(), os.urandom(4), random.Random().random(), time.time())
        process.host.note(*random_now, time.monotonic(), time.perf_counter_ns(), process.rng.random())
        await asyncio.sleep(random.random())


def digest_of(seed: int, **options: object) -> str:
    with Simulation(seed, **options) as simulation:
        for _ in range(3):
            simulation.add_host().start(chatter)
        simulation.run_until(20)
        return simulation.digest()


def test_equal_histories_within_one_process():
    assert digest_of(5) == digest_of(5)
    assert digest_of(5) != digest_of(6)


def test_the_timeline_tells_the_hashed_story(tmp_path):
    timelines = [tmp_path / "first", tmp_path / "second"]
    digests = []
    for path in timelines:
        with path.open("w") as file:
            digests.append(digest_of(7, timeline=file))
    assert digests[0] == digests[1] == digest_of(7)
    assert timelines[0].read_text() == timelines[1].read_text()
    assert "run 10.0.0.2#1" in timelines[0].read_text()


def test_everything_is_put_back():
    generator = WebSocketWriter.__init__.__kwdefaults__["random"]
    before = (
        time.time, time.monotonic, time.perf_counter, time.time_ns, time.sleep, time.ctime, os.urandom, os.stat,
        random.Random.seed, random.getstate(), generator.getstate(), socket.socket, threading.Thread.start,
        aiohttp.connector.monotonic, "set" in vars(aiohttp.connector), sys.dont_write_bytecode,
        gc.isenabled(), sys.get_asyncgen_hooks(), "__hash__" in vars(asyncio.tasks._GatheringFuture),
    )  # fmt: skip
    digest_of(1)
    after = (
        time.time, time.monotonic, time.perf_counter, time.time_ns, time.sleep, time.ctime, os.urandom, os.stat,
        random.Random.seed, random.getstate(), generator.getstate(), socket.socket, threading.Thread.start,
        aiohttp.connector.monotonic, "set" in vars(aiohttp.connector), sys.dont_write_bytecode,
        gc.isenabled(), sys.get_asyncgen_hooks(), "__hash__" in vars(asyncio.tasks._GatheringFuture),
    )  # fmt: skip
    assert before == after
    assert time.time() > EPOCH_S + 1e6


def test_everything_is_put_back_after_a_failure():
    clock = time.time
    with pytest.raises(ZeroDivisionError), Simulation(1):
        raise ZeroDivisionError
    assert time.time is clock
    assert gc.isenabled()


def write_a_file(tmp_path):
    with open(tmp_path / "file", "w"):
        raise AssertionError("unreachable")


VIOLATIONS = {
    "thread": lambda tmp_path: threading.Thread(target=print).start(),
    "sleep": lambda tmp_path: time.sleep(0.001),
    "file": write_a_file,
    "file to read": lambda tmp_path: open("/proc/self/stat").close(),
    "listdir": lambda tmp_path: os.listdir(tmp_path),
    "scandir": lambda tmp_path: list(os.scandir(tmp_path)),
    "clock_gettime": lambda tmp_path: time.clock_gettime(time.CLOCK_REALTIME),
    "os.open": lambda tmp_path: os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT),
    "entropy": lambda tmp_path: open("/dev/urandom", "rb").close(),
    "rename": lambda tmp_path: os.rename(tmp_path / "a", tmp_path / "b"),
    "mkdir": lambda tmp_path: (tmp_path / "folder").mkdir(),
    "blocking connect": lambda tmp_path: socket.create_connection(("127.0.0.1", 9)),
    "raw socket": lambda tmp_path: sys.modules["_socket"].socket(),
    "name lookup": lambda tmp_path: socket.getaddrinfo("localhost", 80),
    "subprocess": lambda tmp_path: subprocess.run(["true"], check=False),
    "fork": lambda tmp_path: os.fork(),
    "executor": lambda tmp_path: ThreadPoolExecutor(1).submit(print),
    "stat": lambda tmp_path: os.stat(tmp_path),
    "exists": lambda tmp_path: (tmp_path / "file").exists(),
    "islink": lambda tmp_path: os.path.islink(tmp_path),
    "access": lambda tmp_path: os.access(tmp_path, os.R_OK),
    "statvfs": lambda tmp_path: os.statvfs(tmp_path),
    "chmod": lambda tmp_path: os.chmod(tmp_path, 0o700),
    "utime": lambda tmp_path: os.utime(tmp_path),
    "symlink": lambda tmp_path: os.symlink("elsewhere", tmp_path / "link"),
    "link": lambda tmp_path: os.link(__file__, tmp_path / "link"),
    "fifo": lambda tmp_path: os.mkfifo(tmp_path / "fifo"),
    "pipe": lambda tmp_path: os.pipe(),
    "epoll": lambda tmp_path: select.epoll(),
    "selector": lambda tmp_path: select.select([], [], [], 0),
    "signal": lambda tmp_path: os.kill(os.getpid(), 0),
    "times": lambda tmp_path: os.times(),
    "getrandom": lambda tmp_path: os.getrandom(4),
    "uuid1": lambda tmp_path: uuid.uuid1(),  # noqa: TID251 - the guard is asked
    "host's name": lambda tmp_path: socket.gethostname(),
    "host by name": lambda tmp_path: socket.gethostbyname("localhost"),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_reaching_for_the_real_world_fails_the_run_even_if_it_is_swallowed(name, tmp_path):
    async def sinner(process):
        await asyncio.sleep(1)
        try:
            VIOLATIONS[name](tmp_path)
        except (GuardError, AssertionError):
            process.host.note("swallowed")
        await asyncio.sleep(1)
        process.host.note("not reached")

    with Simulation(1) as simulation:
        simulation.add_host().start(sinner)
        with pytest.raises(SimulationFailed, match="must go through a port"):
            simulation.run_until(5)
        assert simulation.now < 1.1
        with pytest.raises(SimulationFailed):
            simulation.run_for(1)
    assert list(tmp_path.iterdir()) == []


def test_every_clock_is_virtual():
    told = []

    async def asker(process):
        await asyncio.sleep(2)
        told.extend((time.process_time(), time.thread_time(), time.mktime(time.localtime()), time.gmtime()))
        told.extend((time.ctime(), time.asctime(), time.strftime("%a %b %d %H:%M:%S %Y"), time.localtime()))

    with Simulation(1) as simulation:
        simulation.add_host().start(asker)
        simulation.run_until(5)
    process_s, thread_s, local_s, utc, *texts, local = told
    assert process_s == thread_s == pytest.approx(2.0, abs=0.01)
    assert local_s == pytest.approx(EPOCH_S + 2, abs=1)
    assert utc == time.gmtime(EPOCH_S + 2)
    assert texts == [
        time.ctime(EPOCH_S + 2),
        time.asctime(local),
        time.strftime("%a %b %d %H:%M:%S %Y", local),
    ]


def test_modules_may_be_imported_in_mid_run():
    async def importer(process):
        sys.modules.pop("colorsys", None)
        import colorsys

        process.host.note(colorsys.__name__)

    with Simulation(1) as simulation:
        simulation.add_host().start(importer)
        simulation.run_until(1)
        assert simulation.errors == []


def test_reading_code_and_unrelated_work_outside_of_a_step_are_allowed(tmp_path):
    def read() -> str:
        return Path(__file__).read_text()[:10]

    async def reader(process):
        process.host.note(read())

    with Simulation(1) as simulation:
        simulation.add_host().start(reader)
        simulation.run_until(1)
        (tmp_path / "result").write_text(simulation.digest())
    assert simulation.errors == []
