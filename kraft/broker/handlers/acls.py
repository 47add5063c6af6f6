"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): who may do what (KIP-140, KIP-290).

A broker tells of the ACLs that it decides by; changes are the active controller's. Without an authorizer there are
none that anybody goes by, which is said: SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from kraft.broker.handlers.forwarding import Forwarded, Refusal, Split, too_long, too_many
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from quorum.metadata.acls import Acl, AclFilter, filter_problem
from quorum.rpc import messages

TIMEOUT_S: Final = 30.0
"""The requests do not say how long their clients wait."""
ACLS_PER_STEP: Final = 2_000
"""That are looked at before other requests have their turn."""
_DISABLED: Final = Refusal(
    ErrorCode.SECURITY_DISABLED,
    "No Authorizer is configured: set authorizer.class.name in the server.properties of all brokers.",
)


async def handle_describe_acls(
    services: BrokerServices, request: Request[DescribeAclsRequest]
) -> DescribeAclsResponse:
    """Answers DescribeAcls, resource by resource."""
    wanted = _filter(request.body)
    if services.authorization is None:
        return DescribeAclsResponse(error_code=_DISABLED.code, error_message=_DISABLED.message)
    if problem := filter_problem(wanted):
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    found: list[Acl] = []
    for number, acl in enumerate(services.metadata.image.acls, start=1):
        if wanted.matches(acl):
            found.append(acl)
        if number % ACLS_PER_STEP == 0:
            await asyncio.sleep(0)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in sorted(found):
        about = resources.setdefault(
            (acl.resource_type, acl.resource_name, acl.pattern_type),
            DescribeAclsResource(acl.resource_type, acl.resource_name, acl.pattern_type),
        )
        about.acls.append(AclDescription(acl.principal, acl.host, acl.operation, acl.permission_type))
    return DescribeAclsResponse(resources=list(resources.values()))


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


async def handle_create_acls(
    services: BrokerServices, request: Request[CreateAclsRequest]
) -> CreateAclsResponse:
    """Answers CreateAcls when this broker goes by them, too."""
    creations = request.body.creations
    problem = (
        _disabled(services)
        or too_many(len(creations), "ACLs")
        or too_long(text for one in creations for text in (one.resource_name, one.principal, one.host))
    )
    if problem is not None:
        return CreateAclsResponse(results=_refuse_creation(creations, problem))
    split = Split(creations, lambda _: None, _refuse_creation)
    call = messages.CreateAclsRequest(tuple(_acl(one) for one in split.allowed))
    return CreateAclsResponse(results=await split.forward(services, call, TIMEOUT_S, _created))


def _disabled(services: BrokerServices) -> Refusal | None:
    return _DISABLED._replace(once=True) if services.authorization is None else None


def _acl(one: AclCreation) -> Acl:
    return Acl(
        one.resource_type,
        one.resource_name,
        one.resource_pattern_type,
        one.principal,
        one.host,
        one.operation,
        one.permission_type,
    )


def _created(forwarded: Forwarded[messages.CreateAclsResponse]) -> Iterator[AclCreationResult]:
    for result in forwarded.response.results:
        yield AclCreationResult(*forwarded.outcome(result.error, result.message))


def _refuse_creation(creations: Iterable[AclCreation], refusal: Refusal) -> list[AclCreationResult]:
    return [AclCreationResult(code, message) for _, code, message in refusal.of(creations)]


async def handle_delete_acls(
    services: BrokerServices, request: Request[DeleteAclsRequest]
) -> DeleteAclsResponse:
    """Answers DeleteAcls with what each filter named."""
    filters = request.body.filters
    problem = (
        _disabled(services)
        or too_many(len(filters), "filters")
        or too_long(
            text
            for one in filters
            for text in (one.resource_name_filter, one.principal_filter, one.host_filter)
            if text is not None
        )
    )
    if problem is not None:
        return DeleteAclsResponse(filter_results=_refuse_deletion(filters, problem))
    split = Split(filters, lambda _: None, _refuse_deletion)
    call = messages.DeleteAclsRequest(tuple(_filter(one) for one in split.allowed))
    return DeleteAclsResponse(filter_results=await split.forward(services, call, TIMEOUT_S, _deleted))


def _deleted(forwarded: Forwarded[messages.DeleteAclsResponse]) -> Iterator[DeleteAclsFilterResult]:
    for result in forwarded.response.results:
        yield DeleteAclsFilterResult(
            *forwarded.outcome(result.error, result.message),
            [
                DeleteAclsMatchingAcl(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
                for acl in result.acls
            ],
        )


def _refuse_deletion(filters: Iterable[DeleteAclsFilter], refusal: Refusal) -> list[DeleteAclsFilterResult]:
    return [DeleteAclsFilterResult(code, message) for _, code, message in refusal.of(filters)]
