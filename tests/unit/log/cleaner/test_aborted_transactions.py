"""What a cleaning makes of the transaction indexes: entries stay as long as a batch of their transaction."""

from __future__ import annotations

import asyncio

import pytest

from partitions.log.inspection.findings import Findings
from partitions.log.inspection.log_state import Expected
from partitions.log.inspection.partition_check import check_partition
from partitions.log.producers.transaction_index import ENTRY_BYTES
from partitions.records.control import ControlType
from tests.support.compaction import FOLDER, RETENTION_MS, Bench
from tests.support.logs import simulated_disk
from tests.support.power import PowerCut, power_cut_before
from tests.support.transactions import read_committed


def aborted(bench: Bench) -> list[tuple[int, int]]:
    """Producer and marker of what a reader of the whole log is told of."""
    found = bench.log.aborted_transactions(0, bench.log.log_end_offset)
    return [(entry.producer_id, entry.last_offset) for entry in found]


def errors(bench: Bench) -> list[str]:
    findings = Findings()
    check_partition(simulated_disk(bench.storage), FOLDER, Expected(has_holes=True), findings)
    return [str(finding) for finding in findings.errors]


def cut_at(bench: Bench, step: int) -> bool:
    """Cleans, and has power lost before that operation on the disk; False if there were not so many."""
    bench.storage.before_operation = power_cut_before(step)
    try:
        asyncio.run(bench.clean())
    except PowerCut:
        return True
    else:
        return False
    finally:
        bench.storage.before_operation = None
        bench.storage.lose_power()


def two_aborts(seed: int = 0) -> Bench:
    """Two aborted transactions, each in a segment of its own, which a cleaning makes one."""
    bench = Bench(seed=seed)
    for producer_id in (7, 8):
        bench.put((b"a", b"lost"), producer=(producer_id, 0, 0), transactional=True)
        bench.put((b"k%d" % producer_id, b"kept"))
        bench.mark(producer_id, ControlType.ABORT)
        bench.log.roll()
    bench.put((b"z", b"last"))
    bench.log.sync()
    asyncio.run(bench.manager.checkpoint_recovery_points())
    return bench


def test_entries_of_segments_that_become_one_are_kept_together() -> None:
    """The last batches of active producers stay as headers, and their markers with them."""
    bench = two_aborts()
    asyncio.run(bench.clean())
    assert bench.log.segment_base_offsets == (0, 6)
    assert aborted(bench) == [(7, 2), (8, 5)]
    assert errors(bench) == []
    assert [name for name in bench.names() if ".txnindex" in name] == ["00000000000000000000.txnindex"]
    assert [seen.value for seen in read_committed(bench.log, 0, 7)] == [b"kept", b"kept", b"last"]


def test_entries_may_leave_the_memory_once_their_file_has_its_name() -> None:
    bench = two_aborts()
    asyncio.run(bench.clean())
    path = f"{FOLDER}/00000000000000000000.txnindex"
    assert aborted(bench) == [(7, 2), (8, 5)]
    bench.log.storage._loaded[path].unload_indexes()
    simulated_disk(bench.storage).open(path).truncate(ENTRY_BYTES)
    assert aborted(bench) == [(7, 2)], "what the file says"


def test_entries_go_once_nothing_is_left_of_the_transaction() -> None:
    bench = two_aborts()
    asyncio.run(bench.clean())
    for producer_id in (7, 8):
        bench.put((b"b", b"committed"), producer=(producer_id, 0, 1))
    for _ in range(3):
        bench.log.roll()
        bench.put((b"z", b"last"))
        bench.log.sync()
        asyncio.run(bench.clean())
        bench.now_ms += RETENTION_MS
    assert aborted(bench) == []
    assert [name for name in bench.names() if ".txnindex" in name] == []
    assert errors(bench) == []


@pytest.mark.parametrize("is_last", [False, True])
def test_no_entry_stays_without_its_marker_whenever_power_is_lost(is_last: bool) -> None:
    """The entry goes with the records that it hides, the marker a cleaning later. A crash in the first of the two
    cleanings may leave the entry; after one in the second it would hide what the producer committed behind.

    Of a marker that is the last batch of its segment an empty batch stays.
    """
    left_over = next(step for step in range(1000) if has_entries_without_records(half_cleaned(step, is_last)))
    step, cut, lost_markers = 0, True, 0
    while cut:
        bench = half_cleaned(left_over, is_last)
        bench.now_ms += RETENTION_MS
        add_segment(bench)
        cut = cut_at(bench, step)
        bench.start()
        markers = {offset for offset, _, _ in bench.contents().markers}
        assert {marker for _, marker in aborted(bench)} <= markers
        assert [error for error in errors(bench) if ".txnindex" in error] == []
        lost_markers += not markers
        step += 1
    assert 1 < lost_markers < step


def add_segment(bench: Bench) -> None:
    bench.log.roll()
    bench.put((b"z", b"last"))
    bench.log.sync()
    asyncio.run(bench.manager.checkpoint_recovery_points())


def half_cleaned(step: int, is_last: bool) -> Bench:
    """An aborted transaction, of whose cleaning power was lost at this step."""
    bench = Bench()
    bench.put((b"a", b"lost"), producer=(7, 0, 0), transactional=True)
    bench.put((b"k", b"k" * 100))
    bench.mark(7, ControlType.ABORT)
    if is_last:
        bench.log.roll()
    bench.put((b"big", b"B" * 500), producer=(7, 0, 1))
    add_segment(bench)
    asyncio.run(bench.clean())
    bench.now_ms += RETENTION_MS
    add_segment(bench)
    assert cut_at(bench, step)
    bench.start()
    return bench


def has_entries_without_records(bench: Bench) -> bool:
    """Whether the cleaning has given the transaction's marker its delete horizon, and the entry is there still."""
    horizons = [header.delete_horizon_ms for header in bench.contents().headers if header.is_control]
    return aborted(bench) != [] and horizons[0] is not None


@pytest.mark.parametrize("seeds", range(3))
def test_power_may_be_lost_at_every_step_of_a_cleaning(seeds: int) -> None:
    step, cut = 0, True
    while cut:
        bench = two_aborts(1000 * seeds + step)
        cut = cut_at(bench, step)
        bench.start()
        assert aborted(bench) == [(7, 2), (8, 5)]
        assert [error for error in errors(bench) if ".txnindex" in error] == []
        step += 1
    assert step > 30


def test_the_decision_is_not_on_disk_without_the_index() -> None:
    """Power is lost once the cleaned segment is called `.swap`, and names may be lost in any order."""
    swaps_finished = 0
    for seed in range(60):
        bench = two_aborts(seed)
        decided = False

        def hook(operation: str, path: str) -> None:
            nonlocal decided
            if decided:
                raise PowerCut
            decided = operation == "rename" and path.endswith(".log.cleaned")

        bench.storage.before_operation = hook
        with pytest.raises(PowerCut):
            asyncio.run(bench.clean())
        bench.storage.before_operation = None
        bench.storage.lose_power()
        bench.start()
        swaps_finished += bench.log.segment_base_offsets == (0, 6)
        assert aborted(bench) == [(7, 2), (8, 5)]
    assert 0 < swaps_finished < 60
