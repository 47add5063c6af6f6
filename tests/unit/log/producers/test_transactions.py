"""Transactions in one log: who may end them, what is undecided, and what survives a restart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partitions.log.errors import AppendError
from partitions.log.log import PartitionLog
from partitions.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from partitions.records.builder import build_batch
from partitions.records.control import ControlType, encode_control_key
from tests.support.logs import batch_of, memory_disk, open_log
from tests.support.transactions import ABORT, COMMIT, marker_of, put, transactional


def refused(log: PartitionLog, *batches: bytes) -> str:
    end = log.log_end_offset
    with pytest.raises(AppendError) as caught:
        put(log, *batches)
    assert log.log_end_offset == end
    return caught.value.code


Reopen = Callable[[PartitionLog], PartitionLog]


def _restarted(log: PartitionLog) -> PartitionLog:
    log.close()
    return open_log(log._storage.disk, clean=True)


def _crashed(log: PartitionLog) -> PartitionLog:
    return open_log(log._storage.disk)


def _copied(log: PartitionLog) -> PartitionLog:
    follower = open_log(memory_disk())
    result = log.read(0, 1 << 20, up_to_offset=log.log_end_offset)
    follower.append_as_follower(b"".join(part.read() for part in result.slices))
    return follower


AGAIN = [lambda log: log, _restarted, _crashed, _copied]


@pytest.mark.parametrize("again", AGAIN, ids=["same", "restarted", "crashed", "copied"])
def test_a_coordinator_that_was_replaced_ends_nothing(again: Reopen) -> None:
    """Its epoch is remembered from the markers, also by those who read them only."""
    log = open_log(memory_disk())
    put(log, transactional(7, b"a"), marker_of(7, COMMIT, coordinator_epoch=5))
    log = again(log)
    put(log, transactional(7, b"b"))
    assert refused(log, marker_of(7, ABORT, coordinator_epoch=4)) == "TRANSACTION_COORDINATOR_FENCED"
    assert log.last_stable_offset(log.log_end_offset) == 2
    put(log, marker_of(8, ABORT, coordinator_epoch=4))  # each producer has a coordinator of its own
    put(log, marker_of(7, ABORT, coordinator_epoch=5))
    assert refused(
        log, marker_of(7, ABORT, coordinator_epoch=9), marker_of(7, ABORT, coordinator_epoch=8)
    ) == ("TRANSACTION_COORDINATOR_FENCED")


def test_a_marker_of_an_older_producer_epoch_is_refused() -> None:
    log = open_log(memory_disk())
    put(log, transactional(7, b"a", epoch=3))
    assert refused(log, marker_of(7, ABORT, epoch=2)) == "INVALID_PRODUCER_EPOCH"
    put(log, marker_of(7, ABORT, epoch=4))  # fences the producer at the same time
    assert refused(log, transactional(7, b"b", epoch=3)) == "INVALID_PRODUCER_EPOCH"
    assert log.producers.state.producers[7].epoch == 4


def test_a_plain_batch_is_no_part_of_an_open_transaction() -> None:
    log = open_log(memory_disk())
    put(log, transactional(7, b"a"))
    assert refused(log, batch_of(b"b", producer=(7, 0, 1))) == "INVALID_TXN_STATE"
    assert refused(log, transactional(8, b"c"), batch_of(b"d", producer=(8, 0, 1))) == "INVALID_TXN_STATE"


def test_a_marker_that_cannot_be_read_is_refused() -> None:
    log = open_log(memory_disk())
    value = build_batch(
        [(1000, encode_control_key(ControlType.COMMIT), b"\0\0", ())],
        producer_id=7,
        producer_epoch=0,
        is_control=True,
        is_transactional=True,
    )
    key = build_batch(
        [(1000, b"\0", b"\0\0\0\0\0\0", ())],
        producer_id=7,
        producer_epoch=0,
        is_control=True,
        is_transactional=True,
    )
    assert refused(log, value) == refused(log, key) == "CORRUPT_MESSAGE"


def test_a_client_can_neither_begin_nor_end_a_transaction() -> None:
    log = open_log(memory_disk())
    for batch, code in (
        (transactional(7, b"a", sequence=0), "INVALID_TXN_STATE"),
        (marker_of(7, COMMIT), "INVALID_RECORD"),
    ):
        with pytest.raises(AppendError) as caught:
            log.append_as_leader(batch, leader_epoch=0)
        assert caught.value.code == code


def test_the_last_stable_offset_waits_for_the_oldest_transaction() -> None:
    log = open_log(memory_disk())
    put(log, batch_of(b"0"), transactional(7, b"1"), transactional(8, b"2", b"3"), batch_of(b"4"))
    assert log.last_stable_offset(5) == 1
    assert log.last_stable_offset(1) == 1
    assert log.last_stable_offset(0) == 0
    put(log, marker_of(8, COMMIT), marker_of(7, ABORT))
    assert log.last_stable_offset(6) == 1
    assert log.last_stable_offset(7) == 7
    put(log, marker_of(9, ABORT), transactional(7, b"8"))
    assert log.last_stable_offset(9) == 8


def test_a_marker_above_the_high_watermark_decides_nothing() -> None:
    """It could still be truncated; an older transaction does not hide that of a younger one."""
    log = open_log(memory_disk())
    put(log, transactional(7, b"0"), transactional(8, b"1"), marker_of(8, ABORT), marker_of(7, COMMIT))
    assert [log.last_stable_offset(high_watermark) for high_watermark in range(5)] == [0, 0, 0, 0, 4]
    log = open_log(memory_disk())
    put(log, transactional(7, b"0"), marker_of(7, COMMIT), transactional(8, b"2"), marker_of(8, ABORT))
    assert [log.last_stable_offset(high_watermark) for high_watermark in range(5)] == [0, 0, 2, 2, 4]


def test_a_truncation_opens_again_what_it_cuts_the_marker_of() -> None:
    log = open_log(memory_disk())
    put(log, transactional(7, b"0"), transactional(8, b"1"), marker_of(8, COMMIT), marker_of(7, ABORT))
    assert log.last_stable_offset(1) == 0
    log.truncate_to(3)
    put(log, batch_of(b"another"))
    assert log.last_stable_offset(2) == 0  # the marker of 8 is not replicated yet
    assert log.last_stable_offset(4) == 0  # 7 is open
    assert log.aborted_transactions(0, 4) == ()
    put(log, marker_of(7, COMMIT))
    assert log.last_stable_offset(5) == 5


def test_nothing_is_kept_of_what_is_decided() -> None:
    log = open_log(memory_disk())
    for _ in range(50):
        put(log, transactional(7, b"x"), marker_of(7, COMMIT))
        log.forget_replicated(log.log_end_offset)
    assert not log.producers.state.transactions


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    log = open_log(memory_disk())
    put(log, transactional(7, b"a"), transactional(8, b"b"), marker_of(8, COMMIT))
    assert log.producers.state.expire(10**9, 1000) == 1
    assert list(log.producers.state.producers) == [7]
    put(log, marker_of(7, COMMIT))
    assert log.producers.state.expire(10**9, 1000) == 1


def test_a_snapshot_holds_the_open_transaction_and_the_coordinators_epoch() -> None:
    log = open_log(memory_disk())
    put(log, transactional(7, b"a"), marker_of(7, COMMIT, coordinator_epoch=3), transactional(7, b"c"))
    put(log, marker_of(8, ABORT, coordinator_epoch=6))  # of a transaction that wrote nothing here
    entries = decode_snapshot(encode_snapshot(log.producers.state.producers))
    assert (entries[7].transaction_first_offset, entries[7].coordinator_epoch) == (2, 3)
    assert (entries[8].transaction_first_offset, entries[8].coordinator_epoch) == (-1, 6)
    log.roll()
    log.close()
    assert open_log(log._storage.disk, clean=True).last_stable_offset(4) == 2


def test_an_open_transaction_whose_records_were_deleted_still_counts() -> None:
    log = open_log(memory_disk())
    put(log, transactional(7, b"a" * 300))
    log.roll()
    put(log, batch_of(b"b" * 300))
    log.roll()
    put(log, batch_of(b"c"))
    log.delete_segments_before(2)
    assert log.last_stable_offset(3) == 2
    log.close()
    reopened = open_log(log._storage.disk, clean=True, log_start_offset=2)
    assert reopened.last_stable_offset(3) == 2
    put(reopened, marker_of(7, ABORT))
    assert reopened.last_stable_offset(4) == 4
