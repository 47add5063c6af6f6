"""`kraft reassign start --throttle`: what it sets, that it holds, and who takes it away."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kraft.cli.app import run
from tests.support.node_processes import metadata, until
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
UNLIMITED = str(2**63 - 1)


class Ran(NamedTuple):
    """What a command did."""

    exit_code: int
    stdout: str
    stderr: str


Reassign = Callable[..., Ran]


@pytest.fixture(scope="module")
def running() -> Iterator[ThreadedCluster]:
    """What a throttle has let through counts until the test is over."""
    with threaded_cluster(properties={"replication.quota.window.size.seconds": "3600"}) as cluster:
        yield cluster


@pytest.fixture
def reassign(running: ThreadedCluster, capsys: pytest.CaptureFixture[str]) -> Reassign:
    """`kraft reassign …`, in this process."""

    def ran(*arguments: str) -> Ran:
        capsys.readouterr()
        exit_code = run(["reassign", *arguments, "--bootstrap-server", running.bootstrap])
        return Ran(exit_code, *capsys.readouterr())

    return ran


def configs(
    running: ThreadedCluster, kind: ResourceType, name: str, keys: tuple[str, str]
) -> tuple[str | None, str | None]:
    resource = ConfigResource(kind, name)
    entries: Any = running.admin.describe_configs([resource])[resource].result(60)
    return entries[keys[0]].value, entries[keys[1]].value


def rates(running: ThreadedCluster) -> dict[int, tuple[str | None, str | None]]:
    """Of each broker."""
    return {
        node_id: configs(running, ResourceType.BROKER, str(node_id), RATES)
        for node_id in running.cluster.ports
    }


def until_unlimited(running: ThreadedCluster) -> None:
    """Each broker tells what it knows; the one that a command has asked may know more for a moment."""
    until(lambda: set(rates(running).values()) == {(UNLIMITED, UNLIMITED)}, "no broker is limited")


def until_replicas(running: ThreadedCluster, topic: str, wanted: tuple[str, str]) -> None:
    """Likewise, of the replicas that are throttled."""
    until(
        lambda: configs(running, ResourceType.TOPIC, topic, REPLICAS) == wanted,
        f"{wanted} of {topic} are throttled",
    )


def filled_topic(running: ThreadedCluster, records: int = 4) -> tuple[str, int, int, int]:
    """A topic with one replica and more than fits one answer; its broker, and the other two."""
    topic = running.create_topic("moves", replication_factor=1)
    here = running.leader(topic)
    producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": 0})
    for _ in range(records):
        producer.produce(topic, b"x" * 900_000)
        producer.flush(90)
    there, elsewhere = (node_id for node_id in running.cluster.ports if node_id != here)
    return topic, here, there, elsewhere


def test_a_throttle_holds_until_the_move_is_over(running: ThreadedCluster, reassign: Reassign) -> None:
    topic, here, there, elsewhere = filled_topic(running)
    begun = reassign("start", topic, "--to", f"{there}", "--throttle", "1")
    assert (begun.exit_code, begun.stdout) == (0, f"{topic}-0 begun\n")
    limited = ("1", "1")
    expected = {here: limited, there: limited, elsewhere: (UNLIMITED, UNLIMITED)}
    until(lambda: rates(running) == expected, f"the limits are {expected}")
    until_replicas(running, topic, (f"0:{here}", f"0:{there}"))
    still = reassign("verify", "--json")
    assert still.exit_code == 1
    assert json.loads(still.stdout) == {
        "ongoing": [{"topic": topic, "partition": 0}],
        "throttles_removed": {"brokers": [], "topics": []},
        "brokers_away": [],
    }
    assert rates(running)[there] == limited
    assert running.partitions(topic)[0].isrs == [here]
    again = reassign("start", topic, "--to", f"{there}", "--throttle", str(1 << 40), "--wait")
    assert (again.exit_code, again.stdout) == (0, f"{topic}-0 done\n")
    until(lambda: running.partitions(topic)[0].replicas == [there], "it has moved")
    until_unlimited(running)
    until_replicas(running, topic, ("", ""))


def test_who_copies_is_throttled_when_the_move_is_under_way_already(
    running: ThreadedCluster, reassign: Reassign
) -> None:
    topic, here, there, elsewhere = filled_topic(running)
    assert reassign("start", topic, "--to", f"{there}", "--throttle", "1").exit_code == 0
    assert reassign("start", topic, "--to", f"{there}", "--throttle", "2").exit_code == 0
    leaders = f"0:{here},0:{there}"  # who copies may be elected once it is in sync
    until_replicas(running, topic, (leaders, f"0:{there}"))
    assert reassign("start", topic, "--to", f"{elsewhere}", "--throttle", "2").exit_code == 0
    until_replicas(running, topic, (leaders, f"0:{there},0:{elsewhere}"))
    until(lambda: rates(running)[elsewhere] == ("2", "2"), "the new broker is limited, too")
    assert reassign("cancel", topic).exit_code == 0


def test_a_topic_may_be_throttled_as_a_whole(running: ThreadedCluster, reassign: Reassign) -> None:
    topic, _, there, _ = filled_topic(running)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    for key in REPLICAS:
        entry = ConfigEntry(key, "*", incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(entry)
    running.admin.incremental_alter_configs([resource])[resource].result(60)
    begun = reassign("start", topic, "--to", f"{there}", "--throttle", "1")
    assert (begun.exit_code, begun.stdout) == (0, f"{topic}-0 begun\n"), begun.stderr
    until_replicas(running, topic, ("*", "*"))
    assert running.partitions(topic)[0].isrs != [there]
    assert reassign("cancel", topic).exit_code == 0
    until_replicas(running, topic, ("", ""))


@contextmanager
def waiting(running: ThreadedCluster, topic: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`kraft reassign start … --wait --json`, in a process of its own, once its move is under way."""
    command = [sys.executable, "-m", "kraft.cli.entry", "reassign", "start", topic, *options, "--wait"]
    process = subprocess.Popen(
        [*command, "--json", "--bootstrap-server", running.bootstrap], stdout=subprocess.PIPE, text=True
    )
    try:
        until(lambda: len(running.partitions(topic)[0].replicas) > 1, "the move is under way")
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, error and message of a command that has waited for one partition."""
    stdout, _ = process.communicate(timeout=60)
    [row] = json.loads(stdout)["partitions"]
    return process.returncode, row["error"], row["message"]


def test_who_waits_hears_that_it_was_cancelled(running: ThreadedCluster, reassign: Reassign) -> None:
    topic, here, there, _ = filled_topic(running)
    with waiting(running, topic, "--to", f"{there}", "--throttle", "1") as process:
        assert reassign("cancel", topic).exit_code == 0
        exit_code, error, message = ended(process)
    assert (exit_code, error) == (1, "NO_REASSIGNMENT_IN_PROGRESS")
    assert f"it is on brokers {here}" in message


def test_who_waits_hears_that_another_target_took_its_place(
    running: ThreadedCluster, reassign: Reassign
) -> None:
    topic, _, there, elsewhere = filled_topic(running)
    with waiting(running, topic, "--to", f"{there}", "--throttle", "1") as process:
        assert reassign("start", topic, "--to", f"{elsewhere}", "--throttle", "1").exit_code == 0
        exit_code, error, message = ended(process)
    assert (exit_code, error) == (1, "NO_REASSIGNMENT_IN_PROGRESS")
    assert f"to brokers {elsewhere}" in message
    assert reassign("cancel", topic).exit_code == 0


def test_who_waits_hears_that_the_topic_is_gone(running: ThreadedCluster, reassign: Reassign) -> None:
    topic, _, there, _ = filled_topic(running)
    with waiting(running, topic, "--to", f"{there}", "--throttle", "1") as process:
        running.admin.delete_topics([topic])[topic].result(60)
        exit_code, error, _ = ended(process)
    assert (exit_code, error) == (1, "UNKNOWN_TOPIC_OR_PARTITION")
    assert reassign("verify").exit_code == 0
    until_unlimited(running)


def test_verify_takes_it_away(running: ThreadedCluster, reassign: Reassign) -> None:
    topic, here, there, _ = filled_topic(running, records=1)
    assert reassign("start", topic, "--to", f"{there}", "--throttle", str(1 << 40)).exit_code == 0
    until(lambda: running.partitions(topic)[0].replicas == [there], "it has moved")
    kept = reassign("verify", "--preserve-throttles")
    assert (kept.exit_code, kept.stdout) == (0, "nothing is being reassigned\n")
    until(lambda: rates(running)[there] == (str(1 << 40), str(1 << 40)), "it is limited")
    gone = reassign("verify", "--json")
    assert gone.exit_code == 0
    assert json.loads(gone.stdout) == {
        "ongoing": [],
        "throttles_removed": {"brokers": sorted((here, there)), "topics": [topic]},
        "brokers_away": [],
    }
    until_unlimited(running)
    assert json.loads(reassign("verify", "--json").stdout)["throttles_removed"] == {
        "brokers": [],
        "topics": [],
    }


def test_cancelling_takes_it_away(running: ThreadedCluster, reassign: Reassign) -> None:
    topic, here, there, _ = filled_topic(running)
    assert reassign("start", topic, "--to", f"{there}", "--throttle", "1").exit_code == 0
    assert reassign("cancel", topic).exit_code == 0
    until_unlimited(running)
    until_replicas(running, topic, ("", ""))
    until(lambda: running.partitions(topic)[0].replicas == [here], "it is where it was")


def test_a_broker_that_is_away_can_be_replaced_within_a_limit(
    running: ThreadedCluster, reassign: Reassign
) -> None:
    topic = running.create_topic("replaced", replication_factor=2)
    leader = running.leader(topic)
    away = next(node_id for node_id in running.partitions(topic)[0].replicas if node_id != leader)
    new = next(node_id for node_id in running.cluster.ports if node_id not in (leader, away))
    running.kill(away)
    until(lambda: running.partitions(topic)[0].isrs == [leader], "it has left the ISR")
    moved = reassign("start", topic, "--to", f"{leader},{new}", "--throttle", str(1 << 40), "--wait")
    assert (moved.exit_code, moved.stdout) == (0, f"{topic}-0 done\n")
    assert f"have no limit when they come back: {away};" in moved.stderr
    running.start(away)
    # Until its next look at the metadata, the client does not know where to send what is meant for it.
    until(lambda: away in metadata(running.admin).brokers, "the client knows it again")
    until_unlimited(running)


def test_a_broker_that_is_away_keeps_its_throttle_and_is_named(
    running: ThreadedCluster, reassign: Reassign
) -> None:
    topic, here, there, _ = filled_topic(running, records=1)
    assert reassign("start", topic, "--to", f"{there}", "--throttle", str(1 << 40)).exit_code == 0
    until(lambda: running.partitions(topic)[0].replicas == [there], "it has moved")
    running.stop(here)
    running.wait_seen(here, live=False)
    told = reassign("verify", "--json")
    assert told.exit_code == 0, "all that was to be moved has been"
    assert json.loads(told.stdout) == {
        "ongoing": [],
        "throttles_removed": {"brokers": [there], "topics": [topic]},
        "brokers_away": [here],
    }
    assert f"keep the throttles that they may have: {here};" in told.stderr
    assert reassign("verify", "--preserve-throttles").exit_code == 0
    idle = reassign("cancel", "--all")
    assert (idle.exit_code, idle.stdout) == (0, "")
    assert f"keep the throttles that they may have: {here};" in idle.stderr
    running.start(here)
    running.wait_seen(here, live=True)
    back = json.loads(reassign("verify", "--json").stdout)
    assert back["throttles_removed"] == {"brokers": [here], "topics": []}
    assert back["brokers_away"] == []
    until(lambda: here in metadata(running.admin).brokers, "the client knows it again")
    until_unlimited(running)


def test_what_is_refused_leaves_no_throttle(running: ThreadedCluster, reassign: Reassign) -> None:
    topic, *_ = filled_topic(running, records=1)
    assert reassign("start", topic, "--to", "99", "--throttle", "1").exit_code == 1
    until_unlimited(running)
    until_replicas(running, topic, ("", ""))


def test_a_partition_that_is_not_there_sets_nothing(running: ThreadedCluster, reassign: Reassign) -> None:
    topic, _, there, _ = filled_topic(running, records=1)
    refused = reassign("start", topic, "--to", f"{there}", "--partition", "7", "--throttle", "1")
    assert refused.exit_code == 1
    assert f"topic {topic} has no partition 7" in refused.stderr
    until_unlimited(running)
