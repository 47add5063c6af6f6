"""Record batches as simulated clients write and read them.

Every consumer of a run reads the same batch, and the final phase reads it once more. It is checked and decoded in full
the first time; equal bytes, from the CRC on, hold the same records at the same base offset.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from operator import attrgetter

from kraft.chaos.history import Value
from kraft.chaos.keyed import keyed_value, record_of, value_of
from kraft.protocol.fetch import AbortedTransaction
from partitions.records.batch import BatchHeader, decode_records, iter_batches, verify_crc
from partitions.records.builder import build_batch
from partitions.records.header import CRC_POSITION
from partitions.records.markers import read_marker

DECOMPRESSED_MAX_BYTES = 1 << 20
REMEMBERED_MAX = 20_000
PADDING_BYTES = (0, 0, 0, 10, 50, 100, 400, 2_000)
RECORDS_MAX = 5
KEYS, KEY_SKEW = 60, 4
"""Keys of each partition of a compacted topic. The first few get most records and the last hardly any, so that a
tombstone may stay the last record of its key for a while."""
TOMBSTONE_ODDS = 0.15

Decoded = list[tuple[int, Value]]
"""Offset and value of a batch's records, in order."""


def draw_values(rng: random.Random, prefix: str, first: int) -> tuple[Value, ...]:
    """Between one and some values `PREFIX:NUMBER` from number `first` on, padded to different sizes."""
    padding = b"." * rng.choice(PADDING_BYTES)
    return tuple(f"{prefix}:{first + n}".encode() + padding for n in range(rng.randint(1, RECORDS_MAX)))


def draw_keyed_values(rng: random.Random, prefix: str, first: int) -> tuple[Value, ...]:
    """As `draw_values`, each with one of a few keys; some delete their key."""
    found = []
    for name in draw_values(rng, prefix, first):
        tombstone = rng.random() < TOMBSTONE_ODDS
        key = b"k%d" % int(KEYS * rng.random() ** KEY_SKEW)
        found.append(keyed_value(key, name.rstrip(b".") if tombstone else name, tombstone=tombstone))
    return tuple(found)


def encode_values(
    values: Sequence[Value],
    now_ms: int,
    *,
    keyed: bool = False,
    producer_id: int = -1,
    producer_epoch: int = 0,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """A batch of these values; with a producer id it is an idempotent one, or part of a transaction."""
    return build_batch(
        [(now_ms, *(record_of(value) if keyed else (None, value, ()))) for value in values],
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else producer_epoch,
        base_sequence=base_sequence,
        is_transactional=transactional,
    )


class Decoder:
    """Reads record sets. One serves all clients of a run."""

    def __init__(self) -> None:
        self._remembered: dict[int, tuple[bytes, int, Decoded]] = {}
        """By the CRC in its header: a batch's bytes from there on, its base offset, and its records."""

    def read(
        self,
        records: memoryview,
        position: int,
        aborted: Sequence[AbortedTransaction] = (),
        markers: list[int] | None = None,
    ) -> tuple[list[tuple[int, Value]], int]:
        """Offset and value of all records from offset `position` on, in order, and the offset to read on from.

        The records of the `aborted` transactions are left out, and transactions' markers always; `markers` gets their
        offsets. Raises CorruptBatchError.
        """
        found: list[tuple[int, Value]] = []
        next_offset = position
        skipped = _Skipped(aborted)
        for start, header in iter_batches(records):
            is_skipped = skipped.holds(records, start, header)
            behind = header.next_offset
            if behind <= position:
                continue
            if is_skipped or header.is_control:
                verify_crc(records, start, header)
                next_offset = behind
                if header.is_control and markers is not None:
                    markers.append(header.base_offset)
                continue
            read = self._decode(records, start, header)
            found += (
                read if header.base_offset >= position else [pair for pair in read if pair[0] >= position]
            )
            next_offset = behind
        return found, next_offset

    def _decode(self, records: memoryview, start: int, header: BatchHeader) -> Decoded:
        content = bytes(records[start + CRC_POSITION : start + header.size_bytes])
        base_offset = header.base_offset
        remembered = self._remembered.get(header.crc)
        if remembered is not None and remembered[:2] == (content, base_offset):
            return remembered[2]
        verify_crc(records, start, header)
        opened = decode_records(records, start, header, max_decompressed_bytes=DECOMPRESSED_MAX_BYTES)
        decoded = [(record.offset, value_of(record.key, record.value, record.headers)) for record in opened]
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[header.crc] = content, base_offset, decoded
        return decoded


class _Skipped:
    """Which batches of one answer belong to aborted transactions: those of their producers, from their first offsets
    on to the next marker."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=attrgetter("first_offset"), reverse=True)
        self._producers: set[int] = set()

    def holds(self, records: memoryview, start: int, header: BatchHeader) -> bool:
        """Takes the next batch."""
        while self._waiting and self._waiting[-1].first_offset < header.next_offset:
            self._producers.add(self._waiting.pop().producer_id)
        if not header.is_transactional or header.producer_id not in self._producers:
            return False
        if header.is_control:
            marker = read_marker(records, start, header)
            if marker is not None and marker.is_abort:
                self._producers.remove(header.producer_id)
            return False
        return True
