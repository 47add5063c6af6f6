"""Whether a table has every record of its ranges once, and as the cluster has it: `kraft ingest audit`.

For each partition the audit rows must chain from the first offset to the table's position, and each must have as many
rows as records were ingested. Where the cluster still has the records, they are read again, made into rows as an
ingestion makes them, and compared with the table's: missing, doubled and different ones are named. Offsets that the
cluster has expired, or cannot answer for, are named as not proved. Rows whose record a compaction has removed since are
no fault. Both sides are read in the order of offsets, a window at a time (`table_rows.py`): memory is bounded.

Rows do not tell the lives of a topic that was made anew apart. Where lives have offsets in common, one row of each is
expected, and one that is equal to the cluster's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from kraft.ingest.audit_folder import fold_rows
from kraft.ingest.completeness import compacted_topics
from kraft.ingest.folder import data_files
from kraft.ingest.maintenance import data_path
from kraft.ingest.model import AuditRow, Layout, PartitionKey, TableError, TableProperties, topic_id_text
from kraft.ingest.parquet import ParquetTable
from kraft.ingest.partitioning import partition_columns
from kraft.ingest.table_columns import ERROR, RAW
from kraft.ingest.table_rows import WINDOW_BYTES, TableRows, Window, windows
from kraft.ingest.tables import open_table
from kraft.ingest.values.rows import RowMaker
from kraft.protocol.schemas.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kraft.spark.client import ClusterClient, TopicMetadata
from kraft.spark.columns import COLUMN_NAMES
from kraft.spark.data_loss import LossPolicy
from kraft.spark.errors import ConnectorError, UnknownTopicError
from kraft.spark.slice_reader import PartitionSlice, SliceReader
from partitions.topic_partition import TopicPartition

MAX_NAMED = 100
"""Ranges of offsets, and sentences, that a report names of each kind; it counts all."""
_READ_ATTEMPTS = 3
"""While a run folds audit rows together."""
_RECORD_VALUE = "the value of the record"
"""A column of the cluster's rows that no table has."""
_OF_RECORDS = frozenset(COLUMN_NAMES) - {"value"}
_NO_ROWS = pa.schema([("offset", pa.int64())])
Offsets = npt.NDArray[np.int64]


@dataclass
class Found:
    """Offsets at fault: all are counted, the first ranges named."""

    count: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    """Start and end, ascending."""

    def add(self, offsets: Offsets) -> None:
        """Ascending, and behind those added before."""
        self.count += len(offsets)
        if not len(offsets):
            return
        breaks = np.flatnonzero(np.diff(offsets) > 1) + 1
        runs = np.split(offsets, breaks[:MAX_NAMED])[:MAX_NAMED]
        for run in runs:
            start, end = int(run[0]), int(run[-1]) + 1
            if self.ranges and self.ranges[-1][1] == start:
                self.ranges[-1] = self.ranges[-1][0], end
            elif len(self.ranges) < MAX_NAMED:
                self.ranges.append((start, end))


@dataclass
class PartitionReport:
    """What was found of one partition of one life of a topic."""

    key: PartitionKey
    start: int
    end: int
    rows: int = 0
    """Different offsets that the table has rows of."""
    missing: Found = field(default_factory=Found)
    duplicated: Found = field(default_factory=Found)
    different: Found = field(default_factory=Found)
    faults: list[str] = field(default_factory=list)
    not_proved: list[tuple[int, int, str]] = field(default_factory=list)
    """Offsets that could not be compared, and why."""

    @property
    def is_wrong(self) -> bool:
        return bool(self.missing.count or self.duplicated.count or self.different.count or self.faults)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": self.key.topic,
            "topic_id": topic_id_text(self.key.topic_id),
            "partition": self.key.partition,
            "from": self.start,
            "to": self.end,
            "rows": self.rows,
            "missing": self.missing.count,
            "missing_offsets": [list(one) for one in self.missing.ranges],
            "duplicated": self.duplicated.count,
            "duplicated_offsets": [list(one) for one in self.duplicated.ranges],
            "different": self.different.count,
            "different_offsets": [list(one) for one in self.different.ranges],
            "faults": self.faults,
            "not_proved": [{"from": start, "to": end, "why": why} for start, end, why in self.not_proved],
        }


