"""Fetch (1): messages and codecs, written by hand because every record passes through them."""

from kraft.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kraft.protocol.fetch_request import fetch_request_codec as request_codec
from kraft.protocol.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    SnapshotId,
)
from kraft.protocol.fetch_response import fetch_response_codec as response_codec
from kraft.protocol.leader_hints import LeaderIdAndEpoch, NodeEndpoint

__all__ = [
    "AbortedTransaction",
    "EpochEndOffset",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "ForgottenTopic",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionData",
    "SnapshotId",
    "request_codec",
    "response_codec",
]
