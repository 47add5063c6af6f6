"""What the parts of an ingestion hand to each other: tasks, what workers wrote, commits, and the table they go to.

The driver (`run.py`) plans a cut and makes a `SliceTask` of each slice; a worker (`writing.py`) writes files and
answers a `SliceResult`; a `Table` (`delta.py`, `parquet.py`) takes the results of one cut in one `Commit`. All but
`Table` are plain values that can be pickled. Offsets: `start` up to, not including, `end`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import pyarrow as pa

from kraft.spark.errors import ConnectorError
from kraft.spark.slice_reader import PartitionSlice
from kraft.spark.stream_offsets import Position

Values = Literal["bytes", "string", "json"]
Format = Literal["delta", "parquet"]

CONTROL_FOLDER = "_kraft"
"""In the table's folder: the claim, and the audit rows of a Delta table. Readers of tables ignore names with `_`."""
MAX_NAMED_HOLES = 1000
"""A slice names no more ranges of holes than these; it counts all of their offsets."""


class IngestError(ConnectorError):
    """Base of the errors of an ingestion; each is a sentence for the person who runs it."""


class TableError(IngestError):
    """The table cannot be used: held by another run, laid out in another way, damaged, or none at all."""


class CommitConflictError(IngestError):
    """The table has not taken the commit, since it is not where the commit begins: plan again from its positions."""


class IncompleteError(IngestError):
    """What was read does not account for every offset of a range."""


@dataclass(frozen=True)
class Layout:
    """How rows are laid out in the table."""

    values: Values
    partition_by: str | None
    """`date` or `hour` of the record's timestamp (UTC), or a field of the rows."""
    max_file_bytes: int
    schema: pa.Schema
    """The table's columns: key, value (or, for json, the fields so far, perhaps none), topic, partition, …"""
    infer: bool
    """json without a schema file: fields that rows bring are added."""


class SliceTask(NamedTuple):
    """What a worker is to do."""

    options: dict[str, str]
    """Of the connector's reader, with kafka.isolation.level=read_committed."""
    part: PartitionSlice
    layout: Layout
    folder: str
    """Absolute; the worker makes it and its subfolders, and fsyncs what it makes."""
    name: str
    """What all names of its files begin with; no other task, of any attempt, has the same."""


class WrittenFile(NamedTuple):
    """A closed and fsynced Parquet file."""

    path: str
    """Relative to the task's `folder`, with `/`."""
    partition_values: dict[str, str | None]
    rows: int
    size_bytes: int
    stats: str
    """JSON, as Delta's `stats` of an add action."""
    offsets: tuple[int, int]
    """The first offset of its rows, and the last one plus one."""


@dataclass(frozen=True)
class RangeAudit:
    """What the offsets of a range turned out to be: records + control + aborted + hole_offsets = its length."""

    records: int = 0
    control: int = 0
    aborted: int = 0
    hole_offsets: int = 0
    """Offsets that hold nothing any more."""
    holes: tuple[tuple[int, int], ...] = ()
    """The first MAX_NAMED_HOLES ranges (start, end) of them, ascending."""
    dead_letters: int = 0
    """Of the records, those that did not fit the schema and carry `_error`."""

    @property
    def offsets(self) -> int:
        return self.records + self.control + self.aborted + self.hole_offsets

    def __add__(self, other: RangeAudit) -> RangeAudit:
        """Of two ranges one after the other."""
        return RangeAudit(
            self.records + other.records,
            self.control + other.control,
            self.aborted + other.aborted,
            self.hole_offsets + other.hole_offsets,
            (self.holes + other.holes)[:MAX_NAMED_HOLES],
            self.dead_letters + other.dead_letters,
        )


class SliceResult(NamedTuple):
    """What a worker did."""

    part: PartitionSlice
    files: list[WrittenFile]
    audit: RangeAudit
    schema: pa.Schema
    """Of the rows that it wrote: the table's columns, and those that it proposes to add."""
    late_rows: int
    """Rows whose partition (`date`, `hour`) is older than the slice's newest one by more than one."""


class PartitionKey(NamedTuple):
    """A partition of one life of a topic."""

    topic: str
    topic_id: bytes
    partition: int

    def application_id(self, cluster_id: str) -> str:
        """The name under which a table keeps the partition's next offset: a recreated topic has another."""
        return f"{cluster_id}/{topic_id_text(self.topic_id)}/{self.partition}"


def topic_id_text(topic_id: bytes) -> str:
    """As Kafka writes it."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


class CommitRange(NamedTuple):
    """The offsets of a partition that a commit takes, and the epoch of the leader that named their end."""

    start: int
    end: int
    leader_epoch: int


@dataclass(frozen=True)
class Commit:
    """All that one cut brought, for one step of the table."""

    cluster_id: str
    attempt: str
    """The prefix of its files' names, as given to `Table.staging`."""
    cut_time_ms: int
    results: Sequence[SliceResult]
    """The slices of a range follow each other by offset and cover it."""
    ranges: Mapping[PartitionKey, CommitRange]
    """Of the partitions that move; an empty one of a partition that the table sees for the first time."""
    schema: pa.Schema
    """The table's columns after the commit: those before, and at their end the added ones."""


@dataclass(frozen=True)
class AuditRow:
    """What one commit took of one partition; it stands beside the data."""

    cluster_id: str
    topic: str
    topic_id: bytes
    partition: int
    start: int
    end: int
    leader_epoch: int
    audit: RangeAudit
    files: tuple[str, ...]
    """Paths in the table, as written; a compaction may have replaced them."""
    cut_time_ms: int

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.topic, self.topic_id, self.partition)


class TableProperties(NamedTuple):
    """What a table is, from its first commit on; a run that asks for something else is refused."""

    format: Format
    values: Values
    partition_by: str | None


class TableFile(NamedTuple):
    """A data file that the table references."""

    path: str
    """Relative to the table's folder."""
    size_bytes: int
    rows: int
    partition_values: dict[str, str | None]


class Table(Protocol):
    """A folder of Parquet files and a log of commits. All but reading needs the claim (`claim.py`)."""

    def properties(self) -> TableProperties | None:
        """None: there is no table yet; the first commit makes it."""

    def schema(self) -> pa.Schema | None: ...

    def version(self) -> int:
        """Of the last commit; -1: none."""

    def positions(self) -> dict[str, Position]:
        """By application id, the next offset that the table does not have yet, and the leader epoch of its audit row.

        Read on the handle that the next `commit` is made on.
        """

    def staging(self, prefix: str) -> Path:
        """Where the workers of an attempt write, the names of whose files begin with `prefix`.

        Noted durably before it returns, so that `recover` finds what a dead run leaves.
        """

    def discard(self, prefix: str) -> None:
        """Removes the files of an attempt that no commit names."""

    def commit(self, commit: Commit) -> int:
        """Makes the rows part of the table, and durable; returns the version.

        Raises CommitConflictError unless each range starts where the table ends, and OSError or TableError where it
        is not known whether the commit was made: then its files stay, and `recover` decides.
        """

    def recover(self) -> None:
        """Under the claim, before a run: what a dead run left is finished or removed."""

    def audit_rows(self) -> Iterator[AuditRow]:
        """Of all commits; those of a partition ascending. Neighbours may have become one row."""

    def files(self) -> Iterator[TableFile]: ...


def partition_key(part: PartitionSlice) -> PartitionKey:
    return PartitionKey(part.topic, part.topic_id, part.partition)