@dataclass
class AuditReport:
    """What was found of a table."""

    partitions: list[PartitionReport]
    faults: list[str]
    """Of the table as a whole."""
    lost_files: list[str]
    """That the table references, and that are not there."""
    damaged_files: list[str]
    repeated_files: list[str]
    """That the table's log adds, although it has them already."""
    unreferenced_files: int
    """That are there, and that the table does not reference: no fault."""

    @property
    def is_wrong(self) -> bool:
        files = self.lost_files or self.damaged_files or self.repeated_files
        return bool(self.faults or files) or any(one.is_wrong for one in self.partitions)

    @property
    def complete(self) -> bool | None:
        """None: it cannot be told, as ranges are not proved."""
        if self.is_wrong:
            return False
        return None if any(one.not_proved for one in self.partitions) else True

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "complete": self.complete,
            "missing": sum(one.missing.count for one in self.partitions),
            "duplicated": sum(one.duplicated.count for one in self.partitions),
            "different": sum(one.different.count for one in self.partitions),
            "faults": self.faults,
            "lost_files": self.lost_files,
            "damaged_files": self.damaged_files,
            "repeated_files": self.repeated_files,
            "unreferenced_files": self.unreferenced_files,
            "partitions": [one.document() for one in self.partitions],
        }


class ClusterView(NamedTuple):
    """The cluster to compare with."""

    client: ClusterClient
    """Reads committed records."""
    allow_holes: bool = False
    """Whether topics that are not compacted now may have been."""


class TableView(NamedTuple):
    """What the audit has of the table, at one moment."""

    properties: TableProperties
    schema: pa.Schema
    positions: dict[str, int]
    """By application id."""
    audit_rows: list[AuditRow]
    """Of what the log has taken."""
    rows: TableRows
    repeated: list[str]
    """Paths that the log adds more than once."""
    unreferenced: int
    is_settled: bool
    """No commit was made while this was read: all rows are of the ranges."""


def read_table(folder: Path) -> TableView:
    """Reads the log, and the footers of all data files. It needs no claim: a run may go on, or have died.

    Raises TableError for a folder without a table, or one without a commit; OSError.
    """
    for _ in range(_READ_ATTEMPTS):
        view = _read_table(folder)
        if not any(life.report.faults for life in _lives(view)):
            break
    return view


def _read_table(folder: Path) -> TableView:
    table = open_table(folder)
    properties, schema, version = table.properties(), table.schema(), table.version()
    if properties is None or schema is None:
        raise TableError(f"{folder} has no commit yet: there is nothing to prove.")
    if isinstance(table, ParquetTable):
        positions = {name: position.offset for name, position in table.positions().items()}
        rows, files = list(table.audit_rows()), list(table.files())
    else:
        # Rows are written before the commit that takes them: those behind the position of this handle are not its.
        handle = DeltaTable(str(folder), version=version)
        found = [
            (row, handle.transaction_version(row.key.application_id(row.cluster_id)))
            for row in table.audit_rows()
        ]
        rows = [row for row, end in found if end is not None and row.end <= end]
        positions = {row.key.application_id(row.cluster_id): end for row, end in found if end is not None}
        files = list(table.files())
        again = set(added_twice(folder)) & {file.path for file in files}
        files += [file for file in files if file.path in again]
    times = Counter(file.path for file in files)
    present = {str(path.relative_to(folder)) for path in data_files(folder)}
    return TableView(
        properties,
        schema,
        positions,
        rows,
        TableRows((file, data_path(folder, table, file)) for file in files),
        sorted(path for path, count in times.items() if count > 1),
        len(present - times.keys()),
        table.version() == version,
    )


