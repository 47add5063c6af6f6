"""From a frame to the handler of its API and back to a response frame.

One table names the handler of every served API; it is checked against the advertised versions at
import, so nothing is advertised that nobody answers. Versions out of range close the connection, as in
Kafka, except for ApiVersions, which is answered so that the client can find the range (KIP-511).
Produce and Fetch have handlers of their own that work on batches, not on messages. One gate stands before all handlers,
and where there is an authorizer each is behind its guard (`kraft.broker.guards`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from kraft.broker.guards import guarded
from kraft.broker.handlers import (
    acls,
    alter_configs,
    api_versions,
    client_quotas,
    cluster,
    configs,
    delete_records,
    elections,
    features,
    fetch,
    find_coordinator,
    group_offsets,
    groups,
    log_dirs,
    metadata,
    offsets,
    produce,
    producers,
    quorum,
    reassignments,
    sasl,
    scram_credentials,
    topics,
    transactions,
    txn_markers,
)
from kraft.broker.ready_requests import Handler, answer_when_ready
from kraft.broker.request import HandlerResult, Request
from kraft.broker.services import BrokerServices
from kraft.network.connection import CloseConnectionError
from kraft.network.request import RequestContext, malformed_request
from kraft.network.request_times import RequestTimes
from kraft.network.response import Answer, Deferred, Response, as_it_is
from kraft.network.session import Session
from kraft.protocol.api import SUPPORTED, ApiKey, api_name, is_supported
from kraft.protocol.errors import ProtocolError
from kraft.protocol.headers import encode_response_header
from kraft.protocol.messages import decode_request, encode_response
from kraft.protocol.schema import Message
from kraft.protocol.schemas.api_versions import (
    UNSUPPORTED_VERSION_ANSWER_VERSION,
    unsupported_version_response,
)

log = structlog.get_logger(__name__)

HANDLERS: Mapping[ApiKey, Handler] = {
    ApiKey.PRODUCE: produce.handle_produce,
    ApiKey.FETCH: fetch.handle_fetch,
    ApiKey.LIST_OFFSETS: offsets.handle_list_offsets,
    ApiKey.METADATA: metadata.handle_metadata,
    ApiKey.API_VERSIONS: api_versions.handle_api_versions,
    ApiKey.SASL_HANDSHAKE: sasl.handle_sasl_handshake,
    ApiKey.SASL_AUTHENTICATE: sasl.handle_sasl_authenticate,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: scram_credentials.handle_describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: scram_credentials.handle_alter_user_scram_credentials,
    ApiKey.CREATE_TOPICS: topics.handle_create_topics,
    ApiKey.DELETE_TOPICS: topics.handle_delete_topics,
    ApiKey.DELETE_RECORDS: delete_records.handle_delete_records,
    ApiKey.DESCRIBE_LOG_DIRS: log_dirs.handle_describe_log_dirs,
    ApiKey.INIT_PRODUCER_ID: producers.handle_init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.handle_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.handle_add_offsets_to_txn,
    ApiKey.END_TXN: transactions.handle_end_txn,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.handle_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: transactions.handle_list_transactions,
    ApiKey.WRITE_TXN_MARKERS: txn_markers.handle_write_txn_markers,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offsets.handle_offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: configs.handle_describe_configs,
    ApiKey.CREATE_PARTITIONS: topics.handle_create_partitions,
    ApiKey.ALTER_CONFIGS: alter_configs.handle_alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs.handle_incremental_alter_configs,
    ApiKey.ELECT_LEADERS: elections.handle_elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassignments.handle_alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: reassignments.handle_list_partition_reassignments,
    ApiKey.DESCRIBE_QUORUM: quorum.handle_describe_quorum,
    ApiKey.UPDATE_FEATURES: features.handle_update_features,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: client_quotas.handle_describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: client_quotas.handle_alter_client_quotas,
    ApiKey.UNREGISTER_BROKER: cluster.handle_unregister_broker,
    ApiKey.DESCRIBE_CLUSTER: cluster.handle_describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: producers.handle_describe_producers,
    ApiKey.LIST_CONFIG_RESOURCES: configs.handle_list_config_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: metadata.handle_describe_topic_partitions,
    ApiKey.FIND_COORDINATOR: find_coordinator.handle_find_coordinator,
    ApiKey.JOIN_GROUP: groups.handle_join_group,
    ApiKey.HEARTBEAT: groups.handle_heartbeat,
    ApiKey.LEAVE_GROUP: groups.handle_leave_group,
    ApiKey.SYNC_GROUP: groups.handle_sync_group,
    ApiKey.OFFSET_COMMIT: group_offsets.handle_offset_commit,
    ApiKey.TXN_OFFSET_COMMIT: group_offsets.handle_txn_offset_commit,
    ApiKey.OFFSET_FETCH: group_offsets.handle_offset_fetch,
    ApiKey.OFFSET_DELETE: group_offsets.handle_offset_delete,
    ApiKey.DESCRIBE_GROUPS: groups.handle_describe_groups,
    ApiKey.LIST_GROUPS: groups.handle_list_groups,
    ApiKey.DELETE_GROUPS: groups.handle_delete_groups,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.handle_consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.handle_consumer_group_describe,
    ApiKey.DESCRIBE_ACLS: acls.handle_describe_acls,
    ApiKey.CREATE_ACLS: acls.handle_create_acls,
    ApiKey.DELETE_ACLS: acls.handle_delete_acls,
}
assert HANDLERS.keys() == SUPPORTED.keys(), "every advertised API needs a handler, and no other has one"


Gate = Callable[[Session, ApiKey, Request[Any]], Message | None]
"""Asked about each request before it is handled: None lets it pass, a message answers it instead. It may raise
CloseConnectionError."""


class Dispatcher:
    """The request handler of a broker's listeners."""

    def __init__(self, services: BrokerServices, gate: Gate | None = None) -> None:
        self._services = services
        self._gate = gate
        self._handlers = HANDLERS if services.authorization is None else guarded(HANDLERS)
        self._times = services.request_times
        self._clock_s = services.loop.time
        self._quotas = services.quotas

    def __call__(self, context: RequestContext) -> Answer:
        """Runs the handler of one request. Raises CloseConnectionError for what cannot be answered."""
        header, session = context.header, context.session
        if session.authentication is not None:
            problem = session.authentication.problem(header.api_key, session.now_s)
            if problem is not None:
                raise CloseConnectionError(problem)
        if not is_supported(header.api_key, header.api_version):
            if header.api_key == ApiKey.API_VERSIONS:
                return _frame(
                    unsupported_version_response(), UNSUPPORTED_VERSION_ANSWER_VERSION, header.correlation_id
                )
            raise CloseConnectionError(
                f"it asked for {api_name(header.api_key)} version {header.api_version}, which is not served"
            )
        try:
            body = decode_request(header.api_key, header.api_version, context.body)
        except ProtocolError as error:
            raise malformed_request(error) from error
        version = header.api_version
        if not session.client_id:
            session.client_id = header.client_id or ""
        request = Request(body, version, header.client_id, session)
        result = self._handle(body.API_KEY, request)
        is_limiting = self._quotas.is_limiting
        if is_limiting:
            result = self._quotas.charged(request, len(context.body), result)
            encoding_since_s = self._clock_s()
        times = self._times[body.API_KEY]
        answer: Answer
        if result is None:
            answer, now_s = None, self._clock_s()
        elif isinstance(result, Message):
            answer = _frame(result, version, header.correlation_id)
            now_s = self._clock_s()
            answer.times, answer.ready_s = times, now_s
        else:
            now_s = self._clock_s()
            if not isinstance(result, Deferred):
                # Not in a task around it: cancelled before its first step, that would leave this one behind.
                result = Deferred(asyncio.ensure_future(result, loop=self._services.loop), as_it_is)
            answer = _framed(result, version, header.correlation_id, times, now_s, self._clock_s)
        times.count += 1
        times.queue.add(session.now_s - session.arrived_s)
        times.local.add(now_s - session.now_s)
        if is_limiting:
            self._quotas.encoded(request, now_s - encoding_since_s)
        session.now_s = now_s  # the next request of this turn begins here
        return answer

    def _handle(self, key: ApiKey, request: Request[Any]) -> HandlerResult:
        if self._gate is not None:
            refusal = self._gate(request.session, key, request)
            if refusal is not None:
                return refusal
        if self._services.replicas.pending:
            return answer_when_ready(self._handlers[key], self._services, request)
        return self._handlers[key](self._services, request)


def _framed(
    deferred: Deferred[Any, Message] | Deferred[Any, Message | None],
    version: int,
    correlation_id: int,
    times: RequestTimes,
    waits_since_s: float,
    clock_s: Callable[[], float],
) -> Deferred[Any, Response | None]:
    """The same answer as a frame, for when it is due."""

    def finish(outcome: Any) -> Response | None:
        message = deferred.finish(outcome)
        now_s = clock_s()
        times.remote.add(now_s - waits_since_s)
        if message is None:
            return None
        response = _frame(message, version, correlation_id)
        response.times, response.ready_s = times, now_s
        return response

    return Deferred(deferred.future, finish)


def _frame(message: Message, version: int, correlation_id: int) -> Response:
    """Header and body; the connection puts the frame's length before them."""
    segments, size_bytes = encode_response(message, version)
    header = encode_response_header(message.API_KEY, version, correlation_id)
    whole: list[Any] = [header, *segments]  # the slices are those of files that a handler put there
    return Response(whole, len(header) + size_bytes)
