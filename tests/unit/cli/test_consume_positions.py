"""Which topics `kraft consume` means, and where it begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft.cli.app import run
from kraft.cli.consume.positions import (
    From,
    Start,
    TopicPartition,
    Topics,
    ends_of,
    parse_offset,
    partitions_of,
    start_offsets,
)
from kraft.user_error import EXIT_FAILED, EXIT_USAGE, UserError


def test_offsets() -> None:
    assert parse_offset("earliest") == Start(From.EARLIEST)
    assert parse_offset("latest") == Start(From.LATEST)
    assert parse_offset("7") == Start(From.OFFSET, 7)
    assert parse_offset("0") == Start(From.OFFSET, 0)
    assert parse_offset(str(2**63 - 1)) == Start(From.OFFSET, 2**63 - 1)
    assert parse_offset("-5") == Start(From.LAST, 5)
    assert parse_offset("-0") == Start(From.LAST, 0)


@pytest.mark.parametrize("text", ["--1", "-", "²", "first", "", str(2**63), f"-{2**63}", "9" * 5000, "1.5"])
def test_other_offsets_are_wrong_usage(text: str) -> None:
    with pytest.raises(UserError, match="--offset") as caught:
        parse_offset(text)
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("t", "--include", "("),
        ("^(",),
        ("t", "--offset", "1", "--from-beginning"),
        ("t", "--offset", "latest", "--from-time", "1"),
        ("t", "--from-time", "yesterday"),
        ("t", "--isolation-level", "serializable"),
        ("t", "--property", "isolation.level=read_committed"),
        ("t", "--property", "group.id=g"),
        ("t", "--property", "no.such.thing=1"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["consume", *options, "--bootstrap-server", "127.0.0.1:1"]) == EXIT_USAGE
    assert capsys.readouterr().out == ""


EXISTING = ["orders", "orders-eu", "my-orders", "__consumer_offsets", "a.b"]


@pytest.mark.parametrize(
    ("arguments", "include", "chosen"),
    [
        (["orders", "missing", "orders"], None, ["orders", "missing"]),
        (["^orders"], None, ["orders", "orders-eu"]),
        (["^orders$"], None, ["orders"]),
        ([], "orders.*|a\\.b", ["a.b", "orders", "orders-eu"]),
        ([], "orders|my-", ["orders"]),
        ([], ".*", ["a.b", "my-orders", "orders", "orders-eu"]),
        (["orders-eu", "^orders"], "a.b", ["orders-eu", "a.b", "orders"]),
        (["__consumer_offsets"], None, ["__consumer_offsets"]),
    ],
)
def test_topics(arguments: list[str], include: str | None, chosen: list[str]) -> None:
    assert Topics(arguments, include).chosen(EXISTING) == chosen


class Consumer:
    """The client library's consumer, over partitions with a first offset, an end and a record a millisecond."""

    def __init__(self, **topics: list[tuple[int, int]]) -> None:
        self._topics = topics

    def list_topics(self, topic: str | None, _timeout_s: float) -> Any:
        named = self._topics if topic is None else {topic: self._topics[topic]}
        return SimpleNamespace(
            topics={
                name: SimpleNamespace(error=None, partitions=dict(enumerate(marks)))
                for name, marks in named.items()
            }
        )

    def get_watermark_offsets(self, wanted: Any, _timeout_s: float) -> tuple[int, int]:
        return self._topics[wanted.topic][wanted.partition]

    def offsets_for_times(self, wanted: list[Any], _timeout_s: float) -> list[Any]:
        for partition in wanted:
            low, high = self._topics[partition.topic][partition.partition]
            partition.offset = max(low, partition.offset) if partition.offset < high else -1
        return wanted


A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def consumer() -> Consumer:
    return Consumer(a=[(0, 10), (5, 7)], b=[(3, 3)])


def test_partitions_of_several_topics() -> None:
    assert partitions_of(consumer(), Topics(["b", "a"], None), None) == [B0, A0, A1]
    assert partitions_of(consumer(), Topics([], "[ab]"), 0) == [A0, B0]


@pytest.mark.parametrize(
    ("topics", "only", "sentence"),
    [
        (Topics(["a", "b"], None), 1, "topic b has partitions 0 to 0, not 1"),
        (Topics([], "c.*"), None, "no topic matches"),
    ],
)
def test_what_is_not_there(topics: Topics, only: int | None, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        partitions_of(consumer(), topics, only)
    assert caught.value.exit_code == EXIT_FAILED


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        (Start(From.EARLIEST), [-2, -2, -2]),
        (Start(From.LATEST), [-1, -1, -1]),
        (Start(From.OFFSET, 6), [6, 6, 6]),
        (Start(From.LAST, 3), [7, 5, 3]),
        (Start(From.LAST, 0), [10, 7, 3]),
        (Start(From.TIME, 6), [6, 6, -1]),
    ],
)
def test_where_partitions_are_read_from(start: Start, offsets: list[int]) -> None:
    found = start_offsets(consumer(), [A0, A1, B0], start)
    assert found == dict(zip([A0, A1, B0], offsets, strict=True))


def test_an_empty_partition_has_no_end_to_wait_for() -> None:
    assert ends_of(consumer(), [A0, A1, B0]) == {A0: 10, A1: 7}
