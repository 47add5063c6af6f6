"""Which brokers Metadata answers name although they are fenced."""

from __future__ import annotations

from kraft.broker.membership.recently_fenced import NAMED_MS, RecentlyFenced
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY
from quorum.metadata.records import BrokerChange, Record, RegisterBroker, UnregisterBroker
from tests.support.broker_world import broker


class World:
    """Committed metadata, and a clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.image = EMPTY
        self.named = RecentlyFenced(lambda: self.now_ms)

    def publish(self, *records: Record, offset: int = 1) -> list[int]:
        """Whom answers name afterwards."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.apply(record, offset, 1)
        self.image = delta.finish(self.image.offset + 1, 1)
        self.named.on_metadata(delta, self.image)
        return list(self.named.ids())


def test_for_a_while_after_its_session() -> None:
    world = World()
    assert world.publish(*broker(1)) == []
    assert world.publish(BrokerChange(1, 1, fenced=True)) == [1]
    world.now_ms = NAMED_MS - 1
    assert list(world.named.ids()) == [1]
    world.now_ms = NAMED_MS
    assert list(world.named.ids()) == []


def test_who_said_goodbye_is_not_named() -> None:
    world = World()
    world.publish(*broker(1))
    world.publish(BrokerChange(1, 1, in_controlled_shutdown=True))
    assert world.publish(BrokerChange(1, 1, fenced=True)) == []


def test_who_registers_anew_is_not_named() -> None:
    world = World()
    world.publish(*broker(1))
    assert world.publish(broker(1)[0], offset=2) == []  # within its session
    world.publish(BrokerChange(1, 2, fenced=False))
    assert world.publish(BrokerChange(1, 2, fenced=True)) == [1]
    assert world.publish(broker(1)[0], offset=3) == []


def test_who_is_back_or_unregistered_is_not_named() -> None:
    world = World()
    world.publish(*broker(1))
    world.publish(BrokerChange(1, 1, fenced=True))
    assert world.publish(BrokerChange(1, 1, fenced=False)) == []
    assert world.publish(BrokerChange(1, 1, fenced=True)) == [1]
    assert world.publish(UnregisterBroker(1, 1)) == []


def test_who_was_fenced_before_is_not_named() -> None:
    world = World()
    registration: RegisterBroker = broker(1)[0]
    assert world.publish(registration) == []
    assert world.publish(BrokerChange(1, 1, in_controlled_shutdown=False)) == []
