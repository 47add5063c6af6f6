"""A client whose permissions change: it asks for everything all the time, also while it is refused.

What it may do is judged inside the brokers (`kraft.chaos.oracles.secured.permissions`). Here, a refused send must not
be read later, as the history has it, and nobody gets in with a wrong password.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kraft.chaos import security
from kraft.chaos.history import Operation, OperationStatus
from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload.base import Surroundings, Workload
from kraft.chaos.workload.batches import encode_values
from kraft.chaos.workload.client import CallFailedError, Client, PartitionName
from kraft.chaos.workload.produce import PRODUCE_VERSION, produce_request
from kraft.chaos.workload.read_session import by_topic
from kraft.chaos.workload.reader import (
    FETCH_MAX_BYTES,
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    PARTITION_MAX_BYTES,
)
from kraft.chaos.world.host import Process
from kraft.protocol.api import APIS, ApiKey
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest
from kraft.protocol.messages import response_class
from kraft.protocol.produce import ProduceResponse
from kraft.protocol.schema import Message
from kraft.protocol.schemas.acls import AclCreation, CreateAclsRequest, DescribeAclsRequest
from kraft.protocol.schemas.find_coordinator import CoordinatorType, FindCoordinatorRequest
from kraft.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kraft.protocol.schemas.offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kraft.security.mechanisms import Credentials
from quorum.metadata.acls import ALLOW, ANY, CLUSTER, CLUSTER_NAME, LITERAL

LONG_POLL_MS = 1_500
"""Permissions change while a Fetch waits."""
READ = 3
TURNED_AWAY = "client with a wrong password turned away"
CLIENT_THROTTLED = "client throttled by its quota"
EVENTS = (TURNED_AWAY, CLIENT_THROTTLED)
VERSIONS: Mapping[ApiKey, int] = {
    ApiKey.FETCH: FETCH_VERSION,
    ApiKey.LIST_OFFSETS: LIST_OFFSETS_VERSION,
    ApiKey.METADATA: 12,
    ApiKey.FIND_COORDINATOR: 4,
}


class Guest(Workload):
    """One user, `spec.user`; it sends, reads and asks, one request after the other."""

    may_crash = False

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        around.verdicts.declare(EVENTS)
        self._sequence = 0
        self._ends: dict[PartitionName, int] = {}
        """Behind the newest record that it wrote: from there a Fetch waits."""
        self._open: Operation | None = None

    @property
    def credentials(self) -> Credentials | None:
        return security.guest(self.spec.user)

    async def run(self, process: Process, client: Client) -> None:
        # It finds its way by itself: what it is told of the topic depends on its permissions.
        client.topics.clear()
        questions: tuple[Callable[[PartitionName], Message], ...] = (
            self._fetch,
            self._fetch,
            self._list_offsets,
            lambda name: MetadataRequest([MetadataRequestTopic(name=name[0])], False),
            lambda name: FindCoordinatorRequest("", CoordinatorType.GROUP, [security.GUESTS_GROUP]),
            lambda name: DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY),
            self._grant_itself,
        )
        while not self.is_over:
            await asyncio.sleep(self.pause_s(1))
            self.begun += 1
            name = self.rng.choice(self.partitions())
            chance = self.rng.random()
            if chance < 0.4:
                await self._send(process, client, name)
            elif chance < 0.43:
                await self._intrude(client)
            else:
                await self._ask(client, name, self.rng.choice(questions)(name))

    def abandon(self, why: str) -> None:
        """It does not crash."""

    @property
    def has_open_operations(self) -> bool:
        return self._open is not None

    async def _ask(self, client: Client, name: PartitionName, question: Message) -> None:
        key = question.API_KEY
        version = VERSIONS.get(key, APIS[key].versions[-1])
        try:
            await client.call(self._target(client, name), question, version, response_class(key))
        except CallFailedError:
            return  # its judge sits in the broker
        self.acknowledged += 1

    async def _send(self, process: Process, client: Client, name: PartitionName) -> None:
        image = self.around.cluster.image()
        topic = None if image is None else image.topic(name[0])
        if topic is None:
            return
        values = self.draw_values(*name, self._sequence)
        self._sequence += len(values)
        operation = self._open = self.invoke_send((topic.topic_id, name[1]), name[0], values)
        request = produce_request({name: encode_values(values, process.now_ms())}, -1)
        try:
            answer = await client.call(self._target(client, name), request, PRODUCE_VERSION, ProduceResponse)
        except CallFailedError as error:
            status = OperationStatus.FAIL if error.was_not_sent else OperationStatus.INFO
            self.complete(operation, status, error=str(error))
        else:
            if answer.throttle_time_ms:
                self.around.verdicts.happened(CLIENT_THROTTLED, self.spec.user)
            [result] = answer.responses[0].partition_responses
            code = ErrorCode.of(result.error_code)
            if code is ErrorCode.NONE:
                self._ends[name] = result.base_offset + len(values)
                self.complete(operation, OperationStatus.OK, base_offset=result.base_offset)
            elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self.complete(operation, OperationStatus.FAIL, error=code.name)
            else:
                self.complete(operation, OperationStatus.INFO, error=code.name)
        self._open = None

    async def _intrude(self, client: Client) -> None:
        """Tries the name of a user, or of the administrator, with a wrong password."""
        right = self.rng.choice((security.guest(self.spec.user), security.ADMINISTRATOR))
        wrong = Credentials(right.mechanism, right.username, "wrong")
        broker = client.any_broker()
        try:
            is_in = await client.lets_in(broker, wrong)
        except OSError:
            return  # no connection, so nothing to judge
        if is_in:
            self.around.verdicts.violated(
                "authentication",
                f"node {broker} let {right.username} in by {right.mechanism} without the password",
            )
        else:
            self.around.verdicts.happened(TURNED_AWAY, right.username)

    def _target(self, client: Client, name: PartitionName) -> int:
        leader = self.around.cluster.leader_of(*name)
        return leader if leader >= 0 else client.any_broker()

    # -- questions

    def _fetch(self, name: PartitionName) -> Message:
        image = self.around.cluster.image()
        topic = None if image is None else image.topic(name[0])
        wanted = FetchPartition(
            partition=name[1],
            fetch_offset=self.rng.choice((0, self._ends.get(name, 0))),
            partition_max_bytes=PARTITION_MAX_BYTES,
        )
        return FetchRequest(
            max_wait_ms=LONG_POLL_MS,
            min_bytes=1,
            max_bytes=FETCH_MAX_BYTES,
            topics=[] if topic is None else by_topic([(topic.topic_id, wanted)]),
        )

    def _list_offsets(self, name: PartitionName) -> Message:
        wanted = ListOffsetsPartition(partition_index=name[1], timestamp=LATEST_TIMESTAMP)
        return ListOffsetsRequest(topics=[ListOffsetsTopic(name=name[0], partitions=[wanted])])

    def _grant_itself(self, name: PartitionName) -> Message:
        """What only somebody with ALTER on the cluster may."""
        principal = f"User:{self.spec.user}"
        return CreateAclsRequest(
            [AclCreation(CLUSTER, CLUSTER_NAME, LITERAL, principal, "127.0.0.1", READ, ALLOW)]
        )
