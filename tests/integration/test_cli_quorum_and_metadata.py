"""`kraft quorum`, `kraft metadata`, `kraft configs` and elections against a real cluster in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraft.cli.app import run
from kraft.cli.cluster import DEFAULT_DIR
from tests.support.node_processes import until
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster


class Result(NamedTuple):
    exit_code: int
    lines: list[str]
    errors: str

    @property
    def document(self) -> Any:
        """The one JSON object on standard output."""
        assert self.exit_code == 0, self.errors
        assert len(self.lines) == 1, "exactly one JSON object, on a line"
        return json.loads(self.lines[0])


Kraft = Callable[..., Result]


@pytest.fixture
def kraft(capfd: pytest.CaptureFixture[str]) -> Kraft:
    """Runs a command."""

    def call(*arguments: object) -> Result:
        capfd.readouterr()
        exit_code = run([str(argument) for argument in arguments])
        output, errors = capfd.readouterr()
        return Result(exit_code, output.splitlines(), errors)

    return call


@pytest.fixture
def properties(shared_cluster: ThreadedCluster, tmp_path: Path) -> Path:
    """The server.properties of a node, with the quorum's addresses and its secret."""
    path = tmp_path / "server.properties"
    path.write_text(shared_cluster.cluster.properties_of(1))
    return path


def test_describing_the_quorum(kraft: Kraft, shared_cluster: ThreadedCluster, properties: Path) -> None:
    sources = (["--bootstrap-server", shared_cluster.bootstrap], ["--config", properties])
    for source in sources:
        document = kraft("quorum", "describe", *source, "--json").document
        assert document["leader_id"] in (1, 2, 3)
        assert document["high_watermark"] > 0
        assert [voter["id"] for voter in document["current_voters"]] == [1, 2, 3]
        assert all(voter["endpoints"][0].startswith("CONTROLLER://") for voter in document["current_voters"])
        rows = document["replication"]
        assert [row["status"] for row in rows[:3]] == ["Leader", "Follower", "Follower"]
        assert rows[0]["node_id"] == document["leader_id"]
        assert rows[0]["log_end_offset"] >= document["high_watermark"]
        assert all(row["node_id"] >= 0 for row in rows), "a tool is no observer"
        status = kraft("quorum", "describe", *source, "--status", "--json").document
        assert "replication" not in status
        assert status["cluster_id"] == document["cluster_id"]
        assert kraft("quorum", "describe", *source, "--replication", "--json").document.keys() == {
            "replication"
        }
    shown = kraft("quorum", "describe", *sources[0])
    assert shown.lines[0].startswith("ClusterId:  ")
    assert shown.lines[6].startswith("CurrentVoters:  ")
    assert [line.split()[0] for line in shown.lines[7:9]] == ["2", "3"]
    table = [line.split() for line in shown.lines[11:]]
    assert table[0] == [
        "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetch", "LastCaughtUp", "Status",
    ]  # fmt: skip
    assert [len(row) for row in table] == [7] * 4
    times = kraft("quorum", "describe", *sources[0], "--replication", "--timestamps")
    assert int(times.lines[2].split()[4]) > 1_700_000_000_000


def test_the_metadata_of_the_controllers_and_of_every_disk_agree(
    kraft: Kraft, shared_cluster: ThreadedCluster, properties: Path
) -> None:
    topic = shared_cluster.create_topic("browsed", 2, retention_ms="77000")
    path = f"/topics/by-name/{topic}/1/data"
    asked = kraft("metadata", "shell", "--config", properties, "cat", path)
    assert asked.exit_code == 0, asked.errors
    assert json.loads("".join(asked.lines))["replicas"]
    for node_id in (1, 2, 3):
        directory = shared_cluster.cluster.data_directory(node_id)

        def shown(directory: Path = directory) -> bool:
            """Once this voter has what the leader has committed."""
            return kraft("metadata", "shell", "--dir", directory, "cat", path).lines == asked.lines

        until(shown, f"node {node_id} has the topic on its disk")
    configs = kraft(
        "metadata", "shell", "--config", properties, "cat", f"/configs/topic/{topic}/retention.ms"
    )
    assert configs.lines == ["77000"]
    assert kraft("metadata", "shell", "--config", properties, "ls", "/brokers").lines == ["1", "2", "3"]
    for command, exit_code in ((("ls", "/no"), 1), (("no",), 2), (("pwd", "/"), 2), (("exit",), 0)):
        assert kraft("metadata", "shell", "--config", properties, *command).exit_code == exit_code


