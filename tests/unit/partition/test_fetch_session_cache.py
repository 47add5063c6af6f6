"""Which session a request belongs to, and who gives way when there is no room."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from partitions import fetch_session_cache
from partitions.fetch_session import FetchSession, Reader, SessionKey, SessionPartition
from partitions.fetch_session_cache import MIN_EVICTION_MS, FetchSessionCache, FetchSessionError
from tests.support.fetch_world import Wanted

CONSUMER, FOLLOWER = Reader(), Reader(2, 2, True)
OLD_MS = MIN_EVICTION_MS + 1


class World:
    """A cache of two slots, whose ids are 1, 2, 3, ..."""

    def __init__(self) -> None:
        self.left: list[SessionPartition] = []
        self.closed: list[FetchSession] = []
        self.cache = FetchSessionCache(self.left.extend, self.closed.append)
        self.ids: Callable[[], int] = iter(range(1, 100)).__next__
        self.now_ms = 0

    def open(
        self, size: int = 1, *, reader: Reader = CONSUMER, by_id: bool = False, slots: int = 2
    ) -> FetchSession | None:
        return self.cache.open(
            [("t", Wanted(number)) for number in range(size)],
            reader=reader, by_id=by_id, slots=slots, draw_id=self.ids, now_ms=self.now_ms,
        )  # fmt: skip

    def go_on(
        self,
        session: FetchSession,
        epoch: int | None = None,
        *,
        wanted: Iterable[Wanted] = (),
        forgotten: Iterable[SessionKey] = (),
        reader: Reader = CONSUMER,
        by_id: bool = False,
    ) -> FetchSession:
        return self.cache.go_on(
            session.id, session.epoch if epoch is None else epoch,
            [("t", one) for one in wanted], forgotten, reader=reader, by_id=by_id, now_ms=self.now_ms,
        )  # fmt: skip

    def has(self, session: FetchSession | None) -> bool:
        assert session is not None
        return self.cache.get(session.id) is session


@pytest.fixture
def world() -> World:
    return World()


def opened(session: FetchSession | None) -> FetchSession:
    assert session is not None
    return session


def test_a_session_goes_on_epoch_by_epoch(world: World) -> None:
    session = opened(world.open())
    assert session.epoch == 1
    assert world.go_on(session, 1) is session
    with pytest.raises(FetchSessionError, match="at epoch 2, the request at 1") as error:
        world.go_on(session, 1)
    assert error.value.code == "INVALID_FETCH_SESSION_EPOCH"
    assert world.go_on(session, 2) is session


def test_ids_are_used_once(world: World) -> None:
    world.ids = iter((7, 7, 7, 8)).__next__
    assert (opened(world.open()).id, opened(world.open()).id) == (7, 8)


def test_an_unknown_session(world: World) -> None:
    session = opened(world.open())
    world.cache.close(session.id)
    with pytest.raises(FetchSessionError) as error:
        world.go_on(session)
    assert error.value.code == "FETCH_SESSION_ID_NOT_FOUND"
    assert (len(world.cache), world.cache.partition_count, len(world.left)) == (0, 0, 1)


@pytest.mark.parametrize("reader", [CONSUMER, Reader(3, 2, True), Reader(2, 3, True)])
def test_a_session_is_its_readers_alone(world: World, reader: Reader) -> None:
    session = opened(world.open(reader=FOLLOWER))
    with pytest.raises(FetchSessionError) as error:
        world.go_on(session, reader=reader)
    assert error.value.code == "FETCH_SESSION_ID_NOT_FOUND"
    assert world.go_on(session, reader=FOLLOWER) is session


def test_names_and_ids_do_not_mix(world: World) -> None:
    session = opened(world.open(by_id=False))
    with pytest.raises(FetchSessionError) as error:
        world.go_on(session, by_id=True)
    assert error.value.code == "FETCH_SESSION_TOPIC_ID_ERROR"
    assert world.go_on(session, by_id=False) is session


def test_a_session_that_is_empty_ends(world: World) -> None:
    session = opened(world.open(2))
    assert len(world.go_on(session, wanted=[Wanted(2)], forgotten=[("t", 0)])) == 2
    assert len(world.go_on(session, forgotten=[("t", 1), ("t", 2)])) == 0
    assert not world.has(session)
    assert world.cache.partition_count == 0


def test_nothing_wanted_is_no_session(world: World) -> None:
    assert world.open(0) is None


def test_a_young_session_gives_way_to_nobody_of_its_kind(world: World) -> None:
    opened(world.open(1))
    opened(world.open(1))
    world.now_ms = MIN_EVICTION_MS
    assert world.open(50) is None
    assert world.cache.evictions == 0


def test_a_session_that_was_not_used_gives_way(world: World) -> None:
    silent, used = opened(world.open(50)), opened(world.open(1))
    world.now_ms = OLD_MS
    world.go_on(used)
    new = world.open(1)
    assert (world.has(silent), world.has(used), world.has(new)) == (False, True, True)
    assert (world.cache.evictions, world.cache.partition_count, len(world.left)) == (1, 2, 50)
    assert (world.closed, silent.has_ended, used.has_ended) == ([silent], True, False)


def test_an_old_session_gives_way_to_a_larger_one(world: World) -> None:
    large, small = opened(world.open(5)), opened(world.open(3))
    world.now_ms = OLD_MS
    world.go_on(large)
    world.go_on(small)
    assert world.open(3) is None, "no larger"
    new = world.open(4)
    assert (world.has(large), world.has(small), world.has(new)) == (True, False, True)


def test_consumers_give_way_to_followers_and_never_the_other_way(world: World) -> None:
    consumer, follower = opened(world.open(50)), opened(world.open(1, reader=FOLLOWER))
    second = world.open(1, reader=FOLLOWER)
    assert (world.has(consumer), world.has(follower), world.has(second)) == (False, True, True)
    assert world.open(9, reader=FOLLOWER) is None, "followers' young sessions stay"
    world.now_ms = OLD_MS
    world.go_on(follower, reader=FOLLOWER)
    world.go_on(opened(second), reader=FOLLOWER)
    assert world.open(50) is None, "consumers never get the place of a follower in use"
    third = world.open(2, reader=FOLLOWER)
    assert (world.has(follower), world.has(second), world.has(third)) == (False, True, True)


def test_a_follower_that_is_not_registered_has_no_privilege(world: World) -> None:
    opened(world.open(1))
    opened(world.open(1))
    assert world.open(9, reader=FOLLOWER._replace(is_registered=False)) is None


def test_a_followers_new_registration_ends_its_former_sessions(world: World) -> None:
    former, other = opened(world.open(reader=FOLLOWER)), opened(world.open(reader=Reader(3, 2, True)))
    world.open(reader=Reader(2, 5, False))
    assert world.has(former), "nobody has registered so"
    world.open(reader=Reader(2, 5, True))
    assert (world.has(former), world.has(other)) == (False, True)


def test_what_a_follower_left_behind_ends_also_while_there_is_room(world: World) -> None:
    """A fetcher whose partitions have all moved ends without a word, and a new one comes when they are back."""
    other = opened(world.open(reader=Reader(3, 3, True), slots=9))
    left_behind = opened(world.open(reader=FOLLOWER, slots=9))
    world.now_ms = MIN_EVICTION_MS
    beside_it = opened(world.open(reader=FOLLOWER, slots=9))
    assert world.has(left_behind), "a follower may have several fetchers"
    world.now_ms += 1
    opened(world.open(reader=FOLLOWER, slots=9))
    assert not world.has(left_behind)
    assert world.has(beside_it)
    assert world.has(other)
    assert world.closed == [left_behind]


def test_sessions_together_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session_cache, "PARTITIONS_MAX", 10)
    session = opened(world.open(6))
    assert world.open(5) is None
    with pytest.raises(FetchSessionError) as error:
        world.go_on(session, wanted=[Wanted(number) for number in range(6, 11)])
    assert error.value.code == "FETCH_SESSION_ID_NOT_FOUND"
    assert (len(world.cache), world.cache.partition_count) == (0, 0)


@pytest.fixture
def narrow(world: World, monkeypatch: pytest.MonkeyPatch) -> list[FetchSession]:
    """Room for ten partitions, which consumers' sessions of 2, 5 and 3 hold; slots are free."""
    monkeypatch.setattr(fetch_session_cache, "PARTITIONS_MAX", 10)
    return [opened(world.open(size, slots=9)) for size in (2, 5, 3)]


