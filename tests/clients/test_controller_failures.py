"""Controllers are killed and frozen in a loop while clients create and delete topics.

At the end every acknowledged change is there, nothing happened twice, and all controllers' journals and all
brokers' metadata say the same. CONTROLLER_FAILURE_SECONDS is how long it goes on; 15 if it is not set.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.runtime.disk import RealDisk
from quorum.metadata.image import MetadataImage
from quorum.metadata.records import Topic
from quorum.raft.inspection import MetadataFolder
from quorum.raft.metadata_replay import MetadataReplay
from tests.support.node_processes import NodeProcesses, metadata, until

DURATION_S = float(os.environ.get("CONTROLLER_FAILURE_SECONDS", "15"))
OPERATORS = 3
PAUSE_MAX_S = 2.5
ATTEMPT_S = 4.0
SETTLE_S = 90.0
"""How long an operator may take to learn the outcome of its last request, with every controller up."""

pytestmark = pytest.mark.timeout(DURATION_S + 10 * SETTLE_S)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodeProcesses]:
    """With the timers of a local cluster: controllers that stand still are replaced before they go on."""
    running = NodeProcesses(tmp_path / "nodes")
    with contextlib.closing(running):
        yield running


class Operator(threading.Thread):
    """Creates topics of its own and deletes some, asking again until it knows what became of each request."""

    def __init__(self, number: int, bootstrap: str, stop: threading.Event) -> None:
        super().__init__(name=f"operator-{number}", daemon=True)
        self._rng = random.Random(number)
        self._number = number
        self._stop_asked = stop
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.created: dict[str, int] = {}
        """Acknowledged topics that nobody asked to delete, with their number of partitions."""
        self.deleted: set[str] = set()
        """Acknowledged deletions."""
        self.asked_again = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.failure = error

    def _work(self) -> None:
        count = 0
        while not self._stop_asked.is_set():
            count += 1
            name, partitions = f"kept-{self._number}-{count}", self._rng.choice((1, 2, 6))
            self._until_known(KafkaError.TOPIC_ALREADY_EXISTS, partial(self._create, name, partitions))
            self.created[name] = partitions
            if len(self.created) > 3 and self._rng.random() < 0.6:
                victim = self._rng.choice(sorted(self.created))
                del self.created[victim]
                self._until_known(KafkaError.UNKNOWN_TOPIC_OR_PART, partial(self._delete, victim))
                self.deleted.add(victim)

    def _create(self, name: str, partitions: int) -> None:
        topic = NewTopic(name, partitions, 3)
        self._admin.create_topics([topic], request_timeout=ATTEMPT_S)[name].result(SETTLE_S)

    def _delete(self, name: str) -> None:
        self._admin.delete_topics([name], request_timeout=ATTEMPT_S)[name].result(SETTLE_S)

    def _until_known(self, done_before: int, attempt: Callable[[], None]) -> None:
        """Tries until it is acknowledged. `done_before`: the error that a repeated request gets if an earlier
        one, whose answer was lost, had done its work (client and broker repeat requests, too)."""
        deadline_s = time.monotonic() + DURATION_S + SETTLE_S
        while True:
            try:
                attempt()
            except KafkaException as error:
                if error.args[0].code() != done_before and time.monotonic() < deadline_s:
                    self.asked_again += 1
                    time.sleep(0.1)
                    continue
                if error.args[0].code() != done_before:
                    raise
            return


def strikes(cluster: NodeProcesses, until_s: float) -> Iterator[str]:
    """One controller after the other: killed and started, or frozen and woken; mostly the active one."""
    rng = random.Random(4)
    while time.monotonic() < until_s:
        active = cluster.local.status()["controller_id"]
        victim = active if active in cluster.node_ids and rng.random() < 0.7 else rng.choice(cluster.node_ids)
        if rng.random() < 0.5:
            cluster.local.kill(victim)
            time.sleep(rng.uniform(0.0, 1.0))
            cluster.local.start_node(victim)
            yield "killed"
        else:
            cluster.local.pause(victim)
            time.sleep(rng.uniform(0.3, PAUSE_MAX_S))
            cluster.local.resume(victim)
            yield "paused"


def replayed(cluster: NodeProcesses, node_id: int) -> tuple[MetadataImage, Counter[str]]:
    """A controller's metadata from its files, and how often each topic was created in it."""
    folder = MetadataFolder(RealDisk(), str(cluster.local.node_dir(node_id) / "data"))
    assert folder.snapshot is None, "nothing is old or large enough for a snapshot yet"
    replay, births = MetadataReplay(), Counter[str]()
    for entry in folder.entries(0):
        played = replay.play(entry)
        if played.rejection is None:
            births.update(record.name for record in played.records if isinstance(record, Topic))
    assert replay.image is not None
    return replay.image, births


def test_acknowledged_changes_survive_controllers_that_die(nodes: NodeProcesses) -> None:
    cluster, stop = nodes, threading.Event()
    operators = [Operator(number, cluster.bootstrap, stop) for number in range(OPERATORS)]
    for operator in operators:
        operator.start()
    struck = Counter(strikes(cluster, time.monotonic() + DURATION_S))
    stop.set()
    for operator in operators:
        operator.join(DURATION_S + 2 * SETTLE_S)
        assert not operator.is_alive()
        if operator.failure is not None:
            raise operator.failure
    created = {name: n for operator in operators for name, n in operator.created.items()}
    deleted = {name for operator in operators for name in operator.deleted}
    assert created
    assert struck["killed"] + struck["paused"] > 1
    cluster.restore()

    images = until(lambda: equal_images(cluster), "all controllers have one journal", SETTLE_S)
    image, births = images
    for name, partitions in created.items():
        assert len(image.topics[image.topic_ids[name]].partitions) == partitions
    assert deleted.isdisjoint(image.topic_ids)
    assert all(births[name] == 1 for name in (*created, *deleted))
    assert_brokers_agree(cluster, image)


def equal_images(cluster: NodeProcesses) -> tuple[MetadataImage, Counter[str]] | None:
    """What all controllers have on disk, once it reaches equally far. Fails if it differs there."""
    found = [replayed(cluster, node_id) for node_id in cluster.node_ids]
    if len({image.offset for image, _ in found}) > 1:
        return None
    first, births = found[0]
    for image, its_births in found[1:]:
        assert image.encode() == first.encode()
        assert its_births == births
    return first, births


def assert_brokers_agree(cluster: NodeProcesses, image: MetadataImage) -> None:
    """Each broker, asked by itself, knows exactly the topics of the controllers' image."""
    expected = {topic.name: len(topic.partitions) for topic in image.topics.values()}
    for node_id in cluster.node_ids:
        host, port = cluster.address(node_id)
        admin = AdminClient({"bootstrap.servers": f"{host}:{port}", "log_level": 0})

        def known(admin: AdminClient = admin) -> bool:
            topics = metadata(admin).topics
            return {name: len(topic.partitions) for name, topic in topics.items()} == expected

        until(known, f"broker {node_id} knows the topics", SETTLE_S)
