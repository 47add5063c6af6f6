"""`kraft consume --group`: what is committed was written before, and where a member begins and ends."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kraft.cli.app import run
from kraft.cli.consume.command import Copy
from kraft.cli.consume.membership import GroupProtocol, Member, Membership, is_incremental, membership
from kraft.cli.consume.positions import From, Start
from kraft.user_error import EXIT_USAGE, UserError


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--group-protocol", "consumer"), "name it with --group"),
        (("--instance-id", "i"), "name it with --group"),
        (("--group", ""), "not empty"),
        (("--group", "g", "--instance-id", ""), "not empty"),
        (("--group", "g", "--partition", "0"), "leave one away"),
        (("--group", "g", "--property", "group.id=h"), "--group sets it"),
        (("--group", "g", "--property", "group.protocol=classic"), "--group-protocol sets it"),
        (("--group", "g", "--property", "enable.auto.commit=false"), "commits what has been written"),
        (("--group", "g", "--property", "enable.auto.offset.store=true"), "commits what has been written"),
        (("--group", "g", "--from-beginning", "--offset", "1"), "give one"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["consume", "t", *options, "--bootstrap-server", "127.0.0.1:1"]) == EXIT_USAGE
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_what_a_member_asks_of_its_client() -> None:
    joined = membership("g", None, "i")
    assert joined == Membership("g", GroupProtocol.classic, "i")
    assert joined.properties(Start(From.EARLIEST)) == {
        "group.id": "g",
        "group.instance.id": "i",
        "group.protocol": "classic",
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
    }
    other = Membership("g", GroupProtocol.consumer, None).properties(Start(From.LATEST))
    assert (other["group.protocol"], other["auto.offset.reset"]) == ("consumer", "latest")
    assert "group.instance.id" not in other
    assert membership(None, None, None) is None


def test_when_partitions_come_one_by_one() -> None:
    classic, consumer = (Membership("g", protocol, None) for protocol in GroupProtocol)
    assert is_incremental(consumer, "")
    assert is_incremental(classic, "cooperative-sticky")
    assert not is_incremental(classic, "range,roundrobin")


class Consumer:
    """The client library's, with one list of messages for each call of consume."""

    def __init__(self, *batches: list[Any], committed: dict[int, int] | None = None) -> None:
        self.batches = list(batches)
        self.assigned: list[Any] = []
        self.committed_offsets = committed or {}
        self.log: list[tuple[str, Any]] = []
        self.lost: set[int] = set()
        self.commit_error: int | None = None

    def consume(self, count: int, _timeout_s: float) -> list[Any]:
        batch = self.batches.pop(0)
        assert len(batch) <= count
        return batch

    def assignment(self) -> list[Any]:
        return self.assigned

    def subscribe(self, topics: list[str], on_assign: Any = None) -> None:
        self.log.append(("subscribe", topics))
        if on_assign is not None:
            on_assign(self, [TopicPartition("t", 0), TopicPartition("t", 1)])

    def committed(self, partitions: list[Any], _timeout_s: float) -> list[Any]:
        return [
            TopicPartition(p.topic, p.partition, self.committed_offsets.get(p.partition, -1001))
            for p in partitions
        ]

    def get_watermark_offsets(self, _wanted: Any, _timeout_s: float) -> tuple[int, int]:
        return 0, 100

    def assign(self, partitions: list[Any]) -> None:
        self.log.append(("assign", [(p.partition, p.offset) for p in partitions]))

    def incremental_assign(self, partitions: list[Any]) -> None:
        self.log.append(("incremental_assign", [(p.partition, p.offset) for p in partitions]))

    def store_offsets(self, message: Any) -> None:
        if message.partition() in self.lost:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.log.append(("store", (message.partition(), message.offset() + 1)))

    def commit(self, *, asynchronous: bool) -> None:
        assert not asynchronous
        if self.commit_error is not None:
            raise KafkaException(KafkaError(self.commit_error))
        self.log.append(("commit", None))


def record(partition: int, offset: int, error: int | None = None) -> Any:
    return SimpleNamespace(
        topic=lambda: "t",
        partition=lambda: partition,
        offset=lambda: offset,
        error=lambda: None if error is None else KafkaError(error),
    )


class Output:
    """Standard output: what was flushed is told to the consumer's log."""

    def __init__(self, consumer: Consumer, *, is_broken: bool = False) -> None:
        self._consumer = consumer
        self._is_broken = is_broken
        self._held: list[bytes] = []
        self.buffer = self

    def fileno(self) -> int:
        raise io.UnsupportedOperation

    def write(self, data: bytes) -> None:
        self._held.append(data)

    def flush(self) -> None:
        if self._is_broken:
            raise BrokenPipeError
        if self._held:
            self._consumer.log.append(("written", b"".join(self._held)))
            self._held.clear()


