"""What is asked when all has healed: an answer that does not come is missing evidence, and no pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kraft.chaos.experiments.document import load
from kraft.chaos.history import OperationStatus
from kraft.chaos.real.brokers import Brokers
from kraft.chaos.real.workload import consumers
from kraft.chaos.real.workload.clients import Clients
from kraft.chaos.real.workload.recorder import Recorder
from tests.unit.chaos.experiments.planted import TEXT

END = 3
UNUSED = Brokers("127.0.0.1:1")


class EndOfPartition:
    """The message at a partition's high watermark."""

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
    (read,) = consumers.read_finally(UNUSED, recorder, transactional, lambda *_: END, timeout_s=0.2)
    assert (read.log_end, read.read_to, read.problem) == (END, END, problem)


@pytest.mark.parametrize(
    ("leader_end", "problem"),
    [(END + 2, "the read stands at offset 3 of 5"), (None, "its ends could not be asked for")],
    ids=["behind the high watermark", "told by nobody"],
)
def test_the_read_goes_to_where_the_leader_s_log_ends(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, leader_end: int | None, problem: str
) -> None:
    monkeypatch.setattr(consumers, "Consumer", Log)
    (read,) = consumers.read_finally(UNUSED, recorder, (), lambda *_: leader_end, timeout_s=0.2)
    assert read.problem == problem


class Coordinator:
    """A consumer whose coordinator tells one offset of one partition, or does not answer."""

    answers = True

    def __init__(self, _settings: dict[str, Any]) -> None:
        """It needs none."""

    def committed(self, partitions: list[TopicPartition], _timeout_s: float) -> list[TopicPartition]:
        if not self.answers:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [TopicPartition(one.topic, one.partition, 7, "member:3") for one in partitions]

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("answers", [True, False])
def test_a_group_whose_commits_nobody_tells_is_a_problem_of_the_run(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: bool
) -> None:
    experiment = load(TEXT.replace("kind: consumer, topic: orders", "kind: group, topic: orders, group: g"))
    monkeypatch.setattr(consumers, "Consumer", Coordinator)
    monkeypatch.setattr(Coordinator, "answers", answers)
    Clients(experiment, UNUSED, recorder, 1, tmp_path, tmp_path).ask_groups_finally()
    (fetch,) = recorder.groups.operations
    told = (OperationStatus.OK, 7, "member:3") if answers else (OperationStatus.INFO, -1, "")
    assert (fetch.status, fetch.offset, fetch.tag) == told
    problem = "nobody tells what group g has committed in orders-0"
    assert recorder.problems == ([] if answers else [problem])
