"""Which folders a starting node goes by, when some of them are gone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kraft.chaos.world.disk import SimulatedDisk
from kraft.config import load_config
from kraft.node import Node
from partitions.log.errors import DataDirectoryError
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from tests.support.logs import memory_disk

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
IDS = {"/data": "BBBBBBBBBBBBBBBBBBBBBB", "/more": "CCCCCCCCCCCCCCCCCCCCCC"}
BROKER = (
    "process.roles=broker\nnode.id=1\ncontroller.quorum.voters=9@localhost:9093\n"
    "controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://broker-1:9092\nlog.dirs=/data,/more\n"
)
COMBINED = (
    "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
    "controller.listener.names=CONTROLLER\n"
    "listeners=PLAINTEXT://broker-1:9092,CONTROLLER://broker-1:9093\nlog.dirs=/data,/more\n"
)


def formatted(*folders: str) -> SimulatedDisk:
    disk = memory_disk()
    for folder in folders:
        disk.make_dirs(folder)
        write_meta_properties(disk, folder, MetaProperties(CLUSTER, 1, IDS[folder]))
    return disk


def identities(disk: SimulatedDisk, properties: str) -> tuple[str, list[str]]:
    """The cluster's id, and the ids of the directories that the broker will register."""
    node = Node(load_config(properties), SimpleNamespace(disk=disk))  # type: ignore[arg-type]
    found = node._identify()
    return node.cluster_id, [meta.directory_id for meta in found]


@pytest.mark.parametrize("properties", [BROKER, COMBINED])
async def test_all_are_there(properties: str) -> None:
    assert identities(formatted(*IDS), properties) == (CLUSTER, list(IDS.values()))


@pytest.mark.parametrize("gone", IDS)
async def test_a_broker_learns_its_cluster_from_a_directory_that_is_there(gone: str) -> None:
    disk = formatted(*IDS)
    disk.remove_tree(gone)
    left = [directory_id for folder, directory_id in IDS.items() if folder != gone]
    assert identities(disk, BROKER) == (CLUSTER, left)
    disk.open(gone, create=True)  # a file in its place
    assert identities(disk, BROKER) == (CLUSTER, left)


async def test_a_controller_needs_its_own() -> None:
    disk = formatted(*IDS)
    disk.remove_tree("/more")
    assert identities(disk, COMBINED) == (CLUSTER, [IDS["/data"]])
    disk = formatted(*IDS)
    disk.remove_tree("/data")
    with pytest.raises(DataDirectoryError, match="/data is not formatted"):
        identities(disk, COMBINED)


async def test_an_unformatted_directory_is_refused() -> None:
    disk = formatted("/data")
    disk.make_dirs("/more")
    with pytest.raises(DataDirectoryError, match="/more is not formatted"):
        identities(disk, BROKER)
    disk.remove("/data/meta.properties")
    with pytest.raises(DataDirectoryError, match="/data is not formatted"):
        identities(disk, BROKER)
