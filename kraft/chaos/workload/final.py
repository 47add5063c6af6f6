"""The final phase: a fresh client reads every partition from its start to its high watermark."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload.admin import Admin
from kraft.chaos.workload.base import Surroundings, Workload
from kraft.chaos.workload.client import Client
from kraft.chaos.workload.reader import Position, Reader
from kraft.chaos.world.host import Process
from kraft.protocol.schemas.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

BEYOND_REPAIR = "partition beyond repair"
READER = WorkloadSpec("reader-final", stream=0)
ADMIN = WorkloadSpec("admin", stream=0)
UNTHROTTLER = WorkloadSpec("admin", stream=1)


class _BeyondRepairError(Exception):
    """The partition has no leader, and no replica can lead it."""


class TopicCreation(Workload):
    """Sets the levels of features, creates the topics of a scenario, and sets its run-time configs."""

    may_crash = False

    def __init__(
        self, around: Surroundings, spec: WorkloadSpec, features: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(around, spec)
        self._features = features or {}

    async def run(self, process: Process, client: Client) -> None:
        admin = Admin(self, client)
        for feature, level in self._features.items():
            await admin.set_feature(feature, level)
        for topic in self.around.topics.values():
            await admin.create(topic)
        if self.around.run_time_configs:
            await admin.configure_brokers(self.around.run_time_configs)

    def abandon(self, why: str) -> None:
        """It does not crash."""


class Unthrottling(Workload):
    """Takes the run-time configs away again, as an operator does when they have served their purpose."""

    may_crash = False

    async def run(self, process: Process, client: Client) -> None:
        await Admin(self, client).configure_brokers(dict.fromkeys(self.around.run_time_configs))

    def abandon(self, why: str) -> None:
        """It does not crash."""


class FinalReader(Workload):
    """Reads all topics of a scenario once, and enters their log starts of then."""

    may_crash = False

    async def run(self, process: Process, client: Client) -> None:
        await client.wait_for_topics()
        reader = Reader(self, client, final=True)
        await asyncio.gather(*(self._read(client, reader, name) for name in self.partitions()))

    def abandon(self, why: str) -> None:
        """It does not crash."""

    async def _read(self, client: Client, reader: Reader, name: tuple[str, int]) -> None:
        """Reads one partition. Records deleted meanwhile are skipped, and then count as deleted."""
        position = Position(name, client.topic_ids[name[0]])
        try:
            start = await self._ask(client, reader, position, EARLIEST_TIMESTAMP)
            end = await self._ask(client, reader, position, LATEST_TIMESTAMP)
            reader.seek(position, start)
            while position.offset < end or not position.is_at_end:
                leader = client.leader(position.name)
                if leader is None or await reader.fetch(leader.broker, [position], 0) < 0:
                    await self._wait(client, position)
                elif position.is_at_end and position.offset < end:
                    # An unclean election may have taken the records; other judges decide whether it was right.
                    end = min(end, await self._ask(client, reader, position, LATEST_TIMESTAMP))
            start = await self._ask(client, reader, position, EARLIEST_TIMESTAMP)
            self.around.history.log_starts[position.topic_id, name[1]] = start
        except _BeyondRepairError:
            text = f"{name[0]}-{name[1]}: every copy that may lead is damaged and offline"
            self.around.verdicts.happened(BEYOND_REPAIR, text)
            self.around.verdicts.excused(text)
            self.around.history.unavailable.add((position.topic_id, name[1]))

    async def _wait(self, client: Client, position: Position) -> None:
        """Waits before another attempt. Raises _BeyondRepairError if that is useless."""
        if self.is_beyond_repair(position.name):
            raise _BeyondRepairError
        await client.back_off()

    async def _ask(self, client: Client, reader: Reader, position: Position, timestamp: int) -> int:
        """The partition's start or end; asks until the leader says."""
        while True:
            leader = client.leader(position.name)
            if leader is not None:
                offset = await reader.offset_of(leader.broker, position, timestamp)
                if offset is not None:
                    return offset
                client.forget_leader(position.name, leader.broker)
            await self._wait(client, position)
