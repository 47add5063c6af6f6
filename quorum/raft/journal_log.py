"""The encoding of Raft entries as record batches, and the part of a partition log that a journal needs.

An entry is a batch of one record: base offset = index, partition leader epoch = term, value = the proposal. A
leader's barrier is a control batch without a value. Two record headers add what the batch header cannot hold. `term`
stands there once more, since the CRC of a batch covers neither its epoch nor its offset; dense offsets check
themselves. `synced` is the index through which this voter's journal was durable when it wrote the batch: by it an
entry vouches for all before it (`journal_check.py`).
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Protocol

from partitions.disk import Buffer
from partitions.records.batch import decode_records
from partitions.records.builder import build_opaque_batch
from partitions.records.header import BatchHeader
from quorum.raft.config import MAX_PROPOSAL_BYTES
from quorum.raft.messages import BARRIER, PROPOSAL, Entry, is_command

BATCH_OVERHEAD_BYTES = 1024
"""Above the size of the header, the record's own fields and headers, and a control key."""
NOTHING_SYNCED = 0
_TERM_HEADER = "term"
_SYNCED_HEADER = "synced"
_TERM = struct.Struct(">i")
_SYNCED = struct.Struct(">q")


class JournalLog(Protocol):
    """The part of `partitions.log.log.PartitionLog` that holds a journal."""

    @property
    def log_end_offset(self) -> int: ...

    def append_as_follower(self, records: Buffer) -> object: ...

    def truncate_to(self, offset: int) -> None: ...

    def truncate_fully_and_start_at(self, offset: int) -> None: ...

    def delete_segments_before(self, offset: int) -> object: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class JournalDamagedError(ValueError):
    """A batch with a right checksum that is no Raft entry."""


class WrittenEntry(NamedTuple):
    """An entry as the journal stores it."""

    entry: Entry
    synced: int
    """Index through which everything was durable when it was written; NOTHING_SYNCED if it does not say."""


def encode_entry(entry: Entry, timestamp_ms: int, synced: int = NOTHING_SYNCED) -> bytes:
    """The batch of one entry, written while the journal was durable through index `synced`."""
    command, index, term = entry
    is_barrier = command == BARRIER
    return build_opaque_batch(
        b"" if is_barrier else command[len(PROPOSAL) :],
        offset=index,
        leader_epoch=term,
        timestamp=timestamp_ms,
        is_control=is_barrier,
        headers=((_TERM_HEADER, _TERM.pack(term)), (_SYNCED_HEADER, _SYNCED.pack(synced))),
    )


def decode_entry(buffer: Buffer, position: int, header: BatchHeader) -> Entry:
    """The entry in the batch at `position`, whose CRC was compared. Raises CorruptBatchError,
    JournalDamagedError."""
    return decode_written(buffer, position, header).entry


def decode_written(buffer: Buffer, position: int, header: BatchHeader) -> WrittenEntry:
    """As `decode_entry`, with the entry's `synced`. An entry that an older version wrote without these headers
    vouches for nothing."""
    records = decode_records(
        buffer, position, header, max_decompressed_bytes=MAX_PROPOSAL_BYTES + BATCH_OVERHEAD_BYTES
    )
    term, index = header.partition_leader_epoch, header.base_offset
    if len(records) != 1 or term < 0:
        raise JournalDamagedError(f"the batch at offset {index} is no entry of a journal")
    command = BARRIER if header.is_control else PROPOSAL + (records[0].value or b"")
    if not is_command(command):
        raise JournalDamagedError(f"the entry at offset {index} is too large")
    said = dict(records[0].headers)
    written_term, synced = said.get(_TERM_HEADER), said.get(_SYNCED_HEADER)
    if written_term is not None and written_term != _TERM.pack(term):
        raise JournalDamagedError(
            f"the epoch of the entry at offset {index} is not the one it was written with"
        )
    is_claim = synced is not None and len(synced) == _SYNCED.size
    claimed = _SYNCED.unpack(synced)[0] if synced is not None and is_claim else NOTHING_SYNCED
    if not NOTHING_SYNCED <= claimed < index:
        raise JournalDamagedError(f"the entry at offset {index} claims to be older than offset {claimed}")
    return WrittenEntry((command, index, term), claimed)
