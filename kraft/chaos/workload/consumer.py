"""The consumer with assigned partitions: it tails them by long polls, one Fetch for each broker that it reads from.

Sometimes it begins anew, at the start or at its stored positions, as a new process, so that its reads form a
sequence of their own.
"""

from __future__ import annotations

import asyncio

from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload.base import Surroundings, Workload
from kraft.chaos.workload.client import Client, PartitionName
from kraft.chaos.workload.reader import SENT_NEARER, Position, Reader
from kraft.chaos.world.host import Process

LONG_POLL_MS = (100, 500)
IDLE_S = 0.05
FROM_START_SHARE = 0.5
STORE_EVERY_POLLS = 5


class Consumer(Workload):
    """Reads all partitions of its topics for as long as it may."""

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        if spec.rack:
            around.verdicts.declare((SENT_NEARER,))
        self._stored: dict[PartitionName, int] = {}
        self._polls = 0

    async def run(self, process: Process, client: Client) -> None:
        await client.wait_for_topics()
        from_start = not self._stored or self.rng.random() < FROM_START_SHARE
        positions = [
            Position(name, client.topic_ids[name[0]], 0 if from_start else self._stored.get(name, 0))
            for name in self.partitions()
        ]
        reader = self.new_reader(client)
        brokers = self.around.cluster.broker_ids
        await asyncio.gather(*(self._follow(broker, client, reader, positions) for broker in brokers))

    def new_reader(self, client: Client) -> Reader:
        """What a life of it reads with."""
        return Reader(self, client)

    @property
    def has_open_operations(self) -> bool:
        return True  # a poll, nearly always

    def unread_since(self, since_s: float) -> list[PartitionName]:
        return [] if self.is_over else self.silent_since(self.newest_read_s, since_s)

    def abandon(self, why: str) -> None:
        """Does nothing: an unfinished poll leaves no trace in the history."""

    async def _follow(self, broker: int, client: Client, reader: Reader, positions: list[Position]) -> None:
        """Fetches the partitions that this broker leads, and those that their leaders send here."""
        while not self.is_over:
            idle = [
                position for position in positions if not position.busy and reader.target(position) == broker
            ]
            if not idle:
                await asyncio.sleep(IDLE_S * self.rng.uniform(1, 3))
                continue
            moved = await reader.fetch(broker, idle, self.rng.randint(*LONG_POLL_MS))
            if moved < 0:
                await client.back_off()
                continue
            self._polls += 1
            if self._polls % STORE_EVERY_POLLS == 0:
                self._stored = {position.name: position.offset for position in positions}
            if moved:
                await asyncio.sleep(self.pause_s(moved) * len(positions) / len(idle))
