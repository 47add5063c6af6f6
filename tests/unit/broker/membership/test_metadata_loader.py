"""Following the metadata: in order, each step once, nothing published before the broker has caught up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from kraft.broker.membership.metadata_loader import RECORDS_PER_STEP, MetadataLoader
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.record_codec import encode_record, join_encoded
from quorum.metadata.records import Listener, Record, RegisterBroker, Topic
from quorum.rpc.envelope import RpcUnavailable
from quorum.rpc.messages import FetchMetadataRequest, FetchMetadataResponse, MetadataEntry
from quorum.steps import ROWS_PER_STEP, Steps
from tests.support.fake_controller import FakeController

LISTENER = Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT")


def broker(broker_id: int) -> RegisterBroker:
    return RegisterBroker(broker_id, bytes([broker_id]) * 16, (LISTENER,), None, (bytes(16),))


def topic(number: int) -> Topic:
    return Topic(f"t{number}", number.to_bytes(16, "big"))


def entry(offset: int, *records: Record, epoch: int = 1) -> MetadataEntry:
    return MetadataEntry(offset, epoch, join_encoded([encode_record(r) for r in records]) if records else b"")


def image_of(*entries: tuple[int, Record]) -> MetadataImage:
    image = EMPTY
    for offset, record in entries:
        delta = MetadataDelta(image)
        delta.apply(record, offset, 1)
        image = delta.finish(offset, 1)
    return image


class Publisher:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, tuple[int, ...], list[bytes]]] = []
        self.fails = False

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> None:
        if self.fails:
            raise RuntimeError("a defect")
        self.told.append((image.offset, tuple(changes.changed_brokers), list(changes.created_topics)))


class World:
    def __init__(self) -> None:
        self.controller = FakeController()
        self.halts: list[str] = []
        self.halted = asyncio.Event()
        self.publisher = Publisher()
        self.loader = MetadataLoader(1, self.controller, random.Random(1), self.halt)  # type: ignore[arg-type]
        self.loader.add_publisher(self.publisher)

    def halt(self, reason: str) -> None:
        self.halts.append(reason)
        self.halted.set()

    def answer(self, *answers: object) -> None:
        self.controller.answer(FetchMetadataRequest, *answers)

    async def until(self, offset: int) -> None:
        async with asyncio.timeout(60):
            await self.loader.wait_until(lambda image: image.offset >= offset)

    async def asked(self, times: int) -> FetchMetadataRequest:
        await self.controller.until_called(FetchMetadataRequest, times)
        request: FetchMetadataRequest = self.controller.calls[times - 1]
        return request


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.loader.close()


async def test_steps_are_published_in_order_and_once(world: World) -> None:
    world.answer(
        FetchMetadataResponse(1, (entry(0), entry(1, broker(1)))),
        FetchMetadataResponse(2, (entry(1, broker(1)), entry(2, broker(2)))),  # the first is known
        FetchMetadataResponse(2),
    )
    world.loader.start()
    await world.asked(4)
    assert world.publisher.told == [(1, (1,), []), (2, (2,), [])]
    assert [request.offset for request in world.controller.calls] == [EMPTY.offset, 1, 2, 2]


async def test_the_history_that_was_missed_is_published_as_one_step(world: World) -> None:
    """Half a history has topics that are not there yet: whoever compared with it would delete their logs."""
    world.answer(
        FetchMetadataResponse(3, (entry(0), entry(1, broker(1)))),
        FetchMetadataResponse(3, (entry(2, topic(1)),)),
        FetchMetadataResponse(3, (entry(3, broker(2)),)),
        FetchMetadataResponse(4, (entry(4, topic(2)),)),
    )
    world.loader.start()
    await world.until(4)
    assert world.publisher.told == [
        (3, (1, 2), [topic(1).topic_id]),
        (4, (), [topic(2).topic_id]),
    ]


async def test_nothing_is_published_before_the_registration_is_known(world: World) -> None:
    """A controller that was deposed without knowing it answers too, with less than this broker registered by."""
    world.answer(
        FetchMetadataResponse(1, (entry(0), entry(1, broker(1)))),
        FetchMetadataResponse(1),
        FetchMetadataResponse(2, (entry(2, topic(1)),)),
    )
    world.loader.start(2)
    await world.until(2)
    assert world.publisher.told == [(2, (1,), [topic(1).topic_id])]


async def test_a_snapshot_is_published_as_what_differs(world: World) -> None:
    known = image_of((0, broker(1)), (1, topic(1)))
    newer = image_of((0, broker(1)), (1, topic(1)), (7, topic(2)))
    world.answer(
        FetchMetadataResponse(1, snapshot=known.encode()),
        FetchMetadataResponse(7, snapshot=newer.encode()),
        FetchMetadataResponse(7, snapshot=known.encode()),  # late: nothing goes back
    )
    world.loader.start()
    await world.asked(4)
    assert [told[0] for told in world.publisher.told] == [1, 7]
    assert world.publisher.told[1][2] == [topic(2).topic_id]
    assert world.loader.image.offset == 7


async def test_a_quorum_that_is_silent_is_asked_again(world: World) -> None:
    world.answer(RpcUnavailable("nobody"), FetchMetadataResponse(0, (entry(0, broker(1)),)))
    world.loader.start()
    await world.until(0)
    assert world.loader.last_contact_s > 0


async def test_a_gap_halts_the_node(world: World) -> None:
    world.answer(FetchMetadataResponse(5, (entry(0), entry(2))))
    world.loader.start()
    await world.halted.wait()
    assert "jumps from offset 0 to 2" in world.halts[0]


async def test_a_publisher_that_fails_halts_the_node(world: World) -> None:
    world.publisher.fails = True
    world.answer(FetchMetadataResponse(0, (entry(0, broker(1)),)))
    world.loader.start()
    await world.halted.wait()
    assert "a defect" in world.halts[0]


async def test_a_defect_in_the_call_halts_the_node(world: World) -> None:
    """A loader that died unnoticed would leave a broker that serves yesterday's metadata."""
    world.answer(KeyError("oops"))
    world.loader.start()
    await world.halted.wait()
    assert "metadata-loader" in world.halts[0]


