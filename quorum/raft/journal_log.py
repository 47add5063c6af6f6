"""What the Raft journal needs of a partition log, and how entries lie in one.

An entry is a batch of one record: base offset = index, partition leader epoch = term, value = the
proposal; a leader's barrier is a control batch without a value. Used by `journal.py` only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from partitions.disk import Buffer, FileSlice
from partitions.records.batch import decode_records, iter_batches, verify_crc
from partitions.records.builder import build_opaque_batch
from partitions.records.header import BatchHeader
from quorum.raft.config import MAX_PROPOSAL_BYTES
from quorum.raft.messages import BARRIER, PROPOSAL, Entry, is_command

READ_BYTES = 4 * 1024 * 1024
BATCH_OVERHEAD_BYTES = 1024
"""More than the header, the record's own fields and a control key take."""


class ReadResult(Protocol):
    @property
    def slices(self) -> Sequence[FileSlice]: ...


class JournalLog(Protocol):
    """The part of `partitions.log.log.PartitionLog` that holds a journal."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append_as_follower(self, records: Buffer) -> object: ...

    def read(self, offset: int, max_bytes: int, *, up_to_offset: int) -> ReadResult: ...

    def truncate_to(self, offset: int) -> None: ...

    def truncate_fully_and_start_at(self, offset: int) -> None: ...

    def delete_segments_before(self, offset: int) -> object: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class JournalDamagedError(ValueError):
    """A batch of the journal is sound by its checksum but is no Raft entry."""


def encode_entry(entry: Entry, timestamp_ms: int) -> bytes:
    """The batch of one entry."""
    command, index, term = entry
    is_barrier = command == BARRIER
    return build_opaque_batch(
        b"" if is_barrier else command[len(PROPOSAL) :],
        offset=index,
        leader_epoch=term,
        timestamp=timestamp_ms,
        is_control=is_barrier,
    )


def read_entries(log: JournalLog, from_index: int) -> Iterator[Entry]:
    """All entries from an index to the end of the log, in order. Raises CorruptBatchError for a
    batch that fails its checksum, JournalDamagedError for one that is no entry."""
    end = log.log_end_offset
    while from_index < end:
        result = log.read(from_index, READ_BYTES, up_to_offset=end)
        buffer = b"".join(part.read() for part in result.slices)
        if not buffer:
            raise JournalDamagedError(f"nothing can be read at offset {from_index} of {end}")
        for position, header in iter_batches(buffer):
            verify_crc(buffer, position, header)
            if header.base_offset < from_index:
                continue
            if header.base_offset != from_index:
                raise JournalDamagedError(f"offset {from_index} is missing before {header.base_offset}")
            yield _decode_entry(buffer, position, header)
            from_index += 1


def _decode_entry(buffer: bytes, position: int, header: BatchHeader) -> Entry:
    records = decode_records(
        buffer, position, header, max_decompressed_bytes=MAX_PROPOSAL_BYTES + BATCH_OVERHEAD_BYTES
    )
    if len(records) != 1 or header.partition_leader_epoch < 0:
        raise JournalDamagedError(f"the batch at offset {header.base_offset} is no entry of a journal")
    command = BARRIER if header.is_control else PROPOSAL + (records[0].value or b"")
    if not is_command(command):
        raise JournalDamagedError(f"the entry at offset {header.base_offset} is too large")
    return command, header.base_offset, header.partition_leader_epoch
