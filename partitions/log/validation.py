"""What an append must look like before its bytes go into the log.

Guarantees: a leader's log takes only whole batches with right checksums whose offsets and counts
agree, within the topic's size limit, and no control batch from a client; a follower's log takes its
leader's batches as they are, whole and in order. One pass over batch headers; single records are
never looked at (`record_checks.py` opens batches where a topic asks for it): of a client's body only
what costs nothing per record is asked, that it can be so many records in that codec. Whatever is wrong
is an AppendError for the whole append.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias

from crc32c import crc32c

from partitions.log.config_values import INT_MAX
from partitions.log.errors import AppendError, HoleTooWide, UnexpectedAppendOffset
from partitions.records.batch import (
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    CorruptBatchError,
    iter_batches,
    verify_crc,
    verify_stamped,
)
from partitions.records.compression import Codec, unfolds_at_most
from partitions.records.header import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    header_of,
    parse_header_fields,
)
from partitions.records.markers import EndTransactionMarker, read_marker
from partitions.records.record import MIN_RECORD_BYTES

Origin: TypeAlias = Literal["client", "coordinator", "raft"]
"""Who made the batches: a producer, one of this broker's coordinators, or the quorum's journal."""

PlacedHeader: TypeAlias = tuple[int, BatchHeader]
"""Position in the buffer, header."""


class CheckedBatches(NamedTuple):
    """Whole batches with their places in the buffer; the idempotent ones once more."""

    buffer: memoryview
    batches: Sequence[PlacedHeader]
    idempotent: Sequence[BatchHeader]
    """Those that carry a producer id."""
    max_timestamp: int
    """The largest in the headers (ms), -1 where there is none."""


_checked: Final[Callable[[tuple[memoryview, list[PlacedHeader], list[BatchHeader], int]], CheckedBatches]] = (
    partial(tuple.__new__, CheckedBatches)
)
"""As the constructor, which is Python: it would be felt in each append."""


_HIGHEST_CODEC: Final = int(max(Codec))
_FIRST_BYTES: Final[Mapping[int, bytes]] = {
    Codec.GZIP: b"\x1f\x8b",
    Codec.LZ4: b"\x04\x22\x4d\x18",
    Codec.ZSTD: b"\x28\xb5\x2f\xfd",
}
"""How a codec's stream begins. A snappy body may be a raw block, which begins with anything."""
_HEADER_IN_LENGTH_BYTES: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES
_REFUSED_FROM_CLIENTS: Final = CONTROL_BIT | LOG_APPEND_TIME_BIT


def check_leader_append(buffer: memoryview, *, max_message_bytes: int, origin: Origin) -> CheckedBatches:
    """The batches of a produce request, a coordinator or the journal. Raises AppendError."""
    size = len(buffer)
    position = 0
    newest = NO_TIMESTAMP
    is_client = origin == "client"
    batches: list[PlacedHeader] = []
    idempotent: list[BatchHeader] = []
    try:
        while position < size:
            fields = parse_header_fields(buffer, position)
            base, length, _, _, crc, attributes, delta, _, timestamp, producer, _, sequence, count = fields
            header = header_of(fields)
            size_bytes = length + LOG_OVERHEAD_BYTES
            if size_bytes > max_message_bytes and origin != "raft":
                raise AppendError(
                    "MESSAGE_TOO_LARGE",
                    f"a record batch of {size_bytes} bytes exceeds the topic's max.message.bytes"
                    f" of {max_message_bytes}",
                )
            end = position + size_bytes
            if end > size or crc32c(buffer[position + CRC_START : end]) != crc:
                verify_crc(buffer, position, header)  # raises; the hot path saves its frame
            if is_client and (
                attributes
                or base
                or count != delta + 1
                or count * MIN_RECORD_BYTES > length - _HEADER_IN_LENGTH_BYTES
                or (producer >= 0 and sequence < 0)
            ):
                _check_client_batch(buffer, position, header)  # says what is wrong, if anything
            batches.append((position, header))
            if producer >= 0:
                idempotent.append(header)
            if timestamp > newest:
                newest = timestamp
            position = end
    except CorruptBatchError as error:
        raise AppendError(error.code, str(error)) from error
    if not batches:
        raise AppendError("INVALID_RECORD", "the append holds no record batch")
    return _checked((buffer, batches, idempotent, newest))


