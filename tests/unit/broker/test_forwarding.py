"""What is refused here, what is forwarded, and what the client is told of both, in its order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from kraft.broker.handlers import forwarding
from kraft.broker.handlers.forwarding import Forwarded, Refusal, Split, catch_up, refusal
from kraft.protocol.api import APIS, ApiKey, ServedBy
from kraft.protocol.errors import ErrorCode
from quorum.rpc import messages
from quorum.rpc.envelope import RpcError, RpcUnavailable
from tests.support.broker_world import BrokerWorld, topic

NOT_ALLOWED = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
TOLD_ONCE = Refusal(ErrorCode.POLICY_VIOLATION, "too much", once=True)

Result = tuple[str, ErrorCode, str | None]


def refused(items: Iterable[str], why: Refusal) -> list[Result]:
    return list(why.of(items))


def capitals_refused(*items: str) -> Split[str, Result]:
    return Split(items, lambda item: NOT_ALLOWED if item.isupper() else None, refused)


def done(item: str) -> Result:
    return item, ErrorCode.NONE, None


def test_results_come_in_the_order_of_the_request() -> None:
    split = capitals_refused("a", "B", "c", "D", "e")
    assert split.allowed == ["a", "c", "e"]
    assert split.merged(map(done, split.allowed)) == [
        done("a"),
        ("B", *NOT_ALLOWED[:2]),
        done("c"),
        ("D", *NOT_ALLOWED[:2]),
        done("e"),
    ]


def test_nothing_goes_unanswered() -> None:
    """Neither what the controller forgot nor, by what it did not ask for, anything else."""
    split = capitals_refused("a", "B", "c")
    assert [result[:2] for result in split.merged([done("a")])] == [
        ("a", ErrorCode.NONE),
        ("B", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("c", ErrorCode.UNKNOWN_SERVER_ERROR),
    ]
    assert split.merged([done("a"), None]) == [done("a"), ("B", *NOT_ALLOWED[:2])]


def test_a_sentence_that_is_told_once_is_told_first() -> None:
    assert list(TOLD_ONCE.of("ab")) == [
        ("a", ErrorCode.POLICY_VIOLATION, "too much"),
        ("b", ErrorCode.POLICY_VIOLATION, None),
    ]
    assert list(NOT_ALLOWED.of("ab")) == [("a", *NOT_ALLOWED[:2]), ("b", *NOT_ALLOWED[:2])]


CREATION = messages.CreateTopicsRequest((messages.NewTopic("a"),))


def created(forwarded: Forwarded[messages.CreateTopicsResponse]) -> list[Result]:
    return [(result.name, ErrorCode.NONE, None) for result in forwarded.response.topics]


async def test_a_call_that_fails_is_told_of_what_would_have_gone_on(world: BrokerWorld) -> None:
    await world.start()
    world.controller.answer(messages.CreateTopicsRequest, RpcError("NOT_ENOUGH_REPLICAS", "few"))
    results = await capitals_refused("A", "b").forward(world.services, CREATION, 1, created)
    assert results == [("A", *NOT_ALLOWED[:2]), ("b", ErrorCode.NOT_ENOUGH_REPLICAS, "few")]


async def test_nobody_is_asked_for_nothing(world: BrokerWorld) -> None:
    await world.start()
    assert await capitals_refused("A").forward(world.services, CREATION, 1, created) == [
        ("A", *NOT_ALLOWED[:2])
    ]
    assert world.controller.calls == []


@pytest.mark.parametrize("changes", [True, False])
async def test_the_answer_waits_for_the_offset_of_what_was_changed(world: BrokerWorld, changes: bool) -> None:
    await world.start()
    response = messages.CreateTopicsResponse((messages.CreateTopicResult("a"),))
    world.controller.answer(messages.CreateTopicsRequest, response)
    world.controller.offset = world.image.offset + 2
    answer = asyncio.ensure_future(
        capitals_refused("a").forward(world.services, CREATION, 1, created, changes=changes)
    )
    await world.controller.until_called(messages.CreateTopicsRequest, 1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert answer.done() is not changes
    for number in (1, 2):
        assert answer.done() is not changes
        await world.publish(*topic(f"t{number}", number, (1,)))
        async with world.loader._progress:
            world.loader._progress.notify_all()
    assert await answer == [done("a")]


async def test_a_broker_that_lags_holds_nobody_up_for_long(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "CATCH_UP_TIMEOUT_S", 0.01)
    await world.start()
    await catch_up(world.services, world.image.offset + 1)


@pytest.mark.parametrize(
    ("request_", "doubted"), [(CREATION, True), (messages.ListPartitionReassignmentsRequest(), False)]
)
def test_what_was_not_answered_is_in_doubt_where_it_writes(
    request_: messages.RpcRequest[messages.ControllerResponse], doubted: bool
) -> None:
    told = refusal(request_, RpcUnavailable("nobody answered"))
    assert told.code == ErrorCode.REQUEST_TIMED_OUT
    assert told.message is not None
    assert ("may or may not" in told.message) is doubted


def test_every_api_of_the_controller_has_a_method_of_its_name() -> None:
    """But AlterConfigs and IncrementalAlterConfigs, which are one call."""
    forwarded = {key.name.lower() for key, api in APIS.items() if api.served_by is not ServedBy.BROKER}
    assert forwarded - messages.METHODS.keys() == {ApiKey.INCREMENTAL_ALTER_CONFIGS.name.lower()}
