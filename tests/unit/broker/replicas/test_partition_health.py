"""What a broker's metrics say of the partitions that it leads, and of those who follow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from kraft.broker.replicas.partition_health import PARTITIONS_PER_STEP, FollowerLag, PartitionHealth
from partitions.log.config import LogConfig
from partitions.topic_partition import TopicPartition
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.metadata.changes import ImageDiff
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.records import Config, PartitionChange, Record
from quorum.metadata.tally import LedPartitions
from quorum.steps import finished
from tests.support.broker_world import ME, BrokerWorld, batch, gone, led_by, topic, topic_id

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LED, SHORT = LedPartitions.LED, LedPartitions.UNDER_REPLICATED
TOO_SHORT, JUST = LedPartitions.UNDER_MIN_ISR, LedPartitions.AT_MIN_ISR


class Cluster:
    """An image, and the health of broker 1 that is told of every change."""

    def __init__(self) -> None:
        self.health = PartitionHealth(ME, LogTopicConfigs(LogConfig()))
        self.image: MetadataImage = EMPTY

    def publish(self, *records: Record) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.apply(record, self.image.offset + 1, 1)
        self.image = delta.finish(self.image.offset + 1, 1)
        finished(self.health.on_metadata(delta, self.image))
        again = PartitionHealth(ME, LogTopicConfigs(LogConfig()))
        finished(again.on_metadata(ImageDiff(EMPTY, self.image), self.image))
        assert self.counts() == {state: again.led.count(state) for state in self.counts()}

    def counts(self) -> Mapping[int, int]:
        return {state: self.health.led.count(state) for state in (LED, SHORT, TOO_SHORT, JUST)}


def test_counts_follow_every_kind_of_change() -> None:
    cluster = Cluster()
    cluster.publish(*topic("t", 1, (1, 2, 3), (2, 1, 3)))
    assert cluster.counts() == {LED: 1, SHORT: 0, TOO_SHORT: 0, JUST: 0}
    cluster.publish(PartitionChange(topic_id(1), 0, isr=(1,)))
    assert cluster.counts() == {LED: 1, SHORT: 1, TOO_SHORT: 0, JUST: 1}
    cluster.publish(Config("topic", "t", "min.insync.replicas", "2"))
    assert cluster.counts() == {LED: 1, SHORT: 1, TOO_SHORT: 1, JUST: 0}
    cluster.publish(Config("topic", "t", "min.insync.replicas", None))
    cluster.publish(Config("broker", "", "min.insync.replicas", "3"))
    assert cluster.counts() == {LED: 1, SHORT: 1, TOO_SHORT: 1, JUST: 0}
    cluster.publish(led_by(1, 1, 1))
    assert cluster.counts() == {LED: 2, SHORT: 1, TOO_SHORT: 1, JUST: 1}
    cluster.publish(PartitionChange(topic_id(1), 0, isr=(1, 2, 3)), led_by(1, 1, 2))
    assert cluster.counts() == {LED: 1, SHORT: 0, TOO_SHORT: 0, JUST: 1}
    cluster.publish(gone(1), *topic("t", 2, (1,)))
    assert cluster.counts() == {LED: 1, SHORT: 0, TOO_SHORT: 0, JUST: 1}


def lags_of(
    world: BrokerWorld, incomplete: Iterable[TopicPartition], followers: Iterable[int]
) -> Mapping[int, FollowerLag]:
    return finished(world.replicas.follower_lags(incomplete, followers))


async def test_lags_are_added_up_by_follower(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2, 3), (1, 2, 3), isr=(1, 2)))
    now_ms = world.replicas.monotonic_ms()
    for key in (T0, T1):
        partition = world.replicas.partition(key)
        partition.append_records(batch(b"a", b"b", b"c"), acks=1, now_ms=now_ms)
        assert partition.leadership is not None
        follower = partition.leadership.follower(2)
        assert follower is not None
        follower.last_caught_up_ms = now_ms - 300
    lags = lags_of(world, [T0, T1], (2, 3))
    assert (lags[2].max_records, lags[2].sum_records, lags[2].partitions) == (3, 6, 2)
    assert 300 <= lags[2].max_ms < math.inf
    assert lags[3] == FollowerLag(3, 6, math.inf, 2)
    for key in (T0, T1):
        leadership = world.replicas.partition(key).leadership
        assert leadership is not None
        for follower in leadership.followers:
            follower.leave_isr()  # what it had proved counts no more, and is what its lag is measured from all the same
    assert lags_of(world, [T0, T1], (2, 3))[2].max_ms < math.inf
    world.replicas.partition(T0).update_follower(2, 2, 3, 0, 3, world.replicas.monotonic_ms())
    assert lags_of(world, [T0, T1], ())[2].sum_records == 3


async def test_partitions_where_nobody_lags_are_not_looked_at(world: BrokerWorld) -> None:
    """A follower in the ISR that lags is found by the lag schedule, though nobody names its partition."""
    await world.start(*topic("t", 1, (1, 2), (1, 2)))
    assert lags_of(world, (), (2,)) == {2: FollowerLag()}
    now_ms = world.replicas.monotonic_ms()
    world.replicas.partition(T1).append_records(batch(b"a"), acks=1, now_ms=now_ms)
    assert lags_of(world, (), (2,))[2].sum_records == 1


async def test_the_lags_of_many_partitions_are_found_out_in_steps(world: BrokerWorld) -> None:
    """While a broker is down, all that it followed has somebody out of the ISR."""
    count = PARTITIONS_PER_STEP * 2
    await world.start(*topic("t", 1, *([(1, 2)] * count), isr=(1,)))
    keys = [TopicPartition("t", number) for number in range(count)]
    for key in keys:
        now_ms = world.replicas.monotonic_ms()
        world.replicas.partition(key).append_records(batch(b"a"), acks=1, now_ms=now_ms)
    assert sum(1 for _ in world.replicas.follower_lags(keys, (2,))) >= 2
    assert lags_of(world, keys, (2,))[2].partitions == count
