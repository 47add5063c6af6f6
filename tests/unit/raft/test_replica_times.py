"""When a follower was heard of, and when it had all of the leader's log."""

from __future__ import annotations

from quorum.raft.replica_times import UNKNOWN, ReplicaTimes, ReplicaTimesTable


def test_nothing_is_known_of_a_follower_that_was_silent() -> None:
    assert ReplicaTimesTable().of(1, 2) == ReplicaTimes(2, UNKNOWN, UNKNOWN, UNKNOWN)


def test_a_follower_at_the_end_is_caught_up_now() -> None:
    table = ReplicaTimesTable()
    table.fetched(1, 2, 10, 10, 1_000)
    seen = table.of(1, 2)
    assert (seen.log_end_offset, seen.last_fetch_ms, seen.last_caught_up_ms) == (10, 1_000, 1_000)


def test_the_end_of_the_fetch_before_is_enough() -> None:
    """A follower of a log that grows all the time is never at its end, and still keeps up."""
    table = ReplicaTimesTable()
    table.fetched(1, 2, 5, 10, 1_000)
    assert table.of(1, 2).last_caught_up_ms == UNKNOWN
    table.fetched(1, 2, 10, 20, 2_000)
    assert table.of(1, 2).last_caught_up_ms == 1_000
    table.fetched(1, 2, 19, 30, 3_000)
    assert table.of(1, 2).last_caught_up_ms == 1_000, "it did not reach the 20 of before"


def test_time_does_not_go_back() -> None:
    table = ReplicaTimesTable()
    table.fetched(1, 2, 10, 10, 1_000)
    table.fetched(1, 2, 11, 11, 900)
    assert (table.of(1, 2).last_fetch_ms, table.of(1, 2).last_caught_up_ms) == (1_000, 1_000)


def test_an_epoch_begins_with_nothing_known() -> None:
    table = ReplicaTimesTable()
    table.fetched(1, 2, 10, 10, 1_000)
    assert table.of(2, 2).log_end_offset == UNKNOWN
    table.fetched(2, 3, 4, 4, 2_000)
    assert table.of(2, 2).log_end_offset == UNKNOWN
    assert [times.replica_id for times in table.heard_since(2, 0)] == [3]
    assert table.heard_since(1, 0) == []


def test_the_silent_are_forgotten() -> None:
    table = ReplicaTimesTable()
    for replica_id, now_ms in ((5, 1_000), (4, 2_000), (3, 3_000)):
        table.fetched(1, replica_id, 1, 1, now_ms)
    assert [times.replica_id for times in table.heard_since(1, 2_000)] == [3, 4]
    assert table.of(1, 5).log_end_offset == UNKNOWN
