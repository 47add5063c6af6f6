"""What ends a cleaning early, what a crash leaves, and how the log is read meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
from collections.abc import Callable
from mmap import mmap

import pytest

from partitions.log.cleaner import offset_map
from partitions.log.errors import LogStorageError
from tests.support.compaction import CLEANER, COMPACTED, FOLDER, TABLE, TOPIC_ID, Bench
from tests.support.logs import get_or_create, simulated_disk


def filled(bench: Bench) -> Bench:
    """Three closed segments, all of one key."""
    for number in range(24):
        bench.put((b"a", b"%032d" % number))
        if number % 8 == 7:
            bench.log.roll()
    return bench


def at_job(bench: Bench, job: int, action: Callable[[], None]) -> None:
    """Has something happen once, between two jobs of the cleaning."""
    count = 2 * job

    def between() -> None:
        nonlocal count
        count -= 1
        if count == 0:
            action()

    bench.executor.between = between


async def jobs_of_a_cleaning() -> int:
    bench = filled(Bench())
    assert await bench.clean() == 1
    return bench.executor.jobs


async def test_readers_see_the_log_at_any_time() -> None:
    for job in range(1, await jobs_of_a_cleaning() + 1):
        bench = filled(Bench())
        reads: list[bool] = []
        held = bench.log.read(0, 10_000, up_to_offset=24).slices
        before = [part.read() for part in held]

        def read(bench: Bench = bench, reads: list[bool] = reads) -> None:
            reads.append(bench.contents().table() == {b"a": b"%032d" % 23})

        at_job(bench, job, read)
        assert await bench.clean() == 1
        assert reads == [True]
        # What a reader holds of replaced segments stays readable.
        assert [part.read() for part in held] == before


async def test_a_truncation_ends_the_cleaning_and_stays() -> None:
    ended = 0
    for job in range(1, await jobs_of_a_cleaning() + 1):
        bench = filled(Bench())
        at_job(bench, job, lambda bench=bench: bench.log.truncate_to(12))  # type: ignore[misc]
        ended += await bench.clean() == 0
        assert bench.log.log_end_offset <= 12
        assert bench.log.clean_offset <= 12
        found = bench.contents()
        assert all(record.offset < 12 for record in found.records)
        bench.put((b"a", b"after"))
        bench.start()
        assert bench.contents().table() == {b"a": b"after"}
        assert not [name for name in bench.names() if name.endswith((".swap", ".cleaned", ".deleted"))]
    assert ended > 10


@pytest.mark.parametrize("change", ["start anew", "delete records"])
async def test_a_log_that_shrinks_otherwise(change: str) -> None:
    for job in range(1, await jobs_of_a_cleaning() + 1):
        bench = filled(Bench())
        if change == "start anew":
            at_job(bench, job, lambda bench=bench: bench.log.truncate_fully_and_start_at(100))  # type: ignore[misc]
        else:
            at_job(bench, job, lambda bench=bench: bench.log.delete_segments_before(17) and None)  # type: ignore[misc]
        await bench.clean()
        bench.put((b"b", b"after"))
        for _ in range(2):
            expected = {b"b": b"after"} | ({} if change == "start anew" else {b"a": b"%032d" % 23})
            assert bench.contents().table(bench.log.log_start_offset) == expected
            bench.start()


async def test_a_topic_is_deleted_while_it_is_cleaned() -> None:
    """And one of the same name is made at once; the old cleaning leaves nothing in its folder."""
    for job in range(1, await jobs_of_a_cleaning() + 1):
        bench = filled(Bench())
        deleting: list[asyncio.Task[None]] = []

        def delete(bench: Bench = bench, deleting: list[asyncio.Task[None]] = deleting) -> None:
            deleting.append(asyncio.ensure_future(bench.manager.delete([TABLE])))

        at_job(bench, job, delete)
        await bench.clean()
        await deleting[0]
        assert bench.manager.get(TABLE) is None
        bench.log = get_or_create(bench.manager, TABLE, b"n" * 16, COMPACTED)
        assert sorted(bench.names()) == [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "partition.metadata",
        ]
        filled(bench)
        assert await bench.clean() == 1
        assert len(bench.contents().records) == 1


async def test_the_end_of_the_node_ends_the_cleaning() -> None:
    for job in range(1, await jobs_of_a_cleaning() + 1):
        bench = filled(Bench())
        closing: list[asyncio.Task[None]] = []

        def stop(bench: Bench = bench, closing: list[asyncio.Task[None]] = closing) -> None:
            closing.append(asyncio.ensure_future(bench.stop()))

        at_job(bench, job, stop)
        await bench.clean()
        await closing[0]
        bench.start()
        assert bench.log.recovery.clean
        assert bench.contents().table() == {b"a": b"%032d" % 23}


@pytest.mark.parametrize("refused", ["append .log", "append .timeindex", "sync .log", "sync .index"])
async def test_a_full_disk_ends_the_round_and_the_next_one_goes_on(refused: str) -> None:
    bench = filled(Bench())
    await bench.manager.flush()
    refused_operation, suffix = refused.split()

    def full(operation: str, path: str) -> None:
        if operation == refused_operation and path.endswith(f"{suffix}.cleaned"):
            raise OSError(errno.ENOSPC, "full", path)

    bench.storage.before_operation = full
    with pytest.raises(LogStorageError, match=r"clean(ing)? the log /data/table-0"):
        await bench.clean()
    assert bench.log.storage.failure is None
    bench.storage.before_operation = None
    assert not [name for name in bench.names() if name.endswith(".cleaned")]
    assert await bench.clean() == 1


async def test_the_clean_offset_survives() -> None:
    bench = filled(Bench())
    await bench.clean()
    assert bench.log.clean_offset == 24
    content = simulated_disk(bench.storage).read_bytes("/data/cleaner-offset-checkpoint")
    assert content == b"0\n1\ntable 0 24\n"
    bench.storage.lose_power()
    bench.start()
    assert bench.log.clean_offset == 24
    assert await bench.clean() == 0
    await bench.manager.delete([TABLE])
    assert simulated_disk(bench.storage).read_bytes("/data/cleaner-offset-checkpoint") == b"0\n0\n"


async def test_what_was_truncated_and_written_again_is_dirty() -> None:
    """Even if the checkpoint was not lowered before the power was lost, and all is flushed again."""
    bench = filled(Bench())
    await bench.clean()
    bench.log.truncate_to(10)
    end = bench.log.log_end_offset
    bench.put((b"a", b"first"), epoch=1)
    for _ in range(30):
        bench.put((b"b", b"other"), epoch=1)
    await bench.manager.flush()
    assert bench.log.recovery_point > 24
    bench.storage.lose_power()
    bench.start()
    assert bench.log.clean_offset <= end
    await bench.manager.checkpoint_recovery_points()
    assert bench.log.clean_offset <= end
    bench.storage.lose_power()
    bench.start()
    assert bench.log.clean_offset <= end


async def test_a_log_whose_files_were_removed_is_dirty_from_its_start() -> None:
    bench = filled(Bench())
    await bench.clean()
    await bench.stop()
    disk = simulated_disk(bench.storage)
    for name in disk.list_dir(FOLDER):
        if name.endswith((".log", ".index", ".timeindex", ".snapshot")):
            disk.remove(f"{FOLDER}/{name}")
    disk.remove("/data/.kafka_cleanshutdown")
    bench.start()
    assert bench.log.clean_offset == 0
    assert disk.read_bytes("/data/cleaner-offset-checkpoint") == b"0\n1\ntable 0 0\n"


async def test_segments_without_index_files_are_cleaned() -> None:
    """As a crash may leave them: their names were never durable, and nobody has looked anything up since."""
    bench = filled(Bench())
    await bench.clean()
    filled(bench)
    await bench.stop()
    disk = simulated_disk(bench.storage)
    for name in disk.list_dir(FOLDER):
        if name.endswith((".index", ".timeindex")):
            disk.remove(f"{FOLDER}/{name}")
    bench.start()
    before = len(bench.log.segment_base_offsets)
    assert await bench.clean() == 1
    assert len(bench.log.segment_base_offsets) < before
    assert bench.contents().table() == {b"a": b"%032d" % 23}


async def test_threads_clean_logs_side_by_side() -> None:
    bench = Bench(cleaner=dataclasses.replace(CLEANER, threads=2))
    other = get_or_create(bench.manager, TABLE._replace(partition=1), TOPIC_ID, COMPACTED)
    most = 0

    def count() -> None:
        nonlocal most
        most = max(most, len(bench.manager.cleaner._running))

    filled(bench)
    first, bench.log = bench.log, other
    filled(bench)
    bench.executor.between = count
    assert await bench.clean() == 2
    assert most == 2
    assert first.clean_offset == other.clean_offset == 24


async def test_want_of_memory_for_the_offset_map_ends_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = filled(Bench())
    await bench.manager.flush()

    def scarce(size_bytes: int) -> mmap:
        raise OSError(errno.ENOMEM, "no memory")

    with monkeypatch.context() as patch:
        patch.setattr(offset_map, "_fresh_memory", scarce)
        with pytest.raises(LogStorageError, match="no memory to clean /data/table-0"):
            await bench.clean()
    assert bench.log.storage.failure is None
    await bench.clean()
    assert bench.contents().table() == {b"a": b"%032d" % 23}
