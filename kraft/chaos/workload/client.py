"""A Kafka client for simulated hosts: connections to brokers, and the leaders of partitions.

It keeps the rules of a correct client: metadata of an older leader epoch is ignored (KIP-320), a request is
repeated only if that is safe, and pauses separate attempts. It judges nothing itself: callers report answers that a
correct client must never see to `Surprises`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from kraft.chaos.workload.authentication import authenticate
from kraft.chaos.workload.connection import ClientConnection
from kraft.protocol.errors import ErrorCode, ProtocolError
from kraft.protocol.messages import decode_response
from kraft.protocol.schema import Message
from kraft.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kraft.protocol.schemas.producers import InitProducerIdRequest, InitProducerIdResponse
from kraft.security.mechanisms import Credentials
from kraft.security.scram import SaslError

METADATA_VERSION, INIT_PRODUCER_ID_VERSION = 12, 4
NONCE_BYTES = 12
CONNECT_TIMEOUT_S = 1.0
REQUEST_TIMEOUT_S = 2.0
BACKOFF_S = (0.02, 0.1)
RENEWAL_SHARE = 0.85
"""Of a session, after which a client renews it."""
METADATA_MAX_AGE_S = 2.0
"""Metadata is refreshed at least this often, so that the client leaves a deposed leader that still answers."""

Answer = TypeVar("Answer", bound=Message)
PartitionName = tuple[str, int]


class CallFailedError(ConnectionError):
    """There was no answer: the effect of the request is unknown, unless it `was_not_sent`."""

    def __init__(self, reason: str, *, was_not_sent: bool) -> None:
        super().__init__(reason)
        self.was_not_sent = was_not_sent


class Leader(NamedTuple):
    """The leader of a partition, and its epoch."""

    broker: int
    epoch: int


class Client:
    """The connections of one client process. Lives on its event loop."""

    def __init__(
        self,
        bootstrap: Mapping[int, tuple[str, int]],
        rng: random.Random,
        topics: Iterable[str],
        surprise: Callable[[int, str], None],
        *,
        follows_names: bool = False,
        credentials: Credentials | None = None,
    ) -> None:
        """Metadata is asked for `topics`; `surprise(broker, text)` reports an answer that a correct client must never
        get. `follows_names`: a topic made anew under a name takes the place of the one before.
        `credentials`: what it says who it is with, if it has to."""
        self.rng = rng
        self.loop = asyncio.get_running_loop()
        self.topics = dict.fromkeys(topics)
        self.topic_ids: dict[str, bytes] = {}
        self._gone: set[bytes] = set()
        """Ids of topics that were deleted."""
        self._leaders: dict[PartitionName, Leader] = {}
        self._epochs: dict[PartitionName, int] = {}
        self._addresses = dict(bootstrap)
        self._connections: dict[int, ClientConnection] = {}
        self._connecting: dict[int, asyncio.Task[ClientConnection]] = {}
        self._refresh: asyncio.Task[None] | None = None
        self._refreshed_s = 0.0
        self.surprise = surprise
        self._follows_names = follows_names
        self._credentials = credentials
        self._background: set[asyncio.Task[Any]] = set()

    async def back_off(self) -> None:
        """The pause between two attempts."""
        await asyncio.sleep(self.rng.uniform(*BACKOFF_S))

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begins a task, which is kept until it is done."""
        task: asyncio.Task[None] = self.loop.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    # -- connections

    def connection(self, broker: int) -> ClientConnection | None:
        """An open connection to a broker; without one, None, and one is begun."""
        found = self._connections.get(broker)
        if found is not None:
            if not found.closed:
                return found
            # With acks=0 a broker reports an error by closing the connection.
            del self._connections[broker]
            self.want_metadata()
        self._connect(broker)
        return None

    def _connect(self, broker: int) -> asyncio.Task[ClientConnection]:
        task = self._connecting.get(broker)
        if task is None:
            self._connecting[broker] = task = self.loop.create_task(self._open(broker))
            task.add_done_callback(lambda done: self._connected(broker, done))
        return task

    async def _open(self, broker: int) -> ClientConnection:
        host, port = self._addresses[broker]
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, connection = await self.loop.create_connection(
                lambda: ClientConnection(broker, self.surprise), host, port
            )
            if self._credentials is not None:
                await self._authenticate(connection, self._credentials)
        return connection

    async def _authenticate(self, connection: ClientConnection, credentials: Credentials) -> None:
        nonce = self.rng.randbytes(NONCE_BYTES).hex()
        began_s = self.loop.time()
        granted_s = await authenticate(connection, credentials, nonce, timeout_s=CONNECT_TIMEOUT_S)
        connection.renew_at_s = None if granted_s is None else began_s + RENEWAL_SHARE * granted_s

    def due_for_renewal(self) -> list[ClientConnection]:
        """The open connections whose sessions soon end, or have ended."""
        now_s = self.loop.time()
        return [
            one
            for one in self._connections.values()
            if not one.closed and one.renew_at_s is not None and one.renew_at_s <= now_s
        ]

    async def renew(self, connection: ClientConnection, credentials: Credentials) -> None:
        """Says anew who it is; whoever asks the broker meanwhile gets another connection. Raises ConnectionError if the
        broker refuses or does not answer: then the connection is closed."""
        if self._connections.get(connection.broker) is connection:
            del self._connections[connection.broker]
        await self._authenticate(connection, credentials)
        if self._connections.setdefault(connection.broker, connection) is not connection:
            connection.close("another one took its place")

    async def answers_stranger(self, broker: int, message: Message, version: int) -> bool:
        """Whether a broker answers somebody who does not say who he is. Raises OSError without a connection."""
        host, port = self._addresses[broker]
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, connection = await self.loop.create_connection(lambda: ClientConnection(broker), host, port)
        answer: asyncio.Future[memoryview | None] = self.loop.create_future()
        connection.request(message, version, CONNECT_TIMEOUT_S, lambda body: _settle(answer, body))
        try:
            return await answer is not None
        finally:
            connection.close("it was an attempt")

    async def lets_in(self, broker: int, credentials: Credentials) -> bool:
        """Whether a broker believes these, on a connection of their own. Raises OSError without a connection."""
        host, port = self._addresses[broker]
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, connection = await self.loop.create_connection(lambda: ClientConnection(broker), host, port)
            try:
                await self._authenticate(connection, credentials)
            except ConnectionError:
                return False
            except SaslError:
                return True  # a thief does not ask the broker for a proof
            finally:
                connection.close("it was an attempt")
            return True

    def _connected(self, broker: int, done: asyncio.Task[ClientConnection]) -> None:
        del self._connecting[broker]
        if not done.cancelled() and done.exception() is None:
            self._connections[broker] = done.result()
        else:
            self.want_metadata()

    async def call(
        self,
        broker: int,
        message: Message,
        version: int,
        answers: type[Answer],
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Answer:
        """Sends one request to one broker. Raises CallFailedError."""
        connection = self.connection(broker)
        if connection is None:
            try:
                connection = await asyncio.shield(self._connect(broker))
            except OSError as error:  # TimeoutError is one
                raise CallFailedError(f"no connection: {type(error).__name__}", was_not_sent=True) from error
            if connection.closed:
                raise CallFailedError("no connection", was_not_sent=True)
        answer: asyncio.Future[memoryview | None] = self.loop.create_future()
        connection.request(message, version, timeout_s, lambda body: _settle(answer, body))
        body = await answer
        if body is None:
            raise CallFailedError(connection.reason, was_not_sent=False)
        try:
            response = decode_response(message.API_KEY, version, body)
        except ProtocolError as error:
            self.surprise(broker, f"unreadable answer to {message.API_KEY.name}: {error}")
            raise CallFailedError("an unreadable answer", was_not_sent=False) from error
        assert isinstance(response, answers)
        return response

    def any_broker(self) -> int:
        """One drawn at random."""
        return self.rng.choice(list(self._addresses))

    async def call_any(self, message: Message, version: int, answers: type[Answer]) -> tuple[int, Answer]:
        """Asks brokers drawn at random until one answers; returns that broker and its answer."""
        while True:
            broker = self.any_broker()
            try:
                return broker, await self.call(broker, message, version, answers)
            except CallFailedError:
                await self.back_off()

    # -- metadata

    def leader(self, name: PartitionName) -> Leader | None:
        """The partition's leader, if known; if not, asks for metadata."""
        found = self._leaders.get(name)
        if found is None or self.loop.time() - self._refreshed_s > METADATA_MAX_AGE_S:
            self.want_metadata()
        return found

    def forget_leader(self, name: PartitionName, broker: int) -> None:
        """Forgets a leader that no longer leads, or does not answer."""
        found = self._leaders.get(name)
        if found is not None and found.broker == broker:
            del self._leaders[name]
        self.want_metadata()

    def partitions_of(self, topic: str) -> list[PartitionName]:
        """The partitions that are known of a topic, in order."""
        return sorted(name for name in self._epochs if name[0] == topic)

    def forget_topic(self, topic: str) -> None:
        """Forgets a deleted topic: one of the same name starts anew."""
        self.topics.pop(topic, None)
        topic_id = self.topic_ids.pop(topic, None)
        if topic_id is not None:
            self._gone.add(topic_id)
        self._leaders = {name: leader for name, leader in self._leaders.items() if name[0] != topic}
        self._epochs = {name: epoch for name, epoch in self._epochs.items() if name[0] != topic}

    def want_metadata(self) -> None:
        """Asks for metadata in the background, unless that is being done."""
        if self._refresh is None:
            self._refresh = self.spawn(self._refresh_soon())

    async def _refresh_soon(self) -> None:
        try:
            await self.back_off()
            await self.refresh()
        finally:
            self._refresh = None

    async def refresh(self) -> None:
        """Asks some broker for the leaders of `topics`."""
        topics = [MetadataRequestTopic(name=topic) for topic in self.topics]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        broker, answer = await self.call_any(request, METADATA_VERSION, MetadataResponse)
        if not answer.brokers:
            self.surprise(broker, "Metadata names no broker, and clients forget those that it does not name")
        self._refreshed_s = self.loop.time()
        for topic in answer.topics:
            # A broker that is behind may still answer with the former topic of the name.
            if topic.error_code or topic.name not in self.topics or topic.topic_id in self._gone:
                continue
            if self.topic_ids.setdefault(topic.name, topic.topic_id) != topic.topic_id:
                if not self._follows_names:
                    continue
                self.forget_topic(topic.name)
                self.topics[topic.name], self.topic_ids[topic.name] = None, topic.topic_id
            for partition in topic.partitions:
                self._learn(
                    (topic.name, partition.partition_index), partition.leader_id, partition.leader_epoch
                )

    def _learn(self, name: PartitionName, broker: int, epoch: int) -> None:
        if epoch < self._epochs.get(name, -1):
            return
        self._epochs[name] = epoch
        if broker < 0:
            self._leaders.pop(name, None)
        else:
            self._leaders[name] = Leader(broker, epoch)

    async def wait_for_topics(self) -> None:
        """Returns when the ids of all `topics` are known."""
        while not all(topic in self.topic_ids for topic in self.topics):
            await self.refresh()
            await self.back_off()

    async def new_producer_id(self) -> int:
        """A new producer id."""
        while True:
            broker, answer = await self.call_any(
                InitProducerIdRequest(), INIT_PRODUCER_ID_VERSION, InitProducerIdResponse
            )
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                return answer.producer_id
            if not code.retriable:
                self.surprise(broker, f"InitProducerId was answered with {code.name}")
            await self.back_off()


def _settle(answer: asyncio.Future[memoryview | None], body: memoryview | None) -> None:
    if not answer.done():  # done: its caller was cancelled
        answer.set_result(body)
