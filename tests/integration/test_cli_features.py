"""`kraft features` against real nodes, and a cluster that starts at the levels it was formatted with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft.cli.app import run
from kraft.storage import format_node
from kraft.testing.cluster import CLUSTER_ID, Cluster
from partitions.log.errors import DataDirectoryError
from quorum.bootstrap_checkpoint import BOOTSTRAP_CHECKPOINT
from quorum.metadata.features import SUPPORTED_FEATURES
from tests.support.threaded_cluster import ThreadedCluster


class Tool:
    """`kraft features` and what it prints."""

    def __init__(self, bootstrap: str, capfd: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = bootstrap
        self._capfd = capfd

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capfd.readouterr()
        code = run(["features", *arguments, "--bootstrap-server", self._bootstrap])
        return code, *self._capfd.readouterr()

    def levels(self) -> dict[str, int]:
        code, output, errors = self("describe", "--json")
        assert code == 0, errors
        return {row["name"]: row["finalized_version_level"] for row in json.loads(output)["features"]}


@pytest.fixture
def features(shared_cluster: ThreadedCluster, capfd: pytest.CaptureFixture[str]) -> Iterator[Tool]:
    tool = Tool(shared_cluster.bootstrap, capfd)
    yield tool
    assert tool("upgrade", "--feature", "group.version=1")[0] == 0


def test_a_new_cluster_is_at_the_default_levels(features: Tool) -> None:
    assert features.levels() == {name: feature.default for name, feature in SUPPORTED_FEATURES.items()}
    code, output, _ = features("describe")
    shown: list[dict[str, Any]] = [
        dict(field.split(": ") for field in line.split("\t")) for line in output.splitlines()
    ]
    assert code == 0
    epoch = shown[0].pop("Epoch")
    assert int(epoch) > 0
    assert [row["Feature"] for row in shown] == list(SUPPORTED_FEATURES)
    assert shown[1:] == [
        {
            "Feature": name,
            "SupportedMinVersion": lowest,
            "SupportedMaxVersion": highest,
            "FinalizedVersionLevel": level,
            "Epoch": epoch,
        }
        for name, lowest, highest, level in (
            ("group.version", "0", "1", "1"),
            ("kraft.version", "0", "0", "0"),
            ("metadata.version", "4.0-IV3", "4.1-IV0", "4.1-IV0"),
            ("transaction.version", "0", "2", "2"),
        )
    ]


def test_down_and_up_again(features: Tool) -> None:
    down = ("downgrade", "--feature", "group.version=0")
    assert features(*down, "--dry-run")[:2] == (0, "group.version can be downgraded to 0\n")
    assert features.levels()["group.version"] == 1
    assert features(*down)[:2] == (0, "group.version was downgraded to 0\n")
    assert features.levels()["group.version"] == 0
    code, output, _ = features("upgrade", "--feature", "group.version=1", "--json")
    assert (code, json.loads(output)) == (0, {"features": {"group.version": 1}, "dry_run": False})
    assert features.levels()["group.version"] == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("upgrade", "--feature", "group.version=2"), "only supports versions 0-1"),
        (("upgrade", "--feature", "group.version=0"), "Can't downgrade"),
        (
            ("upgrade", "--feature", "no.such=1", "--dry-run"),
            "does not support this feature; it supports eligible",
        ),
        (("downgrade", "--feature", "group.version=0", "--feature", "metadata.version=9"), "versions 25-26"),
    ],
)
def test_what_is_refused_changes_nothing(features: Tool, arguments: tuple[str, ...], sentence: str) -> None:
    before = features.levels()
    code, output, errors = features(*arguments)
    assert (code, output) == (1, "")
    assert sentence in " ".join(errors.split())
    assert features.levels() == before


@pytest.mark.parametrize("arguments", [("upgrade",), ("downgrade", "--feature", "group.version=one")])
def test_wrong_usage(features: Tool, arguments: tuple[str, ...]) -> None:
    code, output, errors = features(*arguments)
    assert (code, output) == (2, "")
    assert "--feature" in errors


def test_nobody_answers(capfd: pytest.CaptureFixture[str]) -> None:
    nobody = Tool("127.0.0.1:1", capfd)
    assert nobody("describe")[0] == 3
    assert nobody("upgrade", "--feature", "group.version=1")[0] == 1


async def test_a_cluster_starts_at_the_levels_it_was_formatted_with(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1, {})
    properties = tmp_path / "server.properties"
    properties.write_text(cluster.properties_of(1))
    format_node(CLUSTER_ID, properties, ignore_formatted=False, features={"group.version": 0})
    await cluster.start()
    try:
        assert broker_levels(cluster) == {
            "eligible.leader.replicas.version": 1,
            "metadata.version": 26,
            "transaction.version": 2,
        }
        await cluster.stop_node(1)
        (cluster.data_directory(1) / BOOTSTRAP_CHECKPOINT).write_text("0\n1\nmetadata.version 25\n")
        await cluster.start_node(1)
        assert broker_levels(cluster) == {
            "eligible.leader.replicas.version": 1,
            "metadata.version": 26,
            "transaction.version": 2,
        }
    finally:
        await cluster.stop()


async def test_a_damaged_choice_is_no_choice(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1, {})
    properties = tmp_path / "server.properties"
    properties.write_text(cluster.properties_of(1))
    format_node(CLUSTER_ID, properties, ignore_formatted=False, features={"group.version": 0})
    (cluster.data_directory(1) / BOOTSTRAP_CHECKPOINT).write_text("0\n1\n")
    with pytest.raises(DataDirectoryError, match=r"bootstrap\.checkpoint is damaged"):
        await cluster.start()


def broker_levels(cluster: Cluster) -> dict[str, int]:
    broker = cluster.nodes[1].broker
    assert broker is not None
    return dict(broker.metadata.image.features)
