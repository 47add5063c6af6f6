"""How soon another controller serves, one failure after the other, in virtual time."""

from __future__ import annotations

import asyncio

from tests.support.quorum_world import QuorumWorld, now, told

ROUNDS = 20
DEAD_S = 4.0
"""Long enough that whoever dials the dead voter pauses as long as it ever does."""
FAILOVER_MAX_S = 0.6
"""Little more than the longest election timeout that the simulated voters have (0.5 s)."""


def test_a_voter_that_is_just_back_helps_to_replace_the_next_leader() -> None:
    """It has caught up with the leader. That the other follower has not found it yet must not matter for long."""

    async def story(world: QuorumWorld) -> None:
        broker_id = 1
        for _ in range(ROUNDS):
            victim = await world.active()
            known = world.servers[victim].image.offset
            world.kill(victim)
            killed_s = now()
            broker_id += 1
            await world.register(broker_id)
            assert now() - killed_s <= FAILOVER_MAX_S, f"voter {victim} was replaced too late"
            await asyncio.sleep(DEAD_S)
            known = world.servers[await world.active()].image.offset
            world.simulation.call_later(0.0, lambda voter=victim: world.start(voter))
            await asyncio.sleep(0.01)
            async with asyncio.timeout(10):
                while world.servers[victim].image.offset < known:  # noqa: ASYNC110 - it is another node's
                    await asyncio.sleep(0.005)

    told(story, voters=3)
