"""Views between brokers: asked for in a name, told in strings that the protocol can hold."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.broker.handlers.broker_views import (
    VIEW_VERSION,
    handle_views,
    is_about_views,
    view_answer,
    view_request,
)
from kraft.broker.views.view_error import ViewError
from kraft.broker.views.views import merged, ranges
from kraft.protocol.messages import decode_response, encode_request, encode_response
from kraft.protocol.schemas.configs import (
    VIEW_RESOURCE_TYPE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

ROWS = [[f"topic-{number}", number, "ü" * 10] for number in range(5_000)]


class Views:
    """Tells of `rows`, in two lists."""

    async def tell(self, view: str, args: Any) -> list[tuple[str, Any]]:
        if view != "rows":
            raise ViewError("there is none")
        return [("args", args), ("rows", ROWS[:2_000]), ("rows", ROWS[2_000:])]


async def asked(body: DescribeConfigsRequest, views: Any) -> Any:
    services: Any = SimpleNamespace(views=views)
    answer = await handle_views(services, body)
    data = b"".join(encode_response(answer, VIEW_VERSION)[0])  # type: ignore[arg-type]  # there are no slices
    decoded = decode_response(answer.API_KEY, VIEW_VERSION, data)
    assert isinstance(decoded, DescribeConfigsResponse)
    return await view_answer(decoded)


async def test_a_large_view_arrives_whole() -> None:
    document = merged(await asked(view_request("rows", {"topic": "ä"}), Views()))
    assert document == {"args": {"topic": "ä"}, "rows": ROWS}


def of_names(*names: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=VIEW_RESOURCE_TYPE, resource_name=name) for name in names
        ]
    )


@pytest.mark.parametrize(
    ("body", "views", "why"),
    [
        (view_request("nope", {}), Views(), "there is none"),
        (view_request("rows", {}), None, "this broker has no views"),
        (of_names("a", "b"), Views(), "a view is asked for by itself"),
        *(
            (of_names(name), Views(), "the name of a view is JSON")
            for name in ("", "{}", "[1]", "7", "[" * 20_000)
        ),
    ],
)
async def test_what_is_refused(body: DescribeConfigsRequest, views: Any, why: str) -> None:
    assert is_about_views(body)
    with pytest.raises(ViewError, match=why):
        await asked(body, views)


def test_ten_thousand_partitions_are_named_in_one_request() -> None:
    assert ranges([5, 0, 1, 2, 7, 6]) == [[0, 2], [5, 7]]
    assert ranges([]) == []
    args = {"topic": "t" * 249, "ranges": ranges(range(10_000))}
    assert len(encode_request(view_request("partitions", args), VIEW_VERSION)) < 1_000
    page = {
        "topic": "t" * 249,
        "ranges": ranges(range(0, 100_000, 200)),
    }  # one of 500 rows, none beside another
    assert json.loads(view_request("partitions", page).resources[0].resource_name)["ranges"][1] == [200, 200]
    assert len(encode_request(view_request("partitions", page), VIEW_VERSION)) < 10_000
