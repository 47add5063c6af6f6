"""A fetch session gives its reader what fetches that name every partition would give (KIP-227).

A reader of three partitions keeps its view by incremental answers alone, as clients do. Whatever happens to the
partitions and to the session, right after each answer the view is what a full fetch without a session says.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from partitions.errors import PartitionError
from partitions.log.errors import LogError
from partitions.topic_partition import TopicPartition
from tests.support.broker_world import BrokerWorld, batch, gone, led_by, topic, topic_id
from tests.support.examples import examples

NUMBERS = (0, 1, 2)
FOLLOWER = 2
VERSION = 16
SESSION_LOST = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
View = tuple[int, int, int]
"""Error code, high watermark and log start offset of a partition."""


class Reading:
    """A broker, and one reader with a session; the topic may be deleted and made again."""

    def __init__(self, world: BrokerWorld, *, is_follower: bool) -> None:
        self.world = world
        self.is_follower = is_follower
        self.topic_number = 1
        self.leader_epoch = dict.fromkeys(NUMBERS, 0)
        self.offsets: dict[int, int] = dict.fromkeys(NUMBERS, 0)
        self.view: dict[int, View] = {}
        self.told: dict[int, tuple[bytes, FetchPartition]] = {}
        self.session_id, self.epoch = 0, 0

    def partition(self, number: int) -> Any:
        return self.world.replicas.partition(TopicPartition("t", number))

    # -- what happens

    async def append(self, number: int) -> None:
        try:
            self.partition(number).append_records(
                batch(b"v"), acks=1, now_ms=self.world.replicas.monotonic_ms()
            )
        except (PartitionError, LogError):
            return

    async def replicate(self, number: int) -> None:
        """The other follower has everything: the high watermark moves."""
        asked = FetchPartition(number, self.leader_epoch[number], 0, -1, 0, 1 << 20)
        try:
            asked.fetch_offset = self.partition(number).log_end_offset
        except (PartitionError, LogError):
            return
        for replica_id in (3,) if self.is_follower else (FOLLOWER, 3):
            body = self.request([asked], replica_id=replica_id, replica_epoch=replica_id, session_epoch=-1)
            self.world.handle(body, VERSION)

    async def delete_records(self, number: int) -> None:
        try:
            self.partition(number).delete_records(None)
        except (PartitionError, LogError):
            return

    async def elect(self, number: int) -> None:
        if self.topic_number > 0:
            self.leader_epoch[number] += 1
            await self.world.publish(led_by(self.topic_number, number, 1))

    async def delete_topic(self, number: int) -> None:
        if self.topic_number > 0:
            await self.world.publish(gone(self.topic_number))
            self.topic_number = -self.topic_number

    async def make_topic(self, number: int) -> None:
        if self.topic_number < 0:
            self.topic_number = 1 - self.topic_number
            self.leader_epoch = dict.fromkeys(NUMBERS, 0)
            await self.world.publish(*topic("t", self.topic_number, *[(1, FOLLOWER, 3)] * len(NUMBERS)))

    async def lose_the_session(self, number: int) -> None:
        self.world.replicas.fetch_purgatory.sessions.cache.close(self.session_id)

    # -- what the reader does

    async def leave(self, number: int) -> None:
        self.offsets.pop(number, None)

    async def come_back(self, number: int) -> None:
        self.offsets.setdefault(number, 0)

    async def go_back(self, number: int) -> None:
        if number in self.offsets:
            self.offsets[number] = 0

    async def fetch(self, number: int) -> None:
        self.poll(1 << 20)

    async def fetch_little(self, number: int) -> None:
        self.poll(1)

    async def fetch_and_check(self, number: int) -> None:
        """Reads until there is nothing to read, then compares what is known."""
        for _ in range(30):
            if not self.poll(1 << 20):
                break
        named = list(self.wanted().values())
        full = self.world.handle(self.request([entry for _, entry in named], session_epoch=-1), VERSION)
        for data in answers(full):
            assert size(data) == 0, "the session had read everything"
            assert self.view[data.partition_index] == view(data)

    def wanted(self) -> dict[int, tuple[bytes, FetchPartition]]:
        return {
            number: (
                topic_id(abs(self.topic_number)),
                FetchPartition(
                    number, self.leader_epoch[number], offset, -1, 0 if self.is_follower else -1, 1 << 20
                ),
            )
            for number, offset in self.offsets.items()
        }

    def request(self, named: list[FetchPartition], **fields: Any) -> FetchRequest:
        body = FetchRequest(
            replica_id=FOLLOWER if self.is_follower else -1,
            replica_epoch=FOLLOWER if self.is_follower else -1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchTopic("", topic_id(abs(self.topic_number)), named)] if named else [],
        )
        for name, value in fields.items():
            setattr(body, name, value)
        return body

    def poll(self, max_bytes: int) -> bool:
        """One request of the session. Whether it brought records."""
        wanted = self.wanted()
        if self.epoch == 0:
            self.told = {}
        named = [asked for number, (_, asked) in wanted.items() if self.told.get(number) != wanted[number]]
        forgotten = [
            ForgottenTopic("", old_id, [number])
            for number, (old_id, _) in self.told.items()
            if number not in wanted or wanted[number][0] != old_id
        ]
        if not wanted:
            return False
        body = self.request(
            named, max_bytes=max_bytes, session_id=self.session_id, session_epoch=self.epoch,
            forgotten_topics_data=forgotten,
        )  # fmt: skip
        response = self.world.handle(body, VERSION)
        if response.error_code:
            assert response.error_code in SESSION_LOST
            self.epoch = 0
            return True
        self.session_id = response.session_id
        self.epoch += 1
        self.told = wanted
        return self.take(response)

    def take(self, response: FetchResponse) -> bool:
        has_records = False
        for data in answers(response):
            number = data.partition_index
            assert number in self.offsets, "what was forgotten is told"
            self.view[number] = view(data)
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.offsets[number] = self.partition(number).log_start_offset
                has_records = True
            elif size(data):
                self.offsets[number] += records(data)
                has_records = True
        return has_records


def answers(response: FetchResponse) -> list[PartitionData]:
    return [data for topic_ in response.responses for data in topic_.partitions]


def view(data: PartitionData) -> View:
    return data.error_code, data.high_watermark, data.log_start_offset


def size(data: PartitionData) -> int:
    parts: Any = data.records
    return sum(part.length for part in parts) if not isinstance(parts, bytes) else len(parts)


def records(data: PartitionData) -> int:
    """How many; every batch has one."""
    return size(data) // len(batch(b"v"))


OFTEN = ("append", "append", "replicate", "replicate", "fetch", "fetch_little", "fetch_and_check") * 2
SELDOM = (
    "delete_records", "delete_records", "elect", "leave", "come_back", "come_back", "go_back",
    "delete_topic", "make_topic", "make_topic", "lose_the_session",
)  # fmt: skip
STEPS = st.tuples(st.sampled_from((*OFTEN, *SELDOM)), st.sampled_from(NUMBERS))


async def play(is_follower: bool, steps: list[tuple[str, int]]) -> None:
    world = BrokerWorld()
    await world.start(*topic("t", 1, *[(1, FOLLOWER, 3)] * len(NUMBERS)))
    try:
        reading = Reading(world, is_follower=is_follower)
        for step, number in [*steps, ("fetch_and_check", 0)]:
            await getattr(reading, step)(number)
    finally:
        await world.close()
    assert world.halts == []


@settings(max_examples=examples(150), deadline=None)
@given(st.booleans(), st.lists(STEPS, min_size=20, max_size=60))
def test_a_session_tells_what_full_fetches_would(is_follower: bool, steps: list[tuple[str, int]]) -> None:
    asyncio.run(play(is_follower, steps))
