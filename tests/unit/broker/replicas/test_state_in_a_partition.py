"""A small application that keeps its state in a partition: all that it asks of a broker, from election to deletion.

The counter is a state machine over its partition's records. Whoever asks it is told only what is committed.
"""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from kraft.broker.replicas.appends import AckCondition, Appends
from kraft.broker.replicas.replica_manager import ReplicaManager
from partitions.errors import PartitionError
from partitions.log.errors import LogError
from partitions.records.batch import decode_records, iter_batches
from partitions.topic_partition import TopicPartition
from tests.support.broker_world import BrokerWorld, batch, gone, led_by, topic

KEY: Final = TopicPartition("counts", 0)
TIMEOUT_S: Final = 5.0
READ_BYTES: Final = 64


class Refused(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Counter:
    """Counts what it is given: each record is the count after it."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._appends: Appends = replicas.appends
        self._epoch: int | None = None
        self._loading: asyncio.Task[None] | None = None
        self._count = 0
        self._exists = False
        replicas.leaderships.add(self)

    # -- leadership

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        if partition == KEY:
            self._exists = True
            self._loading = asyncio.get_running_loop().create_task(self._load(leader_epoch))

    def on_resigned(self, partition: TopicPartition, leader_epoch: int) -> None:
        if partition == KEY:
            assert self._loading is not None
            self._loading.cancel()
            self._epoch, self._count = None, 0

    def on_deleted(self, partition: TopicPartition, topic_id: bytes) -> None:
        if partition == KEY:
            self._exists = False

    async def _load(self, leader_epoch: int) -> None:
        """Reads what there is, and waits until all of it is committed: before, others might lead without it."""
        partition = self._replicas.partition(KEY)
        end, offset = partition.log_end_offset, partition.log_start_offset
        count = 0
        while offset < end:
            found = partition.log.read(offset, READ_BYTES, up_to_offset=end)
            data = b"".join(piece.read() for piece in found.slices)
            for position, header in iter_batches(data):
                for record in decode_records(data, position, header, max_decompressed_bytes=READ_BYTES):
                    count = int(record.value or b"")
            offset = found.next_offset
            await asyncio.sleep(0)
        await self._committed(AckCondition(partition, end, leader_epoch))
        self._epoch, self._count = leader_epoch, count

    # -- requests

    async def add(self, number: int) -> int:
        """The count with it, once that is committed. Raises Refused."""
        if self._epoch is None:
            raise Refused(self._why_not())
        count = self._count + number
        try:
            appended = self._appends.append(
                KEY, batch(b"%d" % count), acks=-1, origin="coordinator", leader_epoch=self._epoch
            )
            if isinstance(appended, asyncio.Future):
                appended = await appended
        except (PartitionError, LogError) as error:
            raise Refused(error.code) from error
        self._count = count
        await self._committed(appended.condition)
        return count

    def _why_not(self) -> str:
        if not self._exists:
            return "UNKNOWN_TOPIC_OR_PARTITION"
        loads = self._loading is not None and not self._loading.done()
        return "COORDINATOR_LOAD_IN_PROGRESS" if loads else "NOT_LEADER_OR_FOLLOWER"

    async def _committed(self, condition: AckCondition) -> None:
        outcomes = self._appends.when_committed({KEY: condition}, TIMEOUT_S)
        code = (await outcomes if isinstance(outcomes, asyncio.Future) else outcomes)[KEY]
        if code is not None:
            raise Refused(code)


async def turns() -> None:
    """Lets everybody go on who can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def refused(counter: Counter) -> str:
    with pytest.raises(Refused) as refusal:
        await counter.add(1)
    return refusal.value.code


def follower_has_all(world: BrokerWorld) -> None:
    partition = world.replicas.partition(KEY)
    end = partition.log_end_offset
    partition.update_follower(2, 2, end, 0, end, world.replicas.monotonic_ms())


@pytest.fixture
def counter(world: BrokerWorld) -> Counter:
    return Counter(world.replicas)


async def test_it_replies_when_its_record_is_committed(world: BrokerWorld, counter: Counter) -> None:
    await world.start(*topic("counts", 1, (1, 2)))
    follower_has_all(world)
    await turns()
    first, second = asyncio.create_task(counter.add(3)), asyncio.create_task(counter.add(4))
    await turns()
    assert not first.done()
    assert not second.done()
    follower_has_all(world)
    assert (await first, await second) == (3, 7)


async def test_it_counts_on_where_the_leader_before_it_ended(world: BrokerWorld, counter: Counter) -> None:
    await world.start(*topic("counts", 1, (2, 1)))
    partition = world.replicas.partition(KEY)
    for offset, value in enumerate((b"5", b"8", b"9")):
        partition.append_as_follower(
            batch(value, base_offset=offset, leader_epoch=0),
            leader_epoch=0,
            leader_high_watermark=offset,
            leader_log_start_offset=0,
        )
    assert await refused(counter) == "UNKNOWN_TOPIC_OR_PARTITION"
    await world.publish(led_by(1, 0, 1))
    await turns()
    assert await refused(counter) == "COORDINATOR_LOAD_IN_PROGRESS", "the last record is not committed"
    follower_has_all(world)
    await turns()
    answer = asyncio.create_task(counter.add(1))
    await turns()
    follower_has_all(world)
    assert await answer == 10


async def test_who_waits_hears_that_another_leads(world: BrokerWorld, counter: Counter) -> None:
    await world.start(*topic("counts", 1, (1, 2)))
    await turns()
    waiting = asyncio.create_task(refused(counter))
    await turns()
    await world.publish(led_by(1, 0, 2))
    assert await waiting == "NOT_LEADER_OR_FOLLOWER"
    assert await refused(counter) == "NOT_LEADER_OR_FOLLOWER"


async def test_a_new_epoch_of_its_own_loads_anew(world: BrokerWorld, counter: Counter) -> None:
    await world.start(*topic("counts", 1, (1,)))
    await turns()
    assert await counter.add(2) == 2
    await world.publish(led_by(1, 0, 1))
    await turns()
    assert await counter.add(2) == 4


async def test_a_topic_that_is_deleted_is_unknown(world: BrokerWorld, counter: Counter) -> None:
    await world.start(*topic("counts", 1, (1,)))
    await turns()
    assert await counter.add(2) == 2
    await world.publish(gone(1))
    assert await refused(counter) == "UNKNOWN_TOPIC_OR_PARTITION"
    await world.publish(*topic("counts", 2, (1,)))
    await turns()
    assert await counter.add(1) == 1


async def test_who_waits_while_the_broker_stops_is_answered(world: BrokerWorld, counter: Counter) -> None:
    await world.start(*topic("counts", 1, (1, 2)))
    await turns()
    waiting = asyncio.create_task(refused(counter))
    await turns()
    await world.replicas.close()
    assert await waiting == "NOT_LEADER_OR_FOLLOWER"
