"""Programs with transactions, of real clients, and what tests ask of them.

The programs are in `tests/clients/transactional` and `tests/clients/java`; `python_program.py` says what they do.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeAlias

from confluent_kafka import Consumer, TopicPartition

from kraft.coordinator.groups.partitioning import group_partition
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.transactions import DescribedTransaction, DescribeTransactionsRequest
from tests.support.java_programs import FLAGS
from tests.support.node_processes import WAIT_S, NodeProcesses, until
from tests.support.raw_client import RawConnection

PROGRAMS = Path(__file__).parent.parent / "clients" / "transactional"
STATE_TOPIC = "__transaction_state"
TRANSACTION_TIMEOUT_MS = 30_000
SESSION_MS = 10_000
ANSWER_S = 90.0
CANNOT_GO_ON = 3

Settings: TypeAlias = Mapping[str, str | int]


class Library(NamedTuple):
    """A client library with transactions."""

    name: str
    command: Callable[[str, Settings], Sequence[str]]
    """What to do (`commands`, `process`), its settings."""
    environment: Mapping[str, str] | None = None


def _python(client: str) -> Library:
    def command(mode: str, settings: Settings) -> Sequence[str]:
        return [sys.executable, str(PROGRAMS / "python_program.py"), client, mode, json.dumps(settings)]

    return Library(client, command)


CONFLUENT, AIOKAFKA = _python("confluent"), _python("aiokafka")


def kafkajs(node_modules: Path) -> Library:
    def command(mode: str, settings: Settings) -> Sequence[str]:
        return ["node", str(PROGRAMS / "kafkajs_program.js"), mode, json.dumps(settings)]

    return Library("kafkajs", command, {"NODE_PATH": str(node_modules)})


def franz_go(program: Path) -> Library:
    return Library("franz-go", lambda mode, settings: [str(program), mode, json.dumps(settings)])


def java(classpath: str) -> Library:
    """Its class path has the compiled Transactions."""

    def command(mode: str, settings: Settings) -> Sequence[str]:
        pairs = [f"{key}={value}" for key, value in settings.items()]
        return ["java", *FLAGS, "-cp", classpath, "Transactions", mode, *pairs]

    return Library("java", command)


def coordinator(cluster: NodeProcesses, transactional_id: str) -> int:
    """The broker that coordinates a transactional id."""
    partitions = len(cluster.partitions(STATE_TOPIC))
    return cluster.leader(STATE_TOPIC, group_partition(transactional_id, partitions))


def described(cluster: NodeProcesses, transactional_id: str) -> DescribedTransaction:
    """What its coordinator knows of it."""

    def ask() -> DescribedTransaction | None:
        with RawConnection(cluster.address(coordinator(cluster, transactional_id))) as connection:
            answer = connection.call(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
        one: DescribedTransaction = answer.transaction_states[0]
        return one if one.error_code == ErrorCode.NONE else None

    found: DescribedTransaction = until(ask, f"{transactional_id} is known to its coordinator")
    return found


class Failed(AssertionError):
    """A client refused a command; the message is its own name of the error."""


class _Program:
    """One process."""

    def __init__(self, library: Library, mode: str, settings: Settings) -> None:
        self.errors_file = tempfile.NamedTemporaryFile()  # noqa: SIM115  # closed by `end`
        self.process = subprocess.Popen(
            library.command(mode, settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors_file,
            text=True,
            bufsize=1,
            env=None if library.environment is None else {**os.environ, **library.environment},
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def next_line(self, timeout_s: float) -> str | None:
        """None when there will be no more. Raises queue.Empty."""
        return self._lines.get(timeout=timeout_s)

    @property
    def errors(self) -> str:
        return Path(self.errors_file.name).read_text(errors="replace")

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self.errors_file.close()


class Transactor:
    """A producer under command. Used as `with Transactor(…) as producer`."""

    def __init__(
        self,
        cluster: NodeProcesses,
        library: Library,
        transactional_id: str,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self._program = _Program(
            library,
            "commands",
            {
                "bootstrap": cluster.bootstrap,
                "transactional_id": transactional_id,
                "transaction_timeout_ms": timeout_ms,
            },
        )

    def __enter__(self) -> Transactor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and (words := self._program.errors):
            error.add_note(f"the producer said: {words[-2_000:]}")
        self._program.end()

    def ask(self, *words: object) -> None:
        """Raises Failed."""
        stdin = self._program.process.stdin
        assert stdin is not None
        stdin.write(" ".join(map(str, words)) + "\n")
        answer = self._program.next_line(ANSWER_S)
        if answer != "done":
            raise Failed(answer)

    def send(self, topic: str, values: Mapping[int, str]) -> None:
        """A value to each of these partitions."""
        for partition, value in values.items():
            self.ask("send", topic, partition, value)

    def transaction(self, topic: str, values: Mapping[int, str], *, commits: bool = True) -> None:
        """A whole one."""
        self.ask("begin")
        self.send(topic, values)
        self.ask("commit" if commits else "abort")


class Processor:
    """An exactly-once processor that is started again when its client cannot go on, as by whoever runs it.

    Used as `with Processor(…) as processor`.
    """

    def __init__(
        self, cluster: NodeProcesses, library: Library, transactional_id: str, source: str, target: str
    ) -> None:
        self._library = library
        self._settings: Settings = {
            "bootstrap": cluster.bootstrap,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
            "input": source,
            "output": target,
            "group": f"group-of-{transactional_id}",
            "session_timeout_ms": SESSION_MS,
        }
        self.transactions = 0
        self.starts = 0
        self._said: list[str] = []
        self._program = self._start()

    def _start(self) -> _Program:
        self.starts += 1
        return _Program(self._library, "process", self._settings)

    def __enter__(self) -> Processor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(
                f"starts: {self.starts}; said: {' | '.join([*self._said, self._program.errors])[-3_000:]}"
            )
        self._program.end()

    def kill(self) -> None:
        """At once; it is started again."""
        self._program.process.send_signal(signal.SIGKILL)

    def look(self) -> None:
        """Takes in what it told, and starts it again if it has ended."""
        while True:
            try:
                line = self._program.next_line(0.02)
            except queue.Empty:
                return
            if line is None:
                break
            self.transactions += line.startswith("committed")
        code = self._program.process.wait(WAIT_S)
        self._said.append(self._program.errors[-1_000:])
        assert code in (CANNOT_GO_ON, -signal.SIGKILL), f"a processor ended with {code}: {self._said[-1]}"
        self._program.end()
        self._program = self._start()

    def await_transactions(self, count: int) -> None:
        """Until it has committed so many more."""
        wanted = self.transactions + count

        def has_committed() -> bool:
            self.look()
            return self.transactions >= wanted

        until(has_committed, f"{self._library.name} commits {count} more transactions", 2 * WAIT_S)


def read_all(cluster: NodeProcesses, topic: str, *, committed: bool) -> Counter[str]:
    """All values of a topic, and how often each is there."""
    return Counter(value for _, value in read_records(cluster, topic, committed=committed))


def read_records(cluster: NodeProcesses, topic: str, *, committed: bool) -> list[tuple[str, str]]:
    """Keys (empty where there is none) and values up to the present end: the last stable offset, or the high
    watermark. In the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    left = set(cluster.partitions(topic))
    records: list[tuple[str, str]] = []
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in left])

        def is_read() -> bool:
            for message in consumer.consume(1_000, 0.1):
                if message.error() is None:
                    records.append(((message.key() or b"").decode(), message.value().decode()))
                elif message.error().name() == "_PARTITION_EOF":
                    left.discard(message.partition())
            return not left

        until(is_read, f"{topic} is read to its end")
    finally:
        consumer.close()
    return records


def is_stable(cluster: NodeProcesses, topic: str) -> bool:
    """Whether no transaction is open in the topic: what may be read is all that is there."""
    ends: list[list[int]] = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "isolation.level": isolation}
        )
        try:
            ends.append(
                [
                    consumer.get_watermark_offsets(TopicPartition(topic, number), WAIT_S)[1]
                    for number in sorted(cluster.partitions(topic))
                ]
            )
        finally:
            consumer.close()
    return ends[0] == ends[1]


def until_stable(cluster: NodeProcesses, topic: str) -> None:
    """Until all transactions of the topic have ended."""
    until(lambda: is_stable(cluster, topic), f"no transaction is open in {topic}")
