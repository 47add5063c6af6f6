"""Sends what partition leaders propose for their ISRs to the controller, many partitions in one request.

One request is in flight at a time; what is proposed meanwhile goes with the next, and an expand is widened
when it is sent first: it names all followers that may join the ISR by then. A proposal whose
outcome is unknown is repeated after a back-off for as long as its partition still stands by it; the
controller's epochs make repeating safe. (KIP-497, AlterPartitionManager.)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from kraft.broker.membership.controller_client import ControllerClient
from kraft.broker.metrics import BrokerMetrics
from kraft.broker.vital_task import end_task, start_vital_task
from partitions.isr import (
    AlterPartitionFailed,
    AlterPartitionProposal,
    AlterPartitionResult,
    IsrChange,
    IsrCommitted,
)
from partitions.partition import Partition
from partitions.ports import Halt
from quorum.rpc.envelope import RpcError
from quorum.rpc.messages import (
    NO_ERROR,
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
)
from quorum.rpc.messages import AlterPartitionResult as WireResult

log = structlog.get_logger(__name__)

CALL_TIMEOUT_S = 2.0
BACKOFF_S = 0.05
PARTITIONS_PER_REQUEST_MAX = 500
"""Judged by the controller in one step, and then taken over by every broker in one."""

_NO_VERDICT: Final = "UNKNOWN_SERVER_ERROR"
"""What became of a proposal of which the answer says nothing, or whose request was refused: that says something of the
request, and a partition that waited for metadata because of it might wait for ever."""

_Proposed = tuple[Partition, AlterPartitionProposal]


class AlterPartitionManager:
    """The one task of a broker that talks to the controller about ISRs."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controller: ControllerClient,
        monotonic_ms: Callable[[], int],
        rng: random.Random,
        halt: Halt,
        metrics: BrokerMetrics,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._monotonic_ms = monotonic_ms
        self._rng = rng
        self._halt = halt
        self._metrics = metrics
        self._waiting: dict[Partition, AlterPartitionProposal] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = start_vital_task(self._run(), "alter-partition", self._halt)

    async def close(self) -> None:
        await end_task(self._task)

    def submit(self, partition: Partition, proposal: AlterPartitionProposal) -> None:
        """Queues a proposal; a younger one of the same partition takes the place of an older one."""
        self._waiting[partition] = proposal
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                if await self._send(self._take()):
                    await asyncio.sleep(BACKOFF_S * self._rng.uniform(0.8, 1.2))

    def _take(self) -> list[_Proposed]:
        """What still stands of what waits, up to one request's worth."""
        taken: list[_Proposed] = []
        for partition in list(self._waiting):
            if len(taken) == PARTITIONS_PER_REQUEST_MAX:
                break
            proposal = self._waiting.pop(partition)
            if partition.pending_proposal == proposal:
                widened = partition.widen_proposal()
                assert widened is not None, "widening withdraws nothing"
                taken.append((partition, widened))
        return taken

    async def _send(self, proposed: list[_Proposed]) -> bool:
        """One request and its answers. Returns whether something has to be repeated."""
        if not proposed:
            return False
        results: dict[tuple[bytes, int], AlterPartitionResult] = {}
        missing = AlterPartitionFailed(_NO_VERDICT)
        try:
            # One attempt: a repetition that nobody knows of would make a later refusal look certain.
            response = await self._controller.call_once(self._request(proposed), timeout_s=CALL_TIMEOUT_S)
        except RpcError as error:
            log.info("the controller did not answer AlterPartition", reason=str(error))
        else:
            results = {
                (topic.topic_id, result.partition): _result(result)
                for topic in response.topics
                for result in topic.partitions
            }
        repeat = False
        for partition, proposal in proposed:
            key = (partition.topic_id, partition.topic_partition.partition)
            result = results.get(key, missing)
            self._count(proposal, result)
            retry = partition.on_alter_partition_result(proposal, result, self._monotonic_ms())
            if retry is not None and partition not in self._waiting:
                self._waiting[partition] = retry
                repeat = True
        return repeat

    def _count(self, proposal: AlterPartitionProposal, result: AlterPartitionResult) -> None:
        if isinstance(result, AlterPartitionFailed):
            self._metrics.failed_isr_updates += 1
        elif proposal.change is IsrChange.EXPAND:
            self._metrics.isr_expands += 1
        elif proposal.change is IsrChange.SHRINK:
            self._metrics.isr_shrinks += 1

    def _request(self, proposed: Iterable[_Proposed]) -> AlterPartitionRequest:
        topics: dict[bytes, list[AlterPartitionItem]] = {}
        for partition, proposal in proposed:
            topics.setdefault(partition.topic_id, []).append(
                AlterPartitionItem(
                    partition.topic_partition.partition,
                    proposal.leader_epoch,
                    tuple(BrokerState(broker, epoch) for broker, epoch in proposal.new_isr_with_epochs),
                    proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            self._broker_id,
            self._broker_epoch(),
            tuple(AlterPartitionTopic(topic_id, tuple(items)) for topic_id, items in topics.items()),
        )


def _result(result: WireResult) -> AlterPartitionResult:
    if result.error != NO_ERROR:
        return AlterPartitionFailed(result.error)
    return IsrCommitted(result.leader_epoch, result.partition_epoch, result.isr, result.elr)
