"""Whether a request may be served: its API's row of permissions, asked of the authorizer for whoever sent it.

A `Judge` is of one request. It says what is refused, with which error, and what is left out of an answer; the table in
`kraft.broker.guards` says what each API names, and handlers that only know in their midst what they would tell ask it
themselves. Each refusal is a line of the audit log. Without `authorizer.class.name` there is none of this: no request
is looked at, and everybody may do everything, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import structlog

from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.request import Request
from kraft.network.session import Session
from kraft.protocol.api import APIS, AclOperation, Denial, Permission, ResourceType, Right
from kraft.protocol.errors import ErrorCode
from kraft.protocol.texts import printable
from kraft.security.authorizer import StandardAuthorizer
from quorum.metadata.acls import CLUSTER_NAME

AUDIT_LOGGER: Final = "kafka.authorizer.logger"
"""Kafka's name: refusals at INFO, grants at DEBUG."""
MAX_LINES_PER_S: Final = 100
"""What is written of decisions in a second: clients decide how many there are."""

audit_log = structlog.get_logger(AUDIT_LOGGER)
_levels = logging.getLogger(AUDIT_LOGGER)
"""It exists from the start, so that its level can be set."""

_ERRORS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Audit:
    """The lines about decisions, so many a second; the next line says how many were left out."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._second = -1
        self._lines = 0
        self._left_out = 0

    @property
    def wants_grants(self) -> bool:
        """Whether the log's level lets them through."""
        return _levels.isEnabledFor(logging.DEBUG)

    def write(
        self, principal: str, host: str, right: Right, name: str | None, api: str, *, granted: bool
    ) -> None:
        """Kafka's sentence on one decision. `name` None: any of the resource's type."""
        second = int(self._clock_s())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > MAX_LINES_PER_S:
            self._left_out += 1
            return
        more = {"decisions_left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        resource = right.resource.name.title().replace("_", "")
        shown = "any" if name is None else printable(name)
        sentence = (
            f"Principal = {printable(principal)} is {'Allowed' if granted else 'Denied'}"
            f" operation = {right.operation.name} from host = {host}"
            f" on resource = {resource}:LITERAL:{shown} for request = {api}"
        )
        if granted:
            audit_log.debug(sentence, **more)
        else:
            audit_log.info(sentence, **more)


class Judge:
    """Judges what one request is about, by the ACLs that are known at that moment."""

    __slots__ = ("_authorization", "_permissions", "_session", "api", "body", "metadata")

    def __init__(self, authorization: Authorization, metadata: MetadataCache, request: Request[Any]) -> None:
        body = request.body
        api = APIS[body.API_KEY]
        self._authorization = authorization
        self._session = request.session
        self._permissions = [one for one in api.permissions if one.when is None or one.when(body)]
        self.api = api
        self.body = body
        self.metadata = metadata

    def refusal(self, resource: ResourceType, name: str, operation: AclOperation | None = None) -> ErrorCode:
        """Why this is refused, NONE if it is not: each permission that has a right on such a resource is needed, or
        only those for one operation."""
        for permission in self._permissions:
            if (
                permission.denial is Denial.REFUSE
                and _concerns(permission, resource, operation)
                and not self._holds(permission, resource, name)
            ):
                return _ERRORS[resource]
        return ErrorCode.NONE

    def shows(self, resource: ResourceType, name: str) -> bool:
        """Whether an answer may tell of it."""
        return all(
            self._holds(permission, resource, name)
            for permission in self._permissions
            if permission.denial is Denial.FILTER and _concerns(permission, resource, None)
        )

    def _holds(self, permission: Permission, resource: ResourceType, name: str) -> bool:
        """Whether one of its rights is there. One that is not for such a resource and not the cluster's is for any."""
        authorizer, audit, session = self._authorization.authorizer, self._authorization.audit, self._session
        principal, host = session.principal, session.peer[0]
        asked: str | None = None
        for right in permission.rights:
            if right.resource is ResourceType.CLUSTER:
                asked = CLUSTER_NAME
            else:
                asked = name if right.resource is resource else None
            if asked is None:
                allowed = authorizer.allows_with_any(principal, host, right.operation, right.resource)
            else:
                allowed = authorizer.allows(principal, host, right.operation, right.resource, asked)
            if allowed:
                if audit.wants_grants:
                    audit.write(principal, host, right, asked, self.api.stem, granted=True)
                return True
        if permission.denial is Denial.REFUSE:
            audit.write(principal, host, permission.rights[-1], asked, self.api.stem, granted=False)
        return False


class Authorization:
    """What the requests of one broker are judged by."""

    def __init__(
        self, authorizer: StandardAuthorizer, metadata: MetadataCache, clock_s: Callable[[], float]
    ) -> None:
        self.authorizer = authorizer
        self.audit = Audit(clock_s)
        self._metadata = metadata

    def judge(self, request: Request[Any]) -> Judge:
        """Of what this request names."""
        return Judge(self, self._metadata, request)

    def operations(self, session: Session, resource: ResourceType, name: str) -> int:
        """What whoever is at the other end may do with the resource, as bits."""
        return self.authorizer.allowed(session.principal, session.peer[0], resource, name)


def _concerns(permission: Permission, resource: ResourceType, operation: AclOperation | None) -> bool:
    return any(
        right.resource is resource and (operation is None or right.operation is operation)
        for right in permission.rights
    )
