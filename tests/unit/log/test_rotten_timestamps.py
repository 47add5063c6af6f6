"""Timestamps that rotted in a batch's header: a lookup by time goes by them before it compares the checksum."""

from __future__ import annotations

import pytest

from partitions.log.errors import BatchDamaged
from tests.support.logs import FOLDER, batch_of, memory_disk, open_log

BATCH_BYTES = len(batch_of(b"value-0"))
BASE_TIMESTAMP, MAX_TIMESTAMP = 27, 35
"""Where they are in a batch; a flipped sign makes them older than all others."""
COUNT = 4


@pytest.mark.parametrize("field", [BASE_TIMESTAMP, MAX_TIMESTAMP])
@pytest.mark.parametrize("is_closed", [False, True])
def test_the_youngest_batch_of_a_segment_is_not_passed_over(field: int, is_closed: bool) -> None:
    """The index, made anew of what it says now, would have nothing so young in that segment."""
    disk = memory_disk()
    log = open_log(disk)
    for number in range(COUNT):
        log.append_as_leader(batch_of(b"value-%d" % number, timestamp=1000 + number), leader_epoch=3)
    if is_closed:
        log.roll()
        log.append_as_leader(batch_of(b"value-%d" % COUNT, timestamp=1000 + COUNT), leader_epoch=3)
    log.close()
    position = (COUNT - 1) * BATCH_BYTES
    file = disk.open(f"{FOLDER}/{0:020d}.log")
    file.write_at(position + field, bytes([file.read(position + field, 1)[0] ^ 0x80]))
    with pytest.raises(BatchDamaged) as raised:
        open_log(disk, clean=True).offset_for_timestamp(1000 + COUNT - 1)
    assert (raised.value.path, raised.value.position) == (f"{FOLDER}/{0:020d}.log", position)