async def test_closing_is_no_defect(world: World) -> None:
    world.loader.start()
    await world.asked(1)
    await world.loader.close()
    assert world.halts == []


async def test_a_large_image_is_decoded_between_other_work_and_published_once(world: World) -> None:
    topics = ((number, topic(number)) for number in range(1, 5 * ROWS_PER_STEP))
    delta = MetadataDelta(EMPTY)
    for number, record in topics:
        delta.apply(record, number, 1)
    image = delta.finish(70, 1)
    world.answer(FetchMetadataResponse(70, snapshot=image.encode()))
    world.loader.start()
    await world.asked(1)
    turns = 0
    while not world.publisher.told:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 4
    assert world.loader.image == image
    assert [offset for offset, _, _ in world.publisher.told] == [70]


async def test_a_large_batch_is_taken_in_between_other_work_and_published_once(world: World) -> None:
    topics = [topic(number) for number in range(1, 5 * RECORDS_PER_STEP)]
    world.answer(
        FetchMetadataResponse(0, (entry(0, broker(1)),)), FetchMetadataResponse(1, (entry(1, *topics),))
    )
    world.loader.start()
    await world.until(0)
    turns = 0
    while len(world.publisher.told) < 2:
        assert len(world.loader.image.topics) == 0
        await asyncio.sleep(0)
        turns += 1
    assert turns > 4
    assert world.publisher.told[1] == (1, (), [one.topic_id for one in topics])


async def test_what_publishers_leave_to_do_is_done_between_other_work(world: World) -> None:
    """All of them have the image first; the broker has followed so far, and goes on, when nothing is left."""
    done: list[str] = []
    rest = asyncio.Event()

    class Busy:
        def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> Steps[None]:
            done.append("image")
            return self._rest()

        def _rest(self) -> Steps[None]:
            assert len(world.publisher.told) == 1
            while not rest.is_set():
                yield
            done.append("rest")

    world.loader._publishers.insert(0, Busy())
    world.answer(FetchMetadataResponse(0, (entry(0, broker(1)),)))
    world.loader.start()
    await world.asked(1)
    for _ in range(50):
        await asyncio.sleep(0)
    assert (done, world.loader.image, len(world.controller.calls)) == (["image"], EMPTY, 1)
    rest.set()
    await world.until(0)
    assert done == ["image", "rest"]
