"""Produce requests of simulated producers, and the reading of their answers: one batch for each partition.

The idempotent and the plain producer share it; they differ in their reactions to an error.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft.chaos.workload.client import Client, PartitionName
from kraft.protocol.errors import ErrorCode, ProtocolError
from kraft.protocol.messages import decode_response
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

PRODUCE_VERSION = 12
ACKS_TIMEOUT_MS = 1_500
NEVER = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
"""Errors that call a sound batch unsound, retriable or not."""

Answers = dict[PartitionName, tuple[ErrorCode, int]]
"""Error and base offset by partition."""


def produce_request(
    batches: dict[PartitionName, bytes], acks: int, transactional_id: str | None = None
) -> ProduceRequest:
    """One batch for each of some partitions."""
    topics: dict[str, TopicProduceData] = {}
    for (topic, partition), records in batches.items():
        data = topics.setdefault(topic, TopicProduceData(name=topic, partition_data=[]))
        data.partition_data.append(PartitionProduceData(index=partition, records=records))
    return ProduceRequest(transactional_id, acks, ACKS_TIMEOUT_MS, list(topics.values()))


def produce_answers(
    client: Client, broker: int, body: memoryview | None, sent: Iterable[PartitionName]
) -> Answers:
    """A broker's answer for each partition of the request.

    NETWORK_EXCEPTION where no answer came, so that the outcome is unknown. An answer that cannot be read, or that
    leaves out a partition, is a surprise.
    """
    answers: Answers = {}
    if body is not None:
        try:
            answers = _decoded(body)
        except ProtocolError as error:
            client.surprise(broker, f"unreadable answer to Produce: {error}")
    taken: Answers = {}
    for name in sent:
        if body is not None and name not in answers:
            client.surprise(broker, f"Produce was not answered for {name}")
        taken[name] = answers.get(name, (ErrorCode.NETWORK_EXCEPTION, -1))
    return taken


def _decoded(body: memoryview) -> Answers:
    response = decode_response(ProduceRequest.API_KEY, PRODUCE_VERSION, body)
    assert isinstance(response, ProduceResponse)
    return {
        (topic.name, answer.index): (ErrorCode.of(answer.error_code), answer.base_offset)
        for topic in response.responses
        for answer in topic.partition_responses
    }
