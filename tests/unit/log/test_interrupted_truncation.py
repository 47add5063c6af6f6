"""A process that ends in the middle of a truncation: what was cut stays cut, also after a power loss much later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraft.chaos.world.storage import Storage
from partitions.log.log import PartitionLog
from tests.support.logs import SMALL, batch_of, new_storage, open_log, read_records, simulated_disk


class ProcessEnds(BaseException):
    """Not an error that anybody handles."""


def ends_at(storage: Storage, wanted: Callable[[str, str], bool]) -> None:
    """The process is gone before the next operation of this kind; the page cache is kept."""
    is_due = [True]

    def hook(operation: str, path: str) -> None:
        if is_due[0] and wanted(operation, path):
            is_due[0] = False
            raise ProcessEnds

    storage.add_hook(hook)


def appended(log: PartitionLog, values: list[bytes]) -> None:
    for value in values:
        log.append_as_leader(batch_of(value), leader_epoch=log.epochs.latest_epoch or 0)


def test_a_cut_that_was_not_synced_is_when_the_log_is_opened() -> None:
    storage = new_storage()
    log = open_log(simulated_disk(storage), SMALL)
    appended(log, [b"%d" % number for number in range(6)])
    log.sync()
    log.complete_checkpoint(recovery_point=6, log_start_offset=0)
    storage.sync_everything()
    ends_at(storage, lambda operation, path: operation == "sync" and path.endswith(".log"))
    with pytest.raises(ProcessEnds):
        log.truncate_to(2)
    storage.locks.clear()
    log = open_log(simulated_disk(storage), SMALL, clean=False, recovery_point=6)
    assert log.log_end_offset == 2
    log.roll()
    appended(log, [b"new"])
    log.sync()
    storage.lose_power()
    storage.locks.clear()
    log = open_log(simulated_disk(storage), SMALL, clean=False, recovery_point=log.recovery_point)
    assert [record.value for record in read_records(log)] == [b"0", b"1", b"new"]
