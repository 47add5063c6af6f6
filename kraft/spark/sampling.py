"""How many bytes an offset of a range takes, estimated from a few batches of it.

Kafka has no request for offsets by bytes. A few small fetches along the range tell the size of batches as they are on
the wire; what is planned with it is soft by the spread of the sizes and by one batch. `plan.py` splits by it,
`admission.py` limits micro-batches by it.
"""

from __future__ import annotations

from kraft.protocol import ErrorCode
from kraft.spark.client import TransientError
from kraft.spark.decode import whole_batches
from kraft.spark.errors import TopicChangedError, UnknownTopicError
from kraft.spark.log_source import LogSource
from kraft.spark.retry import Attempts
from kraft.spark.slice_reader import PartitionSlice
from partitions.topic_partition import TopicPartition

_SAMPLES = 3
_SAMPLE_BYTES = 16 << 10
"""Asked for at each place; brokers send a larger batch whole."""


def bytes_per_offset(client: LogSource, part: PartitionSlice, *, samples: int = _SAMPLES) -> float:
    """The mean over `samples` places, each in the middle of its share of the range; 0 where nothing is to be seen.

    Raises ConnectorError when no leader answers in the policy's budget.
    """
    size = part.end - part.start
    places = (part.start + size * (2 * index + 1) // (2 * samples) for index in range(samples))
    densities = [density for at in places if (density := _sample(client, part, at)) is not None]
    return sum(densities) / len(densities) if densities else 0.0


def _sample(client: LogSource, part: PartitionSlice, at: int) -> float | None:
    """Bytes an offset in the batches from `at` on; None if they are gone, of which the reader will tell."""
    attempts = Attempts(client.policy)
    partition = TopicPartition(part.topic, part.partition)
    while True:
        try:
            answer = client.fetch(
                partition, part.topic_id, offset=at, last_fetched_epoch=-1, max_bytes=_SAMPLE_BYTES
            )
            break
        except TransientError as failure:
            try:
                attempts.wait_or_raise(failure.error)
            except (TopicChangedError, UnknownTopicError):
                return None
    if answer.error_code != ErrorCode.NONE or not answer.records:
        return None
    headers = [header for _, header in whole_batches(bytes(answer.records))]  # type: ignore[arg-type]
    size = sum(header.size_bytes for header in headers)
    first = min(headers[0].base_offset, at)  # a gap before the batch takes no bytes
    return size / (headers[-1].next_offset - first)