def added_twice(folder: Path) -> Iterator[str]:
    """Paths that entries of a Delta table's log add as new data although earlier ones have, as no commit does.

    `deltalake` takes such a file once. Entries that a checkpoint has replaced are not looked at.
    """
    there: set[str] = set()
    for entry in sorted((folder / "_delta_log").glob("*.json")):
        for line in entry.read_bytes().splitlines():  # a str is split at U+2028, too, which JSON may contain
            action = json.loads(line)
            if "remove" in action:
                there.discard(action["remove"]["path"])
            elif "add" in action and action["add"].get("dataChange", True):
                path = action["add"]["path"]
                if path in there:
                    yield unquote(path)
                there.add(path)


def audit(view: TableView, cluster: ClusterView | None) -> AuditReport:
    """`cluster` is None if none answers."""
    layout = Layout(view.properties.values, view.properties.partition_by, 1, view.schema, infer=False)
    lives = _lives(view)
    by_partition: dict[TopicPartition, list[_Life]] = {}
    for life in lives:
        by_partition.setdefault(TopicPartition(life.key.topic, life.key.partition), []).append(life)
    source = _Source(cluster, layout)
    visited = 0
    for partition, of_partition in sorted(by_partition.items()):
        visited += _PartitionAudit(partition, of_partition, view.rows, source, layout).run()
    faults = []
    if view.is_settled and visited < view.rows.rows and not view.rows.damaged:
        faults.append(
            f"{view.rows.rows - visited} rows are of no offset that the table has taken: a file was added by hand."
        )
    return AuditReport(
        [life.report for life in lives],
        faults,
        view.rows.lost[:MAX_NAMED],
        view.rows.damaged[:MAX_NAMED],
        view.repeated[:MAX_NAMED],
        view.unreferenced,
    )


@dataclass
class _Life:
    """A partition of one life of a topic, and what its audit rows promise."""

    cluster_id: str
    key: PartitionKey
    ranges: list[AuditRow]
    report: PartitionReport

    @property
    def start(self) -> int:
        return self.report.start

    @property
    def end(self) -> int:
        return self.report.end


def _lives(view: TableView) -> list[_Life]:
    """Ascending by topic and partition. Checks that audit rows chain."""
    by_name: dict[str, list[AuditRow]] = {}
    for row in view.audit_rows:
        by_name.setdefault(row.key.application_id(row.cluster_id), []).append(row)
    lives = []
    for name, rows in by_name.items():
        rows = sorted(rows, key=lambda row: (row.start, row.end))
        first, end = rows[0], max(row.end for row in rows)
        report = PartitionReport(first.key, first.start, end)
        report.faults += _chain_faults(rows, view.positions.get(name))
        lives.append(_Life(first.cluster_id, first.key, fold_rows(rows), report))
    return sorted(lives, key=lambda life: life.key)


def _chain_faults(rows: Sequence[AuditRow], position: int | None) -> Iterator[str]:
    at = rows[0].start
    for row in rows:
        if row.start != at:
            yield f"the audit rows leave a gap or overlap: one ends at offset {at}, the next begins at {row.start}"
        if row.audit.offsets != row.end - row.start:
            yield (
                f"the audit row of offsets {row.start} to {row.end} accounts for {row.audit.offsets} of"
                f" {row.end - row.start}"
            )
        at = row.end
    if position != at:
        yield f"the audit rows end at offset {at}, and the table's position is {position}"