def test_dumping_a_running_node(kraft: Kraft, shared_cluster: ThreadedCluster, properties: Path) -> None:
    topic = shared_cluster.create_topic("dumped", 2)
    directory = shared_cluster.cluster.data_directory(1)

    def found() -> dict[str, Any] | None:
        document = kraft("metadata", "dump", "--dir", directory, "--json").document
        entries = [
            entry
            for entry in document["entries"]
            if {"type": "Topic", "name": topic}.items() <= (entry["records"] or [{}])[0].items()
        ]
        return entries[0] if entries else None

    entry = until(found, "the topic is in node 1's journal")
    assert [record["type"] for record in entry["records"]] == ["Topic", "Partition", "Partition"]
    assert entry["rejected"] is None
    offset = entry["offset"]
    lines = kraft("metadata", "dump", "--dir", directory, "--from", offset, "--to", offset).lines
    assert len(lines) == 3
    assert lines[0].startswith(f"{offset} {entry['epoch']} Topic name={topic} topic_id=")
    asked = kraft("metadata", "dump", "--config", properties, "--from", offset, "--to", offset)
    assert asked.lines == lines
    image = kraft("metadata", "dump", "--config", properties, "--json").document["entries"]
    assert [entry["snapshot"] for entry in image] == [True]
    assert topic in {record.get("name") for record in image[0]["records"]}


def test_a_range_that_begins_before_what_the_controller_has(
    kraft: Kraft, shared_cluster: ThreadedCluster, properties: Path
) -> None:
    directory = shared_cluster.cluster.data_directory(1)
    on_disk = kraft("metadata", "dump", "--dir", directory, "--from", 2, "--to", 9).lines
    for range_ in (("--to", 9), ("--from", 0, "--to", 9), ("--from", 1, "--to", 9), ("--from", 2, "--to", 9)):
        asked = kraft("metadata", "dump", "--config", properties, *range_)
        assert asked.exit_code == 0, asked.errors
        offsets = [int(line.split()[0]) for line in asked.lines]
        assert offsets == [int(line.split()[0]) for line in on_disk]
        assert offsets[0] == 2


def test_a_wrong_secret_and_nobody_there_are_sentences(
    kraft: Kraft, shared_cluster: ThreadedCluster, properties: Path
) -> None:
    """The cluster has a secret of its own, so a broker's word is not enough."""
    refused = kraft("metadata", "dump", "--bootstrap-server", shared_cluster.bootstrap)
    assert (refused.exit_code, refused.lines) == (1, [])
    assert f"--config FILE (of a `kraft cluster`: {DEFAULT_DIR}/node-1/server.properties" in refused.errors
    properties.write_text(properties.read_text().replace("of the test", "of somebody else"))
    for command in (("quorum", "describe"), ("metadata", "dump"), ("metadata", "shell", "ls")):
        refused = kraft(*command, "--config", properties)
        assert (refused.exit_code, refused.lines) == (1, [])
        assert "secret" in refused.errors
        unanswered = kraft(*command, "--bootstrap-server", "127.0.0.1:1")
        assert unanswered.exit_code == 3


def test_a_cluster_without_a_secret_of_its_own_and_with_snapshots(kraft: Kraft) -> None:
    """A broker's word is enough to find the controllers; a snapshot and what follows it are read while the
    node replaces it."""
    properties = {
        "controller.listener.secret": "",
        "metadata.log.max.record.bytes.between.snapshots": "1000",
    }
    with threaded_cluster(1, properties) as own:
        directory = own.cluster.data_directory(1)
        topics = []

        def snapshot_is_there() -> bool:
            topics.append(own.create_topic("many", 5, replication_factor=1))
            document = kraft("metadata", "dump", "--dir", directory, "--json").document
            return bool(document["entries"][0]["snapshot"])

        until(snapshot_is_there, "the node wrote a snapshot")
        names = [
            kraft("metadata", "shell", *source, "ls", "/topics/by-name").lines
            for source in (("--bootstrap-server", own.bootstrap), ("--dir", directory))
        ]
        assert names == [sorted(topics)] * 2
        (snapshot, *_) = sorted((directory / "__cluster_metadata-0").glob("*.checkpoint"))
        shown = kraft("metadata", "dump", snapshot)
        assert shown.exit_code == 0, shown.errors
        assert any(f" Topic name={topics[0]} " in line for line in shown.lines)


