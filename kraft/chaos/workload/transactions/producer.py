"""The transactional producer: transactions of a few batches in a few partitions, committed or aborted.

It crashes as every client does, it freezes in the middle of a transaction, longer than its time perhaps, and goes on
as a zombie. Two of one transactional id fence each other (`ZombieProducer` gives way when the faults are over, as a
process does that was replaced).
"""

from __future__ import annotations

import asyncio
import contextlib

from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload.base import Surroundings, Workload
from kraft.chaos.workload.client import Client, PartitionName
from kraft.chaos.workload.transactions.session import (
    COUNTERS,
    Batch,
    FencedError,
    MustAbortError,
    NoCoordinatorError,
    TransactionSession,
)
from kraft.chaos.world.host import Process

TIMEOUTS_MS = (1_500, 3_000, 4_000)
ROUNDS = (1, 1, 2, 3)
COMMITTED_SHARE = 0.75
THINKS_ODDS, THINKS_S = 0.1, (0.05, 0.8)
"""Of transactions: that they stay open for a while when all is written."""
DAWDLES_ODDS = 0.04
"""Of transactions: that they take longer than their time."""
FREEZING_SHARE = 0.5
FREEZE_AFTER_S, FREEZE_S = (2.0, 12.0), (0.3, 5.0)
REPLACED_AFTER_S = (0.1, 3.0)
"""How long nobody takes the place of a producer that was fenced."""

COMMITTED, ABORTED = "transaction committed", "transaction aborted"
DAWDLED, FROZE = "transaction over its time", "transactional producer froze"
EVENTS = COMMITTED, ABORTED, DAWDLED, FROZE, *COUNTERS


class TransactionalProducer(Workload):
    """One session after another: each life begins one, and so does each after it was fenced."""

    keeps_writing = True

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        around.verdicts.declare(EVENTS)
        self._session: TransactionSession | None = None
        self._sequence = 0
        self._calmed = asyncio.Event()
        """Of the present life: the faults are over."""

    # -- life

    def calm(self) -> None:
        super().calm()
        if self._host is not None and self._host.alive:
            self._calmed.set()

    def _begin_life(self) -> None:
        super()._begin_life()
        if self.spec.crashes and self.rng.random() < FREEZING_SHARE:
            self._freeze_later(self.lives)

    def _freeze_later(self, life: int) -> None:
        self.around.cluster.simulation.call_later(self.rng.uniform(*FREEZE_AFTER_S), self._freeze, life)

    def _freeze(self, life: int) -> None:
        """As SIGSTOP, in the middle of whatever it does."""
        if self.is_calm or self.stopping or life != self.lives or self._host is None or not self._host.alive:
            return
        self.around.verdicts.happened(FROZE, self.process_name)
        self._host.pause(self.rng.uniform(*FREEZE_S))
        self._freeze_later(life)

    async def run(self, process: Process, client: Client) -> None:
        self._calmed = asyncio.Event()
        await client.wait_for_topics()
        self._session = session = TransactionSession(self, process, client, self.rng.choice(TIMEOUTS_MS))
        try:
            while not self.is_over:
                try:
                    await session.init()
                    await self._produce(session)
                except FencedError:
                    await asyncio.sleep(self.rng.uniform(*REPLACED_AFTER_S))
        except NoCoordinatorError:
            session.abandon("no coordinator")

    @property
    def has_open_operations(self) -> bool:
        return self._session is not None and self._session.has_open_operations

    def unserved_since(self, since_s: float) -> list[PartitionName]:
        """Nothing is demanded where a partition is beyond repair: a transaction that wrote there does not end."""
        if any(map(self.is_beyond_repair, self.partitions())):
            return []
        return super().unserved_since(since_s)

    def abandon(self, why: str) -> None:
        if self._session is not None:
            self._session.abandon(why)

    # -- transactions

    async def _produce(self, session: TransactionSession) -> None:
        """One transaction after the other. Raises FencedError."""
        while not self.is_over:
            batches = await self._transaction(session)
            await asyncio.sleep(self.pause_s(batches))

    async def _transaction(self, session: TransactionSession) -> int:
        """One of them; returns how many batches it had."""
        session.begin()
        batches = 0
        try:
            for _ in range(self.rng.choice(ROUNDS)):
                names = self.partitions()
                chosen = self.rng.sample(names, self.rng.randint(1, min(3, len(names))))
                await session.send([self._batch(name) for name in chosen])
                batches += len(chosen)
            if self.rng.random() < THINKS_ODDS:
                await asyncio.sleep(self.rng.uniform(*THINKS_S))
            if self.spec.crashes and not self.is_calm and self.rng.random() < DAWDLES_ODDS:
                self.around.verdicts.happened(DAWDLED, self.process_name)
                await self._dawdle(session.timeout_s * self.rng.uniform(0.9, 2.0))
            if self.rng.random() < COMMITTED_SHARE:
                await session.commit()
                self.around.verdicts.happened(COMMITTED, self.process_name)
                return batches
        except MustAbortError:
            pass  # as if it had been its own decision
        await session.abort()
        self.around.verdicts.happened(ABORTED, self.process_name)
        return max(1, batches)

    async def _dawdle(self, duration_s: float) -> None:
        """Leaves the transaction open for so long, or until the faults are over: others wait for its writes then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(duration_s):
                await self._calmed.wait()

    def _batch(self, name: tuple[str, int]) -> Batch:
        values = self.draw_values(*name, self._sequence)
        self._sequence += len(values)
        return Batch(name, values)


class ZombieProducer(TransactionalProducer):
    """The other producer of an id, which nobody needs."""

    keeps_writing = False

    @property
    def is_over(self) -> bool:
        return self.is_calm or super().is_over
