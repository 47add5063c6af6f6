"""Which fetcher copies what, and how fetchers come and go."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from fetcher.fetcher_manager import FetcherManager, fetcher_number
from fetcher.leader_endpoint import FetchedPartition
from fetcher.settings import FetcherSettings
from tests.support.fetch_world import A, B, FollowerMemory, HandEndpoint, Listened, followed, got, records


class Managed:
    def __init__(self, fetchers_per_leader: int = 1) -> None:
        self.endpoints: dict[int, list[HandEndpoint]] = {}
        self.listened = Listened()
        self.manager = FetcherManager(
            self._endpoint,
            FetcherSettings(backoff_initial_ms=1, backoff_max_ms=4, fetchers_per_leader=fetchers_per_leader),
            jitter=random.Random(7).random,
            listener=self.listened,
        )

    def _endpoint(self, leader_id: int) -> HandEndpoint:
        endpoint = HandEndpoint(leader_id)
        self.endpoints.setdefault(leader_id, []).append(endpoint)
        return endpoint

    def endpoint(self, leader_id: int) -> HandEndpoint:
        return self.endpoints[leader_id][-1]


@pytest.fixture
async def managed() -> AsyncIterator[Managed]:
    world = Managed()
    yield world
    await world.manager.close()


async def test_one_fetcher_per_leader(managed: Managed) -> None:
    managed.manager.add_partitions(
        [followed(A, FollowerMemory(), leader_id=1), followed(B, FollowerMemory(), leader_id=2)]
    )
    assert managed.manager.leaders == (1, 2)
    assert (await managed.endpoint(1).next()).keys == [A]
    assert (await managed.endpoint(2).next()).keys == [B]


async def test_a_few_fetchers_share_a_leaders_partitions() -> None:
    managed = Managed(fetchers_per_leader=2)
    log, moving = FollowerMemory(), FollowerMemory()
    managed.manager.add_partitions([followed(A, log), followed(B, moving)])
    assert managed.manager.leaders == (1,)
    calls = [await endpoint.next() for endpoint in managed.endpoints[1]]
    assert sorted(call.keys for call in calls) == [[A], [B]]
    managed.manager.remove_partitions([A])
    for call in calls:
        call.respond(*(got(key, records(0, "x")) for key in call.keys))
    await (managed.endpoints[1][0] if calls[0].keys == [B] else managed.endpoints[1][1]).next()
    assert (log.text(), moving.text()) == ("", "x")
    await managed.manager.close()


def test_a_partition_has_its_fetcher() -> None:
    numbers = [fetcher_number(("orders", partition), 3) for partition in range(6)]
    assert sorted(numbers[:3]) == [0, 1, 2]
    assert numbers[:3] == numbers[3:]
    assert fetcher_number(("orders", 0), 1) == 0


async def test_a_partition_moves_to_its_new_leader(managed: Managed) -> None:
    log = FollowerMemory()
    managed.manager.add_partitions([followed(A, log, leader_id=1, leader_epoch=1)])
    late = await managed.endpoint(1).next()
    managed.manager.add_partitions([followed(A, log, leader_id=2, leader_epoch=2)])
    call = await managed.endpoint(2).next()
    assert managed.manager.leaders == (2,)
    assert await managed.endpoint(1).quiet()
    assert managed.endpoint(1).closed
    assert late.answer.cancelled()
    call.respond(got(A, records(0, "a", epoch=2)))
    await managed.endpoint(2).next()
    assert log.text() == "a"


async def test_an_older_epoch_does_not_take_a_partition_back(managed: Managed) -> None:
    log = FollowerMemory()
    managed.manager.add_partitions([followed(A, log, leader_id=2, leader_epoch=2)])
    managed.manager.add_partitions([followed(A, log, leader_id=1, leader_epoch=1)])
    state = managed.manager.state(A)
    assert state is not None
    assert state.followed.leader_id == 2
    assert managed.manager.leaders == (2,)


async def test_removed_means_nothing_is_appended_any_more(managed: Managed) -> None:
    log = FollowerMemory()
    managed.manager.add_partitions([followed(A, log), followed(B, FollowerMemory())])
    call = await managed.endpoint(1).next()
    managed.manager.remove_partitions([A, ("nowhere", 0)])
    call.respond(got(A, records(0, "late")))
    assert (await managed.endpoint(1).next()).keys == [B]
    assert log.text() == ""
    assert managed.manager.state(A) is None


async def test_a_fetcher_without_partitions_ends(managed: Managed) -> None:
    managed.manager.add_partitions([followed(A, FollowerMemory())])
    await managed.endpoint(1).next()
    managed.manager.remove_partitions([A])
    assert await managed.endpoint(1).quiet()
    assert managed.endpoint(1).closed
    assert managed.manager.leaders == ()


async def test_a_fetcher_that_gets_partitions_at_once_again_goes_on(managed: Managed) -> None:
    log = FollowerMemory()
    managed.manager.add_partitions([followed(A, log)])
    await managed.endpoint(1).next()
    managed.manager.remove_partitions([A])
    managed.manager.add_partitions([followed(A, log, leader_epoch=1)])
    await managed.endpoint(1).next()
    assert len(managed.endpoints[1]) == 1


async def test_failed_partitions_are_listed_with_the_reason(managed: Managed) -> None:
    managed.manager.add_partitions([followed(A, FollowerMemory()), followed(B, FollowerMemory())])
    call = await managed.endpoint(1).next()
    call.respond(FetchedPartition(A, "FENCED_LEADER_EPOCH"))
    await managed.endpoint(1).next()
    assert [(state.key, state.failure) for state in managed.manager.failed_partitions()] == [
        (A, "FENCED_LEADER_EPOCH")
    ]


async def test_a_crashed_fetcher_is_reported_and_replaced_when_asked(managed: Managed) -> None:
    log = FollowerMemory()
    managed.manager.add_partitions([followed(A, log)])
    (await managed.endpoint(1).next()).fail(ZeroDivisionError("a defect"))
    assert await managed.endpoint(1).quiet()
    assert managed.listened.crashed == [(1, "a defect")]
    assert managed.manager.state(A) is None
    managed.manager.add_partitions([followed(A, log)])
    await managed.endpoint(1).next()
    assert len(managed.endpoints[1]) == 2


async def test_close_waits_for_all(managed: Managed) -> None:
    managed.manager.add_partitions([followed(A, FollowerMemory(), leader_id=1)])
    managed.manager.add_partitions([followed(B, FollowerMemory(), leader_id=2)])
    calls = [await managed.endpoint(leader_id).next() for leader_id in (1, 2)]
    await managed.manager.close()
    assert all(call.answer.cancelled() for call in calls)
    assert managed.endpoint(1).closed
    assert managed.endpoint(2).closed
    await managed.manager.close()
