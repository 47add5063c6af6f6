"""The controller quorum as `kraft quorum describe` shows it: who leads, who follows, how far behind.

Pure: it makes the same documents, lines and table of a `QuorumView` from Kafka's DescribeQuorum and of one from a
controller. Lags count entries of the metadata log, times are in ms (KIP-595, KIP-836).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kraft.cli.shared.documents import age_text
from kraft.cli.shared.tables import Rows
from kraft.protocol.texts import uuid_text

UNKNOWN = -1
SILENT_MS = 5_000
"""A voter that lives is heard of several times a second."""
_NO_DIRECTORY = bytes(16)
_STATUS_COLUMNS = (
    ("ClusterId", "cluster_id"),
    ("LeaderId", "leader_id"),
    ("LeaderEpoch", "leader_epoch"),
    ("HighWatermark", "high_watermark"),
    ("MaxFollowerLag", "max_follower_lag"),
    ("MaxFollowerLagTimeMs", "max_follower_lag_time_ms"),
    ("CurrentVoters", "current_voters"),
    ("CurrentObservers", "current_observers"),
)
_REPLICATION_COLUMNS = (
    ("NodeId", "node_id"),
    ("DirectoryId", "directory_id"),
    ("LogEndOffset", "log_end_offset"),
    ("Lag", "lag"),
    ("LastFetchTimestamp", "last_fetch_timestamp"),
    ("LastCaughtUpTimestamp", "last_caught_up_timestamp"),
    ("Status", "status"),
)
_AGES = {"LastFetchTimestamp": "LastFetch", "LastCaughtUpTimestamp": "LastCaughtUp"}
"""Columns of times, and what they are called where they show how long ago that was."""


@dataclass(frozen=True, slots=True)
class QuorumNode:
    """A node that has the metadata log. Times are Unix times in ms, -1 where nothing is known."""

    node_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumView:
    """What the leader knows. `endpoints` are `NAME://host:port` by node id; `leader_id` -1 is nobody."""

    cluster_id: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: Sequence[QuorumNode]
    observers: Sequence[QuorumNode]
    endpoints: Mapping[int, Sequence[str]] = field(default_factory=dict)

    @property
    def leader(self) -> QuorumNode | None:
        return next((voter for voter in self.voters if voter.node_id == self.leader_id), None)

    def status(self) -> dict[str, Any]:
        """The summary: -1 where a lag cannot be told."""
        lag, lag_ms = self._worst_lag()
        return {
            "cluster_id": self.cluster_id,
            "leader_id": self.leader_id,
            "leader_epoch": self.leader_epoch,
            "high_watermark": self.high_watermark,
            "max_follower_lag": lag,
            "max_follower_lag_time_ms": lag_ms,
            "current_voters": [self._identity(voter) for voter in self.voters],
            "current_observers": [self._identity(observer) for observer in self.observers],
        }

    def replication(self) -> list[dict[str, Any]]:
        """A row for each node: the leader, the other voters, the observers."""
        followers = [voter for voter in self.voters if voter.node_id != self.leader_id]
        leaders = [] if self.leader is None else [self.leader]
        return [
            self._row(replica, status)
            for replicas, status in (
                (leaders, "Leader"),
                (followers, "Follower"),
                (self.observers, "Observer"),
            )
            for replica in replicas
        ]

    def _worst_lag(self) -> tuple[int, int]:
        leader = self.leader
        if leader is None:
            return UNKNOWN, UNKNOWN
        last = min(self.voters, key=lambda voter: voter.log_end_offset)
        lag = leader.log_end_offset - last.log_end_offset
        if lag == 0:
            return 0, 0
        if UNKNOWN in (leader.last_caught_up_ms, last.last_caught_up_ms):
            return lag, UNKNOWN
        return lag, max(0, leader.last_caught_up_ms - last.last_caught_up_ms)

    def _identity(self, replica: QuorumNode) -> dict[str, Any]:
        identity: dict[str, Any] = {"id": replica.node_id}
        if replica.directory_id != _NO_DIRECTORY:
            identity["directoryId"] = uuid_text(replica.directory_id)
        endpoints = self.endpoints.get(replica.node_id)
        if endpoints:
            identity["endpoints"] = list(endpoints)
        return identity

    def _row(self, replica: QuorumNode, status: str) -> dict[str, Any]:
        leader = self.leader
        is_known = replica.log_end_offset != UNKNOWN
        return {
            "node_id": replica.node_id,
            "directory_id": uuid_text(replica.directory_id),
            "log_end_offset": replica.log_end_offset,
            "lag": max(0, leader.log_end_offset - replica.log_end_offset) if leader and is_known else UNKNOWN,
            "last_fetch_timestamp": replica.last_fetch_ms,
            "last_caught_up_timestamp": replica.last_caught_up_ms,
            "status": status,
        }


def status_lines(status: Mapping[str, Any]) -> Iterator[str]:
    """The summary by the names of Kafka's tool; voters and observers with a line each."""
    for title, key in _STATUS_COLUMNS:
        value = status[key]
        if isinstance(value, list):
            texts = [_identity_text(node) for node in value]
        else:
            texts = [] if key == "leader_id" and value == UNKNOWN else [_value_text(value)]
        for number, text in enumerate(texts or ["none"]):
            yield f"{'' if number else title + ':':<24}{text}"


def replication_table(rows: Sequence[Mapping[str, Any]], *, wide: bool, ages_at_ms: int | None) -> Rows:
    """A row for each node; the ids of directories only if `wide`. With `ages_at_ms`, a Unix time in ms, times are
    shown as how long ago they were, without it as they are."""
    columns = [column for column in _REPLICATION_COLUMNS if wide or column[1] != "directory_id"]
    is_aged = ages_at_ms is not None
    table = Rows([_AGES.get(title, title) if is_aged else title for title, _ in columns])
    for row in rows:
        table.add(*(_cell(row, title, key, ages_at_ms) for title, key in columns))
    return table


def silent_voters(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int | None]]:
    """The voters of whom the leader has not heard for a while, and for how long, in ms; None: not in this epoch."""
    told_ms = max(
        (row["last_caught_up_timestamp"] for row in rows if row["status"] == "Leader"), default=UNKNOWN
    )
    for row in rows:
        if row["status"] != "Follower" or told_ms == UNKNOWN:
            continue
        heard_ms = row["last_fetch_timestamp"]
        if heard_ms == UNKNOWN:
            yield row["node_id"], None
        elif told_ms - heard_ms > SILENT_MS:
            yield row["node_id"], told_ms - heard_ms


def silence_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each voter of whom the leader has not heard for a while: its row is about then."""
    for node_id, silent_ms in silent_voters(rows):
        if silent_ms is None:
            yield f"Voter {node_id} has not been heard of in this epoch: how far it is, is not known."
        else:
            yield (
                f"Voter {node_id} was heard of {age_text(silent_ms)} ago for the last time: its offset is of then, its"
                " lag counted from it."
            )


def _cell(row: Mapping[str, Any], title: str, key: str, ages_at_ms: int | None) -> str:
    value = row[key]
    if title in _AGES and value == UNKNOWN and row["status"] == "Leader":
        return ""  # it fetches from nobody
    if title in _AGES and value != UNKNOWN and ages_at_ms is not None:
        return age_text(ages_at_ms - value)
    return _value_text(value)


def _value_text(value: Any) -> str:
    return "?" if value in (None, UNKNOWN) else str(value)


def _identity_text(node: Mapping[str, Any]) -> str:
    """Id, addresses, directory."""
    return "  ".join([str(node["id"]), *node.get("endpoints", ()), *filter(None, [node.get("directoryId")])])
