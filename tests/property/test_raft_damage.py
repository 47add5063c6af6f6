"""A voter never serves a byte that has changed on its disk, and never forgets what it has acknowledged.

Every byte of every file is flipped and every file cut at every place, in the folder of a voter that
ended properly, of one that crashed after an idle moment, and of one that crashed in the middle of its
work. The voter refuses to start with a sentence that names the file, or serves what it served before.
"""

import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.scripted_voter import DIRECTORY, JOURNAL
from tests.support.voter_folder import Served, VoterFolder, open_again

STATE = f"{JOURNAL}/quorum-state"
META = f"{DIRECTORY}/meta.properties"
LAST_GROUP = 2
"""Entries that the voter which crashed at work had synced with its very last fsync."""


def history() -> VoterFolder:
    """Votes, groups of entries, several segments, a snapshot, a truncation."""
    folder = VoterFolder()
    folder.vote(1, 2)
    folder.append((2, 1), (3, 1))
    folder.append((4, 1), (5, 1), (6, 1))
    folder.vote(2, 3)
    folder.take_snapshot(6)
    folder.append((7, 2))
    folder.append((7, 3), (8, 3))
    folder.append((9, 3), (10, 3))
    return folder


def ended(folder: VoterFolder) -> None:
    folder.journal.close()


def idle(folder: VoterFolder) -> None:
    folder.journal.remember_end_if_idle(10.0)
    folder.journal.remember_end_if_idle(10.2)


def at_work(folder: VoterFolder) -> None:
    """Killed right after its last fsync."""


ENDS = {"ended": ended, "idle": idle, "at work": at_work}


@cache
def left_by(end: str) -> tuple[dict[str, bytes], Served]:
    folder = history()
    before = folder.served()
    ENDS[end](folder)
    return folder.storage.files(), before


def kinds(files: dict[str, bytes]) -> set[str]:
    return {path.rpartition(".")[2] for path in files}


def check(end: str, path: str, damaged: bytes) -> str | Served:
    files, before = left_by(end)
    found = open_again({**files, path: damaged})
    if isinstance(found, str):
        named = "meta.properties" if path == META else path
        assert named in found, found
        assert re.search("[Ff]ormat|restore|check|give", found), "it says what to do"
    elif end == "at work" and path.endswith(".log") and len(found.entries) < len(before.entries):
        # The documented place: only the last fsync, and nothing was written after it.
        assert found.entries == before.entries[: len(found.entries)]
        assert len(found.entries) >= len(before.entries) - LAST_GROUP
    else:
        assert found == before
    return found


def places() -> list[tuple[str, str]]:
    """How the voter ended, and a file that it left."""
    return [(end, path) for end in ENDS for path in sorted(left_by(end)[0])]


def counts(end: str, path: str) -> bool:
    """Whether every byte of the file is one that nothing can replace."""
    return end != "at work" and (path.endswith((".log", ".checkpoint")) or path == STATE)


def test_the_folder_has_every_kind_of_file():
    files, before = left_by("ended")
    assert kinds(files) >= {"log", "index", "timeindex", "checkpoint", "properties"}
    assert STATE in files
    assert len([path for path in files if path.endswith(".log")]) > 2
    assert before.snapshot is not None
    assert open_again(files) == before


@pytest.mark.parametrize(("end", "path"), places())
def test_a_flipped_byte_is_found_or_does_not_matter(end, path):
    content = left_by(end)[0][path]
    refused = 0
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        refused += isinstance(check(end, path, bytes(damaged)), str)
    assert refused == len(content) or not counts(end, path)


@pytest.mark.parametrize(("end", "path"), places())
def test_a_file_that_is_cut_is_found_or_does_not_matter(end, path):
    content = left_by(end)[0][path]
    refused = sum(isinstance(check(end, path, content[:size]), str) for size in range(len(content)))
    assert refused == len(content) or not counts(end, path)


@pytest.mark.parametrize("end", ENDS)
def test_a_missing_segment_is_found(end):
    files, _ = left_by(end)
    segments = [path for path in sorted(files) if path.endswith(".log")]
    for path in segments[:-1]:
        found = open_again({name: data for name, data in files.items() if name != path})
        assert isinstance(found, str)
        assert JOURNAL in found


def test_a_missing_snapshot_is_found():
    files, _ = left_by("ended")
    found = open_again({path: data for path, data in files.items() if not path.endswith(".checkpoint")})
    assert isinstance(found, str)
    assert "snapshot" in found


@given(
    place=st.sampled_from([place for place in places() if counts(*place)]),
    start=st.integers(0, 2**16),
    wound=st.one_of(st.binary(min_size=1, max_size=700), st.integers(1, 700).map(bytes)),
)
@settings(max_examples=examples(150), deadline=None)
def test_a_whole_stretch_of_other_bytes_is_found(place, start, wound):
    end, path = place
    content = left_by(end)[0][path]
    start %= len(content)
    damaged = (content[:start] + wound + content[start + len(wound) :])[: len(content)]
    if damaged != content:
        assert isinstance(check(end, path, damaged), str)
