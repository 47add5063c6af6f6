"""The loop of an ingestion: plan a cut, have it written, check that it is complete, commit it.

The command (`kraft ingest`) calls `ingest` in its own process, which alone commits. The table holds the positions, and
nothing else does: after a crash at any point the next run begins where the table ends. A cut that fails is planned anew
from the table's positions, with new names for its files, a bounded number of times; what trying again does not mend
(a topic made anew, records that are gone, an incomplete cut) ends the run with the fact. `stop` ends it after the
commit that is being made.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Protocol

import pyarrow as pa

from kraft.ingest.claim import claimed
from kraft.ingest.completeness import check_complete, check_holes, compacted_topics
from kraft.ingest.model import (
    Commit,
    CommitConflictError,
    IncompleteError,
    IngestError,
    Layout,
    PartitionKey,
    SliceResult,
    SliceTask,
    Table,
    TableError,
)
from kraft.ingest.options import IngestOptions
from kraft.ingest.plan import Cut, CutPlanner
from kraft.ingest.progress import Progress
from kraft.ingest.spark_job import JobFailedError
from kraft.ingest.tables import open_table, table_layout
from kraft.spark.client import ClusterClient
from kraft.spark.errors import ClusterUnavailableError, ConnectorError
from kraft.spark.lag_group import LAG_BUDGET_S, LagGroup
from kraft.spark.options import parse_options
from kraft.spark.reading import driver_client

Jobs = Callable[[Sequence[SliceTask]], list[SliceResult]]
"""Runs tasks and returns their results in order. Raises ConnectorError."""

RETRIES = 3
"""Failures in a row after which the run ends."""
RETRIES_CONTINUOUS = 20
FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 30.0
SCHEMA_ROUNDS = 4
"""So often slices are written again since others brought a column of another type first."""
_RETRIED = (ClusterUnavailableError, JobFailedError, CommitConflictError)


class Watcher(Protocol):
    """Whoever shows the run to people; see `kraft.cli.ingest.display`."""

    def begun(self, progress: Progress) -> None: ...
    def planned(self, cut: Cut) -> None: ...
    def committed(self, next_commit_s: float | None) -> None: ...
    def failed(self, error: ConnectorError, retry_s: float) -> None: ...
    def told(self, sentence: str) -> None: ...


@dataclass(frozen=True)
class Ports:
    """What the run has of the world; `clock` is monotonic, both are replaced in tests."""

    jobs: Jobs
    watcher: Watcher
    stop: Event
    compact: Callable[[Table], None]
    """Called between two cuts of a continuous run, under the claim."""
    clock: Callable[[], float] = time.monotonic
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000


class StoppedError(IngestError):
    """The run was told to end while it waited for brokers."""


def ingest(options: IngestOptions, ports: Ports) -> Progress:
    """Runs until all up to the captured end is committed, or until `stop`. Raises ConnectorError, OSError."""
    run = f"{datetime.fromtimestamp(ports.now_ms() / 1000, UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    read_options = parse_options(options.reader_options(), streaming=True)
    progress = Progress(options.topics, ports.clock())
    with claimed(options.folder, run), driver_client(read_options) as client:
        client.policy = replace(client.policy, sleep=_sleep_until(ports.stop))
        table = open_table(options.folder, options.properties)
        table.recover()
        layout = table_layout(options, table)
        try:
            planner = CutPlanner(
                client, read_options, table.positions(), available_now=not options.continuous
            )
            with _lag_group(options) as lag_group:
                _Run(run, options, ports, client, table, layout, planner, progress, lag_group).run()
        except StoppedError as error:
            ports.watcher.told(str(error))
    progress.ended_s = ports.clock()
    return progress


def _sleep_until(stop: Event) -> Callable[[float], None]:
    """The client's sleep between two attempts to reach brokers, which the end of the run cuts short."""

    def sleep(duration_s: float) -> None:
        if stop.wait(duration_s):
            raise StoppedError(
                "Ended while brokers did not answer: what was committed before is in the table."
            )

    return sleep


@contextmanager
def _lag_group(options: IngestOptions) -> Iterator[LagGroup | None]:
    if options.commit_group is None:
        yield None
        return
    with driver_client(
        parse_options(options.reader_options(), streaming=True), budget_s=LAG_BUDGET_S
    ) as client:
        yield LagGroup(client, options.commit_group)


