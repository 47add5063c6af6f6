"""Idempotent producers while nodes are killed, frozen and cut off from each other, one strike every ten seconds.

At the end nothing that was acknowledged is lost, nothing is there twice, the order is each producer's own, and the
replicas' files are equal, byte for byte, below the high watermark. REPLICATION_FAILURE_SECONDS is how long it goes
on; 40 if it is not set. What strikes whom is drawn from REPLICATION_FAILURE_SEED, or a fresh seed, which is printed;
the processes run as they like, so a seed tells the strikes and not the whole run.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kraft.protocol.errors import ErrorCode
from partitions.topic_partition import TopicPartition
from tests.support.cuttable_nodes import CuttableNodes
from tests.support.node_processes import until
from tests.support.raw_client import RawConnection, batch
from tests.support.replica_files import assert_equal_replicas, await_high_watermarks
from tests.support.streams import ConfluentStream, Stream, audit_all, read_all, streaming

DURATION_S = float(os.environ.get("REPLICATION_FAILURE_SECONDS", "40"))
SEED = int(os.environ.get("REPLICATION_FAILURE_SEED", secrets.randbelow(1_000_000)))
EVERY_S = 10.0
OUTAGE_S = (0.3, 7.0)
"""Shorter and longer than broker sessions, elections and what a client waits for."""
PARTITIONS = 4
PRODUCERS: tuple[dict[str, object], ...] = (
    {"compression.type": "lz4", "request.timeout.ms": 3000, "socket.timeout.ms": 4000},
    {"linger.ms": 20},
)
COMMON = {"enable.idempotence": True, "acks": "all"}
PAUSE_S = 0.02
FILLING_BYTES = 1200

pytestmark = pytest.mark.timeout(DURATION_S + 900)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CuttableNodes]:
    running = CuttableNodes(tmp_path_factory.mktemp("cuttable"))
    try:
        yield running
    finally:
        running.close()


# -- what strikes


class Strikes:
    """Each strikes and mends; what it did is the answer."""

    def __init__(self, nodes: CuttableNodes, topic: str, rng: random.Random) -> None:
        self._nodes, self._topic, self._rng = nodes, topic, rng

    def _victim(self) -> int:
        """Mostly one that leads."""
        if self._rng.random() < 0.6:
            return self._nodes.busiest_leader(self._topic)
        return self._rng.choice(self._nodes.node_ids)

    def _outage(self) -> None:
        time.sleep(self._rng.uniform(*OUTAGE_S))

    def kill(self) -> str:
        """kill -9 of one node, of two, or of all at once; they start one after the other."""
        victims = [self._victim()]
        others = [node for node in self._nodes.node_ids if node not in victims]
        victims += self._rng.sample(others, self._rng.choice((0, 0, 1, 2)))
        for victim in victims:
            self._nodes.local.kill(victim)
        time.sleep(self._rng.uniform(0.0, 3.0))
        self._nodes.local.start_all()
        return f"kill {victims}"

    def freeze(self) -> str:
        """SIGSTOP: its connections stay, and it goes on where it was."""
        victim = self._victim()
        self._nodes.local.pause(victim)
        self._outage()
        self._nodes.local.resume(victim)
        return f"freeze {victim}"

    def isolate(self) -> str:
        """Both ways; clients still reach it. Sometimes it dies before it is heard of again."""
        victim = self._victim()
        away, towards = self._nodes.links.around(victim)
        self._nodes.links.cut(*away, *towards)
        self._outage()
        dies = self._rng.random() < 0.3
        if dies:
            self._nodes.local.kill(victim)
        self._nodes.links.heal()
        if dies:
            self._nodes.local.start_node(victim)
        return f"isolate {victim}{', and kill it' if dies else ''}"

    def cut_one_way(self) -> str:
        """A node hears and is not heard, or is heard and does not hear; of everybody, or of one."""
        victim = self._victim()
        links = self._rng.choice(self._nodes.links.around(victim))
        chosen = links if self._rng.random() < 0.5 else [self._rng.choice(links)]
        self._nodes.links.cut(*chosen)
        self._outage()
        self._nodes.links.heal()
        return "cut " + ", ".join(f"{link.source} -> {link.target}" for link in chosen)

    def all(self) -> list[Callable[[], str]]:
        return [self.kill, self.freeze, self.isolate, self.cut_one_way]


def strike_for(
    duration_s: float, strikes: Strikes, streams: list[Stream], rng: random.Random
) -> Counter[str]:
    """One strike every `EVERY_S`, each kind as often as the others; after each one producers get on.

    Returns how often which kind struck.
    """
    struck: Counter[str] = Counter()
    began_s = next_s = time.monotonic()
    waiting: list[Callable[[], str]] = []
    while next_s - began_s < duration_s:
        time.sleep(max(0.0, next_s - time.monotonic()))
        next_s = max(next_s + EVERY_S, time.monotonic())
        if not waiting:
            waiting = rng.sample(strikes.all(), len(strikes.all()))
        strike = waiting.pop()
        struck_s = time.monotonic()
        told = strike()
        struck[strike.__name__] += 1
        mended_s = time.monotonic()
        for stream in streams:
            stream.wait_for(1)
        acknowledged = sum(len(stream.acknowledged) for stream in streams)
        print(
            f"{struck_s - began_s:6.1f} s: {told}; mended after {mended_s - struck_s:.1f} s, writes acknowledged"
            f" after {time.monotonic() - mended_s:.1f} s more, {acknowledged} by now",
            flush=True,
        )
    return struck


# -- the run


def test_a_node_that_is_cut_off_is_replaced_and_gives_up_what_it_alone_has(nodes: CuttableNodes) -> None:
    """The relays do cut: peers lose a leader that its clients still reach, and acks=1 promises no more than that."""
    topic = nodes.create_topic("cut-off", replication_factor=2)
    cut_off = nodes.leader(topic)
    (other,) = set(nodes.partitions(topic)[0].replicas) - {cut_off}
    with RawConnection(nodes.address(cut_off)) as connection:
        away, towards = nodes.links.around(cut_off)
        nodes.links.cut(*away, *towards)
        assert connection.produce(topic, batch(b"lost"), acks=1).error_code == ErrorCode.NONE
    with RawConnection(nodes.address(other)) as connection:
        until(
            lambda: connection.produce(topic, batch(b"kept"), acks=1).error_code == ErrorCode.NONE,
            "the other replica leads",
        )
    nodes.links.heal()
    with RawConnection(nodes.address(cut_off)) as connection:
        # Until then it tells whoever asks that it leads, in an ISR that is full.
        until(lambda: connection.leader(topic) == other, "the node that was cut off knows who leads")
    nodes.restore()
    assert read_all(nodes.bootstrap, topic, 1) == {0: [(0, b"kept")]}


def test_nothing_acknowledged_is_lost_whatever_strikes(nodes: CuttableNodes) -> None:
    print(f"REPLICATION_FAILURE_SEED={SEED}")
    rng = random.Random(SEED)
    topic = nodes.create_topic("struck", PARTITIONS, min_insync_replicas="2", segment_bytes=str(1 << 20))
    streams: list[Stream] = [
        ConfluentStream(
            nodes.bootstrap,
            topic,
            PARTITIONS,
            {**COMMON, **settings},
            producer=number,
            pause_s=PAUSE_S,
            filling_bytes=FILLING_BYTES,
        )
        for number, settings in enumerate(PRODUCERS)
    ]
    with ExitStack() as running:
        for stream in streams:
            running.enter_context(streaming(stream))
        struck = strike_for(DURATION_S, Strikes(nodes, topic, rng), streams, rng)
        assert_all_alive(nodes)
        nodes.restore()
    assert min(struck.values()) > 0
    assert nodes.links.relayed > 0, "the nodes went around the relays"

    log = read_all(nodes.bootstrap, topic, PARTITIONS)
    audit_all(streams, log)
    ends = {TopicPartition(topic, number): len(records) for number, records in log.items()}
    await_high_watermarks(nodes, ends)
    nodes.local.stop_all()
    compared = {partition: assert_equal_replicas(nodes, partition, end) for partition, end in ends.items()}
    epochs = sum(headers[-1].partition_leader_epoch for headers in compared.values())
    assert epochs > 0, "no strike has moved a leader"
    print(f"{dict(struck)}; {sum(ends.values())} records in {epochs} elections, equal on all replicas")


def assert_all_alive(nodes: CuttableNodes) -> None:
    """Nobody has died who was not killed, or reported a defect."""
    for node_id in nodes.node_ids:
        assert nodes.local.pid(node_id) is not None, nodes.local.log_tail(node_id)
        text = nodes.log_text(node_id)
        assert "Traceback" not in text, text[text.index("Traceback") :][:3000]
