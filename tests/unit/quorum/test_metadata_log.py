"""The window of committed metadata: what followers get, and who gets the whole image."""

from __future__ import annotations

import asyncio

import pytest

from quorum import metadata_log
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata_log import MetadataLog
from quorum.rpc.messages import MetadataEntry


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


def read(log: MetadataLog, offset: int, epoch: int, max_bytes: int = 1 << 20) -> list[int] | str:
    answer = log.read(offset, epoch, max_bytes, leader_id=1)
    assert answer.committed_offset == log.image.offset
    assert answer.leader_id == 1
    if answer.snapshot is not None:
        assert answer.entries == ()
        return "image"
    return [entry.offset for entry in answer.entries]


def test_what_follows_an_offset(log: MetadataLog) -> None:
    assert read(log, -1, EMPTY.epoch) == [0, 1, 2, 3, 4]
    assert read(log, 1, 1) == [2, 3, 4]
    assert read(log, 3, 2) == [4]
    assert read(log, 4, 2) == []
    assert read(log, 99, 2) == []


def test_bounded_in_bytes_but_never_empty(log: MetadataLog) -> None:
    assert read(log, -1, EMPTY.epoch, max_bytes=0) == [0]
    assert read(log, -1, EMPTY.epoch, max_bytes=100) == [0, 1]


def test_another_history_gets_the_image(log: MetadataLog) -> None:
    assert read(log, 1, 7) == "image"
    assert read(log, 3, 1) == "image"
    assert read(log, -1, 7) == "image"


def test_who_is_too_far_behind_gets_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "KEEP_BYTES", 3 * (10 + metadata_log.ENTRY_OVERHEAD_BYTES))
    log = MetadataLog()
    log.append(entries(0, 1, epoch=1), image_at(1))
    log.append(entries(2, 3, 4, epoch=2), image_at(4, 2))
    assert read(log, 0, 1) == "image"
    assert read(log, 1, 1) == [2, 3, 4]
    assert read(log, 1, 9) == "image"  # the epoch before the window is known too


def test_an_entry_larger_than_the_window_leaves_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "KEEP_BYTES", 50)
    log = MetadataLog()
    log.append(entries(0, size=100), image_at(0))
    assert read(log, -1, EMPTY.epoch) == "image"
    assert read(log, 0, 1) == []


def test_a_snapshot_begins_the_window_anew(log: MetadataLog) -> None:
    log.append([], image_at(50, 4))
    assert read(log, 4, 2) == "image"
    log.append(entries(51, epoch=5), image_at(51, 5))
    assert read(log, 50, 4) == [51]
    assert read(log, 50, 3) == "image"
    assert read(log, 4, 2) == "image"


def test_entries_after_a_hole_begin_the_window_anew(log: MetadataLog) -> None:
    log.append(entries(9, epoch=3), image_at(9, 3))
    assert read(log, 4, 2) == "image"
    assert read(log, 8, 3) == "image"  # nobody knows what was there


def test_the_image_is_encoded_once_for_each_offset(log: MetadataLog) -> None:
    first, second = (log.read(0, 9, 1, leader_id=None).snapshot for _ in range(2))
    assert first is second
    log.append(entries(5, epoch=2), image_at(5, 2))
    assert MetadataImage.decode(log.read(0, 9, 1, leader_id=None).snapshot or b"").offset == 5


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