class _Run:
    def __init__(
        self,
        run: str,
        options: IngestOptions,
        ports: Ports,
        client: ClusterClient,
        table: Table,
        layout: Layout,
        planner: CutPlanner,
        progress: Progress,
        lag_group: LagGroup | None,
    ) -> None:
        self._run = run
        self._attempts = 0
        self._options = options
        self._ports = ports
        self._client = client
        self._table = table
        self._planner = planner
        self._progress = progress
        self._lag_group = lag_group
        self._layout = layout

    def run(self) -> None:
        self._begin()
        failures = 0
        while not self._ports.stop.is_set():
            due_s = self._ports.clock() + self._options.trigger_s
            try:
                if failures:
                    self._table.recover()
                    self._planner.stand_at(self._table.positions())
                cut = self._planner.next()
                self._progress.lag = self._planner.lag()
                if cut is not None:
                    self._ports.watcher.planned(cut)
                    self._take(cut)
                    self._ports.watcher.committed(self._left_s(due_s) if self._options.continuous else None)
            except _RETRIED as error:
                failures += 1
                if self._ports.stop.is_set():
                    self._ports.watcher.told(f"The last cut is left to the next run: {error}")
                    return
                if failures > (RETRIES_CONTINUOUS if self._options.continuous else RETRIES):
                    raise
                self._wait(error, failures)
                continue
            failures = 0
            if self._options.continuous:
                self._ports.compact(self._table)
                self._ports.stop.wait(self._left_s(due_s))
            elif cut is None:
                return

    def _begin(self) -> None:
        version = self._table.version()
        self._progress.version = version if version >= 0 else None
        self._progress.standing(
            {
                PartitionKey(name, topic.topic_id, index): position.offset
                for name, topic in self._planner.at.items()
                for index, position in topic.partitions.items()
            }
        )
        self._ports.watcher.begun(self._progress)
        if version < 0:
            return
        if self._lag_group is not None:  # it may be another one than before, or have missed the last commit
            self._lag_group.commit(self._planner.at)
        new = self._planner.new_topics()
        for row in self._table.audit_rows():
            if row.topic in new and new.pop(row.topic) != row.topic_id:
                self._ports.watcher.told(
                    f"Topic {row.topic} is not the one that the table has rows of: it was deleted and created anew, or"
                    " belongs to another cluster. Those rows stay; the topic is ingested from its beginning."
                )

    def _wait(self, error: ConnectorError, failures: int) -> None:
        backoff_s = min(FIRST_BACKOFF_S * 2 ** (failures - 1), MAX_BACKOFF_S)
        self._progress.failures += 1
        self._ports.watcher.failed(error, backoff_s)
        self._client.close()  # what was connected before the failure may be of no use
        self._ports.stop.wait(backoff_s)

    def _left_s(self, due_s: float) -> float:
        return max(due_s - self._ports.clock(), 0.0)

    # ---- one cut

    def _take(self, cut: Cut) -> None:
        self._attempts += 1
        attempt = f"{self._run}-{self._attempts}"
        folder = self._table.staging(attempt)
        cut_time_ms = self._ports.now_ms()
        try:
            results, schema, rounds = self._written(cut, attempt, folder)
            self._check(cut, results)
            version = self._table.commit(
                Commit(
                    cluster_id=self._planner.cluster_id,
                    attempt=attempt,
                    cut_time_ms=cut_time_ms,
                    results=results,
                    ranges=cut.ranges,
                    schema=schema,
                )
            )
        except TableError:
            raise  # whether the commit was made, the next run finds out
        except ConnectorError:
            self._table.discard(attempt)
            raise
        if rounds > 1:
            self._table.discard(attempt)  # what was written in earlier rounds
        self._planner.taken(cut)
        self._layout = table_layout(self._options, self._table)
        now_s = self._ports.clock()
        lag = self._planner.lag()
        self._progress.committed(cut.ranges, results, version=version, lag=lag, now_s=now_s)
        if self._lag_group is not None:
            self._lag_group.commit(cut.end)

    def _written(self, cut: Cut, attempt: str, folder: Path) -> tuple[list[SliceResult], pa.Schema, int]:
        """The results of all slices, with the columns that the table then has, and the rounds that it took."""
        layout, options = self._layout, self._options.reader_options()
        results: list[SliceResult] = []
        again = list(range(len(cut.slices)))
        results_by_index: dict[int, SliceResult] = {}
        for round_ in range(1, SCHEMA_ROUNDS + 1):
            tasks = [
                SliceTask(options, cut.slices[index], layout, str(folder), f"{attempt}-{round_}-{index}")
                for index in again
            ]
            results_by_index.update(zip(again, self._ports.jobs(tasks), strict=True))
            results = [results_by_index[index] for index in range(len(cut.slices))]
            if layout.values != "json":
                return results, layout.schema, round_
            from kraft.ingest.values.inference import merge_schemas

            schema, again = merge_schemas(layout.schema, [(result.part, result.schema) for result in results])
            if not again:
                return results, schema, round_
            layout = replace(layout, schema=schema)
        raise IncompleteError(
            f"The rows of this cut disagree about their columns, after {SCHEMA_ROUNDS} rounds still: give their types"
            " with --schema."
        )

    def _check(self, cut: Cut, results: Sequence[SliceResult]) -> None:
        check_complete(cut.ranges, results)
        with_holes = {result.part.topic for result in results if result.audit.hole_offsets}
        if with_holes and not self._options.allow_holes:
            check_holes(results, compacted_topics(self._client, with_holes))
