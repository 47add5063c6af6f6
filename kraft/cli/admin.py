"""A small admin client over Kafka's protocol, for commands that want more than a client library tells."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar, cast

from kraft.cli.errors import EXIT_USAGE, UserError
from kraft.network.client import BrokerConnection, ConnectionLostError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kraft.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kraft.protocol.schemas.offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

CLIENT_ID = "kraft-cli"
CONNECT_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 35.0
METADATA_VERSION = 12
CONFIGS_VERSION = 4
LIST_OFFSETS_VERSION = 7

T = TypeVar("T")


def run_admin(bootstrap_servers: str, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Connects, runs `work`, closes. Raises UserError when no broker answers."""

    async def main() -> T:
        admin = await AdminClient.connect(bootstrap_servers)
        try:
            return await work(admin)
        except ConnectionLostError as error:
            raise UserError(f"the broker did not answer: {error}") from error
        finally:
            admin.close()

    return asyncio.run(main())


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """`HOST:PORT[,…]`. Raises UserError for anything else."""
    addresses = []
    for part in text.split(","):
        host, separator, port = part.strip().rpartition(":")
        if not separator or not host or not port.isdecimal():
            raise UserError(f"--bootstrap-server takes HOST:PORT[,…], not {text!r}", EXIT_USAGE)
        addresses.append((host, int(port)))
    return addresses


class AdminClient:
    """A connection to one broker of the cluster, and to others when they have to be asked themselves."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._others: dict[int, BrokerConnection | None] = {}
        self._addresses: dict[int, tuple[str, int]] = {}

    @classmethod
    async def connect(cls, bootstrap_servers: str) -> AdminClient:
        """Connects to the first bootstrap server that answers. Raises UserError if none does."""
        reasons = []
        for host, port in parse_bootstrap(bootstrap_servers):
            try:
                connection = await BrokerConnection.connect(
                    host, port, client_id=CLIENT_ID, timeout_s=CONNECT_TIMEOUT_S
                )
                return cls(connection)
            except ConnectionLostError as error:
                reasons.append(str(error))
        raise UserError(f"no broker answers: {'; '.join(reasons)}")

    def close(self) -> None:
        for connection in (self._connection, *self._others.values()):
            if connection is not None:
                connection.close()

    async def request(self, message: Message, *, version: int) -> Message:
        """Asks the broker that is connected."""
        return await self._connection.request(message, version, timeout_s=REQUEST_TIMEOUT_S)

    async def metadata(self, topics: Iterable[str] | None) -> MetadataResponse:
        """The brokers, and these topics or all; creates none."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = cast("MetadataResponse", await self.request(request, version=METADATA_VERSION))
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    async def describe_configs(
        self, resource_type: ConfigResourceType, name: str
    ) -> list[DescribeConfigsResourceResult]:
        """All configs of one resource. Raises UserError."""
        resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name)
        answer = cast(
            "DescribeConfigsResponse",
            await self.request(DescribeConfigsRequest(resources=[resource]), version=CONFIGS_VERSION),
        )
        result = answer.results[0]
        if result.error_code:
            raise UserError(f"{name}: {result.error_message or ErrorCode(result.error_code).message}")
        return result.configs

    async def end_offsets(
        self, broker_id: int, topic: str, partitions: list[int], replica_id: int
    ) -> dict[int, int]:
        """Latest offsets as one broker knows them; nothing for a broker that does not answer.

        As a consumer these are high watermarks, as a debugging client the broker's own log ends.
        """
        connection = await self._connection_to(broker_id)
        if connection is None:
            return {}
        wanted = [
            ListOffsetsPartition(partition_index=number, timestamp=LATEST_TIMESTAMP) for number in partitions
        ]
        request = ListOffsetsRequest(
            replica_id=replica_id, topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
        )
        try:
            answer: Any = await connection.request(request, LIST_OFFSETS_VERSION, timeout_s=REQUEST_TIMEOUT_S)
        except ConnectionLostError:
            return {}
        return {
            partition.partition_index: partition.offset
            for topic_answer in cast("ListOffsetsResponse", answer).topics
            for partition in topic_answer.partitions
            if not partition.error_code
        }

    async def _connection_to(self, broker_id: int) -> BrokerConnection | None:
        if broker_id not in self._others:
            address = self._addresses.get(broker_id)
            self._others[broker_id] = None
            if address is not None:
                try:
                    self._others[broker_id] = await BrokerConnection.connect(
                        *address, client_id=CLIENT_ID, timeout_s=CONNECT_TIMEOUT_S
                    )
                except ConnectionLostError:
                    return None
        return self._others[broker_id]
