"""Streams over which Spark's processes and a broker are killed with SIGKILL, in turns, while a producer goes on.

At the end the topic and the files that the streams wrote hold, without duplicates of (topic, partition, offset), what
the topic that was read holds, and that has every acknowledged record. A round kills one process of each kind once: an
executor's Python worker, an executor, a broker, and in turn the Python process that plans a stream, of which the query
ends and is started again, and the driver's JVM, with which the whole job ends.
SPARK_KILL_ROUNDS is how many there are; 2 if it is not set. Who is struck is drawn from SPARK_KILL_SEED, or a fresh
seed, which is printed; the processes run as they like, so a seed tells the strikes and not the whole run.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("pyspark")
import pyspark

from tests.support.node_processes import NodeProcesses, until
from tests.support.source_tree import ROOT
from tests.support.streams import ConfluentStream, Log, audit, read_all, streaming

ROUNDS = int(os.environ.get("SPARK_KILL_ROUNDS", "2"))
SEED = int(os.environ.get("SPARK_KILL_SEED", secrets.randbelow(1_000_000)))
PARTITIONS = 3
PAUSE_S = 0.1
LINGER_MS = 100
"""So that the producer sends some hundred records a second, and not as many as it can."""
WAIT_S = 480.0
"""For a job to start, or for streams to have caught up: ten seconds, or many times that on a busy machine."""
ROUND_S = 600.0
GIVEN_UP_MAX = 2 + ROUNDS
SLOW_PYTHON = "Python worker failed to connect back"
"""Spark gives its Python processes 10 s to start, which are not enough on a machine that is busy enough."""
PROGRAM = Path(__file__).with_name("spark") / "stream_job.py"
SINKS = ("topic", "files")

pytestmark = pytest.mark.timeout(WAIT_S * 2 + ROUNDS * ROUND_S)


class Process(NamedTuple):
    """One of the job's, from /proc."""

    pid: int
    parent: int
    command: str


class Job:
    """The program, which is started again whenever its JVM has died. All of its processes are of one session."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._line = [sys.executable, str(PROGRAM), *arguments, str(folder)]
        self._program: subprocess.Popen[str] | None = None
        self._sessions: list[int] = []
        self.given_up = 0
        # Workers of a local cluster keep their files in SPARK_HOME.
        home = folder / "spark"
        home.mkdir()
        for entry in Path(pyspark.__file__).parent.iterdir():
            (home / entry.name).symlink_to(entry)
        self._environment = {**os.environ, "SPARK_HOME": str(home), "PYTHONPATH": str(ROOT)}

    def start(self) -> None:
        self._log = self._folder / f"job-{len(self._sessions)}.log"
        with self._log.open("wb") as log:
            self._program = subprocess.Popen(
                self._line,
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._sessions.append(self._program.pid)

    @property
    def has_ended(self) -> bool:
        assert self._program is not None
        return self._program.poll() is not None

    def keep_running(self) -> None:
        """Starts it again where Spark has given it up too early; any other end is a failure."""
        if self.has_ended:
            log = self._log.read_text(errors="replace")
            assert SLOW_PYTHON in log, log[-5000:]
            self.given_up += 1
            self.start()
        slow = self.causes(slow=True)
        assert self.given_up + len(slow) <= GIVEN_UP_MAX, "\n".join(slow)

    def causes(self, *, slow: bool) -> list[str]:
        """For which streams were started again: that Python processes were too slow, or all others."""
        file = self._folder / "restarts.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        causes = [str(json.loads(line)["cause"]) for line in lines]
        return [cause for cause in causes if (SLOW_PYTHON in cause) == slow]

    def finish(self) -> str:
        """It reads all there is and ends; what it printed is the answer."""
        assert self._program is not None
        printed, _ = self._program.communicate("finish\n", timeout=WAIT_S)
        while self._program.returncode:
            self.keep_running()
            printed, _ = self._program.communicate("finish\n", timeout=WAIT_S)
        return printed

    def processes(self, *, of_all: bool = False) -> list[Process]:
        """Of the latest start, or of all."""
        sessions = self._sessions if of_all else self._sessions[-1:]
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it has just ended
            if int(fields[3]) in sessions and fields[0] != "Z":
                found.append(Process(int(entry.name), int(fields[1]), command))
        return found

    def read_up_to(self, sink: str, topic: str) -> dict[int, int]:
        """By partition, where the last micro-batch ended that the stream into this sink has committed."""
        folder = self._folder / f"checkpoint-{sink}"
        finished = [int(file.name) for file in (folder / "commits").glob("*") if file.name.isdigit()]
        if not finished:
            return {}
        last = (folder / "offsets" / str(max(finished))).read_text().splitlines()[-1]
        return {int(key): end for key, end in json.loads(last)["topics"][topic]["offsets"].items()}

    def rows(self, sink: str) -> Log:
        """What the sink holds, as the job wrote it down in the end."""
        log: Log = {partition: [] for partition in range(PARTITIONS)}
        for line in (self._folder / f"{sink}.jsonl").read_text().splitlines():
            partition, offset, value = json.loads(line)
            log[partition].append((offset, value.encode()))
        return {partition: sorted(records) for partition, records in log.items()}

    def close(self) -> None:
        """Nothing that it ever started is left."""
        for log in sorted(self._folder.glob("job-*.log")):
            print(f"{log.name} says:\n{log.read_text(errors='replace')[-5000:]}")
        until(lambda: not self._kill_all(), "the job's processes have ended")
        if self._program is not None:
            self._program.communicate(timeout=WAIT_S)

    def _kill_all(self) -> int:
        left = self.processes(of_all=True)
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        return len(left)


class Strikes:
    """Each kills one process; what it did is the answer."""

    def __init__(self, nodes: NodeProcesses, topic: str, job: Job, rng: random.Random) -> None:
        self._nodes, self._topic, self._job, self._rng = nodes, topic, job, rng
        self._drivers = [self._planner, self._jvm]
        self.planners = 0
        """Python processes of streams that were killed."""

    def worker(self) -> str:
        """An executor's Python worker: the task is tried again."""

        def workers() -> list[Process]:
            executors = {one.pid for one in self._of("CoarseGrainedExecutorBackend")}
            daemons = {one.pid for one in self._of("pyspark.daemon") if one.parent in executors}
            return [one for one in self._of("pyspark.daemon") if one.parent in daemons]

        return self._kill(workers, "a Python worker")

    def executor(self) -> str:
        """With its Python workers: Spark starts another."""
        return self._kill(lambda: self._of("CoarseGrainedExecutorBackend"), "an executor")

    def broker(self) -> str:
        """It is started again at once."""
        victim = self._nodes.busiest_leader(self._topic)
        self._nodes.local.kill(victim)
        self._nodes.local.start_node(victim)
        return f"broker {victim}"

    def driver(self) -> str:
        """A stream's Python process and the JVM in turn."""
        kill = self._drivers.pop(0)
        self._drivers.append(kill)
        return kill()

    def _jvm(self) -> str:
        """The job fails, and is started again."""
        told = self._kill(lambda: self._of("org.apache.spark.deploy.SparkSubmit"), "the driver's JVM")
        until(lambda: self._job.has_ended, "the job has failed", WAIT_S)
        self._job.start()
        return told

    def _planner(self) -> str:
        """The query fails, and is started again."""
        before = len(self._job.causes(slow=False))
        told = self._kill(lambda: self._of("python_streaming_source_runner"), "a stream's Python process")

        def is_noticed() -> bool:
            self._job.keep_running()
            return len(self._job.causes(slow=False)) > before

        until(is_noticed, "the stream has been started again", WAIT_S)
        self.planners += 1
        return told

    def all(self) -> list[Callable[[], str]]:
        return [self.worker, self.executor, self.broker, self.driver]

    def _of(self, word: str) -> list[Process]:
        return [one for one in self._job.processes() if word in one.command]

    def _kill(self, candidates: Callable[[], list[Process]], what: str) -> str:
        """One of them, as soon as there is one."""

        def found() -> list[Process] | None:
            self._job.keep_running()
            return candidates() or None

        victim = self._rng.choice(until(found, f"{what} is there", WAIT_S))
        os.kill(victim.pid, signal.SIGKILL)
        return f"{what}, {victim.pid}"


