"""The nodes of a scenario: how they are configured, formatted, started, looked into and excused."""

from __future__ import annotations

import dataclasses
import random

import pytest

from kraft.chaos.cluster import METADATA_LAG_MAX, SimulatedCluster
from kraft.chaos.logs import NodeLogs, judge_processes
from kraft.chaos.node_folders import DATA
from kraft.chaos.scenario import NodeSpec
from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.simulation import Simulation
from kraft.config import load_config
from partitions.log.node_logs.meta_properties import decode_meta_properties
from quorum.metadata.image import PartitionImage, TopicImage

EPOCHS = {"leader_epoch": 1, "partition_epoch": 1}
COMBINED = tuple(NodeSpec(n) for n in (1, 2, 3))
SEPARATE = (NodeSpec(1, ("broker",)), NodeSpec(7, ("broker",)), NodeSpec(101, ("controller",)))
META = f"{DATA}/meta.properties"


@pytest.fixture
def world():
    with Simulation(1) as simulation:
        yield simulation


@pytest.fixture
def boot(world):
    """Starts a cluster, and returns it when it is whole."""

    def boot(specs: tuple[NodeSpec, ...] = COMBINED, **properties: str) -> SimulatedCluster:
        cluster = SimulatedCluster(world, specs, properties)
        with NodeLogs(cluster, Verdicts(world.scheduler)).installed():
            cluster.start()
            assert world.run_until_true(lambda: not cluster.ailments([]), 10.0), cluster.ailments([])
        return cluster

    return boot


def judged(cluster: SimulatedCluster) -> list[tuple[str, str]]:
    verdicts = Verdicts(cluster.simulation.scheduler)
    judge_processes(cluster, verdicts)
    return [(violation.oracle, violation.text) for violation in verdicts.violations]


def directory_id(cluster: SimulatedCluster, node_id: int) -> str:
    return decode_meta_properties(cluster.hosts[node_id].storage.files()[META], META).directory_id


@pytest.mark.parametrize("specs", [COMBINED[:1], COMBINED, tuple(NodeSpec(n) for n in range(1, 6)), SEPARATE])
def test_clusters_of_all_shapes_become_whole(boot, specs):
    cluster = boot(specs)
    assert cluster.running == [spec.node_id for spec in specs]
    assert cluster.active_controller() in cluster.controller_ids
    assert set(cluster.addresses) == set(cluster.broker_ids)
    image = cluster.image()
    assert image is not None
    assert set(image.brokers) == set(cluster.broker_ids)
    assert not judged(cluster)


def test_the_properties_of_a_scenario_go_over_the_common_ones(world):
    cluster = SimulatedCluster(world, SEPARATE, {"replica.lag.time.max.ms": "777"})
    for spec in SEPARATE:
        config = load_config(cluster.properties_of(spec.node_id))
        assert not config.warnings
        assert config.roles == spec.roles
        assert config.get("replica.lag.time.max.ms") == 777
        assert config.get("broker.session.timeout.ms") == 1500
        assert set(config.voters) == {101}


def test_who_is_who(boot):
    cluster = boot(SEPARATE)
    host = cluster.hosts[7]
    for name in (host.name, host.address, f"{host.address}#3", f"{host.address}#3.raft"):
        assert cluster.node_id_of(name) == 7
    assert cluster.node_id_of("10.0.0.250#1") is None


def test_a_restart_keeps_the_identity_and_a_wipe_gives_a_new_one(boot, world):
    cluster = boot()
    ids = [directory_id(cluster, n) for n in (1, 2, 3)]
    assert len(set(ids)) == 3
    cluster.hosts[1].kill()
    cluster.start_node(1)
    world.run_for(0.1)
    assert directory_id(cluster, 1) == ids[0]
    cluster.hosts[1].kill()
    cluster.hosts[1].storage.remove_tree(DATA)
    cluster.start_node(1)
    world.run_for(0.1)
    assert directory_id(cluster, 1) not in ids


def test_a_folder_with_logs_that_lacks_its_identity_is_not_formatted(boot, world):
    cluster = boot()
    cluster.hosts[1].kill()
    cluster.hosts[1].storage.remove_file(META)
    cluster.start_node(1)
    world.run_for(0.5)
    assert cluster.running == [2, 3]
    [(node_id, text)] = cluster.failed_starts
    assert node_id == 1
    assert "not formatted" in text
    [(oracle, told)] = judged(cluster)
    assert oracle == "unexpected-error"
    assert "not formatted" in told


def test_an_excused_start_may_fail(boot, world):
    cluster = boot()
    cluster.hosts[1].kill()
    cluster.hosts[1].storage.remove_file(META)
    cluster.start_node(1)
    cluster.excuse(1)
    world.run_for(0.5)
    assert len(cluster.failed_starts) == 1
    assert not judged(cluster)


def test_a_halt_belongs_to_one_incarnation(boot, world):
    cluster = boot()
    for life in range(3):
        process = cluster.hosts[2].process
        assert process is not None
        if life == 1:
            cluster.excuse(2)
        process.halt(f"in life {life}")
        cluster.start_node(2)
        world.run_for(0.2)
    names = [f"{cluster.hosts[2].address}#{life}" for life in (1, 2, 3)]
    assert [(halt.process, halt.reason) for halt in cluster.halts] == [
        (name, f"in life {life}") for life, name in enumerate(names)
    ]
    assert [oracle for oracle, _ in judged(cluster)] == ["halted", "halted"]
    assert [text.count("in life 1") for _, text in judged(cluster)] == [0, 0]