def _check_client_batch(buffer: memoryview, position: int, header: BatchHeader) -> None:
    """What a producer's batch must satisfy beyond being whole, as far as can be told at no cost per record.

    The caller has seen that it is no plain batch, or that something is wrong.
    """
    base_offset, batch_length, _, _, _, attributes, last_delta, _, _, producer_id, _, sequence, count = header
    if count != last_delta + 1:
        raise AppendError("INVALID_RECORD", f"a batch of {count} records spans {last_delta + 1} offsets")
    if base_offset != 0:
        raise AppendError("INVALID_RECORD", f"a producer's batch starts at offset {base_offset} instead of 0")
    if producer_id >= 0 and sequence < 0:
        raise AppendError(
            "INVALID_RECORD", f"producer {producer_id} sent a batch with the sequence {sequence}"
        )
    if attributes & CODEC_MASK:
        _check_codec(buffer, position, attributes & CODEC_MASK)
    body_bytes = batch_length - _HEADER_IN_LENGTH_BYTES
    # However many offsets a batch says that it has, readers and followers have to go by that.
    if count * MIN_RECORD_BYTES > unfolds_at_most(attributes & CODEC_MASK, body_bytes):
        raise AppendError("INVALID_RECORD", f"{count} records cannot lie in {body_bytes} bytes")
    if attributes & _REFUSED_FROM_CLIENTS:
        _refuse_unusual(attributes)
    if attributes & TRANSACTIONAL_BIT and producer_id < 0:
        raise AppendError("INVALID_RECORD", "a transactional batch has no producer id")


def _check_codec(buffer: memoryview, position: int, codec: int) -> None:
    """Whether the bytes behind a header can be in the codec that it names."""
    if codec > _HIGHEST_CODEC:
        raise AppendError("UNSUPPORTED_COMPRESSION_TYPE", f"compression codec {codec} is unknown")
    first = _FIRST_BYTES.get(codec)
    start = position + HEADER_BYTES
    if first is not None and buffer[start : start + len(first)] != first:
        raise AppendError(
            "INVALID_RECORD", f"the batch says that it is in {Codec(codec).name.lower()}, its bytes are not"
        )


def _refuse_unusual(attributes: int) -> None:
    if attributes & CONTROL_BIT:
        raise AppendError("INVALID_RECORD", "clients are not allowed to write control records")
    raise AppendError(
        "INVALID_TIMESTAMP", "producers must not set the timestamp type LogAppendTime; the broker does"
    )


def markers_in(buffer: memoryview, batches: Sequence[PlacedHeader]) -> dict[int, EndTransactionMarker]:
    """The transaction markers among these batches, by their place in the sequence. Raises AppendError."""
    found: dict[int, EndTransactionMarker] = {}
    for number, (position, header) in enumerate(batches):
        if header.attributes & CONTROL_BIT and header.producer_id >= 0:
            try:
                marker = read_marker(buffer, position, header)
            except CorruptBatchError as error:
                raise AppendError(error.code, str(error)) from error
            if marker is not None:
                found[number] = marker
    return found


def check_follower_append(
    buffer: memoryview, *, log_end_offset: int, latest_epoch: int | None, leader_epoch: int | None = None
) -> list[PlacedHeader]:
    """The batches that a leader sent: whole, CRC right, in order from the log's end on.

    Offsets may leave holes (the leader's log may have been compacted), never go back; nor may leader
    epochs. The batches before the first one that is farther away than a segment reaches: a leader has none, as every
    file that it cleans keeps its last batch. With `leader_epoch`, the epoch that is followed, those before the first
    one of a later epoch: a leader has none, but the epoch may have rotted there, or the leader, deposed, may have
    written over what it was sending. Raises AppendError, also where the first batch is such a one (asked again, a
    leader checks what it has), UnexpectedAppendOffset where the offsets do not fit (HoleTooWide: the first one's).
    """
    expected = log_end_offset
    epoch = latest_epoch if latest_epoch is not None else -1
    batches: list[PlacedHeader] = []
    try:
        for position, header in iter_batches(buffer):
            verify_stamped(buffer, position, header)
            if header.base_offset < expected:
                raise UnexpectedAppendOffset(
                    f"a batch from the leader starts at offset {header.base_offset}, expected {expected} or later",
                    header.base_offset,
                )
            if header.last_offset - expected > INT_MAX:
                if batches:
                    break
                raise HoleTooWide(
                    f"the hole from offset {expected} to {header.last_offset} is too wide for a segment",
                    header.base_offset,
                )
            if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
                if batches:
                    break
                raise AppendError(
                    "CORRUPT_MESSAGE",
                    f"the batch at offset {header.base_offset} is of leader epoch"
                    f" {header.partition_leader_epoch}, and was sent in epoch {leader_epoch}",
                )
            if 0 <= header.partition_leader_epoch < epoch:
                raise AppendError(
                    "CORRUPT_MESSAGE",
                    f"the batch at offset {header.base_offset} is of leader epoch"
                    f" {header.partition_leader_epoch}, the log already holds epoch {epoch}",
                )
            epoch = max(epoch, header.partition_leader_epoch)
            expected = header.next_offset
            batches.append((position, header))
    except CorruptBatchError as error:
        raise AppendError(error.code, str(error)) from error
    return batches
