"""AlterConfigs and IncrementalAlterConfigs: what is refused here, what reaches the controller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraft.broker.handlers.forwarding import MAX_ITEMS
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas import alter_configs as whole
from kraft.protocol.schemas import incremental_alter_configs as incremental
from kraft.protocol.schemas.configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Config
from quorum.rpc import messages
from quorum.rpc.envelope import RpcError, RpcUnavailable
from tests.support.broker_world import BrokerWorld, topic

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
LOGGER = ConfigResourceType.BROKER_LOGGER
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

Change = tuple[str, int, str | None]


def resource(kind: int, name: str, *changes: Change) -> incremental.AlterConfigsResource:
    return incremental.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[incremental.AlterableConfig(name=k, config_operation=op, value=v) for k, op, v in changes],
    )


async def alter(world: BrokerWorld, *resources: incremental.AlterConfigsResource, **fields: Any) -> Any:
    body = incremental.IncrementalAlterConfigsRequest(resources=list(resources), **fields)
    return (await world.handle(body, 1)).responses


def accepting(world: BrokerWorld) -> None:
    """The controller makes every change that it is asked for."""

    def made(call: messages.AlterConfigsRequest) -> messages.AlterConfigsResponse:
        if not call.validate_only:
            for changed in call.resources:
                for change in changed.changes:
                    world.publish_soon(
                        Config(changed.resource_type, changed.resource_name, change.key, change.value)
                    )
        results = (messages.AlterConfigsResult(r.resource_type, r.resource_name) for r in call.resources)
        return messages.AlterConfigsResponse(tuple(results))

    world.controller.always(messages.AlterConfigsRequest, made)


async def test_changes_reach_the_controller_as_they_are(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    refused = messages.AlterConfigsResult("topic", "t", "INVALID_CONFIG", "no such key")
    world.controller.answer(messages.AlterConfigsRequest, messages.AlterConfigsResponse((refused,)))
    changes: tuple[Change, ...] = (
        ("a", SET, "1"),
        ("b", DELETE, "ignored"),
        ("c", APPEND, "x"),
        ("d", SUBTRACT, "y"),
    )
    (response,) = await alter(world, resource(TOPIC, "t", *changes), validate_only=True)
    (call,) = world.controller.calls
    assert call.validate_only
    assert call.resources == (
        messages.ConfigResourceChange(
            "topic",
            "t",
            (
                messages.ConfigChange("a", "1", messages.SET),
                messages.ConfigChange("b", None, messages.DELETE),
                messages.ConfigChange("c", "x", messages.APPEND),
                messages.ConfigChange("d", "y", messages.SUBTRACT),
            ),
        ),
    )
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_CONFIG, "no such key")
    assert (response.resource_type, response.resource_name) == (TOPIC, "t")


async def test_the_older_api_replaces_everything(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    accepting(world)
    config = whole.AlterableConfig(name="retention.ms", value="5")
    wanted = whole.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
    response = await world.handle(whole.AlterConfigsRequest(resources=[wanted]), 2)
    (call,) = world.controller.calls
    assert call.resources[0].replace_all
    assert call.resources[0].changes == (messages.ConfigChange("retention.ms", "5", messages.SET),)
    assert [r.error_code for r in response.responses] == [ErrorCode.NONE]


async def test_what_a_broker_can_tell_is_refused_without_asking(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    wanted = [
        resource(TOPIC, "t", ("a", SET, "1"), ("a", DELETE, None)),
        resource(TOPIC, "u", ("a", SET, None)),
        resource(TOPIC, "v", ("a", 9, "1")),
        resource(BROKER, "2", ("log.retention.ms", SET, "1")),
        resource(BROKER, "one", ("log.retention.ms", SET, "1")),
        resource(BROKER, "1", ("node.id", SET, "5")),
        resource(BROKER, "", ("log.retention.ms", SET, "soon")),
        resource(TOPIC, "twice"),
        resource(TOPIC, "twice"),
    ]
    responses = await alter(world, *wanted)
    assert [(r.resource_type, r.resource_name) for r in responses] == [
        (w.resource_type, w.resource_name) for w in wanted
    ]
    assert {r.error_code for r in responses} == {ErrorCode.INVALID_REQUEST}
    assert all(r.error_message for r in responses)
    assert world.controller.calls == []


async def levels(world: BrokerWorld) -> dict[str, str]:
    asked = DescribeConfigsResource(resource_type=LOGGER, resource_name="1")
    (result,) = world.handle(DescribeConfigsRequest(resources=[asked]), 4).results
    return {entry.name: entry.value for entry in result.configs}


async def test_levels_of_loggers_are_this_nodes_own(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    accepting(world)
    responses = await alter(
        world,
        resource(TOPIC, "t", ("retention.ms", SET, "5")),
        resource(LOGGER, "1", ("kraft", SET, "DEBUG"), ("root", SET, "WARN")),
        resource(TOPIC, "t", ("retention.ms", SET, "5")),
    )
    assert [(r.resource_type, r.error_code) for r in responses] == [
        (TOPIC, ErrorCode.INVALID_REQUEST),
        (LOGGER, ErrorCode.NONE),
        (TOPIC, ErrorCode.INVALID_REQUEST),
    ]
    assert world.controller.calls == []
    found = await levels(world)
    assert (found["root"], found["kraft"], found["quorum"]) == ("WARN", "DEBUG", "WARN")
    responses = await alter(
        world,
        resource(LOGGER, "1", ("kraft", DELETE, None)),
        resource(TOPIC, "t", ("retention.ms", SET, "5")),
    )
    assert [(r.resource_type, r.error_code) for r in responses] == [(LOGGER, 0), (TOPIC, 0)]
    assert [r.resource_name for r in world.controller.calls[0].resources] == ["t"]
    assert (await levels(world))["kraft"] == "WARN"


@pytest.mark.parametrize(
    ("name", "changes", "code", "says"),
    [
        ("2", [("kraft", SET, "DEBUG")], ErrorCode.INVALID_REQUEST, "expected 1, but received '2'"),
        ("", [("kraft", SET, "DEBUG")], ErrorCode.INVALID_REQUEST, "expected 1, but received ''"),
        ("1", [("no.such", SET, "DEBUG")], ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        ("1", [("no.such", DELETE, None)], ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        ("1", [("kraft", SET, "debug")], ErrorCode.INVALID_CONFIG, "FATAL, ERROR, WARN, INFO, DEBUG, TRACE"),
        ("1", [("kraft", SET, "OFF")], ErrorCode.INVALID_CONFIG, "not a supported log level"),
        ("1", [("kraft", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported"),
        ("1", [("kraft", APPEND, "DEBUG")], ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed"),
        ("1", [("kraft", SUBTRACT, "DEBUG")], ErrorCode.INVALID_REQUEST, "SUBTRACT operation is not allowed"),
        ("1", [("kraft", 9, "DEBUG")], ErrorCode.INVALID_REQUEST, "none of 0"),
        ("1", [("root", DELETE, None)], ErrorCode.INVALID_REQUEST, "root logger is not allowed"),
        ("1", [("kraft", SET, "DEBUG"), ("kraft", DELETE, None)], ErrorCode.INVALID_REQUEST, "duplicate"),
        ("1", [("quorum", SET, "DEBUG"), ("x", SET, "DEBUG")], ErrorCode.INVALID_CONFIG, "Logger x"),
    ],
)
async def test_levels_that_cannot_be_set(
    world: BrokerWorld, name: str, changes: list[Change], code: ErrorCode, says: str
) -> None:
    await world.start()
    before = await levels(world)
    (response,) = await alter(world, resource(LOGGER, name, *changes))
    assert response.error_code == code
    assert says in response.error_message
    assert await levels(world) == before


async def test_levels_are_only_checked_where_that_is_all_that_was_asked(world: BrokerWorld) -> None:
    await world.start()
    before = await levels(world)
    (response,) = await alter(world, resource(LOGGER, "1", ("kraft", SET, "DEBUG")), validate_only=True)
    assert response.error_code == 0
    twice = [resource(LOGGER, "1", ("kraft", SET, "DEBUG"))] * 2
    assert {r.error_code for r in await alter(world, *twice)} == {ErrorCode.INVALID_REQUEST}
    config = whole.AlterableConfig(name="kraft", value="DEBUG")
    wanted = whole.AlterConfigsResource(resource_type=LOGGER, resource_name="1", configs=[config])
    (older,) = (await world.handle(whole.AlterConfigsRequest(resources=[wanted]), 2)).responses
    assert older.error_code == ErrorCode.INVALID_REQUEST
    assert await levels(world) == before


@pytest.mark.parametrize(
    ("name", "key", "value", "word"),
    [
        ("1", "no.such.key", "1", "Unknown"),
        ("1", "num.partitions", "3", "dynamically"),
        ("1", "log.retention.hours", "3", "dynamically"),
        ("1", "min.insync.replicas", "2", "single broker"),
        ("", "log.segment.bytes", "1", "between"),
    ],
)
async def test_keys_of_brokers_that_cannot_be_set(
    world: BrokerWorld, name: str, key: str, value: str, word: str
) -> None:
    await world.start()
    (response,) = await alter(world, resource(BROKER, name, (key, SET, value)))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert word in response.error_message
    assert key in response.error_message


async def test_good_and_bad_are_answered_each_by_itself(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    accepting(world)
    responses = await alter(
        world,
        resource(BROKER, "1", ("node.id", SET, "5")),
        resource(TOPIC, "t", ("retention.ms", SET, "5")),
    )
    assert [r.error_code for r in responses] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert [r.resource_name for r in world.controller.calls[0].resources] == ["t"]


async def test_a_brokers_own_defaults_reach_its_logs_at_once(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)), *topic("u", 2, (1,)), Config("topic", "u", "retention.ms", "7"))
    accepting(world)
    logs = {name: world.logs.get(TopicPartition(name, 0)) for name in ("t", "u")}

    def retention() -> list[int]:
        return [log.config.retention_ms for log in logs.values() if log is not None]

    assert retention() == [604_800_000, 7]
    await alter(world, resource(BROKER, "", ("log.retention.ms", SET, "5000")))
    assert retention() == [5000, 7]
    await alter(world, resource(BROKER, "1", ("log.retention.ms", SET, "6000")))
    assert retention() == [6000, 7]
    await alter(world, resource(BROKER, "1", ("log.retention.ms", DELETE, None)))
    assert retention() == [5000, 7]
    await world.publish(*topic("new", 3, (1,)))
    new = world.logs.get(TopicPartition("new", 0))
    assert new is not None
    assert new.config.retention_ms == 5000


async def test_the_answer_waits_until_this_broker_knows_the_change(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    done = messages.AlterConfigsResult("topic", "t")
    world.controller.answer(messages.AlterConfigsRequest, messages.AlterConfigsResponse((done,)))
    world.controller.offset = world.image.offset + 1
    answer = asyncio.ensure_future(alter(world, resource(TOPIC, "t", ("retention.ms", SET, "5"))))
    await world.controller.until_called(messages.AlterConfigsRequest, 1)
    await asyncio.sleep(0)
    assert not answer.done()
    await world.publish(Config("topic", "t", "retention.ms", "5"))
    async with world.loader._progress:
        world.loader._progress.notify_all()
    assert (await answer)[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RpcUnavailable("nobody"), ErrorCode.REQUEST_TIMED_OUT),
        (RpcError("THROTTLING_QUOTA_EXCEEDED", "later"), ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        (RpcError("NO_ERROR_OF_KAFKA", "what"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_call_that_fails_is_told_for_every_resource(
    world: BrokerWorld, error: RpcError, code: ErrorCode
) -> None:
    await world.start()
    world.controller.answer(messages.AlterConfigsRequest, error)
    responses = await alter(world, resource(TOPIC, "t"), resource(TOPIC, "u"))
    assert [r.error_code for r in responses] == [code, code]


async def test_a_request_that_is_too_large_is_refused_whole(world: BrokerWorld) -> None:
    await world.start()
    many = [resource(TOPIC, f"t{n}") for n in range(MAX_ITEMS + 1)]
    large = [resource(TOPIC, f"t{n}", ("key", SET, "v" * 30_000)) for n in range(200)]
    for wanted in (many, large):
        responses = await alter(world, *wanted)
        assert {r.error_code for r in responses} == {ErrorCode.POLICY_VIOLATION}
    assert world.controller.calls == []
