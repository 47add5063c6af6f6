"""`kraft metadata dump` from controllers that have only the newest entries apart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraft.cli.metadata import sources
from kraft.cli.metadata.sources import ControllerSource, OffsetRange
from kraft.cli.quorum.controllers import Controllers
from kraft.user_error import EXIT_UNDECIDED, UserError
from quorum.metadata.image import EMPTY
from quorum.metadata.record_codec import encode_records
from quorum.metadata.records import FeatureLevel
from quorum.metadata_log import MetadataLog
from quorum.rpc.messages import FetchMetadataRequest, FetchMetadataResponse, MetadataEntry


class Calls:
    """The active controller's side of the calls."""

    def __init__(self, log: MetadataLog) -> None:
        self._log = log

    async def call(self, request: FetchMetadataRequest) -> FetchMetadataResponse:
        return await self._log.read(request.offset, request.epoch, max_bytes=1, leader_id=1)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> MetadataLog:
    """A fresh quorum's, whose first entry is at offset 2."""
    log = MetadataLog()

    def run(_: Controllers, work: Any, *, unanswered: int) -> Any:
        assert unanswered == EXIT_UNDECIDED
        return asyncio.run(work(Calls(log)))

    monkeypatch.setattr(sources, "run_with_controllers", run)
    commit(log, 2, 6)
    return log


def commit(log: MetadataLog, first: int, last: int) -> None:
    for offset in range(first, last + 1):
        records = encode_records([FeatureLevel("f", offset)])
        image = EMPTY.at(offset, offset // 2)
        log.append([MetadataEntry(offset, offset // 2, records)], image)


def dump(first: int | None, last: int | None) -> tuple[list[int], list[str]]:
    source = ControllerSource(Controllers({1: "localhost:1"}, b"s", None, ""))
    offsets = [entry.offset for entry in source.entries(OffsetRange(first, last))]
    return offsets, source.notes


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("first", "last", "offsets"),
    [
        (None, 4, [2, 3, 4]),
        (0, None, [2, 3, 4, 5, 6]),
        (1, 3, [2, 3]),
        (2, 2, [2]),
        (5, 99, [5, 6]),
        (None, 1, []),
        (7, None, []),
    ],
)
def test_a_range_begins_where_the_log_begins(first: int | None, last: int | None, offsets: list[int]) -> None:
    assert dump(first, last) == (offsets, [])


def test_what_is_only_in_the_image_is_noted(log: MetadataLog) -> None:
    log.append([], EMPTY.at(20, 10))  # the leader's snapshot took its place
    commit(log, 21, 23)
    offsets, (note,) = dump(3, None)
    assert offsets == [21, 22, 23]
    assert note.startswith("what lies before offset 21 is in the controller's image only")
    with pytest.raises(UserError, match="holds offset 3 only as part of its image at offset 23"):
        dump(3, 9)


def test_nothing_apart_from_the_image(log: MetadataLog) -> None:
    log.append([], EMPTY.at(20, 10))
    with pytest.raises(UserError, match="holds offset 3 only as part of its image at offset 20"):
        dump(3, None)