def copied(
    consumer: Consumer,
    monkeypatch: pytest.MonkeyPatch,
    *,
    maximum: int | None = None,
    is_broken: bool = False,
) -> tuple[Copy, list[Any]]:
    """What reads from the consumer into `Output`, and the errors that the member is told of."""
    noted: list[Any] = []
    monkeypatch.setattr(sys, "stdout", Output(consumer, is_broken=is_broken))
    member = Member(consumer, noted.append)
    return Copy(lambda message: b"%d.%d " % (message.partition(), message.offset()), maximum, member), noted


def test_offsets_are_stored_when_their_records_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer([record(0, 5), record(1, 0), record(0, 6)], [record(1, 1)])
    copied(consumer, monkeypatch, maximum=4)[0].run(consumer, None)
    assert consumer.log == [
        ("written", b"0.5 1.0 0.6 "),
        ("store", (0, 7)),
        ("store", (1, 1)),
        ("written", b"1.1 "),
        ("store", (1, 2)),
    ]


def test_records_that_nobody_took_are_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer([record(0, 5)])
    with pytest.raises(BrokenPipeError):
        copied(consumer, monkeypatch, is_broken=True)[0].run(consumer, None)
    assert consumer.log == []


def test_a_partition_that_went_to_another_member_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer([record(0, 5), record(1, 9)])
    consumer.lost = {0}
    copied(consumer, monkeypatch, maximum=2)[0].run(consumer, None)
    assert consumer.log[1:] == [("store", (1, 10))]


def test_the_end_is_that_of_the_members_own_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    end = KafkaError._PARTITION_EOF
    consumer = Consumer([], [record(0, 0)], [record(0, 1), record(0, 2)])
    copy, _ = copied(consumer, monkeypatch)
    consume = consumer.consume

    def given_later(count: int, timeout_s: float) -> list[Any]:
        batch = consume(count, timeout_s)
        consumer.assigned = [TopicPartition("t", 0), TopicPartition("t", 2)]
        return batch

    monkeypatch.setattr(consumer, "consume", given_later)
    copy.run(consumer, {("t", 0): 2, ("t", 1): 9})
    assert consumer.batches == []
    assert consumer.log[-2:] == [("written", b"0.1 "), ("store", (0, 2))], (
        "what was written after the start stays unread"
    )
    # A partition whose committed offset is at its end already sends no record.
    consumer = Consumer([record(1, 9, end)])
    consumer.assigned = [TopicPartition("t", 1)]
    copied(consumer, monkeypatch)[0].run(consumer, {("t", 1): 9})
    assert consumer.batches == []


def test_a_member_whose_output_was_not_read_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    exceeded, refused = KafkaError._MAX_POLL_EXCEEDED, KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer = Consumer([record(0, 0, exceeded)], [record(0, 5)], [record(0, 0, refused)])
    copy, noted = copied(consumer, monkeypatch)
    with pytest.raises(UserError, match="Group authorization failed"):
        copy.run(consumer, None)
    assert [error.code() for error in noted] == [exceeded]
    assert ("store", (0, 6)) in consumer.log


def test_leaving_commits_and_says_so_where_it_could_not() -> None:
    consumer = Consumer()
    member = Member(consumer, lambda error: None)
    member.leave()
    assert consumer.log == [("commit", None)]
    consumer.commit_error = KafkaError._NO_OFFSET
    member.leave()
    consumer.commit_error = KafkaError.ILLEGAL_GENERATION
    with pytest.raises(
        UserError, match="the last offsets were not committed, their records will be read again"
    ):
        member.leave()


@pytest.mark.parametrize(("incremental", "call"), [(False, "assign"), (True, "incremental_assign")])
def test_partitions_without_a_committed_offset_begin_where_it_is_said(incremental: bool, call: str) -> None:
    consumer = Consumer(committed={1: 42})
    member = Member(consumer, lambda error: None)
    member.join(["t", "t"], Start(From.LAST, 5), is_incremental=incremental)
    assert consumer.log == [("subscribe", ["t"]), (call, [(0, 95), (1, 42)])]
    consumer.log.clear()
    member.join(["t"], Start(From.EARLIEST), is_incremental=incremental)
    assert consumer.log == [("subscribe", ["t"])], "the client's auto.offset.reset says it"
