"""A client whose permissions change: it asks for everything all the time, also while it is refused.

What it may do is judged inside the brokers (`kraft.chaos.oracles.secured`). Here, a refused send must not be read
later, as the history has it, and nobody gets in with a wrong password, or without saying who he is. Where sessions end
a guest renews most of them; some it forgets, and some it would rather go on with as somebody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kraft.chaos import security
from kraft.chaos.history import Operation, OperationStatus
from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload.base import Surroundings, Workload
from kraft.chaos.workload.batches import encode_values
from kraft.chaos.workload.client import METADATA_VERSION, CallFailedError, Client, PartitionName
from kraft.chaos.workload.produce import PRODUCE_VERSION, produce_request
from kraft.chaos.workload.read_session import by_topic
from kraft.chaos.workload.reader import (
    FETCH_MAX_BYTES,
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    PARTITION_MAX_BYTES,
)
from kraft.chaos.world.host import Process
from kraft.coordinator.groups.partitioning import group_partition
from kraft.protocol.api import APIS, ApiKey
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest
from kraft.protocol.messages import response_class
from kraft.protocol.produce import ProduceResponse
from kraft.protocol.schema import Message
from kraft.protocol.schemas.acls import AclCreation, CreateAclsRequest, DescribeAclsRequest
from kraft.protocol.schemas.consumer_groups import JOIN_GROUP_MEMBER_EPOCH, ConsumerGroupHeartbeatRequest
from kraft.protocol.schemas.find_coordinator import CoordinatorType, FindCoordinatorRequest
from kraft.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kraft.protocol.schemas.offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kraft.security.exchange import SaslRefusal
from kraft.security.mechanisms import Credentials
from quorum.controller.topic_names import CONSUMER_OFFSETS
from quorum.metadata.acls import ALLOW, ANY, CLUSTER, CLUSTER_NAME, LITERAL

LONG_POLL_MS = 1_500
"""Permissions change while a Fetch waits."""
READ = 3
TURNED_AWAY = "client with a wrong password turned away"
CLIENT_THROTTLED = "client throttled by its quota"
STRANGER_TURNED_AWAY = "client that did not say who it is turned away"
SOMEBODY_ELSE_TURNED_AWAY = "client that would go on as somebody else turned away"
EVENTS = (TURNED_AWAY, STRANGER_TURNED_AWAY, SOMEBODY_ELSE_TURNED_AWAY, CLIENT_THROTTLED)
FORGOTTEN_ODDS, SOMEBODY_ELSE_ODDS = 0.15, 0.15
"""Of sessions that are to be renewed."""
FORGOTTEN_BY_GROUP_S = 3.0
"""By then its group has removed it: who may not ask its group may not leave it, and nothing is written at the end."""
GROUP_VERSION, REBALANCE_TIMEOUT_MS = 1, 10_000
VERSIONS: Mapping[ApiKey, int] = {
    ApiKey.FETCH: FETCH_VERSION,
    ApiKey.LIST_OFFSETS: LIST_OFFSETS_VERSION,
    ApiKey.METADATA: 12,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: GROUP_VERSION,
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
        self._group = f"{security.GUESTS_GROUP}-{spec.stream}"
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
            self._subscribe,
            self._subscribe,
        )
        while not self.is_over:
            await asyncio.sleep(self.pause_s(1))
            self.begun += 1
            await self._renew(client)
            name = self.rng.choice(self.partitions())
            chance = self.rng.random()
            if chance < 0.4:
                await self._send(process, client, name)
            elif chance < 0.43:
                await self._intrude(client)
            elif chance < 0.44:
                await self._trespass(client)
            else:
                await self._ask(client, name, self.rng.choice(questions)(name))
        await asyncio.sleep(FORGOTTEN_BY_GROUP_S)

    def abandon(self, why: str) -> None:
        """It does not crash."""

    @property
    def has_open_operations(self) -> bool:
        return self._open is not None

    async def _ask(self, client: Client, name: PartitionName, question: Message) -> None:
        key = question.API_KEY
        version = VERSIONS.get(key, APIS[key].versions[-1])
        if key is ApiKey.CONSUMER_GROUP_HEARTBEAT:
            name = self._place_of_group() or name
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

    async def _trespass(self, client: Client) -> None:
        """Asks without saying who it is."""
        broker = client.any_broker()
        try:
            is_answered = await client.answers_stranger(
                broker, MetadataRequest(topics=None, allow_auto_topic_creation=False), METADATA_VERSION
            )
        except OSError:
            return  # no connection, so nothing to judge
        if is_answered:
            self.around.verdicts.violated(
                "authentication", f"node {broker} answered somebody who did not say who he is"
            )
        else:
            self.around.verdicts.happened(STRANGER_TURNED_AWAY)

    async def _renew(self, client: Client) -> None:
        """Its sessions that soon end, or have ended."""
        for connection in client.due_for_renewal():
            chance = self.rng.random()
            if chance < FORGOTTEN_ODDS:
                connection.renew_at_s = None
                continue
            is_other = chance < FORGOTTEN_ODDS + SOMEBODY_ELSE_ODDS
            [other] = [user for user in security.GUESTS if user != self.spec.user]
            try:
                await client.renew(connection, security.guest(other if is_other else self.spec.user))
            except ConnectionError as error:
                if is_other and isinstance(error.__cause__, SaslRefusal):
                    self.around.verdicts.happened(SOMEBODY_ELSE_TURNED_AWAY, other)
            else:
                if is_other:
                    self.around.verdicts.violated(
                        "principal-changed",
                        f"node {connection.broker} let {other} go on with a connection of {self.spec.user}",
                    )

    def _place_of_group(self) -> PartitionName | None:
        """The partition that keeps its group; None while there is none."""
        image = self.around.cluster.image()
        topic = None if image is None else image.topic(CONSUMER_OFFSETS)
        if topic is None:
            return None
        return CONSUMER_OFFSETS, group_partition(self._group, len(topic.partitions))

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

    def _subscribe(self, name: PartitionName) -> Message:
        """Joins its group, or says all anew, and is told the topics that its expression comes to."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.name,
            member_epoch=JOIN_GROUP_MEMBER_EPOCH,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_regex=security.EXPRESSION,
            topic_partitions=[],
        )

    def _grant_itself(self, name: PartitionName) -> Message:
        """What only somebody with ALTER on the cluster may."""
        principal = f"User:{self.spec.user}"
        return CreateAclsRequest(
            [AclCreation(CLUSTER, CLUSTER_NAME, LITERAL, principal, "127.0.0.1", READ, ALLOW)]
        )
