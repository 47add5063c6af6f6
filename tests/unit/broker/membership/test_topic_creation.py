"""Topics that are made because somebody needs them: one call for each, and everybody hears what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kraft.broker.membership import topic_creation
from kraft.protocol.errors import ErrorCode
from quorum.rpc.envelope import RpcUnavailable
from quorum.rpc.messages import (
    CreateTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    Mutator,
    NewTopic,
)
from tests.support.broker_world import BrokerWorld, topic, topic_id

OFFSETS = NewTopic("__offsets", 50, 3, configs=(("cleanup.policy", "compact"),))
REFUSED = CreateTopicsResponse((CreateTopicResult("__offsets", "INVALID_REPLICATION_FACTOR"),))


def soon(world: BrokerWorld, *topics: NewTopic, timeout_s: float = 5.0) -> asyncio.Task[dict[str, ErrorCode]]:
    return asyncio.create_task(world.services.topic_creation.ensure(topics, timeout_s))


def made(world: BrokerWorld) -> None:
    """The controller makes what it is asked for."""
    numbers: Iterator[int] = iter(range(1, 100))

    def make(call: CreateTopicsRequest) -> CreateTopicsResponse:
        results = []
        for new in call.topics:
            number = next(numbers)
            world.publish_soon(*topic(new.name, number, (1,)))
            results.append(CreateTopicResult(new.name, topic_id=topic_id(number)))
        return CreateTopicsResponse(tuple(results))

    world.controller.always(CreateTopicsRequest, make)


def calls(world: BrokerWorld) -> list[list[str]]:
    return [[new.name for new in call.topics] for call in world.controller.calls_of(CreateTopicsRequest)]


async def test_what_is_missing_is_made_as_it_is_asked_for(world: BrokerWorld) -> None:
    await world.start(*topic("there", 99, (1,)))
    made(world)
    assert await soon(world, OFFSETS, NewTopic("there"), NewTopic("a b")) == {
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION
    }
    assert world.controller.calls == [CreateTopicsRequest((OFFSETS,))]
    assert world.image.topic("__offsets") is not None
    assert await soon(world, OFFSETS) == {}
    assert len(world.controller.calls) == 1, "it is there"


async def test_one_call_is_in_flight_for_a_topic(world: BrokerWorld) -> None:
    await world.start()
    first = soon(world, OFFSETS)
    await world.controller.until_called(CreateTopicsRequest, 1)
    await asyncio.sleep(0)  # the controller will never answer it
    made(world)
    second, third = soon(world, OFFSETS, NewTopic("u")), soon(world, OFFSETS)
    await world.controller.until_called(CreateTopicsRequest, 2)
    assert calls(world) == [["__offsets"], ["u"]]
    first.cancel()
    assert await second == await third == {}
    assert calls(world) == [["__offsets"], ["u"], ["__offsets"]], "which those who wait have made anew"
    assert world.services.topic_creation._calls == {}


async def test_why_it_was_refused_is_told_to_all_who_wait(world: BrokerWorld) -> None:
    await world.start()
    world.controller.answer(CreateTopicsRequest, REFUSED)
    asked = [soon(world, OFFSETS) for _ in range(3)]
    outcome = {"__offsets": ErrorCode.INVALID_REPLICATION_FACTOR}
    assert await asyncio.gather(*asked) == [outcome] * 3
    assert len(world.controller.calls) == 1


async def test_a_call_that_failed_is_not_repeated_by_each(world: BrokerWorld) -> None:
    await world.start()
    world.controller.answer(CreateTopicsRequest, RpcUnavailable("nobody"))
    asked = [soon(world, OFFSETS) for _ in range(3)]
    assert await asyncio.gather(*asked) == [{}] * 3
    assert len(world.controller.calls) == 1


async def test_time_that_is_over_ends_a_wait_for_others_too(world: BrokerWorld) -> None:
    await world.start()
    first = soon(world, OFFSETS)
    await world.controller.until_called(CreateTopicsRequest, 1)
    assert await soon(world, OFFSETS, timeout_s=0.001) == {}
    assert not first.done()
    assert await soon(world, NewTopic("u"), timeout_s=0.001) == {}
    first.cancel()


async def test_so_many_are_made_at_once(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_creation, "TOPICS_MAX", 2)
    await world.start()
    first = soon(world, OFFSETS)
    await world.controller.until_called(CreateTopicsRequest, 1)
    assert await soon(world, *(NewTopic(f"t{n}") for n in range(3))) == {}
    assert calls(world) == [["__offsets"]], "there is no room"
    made(world)
    assert await soon(world, NewTopic("u")) == {}
    assert calls(world) == [["__offsets"], ["u"]]
    first.cancel()


async def test_who_has_exceeded_its_quota_may_ask_again(world: BrokerWorld) -> None:
    await world.start()
    alice = Mutator("alice", "app", strict=True)
    throttled = CreateTopicsResponse((CreateTopicResult("new", "THROTTLING_QUOTA_EXCEEDED"),), 500)
    world.controller.answer(CreateTopicsRequest, throttled)
    assert await world.services.topic_creation.ensure([NewTopic("new")], mutator=alice) == {}
    assert [call.mutator for call in world.controller.calls_of(CreateTopicsRequest)] == [alice]
