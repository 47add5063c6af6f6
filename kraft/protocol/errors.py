"""Kafka's error codes by name, and the exceptions of the wire format itself.

Handlers put `ErrorCode` members into answers. Rooms below the node know an error only by its name, and the node
maps it with `ErrorCode[name]`. Numbers, names and the retriable flag are part of the protocol and never change; the
sentences are for people, in logs and in error messages.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING


class ProtocolError(ValueError):
    """Bytes that are not a message of the protocol, or a message that cannot be put into bytes."""


class UnsupportedVersion(ProtocolError):
    """An API key that is not served, or a version outside the range served for it."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int | None = None) -> None:
        super().__init__(f"API key {api_key} version {api_version} is not supported here")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class ErrorCode(IntEnum):
    """An error as clients see it. Each line: code, whether a client may try again, its sentence."""

    retriable: bool
    message: str

    if not TYPE_CHECKING:  # a checker would take the three values for the call's signature

        def __new__(cls, code: int, retriable: bool, message: str) -> ErrorCode:
            member = int.__new__(cls, code)
            member._value_ = code
            member.retriable = retriable
            member.message = message
            return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The member with this number; UNKNOWN_SERVER_ERROR for one that this table does not know."""
        return _BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)

    UNKNOWN_SERVER_ERROR = -1, False, "The server failed in a way it did not expect."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset lies outside what the partition holds."
    CORRUPT_MESSAGE = 2, True, "The record batch fails its checksum or is malformed."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This server does not host the topic or partition."
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker is not the leader, or not a replica, of the partition."
    REQUEST_TIMED_OUT = 7, True, "The request was not completed in time."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica is not available."
    MESSAGE_TOO_LARGE = 10, False, "A record batch is larger than this topic accepts."
    STALE_CONTROLLER_EPOCH = 11, False, "The controller has moved to another node."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata string of a committed offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection closed before an answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator is not available."
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator asked for."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic's name is not valid, or the topic may not be used so."
    RECORD_LIST_TOO_LARGE = 18, False, "The record batch is larger than a log segment."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than the topic requires; nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "Written, but to fewer in-sync replicas than required."
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1."
    ILLEGAL_GENERATION = 22, False, "The group's generation is not the current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member shares no protocol with its group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout lies outside what the broker allows."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The committed offset data has a size that is not valid."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Not authorized for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Not authorized for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, False, "A record's timestamp lies outside what the topic accepts."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of the authentication."
    UNSUPPORTED_VERSION = 35, False, "The version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "The replication factor is below 1 or above the number of brokers.",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid."
    INVALID_CONFIG = 40, False, "A configuration value is not valid."
    NOT_CONTROLLER = 41, True, "This node is not the active controller."
    INVALID_REQUEST = 42, False, "The request is malformed or contradicts itself."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The log's message format does not support the request."
    POLICY_VIOLATION = 44, False, "The request violates a configured policy."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The producer's sequence number does not follow the last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The producer's sequence number was used before."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch is older than the current one."
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is above what the broker allows."
    CONCURRENT_TRANSACTIONS = 51, True, "Another operation on the same transaction is under way."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The transaction coordinator has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, False, "Security features are switched off."
    OPERATION_NOT_ATTEMPTED = 55, False, "Not tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, True, "The disk failed when the log was accessed."
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker has no state for this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are switched off."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal neither owns nor may renew the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "Tokens cannot be handled over this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "The type of principal is not supported."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "There is no such fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session's epoch is not the expected one."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener that matches the one used."
    TOPIC_DELETION_DISABLED = 73, False, "Deleting topics is switched off."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch in the request is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch in the request is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The client cannot read the partition's compression."
    STALE_BROKER_EPOCH = 77, False, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader does not know the high watermark yet."
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id in this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group is full."
    FENCED_INSTANCE_ID = 82, False, "Another member has taken this group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica may become leader."
    ELECTION_NOT_NEEDED = 84, True, "The partition needs no election."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "No reassignment is under way."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to the topic; its offsets stay."
    INVALID_RECORD = 87, False, "A record failed validation."
    UNSTABLE_OFFSET_COMMIT = 88, True, "Some offsets belong to a transaction that is still open."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "A quota is used up."
    PRODUCER_FENCED = 90, False, "A newer producer uses the same transactional id."
    RESOURCE_NOT_FOUND = 91, False, "The request names something that does not exist."
    DUPLICATE_RESOURCE = 92, False, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the rules."
    INCONSISTENT_VOTER_SET = 94, False, "Sender or receiver is not among the voters."
    INVALID_UPDATE_VERSION = 95, False, "The version to update to is not valid."
    FEATURE_UPDATE_FAILED = 96, False, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "A forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This server does not host a topic of this id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "A live broker has this id already."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The log belongs to another topic of the same name."
    INCONSISTENT_CLUSTER_ID = 104, False, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, False, "The new ISR holds a replica that may not be in it."
    NEW_LEADER_ELECTED = 108, False, "The ISR was changed, and the leader with it."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The member was fenced: give up its partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, False, "Another member still holds this instance id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group does not support this assignor."
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is old; take the new one from a heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request came to an endpoint of another type."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This type of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription is unknown or outdated."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, False, "The controller does not accept the broker's registration."
    TRANSACTION_ABORTABLE = 120, False, "The transaction must be aborted; the producer may go on after that."
    INVALID_RECORD_STATE = 121, False, "The record cannot be acknowledged in its state."
    SHARE_SESSION_NOT_FOUND = 122, True, "There is no such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session's epoch is not the expected one."
    FENCED_STATE_EPOCH = 124, False, "The share group's state epoch is not the current one."
    INVALID_VOTER_KEY = 125, False, "The voter's key is not the receiver's."
    DUPLICATE_VOTER = 126, False, "The voter is in the set already."
    VOTER_NOT_FOUND = 127, False, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = (
        129,
        False,
        "The client's metadata is too old: start again from the bootstrap servers.",
    )
    STREAMS_INVALID_TOPOLOGY = 130, False, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The topology's epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The topology's epoch is old."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "There are as many share sessions as allowed."


_BY_CODE: dict[int, ErrorCode] = {int(error): error for error in ErrorCode}
