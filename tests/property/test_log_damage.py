"""`kraft log verify` finds what has changed on a disk, and names the file and the place.

Every byte of every file is flipped and every file cut at every place, in the data directory of a broker
that ended properly and of one that was killed. What cannot be found is listed here, with the reason why;
everything else must be.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from partitions.log.inspection.findings import Finding, Findings
from partitions.records.batch import iter_batches
from tests.support.stored_logs import (
    DATA,
    FOLDER,
    LAST_RECOVERY_POINT,
    closed_directory,
    crashed_directory,
    segment_paths,
    verified,
)

MASKS = (0x01, 0x10, 0x80, 0xFF)
META = f"{DATA}/meta.properties"
METADATA = f"{FOLDER}/partition.metadata"
EPOCHS = f"{FOLDER}/leader-epoch-checkpoint"
LEADER_EPOCH_BYTES = range(12, 16)

FREE_VALUES = {
    METADATA: "a topic's id is known to the controllers only; several partitions of a topic are compared",
    META: "so are the ids of cluster, node and directory",
    f"{DATA}/recovery-point-offset-checkpoint": "a lower offset only has more bytes checked",
    f"{DATA}/replication-offset-checkpoint": "any offset up to the log's end may have been committed",
    f"{DATA}/log-start-offset-checkpoint": "a log may start anywhere",
    f"{DATA}/.kafka_cleanshutdown": "a broker's epoch is known to the controllers only",
}
"""Files in which another value may be as good as the right one: changes may go unnoticed there."""


def damaged(files: Mapping[str, bytes], path: str, content: bytes) -> Findings:
    return verified({**files, path: content})


def flips(content: bytes) -> list[tuple[int, bytes]]:
    """The place of each change, and the content with it."""
    changed = []
    for at in range(len(content)):
        for mask in MASKS:
            copy = bytearray(content)
            copy[at] ^= mask
            changed.append((at, bytes(copy)))
    return changed


def names(finding: Finding, path: str) -> bool:
    return finding.path == path or path.rpartition("/")[2] in finding.reason


def batch_at(content: bytes, at: int) -> int:
    """Where the batch begins that holds a byte."""
    return max(position for position, _ in iter_batches(content) if position <= at)


def checked_paths(files: Mapping[str, bytes]) -> list[str]:
    return [path for path in files if path not in FREE_VALUES]


@pytest.mark.parametrize("path", segment_paths(closed_directory()))
def test_every_flip_in_a_closed_log_is_found_at_its_batch(path: str) -> None:
    files = closed_directory()
    for at, content in flips(files[path]):
        errors = damaged(files, path, content).errors
        places = {(error.path, error.position) for error in errors}
        assert (path, batch_at(files[path], at)) in places, (at, errors)


@pytest.mark.parametrize("path", segment_paths(closed_directory()))
def test_every_cut_of_a_closed_log_is_found_where_it_ends(path: str) -> None:
    files = closed_directory()
    starts = {position for position, _ in iter_batches(files[path])}
    for at in range(len(files[path])):
        errors = damaged(files, path, files[path][:at]).errors
        last = batch_at(files[path], at)
        if at not in starts:
            assert (path, last) in {(error.path, error.position) for error in errors}, (at, errors)
        assert errors, at


@pytest.mark.parametrize(
    "path", [path for path in checked_paths(closed_directory()) if not path.endswith(".log")]
)
def test_every_flip_beside_a_closed_log_is_found(path: str) -> None:
    files = closed_directory()
    for at, content in flips(files[path]):
        errors = damaged(files, path, content).errors
        assert any(names(error, path) for error in errors), (at, content, errors)


@pytest.mark.parametrize(
    "path", [path for path in checked_paths(closed_directory()) if not path.endswith(".log")]
)
def test_every_cut_beside_a_closed_log_is_found_unless_it_leaves_hints(path: str) -> None:
    """Indexes are hints: without their last entries a lookup takes longer, and that is all. The time
    index's last word is no hint; without any entry it is made anew."""
    files = closed_directory()
    for at in range(len(files[path])):
        if (path.endswith(".index") and at % 8 == 0) or (path.endswith(".timeindex") and at == 0):
            continue
        errors = damaged(files, path, files[path][:at]).errors
        assert any(names(error, path) for error in errors), at


def test_flips_of_free_values_are_found_where_the_form_is_wrong() -> None:
    """Something of each such file is bound to be noticed."""
    files = closed_directory()
    for path in FREE_VALUES:
        found = [at for at, content in flips(files[path]) if damaged(files, path, content).errors]
        assert len(set(found)) > len(files[path]) // 8, path


@pytest.mark.parametrize("path", segment_paths(crashed_directory()))
def test_flips_in_a_crashed_log_are_damage_but_in_what_may_be_torn(path: str) -> None:
    """What was flushed is damaged; so is what sound batches follow. The very last batch may be torn.

    Beyond the recovery point the epoch checkpoint may lag behind the log, so an epoch there is compared
    with the batches around it only.
    """
    files = crashed_directory()
    batches = dict(iter_batches(files[path]))
    is_last_file = path == segment_paths(files)[-1]
    for at, content in flips(files[path]):
        start = batch_at(files[path], at)
        found = damaged(files, path, content)
        if at - start in LEADER_EPOCH_BYTES and batches[start].base_offset >= LAST_RECOVERY_POINT:
            continue
        if is_last_file and start == max(batches):
            assert any(names(finding, path) for finding in found.errors + found.notes), at
        else:
            assert any((error.path, error.position) == (path, start) for error in found.errors), at


def test_a_torn_tail_is_a_note_and_a_cut_into_flushed_data_is_damage() -> None:
    files = crashed_directory()
    for path in segment_paths(files):
        is_last_file = path == segment_paths(files)[-1]
        headers = dict(iter_batches(files[path]))
        for at in range(len(files[path])):
            found = damaged(files, path, files[path][:at])
            torn = headers[batch_at(files[path], at)]
            if is_last_file and torn.base_offset >= LAST_RECOVERY_POINT:
                assert not found.errors, at
                assert at in headers or found.notes, at
            else:
                assert any(names(error, path) for error in found.errors) or at in headers, at
                assert found.errors, at
