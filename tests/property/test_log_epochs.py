"""An epoch checkpoint that says anything at all: what is asked of the log's epochs is answered as its batches say, and
so is reading it, or with an error where a single bit of a batch may be what is wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leader_epoch.checkpoint import encode_checkpoint
from leader_epoch.epoch_cache import EpochCache, EpochEntry
from partitions.disk import Disk
from partitions.log.errors import EpochsDisagree
from tests.support.logs import batch_of, memory_disk, open_log, read_records, rot_epochs

RUNS = st.lists(st.tuples(st.integers(1, 3), st.integers(2, 5), st.booleans()), min_size=1, max_size=5)
"""Of each epoch: by how much it is above the one before, its batches (no batch is alone), and whether the log rolls."""
ASKED = range(18)
"""Every epoch that a log can have, and some beyond."""
ENTRIES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 25)), max_size=6)


def written_log(disk: Disk, runs: list[tuple[int, int, bool]]) -> tuple[EpochCache, list[int]]:
    """Writes a log of one batch an offset and closes it; returns its epochs, and that of each offset."""
    log = open_log(disk)
    written: list[int] = []
    epoch = 0
    for above, count, rolls in runs:
        epoch += above
        for _ in range(count):
            log.append_as_leader(batch_of(b"value"), leader_epoch=epoch)
            written.append(epoch)
        if rolls:
            log.roll()
    log.close()
    return EpochCache(log.epochs.entries), written


def let_it_say(disk: Disk, said: list[tuple[int, int]]) -> EpochCache:
    """Puts this into the checkpoint file, as far as it is in order."""
    rotten = EpochCache(EpochEntry(*entry) for entry in said)
    rot_epochs(disk, encode_checkpoint(rotten.entries))
    return rotten


def check_one_bit(error: EpochsDisagree, written: list[int], known: EpochCache) -> None:
    """A log is refused only where one bit of one batch explains everything."""
    offset = error.header.base_offset
    assert error.known_epoch is not None
    assert (written[offset] ^ error.known_epoch).bit_count() == 1
    beside = [o for o in (offset - 1, offset + 1) if 0 <= o < len(written)]
    alike = [o for o in beside if written[o] == written[offset]]
    assert alike
    assert all(known.epoch_for_offset(o) == written[offset] for o in alike)


@given(RUNS, ENTRIES)
def test_reading_a_log_mends_whatever_its_checkpoint_says(
    runs: list[tuple[int, int, bool]], said: list[tuple[int, int]]
) -> None:
    disk = memory_disk()
    sound, written = written_log(disk, runs)
    known = let_it_say(disk, said)
    try:
        log = open_log(disk, clean=True)
        known = log.epochs
        assert [offset for offset, _, _ in read_records(log)] == list(range(len(written)))
    except EpochsDisagree as error:
        check_one_bit(error, written, known)
        return
    assert [log.epochs.epoch_for_offset(offset) for offset in range(len(written))] == written
    log._relearn_epochs()
    assert log.epochs == sound


@given(RUNS, ENTRIES, st.permutations(ASKED))
def test_epochs_end_where_the_batches_say_whatever_the_checkpoint_says(
    runs: list[tuple[int, int, bool]], said: list[tuple[int, int]], asked: list[int]
) -> None:
    disk = memory_disk()
    sound, written = written_log(disk, runs)
    known = let_it_say(disk, said)
    try:
        log = open_log(disk, clean=True)
        known = log.epochs
        for epoch in asked:
            assert log.end_offset_for_epoch(epoch) == sound.end_offset_for(epoch, len(written))
            offset = epoch % len(written)
            assert log.epoch_for_offset(offset) == written[offset]
    except EpochsDisagree as error:
        check_one_bit(error, written, known)


@given(RUNS, ENTRIES, st.integers(1, 14))
def test_behind_a_cut_the_newest_epoch_is_that_of_the_last_batch(
    runs: list[tuple[int, int, bool]], said: list[tuple[int, int]], cut: int
) -> None:
    disk = memory_disk()
    sound, written = written_log(disk, runs)
    known = let_it_say(disk, said)
    cut = min(cut, len(written))
    try:
        log = open_log(disk, clean=True)
        known = log.epochs
        log.truncate_to(cut)
    except EpochsDisagree as error:
        check_one_bit(error, written, known)
        return
    sound.truncate_from_end(cut)
    assert (log.log_end_offset, log.epochs.latest_epoch) == (cut, sound.latest_epoch)
