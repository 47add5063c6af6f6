"""A run that dies before or after any step on the disk or in the table's log: each row is in the table once.

A step is a write, an fsync, a rename, a removal, a call of the log, or a slice. What dies is the run, with all that it
holds in memory; the disk keeps what was done. The next run recovers.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("deltalake")

import pyarrow.dataset as ds
from deltalake import DeltaTable

from kraft.ingest import delta
from kraft.ingest.folder import control_folder, data_files
from kraft.ingest.model import SliceResult, SliceTask, TableProperties
from kraft.ingest.options import IngestOptions
from kraft.ingest.plan import Cut
from kraft.ingest.progress import Progress
from kraft.ingest.run import Ports, ingest
from kraft.ingest.writing import write_slice
from kraft.spark.errors import ConnectorError
from tests.support.fake_broker import FakeCluster, FakePartition

PARTITIONS = 2
STEPS = [
    (os, "fsync"),
    (Path, "write_bytes"),
    (Path, "replace"),
    (Path, "unlink"),
    (Path, "mkdir"),
    (DeltaTable, "create_write_transaction"),
    (DeltaTable, "create_checkpoint"),
    (DeltaTable, "cleanup_metadata"),
    (delta, "create_table_with_add_actions"),
]
BUSIEST_RUN = 40
"""Steps of a run that takes a cut, about."""


class Died(BaseException):
    """No `except` of the product sees it."""


class Quiet:
    """A watcher that shows nothing."""

    def begun(self, progress: Progress) -> None: ...
    def planned(self, cut: Cut) -> None: ...
    def committed(self, next_commit_s: float | None) -> None: ...
    def failed(self, error: ConnectorError, retry_s: float) -> None: ...
    def told(self, sentence: str) -> None: ...


@contextmanager
def dying(at: int, *, after: bool) -> Iterator[Callable[[], None]]:
    """The `at`-th step from now on kills the run, before or after it is done. Yields a step to call by hand."""
    count = itertools.count()
    dead = False

    def step(work: Callable[..., Any], *args: Any, **named: Any) -> Any:
        nonlocal dead
        if dead:  # what runs on the way out of the process would not have run
            raise Died
        if next(count) == at:
            dead = True
            if after:
                work(*args, **named)
            raise Died
        return work(*args, **named)

    def wrapped(work: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **named: step(work, *args, **named)

    patches = [patch.object(owner, name, wrapped(getattr(owner, name))) for owner, name in STEPS]
    for one in patches:
        one.start()
    try:
        yield lambda: step(lambda: None)
    finally:
        for one in reversed(patches):
            one.stop()


def run(cluster: FakeCluster, folder: Path, step: Callable[[], None]) -> None:
    def work(tasks: Sequence[SliceTask]) -> list[SliceResult]:
        results = []
        for task in tasks:
            results.append(write_slice(task))
            step()
        return results

    options = IngestOptions(
        topics=("t",),
        folder=folder,
        bootstrap=cluster.bootstrap,
        properties=TableProperties("delta", "bytes", None),
    )
    ingest(options, Ports(jobs=work, watcher=Quiet(), stop=Event(), compact=lambda table: None))


def fill(partition: FakePartition, count: int) -> None:
    for _ in range(count):
        partition.append([(0, None, str(partition.log_end_offset).encode(), ())])


@settings(max_examples=12, deadline=None)
@given(
    deaths=st.lists(
        st.tuples(
            st.integers(0, BUSIEST_RUN), st.booleans(), st.integers(0, PARTITIONS - 1), st.integers(1, 3)
        ),
        min_size=1,
        max_size=4,
    )
)
def test_each_row_is_in_the_table_once(deaths: list[tuple[int, bool, int, int]]) -> None:
    with (
        FakeCluster() as cluster,
        TemporaryDirectory() as name,
        patch.object(delta, "CHECKPOINT_EVERY", 2),
        patch("kraft.ingest.audit_folder.FOLD_FROM", 2),
    ):
        partitions = cluster.create_topic("t", leaders=[1] * PARTITIONS).partitions
        folder = Path(name) / "table"
        for at, after, index, count in deaths:
            fill(partitions[index], count)
            with dying(at, after=after) as step:
                try:
                    run(cluster, folder, step)
                except Died:
                    pass
        fill(partitions[0], 1)
        run(cluster, folder, lambda: None)
        table = DeltaTable(str(folder))
        rows = ds.dataset(table.file_uris()).to_table(columns=["partition", "offset", "value"]).to_pylist()
        found = sorted((row["partition"], row["offset"], row["value"]) for row in rows)
        assert found == [
            (index, offset, str(offset).encode())
            for index, partition in enumerate(partitions)
            for offset in range(partition.log_end_offset)
        ]
        assert {str(path) for path in data_files(folder)} == set(table.file_uris()), (
            "files that no commit names"
        )
        assert not list((control_folder(folder) / "attempts").iterdir())
        check_audit(folder, partitions)


def check_audit(folder: Path, partitions: Sequence[FakePartition]) -> None:
    """The rows of the audit follow each other, from the first offset to the last."""
    ends = [0] * len(partitions)
    for row in delta.DeltaLakeTable(folder, TableProperties("delta", "bytes", None)).audit_rows():
        assert (row.start, row.audit.offsets) == (ends[row.partition], row.end - row.start)
        ends[row.partition] = row.end
    assert ends == [partition.log_end_offset for partition in partitions]
