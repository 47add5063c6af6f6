"""Markers as a log judges them, and guards under which a batch may open a transaction (KIP-890, KIP-1228)."""

from __future__ import annotations

import pytest

from partitions.log.errors import AppendError, NotVerified
from partitions.log.log import PartitionLog
from partitions.log.producers import verifications
from partitions.log.producers.verifications import VERIFICATION_OFF, VerificationGuard
from partitions.records.markers import EndTransactionMarker
from tests.support.logs import memory_disk, open_log
from tests.support.transactions import ABORT, COMMIT, marker_of, put, transactional

P = 7
WRITTEN, NOTHING = True, False
EPOCH, FENCED = "INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED"
SEQUENCE = "OUT_OF_ORDER_SEQUENCE_NUMBER"


def judged(log: PartitionLog, epoch: int, version: int, coordinator_epoch: int = 5) -> bool | str:
    marker = EndTransactionMarker(COMMIT, coordinator_epoch)
    try:
        return log.producer_state.judge_marker(P, epoch, marker, version)
    except AppendError as error:
        return error.code


def produced(log: PartitionLog, batch: bytes, guard: VerificationGuard | None) -> str | None:
    """The refusal of a client's batch, if there is one."""
    end = log.log_end_offset
    try:
        log.append_as_leader(batch, leader_epoch=0, guard=guard)
    except AppendError as error:
        assert log.log_end_offset == end
        return error.code
    return None


def guarded(
    log: PartitionLog, epoch: int = 0, sequence: int = 0, *, bumps: bool = False
) -> VerificationGuard:
    guard = log.begin_verification(P, epoch, sequence, supports_epoch_bump=bumps)
    assert guard is not None
    return guard


@pytest.mark.parametrize(
    ("is_open", "epoch", "by_version_1", "by_version_2"),
    [
        (True, 3, EPOCH, EPOCH),
        (True, 4, WRITTEN, EPOCH),  # late: it was the end of the transaction before
        (True, 5, WRITTEN, WRITTEN),
        (False, 3, EPOCH, EPOCH),
        (False, 4, WRITTEN, NOTHING),  # comes again
        (False, 5, WRITTEN, WRITTEN),
    ],
)
def test_what_a_marker_is_judged(
    is_open: bool, epoch: int, by_version_1: bool | str, by_version_2: bool | str
) -> None:
    log = open_log(memory_disk())
    put(log, transactional(P, b"a", epoch=3), marker_of(P, COMMIT, epoch=4, coordinator_epoch=5))
    if is_open:
        put(log, transactional(P, b"b", epoch=4))
    assert judged(log, epoch, 0) == judged(log, epoch, 1) == by_version_1
    assert judged(log, epoch, 2) == by_version_2
    if by_version_2 is not EPOCH:
        assert judged(log, epoch, 2, coordinator_epoch=4) == FENCED


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_unknown_producer_is_ended_by_any_marker(version: int) -> None:
    assert judged(open_log(memory_disk()), 0, version, coordinator_epoch=0) is WRITTEN


def test_the_first_batch_behind_a_marker_of_a_new_epoch_begins_with_sequence_0() -> None:
    log = open_log(memory_disk())
    assert produced(log, transactional(P, b"a", b"b", sequence=0), guarded(log)) is None
    put(log, marker_of(P, COMMIT, epoch=1))
    late = transactional(P, b"c", epoch=0, sequence=2)
    assert produced(log, late, guarded(log, 0, 2)) == EPOCH
    assert produced(log, transactional(P, b"c", epoch=1, sequence=2), guarded(log, 1, 0)) == SEQUENCE
    assert produced(log, transactional(P, b"c", epoch=1, sequence=0), guarded(log, 1, 0)) is None


def test_sequences_go_on_behind_a_marker_of_the_same_epoch() -> None:
    log = open_log(memory_disk())
    assert produced(log, transactional(P, b"a", b"b", sequence=0), guarded(log)) is None
    put(log, marker_of(P, COMMIT))
    assert produced(log, transactional(P, b"c", sequence=2), guarded(log, 0, 2)) is None


