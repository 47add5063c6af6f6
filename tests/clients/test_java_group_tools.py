"""Kafka's own console consumer and kafka-consumer-groups on groups of both protocols, where Maven and a JDK are."""

from __future__ import annotations

import pytest

from tests.support.group_members import COMMIT_MS, OFFSETS_TOPIC, Records
from tests.support.java_programs import DOWNLOAD_S, RUN_S, json_objects, run_java
from tests.support.node_processes import NodeProcesses

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
OFFSETS_FORMATTER = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
PARTITIONS = 3
QUIET_MS = 20_000
"""The console consumer ends when it has heard nothing for so long."""

pytestmark = pytest.mark.timeout(DOWNLOAD_S + RUN_S)


def _rows(table: str) -> list[dict[str, str]]:
    """The rows of a table that kafka-consumer-groups prints."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    head = next(number for number, words in enumerate(lines) if words[0] == "GROUP")
    return [dict(zip(lines[head], words, strict=False)) for words in lines[head + 1 :]]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_by_kafkas_own_tools(protocol: str, java_classpath: str, cluster: NodeProcesses) -> None:
    topic, group = cluster.create_topic("tools", PARTITIONS), cluster.new_name(f"tools-{protocol}")
    records = Records(cluster, topic)
    records.write()
    server = ("--bootstrap-server", cluster.bootstrap)

    def groups(*arguments: str) -> str:
        return run_java(java_classpath, CONSUMER_GROUPS, *server, *arguments)

    def consume(*arguments: str) -> list[str]:
        return run_java(java_classpath, CONSOLE_CONSUMER, *server, *arguments).splitlines()

    count = len(records.values)
    join = ("--topic", topic, "--group", group, "--command-property", f"group.protocol={protocol}")
    join += ("--command-property", f"auto.commit.interval.ms={COMMIT_MS}")
    read = consume(*join, "--from-beginning", "--max-messages", str(count))
    assert set(read) == records.values

    listed = _rows(groups("--list", "--state", "--type"))
    assert [row for row in listed if row["GROUP"] == group] == [
        {"GROUP": group, "TYPE": protocol.capitalize(), "STATE": "Empty"}
    ]
    offsets = _rows(groups("--describe", "--group", group))
    assert {(row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in offsets} == {
        (str(number), "10", "0") for number in range(PARTITIONS)
    }
    reset = _rows(
        groups("--reset-offsets", "--group", group, "--topic", f"{topic}:1", "--to-offset", "4", "--execute")
    )
    assert [(row["TOPIC"], row["PARTITION"], row["NEW-OFFSET"]) for row in reset] == [(topic, "1", "4")]
    again = consume(*join, "--max-messages", "6")
    assert set(again) == {f"1-{number}" for number in range(4, 10)}

    dumped = consume(
        *("--topic", OFFSETS_TOPIC, "--from-beginning", "--timeout-ms", str(QUIET_MS)),
        *("--formatter", OFFSETS_FORMATTER),
    )
    committed = [one for one in json_objects("".join(dumped)) if one["key"]["data"]["group"] == group]
    assert {one["key"]["data"]["partition"] for one in committed} == set(range(PARTITIONS))
    assert {one["key"]["data"]["topic"] for one in committed} == {topic}
    assert [one["value"]["data"]["offset"] for one in committed if one["key"]["data"]["partition"] == 1][
        -1
    ] == 10

    groups("--delete", "--group", group)
    assert group not in groups("--list").split()
