"""A stream whose topics live: every record is in one micro-batch, whatever happens between two of them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from kraft.spark.client import ClusterClient
from kraft.spark.data_loss import LossPolicy
from kraft.spark.options import ReadOptions, parse_options
from kraft.spark.retry import RetryPolicy
from kraft.spark.slice_reader import PartitionSlice
from kraft.spark.stream_offsets import StreamOffset, from_json, to_json
from kraft.spark.stream_plan import METADATA_MAX_AGE_S, StreamPlanner
from tests.support.examples import examples
from tests.support.fake_broker import FakeCluster, FakePartition

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 7), st.integers(1, 40)),
    st.tuples(st.just("move"), st.integers(0, 7), st.integers(1, 2)),
    st.tuples(st.just("add partition"), st.just(0), st.integers(1, 2)),
    st.tuples(st.just("batch"), st.just(0), st.just(0)),
    st.tuples(st.just("planned twice"), st.just(0), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0)),
    st.tuples(st.just("available now"), st.just(0), st.just(0)),
)


class Stream:
    """A query with its checkpoint, over one topic of a fake cluster whose time stands still unless it is let on."""

    def __init__(self, cluster: FakeCluster, options: ReadOptions) -> None:
        self.partitions = cluster.create_topic("t", leaders=(1, 2)).partitions
        self.read: list[PartitionSlice] = []
        self._options = options
        self._now = 0.0
        self._clients: list[ClusterClient] = []
        self._planner = self._new_planner()
        self._at = self._planner.initial()

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def step(self, what: str, index: int, number: int) -> None:
        partition = self.partitions[index % len(self.partitions)]
        if what == "append":
            for _ in range(number):
                partition.append([(0, None, b"x", ())])
        elif what == "move":
            partition.move(number)
        elif what == "add partition":
            self.partitions.append(FakePartition(leader=number))
        elif what == "batch":
            self.batch()
        elif what == "planned twice":
            self.batch(twice=True)
        else:
            self._planner = self._new_planner()
            if what == "available now":
                self._run_available_now()

    def batch(self, *, twice: bool = False) -> bool:
        """Whether there was anything to read. `twice`: the driver died after the first plan was in the checkpoint."""
        self._now += METADATA_MAX_AGE_S
        start, end = self._at, self._planner.next(self._at, unlimited=False)
        if end is start:
            return False
        planned = self._planner.slices(start, end)
        if twice:
            self._planner = self._new_planner()
            assert self._planner.slices(_kept(start), _kept(end)) == planned
        self.read += planned
        self._at = _kept(end)
        return True

    def _run_available_now(self) -> None:
        ends = [partition.end for partition in self.partitions]
        self._planner.freeze()
        self.partitions[0].append([(0, None, b"too late", ())])
        while self.batch():
            pass
        assert [position.offset for position in self._at["t"].partitions.values()] == ends
        self._planner = self._new_planner()

    def _new_planner(self) -> StreamPlanner:
        policy = RetryPolicy(clock=lambda: self._now)
        client = ClusterClient(self._options.bootstrap, client_id="test", policy=policy)
        self._clients.append(client)
        return StreamPlanner(client, self._options, LossPolicy())


def _kept(offset: StreamOffset) -> StreamOffset:
    """As the checkpoint gives it back."""
    return from_json(json.loads(json.dumps(to_json(offset))))


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2) as fake:
        yield fake


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEPS, max_size=25), st.none() | st.integers(1, 50), st.none() | st.integers(1, 9))
def test_every_record_is_in_one_batch(
    cluster: FakeCluster, steps: list[tuple[str, int, int]], limit: int | None, split: int | None
) -> None:
    given_options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": "t",
        "startingOffsets": "earliest",
    }
    if limit is not None:
        given_options["maxOffsetsPerTrigger"] = str(limit)
    if split is not None:
        given_options["maxRecordsPerPartition"] = str(split)
    stream = Stream(cluster, parse_options(given_options, streaming=True))
    try:
        for step in steps:
            stream.step(*step)
        while stream.batch():
            pass
    finally:
        stream.close()
    for index, partition in enumerate(stream.partitions):
        parts = [part for part in stream.read if part.partition == index]
        assert [part.start for part in parts] == [0, *(part.end for part in parts)][: len(parts)]
        assert (parts[-1].end if parts else 0) == partition.end
        assert all(split is None or part.end - part.start <= split for part in parts)
