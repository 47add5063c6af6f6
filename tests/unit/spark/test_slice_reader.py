"""One slice, read through elections, restarts, retention and truncation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraft.protocol import ErrorCode, Message
from kraft.protocol.fetch import FetchRequest
from kraft.spark.client import ClusterClient
from kraft.spark.columns import COLUMN_NAMES
from kraft.spark.data_loss import LossPolicy
from kraft.spark.errors import (
    ClusterUnavailableError,
    CorruptDataError,
    DataLossError,
    TopicChangedError,
)
from kraft.spark.options import parse_bootstrap
from kraft.spark.retry import RetryPolicy
from kraft.spark.slice_reader import PartitionSlice, SliceReader
from partitions.records.control import ControlType, encode_control_key
from tests.support.fake_broker import FakeCluster, FakePartition, FakeTopic
from tests.unit.spark.conftest import Connect, Waiting

BATCHES, PER_BATCH = 20, 5
END = BATCHES * PER_BATCH


@pytest.fixture
def topic(cluster: FakeCluster) -> FakeTopic:
    """100 records in 20 batches, led by broker 1."""
    topic = cluster.create_topic("orders")
    fill(topic.partitions[0], BATCHES)
    return topic


def fill(partition: FakePartition, batches: int) -> None:
    for _ in range(batches):
        base = partition.log_end_offset
        partition.append([(1000, None, b"%d" % (base + index), ()) for index in range(PER_BATCH)])


def slice_of(topic: FakeTopic, start: int = 0, end: int = END) -> PartitionSlice:
    return PartitionSlice("orders", topic.topic_id, 0, start, end, topic.partitions[0].leader_epoch)


def reader(connect: Connect, part: PartitionSlice, fetch_max_bytes: int = 250) -> SliceReader:
    """Fetches about two batches at a time."""
    return SliceReader(
        connect(), part, columns=COLUMN_NAMES, loss=LossPolicy(), fetch_max_bytes=fetch_max_bytes
    )


def values(slice_reader: SliceReader) -> Iterator[int]:
    for batch in slice_reader.batches():
        yield from (int(value) for value in batch.column("value").to_pylist())


def test_reads_exactly_the_slice_in_many_fetches(
    cluster: FakeCluster, connect: Connect, topic: FakeTopic
) -> None:
    slice_reader = reader(connect, slice_of(topic, 7, 93))
    assert list(values(slice_reader)) == list(range(7, 93))
    assert slice_reader.audit.records == slice_reader.audit.offsets == 86
    fetches = cluster.asked(FetchRequest)
    assert len(fetches) > 5
    partitions = [request.topics[0].partitions[0] for request in fetches]
    assert [entry.last_fetched_epoch for entry in partitions] == [-1] + [0] * (len(fetches) - 1)
    assert {entry.current_leader_epoch for entry in partitions} == {0}


def test_a_leader_change_in_the_middle(connect: Connect, topic: FakeTopic) -> None:
    rows = values(reader(connect, slice_of(topic)))
    seen = [next(rows)]
    topic.partitions[0].move(2)
    fill(topic.partitions[0], 3)
    assert seen + list(rows) == list(range(END))


def test_the_leader_dies_and_another_is_elected_later(
    cluster: FakeCluster, connect: Connect, topic: FakeTopic, waiting: Waiting
) -> None:
    rows = values(reader(connect, slice_of(topic)))
    seen = [next(rows)]
    cluster.stop(1)
    waiting.events.append((8.0, lambda: topic.partitions[0].move(3)))
    assert seen + list(rows) == list(range(END))
    assert waiting.now >= 8


def test_the_budget_counts_from_the_last_progress(
    cluster: FakeCluster, connect: Connect, topic: FakeTopic, waiting: Waiting
) -> None:
    """Every fetch fails for 50 s first: far more in sum than the 60 s of the budget."""
    passed = [0.0]

    def hook(_: int, request: Message) -> ErrorCode | None:
        if not isinstance(request, FetchRequest):
            return None
        if waiting.now - passed[0] < 50:
            return ErrorCode.LEADER_NOT_AVAILABLE
        passed[0] = waiting.now
        return None

    cluster.hook = hook
    assert list(values(reader(connect, slice_of(topic)))) == list(range(END))
    assert waiting.now > 300


def test_a_new_leader_whose_high_watermark_lags_is_waited_for(
    connect: Connect, topic: FakeTopic, waiting: Waiting
) -> None:
    partition = topic.partitions[0]
    partition.high_watermark = 50
    waiting.events.append((2.0, lambda: setattr(partition, "high_watermark", None)))
    assert list(values(reader(connect, slice_of(topic)))) == list(range(END))


def test_a_high_watermark_that_never_comes_back_fails(
    connect: Connect, topic: FakeTopic, waiting: Waiting
) -> None:
    topic.partitions[0].high_watermark = 50
    with pytest.raises(ClusterUnavailableError, match=r"nothing at offset 50, and its high watermark is 50"):
        list(values(reader(connect, slice_of(topic))))
    assert waiting.now == pytest.approx(60)


def test_retention_before_the_read_is_an_error(connect: Connect, topic: FakeTopic) -> None:
    part = slice_of(topic)
    topic.partitions[0].log_start_offset = 10
    with pytest.raises(DataLossError, match=r"orders-0\[0, 100\): the offsets from 0 up to 10 were deleted"):
        list(values(reader(connect, part)))


def test_retention_during_the_read_is_an_error(connect: Connect, topic: FakeTopic) -> None:
    rows = values(reader(connect, slice_of(topic)))
    next(rows)
    topic.partitions[0].log_start_offset = 90
    with pytest.raises(DataLossError, match="up to 90 were deleted"):
        list(rows)


def test_a_shorter_log_is_an_error(connect: Connect, topic: FakeTopic) -> None:
    part = slice_of(topic, 60)
    topic.partitions[0].truncate(50)
    topic.partitions[0].move(2)
    with pytest.raises(DataLossError, match="offset 60 is beyond the partition's end, which is 50 now"):
        list(values(reader(connect, part)))


def test_records_replaced_after_the_plan_are_an_error(connect: Connect, topic: FakeTopic) -> None:
    """Truncated and written again, so that the same offsets are there, with other records."""
    part = slice_of(topic)
    topic.partitions[0].truncate(50)
    topic.partitions[0].move(2)
    fill(topic.partitions[0], 20)
    rows = values(reader(connect, part, fetch_max_bytes=1 << 20))
    with pytest.raises(DataLossError, match="offset 50 was written again under leader epoch 1"):
        list(rows)


def test_a_truncation_below_what_was_read_is_an_error(connect: Connect, topic: FakeTopic) -> None:
    topic.partitions[0].move(2)
    fill(topic.partitions[0], 4)
    rows = values(reader(connect, slice_of(topic, END - 5, END + 20)))
    seen = [next(rows) for _ in range(10)]
    assert seen[-1] > END
    topic.partitions[0].truncate(END)
    topic.partitions[0].leader_epoch += 1
    fill(topic.partitions[0], 4)
    with pytest.raises(DataLossError, match=r"departs from them at offset 100 \(epoch 0\)"):
        list(rows)


def test_a_topic_created_anew_is_an_error(cluster: FakeCluster, connect: Connect, topic: FakeTopic) -> None:
    part = slice_of(topic)
    fill(cluster.create_topic("orders").partitions[0], BATCHES)
    with pytest.raises(TopicChangedError, match="deleted and created anew after this read was planned"):
        list(values(reader(connect, part)))


def test_a_topic_created_anew_with_fewer_partitions_is_an_error(
    cluster: FakeCluster, connect: Connect, waiting: Waiting
) -> None:
    topic = cluster.create_topic("orders", leaders=(1, 2))
    fill(topic.partitions[1], 1)
    part = slice_of(topic, 0, PER_BATCH)._replace(partition=1)
    cluster.create_topic("orders")
    with pytest.raises(TopicChangedError, match="the topic was deleted after this read was planned"):
        list(values(reader(connect, part)))
    assert waiting.now < 10


def test_a_topic_created_anew_during_the_read_is_an_error(
    cluster: FakeCluster, connect: Connect, topic: FakeTopic
) -> None:
    rows = values(reader(connect, slice_of(topic)))
    next(rows)
    fill(cluster.create_topic("orders").partitions[0], BATCHES)
    with pytest.raises(TopicChangedError, match="created anew"):
        list(rows)


def test_a_deleted_topic_is_an_error(
    cluster: FakeCluster, connect: Connect, topic: FakeTopic, waiting: Waiting
) -> None:
    rows = values(reader(connect, slice_of(topic)))
    next(rows)
    del cluster.topics["orders"]
    with pytest.raises(TopicChangedError, match="the topic was deleted after this read was planned"):
        list(rows)
    assert waiting.now < 6


def test_a_broker_that_still_knows_the_old_topic_is_not_believed(
    cluster: FakeCluster, connect: Connect, topic: FakeTopic
) -> None:
    cluster.metadata_of[1] = {"orders": FakeTopic(b"\1" * 16, [FakePartition(leader=1)])}
    for _ in range(3):  # whichever broker is asked first
        assert list(values(reader(connect, slice_of(topic)))) == list(range(END))


def test_corrupt_bytes_fail_the_read(connect: Connect, topic: FakeTopic) -> None:
    batches = topic.partitions[0].batches
    batches[4] = batches[4][:-1] + bytes([batches[4][-1] ^ 1])
    with pytest.raises(CorruptDataError, match="orders-0"):
        list(values(reader(connect, slice_of(topic))))


def test_control_records_and_gaps_are_passed_and_counted(connect: Connect, topic: FakeTopic) -> None:
    partition = topic.partitions[0]
    partition.append([(0, b"\0\0\0\1", b"", ())], is_control=True, is_transactional=True)
    partition.append([(0, None, b"last", ())], gap=9)
    slice_reader = reader(connect, slice_of(topic, 95, 111))
    assert sum(batch.num_rows for batch in slice_reader.batches()) == 6
    audit = slice_reader.audit
    assert (audit.records, audit.control, audit.gaps, audit.aborted, audit.lost) == (6, 1, 9, 0, 0)
    assert audit.holes == [(101, 110)]


def test_an_early_stop_leaves_nothing_open(connect: Connect, topic: FakeTopic) -> None:
    rows = reader(connect, slice_of(topic)).batches()
    next(rows)
    rows.close()  # type: ignore[attr-defined]  # a generator


LOSSY = LossPolicy(fail=False)


def lossy(connect: Connect, part: PartitionSlice) -> SliceReader:
    return SliceReader(connect(), part, columns=COLUMN_NAMES, loss=LOSSY, fetch_max_bytes=250)


def test_a_lossy_read_goes_on_after_what_retention_took(
    connect: Connect, topic: FakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    slice_reader = lossy(connect, slice_of(topic))
    rows = values(slice_reader)
    seen = [next(rows)]
    topic.partitions[0].log_start_offset = 50
    seen += rows
    first_gone = seen.index(50)
    assert seen == [*range(first_gone), *range(50, END)]
    assert slice_reader.audit.lost == 50 - first_gone
    assert [text.split(" (by")[0] for text in caplog.messages] == [
        f"orders-0[0, 100): the offsets from {first_gone} up to 50 were deleted"
    ]


def test_a_lossy_read_ends_where_the_partition_was_cut(
    connect: Connect, topic: FakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    slice_reader = lossy(connect, slice_of(topic))
    rows = values(slice_reader)
    seen = [next(rows)]
    partition = topic.partitions[0]
    partition.move(2)
    partition.truncate(5)
    seen += rows
    assert seen == list(range(len(seen)))
    assert slice_reader.audit.lost == END - len(seen)
    assert any("committed records were truncated" in text for text in caplog.messages)


def test_a_lossy_read_takes_what_was_written_in_place_of_the_lost(
    connect: Connect, topic: FakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    part = slice_of(topic)
    partition = topic.partitions[0]
    partition.move(2)
    partition.truncate(50)
    fill(partition, 10)
    assert list(values(lossy(connect, part))) == list(range(END))
    (warning,) = caplog.messages
    assert "offset 50 was written again under leader epoch 1" in warning


def test_a_lossy_read_ends_with_its_topic(
    cluster: FakeCluster, connect: Connect, topic: FakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    part = slice_of(topic)
    cluster.create_topic("orders")
    slice_reader = lossy(connect, part)
    assert list(values(slice_reader)) == []
    assert slice_reader.audit.lost == END
    (warning,) = caplog.messages
    assert "deleted and created anew" in warning
    assert "offsets from 0 on are gone" in warning


def test_read_committed_leaves_out_aborted_transactions(cluster: FakeCluster) -> None:
    """Producers 7 and 8 interleave; 7 aborts, 8 commits, 7 then commits another; 9 is not transactional."""
    topic = cluster.create_topic("txn")
    partition = topic.partitions[0]

    def write(producer_id: int, value: bytes, *, is_transactional: bool = True) -> None:
        batch = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        partition.append([(0, None, value, ())], is_transactional=is_transactional, **batch)

    def mark(producer_id: int, kind: ControlType) -> int:
        marker = [(0, encode_control_key(kind), b"\0\0\0\0\0\0", ())]
        batch = {"producer_id": producer_id, "producer_epoch": 0}
        return partition.append(marker, is_transactional=True, is_control=True, **batch)

    write(7, b"a")
    write(8, b"1")
    write(9, b"2", is_transactional=False)
    write(7, b"b")
    partition.aborted.append((7, 0, mark(7, ControlType.ABORT)))
    mark(8, ControlType.COMMIT)
    write(7, b"3")
    mark(7, ControlType.COMMIT)
    part = PartitionSlice("txn", topic.topic_id, 0, 0, partition.end, 0)
    for fetch_max_bytes in (1, 150, 4096):
        with ClusterClient(
            parse_bootstrap(cluster.bootstrap), client_id="t", policy=RetryPolicy(), read_committed=True
        ) as client:
            slice_reader = SliceReader(
                client, part, columns=("value",), loss=LossPolicy(), fetch_max_bytes=fetch_max_bytes
            )
            assert list(values(slice_reader)) == [1, 2, 3]
        audit = slice_reader.audit
        assert (audit.records, audit.control, audit.aborted) == (3, 3, 2)
