"""What a leader asks of the records inside a batch, where a topic's configuration asks for it.

Guarantees: a batch that was opened here holds exactly the records its header promises, each with a key
on a compacted topic and with a timestamp inside the topic's bounds (KIP-937); it is stored in the topic's
codec (KIP-390 for the levels), and its header names the largest timestamp that its records have.
`must_open` tells from headers alone whether a log has to ask; most have not, and then no record is looked
at. Refusals name the records at fault (KIP-467). Pure and without state, so an executor may run
`check_records`. Called by `PartitionLog`, and by the broker's `Appends` for what takes long.

A walk over record lengths costs 0.1 µs a record, half of all that a record costs the broker, and would still miss wrong
lengths inside one: so other bodies are asked only what costs nothing per record. A well-formed batch with a broken
body can still harm readers of a plain topic; Kafka refuses it. No log is given up for it: behind a right checksum it
is no damage, and a topic that is compacted later is left uncleaned, and served, where it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from partitions.log.config import CREATE_TIME, PRODUCER_CODEC, UNCOMPRESSED, LogConfig
from partitions.log.config_values import LONG_MAX, LONG_MIN
from partitions.log.errors import AppendError, InvalidRecords, RecordError
from partitions.log.validation import CheckedBatches, Origin, PlacedHeader, check_leader_append
from partitions.ports import NowMs
from partitions.records.batch import (
    BatchHeader,
    CorruptBatchError,
    DecompressedTooLargeError,
    parse_header,
    recompressed,
    records_body,
    with_max_timestamp,
)
from partitions.records.body_check import LookedThrough, Misfit, RecordBounds, look_through
from partitions.records.compression import MAX_UNFOLDED_BYTES, Codec
from partitions.records.header import (
    ATTRIBUTES_LOW_POSITION,
    CODEC_MASK,
    HEADER_BYTES,
    NO_TIMESTAMP,
    Buffer,
    max_timestamp_of,
)
from partitions.records.record import MalformedRecordError

MAX_DECOMPRESSED_BYTES: Final = MAX_UNFOLDED_BYTES
"""The largest batch, unfolded, that a leader opens."""
QUICKLY_OPENED_BYTES: Final = 8 * 1024
"""A thousand records at most: about a millisecond."""
RECORD_ERRORS_MAX: Final = 1000
"""How many records of one append a refusal names."""
_SHOWN_ERRORS: Final = 3


def check_for_leader(records: Buffer, config: LogConfig, origin: Origin, now_ms: NowMs) -> CheckedBatches:
    """All that a leader asks of batches before they go into its log, as far as they tell it by themselves. Raises
    AppendError."""
    view = records if isinstance(records, memoryview) else memoryview(records)
    checked = check_leader_append(view, max_message_bytes=config.max_message_bytes, origin=origin)
    if origin != "raft":
        now = now_ms()
        ahead_ms = checked.max_timestamp - now
        # Mostly neither, and that is told at the price of two comparisons.
        if (config.opens_every_batch or ahead_ms > config.message_timestamp_after_max_ms) and must_open(
            checked, config, now
        ):
            checked = check_records(checked, config, now)
    return checked


def check_beside(records: Buffer, config: LogConfig, now_ms: NowMs) -> Callable[[], CheckedBatches] | None:
    """The check of a client's records as a job that shares nothing with the log, where it takes long; None where
    there is little to do. Raises, and the job does, AppendError."""
    if not config.opens_every_batch and not names_the_future(records, config, now_ms):
        return None
    if takes_no_time(records):
        return None
    view = records if isinstance(records, memoryview) else memoryview(records)
    checked = check_leader_append(view, max_message_bytes=config.max_message_bytes, origin="client")
    now = now_ms()
    if not must_open(checked, config, now):
        return None
    return partial(check_records, checked, config, now)


def takes_no_time(records: Buffer) -> bool:
    """Whether opening these bytes is quick whatever they are: few, and not compressed."""
    return (
        len(records) <= QUICKLY_OPENED_BYTES
        and len(records) >= HEADER_BYTES
        and not records[ATTRIBUTES_LOW_POSITION] & CODEC_MASK
    )


def names_the_future(records: Buffer, config: LogConfig, now_ms: NowMs) -> bool:
    """Whether the first batch, which is a client's only one, says that it has a record from beyond the topic's upper
    bound: it has to be opened then, even where no other is."""
    after_max_ms = config.message_timestamp_after_max_ms
    if (
        after_max_ms == LONG_MAX
        or config.message_timestamp_type != CREATE_TIME
        or len(records) < HEADER_BYTES
    ):
        return False
    return max_timestamp_of(records) > now_ms() + after_max_ms


def must_open(checked: CheckedBatches, config: LogConfig, now_ms: int) -> bool:
    """Whether these batches have to be opened: else their headers have told all that is asked of them.

    A header names the largest timestamp, so the upper bound needs no record until it is broken.
    """
    is_create_time = config.message_timestamp_type == CREATE_TIME
    _, batches, _, max_timestamp = checked
    if is_create_time and max_timestamp > now_ms + config.message_timestamp_after_max_ms:
        return True
    if not config.opens_every_batch:
        return False
    if config.is_compacted or (is_create_time and config.message_timestamp_before_max_ms != LONG_MAX):
        return True
    return any(header.codec != _target_codec(config, header) for _, header in batches)


def check_records(checked: CheckedBatches, config: LogConfig, now_ms: int) -> CheckedBatches:
    """Opens the batches and checks each record; rewrites those that are not to be stored as they came.

    They may be in another codec than the topic's, or lie about their largest timestamp, by which segments
    are rolled, found and deleted. `now_ms` is the wall clock. Raises InvalidRecords, or AppendError where a
    batch cannot be opened or has become larger than max.message.bytes.
    """
    wanted = _wanted(config, now_ms)
    is_create_time = config.message_timestamp_type == CREATE_TIME
    errors: list[RecordError] = []
    newest: list[int] = []
    first_index = 0
    for position, header in checked.batches:
        max_timestamp = header.max_timestamp
        if not header.is_control:
            room = RECORD_ERRORS_MAX - len(errors)
            seen = _open(checked.buffer, position, header, wanted, room)
            for misfit in seen.misfits:
                errors.append(_record_error(misfit, first_index + misfit.number, wanted))
            first_index += header.record_count
            if is_create_time:  # else the log stamps its own
                max_timestamp = seen.max_timestamp
        newest.append(max_timestamp)
    if errors:
        raise _refusal(errors)
    return _as_stored(checked, newest, config)


def _wanted(config: LogConfig, now_ms: int) -> RecordBounds:
    if config.message_timestamp_type != CREATE_TIME:
        return RecordBounds(LONG_MIN, LONG_MAX, config.is_compacted)
    return RecordBounds(
        now_ms - config.message_timestamp_before_max_ms,
        now_ms + config.message_timestamp_after_max_ms,
        config.is_compacted,
    )


def _open(
    buffer: memoryview, position: int, header: BatchHeader, wanted: RecordBounds, at_most: int
) -> LookedThrough:
    try:
        body = records_body(buffer, position, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
        return look_through(body, header, wanted, at_most=at_most)
    except DecompressedTooLargeError as error:
        raise AppendError(error.code, str(error)) from error
    except (CorruptBatchError, MalformedRecordError) as error:
        # Its checksum is right: sending it once more would not help, as CORRUPT_MESSAGE suggests.
        raise AppendError("INVALID_RECORD", str(error)) from error


def _record_error(misfit: Misfit, index: int, wanted: RecordBounds) -> RecordError:
    if wanted.key and not misfit.has_key:
        return RecordError(index, "INVALID_RECORD", "Compacted topic cannot accept message without key.")
    return RecordError(
        index,
        "INVALID_TIMESTAMP",
        f"Timestamp {misfit.timestamp} of record {index} is out of range. The timestamp should be"
        f" within [{wanted.earliest}, {wanted.latest}]",
    )


def _refusal(errors: Sequence[RecordError]) -> InvalidRecords:
    """The first record's error is the append's, as in Kafka."""
    if errors[0].code == "INVALID_TIMESTAMP":
        return InvalidRecords(
            "INVALID_TIMESTAMP", "One or more records have been rejected due to invalid timestamp", errors
        )
    shown = "; ".join(f"record {error.batch_index}: {error.message}" for error in errors[:_SHOWN_ERRORS])
    return InvalidRecords(
        "INVALID_RECORD",
        f"One or more records have been rejected due to {len(errors)} record errors in total,"
        f" and only showing the first three errors at most: {shown}",
        errors,
    )


# ---- what is stored in place of what came


def _target_codec(config: LogConfig, header: BatchHeader) -> int:
    """The codec that a batch is to be stored in. Control batches stay as they are."""
    name = config.compression_type
    if name == PRODUCER_CODEC or header.is_control:
        return header.codec
    return Codec.NONE if name == UNCOMPRESSED else Codec[name.upper()]


def _level(config: LogConfig, codec: int) -> int | None:
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return levels.get(Codec(codec))


def _as_stored(checked: CheckedBatches, newest: Sequence[int], config: LogConfig) -> CheckedBatches:
    """The batches in the topic's codec, each with the largest timestamp that `newest` has for it."""
    codecs = [_target_codec(config, header) for _, header in checked.batches]
    if all(
        (codec, timestamp) == (header.codec, header.max_timestamp)
        for (_, header), codec, timestamp in zip(checked.batches, codecs, newest, strict=True)
    ):
        return checked
    parts: list[bytes] = []
    placed: list[PlacedHeader] = []
    end = 0
    for (position, header), codec, timestamp in zip(checked.batches, codecs, newest, strict=True):
        if codec != header.codec:
            named = header._replace(max_timestamp=timestamp)
            part = _recompress(checked.buffer, position, named, codec, config)
        elif timestamp != header.max_timestamp:
            part = with_max_timestamp(checked.buffer, position, header, timestamp)
        else:
            part = bytes(checked.buffer[position : position + header.size_bytes])
        placed.append((end, parse_header(part, 0)))
        parts.append(part)
        end += len(part)
    buffer = memoryview(b"".join(parts))
    idempotent = [header for _, header in placed if header.producer_id >= 0]
    return CheckedBatches(buffer, placed, idempotent, max(newest, default=NO_TIMESTAMP))


def _recompress(
    buffer: memoryview, position: int, header: BatchHeader, codec: int, config: LogConfig
) -> bytes:
    batch = recompressed(
        buffer,
        position,
        header,
        codec=codec,
        level=_level(config, codec),
        max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
    )
    if len(batch) > config.max_message_bytes:
        raise AppendError(
            "MESSAGE_TOO_LARGE",
            f"the record batch has {len(batch)} bytes in the topic's codec {config.compression_type}, more"
            f" than its max.message.bytes of {config.max_message_bytes}",
        )
    return batch
