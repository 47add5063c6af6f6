"""A small admin client over Kafka's protocol, for commands that need more than a client library tells."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from kraft.cli.shared.bootstrap import HostPort, parse_bootstrap
from kraft.cli.shared.command_config import config_of
from kraft.network.authentication import AuthenticatedConnection, AuthenticationFailedError
from kraft.network.client import BrokerConnection, ConnectionLostError
from kraft.protocol.errors import ErrorCode, ProtocolError
from kraft.protocol.schema import Message
from kraft.protocol.schemas.cluster import (
    Cursor,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
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
from kraft.security.mechanisms import Credentials
from kraft.security.token_login import TokenLogin, TokenSupply
from kraft.spark.errors import OptionError
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError
from partitions.topic_partition import TopicPartition

CLIENT_ID = "kraft-cli"
CONNECT_TIMEOUT_S = 3.0
NONCE_BYTES = 24
CHANGE_TIMEOUT_MS = 30_000
"""How long the cluster may take over a request, as the request says."""
REQUEST_TIMEOUT_S = 35.0
LOOK_TIMEOUT_S = 3.0
"""For what a broker knows by itself, and answers at once."""
DISK_LOOK_TIMEOUT_S = 10.0
"""For what a broker has to look up on its disks."""
METADATA_VERSION = 12
CONFIGS_VERSION = 4
DESCRIBE_CLUSTER_VERSION = 2
LIST_OFFSETS_VERSION = 7

T = TypeVar("T")


def run_admin(
    bootstrap_servers: str, work: Callable[[AdminClient], Awaitable[T]], *, unanswered: int = EXIT_FAILED
) -> T:
    """Connects, runs `work`, closes. Raises UserError when no broker answers, with the exit code `unanswered`:
    EXIT_UNDECIDED for what a command was to show; a change has not been made then. Of one whose connection is
    lost later it cannot be told."""

    async def main() -> T:
        admin = await AdminClient.connect(bootstrap_servers, unanswered=unanswered)
        try:
            return await work(admin)
        except ConnectionLostError as error:
            raise UserError(
                f"it cannot be told what has become of it: the broker did not answer: {error}", EXIT_UNDECIDED
            ) from error
        finally:
            admin.close()

    return asyncio.run(main())


def raise_for(code: int, message: str | None, failed: str, *, change: str | None = None) -> None:
    """Raises UserError if the code is an error's. `failed` says what has failed; `change` what may or may not
    be so after a request for a change that has timed out."""
    if not code:
        return
    error = ErrorCode(code)
    is_undecided = error is ErrorCode.REQUEST_TIMED_OUT
    if is_undecided and change is not None:
        failed = f"it cannot be told whether {change}"
    raise UserError(
        f"{failed}: {message or error.message} ({error.name})",
        EXIT_UNDECIDED if is_undecided else EXIT_FAILED,
    )


def _resource_text(resource_type: ConfigResourceType, name: str) -> str:
    return f"{resource_type.name.lower()} {name}" if name else f"all {resource_type.name.lower()}s"


def _introduction(credentials: Credentials | TokenLogin | None) -> Credentials | TokenSupply | None:
    if not isinstance(credentials, TokenLogin):
        return credentials
    from kraft.runtime.tokens import Tokens  # and aiohttp, which other commands need not load

    return Tokens(credentials)


class Peers:
    """How the cluster's brokers are connected to. Its tokens are fetched while the loop that it is made on runs."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Raises UserError for files that cannot be used."""
        security = config_of(bootstrap_servers).security
        self._credentials = _introduction(security.credentials)
        try:
            self._tls: ssl.SSLContext | None = security.context()
        except OptionError as error:
            raise UserError(str(error), EXIT_USAGE) from error

    async def connect(self, host: str, port: int) -> AuthenticatedConnection:
        """A connection that says who the command is, if it is somebody, as long as the command runs.

        Raises ConnectionLostError."""
        connection = await BrokerConnection.connect(
            host, port, client_id=CLIENT_ID, timeout_s=CONNECT_TIMEOUT_S, ssl_context=self._tls
        )
        authenticated = AuthenticatedConnection(
            connection,
            self._credentials,
            lambda: secrets.token_urlsafe(NONCE_BYTES),
            timeout_s=CONNECT_TIMEOUT_S,
        )
        await authenticated.renew()
        return authenticated


