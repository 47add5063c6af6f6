"""The window of committed metadata: what followers get, and who gets the whole image."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from quorum import metadata_log
from quorum.metadata.image import EMPTY, MetadataImage, TopicImage
from quorum.metadata_log import ANY_EPOCH, MetadataLog
from quorum.rpc.messages import MetadataEntry
from quorum.steps import ROWS_PER_STEP


def entries(*offsets: int, epoch: int = 1, size: int = 10) -> list[MetadataEntry]:
    return [MetadataEntry(offset, epoch, bytes(size)) for offset in offsets]


def image_at(offset: int, epoch: int = 1) -> MetadataImage:
    return EMPTY.at(offset, epoch)


@pytest.fixture
def log() -> MetadataLog:
    made = MetadataLog()
    made.append(entries(0, 1, 2), image_at(2))
    made.append(entries(3, 4, epoch=2), image_at(4, 2))
    return made


async def read(log: MetadataLog, offset: int, epoch: int, max_bytes: int = 1 << 20) -> list[int] | str:
    answer = await log.read(offset, epoch, max_bytes, leader_id=1)
    assert answer.committed_offset == log.image.offset
    assert answer.leader_id == 1
    if answer.snapshot is not None:
        assert answer.entries == ()
        return "image"
    return [entry.offset for entry in answer.entries]


async def test_what_follows_an_offset(log: MetadataLog) -> None:
    assert await read(log, -1, EMPTY.epoch) == [0, 1, 2, 3, 4]
    assert await read(log, 1, 1) == [2, 3, 4]
    assert await read(log, 3, 2) == [4]
    assert await read(log, 4, 2) == []
    assert await read(log, 99, 2) == []


async def test_bounded_in_bytes_but_never_empty(log: MetadataLog) -> None:
    assert await read(log, -1, EMPTY.epoch, max_bytes=0) == [0]
    assert await read(log, -1, EMPTY.epoch, max_bytes=100) == [0, 1]


async def test_another_history_gets_the_image(log: MetadataLog) -> None:
    assert await read(log, 1, 7) == "image"
    assert await read(log, 3, 1) == "image"
    assert await read(log, -1, 7) == "image"


async def test_who_is_too_far_behind_gets_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "KEEP_BYTES", 3 * (10 + metadata_log.ENTRY_OVERHEAD_BYTES))
    log = MetadataLog()
    log.append(entries(0, 1, epoch=1), image_at(1))
    log.append(entries(2, 3, 4, epoch=2), image_at(4, 2))
    assert await read(log, 0, 1) == "image"
    assert await read(log, 1, 1) == [2, 3, 4]
    assert await read(log, 1, 9) == "image"  # the epoch before the window is known too


async def test_an_entry_larger_than_the_window_leaves_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "KEEP_BYTES", 50)
    log = MetadataLog()
    log.append(entries(0, size=100), image_at(0))
    assert await read(log, -1, EMPTY.epoch) == "image"
    assert await read(log, 0, 1) == []


async def test_a_snapshot_begins_the_window_anew(log: MetadataLog) -> None:
    log.append([], image_at(50, 4))
    assert await read(log, 4, 2) == "image"
    log.append(entries(51, epoch=5), image_at(51, 5))
    assert await read(log, 50, 4) == [51]
    assert await read(log, 50, 3) == "image"
    assert await read(log, 4, 2) == "image"


async def test_entries_after_a_hole_begin_the_window_anew(log: MetadataLog) -> None:
    log.append(entries(9, epoch=3), image_at(9, 3))
    assert await read(log, 4, 2) == "image"
    assert await read(log, 8, 3) == "image"  # nobody knows what was there


async def test_the_image_is_encoded_once_until_the_next_commit(log: MetadataLog) -> None:
    """Who asks when a change is acknowledged sees it."""
    first = (await log.read(0, 9, 1, leader_id=None)).snapshot
    assert (await log.read(0, 9, 1, leader_id=None)).snapshot is first
    log.append(entries(5, epoch=2), image_at(5, 2))
    again = await log.read(0, 9, 1, leader_id=None)
    assert MetadataImage.decode(again.snapshot or b"").offset == again.committed_offset == 5
    assert await read(log, 4, 2) == [5]
    newer = (await log.read(4, 9, 1, leader_id=None)).snapshot
    assert MetadataImage.decode(newer or b"").offset == 5, "never one that the asker has"


async def test_an_image_that_the_log_goes_on_from_no_more_is_encoded_anew(log: MetadataLog) -> None:
    await read(log, 0, 9)
    log.append([], image_at(50, 4))
    answer = await log.read(0, 9, 1, leader_id=None)
    assert MetadataImage.decode(answer.snapshot or b"").offset == 50


def large(offset: int, topics: int) -> MetadataImage:
    made = {
        number.to_bytes(16, "big"): TopicImage(number.to_bytes(16, "big"), f"topic-{number}", ())
        for number in range(1, topics + 1)
    }
    return replace(
        image_at(offset), topics=made, topic_ids={topic.name: topic.topic_id for topic in made.values()}
    )


async def test_a_large_image_is_encoded_between_other_work_and_once() -> None:
    log = MetadataLog()
    log.append([], large(50, 4 * ROWS_PER_STEP))
    readers = [asyncio.create_task(log.read(0, 9, 1, leader_id=None)) for _ in range(2)]
    turns = 0
    while not all(reader.done() for reader in readers):
        await asyncio.sleep(0)
        turns += 1
    first, second = (reader.result().snapshot for reader in readers)
    assert turns > 4
    assert first is second
    assert MetadataImage.decode(first or b"") == log.image


async def test_an_image_that_becomes_pointless_while_it_is_encoded_is_given_up_for_the_newer() -> None:
    log = MetadataLog()
    log.append([], large(50, 4 * ROWS_PER_STEP))
    reader = asyncio.create_task(log.read(0, 9, 1, leader_id=None))
    for _ in range(3):
        await asyncio.sleep(0)
    log.append([], image_at(70))
    assert MetadataImage.decode((await reader).snapshot or b"").offset == 70


async def test_an_image_for_which_nobody_waits_any_more_is_given_up() -> None:
    log = MetadataLog()
    log.append([], large(50, 20 * ROWS_PER_STEP))
    reader = asyncio.create_task(log.read(0, 9, 1, leader_id=None))
    for _ in range(3):
        await asyncio.sleep(0)
    reader.cancel()
    for _ in range(4):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    answer = await log.read(0, 9, 1, leader_id=None)
    assert MetadataImage.decode(answer.snapshot or b"") == log.image


async def test_everybody_who_waits_is_woken(log: MetadataLog) -> None:
    waiting = [asyncio.ensure_future(log.changed()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    log.append(entries(5, epoch=2), image_at(5, 2))
    await asyncio.gather(*waiting[1:])
    again = asyncio.ensure_future(log.changed())
    await asyncio.sleep(0)
    assert not again.done()
    log.wake()
    await again


async def test_who_reads_single_entries_gets_them_from_where_the_log_begins(log: MetadataLog) -> None:
    assert await read(log, 1, ANY_EPOCH) == [2, 3, 4]
    assert await read(log, -1, ANY_EPOCH) == [0, 1, 2, 3, 4]
    assert await read(log, 4, ANY_EPOCH) == []
    new = MetadataLog()
    new.append(entries(2, 3), image_at(3))  # as a fresh quorum's: no entry of a controller comes before
    assert await read(new, 0, ANY_EPOCH) == [2, 3]
    assert await read(new, 0, 1) == "image"
    assert await read(new, -1, ANY_EPOCH, max_bytes=0) == [2]
    new.append([], image_at(9))
    assert await read(new, 0, ANY_EPOCH) == []