class _Source:
    """The cluster's records as rows of the table."""

    def __init__(self, view: ClusterView | None, layout: Layout) -> None:
        self._view = view
        self._layout = layout
        self._compacted: dict[str, bool] = {}
        self._topics: dict[str, TopicMetadata | str] = {}
        """Or why they cannot be asked about."""

    def may_compact(self, topic: str) -> bool:
        """Whether the topic's records may go without a trace. Raises ConnectorError."""
        assert self._view is not None
        if topic not in self._compacted:
            self._compacted[topic] = self._view.allow_holes or topic in compacted_topics(
                self._view.client, [topic]
            )
        return self._compacted[topic]

    def proved(self, life: _Life) -> tuple[int, int, int]:
        """The part of the life's range that the cluster can be asked for, and the leader's epoch; the rest is noted as
        not proved. An empty part: nothing."""
        why = self._refusal(life)
        if why is None:
            assert self._view is not None
            partition = TopicPartition(life.key.topic, life.key.partition)
            try:
                first = self._view.client.list_offsets({partition: EARLIEST_TIMESTAMP})[partition]
                last = self._view.client.list_offsets({partition: LATEST_TIMESTAMP})[partition]
            except ConnectorError as error:
                why = str(error)
            else:
                start, end = max(life.start, first.offset), min(life.end, last.offset)
                if start > life.start:
                    expired = min(start, life.end)
                    life.report.not_proved.append(
                        (life.start, expired, "the cluster has deleted these records")
                    )
                if end < life.end:
                    begin = max(end, life.start)
                    sentence = (
                        f"the partition ends at offset {last.offset}: the cluster has lost these records"
                    )
                    life.report.not_proved.append((begin, life.end, sentence))
                return start, max(start, end), last.leader_epoch
        life.report.not_proved.append((life.start, life.end, why))
        return life.start, life.start, -1

    def _refusal(self, life: _Life) -> str | None:
        """Why the cluster cannot be asked about the life at all."""
        if self._view is None:
            return "no cluster was asked"
        topic = self._topic(life.key.topic)
        if isinstance(topic, str):
            return topic
        if self._view.client.cluster_id != life.cluster_id:
            return f"they are of cluster {life.cluster_id}, and this one is {self._view.client.cluster_id}"
        if topic.topic_id != life.key.topic_id:
            return "the topic was deleted and created anew"
        return None

    def _topic(self, name: str) -> TopicMetadata | str:
        """Asked for once, as to find out that it is gone takes time."""
        assert self._view is not None
        if name not in self._topics:
            try:
                self._topics[name] = self._view.client.topics([name])[name]
                self.may_compact(name)
            except UnknownTopicError:
                self._topics[name] = "the topic was deleted"
            except ConnectorError as error:
                self._topics[name] = str(error)
        return self._topics[name]

    def batches(self, key: PartitionKey, start: int, end: int, epoch: int) -> Iterator[pa.RecordBatch]:
        """Raises ConnectorError."""
        assert self._view is not None
        part = PartitionSlice(key.topic, key.topic_id, key.partition, start, end, epoch)
        maker = RowMaker(self._layout, self._layout.schema)
        reader = SliceReader(self._view.client, part, columns=COLUMN_NAMES, loss=LossPolicy(advice=""))
        for batch in reader.batches():
            yield maker.rows_of(batch).append_column(_RECORD_VALUE, batch.column("value"))


class _ClusterRows:
    """The cluster's rows of a range, handed out window by window."""

    def __init__(self, batches: Iterator[pa.RecordBatch], end: int) -> None:
        """`end` is the range's."""
        self.end = end
        self.has_failed = False
        self._batches = batches
        self._waiting: pa.RecordBatch | None = None

    def until(self, end: int) -> tuple[list[pa.RecordBatch], int]:
        """Rows before this offset that were not handed out yet, and the offset up to which these are all: less than
        `end` if there are many. Raises ConnectorError."""
        taken: list[pa.RecordBatch] = []
        while sum(batch.nbytes for batch in taken) < 2 * WINDOW_BYTES:
            batch = self._waiting if self._waiting is not None else next(self._batches, None)
            self._waiting = None
            if batch is None:
                return taken, end
            count = int(np.searchsorted(batch.column("offset").to_numpy(), end))
            taken.append(batch.slice(0, count))
            if count < batch.num_rows:
                self._waiting = batch.slice(count)
                return taken, end
        return taken, int(taken[-1].column("offset")[-1].as_py()) + 1


