"""The judge of permissions: every answer of a secured broker, against the ACLs that its metadata had.

- served-without-permission: nothing is told or done that was not permitted at that broker's metadata offset. An answer
  that was long in coming must be permitted at some time between question and answer; what a Fetch reads, when it is
  answered;
- refused-with-permission: nothing is refused that was permitted all that time.

The model of permissions is written from Kafka's documentation and knows nothing of the authorizer: it looks at all ACLs
of an image, one by one. That images are equal everywhere at one offset is `metadata`'s business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kraft.broker.dispatch import Dispatcher
from kraft.broker.guards import finished
from kraft.broker.request import HandlerResult, Request
from kraft.chaos import security
from kraft.chaos.oracles.wrapping import Method, Probes, Whose, around
from kraft.chaos.verdict import Verdicts
from kraft.protocol.api import AclOperation, ApiKey, ResourceType
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.security.authorizer import StandardAuthorizer
from quorum.metadata.acls import CLUSTER_NAME, DENY, PREFIXED, WILDCARD, Acl
from quorum.metadata.image import MetadataImage

REFUSED = "request refused for want of a permission"
GRANTED_AGAIN = "granted what was refused before"
REVOKED = "refused what was granted before"
REVOKED_WHILE_WAITING = "permission changed while a request waited"
REMOVED_AND_SERVED = "served a user that was removed while connected"
EVENTS = (REFUSED, GRANTED_AGAIN, REVOKED, REVOKED_WHILE_WAITING, REMOVED_AND_SERVED)

Acls = Iterable[Acl]
_DESCRIBES = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)


class Need(NamedTuple):
    """A permission that an item of an answer needs, and whether the item was refused for want of it."""

    operation: AclOperation
    resource: ResourceType
    name: str
    is_refused: bool


def permits(
    acls: Acls, principal: str, host: str, operation: AclOperation, resource: ResourceType, name: str
) -> bool:
    """Whether somebody at this address may do this, by these ACLs alone."""
    if principal in security.SUPER_USERS:
        return True
    allowed = False
    for acl in acls:
        if acl.resource_type != resource or not _is_about(acl, name):
            continue
        if acl.principal not in (principal, "User:*") or acl.host not in (host, WILDCARD):
            continue
        is_named = acl.operation in (operation, AclOperation.ALL)
        if acl.permission_type == DENY:
            if is_named:
                return False
        elif is_named or (operation is AclOperation.DESCRIBE and acl.operation in _DESCRIBES):
            allowed = True
    return allowed


def _is_about(acl: Acl, name: str) -> bool:
    if acl.pattern_type == PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, WILDCARD)


def needs(answer: Any, image: MetadataImage) -> Iterator[Need]:
    """What the items of an answer needed; nothing for APIs that guests do not use."""
    topic_code, group_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
    match answer.API_KEY:
        case ApiKey.PRODUCE:
            for topic in answer.responses:
                for one in topic.partition_responses:
                    yield Need(
                        AclOperation.WRITE, ResourceType.TOPIC, topic.name, one.error_code == topic_code
                    )
        case ApiKey.FETCH:
            for topic in answer.responses:
                known = image.topics.get(topic.topic_id)
                if known is None:
                    continue
                for one in topic.partitions:
                    yield Need(
                        AclOperation.READ, ResourceType.TOPIC, known.name, one.error_code == topic_code
                    )
        case ApiKey.LIST_OFFSETS:
            for topic in answer.topics:
                for one in topic.partitions:
                    yield Need(
                        AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name, one.error_code == topic_code
                    )
        case ApiKey.METADATA:
            for topic in answer.topics:
                if topic.name is not None:
                    yield Need(
                        AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name, topic.error_code == topic_code
                    )
        case ApiKey.FIND_COORDINATOR:
            for one in answer.coordinators:
                yield Need(AclOperation.DESCRIBE, ResourceType.GROUP, one.key, one.error_code == group_code)
        case ApiKey.CONSUMER_GROUP_HEARTBEAT:  # guests subscribe by an expression, each in a group of his own
            for topic in () if answer.assignment is None else answer.assignment.topic_partitions:
                known = image.topics.get(topic.topic_id)
                if known is not None:
                    yield Need(AclOperation.DESCRIBE, ResourceType.TOPIC, known.name, is_refused=False)
        case ApiKey.DESCRIBE_ACLS:
            yield _of_cluster(AclOperation.DESCRIBE, answer.error_code)
        case ApiKey.CREATE_ACLS:
            for one in answer.results:
                yield _of_cluster(AclOperation.ALTER, one.error_code)


def _of_cluster(operation: AclOperation, error_code: int) -> Need:
    is_refused = error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return Need(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_refused)


class Permissions(Probes):
    """Probes on the dispatchers of secured brokers, and what they compare with."""

    def __init__(self, verdicts: Verdicts, whose: Whose, *, is_secured: bool) -> None:
        self._verdicts = verdicts
        self._whose = whose
        self._states: dict[StandardAuthorizer, list[frozenset[Acl]]] = {}
        """The ACLs that each broker has had, in order."""
        self._last: dict[tuple[str, AclOperation, ResourceType, str], bool] = {}
        """Whether it was refused the last time."""
        if is_secured:
            verdicts.declare(EVENTS)

    @around(StandardAuthorizer, "on_metadata")
    def _changed(
        self, original: Method, authorizer: StandardAuthorizer, changes: Any, image: MetadataImage
    ) -> None:
        original(authorizer, changes, image)
        states = self._states.setdefault(authorizer, [frozenset()])
        if states[-1] != image.acls:
            states.append(frozenset(image.acls))

    @around(Dispatcher, "_handle")
    def _handled(
        self, original: Method, dispatcher: Dispatcher, key: ApiKey, request: Request[Any]
    ) -> HandlerResult:
        services = dispatcher._services
        session = request.session
        if services.authorization is None or self._whose.node() is None:
            result: HandlerResult = original(dispatcher, key, request)
            return result
        # Not asked of the session later: a broker may change it.
        principal, host = session.principal, session.peer[0]
        states = self._states.setdefault(services.authorization.authorizer, [frozenset()])
        first = len(states) - 1
        result = original(dispatcher, key, request)

        def judged(answer: Message | None) -> Message | None:
            if answer is not None and self._whose.node() is not None:
                self._count(principal, services.metadata.image)
                for need in needs(answer, services.metadata.image):
                    self._judge(key, principal, host, need, states[first:])
            return answer

        return finished(result, judged)

    def _count(self, principal: str, image: MetadataImage) -> None:
        if principal not in _GUESTS:
            return
        if not any(f"User:{name}" == principal for name, _ in image.scram_credentials):
            self._verdicts.happened(REMOVED_AND_SERVED, principal)

    def _judge(
        self, key: ApiKey, principal: str, host: str, need: Need, states: list[frozenset[Acl]]
    ) -> None:
        wanted = need.operation, need.resource, need.name
        may = [permits(acls, principal, host, *wanted) for acls in states]

        def accuse(oracle: str) -> None:
            self._verdicts.violated(
                oracle,
                f"node {self._whose.node()}: {key.name} of {principal} at {host}, {need.operation.name} on"
                f" {need.resource.name} {need.name}, ACLs {sorted(states[-1])}",
            )

        if need.is_refused:
            self._verdicts.happened(REFUSED, principal)
            if all(may):
                accuse("refused-with-permission")
        elif not any(may) or (key is ApiKey.FETCH and not may[-1]):
            accuse("served-without-permission")
        if may[0] != may[-1]:
            self._verdicts.happened(REVOKED_WHILE_WAITING, principal)
        was_refused = self._last.get((principal, *wanted))
        if was_refused is not None and was_refused != need.is_refused:
            self._verdicts.happened(REVOKED if need.is_refused else GRANTED_AGAIN, principal)
        self._last[principal, *wanted] = need.is_refused


_GUESTS = frozenset(f"User:{name}" for name in security.GUESTS)
