"""One fetcher and its leader: long polls, lanes, failures of the leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fetcher.fetcher import Fetcher
from fetcher.leader_endpoint import FetchedPartition, LeaderOffsets, LeaderUnavailable
from fetcher.settings import FetcherSettings
from tests.support.fetch_world import A, B, C, FollowerMemory, HandEndpoint, Listened, followed, got, records

QUICK = FetcherSettings(backoff_initial_ms=1, backoff_max_ms=4)


class Running:
    def __init__(self, settings: FetcherSettings = QUICK) -> None:
        self.endpoint, self.listened = HandEndpoint(), Listened()
        self.fetcher = Fetcher(1, self.endpoint, settings, lambda: 0.5, self.listened)
        self.task = asyncio.create_task(self.fetcher.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    world = Running()
    yield world
    await world.stop()


async def test_nothing_to_copy_means_nothing_sent(running: Running) -> None:
    assert await running.endpoint.quiet()


async def test_an_idle_fetcher_costs_one_long_poll(running: Running) -> None:
    for key in (A, B, C):
        running.fetcher.add(followed(key, FollowerMemory()))
    call = await running.endpoint.next()
    assert call.keys == [A, B, C]
    assert await running.endpoint.quiet()
    for _ in range(3):
        call.respond()
        call = await running.endpoint.next()
        assert call.keys == [A, B, C]
        assert await running.endpoint.quiet()


async def test_records_are_copied_and_the_next_fetch_asks_on(running: Running) -> None:
    log = FollowerMemory()
    running.fetcher.add(followed(A, log))
    (await running.endpoint.next()).respond(got(A, records(0, "a", "b"), high_watermark=2))
    call = await running.endpoint.next()
    assert call.request.partitions[0].fetch_offset == 2
    assert (log.text(), log.high_watermark) == ("a b", 2)


async def test_an_added_partition_does_not_wait_for_the_long_poll(running: Running) -> None:
    log, added = FollowerMemory(), FollowerMemory()
    running.fetcher.add(followed(A, log))
    first = await running.endpoint.next()
    running.fetcher.add(followed(B, added))
    second = await running.endpoint.next()
    assert (first.request.lane, second.request.lane) == (0, 1)
    assert second.keys == [B]

    # A third would need a third lane: it goes with the next request.
    running.fetcher.add(followed(C, FollowerMemory()))
    assert await running.endpoint.quiet()

    # The long poll takes up all of them.
    first.respond(got(A, records(0, "a")))
    third = await running.endpoint.next()
    assert (third.request.lane, third.keys) == (0, [B, C, A])
    assert log.text() == "a"

    # The second's answer counts all the same. The long poll asks for what is passed now: so does the other lane.
    second.respond(got(B, records(0, "b")))
    fourth = await running.endpoint.next()
    assert (added.text(), fourth.request.lane, fourth.keys) == ("b", 1, [B])

    # From here on there is one long poll again.
    third.respond()
    fifth = await running.endpoint.next()
    assert sorted(fifth.keys) == [A, B, C]
    fourth.respond()
    assert await running.endpoint.quiet()
    assert running.endpoint.outstanding == 1


def flushing(*values: str) -> FollowerMemory:
    """A log of a topic with flush.messages=1."""
    log = FollowerMemory(*values)
    log.log.config.flush_messages = 1
    log.log.reopen()
    return log


async def test_a_log_that_awaits_a_flush_is_not_fetched(running: Running) -> None:
    log = flushing("a")  # of a process before, which is not known to be durable
    running.fetcher.add(followed(A, log))
    assert await running.endpoint.quiet()
    log.log.sync()
    running.fetcher.resume(A)
    assert (await running.endpoint.next()).request.partitions[0].fetch_offset == 1


async def test_a_lane_waits_for_the_flush_of_what_it_appended(running: Running) -> None:
    log = flushing()
    running.fetcher.add(followed(A, log))
    running.fetcher.add(followed(B, FollowerMemory()))
    (await running.endpoint.next()).respond(got(A, records(0, "a")))
    assert await running.endpoint.quiet()
    log.log.sync()
    running.fetcher.resume(A)
    call = await running.endpoint.next()
    assert {asked.key: asked.fetch_offset for asked in call.request.partitions} == {A: 1, B: 0}


async def test_others_do_not_wait_long_for_a_flush(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fetcher.fetcher.FLUSH_WAIT_S", 0.0)
    log = flushing()
    running.fetcher.add(followed(A, log))
    running.fetcher.add(followed(B, FollowerMemory()))
    (await running.endpoint.next()).respond(got(A, records(0, "a")))
    assert (await running.endpoint.next()).keys == [B]
    log.log.sync()
    running.fetcher.resume(A)
    call = await running.endpoint.next()
    assert (call.request.lane, call.keys, call.request.partitions[0].fetch_offset) == (1, [A], 1)


async def test_a_late_answer_for_a_removed_partition_is_ignored(running: Running) -> None:
    log = FollowerMemory()
    running.fetcher.add(followed(A, log))
    running.fetcher.add(followed(B, FollowerMemory()))
    call = await running.endpoint.next()
    running.fetcher.remove(A)
    call.respond(got(A, records(0, "late")))
    assert (await running.endpoint.next()).keys == [B]
    assert log.text() == ""


async def test_a_late_answer_of_the_epoch_before_is_ignored(running: Running) -> None:
    log = FollowerMemory()
    running.fetcher.add(followed(A, log, leader_epoch=1))
    late = await running.endpoint.next()
    running.fetcher.add(followed(A, log, leader_epoch=2))
    call = await running.endpoint.next()
    assert call.request.partitions[0].current_leader_epoch == 2
    late.respond(got(A, records(0, "late", epoch=1)))
    assert (await running.endpoint.next()).request.partitions[0].current_leader_epoch == 2
    assert await running.endpoint.quiet()
    assert log.text() == ""
    call.respond(got(A, records(0, "new", epoch=2)))
    await running.endpoint.next()
    assert log.text() == "new"


async def test_an_unreachable_leader_is_tried_again(running: Running) -> None:
    running.fetcher.add(followed(A, FollowerMemory()))
    for failures in range(1, 5):
        (await running.endpoint.next()).fail(LeaderUnavailable("refused"))
        call = await running.endpoint.next()
        assert running.fetcher.leader_failures == failures
        running.endpoint.arrived.put_nowait(call)
    call = await running.endpoint.next()
    call.respond()
    await running.endpoint.next()
    assert running.fetcher.leader_failures == 0
    assert running.listened.retried == [], "the partitions are not to blame"


async def test_a_request_that_fails_as_a_whole_is_the_leaders_failure(running: Running) -> None:
    running.fetcher.add(followed(A, FollowerMemory()))
    (await running.endpoint.next()).respond(error="UNSUPPORTED_VERSION")
    await running.endpoint.next()
    assert running.fetcher.leader_failures == 1


async def test_an_added_partition_waits_while_the_leader_is_unreachable() -> None:
    world = Running(FetcherSettings(backoff_initial_ms=60_000, backoff_max_ms=60_000))
    world.fetcher.add(followed(A, FollowerMemory()))
    (await world.endpoint.next()).fail(LeaderUnavailable("refused"))
    assert await world.endpoint.quiet()
    world.fetcher.add(followed(B, FollowerMemory()))
    assert await world.endpoint.quiet()
    await world.stop()


async def test_a_failing_partition_does_not_keep_the_fetcher_busy(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)  # a slow machine must not end the back-off
    running.fetcher.add(followed(A, FollowerMemory()))
    running.fetcher.add(followed(B, FollowerMemory()))
    (await running.endpoint.next()).respond(FetchedPartition(A, "UNKNOWN_LEADER_EPOCH"))
    call = await running.endpoint.next()
    assert call.keys == [B]
    assert await running.endpoint.quiet()

    # Its back-off ends meanwhile: it does not wait for the long poll, and goes on failing less and less often.
    monkeypatch.setattr(loop, "time", lambda: now + 1)
    again = await running.endpoint.next()
    assert (again.request.lane, again.keys) == (1, [A])
    again.respond(FetchedPartition(A, "UNKNOWN_LEADER_EPOCH"))
    assert await running.endpoint.quiet()
    call.respond()
    assert (await running.endpoint.next()).keys == [B]


async def test_a_back_off_does_not_wait_for_the_long_poll(running: Running) -> None:
    """As at every failover where the new leader hears of its election a moment later than its followers."""
    running.fetcher.add(followed(A, FollowerMemory()))
    await running.endpoint.next()
    running.fetcher.add(followed(B, FollowerMemory()))
    for _ in range(3):
        call = await running.endpoint.next()
        assert (call.request.lane, call.keys) == (1, [B])
        call.respond(FetchedPartition(B, "UNKNOWN_LEADER_EPOCH"))
    assert running.listened.retried == [(B, "UNKNOWN_LEADER_EPOCH")] * 2


async def test_a_failing_partition_that_is_alone_is_tried_again_after_its_back_off(running: Running) -> None:
    running.fetcher.add(followed(A, FollowerMemory()))
    for _ in range(3):
        (await running.endpoint.next()).respond(FetchedPartition(A, "NOT_LEADER_OR_FOLLOWER"))
    await running.endpoint.next()
    assert running.listened.retried == [(A, "NOT_LEADER_OR_FOLLOWER")] * 3


async def test_out_of_range_is_resolved_while_others_go_on(running: Running) -> None:
    log = FollowerMemory("a")
    running.fetcher.add(followed(A, log))
    running.fetcher.add(followed(B, FollowerMemory()))
    running.endpoint.offsets = {A: LeaderOffsets(error="NOT_LEADER_OR_FOLLOWER")}
    (await running.endpoint.next()).respond(FetchedPartition(A, "OFFSET_OUT_OF_RANGE"))
    assert (await running.endpoint.next()).keys == [B]
    running.endpoint.offsets = {A: LeaderOffsets(7, 9)}
    call = await running.endpoint.next()
    assert call.keys == [A], "by the other lane, while the long poll for B is pending"
    assert {asked.key: asked.fetch_offset for asked in call.request.partitions}[A] == 7
    assert running.endpoint.asked == [A, A]


async def test_the_end_leaves_nothing_running(running: Running) -> None:
    running.fetcher.add(followed(A, FollowerMemory()))
    call = await running.endpoint.next()
    await running.stop()
    assert call.answer.cancelled()
    assert running.endpoint.closed
    assert running.endpoint.outstanding == 0


async def test_a_defect_in_the_endpoint_ends_the_fetcher_with_it(running: Running) -> None:
    running.fetcher.add(followed(A, FollowerMemory()))
    (await running.endpoint.next()).fail(ZeroDivisionError("a defect"))
    with pytest.raises(ZeroDivisionError):
        await running.task
    assert running.endpoint.closed
