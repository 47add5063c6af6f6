"""`kraft topics describe`: one topic, several by an expression, all; on a terminal, and piped."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kraft.cli.app import run
from kraft.protocol.schema import Message
from kraft.protocol.schemas.cluster import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kraft.protocol.schemas.configs import (
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_USAGE
from tests.support.fake_broker import FakeCluster


class Described(FakeCluster):
    def answer(self, broker_id: int, request: Message) -> Message:
        if isinstance(request, DescribeConfigsRequest):
            source = ConfigSource.DYNAMIC_TOPIC_CONFIG
            config = DescribeConfigsResourceResult(name="retention.ms", value="5", config_source=source)
            return DescribeConfigsResponse(results=[DescribeConfigsResult(configs=[config])])
        if isinstance(request, DescribeTopicPartitionsRequest):
            return DescribeTopicPartitionsResponse()
        return super().answer(broker_id, request)


@pytest.fixture
def cluster() -> Iterator[Described]:
    with Described(2) as made:
        made.create_topic("orders", leaders=(1, 2))
        made.create_topic("orders.eu", leaders=(-1,))
        made.topics["orders"].partitions[1].append([(0, None, b"v", ())])
        yield made


def describe(cluster: Described, *arguments: str) -> int:
    return run(["topics", "describe", *arguments, "--bootstrap-server", cluster.bootstrap])


def test_a_name_is_one_topic_and_an_expression_several(
    cluster: Described, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, expected in (
        ("orders.*", ["orders", "orders.eu"]),
        ("orders[.].*", ["orders.eu"]),
        ("x.*", []),
        (None, ["orders", "orders.eu"]),
    ):
        assert describe(cluster, *([] if name is None else [name]), "--json") == EXIT_DONE
        assert [one["name"] for one in json.loads(capsys.readouterr().out)["topics"]] == expected
    assert describe(cluster, "orders.eu", "--json") == EXIT_DONE
    assert json.loads(capsys.readouterr().out)["name"] == "orders.eu"
    assert describe(cluster, "nosuch", "--json") == EXIT_FAILED
    assert describe(cluster, "orders(") == EXIT_USAGE
    capsys.readouterr()
    assert describe(cluster, "x.*") == EXIT_DONE
    assert capsys.readouterr() == ("", "no topic matches x.*\n")


def test_piped_topics_are_one_table(cluster: Described, capsys: pytest.CaptureFixture[str]) -> None:
    assert describe(cluster) == EXIT_DONE
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        [
            *["topic", "partition", "leader", "epoch", "replicas", "isr", "elr", "offline"],
            *["high-watermark", "lag", "log-ends"],
        ],
        ["orders", "0", "1", "0", "1", "1", "-", "-", "0", "0", "1:0"],
        ["orders", "1", "2", "0", "2", "2", "-", "-", "1", "0", "2:1"],
        ["orders.eu", "0", "none", "0", "-1", "-1", "-", "-", "?", "-1:?", "-"],
    ]  # fmt: skip


def test_on_a_terminal_each_topic_has_its_table(
    cluster: Described, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("kraft.cli.shared.output", "kraft.cli.topics.describe"):
        monkeypatch.setattr(f"{module}.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert describe(cluster, "orders") == EXIT_DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("): retention.ms=5")
    assert lines[1:] == [
        "partition  leader  epoch  replicas  isr  high watermark  lag",
        "0          1       0      1         1    0               0",
        "1          2       0      2         2    1               0",
    ]
    assert describe(cluster, "orders", "--wide") == EXIT_DONE
    assert capsys.readouterr().out.splitlines()[1].split() == (
        [
            "partition",
            "leader",
            "epoch",
            "replicas",
            "isr",
            "elr",
            "offline",
            "high",
            "watermark",
            "lag",
            "log",
            "ends",
        ]
    )
    assert describe(cluster) == EXIT_DONE
    assert "" in capsys.readouterr().out.splitlines(), "a line between topics"
