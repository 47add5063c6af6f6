"""A voter assembled over the simulated world: calls, long polls, changes of leader, defects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quorum import controller_server
from quorum.rpc import messages
from quorum.rpc.envelope import RpcError, RpcUnavailable
from quorum.rpc.messages import DescribeQuorumRequest
from tests.support.quorum_world import QuorumWorld, now, told


def fetch(
    offset: int, epoch: int = 0, wait_ms: int = 0, max_bytes: int = 1 << 20
) -> messages.FetchMetadataRequest:
    return messages.FetchMetadataRequest(1, epoch, offset, wait_ms, max_bytes)


def test_a_registration_is_committed_and_followed() -> None:
    async def story(world: QuorumWorld) -> None:
        epoch = await world.register()
        response = await world.call(fetch(-1))
        assert response.committed_offset >= epoch
        assert response.leader_id == 1
        assert world.servers[1].image.brokers[1].epoch == epoch

    told(story)


def test_an_answer_carries_the_offset_that_has_what_was_decided() -> None:
    async def story(world: QuorumWorld) -> None:
        first = await world.answer(world.registration(1))
        assert first.offset == first.response.broker_epoch
        await world.register(2)
        wanted = messages.TopicToDelete("no-such-topic")
        nothing = await world.answer(messages.DeleteTopicsRequest((wanted,)))
        assert nothing.offset == world.servers[1].image.offset, "what it did not find was not there by then"
        polled = await world.answer(fetch(-1))
        assert polled.offset == polled.response.committed_offset

    told(story)


def test_a_long_poll_ends_with_a_commit_or_with_its_time() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.register()
        known = (await world.call(fetch(-1))).committed_offset
        begun_s = now()
        response = await world.call_voter(1, fetch(known, 1, wait_ms=500))
        assert 0.5 <= now() - begun_s < 0.6
        assert (response.entries, response.snapshot) == ((), None)
        polling = asyncio.ensure_future(world.call_voter(1, fetch(known, 1, wait_ms=9_000), 10))
        await asyncio.sleep(0.2)
        begun_s = now()
        await world.register(2)
        response = await polling
        assert now() - begun_s < 0.2
        assert response.committed_offset > known

    told(story)


def test_history_comes_in_pieces_without_a_gap() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.register()
        known = (await world.call(fetch(-1))).committed_offset
        for broker_id in range(2, 9):
            await world.register(broker_id)
        offsets, pieces = [known], 0
        piece = await world.call(fetch(known, 1, max_bytes=1))
        while piece.entries:
            pieces += 1
            offsets += [entry.offset for entry in piece.entries]
            piece = await world.call(fetch(offsets[-1], piece.entries[-1].epoch, max_bytes=1))
        assert pieces >= 7, "each has one registration at most"
        assert offsets == list(range(known, piece.committed_offset + 1))

    told(story)


def test_refusals_are_typed() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.active()
        with pytest.raises(RpcError) as caught:
            await world.call(messages.AllocateProducerIdsRequest(1, 1))
        assert caught.value.code == "STALE_BROKER_EPOCH"
        assert world.rpc is not None
        for method, body in (("heartbeat", {}), ("no_such_method", {}), ("fetch_metadata", {"offset": "x"})):
            with pytest.raises(RpcError) as caught:
                await world.rpc.call(world.voters[1], method, body, 1)
            assert caught.value.code == "INVALID_REQUEST"

    told(story)


def test_only_the_active_one_answers_and_the_others_point_at_it() -> None:
    async def story(world: QuorumWorld) -> None:
        leader = await world.active()
        await world.register()
        for voter in world.voters:
            if voter != leader:
                for request in (fetch(-1), messages.AllocateProducerIdsRequest(1, 1)):
                    with pytest.raises(RpcError) as caught:
                        await world.call_voter(voter, request)
                    assert (caught.value.code, caught.value.leader_id) == ("NOT_CONTROLLER", leader)

    told(story, 3)


def test_sessions_run_out_and_a_new_controller_gives_whole_ones() -> None:
    async def story(world: QuorumWorld) -> None:
        epoch = await world.register()

        async def beat() -> messages.HeartbeatResponse:
            request = messages.HeartbeatRequest(1, epoch, epoch, want_fence=False, want_shutdown=False)
            answer: messages.HeartbeatResponse = await world.call(request)
            return answer

        assert not (await beat()).is_fenced
        leader = await world.active()
        world.simulation.call_later(0.1, world.hosts[leader].kill)
        await asyncio.sleep(0.5)
        successor = await world.active()
        assert successor != leader
        assert not world.servers[successor].image.brokers[1].fenced
        await asyncio.sleep(1.5)
        assert not world.servers[successor].image.brokers[1].fenced
        await asyncio.sleep(2.5)
        assert world.servers[successor].image.brokers[1].fenced

    told(story, 3)


def test_the_active_one_describes_the_quorum() -> None:
    """Voters as its Raft lane knows them, and whoever follows the metadata."""

    async def story(world: QuorumWorld) -> None:
        active = await world.active()
        broker_id = 9
        await world.call(messages.FetchMetadataRequest(broker_id, 0, -1, 500))
        while True:  # until the followers have acknowledged everything, and the broker has it
            everything = world.servers[active].image.offset
            await world.call(messages.FetchMetadataRequest(broker_id, 0, everything, 100))
            described = await world.call(DescribeQuorumRequest())
            if {voter.log_end_offset for voter in described.voters} == {everything + 1}:
                break
        assert (described.leader_id, described.leader_epoch) == (active, world.servers[active].epoch)
        assert described.high_watermark == everything + 1
        assert [voter.replica_id for voter in described.voters] == [1, 2, 3]
        (observer,) = described.observers
        assert (observer.replica_id, observer.log_end_offset) == (broker_id, everything + 1)
        assert observer.last_caught_up_ms == observer.last_fetch_ms > 0
        passive = next(node_id for node_id in world.servers if node_id != active)
        with pytest.raises(RpcError) as refused:
            await world.call_voter(passive, DescribeQuorumRequest())
        assert (refused.value.code, refused.value.leader_id) == ("NOT_CONTROLLER", active)

    told(story, voters=3)


def test_what_a_deposed_controller_had_proposed_is_in_doubt() -> None:
    """The next leader may commit it; what was refused outright was never proposed."""

    async def story(world: QuorumWorld) -> None:
        await world.register()
        leader = await world.active()
        for other in world.voters:
            if other != leader:
                world.kill(other)
        await asyncio.sleep(0.01)
        registration = world.registration(2)
        with pytest.raises(RpcError, match="NOT_CONTROLLER") as proposed:
            await world.call_voter(leader, registration, 10)
        assert proposed.value.in_doubt
        with pytest.raises(RpcError, match="NOT_CONTROLLER") as refused:
            await world.call_voter(leader, registration, 10)
        assert not refused.value.in_doubt

    told(story, 3)


def test_a_deposed_controller_ends_its_long_polls() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.register()
        leader = await world.active()
        known = world.servers[leader].image.offset
        polling = asyncio.ensure_future(world.call_voter(leader, fetch(known, 1, wait_ms=9_000), 10))
        await asyncio.sleep(0.1)
        for other in world.voters:
            if other != leader:
                world.kill(other)
        begun_s = now()
        with pytest.raises(RpcError, match="NOT_CONTROLLER"):
            await polling
        assert now() - begun_s < 3
        with pytest.raises(RpcUnavailable):
            await world.call(fetch(known), timeout_s=1)

    told(story, 3)


def test_a_stop_hands_over_first() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.register()
        leader = await world.active()
        server = world.servers[leader]

        def hand_over() -> None:
            handing.append(server._loop.create_task(server.hand_over()))

        handing: list[asyncio.Task[None]] = []
        server._loop.call_soon_threadsafe(hand_over)
        begun_s = now()
        await asyncio.sleep(0.2)  # shorter than any election timeout
        assert await world.active() != leader
        assert now() - begun_s < 0.25

    told(story, 3)


def test_voters_prepare_to_take_over_a_large_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_server, "PREPARED_PARTITIONS", 3)

    async def story(world: QuorumWorld) -> None:
        epoch = await world.register()
        await world.call(messages.HeartbeatRequest(1, epoch, 10**6, want_fence=False, want_shutdown=False))
        leader = await world.active()
        for name, partitions in (("a", 2), ("b", 1), ("c", 4)):
            made = await world.call(
                messages.CreateTopicsRequest((messages.NewTopic(name, partitions, 1),)), timeout_s=5
            )
            assert made.topics[0].error == "NONE"
        until = world.servers[leader].image.offset
        for node_id, server in world.servers.items():
            while server.image.offset < until:  # noqa: ASYNC110 - it is another node's
                await asyncio.sleep(0.005)
            await asyncio.sleep(0)
            led = server._state._index.led_by(1)
            assert led == 7 if node_id == leader else led >= 3, (
                "as of the last three records that changed much"
            )

    told(story, 3)


@pytest.mark.parametrize("half_decided", [False, True])
def test_a_defect_costs_the_controller_only_when_it_left_something_half_decided(half_decided: bool) -> None:
    async def story(world: QuorumWorld) -> None:
        await world.register()
        leader = await world.active()
        server = world.servers[leader]
        handle = server._state.handle
        broken = [True]

        def defect(*arguments: Any) -> Any:
            if broken:
                if half_decided:
                    handle(*arguments)
                broken.clear()
                raise KeyError("a defect")
            return handle(*arguments)

        server._state.handle = defect  # type: ignore[method-assign]
        if half_decided:
            await world.register(2)  # by a successor
            assert await world.active() != leader
            assert len(world.hosts[leader].halts) == 1
        else:
            with pytest.raises(RpcError, match="UNKNOWN_SERVER_ERROR"):
                await world.register(2)
            await world.register(2)
            assert await world.active() == leader
            assert world.hosts[leader].halts == {}

    told(story, 3)


@pytest.mark.parametrize("where", ["take", "tick"])
def test_a_voter_that_cannot_take_in_what_happened_halts(where: str) -> None:
    async def story(world: QuorumWorld) -> None:
        await world.register()
        server = world.servers[1]

        def defect(*_: Any) -> Any:
            raise KeyError("a defect")

        setattr(server._driver, where, defect)
        registering = asyncio.ensure_future(world.register(2))
        await asyncio.sleep(10)
        await asyncio.gather(registering, return_exceptions=True)
        assert len(world.hosts[1].halts) == 1

    told(story)
