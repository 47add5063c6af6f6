"""AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), WriteTxnMarkers (27), DescribeTransactions (65),
ListTransactions (66): transactions at their coordinators, and the markers that end them (KIP-98, KIP-664, KIP-890).

Clients send AddPartitionsToTxn up to version 3; brokers send 4 and 5 to one another, with several transactions at once.
TxnOffsetCommit (28) is in `group_offsets`, InitProducerId (22) in `producers`.
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import (
    INT32,
    INT64,
    STRING,
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
)

NO_DURATION_FILTER = -1


@message
class AddPartitionsToTxnTopic(Message):
    name: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


@message
class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+", default=False)
    """Whether the partitions are only looked for in the transaction, and not added."""
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")


@message
class AddPartitionsToTxnRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.ADD_PARTITIONS_TO_TXN

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


@message
class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int = int32("0+")
    partition_error_code: int = int16("0+")


@message
class AddPartitionsToTxnTopicResult(Message):
    name: str = string("0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult, "0+"
    )


@message
class AddPartitionsToTxnResult(Message):
    transactional_id: str = string("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "4+")


@message
class AddPartitionsToTxnResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.ADD_PARTITIONS_TO_TXN

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3"
    )


@message
class AddOffsetsToTxnRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.ADD_OFFSETS_TO_TXN

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


@message
class AddOffsetsToTxnResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.ADD_OFFSETS_TO_TXN

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


@message
class EndTxnRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.END_TXN

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


@message
class EndTxnResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.END_TXN

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)


@message
class WritableTxnMarkerTopic(Message):
    name: str = string("0+")
    partition_indexes: list[int] = array(INT32, "0+")


@message
class WritableTxnMarker(Message):
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    transaction_result: bool = boolean("0+")
    """True commits, False aborts."""
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic, "0+")
    coordinator_epoch: int = int32("0+")
    """Leader epoch of the partition of the transaction log that the coordinator leads."""
    transaction_version: int = int8("2+", default=0, ignorable=True)
    """By which rules the marker's epoch is judged (KIP-1228)."""


@message
class WriteTxnMarkersRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.WRITE_TXN_MARKERS

    markers: list[WritableTxnMarker] = array(WritableTxnMarker, "0+")


@message
class WritableTxnMarkerPartitionResult(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class WritableTxnMarkerTopicResult(Message):
    name: str = string("0+")
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult, "0+")


@message
class WritableTxnMarkerResult(Message):
    producer_id: int = int64("0+")
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult, "0+")


@message
class WriteTxnMarkersResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.WRITE_TXN_MARKERS

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult, "0+")


@message
class DescribeTransactionsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_TRANSACTIONS

    transactional_ids: list[str] = array(STRING, "0+")


@message
class DescribedTransactionTopic(Message):
    topic: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


@message
class DescribedTransaction(Message):
    """While a transaction ends, its topics are those whose markers are not written yet."""

    error_code: int = int16("0+")
    transactional_id: str = string("0+")
    transaction_state: str = string("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_start_time_ms: int = int64("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    topics: list[DescribedTransactionTopic] = array(DescribedTransactionTopic, "0+")


@message
class DescribeTransactionsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_TRANSACTIONS

    throttle_time_ms: int = int32("0+")
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction, "0+")


@message
class ListTransactionsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.LIST_TRANSACTIONS

    state_filters: list[str] = array(STRING, "0+")
    producer_id_filters: list[int] = array(INT64, "0+")
    duration_filter: int = int64("1+", default=NO_DURATION_FILTER)
    """Those that have been open for longer, in ms."""
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)
    """An expression of RE2 (KIP-1152)."""


@message
class ListedTransaction(Message):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    transaction_state: str = string("0+")


@message
class ListTransactionsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.LIST_TRANSACTIONS

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: list[str] = array(STRING, "0+")
    transaction_states: list[ListedTransaction] = array(ListedTransaction, "0+")