def test_the_excuse_holds_for_all_lanes_of_a_process_and_for_no_other_life(boot):
    cluster = boot()
    cluster.excuse(1)
    address = cluster.hosts[1].address
    for name, excused in (
        ("#1", True),
        ("#1.raft", True),
        ("#1.executor", True),
        ("#11", False),
        ("#2", False),
    ):
        assert cluster.is_excused(address + name) is excused


def test_ailments_tell_what_is_wrong(boot, world):
    cluster = boot()
    assert cluster.ailments(["orders"]) == ["there is no topic orders"]
    cluster.hosts[1].pause()
    assert cluster.ailments([]) == ["node 1 is paused"]
    world.run_for(3.0)
    cluster.hosts[1].resume()
    assert cluster.ailments([])
    assert world.run_until_true(lambda: not cluster.ailments([]), 10.0)
    cluster.hosts[3].kill()
    assert cluster.ailments([]) == ["node 3 is not running"]


def test_a_node_without_the_metadata_of_the_others_is_an_ailment(boot, world, monkeypatch):
    cluster = boot(SEPARATE)
    newest = cluster.image()
    assert newest is not None
    ahead = dataclasses.replace(newest, offset=newest.offset + METADATA_LAG_MAX + 1)
    monkeypatch.setattr(cluster, "image", lambda: ahead)
    [first, second, voter] = cluster.ailments([])
    assert first.startswith("node 1: its broker has metadata up to")
    assert second.startswith("node 7: its broker has metadata up to")
    assert voter.startswith("node 101: its controller has metadata up to")
    little = dataclasses.replace(newest, offset=newest.offset + METADATA_LAG_MAX - 1)
    monkeypatch.setattr(cluster, "image", lambda: little)
    assert cluster.ailments([]) == []


def test_a_controller_that_has_not_started_is_an_ailment(boot):
    cluster = boot(SEPARATE)
    cluster.nodes[101].controller = None
    assert "node 101: its controller has not started" in cluster.ailments([])


def test_a_controlled_shutdown_ends_the_process(boot, world):
    cluster = boot()
    cluster.stop_node(2)
    assert cluster.is_stopping(2)
    assert world.run_until_true(lambda: cluster.running == [1, 3], 5.0)
    assert not cluster.is_stopping(2)
    cluster.start_node(2)
    assert world.run_until_true(lambda: not cluster.ailments([]), 10.0)
    assert not judged(cluster)


def test_a_node_can_be_stopped_while_it_starts(world):
    """Alone of three, it never hears of a quorum: the start is given up."""
    cluster = SimulatedCluster(world, COMBINED)
    cluster.start_node(1)
    world.run_for(1.0)
    assert cluster.running == [1]
    cluster.stop_node(1)
    assert world.run_until_true(lambda: not cluster.running, 10.0)
    assert not judged(cluster)


def test_a_partition_is_beyond_repair_when_every_copy_that_may_lead_is_damaged_and_offline(boot, monkeypatch):
    cluster = boot()
    topic_id = bytes(16)
    for node_id in (1, 2):
        storage = cluster.hosts[node_id].storage
        storage.make_dirs(f"{DATA}/orders-0")
        inode = storage.create_file(f"{DATA}/orders-0/0.log")
        inode.write(storage.next_sequence(), 0, b"x")
        storage.sync_everything()
        assert storage.rot(random.Random(0), lambda path: path.endswith("0.log")) is not None
    newest = cluster.image()
    assert newest is not None

    def judge(**fields):
        state = PartitionImage(**{"replicas": (1, 2, 3), "isr": (), "leader": -1, **EPOCHS, **fields})
        image = dataclasses.replace(
            newest,
            topics={topic_id: TopicImage(topic_id, "orders", (state,))},
            topic_ids={"orders": topic_id},
        )
        monkeypatch.setattr(cluster, "image", lambda: image)
        is_beyond = cluster.is_beyond_repair("orders", 0)
        assert is_beyond is not any("orders" in text for text in cluster.ailments(["orders"]))
        return is_beyond

    assert judge(elr=(1, 2), offline_replicas=(1, 2))
    assert judge(isr=(1,), offline_replicas=(1,))
    assert judge(last_known_elr=(2,), offline_replicas=(2,))
    assert not judge(elr=(1, 2), offline_replicas=(1,)), "2 does not know of its damage yet"
    assert not judge(elr=(1, 3), offline_replicas=(1, 3)), "the copy of 3 is sound"
    assert not judge(isr=(3,), leader=3, offline_replicas=(1, 2)), "3 leads, and can be copied"
    assert not judge(offline_replicas=(1, 2)), "nobody knows who led last"


def test_each_data_directory_has_an_identity_of_its_own(boot, world):
    cluster = boot((NodeSpec(1, log_dirs=2),))
    storage = cluster.hosts[1].storage
    files = [storage.files()[f"{directory}/meta.properties"] for directory in cluster.log_dirs_of(1)]
    ids = [decode_meta_properties(content, "").directory_id for content in files]
    assert len(set(ids)) == 2
    cluster.hosts[1].kill()
    storage.remove_tree(f"{DATA}-2")
    cluster.start_node(1)
    world.run_for(0.5)
    assert storage.files()[f"{DATA}/meta.properties"] == files[0]
    assert storage.files()[f"{DATA}-2/meta.properties"] != files[1], "a new disk in its place"


def test_whoever_may_complain_may_not_halt(boot):
    cluster = boot()
    cluster.excuse(1, may_halt=False)
    name = cluster.hosts[1].address + "#1"
    assert cluster.is_excused(f"{name}.raft")
    assert not cluster.may_end(name)
    process = cluster.hosts[1].process
    assert process is not None
    process.halt("for no good reason")
    assert [oracle for oracle, _ in judged(cluster)] == ["halted"]
