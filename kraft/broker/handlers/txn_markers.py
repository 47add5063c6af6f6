"""WriteTxnMarkers (27): ends transactions in the partitions that this broker leads (KIP-98, KIP-890, KIP-1228).

Transaction coordinators ask it of leaders, and Kafka's `kafka-transactions abort` does for a transaction that hangs.
The answer comes when all markers are committed, or it is known why they are not.
"""

from __future__ import annotations

from kraft.broker.coordinators.marker_writes import MarkerWrite, write_markers
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.coordinator.shard import ProducerIdAndEpoch, TransactionMarker
from kraft.protocol.schemas.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from partitions.topic_partition import TopicPartition

TIMEOUT_S = 30.0
"""As Kafka's request.timeout.ms of brokers; the coordinator asks again."""


async def handle_write_txn_markers(
    services: BrokerServices, request: Request[WriteTxnMarkersRequest]
) -> WriteTxnMarkersResponse:
    """Answers WriteTxnMarkers."""
    markers = request.body.markers
    results = await write_markers(
        services.replicas.appends, services.groups, [_wanted(marker) for marker in markers], TIMEOUT_S
    )
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=number, error_code=codes[TopicPartition(topic.name, number)]
                            )
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker, codes in zip(markers, results, strict=True)
        ]
    )


def _wanted(asked: WritableTxnMarker) -> MarkerWrite:
    marker = TransactionMarker(
        ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    partitions = {
        TopicPartition(topic.name, number): None
        for topic in asked.topics
        for number in topic.partition_indexes
    }
    return MarkerWrite(marker, tuple(partitions))
