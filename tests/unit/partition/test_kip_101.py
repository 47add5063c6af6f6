"""The two histories of KIP-101, under the old truncation rule and under the present one.

The old rule: a follower cuts its log at its high watermark, and sends no last fetched epoch. It is played
here only to show that these histories tell the rules apart: under it, one loses an acknowledged record and
the other forks for ever.
"""

from __future__ import annotations

from typing import Literal

import pytest

from fetcher.leader_endpoint import NO_EPOCH
from tests.support.replica_world import World

Rule = Literal["high-watermark", "leader-epoch"]


class Replay:
    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.world = World(brokers=(1, 2))
        self.world.is_clean = False  # the verdict is what is asked for, not an assertion

    def follow(self, broker_id: int) -> None:
        """A restarted broker starts to follow."""
        self.world.publish_all()
        partition = self.world.partition(broker_id)
        if self.rule == "high-watermark" and not partition.is_leader:
            partition.truncate_to(partition.high_watermark, leader_epoch=partition.leader_epoch)

    def fetch(self, broker_id: int) -> None:
        world = self.world
        if world.send_fetch(broker_id):
            if self.rule == "high-watermark":
                fetch = world.fetches[broker_id]
                asked = fetch.request.partitions[0]._replace(last_fetched_epoch=NO_EPOCH)
                fetch.request = fetch.request._replace(partitions=(asked,))
            world.deliver_fetch(broker_id)
            world.deliver_answer(broker_id)

    def produce(self, leader_id: int, value: str, *, acks: int) -> int:
        info = self.world.partition(leader_id).append_records(value.encode(), acks=acks, now_ms=0)
        return info.last_offset

    def values(self, broker_id: int) -> list[str]:
        return [value for _, value in self.world.brokers[broker_id].log.values().values()]

    def restart(self, broker_id: int, *, high_watermark: int) -> None:
        self.world.crash(broker_id)
        self.world.brokers[broker_id].checkpointed_high_watermark = high_watermark
        self.world.register(broker_id)
        self.world.unfence(broker_id)


@pytest.mark.parametrize(("rule", "verdict"), [("high-watermark", "lost"), ("leader-epoch", "held")])
def test_loss(rule: Rule, verdict: str) -> None:
    """Broker 2 has m2 but a stale high watermark; it restarts, then the leader dies."""
    replay = Replay(rule)
    replay.produce(1, "m1", acks=-1)
    replay.fetch(2)
    offset = replay.produce(1, "m2", acks=-1)
    replay.fetch(2)
    replay.world.send_fetch(2)
    replay.world.deliver_fetch(2)
    assert replay.world.partition(1).high_watermark > offset, "m2 is acknowledged"

    # The restart is so quick that broker 2 is still in the ISR when the leader dies.
    replay.restart(2, high_watermark=1)
    replay.world.elect(1, isr=(1, 2))
    replay.follow(2)
    replay.world.crash(1)
    replay.world.fence(1)
    replay.world.publish_all()
    assert replay.world.partition(2).is_leader
    assert ("held" if "m2" in replay.values(2) else "lost") == verdict


@pytest.mark.parametrize(("rule", "verdict"), [("high-watermark", "forked"), ("leader-epoch", "held")])
def test_fork(rule: Rule, verdict: str) -> None:
    """m2 is on broker 1's disk only; both lose power; broker 2 returns first and writes m3 in its place."""
    replay = Replay(rule)
    replay.produce(1, "m1", acks=1)
    for _ in range(2):
        replay.fetch(2)
    for broker in replay.world.brokers.values():
        broker.log.sync()
    replay.produce(1, "m2", acks=1)
    replay.fetch(2)
    replay.fetch(2)
    replay.world.brokers[1].log.sync()
    for broker_id in (1, 2):
        replay.world.crash(broker_id)
        replay.world.brokers[broker_id].log.lose_power()
    assert (replay.values(1), replay.values(2)) == (["m1", "m2"], ["m1"])

    replay.world.elect(2, isr=(2,))
    replay.restart(2, high_watermark=1)
    replay.world.publish_all()
    replay.produce(2, "m3", acks=1)
    replay.restart(1, high_watermark=2)
    replay.follow(1)
    for _ in range(3):
        replay.fetch(1)
    assert replay.values(2) == ["m1", "m3"]
    assert ("held" if replay.values(1) == replay.values(2) else "forked") == verdict
