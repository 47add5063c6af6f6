"""Fetch (1): for consumers up to the high watermark or the last stable offset, for followers up to the end.

A fetch that finds less than its minimum waits in purgatory, then looks once more. In a fetch session
(KIP-227) it looks only at what may have news, waits for all of the session's partitions, and is answered
with those that have news.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from kraft.broker.handlers.fetch_looks import FIRST_VERSION_WITH_TOPIC_IDS, Looks, Seen
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.network.response import Deferred
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
)
from kraft.protocol.leader_hints import NodeEndpoint
from kraft.protocol.primitives import ZERO_UUID
from partitions.fetch_session import (
    EPOCH_MAX,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    Reader,
    SessionKey,
    SessionPartition,
    Topic,
    WantedPartition,
)
from partitions.fetch_session_cache import FetchSessionError

FIRST_VERSION_WITH_HINTS = 12
FIRST_VERSION_WITH_ENDPOINTS = 16
MAX_WAIT_MAX_MS = 60_000
SESSION_SLOTS = "max.incremental.fetch.session.cache.slots"


def handle_fetch(
    services: BrokerServices, request: Request[FetchRequest]
) -> FetchResponse | Deferred[None, FetchResponse]:
    """Answers Fetch."""
    body = request.body
    is_full = body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
    try:
        session = _full(services, request) if is_full else _incremental(services, request)
    except FetchSessionError as error:
        return FetchResponse(error_code=ErrorCode[error.code])
    if session is not None and len(session) == 0:
        return FetchResponse()  # the request has forgotten all that was in it
    fetch = _Fetch(services, request, session, is_full=is_full)
    max_wait_ms = min(body.max_wait_ms, MAX_WAIT_MAX_MS)
    if fetch.is_satisfied or max_wait_ms <= 0 or (session is None and not body.topics):
        return fetch.answer_at_once()
    return Deferred(fetch.wait(max_wait_ms / 1000), fetch.answer)


def _full(services: BrokerServices, request: Request[FetchRequest]) -> FetchSession | None:
    """A new session, if the request asks for one and there is room; the one that it names ends."""
    body, sessions = request.body, services.replicas.fetch_purgatory.sessions
    if body.session_id != NO_SESSION:
        sessions.close(body.session_id, _reader(services, body))
    if body.session_epoch == FINAL_EPOCH:
        return None
    return sessions.cache.open(
        _named(request),
        reader=_reader(services, body),
        by_id=request.version >= FIRST_VERSION_WITH_TOPIC_IDS,
        slots=services.config.get(SESSION_SLOTS),
        draw_id=lambda: services.rng.randint(1, EPOCH_MAX),
        now_ms=services.replicas.monotonic_ms(),
    )


def _incremental(services: BrokerServices, request: Request[FetchRequest]) -> FetchSession:
    """The session that the request goes on with. Raises FetchSessionError."""
    body, sessions = request.body, services.replicas.fetch_purgatory.sessions
    session = sessions.cache.go_on(
        body.session_id,
        body.session_epoch,
        _named(request),
        _forgotten(request),
        reader=_reader(services, body),
        by_id=request.version >= FIRST_VERSION_WITH_TOPIC_IDS,
        now_ms=services.replicas.monotonic_ms(),
    )
    sessions.overtake(session)
    return session


def _reader(services: BrokerServices, body: FetchRequest) -> Reader:
    is_registered = (
        body.replica_id >= 0
        and body.replica_epoch >= 0
        and services.metadata.registered_epoch(body.replica_id) == body.replica_epoch
    )
    rack_id = body.rack_id if services.read_replicas.looks_at_racks else ""  # sessions keep it
    return Reader(body.replica_id, body.replica_epoch, is_registered, body.isolation_level, rack_id)


def _named(request: Request[FetchRequest]) -> Iterator[tuple[Topic, WantedPartition]]:
    by_id = request.version >= FIRST_VERSION_WITH_TOPIC_IDS
    for topic in request.body.topics:
        for wanted in topic.partitions:
            yield topic.topic_id if by_id else topic.topic, wanted


def _forgotten(request: Request[FetchRequest]) -> Iterator[SessionKey]:
    by_id = request.version >= FIRST_VERSION_WITH_TOPIC_IDS
    for topic in request.body.forgotten_topics_data:
        for number in topic.partitions:
            yield topic.topic_id if by_id else topic.topic, number


class _Fetch:
    """One fetch request while it is being answered. Its first look is taken as it is made."""

    def __init__(
        self,
        services: BrokerServices,
        request: Request[FetchRequest],
        session: FetchSession | None,
        *,
        is_full: bool,
    ) -> None:
        self._services = services
        self._request = request
        self._session = session
        self._is_full = is_full
        self._epoch = 0 if session is None else session.epoch
        self._looks = Looks(services, request, session)
        self._seen = self._looks.look(first=True)
        if session is not None and (session.reader.is_registered or not session.reader.is_follower):
            session.fetched(self._looks.now_ms)

    @property
    def is_satisfied(self) -> bool:
        """Whether there is enough to answer with, or something that nobody waits upon."""
        return self._looks.failed or self._looks.size_bytes >= self._request.body.min_bytes

    def answer_at_once(self) -> FetchResponse:
        """The answer to what was seen in the first look."""
        response = self._answer(self._seen)
        self._settle()
        return response

    def _throttled(self, wait_ms: int) -> FetchResponse:
        """The answer to who has to wait before it may have records: nothing. A session goes on as if it had not been
        asked; one that has just been opened ends, since its reader begins anew (KIP-219)."""
        session = self._session
        if session is None or session.has_ended:
            return FetchResponse(throttle_time_ms=wait_ms)
        if self._is_full:
            sessions = self._services.replicas.fetch_purgatory.sessions
            sessions.close(session.id, _reader(self._services, self._request.body))
            return FetchResponse(throttle_time_ms=wait_ms)
        return FetchResponse(session_id=session.id, throttle_time_ms=wait_ms)

    def wait(self, timeout_s: float) -> asyncio.Future[None]:
        """Waits, from this moment on, for the minimum of bytes, an error, or the time to pass."""
        available = {seen.key: seen.found.size_bytes for seen in self._seen if seen.key is not None}
        if not self._is_full:
            self._settle()
        self._seen = []
        return self._services.replicas.fetch_purgatory.wait(
            available,
            max(1, self._request.body.min_bytes),
            timeout_s,
            self._looks.available_bytes,
            is_follower=self._looks.is_follower,
            held_back=self._looks.held_back,
            session=self._session,
        )

    def answer(self, _: None) -> FetchResponse:
        """Looks again when the wait is over. A younger request of the session has made this one void."""
        if self._session is not None and self._session.epoch != self._epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        return self._answer(self._looks.look(first=False))

    def _settle(self) -> None:
        """What has neither news nor anything left to read costs the session's next request nothing."""
        for seen in self._seen:
            if seen.partition is not None:
                seen.partition.session.settle(seen.partition, seen.found)

    def _answer(self, all_seen: Sequence[Seen]) -> FetchResponse:
        looks, quotas = self._looks, self._services.quotas
        is_limited = quotas.is_limiting and looks.size_bytes and not looks.is_follower
        if is_limited and (wait_ms := quotas.fetch_throttle_ms(self._request)):
            return self._throttled(wait_ms)
        given = (
            (seen.key.topic, seen.found.size_bytes)
            for seen in all_seen
            if seen.found.size_bytes and seen.key is not None
        )
        metrics = self._services.replicas.metrics
        metrics.on_fetched(given, is_follower=looks.is_follower)
        if looks.is_follower:
            sizes = ((seen.key, seen.found.size_bytes) for seen in all_seen if seen.key is not None)
            self._services.throttles.sent(sizes, looks.now_ms)
        session = self._session
        if session is not None and session.has_ended:
            session = None  # it has given way to another while this request waited
        response = FetchResponse(session_id=NO_SESSION if session is None else session.id)
        endpoints = dict[int, NodeEndpoint]()
        topic: Topic | None = None
        for seen in all_seen:
            if seen.partition is not None and not self._is_told(seen, seen.partition):
                continue
            if seen.data.error_code:
                metrics.on_fetch_failed(None if seen.key is None else seen.key.topic)
                self._add_hint(seen, endpoints)
            if seen.topic != topic:  # consecutive partitions of a topic share an entry
                topic = seen.topic
                response.responses.append(_topic_response(topic))
            response.responses[-1].partitions.append(seen.data)
        if endpoints and self._request.version >= FIRST_VERSION_WITH_ENDPOINTS:
            response.node_endpoints = list(endpoints.values())
        if is_limited:
            response.throttle_time_ms = quotas.fetched(self._request, looks.size_bytes)
        return response

    def _is_told(self, seen: Seen, partition: SessionPartition) -> bool:
        """Whether the session's answer names the partition; it remembers what its reader was told."""
        if not self._is_full and not partition.is_news(seen.found):
            return False
        partition.told(seen.found)
        return True

    def _add_hint(self, seen: Seen, endpoints: dict[int, NodeEndpoint]) -> None:
        """Adds who leads now to the answer of a former leader (KIP-951)."""
        if (
            seen.key is not None
            and self._request.version >= FIRST_VERSION_WITH_HINTS
            and seen.data.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        ):
            seen.data.current_leader = self._services.metadata.leader_hint(
                seen.key, self._request.session.listener_name, endpoints
            )


def _topic_response(topic: Topic) -> FetchableTopicResponse:
    if isinstance(topic, bytes):
        return FetchableTopicResponse(topic_id=topic, partitions=[])
    return FetchableTopicResponse(topic=topic, topic_id=ZERO_UUID, partitions=[])
