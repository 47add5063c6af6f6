"""Produce (0): messages and codecs, written by hand because every record passes through them."""

from kraft.protocol.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from kraft.protocol.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kraft.protocol.produce_request import produce_request_codec as request_codec
from kraft.protocol.produce_response import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kraft.protocol.produce_response import produce_response_codec as response_codec

__all__ = [
    "BatchIndexAndErrorMessage",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceRequest",
    "ProduceResponse",
    "TopicProduceData",
    "TopicProduceResponse",
    "request_codec",
    "response_codec",
]
