"""Topics to read: lines of hexadecimal digits, which compress about as logs do."""

from __future__ import annotations

import hashlib
import time
import zlib
from typing import Any, NamedTuple

from confluent_kafka import Producer

from bench.errors import BenchError
from bench.workers import BATCH_RECORDS, RECORD_BYTES

SEND_S = 600.0
_SETTINGS = {
    "linger.ms": 50,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 250_000,
    "enable.idempotence": True,
    "log_level": 0,
}
_LEVELS = {"gzip": {"compression.level": 1}}
"""The default one takes minutes to fill a topic."""


class Filled(NamedTuple):
    """What a topic holds."""

    records: int
    checksum: int
    """The sum of the CRC-32 of all values."""


def line(number: int) -> bytes:
    return hashlib.sha512(b"%d" % number).hexdigest()[:RECORD_BYTES].encode()


def fill(bootstrap: str, topic: str, partitions: int, records: int, codec: str) -> Filled:
    """Sends `records` lines, out of `BATCH_RECORDS` different ones, in turn to all partitions. Raises BenchError."""
    lines = [line(number) for number in range(BATCH_RECORDS)]
    sums = [zlib.crc32(one) for one in lines]
    compression = {"compression.type": codec, **_LEVELS.get(codec, {})}
    producer = Producer({**_SETTINGS, **compression, "bootstrap.servers": bootstrap})
    failed: list[str] = []

    def on_delivery(error: Any, _message: Any) -> None:
        if error is not None and not failed:
            failed.append(str(error))

    deadline_s = time.monotonic() + SEND_S
    sent, checksum, turn = 0, 0, 0
    while sent < records:
        taken = min(BATCH_RECORDS, records - sent)
        messages = [{"value": one} for one in lines[:taken]]
        while messages:
            producer.produce_batch(topic, messages, partition=turn % partitions, on_delivery=on_delivery)
            messages = [one for one in messages if "_error" in one]
            for one in messages:
                del one["_error"]
            producer.poll(0.05 if messages else 0)
            if failed or time.monotonic() > deadline_s:
                raise BenchError(f"topic {topic} could not be filled: {failed or 'it took too long'}")
        sent, checksum, turn = sent + taken, checksum + sum(sums[:taken]), turn + 1
    left = producer.flush(SEND_S)
    if failed or left:
        raise BenchError(f"topic {topic} could not be filled: {failed or f'{left} records are left'}")
    return Filled(sent, checksum)
