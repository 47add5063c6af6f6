"""The records of transactions in both of Kafka's versions, byte for byte, and records that cannot be read."""

from __future__ import annotations

from itertools import count, product

import pytest
from structlog.testing import capture_logs

from kraft.coordinator.record_schema import type_of_key
from kraft.coordinator.shard import ProducerIdAndEpoch, StoredRecord
from kraft.coordinator.timers import Timers
from kraft.coordinator.transactions import records
from kraft.coordinator.transactions.context import (
    TransactionContext,
    TransactionCounters,
    TransactionSettings,
)
from kraft.coordinator.transactions.records import PartitionsSchema, TransactionLogValue
from kraft.coordinator.transactions.shard import TransactionShard
from kraft.coordinator.transactions.transaction import COMES_FROM, State, Transaction
from kraft.protocol.errors import ProtocolError
from partitions.topic_partition import TopicPartition


def number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


KEY = number(0, 2) + number(3, 2) + b"abc"
VALUE = TransactionLogValue(
    producer_id=71,
    previous_producer_id=70,
    next_producer_id=72,
    producer_epoch=32_767,
    transaction_timeout_ms=60_000,
    transaction_status=2,
    transaction_partitions=[PartitionsSchema("x", [0, 7])],
    transaction_last_update_timestamp_ms=2_000,
    transaction_start_timestamp_ms=1_000,
    client_transaction_version=2,
)
HEAD = number(71, 8) + number(32_767, 2) + number(60_000, 4) + number(2, 1)
TIMES = number(2_000, 8) + number(1_000, 8)
VERSION_0 = (
    number(0, 2) + HEAD + number(1, 4) + number(1, 2) + b"x" + number(2, 4) + number(0, 4) + number(7, 4) + TIMES
)  # fmt: skip
PARTITIONS_1 = b"\x02" + b"\x02x" + b"\x03" + number(0, 4) + number(7, 4) + b"\x00"
TAGS = b"\x03" + b"\x00\x08" + number(70, 8) + b"\x01\x08" + number(72, 8) + b"\x02\x02" + number(2, 2)
VERSION_1 = number(1, 2) + HEAD + PARTITIONS_1 + TIMES + TAGS
EMPTY_0 = (
    number(0, 2) + number(71, 8) + number(0, 2) + number(60_000, 4) + b"\x00" + number(-1, 4)
    + number(2_000, 8) + number(-1, 8)
)  # fmt: skip


def test_the_key_is_kafkas() -> None:
    assert records.tombstone("abc") == (KEY, None)
    assert type_of_key(KEY) == records.KEY_TYPE


@pytest.mark.parametrize(
    ("level", "expected"), [(0, VERSION_0), (1, VERSION_1), (2, VERSION_1)], ids=lambda one: str(one)[:5]
)
def test_the_level_decides_on_the_version(level: int, expected: bytes) -> None:
    assert records.encode("abc", VALUE, level) == (KEY, expected)


def test_both_versions_are_read() -> None:
    assert records.VALUE.decode(VERSION_1) == VALUE
    old = records.VALUE.decode(VERSION_0)
    assert (old.previous_producer_id, old.next_producer_id, old.client_transaction_version) == (-1, -1, 0)
    assert old.transaction_partitions == VALUE.transaction_partitions


def test_tags_that_are_not_known_are_left_out() -> None:
    more = VERSION_1.replace(TAGS, b"\x04" + TAGS[1:] + b"\x03\x02" + number(5, 2))
    assert records.VALUE.decode(more) == VALUE


def test_an_empty_id_has_no_list_of_partitions() -> None:
    transaction = Transaction("abc", 71, 0, 60_000, updated_ms=2_000)
    assert records.encode("abc", transaction.to_value(), 0).value == EMPTY_0
    assert Transaction.of_value("abc", records.VALUE.decode(EMPTY_0)) == transaction


def test_a_transaction_is_what_its_record_says() -> None:
    transaction = Transaction.of_value("abc", VALUE)
    assert transaction.state is State.PREPARE_COMMIT
    assert transaction.partitions == {TopicPartition("x", 0), TopicPartition("x", 7)}
    assert transaction.producer == ProducerIdAndEpoch(71, 32_767)
    assert transaction.continues_as == ProducerIdAndEpoch(72, 0)
    assert transaction.ended_by == ProducerIdAndEpoch(71, 32_766)
    assert transaction.to_value() == VALUE


def shard() -> TransactionShard:
    context = TransactionContext(TransactionSettings(), Timers(), TransactionCounters(), count(1), lambda: 2)
    return TransactionShard(context)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", VERSION_1),
        (number(1, 2) + KEY[2:], VERSION_1),
        (KEY[:-1], VERSION_1),
        (KEY, number(2, 2) + VERSION_1[2:]),
        (KEY, VERSION_1[:20]),
        (KEY, VERSION_1[:16] + b"\x06" + VERSION_1[17:]),
        (KEY, VERSION_1[:16] + b"\x63" + VERSION_1[17:]),
    ],
    ids=["no key", "unknown key", "torn key", "unknown version", "torn value", "Dead", "no state"],
)
def test_what_cannot_be_read_is_left_out(key: bytes, value: bytes) -> None:
    loading = shard()
    loading.replay(StoredRecord(0, 0, KEY, VERSION_0))
    with capture_logs() as logs:
        loading.replay(StoredRecord(1, 0, key, value))
    assert [entry["offset"] for entry in logs] == [1]
    assert loading.transactions["abc"].client_version == 0


def test_an_id_that_no_key_can_carry_is_refused_by_the_schema() -> None:
    with pytest.raises(ProtocolError):
        records.tombstone("x" * 32_768)


@pytest.mark.parametrize(("before", "after"), list(product(State, State)), ids=lambda one: one.kafka_name)
def test_every_transition_is_made_or_is_a_defect(before: State, after: State) -> None:
    """By what each method is for; `COMES_FROM` is the table."""
    transaction = Transaction("t", 1, 5, 1_000, before)
    makes = {
        State.EMPTY: lambda: transaction.initialize(ProducerIdAndEpoch(1, 6), None, 1_000, 0),
        State.ONGOING: lambda: transaction.add([TopicPartition("x", 0)], 2, 0),
        State.PREPARE_COMMIT: lambda: transaction.prepare(State.PREPARE_COMMIT, 2, None, 0),
        State.PREPARE_ABORT: lambda: transaction.prepare(State.PREPARE_ABORT, 2, None, 0),
        State.COMPLETE_COMMIT: lambda: transaction.complete(0),
        State.COMPLETE_ABORT: lambda: transaction.complete(0),
    }
    if after not in makes:
        assert (before in COMES_FROM[after]) == (
            before is State.ONGOING if after is State.PREPARE_EPOCH_FENCE else transaction.is_at_rest
        )
        return
    if before in COMES_FROM[after]:
        makes[after]()
        assert transaction.state is after
        return
    other_outcome = {State.PREPARE_COMMIT: State.COMPLETE_ABORT, State.PREPARE_ABORT: State.COMPLETE_COMMIT}
    if other_outcome.get(before) is after:
        makes[after]()
        assert transaction.state is not after
        return
    with pytest.raises(AssertionError):
        makes[after]()
