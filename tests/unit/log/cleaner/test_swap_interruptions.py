"""What happens to a log while a job changes the names of its segments, between any two of the changes."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import functools
from collections.abc import Callable

import pytest

from partitions.log.errors import LogStorageError
from partitions.log.log import PartitionLog
from partitions.log.name_changes import NameChanges
from tests.support.compaction import COMPACTED, FOLDER, TABLE, Bench
from tests.support.logs import Halted
from tests.support.power import PowerCut, power_cut_before
from tests.unit.log.cleaner.test_aborted_transactions import aborted, errors, two_aborts

LAST = {b"a": b"x", **{b"k%d" % number: b"%032d" % number for number in range(24)}}
AFTER = {b"b": b"after"}


def filled() -> Bench:
    """Closed segments of 24 keys that stay and one of which the last record stays, about to become one segment."""
    bench = Bench()
    for number in range(24):
        bench.put((b"k%d" % number, b"%032d" % number))
        bench.put((b"a", b"x"))
        if number % 8 == 7:
            bench.log.roll()
    bench.log.sync()
    asyncio.run(bench.manager.checkpoint_recovery_points())
    bench.log.update_config(dataclasses.replace(COMPACTED, segment_bytes=1 << 20))
    return bench


def timeless() -> Bench:
    """Segments of records without timestamps."""
    bench = Bench()
    for number in range(3):
        for key in (b"a", b"%d" % number, b"b", b"%d" % (number + 10), b"a"):
            bench.put((key, b"%032d" % number), timestamp=-1)
        bench.log.roll()
    return bench


def clean_amid(bench: Bench, change: int, action: Callable[[], object]) -> int:
    """Cleans, and has something happen once on the log's lane when a job is about to make that change of a name."""
    make_next = NameChanges._make_next
    left = change

    def counted(changes: NameChanges, *, for_job: bool) -> bool:
        nonlocal left
        left -= for_job
        if for_job and left == 0:
            action()
        return make_next(changes, for_job=for_job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NameChanges, "_make_next", counted)
        return asyncio.run(bench.clean())


@functools.cache
def changes_of_names(fill: Callable[[], Bench]) -> range:
    """Of a cleaning of what was filled like this."""
    make_next = NameChanges._make_next
    count = 0

    def counted(changes: NameChanges, *, for_job: bool) -> bool:
        nonlocal count
        count += for_job
        return make_next(changes, for_job=for_job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NameChanges, "_make_next", counted)
        asyncio.run(fill().clean())
    assert count > 10
    return range(1, count + 1)


def only_looks(operation: str, path: str) -> None:
    assert operation in ("open", "read", "map", "exists", "size", "modified"), f"{operation} {path}"


def test_readers_see_the_log_while_names_change() -> None:
    """And retention, the age of records without timestamps."""
    for change in changes_of_names(timeless):
        bench = timeless()
        ages = {segment.newest_ms for segment in bench.log._segments}
        reads: list[bool] = []

        def look(bench: Bench = bench, reads: list[bool] = reads, ages: set[int] = ages) -> None:
            bench.log.storage.give_back()
            for segment in bench.log._segments:
                segment.unload_indexes()
            bench.storage.before_operation = only_looks
            try:
                assert {segment.newest_ms for segment in bench.log._segments} <= ages
                reads.append(bench.contents().table()[b"a"] == b"%032d" % 2)
                reads.extend(
                    len(bench.log.read(offset, 1, up_to_offset=15).slices) == 1 for offset in range(15)
                )
            finally:
                bench.storage.before_operation = None

        assert clean_amid(bench, change, look) == 1
        assert reads
        assert all(reads)


@pytest.mark.parametrize("power_is_lost", [False, True])
@pytest.mark.parametrize(
    ("change", "arguments", "expected"),
    [
        (
            PartitionLog.truncate_to,
            (20,),
            {key: LAST[key] for key in (b"k%d" % n for n in range(10))} | AFTER,
        ),
        (PartitionLog.truncate_fully_and_start_at, (100,), AFTER),
        (PartitionLog.delete_segments_before, (17,), LAST | AFTER),
        (PartitionLog.close, (), LAST),
    ],
)
def test_a_log_that_changes_while_its_names_do(
    change: Callable[..., object],
    arguments: tuple[int, ...],
    expected: dict[bytes, bytes],
    power_is_lost: bool,
) -> None:
    """The log does at once what is left to be done, and the job finds nothing more to do."""
    for number in changes_of_names(filled):
        bench = filled()
        clean_amid(bench, number, functools.partial(change, bench.log, *arguments))
        if not bench.log.is_closed:
            bench.put((b"b", b"after"))
            bench.log.sync()
        if power_is_lost:
            bench.storage.lose_power()
        bench.start()
        table = bench.contents().table()
        if change is not PartitionLog.delete_segments_before:
            table.setdefault(b"a", b"x")  # its newest value went where the log was cut
            assert table == {b"a": b"x"} | expected
        else:
            assert table.items() <= expected.items()
            assert {b"k%d" % n for n in range(9, 24)} <= table.keys()
        assert not [name for name in bench.names() if name.endswith((".swap", ".cleaned", ".deleted"))]


