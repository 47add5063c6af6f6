"""`kraft configs alter --add-config`, as Kafka's tool reads it, and `kraft topics alter`, which reads it alike."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kraft.cli.app import run
from kraft.cli.configs import parse_configs, split_list
from kraft.protocol.schema import Message
from kraft.protocol.schemas.alter_configs import AlterConfigsResourceResponse
from kraft.protocol.schemas.incremental_alter_configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraft.user_error import EXIT_DONE, EXIT_USAGE, UserError
from tests.support.fake_broker import FakeCluster


@pytest.mark.parametrize(
    ("texts", "pairs"),
    [
        (["a=1"], [("a", "1")]),
        (["a=1,b=2", "c=3"], [("a", "1"), ("b", "2"), ("c", "3")]),
        (["a=[x,y],b=2"], [("a", "x,y"), ("b", "2")]),
        (["b=2, a=[x, y]"], [("b", "2"), ("a", "x, y")]),
        (["a=[x]"], [("a", "x")]),
        (["a="], [("a", "")]),
        (["a=[]"], [("a", "")]),
        (["a=b=c"], [("a", "b=c")]),
        (["a=[k=v,l=w],b=[m]"], [("a", "k=v,l=w"), ("b", "m")]),
        ([], []),
    ],
)
def test_what_is_read(texts: list[str], pairs: list[tuple[str, str]]) -> None:
    assert parse_configs(texts, "--add-config") == pairs


@pytest.mark.parametrize("text", ["a", "=1", "cleanup.policy=compact,delete", "", "a=1,"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(UserError, match="in brackets") as error:
        parse_configs([text], "--add-config")
    assert error.value.exit_code == EXIT_USAGE


def test_names_are_listed() -> None:
    assert split_list(["a,b", " c ", ",", ""]) == ["a", "b", "c"]


class Configured(FakeCluster):
    def answer(self, broker_id: int, request: Message) -> Message:
        if not isinstance(request, IncrementalAlterConfigsRequest):
            return super().answer(broker_id, request)
        self.requests.append((broker_id, request))
        (resource,) = request.resources
        response = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        return IncrementalAlterConfigsResponse(responses=[response])


@pytest.fixture
def cluster() -> Iterator[Configured]:
    with Configured() as made:
        made.create_topic("t")
        yield made


@pytest.mark.parametrize(
    "command",
    [
        (
            "configs", "alter", "--entity-type", "topics", "--entity-name", "t",
            "--add-config", "cleanup.policy=[compact,delete],retention.ms=5", "--delete-config", "x,y",
        ),
        (
            "topics", "alter", "t", "--config", "cleanup.policy=[compact,delete]", "--config", "retention.ms=5",
            "--delete-config", "x", "--delete-config", "y",
        ),
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_what_is_asked_for(
    command: tuple[str, ...], cluster: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--json", "--bootstrap-server", cluster.bootstrap]) == EXIT_DONE
    document = json.loads(capsys.readouterr().out)
    assert document["set"] == {"cleanup.policy": "compact,delete", "retention.ms": "5"}
    assert document["deleted"] == ["x", "y"]
    (request,) = cluster.asked(IncrementalAlterConfigsRequest)
    assert [(one.name, one.config_operation, one.value) for one in request.resources[0].configs] == [
        ("cleanup.policy", ConfigOperation.SET, "compact,delete"),
        ("retention.ms", ConfigOperation.SET, "5"),
        ("x", ConfigOperation.DELETE, None),
        ("y", ConfigOperation.DELETE, None),
    ]


@pytest.mark.parametrize("options", [(), ("--partitions", "3", "--config", "retention.ms=5")])
def test_a_topic_is_altered_in_one_way_at_a_time(
    options: tuple[str, ...], cluster: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topics", "alter", "t", *options, "--bootstrap-server", cluster.bootstrap]) == EXIT_USAGE
    assert "--partitions" in capsys.readouterr().err
    assert cluster.requests == []
