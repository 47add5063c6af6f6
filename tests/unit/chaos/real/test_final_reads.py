"""What is asked when all has healed: an answer that does not come is missing evidence, and no pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from kraft.chaos.experiments.document import load
from kraft.chaos.real.workload import clients as clients_module
from kraft.chaos.real.workload import consumers
from kraft.chaos.real.workload.clients import Clients
from kraft.chaos.real.workload.recorder import Commit, Recorder
from tests.unit.chaos.experiments.planted import TEXT

END = 3


class EndOfPartition:
    """The message at a partition's end."""

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._PARTITION_EOF)

    def offset(self) -> int:
        return END


class Log:
    """A consumer of one partition without records, whose committed end never comes while a transaction hangs."""

    hangs = False

    def __init__(self, settings: dict[str, Any]) -> None:
        self._waits = self.hangs and settings["isolation.level"] == consumers.COMMITTED

    def get_watermark_offsets(self, _partition: TopicPartition, _timeout_s: float) -> tuple[int, int]:
        return 0, END

    def assign(self, _partitions: list[TopicPartition]) -> None:
        """There is one."""

    def consume(self, _count: int, _timeout_s: float) -> list[EndOfPartition]:
        return [] if self._waits else [EndOfPartition()]

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def recorder() -> Recorder:
    return Recorder({"orders": b"o" * 16}, {"orders": 1})


@pytest.mark.parametrize(
    ("transactional", "hangs", "problem"),
    [
        ((), False, ""),
        ((), True, ""),
        (("orders",), False, ""),
        (("orders",), True, "of what is committed, the read stands at offset 0 of 3"),
    ],
)
def test_what_is_committed_is_read_to_its_end_too(
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    transactional: tuple[str, ...],
    hangs: bool,
    problem: str,
) -> None:
    monkeypatch.setattr(consumers, "Consumer", Log)
    monkeypatch.setattr(Log, "hangs", hangs)
    (read,) = consumers.read_finally("unused", recorder, transactional, timeout_s=0.2)
    assert (read.log_end, read.read_to, read.problem) == (END, END, problem)


@pytest.mark.parametrize(
    ("stands", "lost", "problems"),
    [({("orders", 0): 9}, 0, 0), ({("orders", 0): 8}, 1, 0), ({}, 0, 1)],
    ids=["as told", "older", "nobody answers"],
)
def test_a_group_whose_commits_nobody_tells_is_a_problem_of_the_run(
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    stands: dict[tuple[str, int], int],
    lost: int,
    problems: int,
) -> None:
    experiment = load(TEXT.replace("kind: consumer, topic: orders", "kind: group, topic: orders, group: g"))
    monkeypatch.setattr(clients_module, "committed_offsets", lambda *_: stands)
    clients = Clients(experiment, "unused", recorder, 1, tmp_path, tmp_path)
    first = Commit("g", "member", "orders", 0, 5, 1.0)
    for commit in (first, replace(first, offset=9)):
        recorder.committed(commit)
    assert len(clients.lost_commits()) == lost
    assert len(recorder.problems) == problems