async def _answering(peers: Peers, host: str, port: int) -> AuthenticatedConnection:
    """A connection that has answered once. Raises ConnectionLostError."""
    connection = await peers.connect(host, port)
    try:
        await connection.request(MetadataRequest(topics=[]), METADATA_VERSION, timeout_s=CONNECT_TIMEOUT_S)
    except BaseException:
        connection.close()
        raise
    return connection


async def _first_answering(
    peers: Peers, servers: list[HostPort]
) -> tuple[AuthenticatedConnection, list[HostPort]]:
    """A connection to the first that answers, and the servers in the order in which to go on after it. Raises
    ConnectionLostError if none does."""
    reasons = []
    for number, (host, port) in enumerate(servers, start=1):
        try:
            return await _answering(peers, host, port), [*servers[number:], *servers[:number]]
        except AuthenticationFailedError:
            raise  # waiting, or another broker, does not change a password
        except ConnectionLostError as error:
            reasons.append(str(error))
    raise ConnectionLostError(f"no broker answers: {'; '.join(reasons)}")


async def _ask(
    connection: AuthenticatedConnection, message: Message, version: int, timeout_s: float
) -> Message:
    """One request. Raises ConnectionLostError; UserError, wrong usage, for what cannot be put into one."""
    try:
        return await connection.request(message, version, timeout_s=timeout_s)
    except ProtocolError as error:  # the request's: an answer that cannot be read loses the connection
        raise UserError(f"Kafka's protocol cannot hold what is asked for: {error}", EXIT_USAGE) from error


class BrokerAwayError(UserError):
    """A broker that has to be asked itself, and cannot be: nothing has been asked of it."""


