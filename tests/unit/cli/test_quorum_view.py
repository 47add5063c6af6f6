"""`kraft quorum describe`: the numbers, and how they look."""

from __future__ import annotations

from kraft.cli.quorum.view import (
    QuorumNode,
    QuorumView,
    replication_table,
    silence_lines,
    status_lines,
)
from kraft.cli.shared.tables import piped_lines

DIRECTORIES = {node_id: bytes([node_id]) * 16 for node_id in range(10)}
NO_DIRECTORY = bytes(16)


def replica(node_id: int, end: int, caught_up_ms: int = 5_000, *, directory: bool = True) -> QuorumNode:
    directory_id = DIRECTORIES[node_id] if directory else NO_DIRECTORY
    return QuorumNode(node_id, directory_id, end, caught_up_ms + 10, caught_up_ms)


def view(*voters: QuorumNode, leader_id: int = 1, observers: tuple[QuorumNode, ...] = ()) -> QuorumView:
    return QuorumView("cluster", leader_id, 4, 100, voters, observers, {1: ["CONTROLLER://host:9093"]})


def test_a_quorum_that_is_caught_up() -> None:
    status = view(replica(1, 101), replica(2, 101), replica(3, 101), observers=(replica(7, 101),)).status()
    assert (status["max_follower_lag"], status["max_follower_lag_time_ms"]) == (0, 0)
    assert status["current_voters"][0] == {
        "id": 1,
        "directoryId": "AQEBAQEBAQEBAQEBAQEBAQ",
        "endpoints": ["CONTROLLER://host:9093"],
    }
    assert [observer["id"] for observer in status["current_observers"]] == [7]
    assert list(status_lines(status))[:6] == [
        "ClusterId:              cluster",
        "LeaderId:               1",
        "LeaderEpoch:            4",
        "HighWatermark:          100",
        "MaxFollowerLag:         0",
        "MaxFollowerLagTimeMs:   0",
    ]


def test_the_follower_that_is_farthest_behind_counts() -> None:
    status = view(replica(1, 101, 9_000), replica(2, 91, 7_500), replica(3, 99, 100)).status()
    assert (status["max_follower_lag"], status["max_follower_lag_time_ms"]) == (10, 1_500)


def test_what_is_not_known_is_minus_one() -> None:
    silent = QuorumNode(2, NO_DIRECTORY, -1, -1, -1)
    status = view(replica(1, 101), silent).status()
    assert (status["max_follower_lag"], status["max_follower_lag_time_ms"]) == (102, -1)
    assert status["current_voters"][1] == {"id": 2}
    leaderless = view(replica(1, 101), replica(2, 90), leader_id=-1)
    assert leaderless.status()["max_follower_lag"] == -1
    assert [(row["status"], row["lag"]) for row in leaderless.replication()] == [("Follower", -1)] * 2


def test_the_table_has_the_leader_then_followers_then_observers() -> None:
    rows = view(replica(2, 90), replica(1, 101), replica(3, 101), observers=(replica(7, 80),)).replication()
    assert [(row["node_id"], row["status"], row["lag"]) for row in rows] == [
        (1, "Leader", 0),
        (2, "Follower", 11),
        (3, "Follower", 0),
        (7, "Observer", 21),
    ]
    header, leader, follower, *_ = piped_lines(replication_table(rows, wide=True, ages_at_ms=None))
    assert header.split() == [
        "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status",
    ]  # fmt: skip
    assert leader.split() == ["1", "AQEBAQEBAQEBAQEBAQEBAQ", "101", "0", "5010", "5000", "Leader"]
    assert leader.index("Leader") == follower.index("Follower")


def test_what_is_shown_of_a_voter_that_is_gone_is_of_the_time_when_it_was_heard_last() -> None:
    gone, never = replica(2, 90, 20_000), QuorumNode(3, NO_DIRECTORY, -1, -1, -1)
    rows = view(replica(1, 101, 65_010), gone, never, replica(4, 101, 65_000)).replication()
    assert [row["lag"] for row in rows] == [0, 11, -1, 0]
    assert list(silence_lines(rows)) == [
        "Voter 2 was heard of 45.0s ago for the last time: its offset is of then, its lag counted from it.",
        "Voter 3 has not been heard of in this epoch: how far it is, is not known.",
    ]
    assert list(silence_lines(view(replica(1, 101), replica(2, 90), leader_id=-1).replication())) == []


def test_ages_instead_of_times() -> None:
    leader = QuorumNode(1, NO_DIRECTORY, 101, -1, 5_000)
    rows = view(leader, replica(2, 101), QuorumNode(3, NO_DIRECTORY, -1, -1, 6_500)).replication()
    lines = [line.split() for line in piped_lines(replication_table(rows, wide=False, ages_at_ms=6_000))]
    assert lines == [
        ["NodeId", "LogEndOffset", "Lag", "LastFetch", "LastCaughtUp", "Status"],
        ["1", "101", "0", "-", "1.0s", "Leader"],  # it fetches from nobody
        ["2", "101", "0", "990ms", "1.0s", "Follower"],
        ["3", "?", "?", "?", "0ms", "Follower"],  # a clock that is ahead of this one
    ]


def test_voters_have_a_line_each() -> None:
    lines = list(status_lines(view(replica(1, 101), replica(2, 101, directory=False)).status()))
    assert lines[6:] == [
        "CurrentVoters:          1  CONTROLLER://host:9093  AQEBAQEBAQEBAQEBAQEBAQ",
        "                        2",
        "CurrentObservers:       none",
    ]
    leaderless = status_lines(view(replica(1, 101), leader_id=-1).status())
    assert list(leaderless)[1:6:3] == ["LeaderId:               none", "MaxFollowerLag:         ?"]
