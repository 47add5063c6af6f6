"""Who may see what in the console: the ACLs that Kafka's own APIs ask for, asked of the broker's authorizer.

Whoever logged in is `request[PRINCIPAL]`, put there by a middleware before; a request without one is ANONYMOUS.
Without an authorizer everybody sees everything. A node that is only a controller judges by its own metadata, as a
broker does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, Protocol

from aiohttp import web

from kraft.network.session import ANONYMOUS
from kraft.protocol.api import AclOperation, ResourceType
from quorum.metadata.acls import CLUSTER_NAME


class Decides(Protocol):
    """An authorizer, as `kraft.security.authorizer.StandardAuthorizer` is one."""

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool: ...


class AuthorizerOf(Protocol):
    """Where the authorizer is found now; None: there is none, and everybody may do everything."""

    def __call__(self) -> Decides | None: ...


PRINCIPAL: Final = web.RequestKey("principal", str)
"""The key of a request that has been told who sends it."""
IS_STILL_KNOWN: web.RequestKey[Callable[[], bool]] = web.RequestKey("is_still_known")
"""Of the same requests: whether who sends it may still log in. Asked by answers that take long."""


def principal_of(request: web.Request) -> str:
    found: str = request.get(PRINCIPAL, ANONYMOUS)
    return found


def refused(text: str) -> web.HTTPForbidden:
    """403 with a sentence."""
    return web.HTTPForbidden(text=json.dumps({"error": text}), content_type="application/json")


class Access:
    """Asked by whatever answers a request."""

    def __init__(self, authorizer_of: AuthorizerOf) -> None:
        self._authorizer_of = authorizer_of

    @property
    def is_open(self) -> bool:
        """Whether there is no authorizer."""
        return self._authorizer_of() is None

    def allows(
        self, request: web.Request, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME
    ) -> bool:
        """Whether whoever sends the request may do this. `name`: of the topic or group; the cluster has one."""
        authorizer = self._authorizer_of()
        if authorizer is None:
            return True
        host = request.remote or ""
        return authorizer.allows(principal_of(request), host, operation, resource, name)

    def demand(
        self, request: web.Request, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME
    ) -> None:
        """Raises HTTPForbidden, with a sentence, unless it may."""
        if not self.allows(request, operation, resource, name):
            what = (
                "the cluster" if resource is ResourceType.CLUSTER else f"{resource.name.lower()} {name[:255]}"
            )
            who = principal_of(request)
            raise refused(f"{who} may not {operation.name} {what}: an ACL has to allow it")


ACCESS: Final = web.AppKey("access", Access)
"""Where a node's application keeps it."""
