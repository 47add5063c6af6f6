"""What a fetch session remembers, what is news to its reader, and what costs nothing."""

from __future__ import annotations

import pytest

from partitions.fetch_session import EPOCH_MAX, FetchSession, Found, Reader, next_epoch
from partitions.replica import Replica
from tests.support.fetch_world import Wanted

QUIET = Found(0, 5, 0, is_drained=True)


def session_of(*numbers: int, reader: Reader | None = None) -> FetchSession:
    session = FetchSession(reader=reader or Reader(), is_privileged=False, by_id=False, now_ms=0)
    session.update([("t", Wanted(number)) for number in numbers], ())
    return session


def pending(session: FetchSession) -> list[int]:
    return [partition.wanted.partition for partition in session.pending]


@pytest.mark.parametrize(
    ("epoch", "after"), [(-1, -1), (0, 1), (1, 2), (EPOCH_MAX - 1, EPOCH_MAX), (EPOCH_MAX, 1)]
)
def test_epochs_grow_and_skip_what_has_a_meaning(epoch: int, after: int) -> None:
    assert next_epoch(epoch) == after


def test_all_that_is_named_is_looked_at_and_what_stands_still_is_not() -> None:
    session = session_of(0, 1, 2)
    assert pending(session) == [0, 1, 2]
    for partition in list(session.pending):
        partition.told(QUIET)
        session.settle(partition, QUIET)
    assert pending(session) == []
    session.update([("t", Wanted(1, fetch_offset=5))], ())
    assert pending(session) == [1]
    assert next(iter(session.pending)).wanted.fetch_offset == 5


def test_what_is_looked_at_again_is_what_the_session_holds() -> None:
    session = session_of(0, 1)
    left, stays = session.partitions
    for partition in (left, stays):
        partition.told(QUIET)
        session.settle(partition, QUIET)
    session.update((), [("t", 0)])
    session.update([("t", Wanted(0))], ())
    session.pending.clear()
    left.look_again()
    stays.look_again()
    assert list(session.pending) == [stays], "another of that name is there now"


@pytest.mark.parametrize(
    ("found", "is_news"),
    [
        (QUIET, False),
        (QUIET._replace(size_bytes=1), True),
        (QUIET._replace(high_watermark=6), True),
        (QUIET._replace(log_start_offset=1), True),
        (QUIET._replace(is_exceptional=True), True),
    ],
)
def test_what_is_news(found: Found, is_news: bool) -> None:
    (partition,) = session_of(0).partitions
    assert partition.is_news(QUIET), "its first answer"
    partition.told(QUIET)
    assert partition.is_news(found) is is_news


def test_the_end_of_an_error_is_news() -> None:
    (partition,) = session_of(0).partitions
    partition.told(QUIET)
    partition.told(Found(0, -1, -1, is_drained=False, is_exceptional=True, is_error=True))
    assert partition.is_news(QUIET)


def test_records_left_to_read_keep_it_in_sight() -> None:
    session = session_of(0)
    (partition,) = session.partitions
    partition.told(QUIET)
    session.settle(partition, QUIET._replace(is_drained=False))
    assert pending(session) == [0]


def test_who_got_records_goes_to_the_end() -> None:
    session = session_of(0, 1, 2)
    first = next(iter(session.partitions))
    first.told(QUIET._replace(size_bytes=10))
    assert pending(session) == [1, 2, 0]
    session.update([("t", Wanted(0, fetch_offset=1))], ())
    assert pending(session) == [1, 2, 0], "naming it gives it no better place"


def test_what_is_forgotten_is_gone() -> None:
    session = session_of(0, 1)
    gone = session.update([("t", Wanted(1, 7))], [("t", 0), ("t", 9), ("u", 1)])
    assert [partition.wanted.partition for partition in gone] == [0]
    assert (len(session), pending(session)) == (1, [1])


def test_another_way_of_reading_looks_at_everything_anew() -> None:
    session = session_of(0, 1)
    session.pending.clear()
    session.read_by(Reader())
    assert pending(session) == []
    session.read_by(Reader(isolation_level=1))
    assert pending(session) == [0, 1]


def test_requests_count_as_fetches_of_what_they_do_not_name() -> None:
    session = session_of(0, 1, reader=Reader(2, 2, True))
    counted, failing = session.partitions
    counted.count(succeeded=True)
    failing.count(succeeded=True)
    session.fetched(100)
    failing.count(succeeded=False)
    session.fetched(200)
    assert (counted.last_fetch_ms, failing.last_fetch_ms) == (200, 100)
    session.update((), [("t", 0)])
    session.fetched(300)
    assert (counted.last_fetch_ms, failing.last_fetch_ms) == (200, 100)


def follower_at(offset: int, now_ms: int, session: FetchSession) -> Replica:
    session.update([("t", Wanted(0, offset))], ())
    (partition,) = session.partitions
    partition.count(succeeded=True)
    session.fetched(now_ms)
    replica = Replica(2, in_sync=True, now_ms=0)
    replica.record_fetch(
        broker_epoch=2, fetch_offset=offset, log_start_offset=0, leader_end_offset=5, now_ms=now_ms
    )
    replica.clock = partition
    return replica


def test_an_idle_follower_was_in_sync_until_its_sessions_last_fetch() -> None:
    session = session_of(0, reader=Reader(2, 2, True))
    replica = follower_at(5, 1_000, session)
    session.fetched(90_000)
    replica.catch_up_with_session(5)
    assert not replica.is_caught_up(6, 120_001, 30_000)
    assert replica.is_caught_up(6, 120_000, 30_000)


def test_a_follower_that_lags_gains_nothing_by_its_session() -> None:
    session = session_of(0, reader=Reader(2, 2, True))
    replica = follower_at(4, 1_000, session)
    session.fetched(90_000)
    replica.catch_up_with_session(5)
    assert not replica.is_caught_up(5, 90_001, 30_000)


def test_a_session_that_reads_elsewhere_says_nothing_of_the_followers_end() -> None:
    session = session_of(0, reader=Reader(2, 2, True))
    replica = follower_at(4, 1_000, session)
    replica.record_fetch(
        broker_epoch=2, fetch_offset=5, log_start_offset=0, leader_end_offset=5, now_ms=2_000
    )
    session.fetched(90_000)
    replica.catch_up_with_session(5)
    assert not replica.is_caught_up(6, 90_000, 30_000)


def test_the_end_of_a_session_ends_what_it_counts() -> None:
    session = session_of(0, reader=Reader(2, 2, True))
    replica = follower_at(5, 1_000, session)
    session.end()
    session.fetched(90_000)
    replica.catch_up_with_session(5)
    assert not replica.is_caught_up(6, 90_000, 30_000)