class _PartitionAudit:
    """All lives of one topic's partition."""

    def __init__(
        self, partition: TopicPartition, lives: list[_Life], rows: TableRows, source: _Source, layout: Layout
    ) -> None:
        self._partition = partition
        self._lives = lives
        self._rows = rows
        self._source = source
        of_folders = partition_columns(layout.partition_by)
        self._columns = [name for name in layout.schema.names if name not in of_folders]

    def run(self) -> int:
        """Fills the lives' reports. Returns how many rows of the table were looked at, each once."""
        visited = 0
        groups = self._rows.groups_of(self._partition)
        for number, life in enumerate(self._lives):
            counts = _RowCounts(life.ranges)
            start, end, epoch = self._source.proved(life)
            records = _ClusterRows(self._source.batches(life.key, start, end, epoch), end)
            parts = ((life.start, start, None), (start, end, records), (end, life.end, None))
            for begin, stop, cluster in parts:
                for window in windows(groups, begin, stop):
                    for occurrences in self._look_at(life, window, cluster, counts):
                        visited += int((_covering(self._lives[:number], occurrences) == 0).sum())
            if not any(
                one is not life and one.start < life.end and life.start < one.end for one in self._lives
            ):
                life.report.faults += counts.faults(life.report)
        return visited

    def _look_at(
        self, life: _Life, window: Window, cluster: _ClusterRows | None, counts: _RowCounts
    ) -> Iterator[Offsets]:
        """One window, in as many steps as its records need. Yields the offsets of the table's rows."""
        at = window.start
        while at < window.end:
            expected, stop = None, window.end
            if cluster is not None and not cluster.has_failed:
                try:
                    batches, stop = cluster.until(window.end)
                    expected = pa.Table.from_batches(batches, None if batches else _NO_ROWS)
                except ConnectorError as error:
                    cluster.has_failed = True
                    life.report.not_proved.append((at, cluster.end, str(error)))
            groups = [group for group in window.groups if group.meets(at, stop)]
            yield self._judge(life, Window(at, stop, groups), expected, counts)
            at = stop

    def _judge(self, life: _Life, window: Window, expected: pa.Table | None, counts: _RowCounts) -> Offsets:
        """Adds to the life's report what is wrong in the window. `expected`: the cluster's rows, if it has answered."""
        occurrences, equal = self._compared(window, expected)
        order = np.argsort(occurrences, kind="stable")
        occurrences, equal = occurrences[order], equal[order]
        present, first = np.unique(occurrences, return_index=True)
        times = np.diff(np.append(first, len(occurrences)))
        allowed = _covering(self._lives, present)
        report = life.report
        report.rows += len(present)
        report.duplicated.add(present[times > allowed])
        missing = np.empty(0, np.int64)
        if expected is not None:
            known = expected.column("offset").to_numpy()
            missing = np.setdiff1d(known, present, assume_unique=True)
            report.missing.add(missing)
            equals = np.add.reduceat(equal.astype(np.int64), first) if len(first) else times
            is_known = np.isin(present, known, assume_unique=True)
            alone = allowed == 1
            wrong = is_known & np.where(alone, equals < times, equals == 0)
            if not self._source.may_compact(self._partition.topic):
                wrong |= ~is_known & alone
            report.different.add(present[wrong])
        counts.add(present, missing)
        return occurrences

    def _compared(self, window: Window, expected: pa.Table | None) -> tuple[Offsets, npt.NDArray[np.bool_]]:
        """The offset of every row of the table in the window, and whether it is as the cluster's."""
        offsets: list[Offsets] = []
        equal: list[npt.NDArray[np.bool_]] = []
        for group in window.groups:
            rows = self._rows.read(group, self._partition, window.start, window.end)
            if rows is None or not rows.num_rows:
                continue
            found = rows.column("offset").to_numpy()
            offsets.append(found)
            same = np.zeros(len(found), np.bool_)
            if expected is not None and expected.num_rows:
                known = expected.column("offset").to_numpy()
                places = np.minimum(np.searchsorted(known, found), len(known) - 1)
                there = np.flatnonzero(known[places] == found)
                columns = [name for name in self._columns if name in rows.schema.names]
                one, other = rows.take(pa.array(there)), expected.take(pa.array(places[there]))
                wrong = differing(one.select(columns), other.select(columns))
                if wrong.any() and ERROR in columns:
                    of_records = [name for name in columns if name in _OF_RECORDS]
                    wrong &= ~_keep_values(one, other) | differing(
                        one.select(of_records), other.select(of_records)
                    )
                same[there] = ~wrong
            equal.append(same)
        if not offsets:
            return np.empty(0, np.int64), np.empty(0, np.bool_)
        return np.concatenate(offsets), np.concatenate(equal)


