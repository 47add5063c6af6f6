"""Stored entries as metadata: the same verdicts as a voter's, and none where the beginning is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.runtime.disk import RealDisk
from quorum.metadata.records import Topic
from quorum.raft.inspection import DamageError, StoredEntry, StoredSnapshot, read_segment, read_snapshot
from quorum.raft.metadata_replay import MetadataReplay, ReplayedEntry
from quorum.raft.snapshot import Snapshot
from tests.support.metadata_files import BROKERS, ORDERS, proposal, story, write_segment, write_snapshot


def stored(tmp_path: Path, first: int = 0) -> list[StoredEntry]:
    return read_segment(RealDisk(), str(write_segment(tmp_path, story()[first:])))


def summary(entry: ReplayedEntry) -> tuple[object, ...]:
    return entry.offset, entry.epoch, entry.sequence, entry.is_barrier, entry.rejection is not None


def test_a_whole_journal_is_judged_as_a_voter_does(tmp_path: Path) -> None:
    replay = MetadataReplay()
    played = [replay.play(entry) for entry in stored(tmp_path)]
    assert [summary(entry) for entry in played] == [
        (1, 0, None, True, False),
        (2, 1, None, True, False),
        (3, 1, 0, False, False),
        (4, 1, 1, False, False),
        (5, 1, 7, False, True),
        (6, 2, None, True, False),
    ]
    assert played[2].records == tuple(BROKERS)
    assert played[3].records == tuple(ORDERS)
    assert played[4].records == (Topic("lost", bytes([9]) * 16),), "what was refused is shown all the same"
    assert "sequence 7" in str(played[4].rejection)
    assert replay.image is not None
    assert (replay.image.offset, replay.image.epoch, list(replay.image.topic_ids)) == (6, 2, ["orders"])


def test_entries_behind_a_snapshot_continue_it_and_those_below_only_say_what_they_are(tmp_path: Path) -> None:
    snapshot = read_snapshot(RealDisk(), str(write_snapshot(tmp_path, story()[:4])))
    replay = MetadataReplay()
    image = replay.restore(snapshot)
    assert (image.offset, list(image.topic_ids)) == (4, ["orders"])
    played = [replay.play(entry) for entry in stored(tmp_path, 3)]
    assert [summary(entry)[:3] for entry in played] == [(4, 1, 1), (5, 1, 7), (6, 2, None)]
    assert played[0].rejection is None
    assert played[1].rejection is not None
    assert replay.image is not None
    assert replay.image.offset == 6


def test_without_a_beginning_nothing_is_judged(tmp_path: Path) -> None:
    replay = MetadataReplay()
    played = [replay.play(entry) for entry in stored(tmp_path, 3)]
    assert [entry.rejection for entry in played] == [None, None, None]
    assert replay.image is None


def test_a_gap_loses_the_beginning(tmp_path: Path) -> None:
    replay = MetadataReplay()
    for entry in stored(tmp_path):
        if entry.offset != 4:
            replay.play(entry)
    assert replay.image is None


def test_bytes_that_are_no_proposal_are_told_as_such() -> None:
    replay = MetadataReplay()
    replay.play(StoredEntry(1, 0, None))
    played = replay.play(StoredEntry(2, 1, b"\xc1"))
    assert played.records == ()
    assert played.rejection is not None
    assert MetadataReplay().play(StoredEntry(9, 1, b"\xc1")).rejection is not None


def test_a_snapshot_of_something_else_is_damage() -> None:
    entries = [proposal(3, 1, 0), proposal(4, 1, 1)]
    strange = StoredSnapshot("/file", Snapshot(entries[0], entries[1], (1,), b"\xc1"))
    with pytest.raises(DamageError, match="/file"):
        MetadataReplay().restore(strange)
