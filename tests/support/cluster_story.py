"""One seed of a whole cluster: nodes, a producer, faults in mid-stream, and the judgement at the end.

`python -m tests.support.cluster_story SEED…` prints, for each seed, what became of it as one line of
JSON: the digest of the run and everything that was wrong. `--plan` chooses what is done to the cluster,
`--timeline FILE` writes the whole story of the last seed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import structlog

from kraft.chaos.world.host import Process
from kraft.chaos.world.isolation import IsolatedRunError, run_isolated
from kraft.chaos.world.simulation import Simulation
from partitions.topic_partition import TopicPartition
from tests.support.cluster_faults import PLANS, TOPIC_CONFIGS_OF, Faults, Plan, each_fault_once
from tests.support.simulated_client import Client, Ledger, PartitionProducer, PartitionReader
from tests.support.simulated_cluster import SimulatedCluster

ROOT = Path(__file__).parents[2]
TOPIC, PARTITIONS = "orders", 3
SIDE_TOPIC = "side"
TOPIC_CONFIGS = {"min.insync.replicas": "2", "segment.bytes": "65536"}
START_WITHIN_S = 15.0
WHOLE_WITHIN_S = 30.0
DRAIN_WITHIN_S = 30.0
PACE_S = 0.02


@dataclass
class Outcome:
    """What became of one seed."""

    seed: int
    digest: str = ""
    wrong: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    acknowledged: int = 0
    requests: int = 0
    retries: int = 0
    longest_wait_s: float = 0.0
    virtual_s: float = 0.0
    steps: int = 0
    logged: dict[str, int] = field(default_factory=dict)
    """How often nodes logged what."""


class Workload:
    """The client's side of the story, on hosts of its own."""

    def __init__(self, cluster: SimulatedCluster, topic_configs: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._topic_configs = topic_configs
        self.ledger = Ledger()
        self.tails: list[PartitionReader] = []
        self.read: list[PartitionReader] = []
        self.producing = False
        self.produced = False
        self.stopping = False

    async def produce(self, process: Process) -> None:
        """Creates the topic, then produces to all partitions until it is told to stop."""
        client = Client(self._cluster.addresses, process.rng, process.now_ms)
        await client.create_topic(TOPIC, PARTITIONS, 3, self._topic_configs)
        producer_id = await client.new_producer_id()
        self.producing = True
        producers = [
            PartitionProducer(client, TOPIC, number, producer_id, self.ledger) for number in range(PARTITIONS)
        ]
        await asyncio.gather(*(producer.run(lambda: self.stopping, PACE_S) for producer in producers))
        self.produced = True

    async def tail(self, process: Process) -> None:
        """Follows the topic while it is written; creates and deletes another one all the time."""
        client = Client(self._cluster.addresses, process.rng, process.now_ms)
        self.tails = [PartitionReader(client, TOPIC, number) for number in range(PARTITIONS)]
        await asyncio.gather(*(reader.follow() for reader in self.tails), self._churn(client))

    async def _churn(self, client: Client) -> None:
        while not self.stopping:
            await client.create_topic(SIDE_TOPIC, 2, 2, {})
            await asyncio.sleep(client.rng.uniform(0, 0.5))
            await client.delete_topic(SIDE_TOPIC)
            await asyncio.sleep(client.rng.uniform(0, 0.2))

    async def consume(self, process: Process) -> None:
        """Reads all partitions from their start to their high watermark."""
        client = Client(self._cluster.addresses, process.rng, process.now_ms)
        for number in range(PARTITIONS):
            reader = PartitionReader(client, TOPIC, number)
            await reader.read_to_end()
            self.read.append(reader)

    def differences(self) -> list[str]:
        """What is wrong with what was read, given what was acknowledged. All that was sent was."""
        wrong = []
        for reader in self.read:
            name = f"{TOPIC}-{reader.partition}"
            acknowledged = sorted(self.ledger.acknowledged[TOPIC, reader.partition].items())
            start = self._cluster.start_offset(TopicPartition(TOPIC, reader.partition))
            kept = {(offset, value) for offset, value in acknowledged if offset >= start}
            missing, extra = kept - set(reader.read), set(reader.read) - set(acknowledged)
            if missing:
                wrong.append(f"{name}: acknowledged, not read: {_some(missing)}")
            if extra:
                wrong.append(f"{name}: read, never acknowledged there: {_some(extra)}")
            if len({value for _, value in reader.read}) != len(reader.read):
                wrong.append(f"{name} holds a record twice")
        for reader in self.tails:
            unstable = set(reader.read) - set(self.ledger.acknowledged[TOPIC, reader.partition].items())
            if unstable:
                wrong.append(f"{TOPIC}-{reader.partition}: read, then gone: {_some(unstable)}")
        return wrong


def _some(records: set[tuple[int, bytes]]) -> str:
    first = [(offset, value[:20]) for offset, value in sorted(records)[:3]]
    return f"{len(records)}, as {first}"


def play(seed: int, plan: Plan = each_fault_once, timeline: IO[str] | None = None) -> Outcome:
    """Plays one seed to its end and judges it."""
    outcome = Outcome(seed)
    with ExitStack() as stack:
        simulation = stack.enter_context(Simulation(seed, timeline=timeline))
        cluster = SimulatedCluster(simulation)
        log = Log(simulation, cluster.excused, timeline)
        stack.enter_context(log.installed())
        workload = Workload(cluster, {**TOPIC_CONFIGS, **TOPIC_CONFIGS_OF.get(plan, {})})
        faults = Faults(cluster, TOPIC, PARTITIONS, simulation.stream("faults"))
        producer, reader = simulation.add_host("producer"), simulation.add_host("reader")
        cluster.start()
        producer.start(workload.produce)
        if not simulation.run_until_true(lambda: workload.producing, START_WITHIN_S):
            outcome.wrong.append("the topic and the producer were not there in time")
        outcome.wrong += cluster.wait_whole(TOPIC, WHOLE_WITHIN_S)
        reader.start(workload.tail)
        if not outcome.wrong:
            outcome.wrong += plan(cluster, faults, TOPIC, simulation.stream("plan"))
            outcome.wrong += judge(cluster, workload)
        outcome.wrong += [*cluster.violations, *log.errors]
        for host in simulation.hosts.values():
            outcome.wrong += [f"{host.name} halted: {reason}" for reason in host.halts]
        outcome.wrong += [
            f"{e.process}: {e.message}: {e.error!r}"
            for e in simulation.errors
            if e.process not in cluster.excused
        ]
        outcome.digest = simulation.digest()
        outcome.virtual_s, outcome.steps = simulation.now, simulation.scheduler.steps
    ledger = workload.ledger
    outcome.logged = dict(sorted(log.counts.items()))
    outcome.faults = faults.told
    outcome.acknowledged, outcome.requests = ledger.acknowledged_total, ledger.requests
    outcome.retries, outcome.longest_wait_s = ledger.retries, ledger.longest_wait_s
    return outcome


def judge(cluster: SimulatedCluster, workload: Workload) -> list[str]:
    """Lets the stream end and everything settle, reads it back, and compares."""
    simulation = cluster.simulation
    simulation.run_for(1.0)
    workload.stopping = True
    if not simulation.run_until_true(lambda: workload.produced, DRAIN_WITHIN_S):
        late = f"not everything was acknowledged {DRAIN_WITHIN_S:g} s after the last fault"
        return [late, *cluster.ailments(TOPIC)]
    ailments = cluster.wait_whole(TOPIC, WHOLE_WITHIN_S)
    if ailments:
        return ailments
    simulation.run_for(2.0)  # the last high watermark reaches the followers
    producer = simulation.hosts["producer"]
    producer.start(workload.consume)
    if not simulation.run_until_true(lambda: not producer.alive, DRAIN_WITHIN_S):
        return ["the topic could not be read to its end"]
    return workload.differences() + cluster.disagreements(TOPIC, PARTITIONS) + cluster.strays()


class Log:
    """What nodes log: counted, noted in the trace (level and text; values only in the timeline)."""

    def __init__(self, simulation: Simulation, excused: Collection[str], timeline: IO[str] | None) -> None:
        """`excused`: the processes that may log errors."""
        self._simulation = simulation
        self._excused = excused
        self._timeline = timeline
        self.counts: Counter[str] = Counter()
        self.errors: dict[str, None] = {}

    def __call__(self, _logger: object, level: str, event: structlog.typing.EventDict) -> str:
        """The last processor of structlog."""
        self.take(level, str(event.pop("event")), event)
        raise structlog.DropEvent

    def take(self, level: str, text: str, values: Mapping[str, Any]) -> None:
        simulation = self._simulation
        lane = simulation.scheduler.current
        who = lane.name if lane else "-"
        self.counts[text] += 1
        simulation.note("log", who, level, text)
        # After its crash a process runs on to its next await, and meets a disk that is not its own any more.
        is_over = lane is not None and not lane.alive
        is_excused = any(who == process or who.startswith(f"{process}.") for process in self._excused)
        if level in ("error", "exception", "critical") and not is_over and not is_excused:
            self.errors[f"{who}: {text} {dict(values)}"] = None
        if self._timeline is not None:
            shown = " ".join(f"{key}={value}" for key, value in values.items())
            self._timeline.write(f"{simulation.now:.9f} LOG {who} {level} {text} {shown}\n")

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Takes the place of all logging, the standard library's included."""
        before, level = structlog.get_config(), logging.root.level
        structlog.configure(
            processors=[structlog.processors.format_exc_info, self],
            wrapper_class=structlog.BoundLogger,
            cache_logger_on_first_use=False,
        )
        handler = _LogHandler(self)
        logging.root.addHandler(handler)
        logging.root.setLevel(logging.WARNING)
        try:
            yield
        finally:
            logging.root.setLevel(level)
            logging.root.removeHandler(handler)
            structlog.configure(**before)


class _LogHandler(logging.Handler):
    """What libraries log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        values = {} if error is None else {"exception": "".join(traceback.format_exception(error))}
        self._log.take(record.levelname.lower(), f"{record.name}: {record.msg}", values)


def main(arguments: list[str]) -> int:
    """Plays seeds, each in a process of its own. 1 if anything was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", nargs="+", help="numbers, or first:last")
    parser.add_argument("--plan", choices=sorted(PLANS), default="each-fault-once")
    parser.add_argument("--timeline")
    options = parser.parse_args(arguments)
    seeds: list[int] = []
    for text in options.seeds:
        first, _, last = text.partition(":")
        seeds += range(int(first), int(last or first) + 1)
    failed = False
    for seed in seeds:
        document = played(seed, PLANS[options.plan], options.timeline)
        failed = failed or bool(document["wrong"])
        print(json.dumps(document), flush=True)
    return int(failed)


def played(seed: int, plan: Plan, timeline: str | None = None) -> dict[str, Any]:
    """The outcome of one seed as a document, with the real seconds that it took."""

    def run() -> Outcome:
        with ExitStack() as stack:
            return play(seed, plan, stack.enter_context(open(timeline, "w")) if timeline else None)

    began_s = time.perf_counter()
    try:
        document = asdict(run_isolated(run))
    except IsolatedRunError as error:
        document = asdict(Outcome(seed, wrong=[str(error)]))
    return {**document, "real_s": round(time.perf_counter() - began_s, 2)}


def play_twice(*arguments: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What `main` prints in two processes at once, which hash strings differently."""

    def run(hash_seed: int) -> list[dict[str, Any]]:
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.support.cluster_story", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode in (0, 1), done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, (1, 4242))
    return first, second


def throughput(stories: Sequence[Mapping[str, Any]]) -> str:
    """How fast the stories went, for people."""
    virtual_s = sum(story["virtual_s"] for story in stories)
    real_s = sum(story["real_s"] for story in stories)
    requests = sum(story["requests"] for story in stories)
    records = sum(story["acknowledged"] for story in stories)
    return (
        f"{len(stories)} seeds: {virtual_s:.0f} virtual s in {real_s:.0f} s ({virtual_s / real_s:.1f} a second),"
        f" {requests / virtual_s:.0f} produce requests and {records / virtual_s:.0f} records a virtual second"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