def test_power_may_be_lost_within_a_truncation_that_ends_a_swap() -> None:
    """And once more in the recovery after it."""
    for change in list(changes_of_names(filled))[::3]:
        step, is_done = 0, False
        while not is_done:
            bench = filled()

            def truncate(bench: Bench = bench, step: int = step) -> None:
                nonlocal is_done
                bench.storage.before_operation = power_cut_before(step)
                bench.log.truncate_to(20)
                is_done = True
                raise PowerCut

            with pytest.raises(PowerCut):
                clean_amid(bench, change, truncate)
            bench.storage.lose_power()
            bench.storage.before_operation = power_cut_before(7 * step % 40)
            try:
                bench.start()
            except PowerCut:
                bench.storage.lose_power()
            bench.storage.before_operation = None
            bench.start()
            assert {b"k%d" % n for n in range(10)} <= bench.contents().table().keys()
            assert not is_done or bench.log.log_end_offset <= 20
            step += 3


@pytest.mark.parametrize("operation", ["remove", "rename", "sync_dir"])
def test_nothing_is_lost_when_a_swap_cannot_be_ended(operation: str) -> None:
    """The log takes no truncation then, and the next start ends the swap one way or the other."""
    failures = 0
    for change in changes_of_names(filled):
        bench = filled()

        def broken(name: str, path: str) -> None:
            if name == operation and (name == "sync_dir" or ".log" in path):
                raise OSError(errno.EIO, "broken", path)

        def truncate(bench: Bench = bench, hook: Callable[[str, str], None] = broken) -> None:
            nonlocal failures
            bench.storage.before_operation = hook
            try:
                bench.log.truncate_to(47)
            except (LogStorageError, Halted):
                failures += 1
                assert bench.log.storage.failure is not None
            finally:
                bench.storage.before_operation = None

        try:
            clean_amid(bench, change, truncate)
        except (LogStorageError, Halted):
            assert bench.log.storage.failure is not None
        bench.storage.lose_power()
        bench.start()
        table = bench.contents().table()
        assert LAST.items() <= ({b"k23": LAST[b"k23"], b"a": b"x"} | table).items()
    assert failures


def test_an_fsync_that_failed_in_the_job_is_not_repeated() -> None:
    """The log is truncated before the loop hears of it."""
    bench = filled()
    calls: list[str] = []

    def hook(operation: str, path: str) -> None:
        if operation == "sync_dir" and path == FOLDER:
            calls.append(path)
            raise OSError(errno.EIO, "broken", path)

    make = NameChanges.make

    def failing(changes: NameChanges) -> None:
        bench.storage.before_operation = hook
        try:
            make(changes)
        finally:
            with pytest.raises(Halted, match="broken"):
                bench.log.truncate_to(40)
            assert len(calls) == 1
            bench.storage.before_operation = None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NameChanges, "make", failing)
        with pytest.raises(LogStorageError, match="broken"):
            asyncio.run(bench.clean())
    assert bench.log.storage.failure is not None


def test_an_abandoned_log_changes_no_name_any_more() -> None:
    """Its folder may be another log's by then."""
    for change in changes_of_names(filled):
        bench = filled()
        names: list[str] = []

        def abandon(bench: Bench = bench, names: list[str] = names) -> None:
            bench.log.abandon()
            names += bench.names()

        assert clean_amid(bench, change, abandon) == 0
        assert bench.names() == names
        bench.start()
        assert bench.contents().table() == LAST


def test_a_log_that_is_given_up_keeps_what_a_start_needs() -> None:
    """The transaction index of the new segment, while it may have to be put in place."""
    for change in changes_of_names(two_aborts):
        bench = two_aborts()
        broken = LogStorageError("an append failed")
        clean_amid(bench, change, functools.partial(bench.manager.give_up, TABLE, broken))
        bench.start()
        assert aborted(bench) == [(7, 2), (8, 5)]
        assert errors(bench) == []


def test_retention_leaves_a_log_alone_while_names_change() -> None:
    """It would have to make all that are left on the event loop."""
    for change in changes_of_names(filled):
        bench = filled()
        operations: list[str] = []

        def retain(bench: Bench = bench, operations: list[str] = operations) -> None:
            bench.log.raise_log_start_offset(17)
            assert bench.log.has_obsolete_segments or len(bench.log.segment_base_offsets) == 2
            bench.storage.before_operation = lambda operation, _path: operations.append(operation)
            with pytest.raises(StopIteration, match="0"):  # it waits for nothing
                bench.manager.retention._take_out(bench.log).send(None)
            bench.storage.before_operation = None

        assert clean_amid(bench, change, retain) == 1
        assert operations == []
        asyncio.run(bench.manager.retention.step(lambda _: 0, max_logs=1))
        assert not bench.log.has_obsolete_segments