class _RowCounts:
    """How many rows the table has of each audit row, against what was ingested."""

    def __init__(self, ranges: Sequence[AuditRow]) -> None:
        self._ranges = ranges
        self._starts = np.array([row.start for row in ranges], np.int64)
        self._rows = np.zeros(len(ranges), np.int64)
        self._missing = np.zeros(len(ranges), np.int64)

    def add(self, present: Offsets, missing: Offsets) -> None:
        for offsets, counted in ((present, self._rows), (missing, self._missing)):
            if len(offsets):
                places = np.searchsorted(self._starts, offsets, side="right") - 1
                np.add.at(counted, np.maximum(places, 0), 1)

    def faults(self, report: PartitionReport) -> list[str]:
        """Sentences; rows that are missing, and whose offsets nobody knows any more, are counted as missing."""
        faults = []
        for row, rows, missing in zip(self._ranges, self._rows.tolist(), self._missing.tolist(), strict=True):
            if rows + missing == row.audit.records:
                continue
            report.missing.count += max(row.audit.records - rows - missing, 0)
            faults.append(
                f"of offsets {row.start} to {row.end}, {row.audit.records} records were ingested, and the table has"
                f" {rows} rows" + (f" ({missing} of the missing ones are named)" if missing else "")
            )
        return faults[:MAX_NAMED]


def differing(rows: pa.Table, expected: pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows differ in any column. Both tables have the same columns and as many rows. Pure.

    Of `_error` only whether there is one counts: its sentence may be worded anew.
    """
    wrong = np.zeros(rows.num_rows, np.bool_)
    for name in rows.schema.names:
        one, other = rows.column(name), expected.column(name).cast(rows.schema.field(name).type)
        if name == ERROR:
            one, other = one.is_null(), other.is_null()
        if not one.equals(other):
            wrong |= _unequal(one, other)
    return wrong


def _keep_values(rows: pa.Table, expected: pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows have an error and the whole value of their record. They are right, whether or not the value would fit
    the table's columns of today: a run may have refused a field that the audit, which infers none, leaves out. Pure."""
    equal = pc.fill_null(pc.equal(rows.column(RAW), expected.column(_RECORD_VALUE)), False)
    kept: npt.NDArray[np.bool_] = pc.and_(rows.column(ERROR).is_valid(), equal).to_numpy()
    return kept


def _unequal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    if pa.types.is_nested(one.type):
        return np.array(
            [
                repr(mine) != repr(theirs)
                for mine, theirs in zip(one.to_pylist(), other.to_pylist(), strict=True)
            ],
            np.bool_,
        )
    unequal = pc.fill_null(pc.not_equal(one, other), False)
    if pa.types.is_floating(one.type):
        both = pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False)
        unequal = pc.and_(unequal, pc.invert(both))
    nulls = pc.xor(one.is_null(), other.is_null())
    found: npt.NDArray[np.bool_] = pc.or_(unequal, nulls).to_numpy()
    return found


def _covering(lives: Sequence[_Life], offsets: Offsets) -> npt.NDArray[np.int64]:
    """Of how many of the lives each offset is."""
    counts = np.zeros(len(offsets), np.int64)
    for life in lives:
        counts += (offsets >= life.start) & (offsets < life.end)
    return counts
