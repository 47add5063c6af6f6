"""Readers of committed records: one that tails a topic, and the one of the final phase."""

from __future__ import annotations

import asyncio

from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload.base import Workload
from kraft.chaos.workload.client import Client, PartitionName
from kraft.chaos.workload.consumer import Consumer
from kraft.chaos.workload.reader import Position, Reader
from kraft.chaos.world.host import Process
from kraft.protocol.schemas.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

HANGING = "hanging-transaction"
HANGS_AFTER_S = 25.0
"""Longer than any transaction may take, the look for late ones, and the markers of an abort take together."""
FINAL = WorkloadSpec("reader-committed", stream=0)


class CommittedConsumer(Consumer):
    """Tails all partitions of its topic with isolation.level=read_committed."""

    def new_reader(self, client: Client) -> Reader:
        return Reader(self, client, committed=True)

    def unread_since(self, since_s: float) -> list[PartitionName]:
        """An open transaction holds it up for as long as it may be open; the final phase judges those that hang."""
        return []


class FinalCommittedReader(Workload):
    """Reads some topics from start to end once all clients are done. By then no transaction may be open."""

    may_crash = False

    async def run(self, process: Process, client: Client) -> None:
        await client.wait_for_topics()
        committed, plain = Reader(self, client, final=True, committed=True), Reader(self, client)
        await asyncio.gather(*(self._read(client, committed, plain, name) for name in self.partitions()))

    def abandon(self, why: str) -> None:
        """It does not crash."""

    async def _read(self, client: Client, committed: Reader, plain: Reader, name: PartitionName) -> None:
        position = Position(name, client.topic_ids[name[0]])
        start = await self._ask(client, plain, position, EARLIEST_TIMESTAMP)
        end = await self._ask(client, plain, position, LATEST_TIMESTAMP)
        if start is None or end is None:
            return
        committed.seek(position, start)
        moved_s = self.around.now_s
        while position.offset < end:
            if self.is_beyond_repair(name):
                return
            leader = client.leader(name)
            moved = -1 if leader is None else await committed.fetch(leader.broker, [position], 0)
            if moved > 0:
                moved_s = self.around.now_s
            elif moved == 0 and position.high_watermark < end:
                # An unclean election may have taken the records; other judges decide whether it was right.
                end = min(end, await self._ask(client, plain, position, LATEST_TIMESTAMP) or 0)
            if self.around.now_s - moved_s > HANGS_AFTER_S:
                self._hangs(position, end)
                return
            if moved <= 0:
                await client.back_off()
        start = await self._ask(client, plain, position, EARLIEST_TIMESTAMP)
        if start is not None:
            key = position.topic_id, name[1]
            self.around.transactions.history.log_starts[key] = start

    def _hangs(self, position: Position, end: int) -> None:
        name = f"{position.name[0]}-{position.name[1]}"
        text = f"{name}: nothing is stable from {position.last_stable_offset} on, of {end}, and all clients are gone"
        if self.around.transactions.may_hang((position.topic_id, position.name[1])):
            self.around.verdicts.excused(text)
        else:
            self.around.verdicts.violated(HANGING, text)

    async def _ask(self, client: Client, plain: Reader, position: Position, timestamp: int) -> int | None:
        """The partition's start or end, asked until the leader says; None where nobody can."""
        while not self.is_beyond_repair(position.name):
            leader = client.leader(position.name)
            if leader is not None:
                offset = await plain.offset_of(leader.broker, position, timestamp)
                if offset is not None:
                    return offset
                client.forget_leader(position.name, leader.broker)
            await client.back_off()
        return None