def await_caught_up(job: Job, stream: ConfluentStream) -> None:
    """Returns when both streams have committed all that is acknowledged now."""
    ends: dict[int, int] = {}
    for partition, offset in list(stream.acknowledged.values()):
        ends[partition] = max(ends.get(partition, 0), offset + 1)

    def caught_up() -> bool:
        job.keep_running()
        return all(
            job.read_up_to(sink, stream.topic).get(partition, 0) >= end
            for sink in SINKS
            for partition, end in ends.items()
        )

    until(caught_up, f"both streams have read up to {ends}", WAIT_S)


def test_nothing_is_lost_whatever_is_killed(fragile_cluster: NodeProcesses, tmp_path: Path) -> None:
    print(f"SPARK_KILL_SEED={SEED}")
    rng = random.Random(SEED)
    source = fragile_cluster.create_topic("source", PARTITIONS, min_insync_replicas="2")
    sink = fragile_cluster.create_topic("sink", PARTITIONS, min_insync_replicas="2")
    job = Job(tmp_path, fragile_cluster.bootstrap, source, sink)
    settings = {"enable.idempotence": True, "acks": "all", "linger.ms": LINGER_MS}
    stream = ConfluentStream(fragile_cluster.bootstrap, source, PARTITIONS, settings, pause_s=PAUSE_S)
    strikes = Strikes(fragile_cluster, source, job, rng)
    struck: Counter[str] = Counter()
    with contextlib.closing(job):
        job.start()
        with streaming(stream):
            stream.wait_for(PARTITIONS)
            await_caught_up(job, stream)
            for number in range(ROUNDS):
                for strike in rng.sample(strikes.all(), len(strikes.all())):
                    began_s = time.monotonic()
                    told = strike()
                    struck[strike.__name__] += 1
                    stream.wait_for(PARTITIONS)
                    await_caught_up(job, stream)
                    print(
                        f"round {number + 1}: {told}, caught up after {time.monotonic() - began_s:.1f} s;"
                        f" {len(stream.acknowledged)} acknowledged",
                        flush=True,
                    )
        print(job.finish())
        log = read_all(fragile_cluster.bootstrap, source, PARTITIONS)
        audit(stream, log)
        for name in SINKS:
            assert job.rows(name) == log, f"the {name} that was written differ from the topic that was read"
        causes = job.causes(slow=False)
        assert len(causes) == strikes.planners, "\n".join(causes)
    print(f"killed: {dict(struck)}, given up by Spark: {job.given_up + len(job.causes(slow=True))}")
    print(f"{sum(map(len, log.values()))} records, all of them in both sinks")