def test_configs_of_topics_and_brokers(kraft: Kraft, shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("configured", retention_ms="5000")
    bootstrap = ("--bootstrap-server", shared_cluster.bootstrap)
    of_topic = ("--entity-type", "topics", "--entity-name", topic, *bootstrap)

    def values(*options: str) -> dict[str, str]:
        document = kraft("configs", "describe", *options, "--json").document
        return {config["name"]: config["value"] for config in document["configs"]}

    assert values(*of_topic) == {"retention.ms": "5000"}
    changed = kraft("configs", "alter", *of_topic, "--add-config", "min.insync.replicas=2",
                    "--delete-config", "retention.ms", "--json").document  # fmt: skip
    assert (changed["set"], changed["deleted"]) == ({"min.insync.replicas": "2"}, ["retention.ms"])
    assert values(*of_topic) == {"min.insync.replicas": "2"}
    assert values(*of_topic, "--all")["retention.ms"] == "-1", "what the cluster's nodes were configured with"
    assert (
        kraft("configs", "alter", *of_topic, "--add-config", "retention.ms=9", "--validate-only").exit_code
        == 0
    )
    assert values(*of_topic) == {"min.insync.replicas": "2"}
    for arguments, exit_code in (
        (("alter", *of_topic, "--add-config", "no.such.key=1"), 1),
        (("alter", *of_topic, "--add-config", "retention.ms=soon"), 1),
        (("alter", *of_topic, "--add-config", "novalue"), 2),
        (("alter", *of_topic), 2),
        (("describe", "--entity-type", "topics", "--entity-name", "no-such-topic", *bootstrap), 1),
        (("describe", "--entity-type", "topics", "--entity-default", *bootstrap), 2),
        (("describe", "--entity-type", "brokers", *bootstrap), 2),
        (("describe", "--entity-type", "brokers", "--entity-name", "one", *bootstrap), 2),
        (("describe", "--entity-type", "brokers", "--entity-name", "99", *bootstrap), 1),
    ):
        result = kraft("configs", *arguments)
        assert (result.exit_code, result.lines) == (exit_code, []), (arguments, result.errors)
        assert result.errors.strip(), arguments
    of_broker = values("--entity-type", "brokers", "--entity-name", "2", "--all", *bootstrap)
    assert of_broker["node.id"] == "2"


def test_electing_leaders(kraft: Kraft, shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("elected", 3)
    bootstrap = ("--bootstrap-server", shared_cluster.bootstrap)
    elect = ("topics", "elect-leaders", *bootstrap, "--election-type", "preferred")
    document = kraft(*elect, topic, "--json").document
    assert document["election_type"] == "preferred"
    assert (document["elected"], document["failed"]) == ([], [])
    assert [row["partition"] for row in document["not_needed"]] == [0, 1, 2]
    missing = kraft(*elect, topic, "--partition", 7)
    assert missing.exit_code == 1
    assert f"{topic}-7" in missing.errors
    for every in ("--all", "--all-topic-partitions"):
        assert kraft(*elect, every).exit_code == 0
    for arguments in ((), (topic, "--all"), ("--all", "--partition", 0), (topic, "--election-type", "any")):
        assert kraft(*elect, *arguments).exit_code == 2
    untyped = kraft("topics", "elect-leaders", topic, *bootstrap)
    assert (untyped.exit_code, "--election-type preferred, or unclean" in untyped.errors) == (2, True)


def test_changes_to_topics_as_json(kraft: Kraft, shared_cluster: ThreadedCluster) -> None:
    options = ("--bootstrap-server", shared_cluster.bootstrap, "--json")
    created = kraft(
        "topics", "create", "spoken", "--partitions", 2, "--replication-factor", 3, *options
    ).document
    assert created.keys() == {"name", "topic_id", "partitions", "replication_factor", "created"}
    assert (created["partitions"], created["replication_factor"]) == (2, 3)
    assert kraft("topics", "alter", "spoken", "--partitions", 3, *options).document == {
        "name": "spoken",
        "partitions": 3,
    }
    assert kraft("topics", "delete", "spoken", *options).document == {
        "name": "spoken",
        "topic_id": created["topic_id"],
    }
    assert kraft("topics", "delete", "spoken", *options).exit_code == 1


def test_the_version(kraft: Kraft) -> None:
    assert kraft("--version").lines == kraft("version").lines
    assert kraft("--version").exit_code == 0
