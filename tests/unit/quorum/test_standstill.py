"""A controller that stood still itself has heard of nobody, and fences only those who stay silent afterwards."""

from __future__ import annotations

import asyncio

from quorum.rpc import messages
from quorum.rpc.envelope import RpcUnavailable
from tests.support.quorum_world import QuorumWorld, told

HEARTBEAT_S = 0.2
SESSION_S = 2.0
STANDSTILL_S = 9.0


async def heartbeats(world: QuorumWorld, broker_id: int, epoch: int) -> None:
    """A broker's, until it is cancelled; one that is not answered is sent again."""
    while True:
        try:
            await world.call(messages.HeartbeatRequest(broker_id, epoch, 1 << 40), timeout_s=1.0)
        except RpcUnavailable:
            continue
        await asyncio.sleep(HEARTBEAT_S)


def test_nobody_is_fenced_for_a_standstill_of_the_controller_and_the_dead_are_after_it() -> None:
    async def story(world: QuorumWorld) -> None:
        server = world.servers[await world.active()]
        senders = {
            broker_id: asyncio.ensure_future(heartbeats(world, broker_id, await world.register(broker_id)))
            for broker_id in (1, 2, 3)
        }

        def fenced() -> list[int]:
            return [broker_id for broker_id, broker in server.image.brokers.items() if broker.fenced]

        await asyncio.sleep(SESSION_S)
        assert fenced() == []
        before = server.image.offset
        senders[3].cancel()
        world.hosts[1].pause(STANDSTILL_S)
        await asyncio.sleep(STANDSTILL_S + SESSION_S / 2)
        assert (fenced(), server.image.offset) == ([], before)
        await asyncio.sleep(SESSION_S)
        assert fenced() == [3]
        for sender in senders.values():
            sender.cancel()

    told(story)
