"""The topic of a group that comes, grows and goes, under one name, while members read it: nobody writes to it."""

from __future__ import annotations

import asyncio

from kraft.chaos.scenario import TopicSpec, WorkloadSpec
from kraft.chaos.workload.admin import Admin
from kraft.chaos.workload.base import Surroundings, Workload
from kraft.chaos.workload.client import Client
from kraft.chaos.workload.groups.member import topic_of
from kraft.chaos.world.host import Process

PARTITIONS, GROWTH = (1, 2), (1, 2)
GREW = "topic of a group grew"


class GroupTopic(Workload):
    """One topic after another under the group's name."""

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        around.verdicts.declare((GREW,))
        self.topics = []
        self._admin: Admin | None = None
        self._is_there = False
        """Whether it exists, or may exist."""

    async def run(self, process: Process, client: Client) -> None:
        self._admin = admin = Admin(self, client)
        name = topic_of(self.spec.group)
        while True:
            if self._is_there:
                await admin.delete(name)
                self._is_there = False
                await asyncio.sleep(self.pause_s(1))
            if self.is_over:
                return
            self._is_there = True
            brokers = len(self.around.cluster.broker_ids)
            partitions = self.rng.randint(*PARTITIONS)
            await admin.create(TopicSpec(name, partitions, min(brokers, self.rng.choice((1, 2, 3)))))
            await asyncio.sleep(self.pause_s(1))
            if self.rng.random() < 0.5:
                await admin.grow(name, partitions + self.rng.randint(*GROWTH))
                self.around.verdicts.happened(GREW, name)
                await asyncio.sleep(self.pause_s(1))

    @property
    def has_open_operations(self) -> bool:
        return self._admin is not None and self._admin.open is not None

    @property
    def must_come_back(self) -> bool:
        """True while the topic exists, or may exist."""
        return self._is_there

    def abandon(self, why: str) -> None:
        if self._admin is not None:
            self._admin.abandon(why)