@pytest.mark.parametrize("reader", [CONSUMER, FOLLOWER])
def test_sessions_of_the_dead_leave_room_for_the_living(
    world: World, narrow: list[FetchSession], reader: Reader
) -> None:
    world.now_ms = OLD_MS
    world.go_on(narrow[0])
    assert opened(world.open(4, reader=reader, slots=9))
    assert [world.has(session) for session in narrow] == [True, False, True], "no more go than have to"
    assert (world.cache.evictions, world.cache.partition_count) == (1, 9)


def test_consumers_in_use_make_room_for_followers_alone(world: World, narrow: list[FetchSession]) -> None:
    world.now_ms = MIN_EVICTION_MS
    assert world.open(1, slots=9) is None
    assert opened(world.open(6, reader=FOLLOWER, slots=9))
    assert [world.has(session) for session in narrow] == [True, False, False], "the largest first"
    assert opened(world.open(4, reader=Reader(3, 3, True), slots=9))
    assert world.open(1, reader=Reader(4, 4, True), slots=9) is None, "followers' stay"


def test_nobody_gives_way_in_vain(world: World, narrow: list[FetchSession]) -> None:
    assert world.open(11, reader=FOLLOWER, slots=9) is None
    world.now_ms = OLD_MS
    world.go_on(narrow[0])
    assert world.open(9, slots=9) is None
    assert world.open(1, slots=0) is None
    assert [world.has(session) for session in narrow] == [True] * 3


def test_a_session_that_grows_finds_room_as_a_new_one_does(world: World, narrow: list[FetchSession]) -> None:
    world.now_ms = OLD_MS
    small = narrow[0]
    assert len(world.go_on(small, wanted=[Wanted(number) for number in range(2, 6)])) == 6
    assert [world.has(session) for session in narrow] == [True, False, True], "itself it does not give way"
    assert world.cache.partition_count == 9


def test_one_consumer_alone_is_bounded_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session_cache, "CONSUMER_PARTITIONS_MAX", 3)
    assert world.open(4) is None
    assert world.open(4, reader=FOLLOWER) is not None
    session = opened(world.open(3))
    with pytest.raises(FetchSessionError) as error:
        world.go_on(session, wanted=[Wanted(3)])
    assert (error.value.code, world.has(session)) == ("FETCH_SESSION_ID_NOT_FOUND", False)
