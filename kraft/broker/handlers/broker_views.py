"""A broker's views (`kraft.broker.views`), told to other brokers through DescribeConfigs (32).

No API of Kafka's tells of a broker's rates, requests and clients, and what brokers have between each other is Kafka's
protocol, with its TLS and SASL. So a view is a resource of a type that Kafka does not have; its name is JSON,
`{"view": …}` with the view's arguments, and it needs CLUSTER_ACTION, as whatever brokers ask each other. Its configs,
one behind the other, are lines of JSON, `[key, value]` each, cut into strings that the protocol can hold. One of an
older version answers INVALID_REQUEST.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraft.broker.services import BrokerServices
from kraft.broker.views.view_error import ViewError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.configs import (
    VIEW_RESOURCE_TYPE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

PIECE_CHARACTERS: Final = 32_000
"""Of ASCII: less than the bytes that a string of the protocol can hold."""
VIEW_VERSION: Final = 4


def is_about_views(body: DescribeConfigsRequest) -> bool:
    return any(one.resource_type == VIEW_RESOURCE_TYPE for one in body.resources)


async def handle_views(services: BrokerServices, body: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Answers a request for one view."""
    if len(body.resources) != 1:
        return _refused(body, "a view is asked for by itself")
    try:
        asked = json.loads(body.resources[0].resource_name)
        view = str(asked.pop("view"))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return _refused(body, 'the name of a view is JSON: {"view": …}')
    if services.views is None:
        return _refused(body, "this broker has no views")
    try:
        pairs = await services.views.tell(view, asked)
    except ViewError as error:
        return _refused(body, str(error))
    configs: list[DescribeConfigsResourceResult] = []
    for key, value in pairs:
        text = json.dumps([key, value]) + "\n"
        configs += [
            DescribeConfigsResourceResult(name=view, value=text[at : at + PIECE_CHARACTERS], read_only=True)
            for at in range(0, len(text), PIECE_CHARACTERS)
        ]
        await asyncio.sleep(0)
    result = DescribeConfigsResult(resource_type=VIEW_RESOURCE_TYPE, resource_name=view, configs=configs)
    return DescribeConfigsResponse(results=[result])


def _refused(body: DescribeConfigsRequest, why: str) -> DescribeConfigsResponse:
    result = DescribeConfigsResult(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=why,
        resource_type=VIEW_RESOURCE_TYPE,
        resource_name="",
    )
    return DescribeConfigsResponse(results=[result] * len(body.resources))


def view_request(view: str, args: Mapping[str, Any]) -> DescribeConfigsRequest:
    """What a broker asks another one."""
    name = json.dumps({"view": view, **args})
    resource = DescribeConfigsResource(resource_type=VIEW_RESOURCE_TYPE, resource_name=name)
    return DescribeConfigsRequest(resources=[resource])


async def view_answer(response: DescribeConfigsResponse) -> Sequence[tuple[str, Any]]:
    """The pairs in an answer. Raises ViewError."""
    for result in response.results:
        if result.error_code:
            raise ViewError(result.error_message or ErrorCode(result.error_code).name)
    text = "".join(config.value or "" for result in response.results for config in result.configs)
    pairs: list[tuple[str, Any]] = []
    for line in text.splitlines():
        try:
            key, value = json.loads(line)
        except (ValueError, TypeError) as error:
            raise ViewError(f"a view is not what it should be: {error}") from error
        pairs.append((key, value))
        await asyncio.sleep(0)
    return pairs