def test_only_a_guard_lets_a_client_open_a_transaction() -> None:
    log = open_log(memory_disk())
    assert produced(log, transactional(P, b"a", sequence=0), None) == "INVALID_TXN_STATE"
    other = log.begin_verification(8, 0, 0)
    assert produced(log, transactional(P, b"a", sequence=0), other) == "INVALID_TXN_STATE"
    assert produced(log, transactional(P, b"a", sequence=0), guarded(log)) is None
    assert log.begin_verification(P, 0, 1) is None  # it goes on with an open transaction
    assert produced(log, transactional(P, b"b", sequence=1), None) is None


def test_a_batch_that_is_repeated_needs_no_guard() -> None:
    log = open_log(memory_disk())
    batch = transactional(P, b"a", sequence=0)
    assert produced(log, batch, guarded(log)) is None
    put(log, marker_of(P, COMMIT, epoch=0))
    assert log.append_as_leader(batch, leader_epoch=0).duplicate


def test_a_late_batch_of_an_aborted_transaction_opens_none() -> None:
    """The coordinator confirmed it, then aborted: the marker comes before the batch."""
    log = open_log(memory_disk())
    guard = guarded(log)
    put(log, marker_of(P, ABORT))
    assert produced(log, transactional(P, b"late", sequence=0), guard) == "INVALID_TXN_STATE"
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset
    again = guarded(log)
    assert again is not guard
    assert produced(log, transactional(P, b"new", sequence=0), again) is None


def test_a_guard_that_served_does_not_open_the_next_transaction() -> None:
    log = open_log(memory_disk())
    guard = guarded(log)
    assert guarded(log) is guard  # two in flight share it
    assert produced(log, transactional(P, b"a", sequence=0), guard) is None
    put(log, marker_of(P, COMMIT))
    assert produced(log, transactional(P, b"late", sequence=1), guard) == "INVALID_TXN_STATE"


def test_a_batch_does_not_overtake_one_whose_verification_failed() -> None:
    log = open_log(memory_disk())
    guard = guarded(log, 0, 0)
    assert guarded(log, 0, 1) is guard
    assert produced(log, transactional(P, b"b", sequence=1), guard) == SEQUENCE
    assert produced(log, transactional(P, b"a", sequence=0), guarded(log, 0, 0)) is None
    assert produced(log, transactional(P, b"b", sequence=1), None) is None


def test_a_producer_with_an_epoch_for_each_transaction_begins_with_sequence_0() -> None:
    log = open_log(memory_disk())
    assert produced(log, transactional(P, b"b", sequence=1), guarded(log, 0, 1, bumps=True)) == SEQUENCE
    assert produced(log, transactional(P, b"a", sequence=0), guarded(log, 0, 0, bumps=True)) is None


@pytest.mark.parametrize("start_anew", [False, True])
def test_a_truncation_voids_guards(start_anew: bool) -> None:
    log = open_log(memory_disk())
    put(log, transactional(8, b"a"), transactional(8, b"b"))
    guard = guarded(log)
    if start_anew:
        log.truncate_fully_and_start_at(1)
    else:
        log.truncate_to(1)
    assert produced(log, transactional(P, b"late", sequence=0), guard) == "INVALID_TXN_STATE"


def test_where_nothing_is_verified_any_batch_opens_a_transaction() -> None:
    log = open_log(memory_disk())
    assert produced(log, transactional(P, b"a", sequence=3), VERIFICATION_OFF) is None
    assert produced(log, transactional(P, b"b", sequence=5), VERIFICATION_OFF) == SEQUENCE


def test_guards_are_bounded_and_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifications, "VERIFICATIONS_MAX", 2)
    state = open_log(memory_disk()).producer_state
    guards = {
        producer: state.begin_verification(producer, 0, 0, supports_epoch_bump=False, now_ms=producer)
        for producer in (1, 2, 3)
    }
    holding = [
        producer for producer, guard in guards.items() if guard and state.verifications.holds(guard, producer)
    ]
    assert holding == [2, 3]
    state.expire(12, 10)
    assert len(state.verifications) == 1


def test_a_coordinators_batch_is_of_the_newest_epoch() -> None:
    log = open_log(memory_disk())
    put(log, transactional(P, b"a", epoch=3))
    log.producer_state.check_transactional(P, 3)
    log.producer_state.check_transactional(8, 0)
    with pytest.raises(AppendError) as caught:
        log.producer_state.check_transactional(P, 2)
    assert caught.value.code == EPOCH
    assert not isinstance(caught.value, NotVerified)
