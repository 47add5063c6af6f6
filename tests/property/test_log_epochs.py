"""An epoch checkpoint that says anything at all: reading the log ends in epochs that no batch contradicts, or in an
error where a single bit of a batch may be what is wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME, encode_checkpoint
from leader_epoch.epoch_cache import EpochCache, EpochEntry
from partitions.log.errors import EpochsDisagree
from tests.support.logs import FOLDER, batch_of, memory_disk, open_log, read_records

EPOCHS = f"{FOLDER}/{CHECKPOINT_FILE_NAME}"
RUNS = st.lists(st.tuples(st.integers(1, 3), st.integers(2, 5), st.booleans()), min_size=1, max_size=5)
"""Of each epoch: by how much it is above the one before, its batches (no batch is alone), and whether the log rolls."""
ENTRIES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 25)), max_size=6)


@given(RUNS, ENTRIES)
def test_reading_a_log_mends_whatever_its_checkpoint_says(
    runs: list[tuple[int, int, bool]], said: list[tuple[int, int]]
) -> None:
    disk = memory_disk()
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
    entries = log.epochs.entries
    log.close()
    disk.remove(EPOCHS)
    rotten = EpochCache(EpochEntry(*entry) for entry in said)
    disk.open(EPOCHS, create=True).append([encode_checkpoint(rotten.entries)])
    log = open_log(disk, clean=True)
    refused = None
    try:
        assert [offset for offset, _, _ in read_records(log)] == list(range(len(written)))
    except EpochsDisagree as error:
        refused = error
    if refused is not None:
        offset = refused.header.base_offset
        assert (written[offset] ^ refused.known_epoch).bit_count() == 1
        beside = [o for o in (offset - 1, offset + 1) if 0 <= o < len(written)]
        alike = [o for o in beside if written[o] == written[offset]]
        assert alike
        assert all(log.epochs.epoch_for_offset(o) == written[offset] for o in alike)
        return
    for offset, epoch in enumerate(written):
        assert log.epochs.epoch_for_offset(offset) in (epoch, None)
    log._relearn_epochs()
    assert [entry for entry in log.epochs.entries if entry.start_offset < len(written)] == list(entries)
