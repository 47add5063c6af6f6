"""What can go wrong in a partition log, as typed errors.

Guarantees: every error that may reach a client carries `code`, the name of Kafka's error for it,
and a sentence; none of them leaves a torn record behind. The replica manager maps the codes to the
wire, people read the sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from partitions.records.batch import BatchHeader


class LogError(Exception):
    """Base of the log's errors; `code` is the name of Kafka's error."""

    code = "UNKNOWN_SERVER_ERROR"
    is_transient = False
    """Whether nothing was changed, and the same may succeed later on this very log."""
    needs_room = False
    """Whether a full disk is all that is wrong: a log that failed so can be opened again when it has room."""


class OffsetOutOfRange(LogError):
    """A read or a truncation outside [log start offset, log end offset]."""

    code = "OFFSET_OUT_OF_RANGE"

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(
            f"offset {offset} is outside the log, which holds {log_start_offset} to {log_end_offset}"
        )
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class AppendError(LogError):
    """An append that was refused whole: nothing of it is in the log."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class AppendPostponed(AppendError):
    """The disk did not take the append for want of something that comes back, such as descriptors."""

    is_transient = True

    def __init__(self, message: str) -> None:
        super().__init__("KAFKA_STORAGE_ERROR", message)


class NoRoomToAppend(AppendPostponed):
    """The disk is full: what was written of the append was cut away again."""


class NotVerified(AppendError):
    """A transactional batch would open a transaction that its coordinator did not confirm, or that has ended since."""

    def __init__(self, producer_id: int) -> None:
        super().__init__(
            "INVALID_TXN_STATE",
            f"the batch of producer {producer_id} is not part of an ongoing transaction here: it was ended, or the"
            " partition was not added to it; abort it, and begin another",
        )


class RecordError(NamedTuple):
    """What is wrong with one record of an append: its place in it from 0 on, Kafka's error name, a sentence."""

    batch_index: int
    code: str
    message: str


class InvalidRecords(AppendError):
    """An append refused for single records, which it names, at least one (KIP-467)."""

    def __init__(self, code: str, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)


class UnexpectedAppendOffset(AppendError):
    """A follower was handed batches that do not start at or after its log end offset, in order."""

    def __init__(self, message: str, first_offset: int) -> None:
        super().__init__("OFFSET_OUT_OF_RANGE", message)
        self.first_offset = first_offset


class HoleTooWide(UnexpectedAppendOffset):
    """The first batch is farther from the log's end than the indexes of any segment can name."""


class LogStorageError(LogError):
    """The disk failed under the log, or the log was closed by such a failure before."""

    code = "KAFKA_STORAGE_ERROR"


class DirectoryFailed(LogStorageError):
    """The log's data directory failed: nothing in it is used any more before the node starts again."""


class NoSpaceLeft(LogStorageError):
    """The disk is full, or the process has no descriptor left: a file could not be replaced, a folder not be made,
    a log not be opened, or not be flushed."""

    is_transient = True
    needs_room = True


class InterruptedByFullDisk(LogStorageError):
    """Room or a descriptor was wanting in the middle of a change: the log has to be opened again, which recovers it."""

    needs_room = True


class LogCorruptError(LogError):
    """Bytes inside the log are damaged, and no torn write explains it: never served, never cut away."""

    code = "KAFKA_STORAGE_ERROR"

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(
            f"{path} is damaged at byte {position}: {reason}. A replica is copied again from the leader by"
            " itself if another broker leads; else restore the file"
        )
        self.path = path
        self.position = position
        self.reason = reason


class BatchDamaged(LogCorruptError):
    """Damage that a checksum proves, or the order of the offsets: no index could be to blame for it."""


class EpochDamaged(BatchDamaged):
    """A batch says that it is of another leader epoch than it can be: no checksum covers that."""

    def __init__(self, path: str, position: int, reason: str, *, latest_epoch: int) -> None:
        super().__init__(path, position, reason)
        self.latest_epoch = latest_epoch
        """No batch up to that place is of a later one."""


class BatchDisplaced(BatchDamaged):
    """A batch says that it ends at another offset than both indexes do: no checksum covers where it begins."""

    def __init__(self, path: str, position: int, header: BatchHeader, last_offset: int) -> None:
        super().__init__(
            path,
            position,
            f"the batch says that it ends at offset {header.last_offset}, and both indexes say {last_offset}",
        )
        self.last_offset = last_offset
        """By the indexes."""


class SegmentEndsElsewhere(BatchDamaged):
    """A closed segment does not end where the next one begins: batches, or a whole segment, are missing."""

    def __init__(self, path: str, position: int, end_offset: int, next_base: int) -> None:
        super().__init__(
            path, position, f"the segment ends at offset {end_offset}, and the next one begins at {next_base}"
        )


class EpochsDisagree(BatchDamaged):
    """A batch and the log's leader epochs do not say the same: one of the two has rotted."""

    def __init__(self, path: str, position: int, header: BatchHeader, known_epoch: int | None) -> None:
        said = "nothing of it" if known_epoch is None else str(known_epoch)
        super().__init__(
            path,
            position,
            f"the batch at offset {header.base_offset} is of leader epoch {header.partition_leader_epoch}, and"
            f" leader-epoch-checkpoint says {said}; if that file is what is wrong, remove it, and the next"
            " start takes the epochs from the batches",
        )
        self.header = header
        self.known_epoch = known_epoch
        """Of the batch's first offset, or of its last one if that is of another epoch; None below all epochs."""


class InconsistentTopicId(LogError):
    """The folder belongs to another incarnation of a topic of the same name; it is never reused."""

    code = "INCONSISTENT_TOPIC_ID"


class DataDirectoryError(LogError):
    """A data directory that this node must not use: in use, foreign, or not formatted."""

    code = "KAFKA_STORAGE_ERROR"


class DirectoryUnusable(DataDirectoryError):
    """A data directory that is missing or whose disk fails: the node goes on without it if it has others."""


class InvalidConfig(LogError):
    """A topic configuration that is unknown or out of its range."""

    code = "INVALID_CONFIG"

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
