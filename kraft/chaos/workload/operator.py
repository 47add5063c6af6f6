"""The operator of a cluster in use, who moves partitions to other brokers and leaderships back to the preferred
leaders.

Partitions are reassigned (KIP-455), now and then cancelled half-way, to as many replicas as they have, in a new
order, so that the preferred leader changes; also those of the topic that keeps the groups, whose coordinators then
move. Elections of preferred leaders follow (KIP-460). Both requests may be repeated. Oracles and liveness judge the
results: no replica is elected that may not be, a move loses nothing, and at the end every reassignment is over.
"""

from __future__ import annotations

import asyncio

from kraft.chaos.cluster import INTERNAL_REPLICAS_MAX
from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload.base import Surroundings, Workload
from kraft.chaos.workload.client import CallFailedError, Client, PartitionName
from kraft.chaos.world.host import Process
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.elections import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from kraft.protocol.schemas.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from quorum.controller.topic_names import CONSUMER_OFFSETS

ELECT_LEADERS_VERSION, REASSIGN_VERSION = 2, 0
TIMEOUT_MS = 2_000
REASSIGN_ODDS, CANCEL_ODDS = 0.5, 0.2
PREFERRED_ELECTION, REASSIGNMENT, CANCELLATION = (
    "preferred election asked for",
    "reassignment asked for",
    "reassignment cancelled",
)
EXPECTED = {
    PREFERRED_ELECTION: frozenset(
        (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    ),
    REASSIGNMENT: frozenset((ErrorCode.NONE, ErrorCode.INVALID_REPLICA_ASSIGNMENT)),
    # Refused while only a replica that was being added has all committed records.
    CANCELLATION: frozenset(
        (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    ),
}
"""Answers that a correct operator may get, besides transient ones."""


class Operator(Workload):
    """Sends one request after another, each for one partition; a failed one is not repeated."""

    may_crash = False

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        around.verdicts.declare(EXPECTED)

    async def run(self, process: Process, client: Client) -> None:
        await client.wait_for_topics()
        while not self.is_over:
            await asyncio.sleep(self.pause_s(1))
            self.begun += 1
            name = self.rng.choice([*self.partitions(), *self._internal_partitions()])
            if self.rng.random() < REASSIGN_ODDS:
                await self._reassign(client, name)
            else:
                await self._elect(client, name)

    def abandon(self, why: str) -> None:
        """It does not crash."""

    async def _elect(self, client: Client, name: PartitionName) -> None:
        request = ElectLeadersRequest(
            election_type=ElectionType.PREFERRED.value,
            topic_partitions=[TopicPartitions(topic=name[0], partitions=[name[1]])],
            timeout_ms=TIMEOUT_MS,
        )
        broker = client.any_broker()
        try:
            answer = await client.call(broker, request, ELECT_LEADERS_VERSION, ElectLeadersResponse)
        except CallFailedError:
            return
        found = [result for topic in answer.replica_election_results for result in topic.partition_result]
        self._take(client, broker, PREFERRED_ELECTION, answer.error_code or found[0].error_code)

    async def _reassign(self, client: Client, name: PartitionName) -> None:
        target = None if self.rng.random() < CANCEL_ODDS else self._drawn_replicas(name)
        wanted = ReassignablePartition(partition_index=name[1], replicas=target)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=name[0], partitions=[wanted])]
        )
        broker = client.any_broker()
        try:
            answer = await client.call(broker, request, REASSIGN_VERSION, AlterPartitionReassignmentsResponse)
        except CallFailedError:
            return
        code = answer.error_code or answer.responses[0].partitions[0].error_code
        self._take(client, broker, CANCELLATION if target is None else REASSIGNMENT, code)

    def _internal_partitions(self) -> list[PartitionName]:
        """Those of the topic that keeps the groups, once there is one: with them coordinators move, and go on."""
        image = self.around.cluster.image()
        topic = None if image is None else image.topic(CONSUMER_OFFSETS)
        return (
            [] if topic is None else [(CONSUMER_OFFSETS, number) for number in range(len(topic.partitions))]
        )

    def _drawn_replicas(self, name: PartitionName) -> list[int]:
        """As many brokers as the topic has replicas, in any order."""
        topic = self.around.topics.get(name[0])
        brokers = list(self.around.cluster.broker_ids)
        wanted = INTERNAL_REPLICAS_MAX if topic is None else topic.replication_factor
        factor = min(wanted, len(brokers))
        return self.rng.sample(brokers, factor)

    def _take(self, client: Client, broker: int, what: str, error_code: int) -> None:
        code = ErrorCode.of(error_code)
        if code is ErrorCode.NONE:
            self.acknowledged += 1
            self.around.verdicts.happened(what, f"by node {broker}")
        elif code not in EXPECTED[what] and not code.retriable:
            client.surprise(broker, f"{what}, and the answer was {code.name}")