class AdminClient:
    """A connection to one broker of the cluster, and to others when they have to be asked themselves."""

    def __init__(
        self, connection: AuthenticatedConnection, servers: list[HostPort], peers: Peers | None = None
    ) -> None:
        """`servers` are those to turn to if the connection is lost, in their order."""
        self._connection = connection
        self._servers = servers
        self._peers = Peers("") if peers is None else peers
        self._others: dict[int, AuthenticatedConnection | None] = {}
        self._addresses: dict[int, tuple[str, int]] = {}

    @classmethod
    async def connect(cls, bootstrap_servers: str, *, unanswered: int = EXIT_FAILED) -> AdminClient:
        """Connects to the first bootstrap server that answers a request: one that is starting, or that stands
        still, accepts connections as well. Each has its time, once. Raises UserError if none answers."""
        try:
            peers = Peers(bootstrap_servers)
            return cls(*await _first_answering(peers, parse_bootstrap(bootstrap_servers)), peers)
        except AuthenticationFailedError as error:
            raise UserError(str(error)) from error
        except ConnectionLostError as error:
            raise UserError(str(error), unanswered) from error

    async def turn_to_next(self) -> None:
        """Leaves the broker that is connected for the next bootstrap server that answers, itself at the last.
        Raises ConnectionLostError if none does; it may be called again then."""
        self._connection.close()
        self._connection, self._servers = await _first_answering(self._peers, self._servers)

    def close(self) -> None:
        for connection in (self._connection, *self._others.values()):
            if connection is not None:
                connection.close()

    async def request(self, message: Message, *, version: int) -> Message:
        """Asks the broker that is connected."""
        return await _ask(self._connection, message, version, REQUEST_TIMEOUT_S)

    async def metadata(self, topics: Iterable[str] | None) -> MetadataResponse:
        """The brokers, and these topics or all; creates none."""
        names = None if topics is None else list(topics)
        answer = await self._metadata(names)
        if names:  # such an answer may name brokers that have just gone
            answer.brokers = (await self._metadata([])).brokers
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    async def _metadata(self, names: list[str] | None) -> MetadataResponse:
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return cast("MetadataResponse", await self.request(request, version=METADATA_VERSION))

    async def registered_brokers(self) -> set[int]:
        """The ids of all brokers, fenced ones too. Raises UserError."""
        request = DescribeClusterRequest(include_fenced_brokers=True)
        answer = cast(
            "DescribeClusterResponse", await self.request(request, version=DESCRIBE_CLUSTER_VERSION)
        )
        raise_for(answer.error_code, answer.error_message, "the brokers cannot be listed")
        return {broker.broker_id for broker in answer.brokers}

    async def request_of(
        self, broker_id: int, message: Message, *, version: int, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Message:
        """Asks one broker of the cluster, for what only it answers. Raises BrokerAwayError, ConnectionLostError,
        UserError."""
        if broker_id not in self._addresses:
            await self.metadata([])
        connection = await self._connection_to(broker_id)
        if connection is None:
            raise BrokerAwayError(
                f"broker {broker_id} is not there: it is not registered, fenced, or does not answer"
            )
        return await _ask(connection, message, version, timeout_s)

    async def describe_configs(
        self, resource_type: ConfigResourceType, name: str
    ) -> list[DescribeConfigsResourceResult]:
        """All configs of one resource; those of a broker are asked of it. Raises UserError."""
        resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name)
        request = DescribeConfigsRequest(resources=[resource])
        answer = cast(
            "DescribeConfigsResponse",
            await self.request_for(resource_type, name, request, version=CONFIGS_VERSION),
        )
        result = answer.results[0]
        raise_for(result.error_code, result.error_message, _resource_text(resource_type, name))
        return result.configs

    async def request_for(
        self, resource_type: ConfigResourceType, name: str, message: Message, *, version: int
    ) -> Message:
        """Asks the broker that the resource is, or any if it is none."""
        if resource_type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and name:
            return await self.request_of(int(name), message, version=version)
        return await self.request(message, version=version)

    async def eligible_leaders(self, topic: str) -> dict[int, list[int]]:
        """The eligible leader replicas of each partition of a topic (KIP-966)."""
        found: dict[int, list[int]] = {}
        cursor: Cursor | None = None
        while True:
            request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)], cursor=cursor)
            answer = cast("DescribeTopicPartitionsResponse", await self.request(request, version=0))
            partitions = [partition for result in answer.topics for partition in result.partitions]
            found |= {p.partition_index: p.eligible_leader_replicas or [] for p in partitions}
            cursor = answer.next_cursor
            if cursor is None or not partitions:
                return found

    async def end_offsets(
        self, broker_id: int, topic: str, partitions: list[int], replica_id: int
    ) -> dict[int, int]:
        """Latest offsets as one broker knows them; nothing for a broker that does not answer.

        As a consumer these are high watermarks, as a debugging client the broker's own log ends.
        """
        found = await self.end_offsets_of_topics(broker_id, {topic: partitions}, replica_id)
        return {key.partition: offset for key, offset in found.items()}

    async def end_offsets_of_topics(
        self, broker_id: int, partitions: Mapping[str, list[int]], replica_id: int
    ) -> dict[TopicPartition, int]:
        """The same, of several topics."""
        connection = await self._connection_to(broker_id)
        if connection is None:
            return {}
        request = ListOffsetsRequest(
            replica_id=replica_id,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=number, timestamp=LATEST_TIMESTAMP)
                        for number in numbers
                    ],
                )
                for topic, numbers in partitions.items()
            ],
        )
        try:
            answer: Any = await connection.request(request, LIST_OFFSETS_VERSION, timeout_s=LOOK_TIMEOUT_S)
        except ConnectionLostError:
            connection.close()
            self._others[broker_id] = None  # one that stands still is not waited for again
            return {}
        return {
            TopicPartition(topic_answer.name, partition.partition_index): partition.offset
            for topic_answer in cast("ListOffsetsResponse", answer).topics
            for partition in topic_answer.partitions
            if not partition.error_code
        }

    async def _connection_to(self, broker_id: int) -> AuthenticatedConnection | None:
        if broker_id not in self._others:
            address = self._addresses.get(broker_id)
            self._others[broker_id] = None
            if address is not None:
                try:
                    self._others[broker_id] = await self._peers.connect(*address)
                except ConnectionLostError:
                    return None
        return self._others[broker_id]
