"""Responses with file slices over real sockets: order, slow readers, resets, files that shrink."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kraft.network.connection import Connection
from kraft.network.limits import NetworkLimits
from kraft.network.response import JOIN_BYTES, Answer, Response
from kraft.network.sender import SenderFactory, TransportSender, telling_of_files, transport_sender
from kraft.runtime import sendfile
from kraft.runtime.disk import RealDisk
from kraft.runtime.sendfile import SENDFILE_MIN_BYTES, read_pieces, real_sender

if TYPE_CHECKING:
    from partitions.disk import File
    from tests.unit.network.conftest import Dial, Listen, Until

MIB = 1024 * 1024
LIMITS = NetworkLimits(max_request_bytes=1000, min_request_bytes=1)


def piecewise(transport: asyncio.Transport, on_sent: Any, on_failed: Any) -> TransportSender:
    return TransportSender(transport, on_sent, on_failed, reader=read_pieces)


SENDERS: list[Any] = [
    pytest.param(real_sender, id="sendfile"),
    pytest.param(transport_sender, id="whole"),
    pytest.param(piecewise, id="pieces"),
]


@pytest.fixture(scope="module")
def content() -> bytes:
    return random.Random(7).randbytes(12 * MIB)


@pytest.fixture
def file(tmp_path: Path, content: bytes) -> File:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(content)
    return RealDisk().open(str(path))


def serving(file: File, ranges: list[tuple[int, int]]) -> Callable[[memoryview, Connection], Answer]:
    """Request byte n is answered with slice n between two markers."""

    def handler(frame: memoryview, connection: Connection) -> Answer:
        start, length = ranges[frame[0]]
        return Response.of(b"<%d:" % frame[0], file.slice(start, length), b">")

    return handler


def expected(content: bytes, ranges: list[tuple[int, int]], index: int) -> bytes:
    start, length = ranges[index]
    return b"<%d:" % index + content[start : start + length] + b">"


@pytest.mark.parametrize("factory", SENDERS)
async def test_slices_of_every_size_arrive_in_order(
    listen: Listen, dial: Dial, file: File, content: bytes, factory: SenderFactory
) -> None:
    sizes = [0, 1, 4096, SENDFILE_MIN_BYTES - 1, SENDFILE_MIN_BYTES, MIB + 17, 5 * MIB, 10, 11 * MIB]
    ranges = [(index * 1000, size) for index, size in enumerate(sizes)]
    peer = await dial(await listen(serving(file, ranges), limits=LIMITS, sender_factory=factory))
    peer.send(*[bytes([index]) for index in range(len(ranges))])
    for index in range(len(ranges)):
        assert await peer.frame() == expected(content, ranges, index)


async def test_small_segments_and_slices_leave_in_one_write(file: File, content: bytes) -> None:
    written: list[bytes] = []

    class Recorder(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            written.append(bytes(data))

    sender = transport_sender(Recorder(), lambda: None, lambda error: None)
    large = JOIN_BYTES + 1
    assert sender.send([b"<", file.slice(0, 100), b">", file.slice(100, large), b"<", file.slice(7, 0), b">"])
    assert written == [b"<" + content[:100] + b">", content[100 : 100 + large], b"<>"]
    assert sender.sent_bytes == sum(map(len, written))


async def test_a_pause_between_two_writes_loses_nothing(file: File, content: bytes) -> None:
    written: list[bytes] = []
    sent: list[bool] = []

    class Pausing(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            written.append(bytes(data))
            sender.pause_writing()

    sender = transport_sender(Pausing(), lambda: sent.append(True), lambda error: None)
    assert not sender.send([file.slice(0, JOIN_BYTES), file.slice(JOIN_BYTES, 10), file.slice(0, 3)])
    assert written == [content[:JOIN_BYTES]]
    assert not sent
    sender.resume_writing()
    assert written[1:] == [content[JOIN_BYTES : JOIN_BYTES + 10] + content[:3]]
    assert sent


@pytest.mark.parametrize("factory", SENDERS)
async def test_one_response_of_many_slices_and_buffers(
    listen: Listen, dial: Dial, file: File, content: bytes, factory: SenderFactory
) -> None:
    pieces = [(index * 90_000, (index * 37_123) % 150_000) for index in range(60)]

    def handler(frame: memoryview, connection: Connection) -> Answer:
        segments: list[Any] = []
        for index, (start, length) in enumerate(pieces):
            segments += [b"[%d]" % index, file.slice(start, length), memoryview(b"x" * (index * 1000))]
        return Response.of(*segments)

    peer = await dial(await listen(handler, limits=LIMITS, sender_factory=factory))
    peer.send(b"a", b"b")
    whole = b"".join(
        b"[%d]" % index + content[start : start + length] + b"x" * (index * 1000)
        for index, (start, length) in enumerate(pieces)
    )
    assert await peer.frame() == whole
    assert await peer.frame() == whole


@pytest.mark.parametrize("factory", SENDERS)
async def test_buffers_and_slices_alternate_for_a_slow_reader(
    listen: Listen, dial: Dial, file: File, content: bytes, factory: SenderFactory
) -> None:
    """The transport's own buffer is full when a slice is due, and the other way round."""
    ranges = [(0, 6 * MIB), (MIB, 6 * MIB)]

    def handler(frame: memoryview, connection: Connection) -> Answer:
        if frame[0] % 2:
            return Response.of(bytes([frame[0]]) * (6 * MIB))
        return serving(file, ranges)(frame[:1] if frame[0] < 2 else memoryview(b"\1"), connection)

    peer = await dial(await listen(handler, limits=LIMITS, sender_factory=factory))
    peer.send(*[bytes([index]) for index in range(6)])
    for index in range(6):
        body = await peer.frame()
        if index % 2:
            assert body == bytes([index]) * (6 * MIB)
        else:
            assert body == expected(content, ranges, 0 if index == 0 else 1)


@pytest.mark.parametrize("factory", SENDERS)
async def test_answers_behind_a_long_send_wait_for_it(
    listen: Listen, dial: Dial, file: File, content: bytes, factory: SenderFactory, until: Until
) -> None:
    later: list[asyncio.Future[Response | None]] = []

    def handler(frame: memoryview, connection: Connection) -> Answer:
        if bytes(frame) == b"slice":
            return Response.of(file.slice(0, 11 * MIB))
        later.append(asyncio.get_running_loop().create_future())
        return later[-1]

    peer = await dial(await listen(handler, limits=LIMITS, sender_factory=factory))
    peer.send(b"first", b"slice", b"last")
    await until(lambda: len(later) == 2)
    later[1].set_result(Response.of(b"the last"))
    later[0].set_result(Response.of(b"the first"))
    assert await peer.frame() == b"the first"
    assert await peer.frame() == content[: 11 * MIB]
    assert await peer.frame() == b"the last"


@pytest.mark.parametrize("factory", SENDERS)
async def test_a_reset_in_the_middle_of_a_slice_harms_nobody_else(
    listen: Listen, dial: Dial, file: File, content: bytes, factory: SenderFactory, until: Until
) -> None:
    ranges = [(0, 12 * MIB)]
    server = await listen(serving(file, ranges), limits=LIMITS, sender_factory=factory)
    descriptors: list[int] = []
    for _ in range(2):
        leaver, stayer = await dial(server), await dial(server)
        leaver.send(b"\0", b"\0")
        assert (await leaver.reader.readexactly(100_000))[4:7] == b"<0:"
        leaver.reset()
        stayer.send(b"\0")
        assert await stayer.frame() == expected(content, ranges, 0)
        await until(lambda: server.connection_count == 1)
        await stayer.close()
        await until(lambda: server.connection_count == 0)
        descriptors.append(len(os.listdir("/proc/self/fd")))
    assert descriptors[1] <= descriptors[0], "a connection that was reset leaves no descriptor behind"


@pytest.mark.parametrize("asked", [b"short", b"few"])
@pytest.mark.parametrize("factory", SENDERS)
async def test_a_file_that_became_shorter_ends_the_connection_not_the_node(
    listen: Listen,
    dial: Dial,
    file: File,
    until: Until,
    factory: SenderFactory,
    asked: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whose file it is, is told: else readers would meet the same again and again."""

    def handler(frame: memoryview, connection: Connection) -> Answer:
        if bytes(frame) == b"fine":
            return Response.of(b"fine")
        length = 2 * MIB if bytes(frame) == b"short" else SENDFILE_MIN_BYTES - 1
        piece = file.slice(1 * MIB - 1, length)
        os.truncate(file.path, 1 * MIB)
        return Response.of(b"head", piece)

    told: list[str] = []
    telling = telling_of_files(factory, told.append)
    server = await listen(handler, limits=LIMITS, sender_factory=telling)
    victim, other = await dial(server), await dial(server)
    victim.send(asked)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await victim.frame()
    await until(lambda: told == [file.path])
    other.send(b"fine")
    assert await other.frame() == b"fine"
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "sending to 127.0.0.1:" in record.getMessage()
    assert "the file end" in record.getMessage()


@pytest.mark.parametrize("factory", SENDERS)
async def test_a_disk_that_refuses_a_slice_is_told_and_a_peer_that_leaves_is_not(
    listen: Listen,
    dial: Dial,
    file: File,
    until: Until,
    factory: SenderFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    telling = telling_of_files(factory, told.append)
    server = await listen(serving(file, [(0, 12 * MIB)]), limits=LIMITS, sender_factory=telling)
    leaver = await dial(server)
    leaver.send(b"\0", b"\0")
    await leaver.reader.readexactly(100_000)
    leaver.reset()
    await until(lambda: server.connection_count == 0)
    assert told == []

    def refuse(*args: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sendfile.os, "sendfile", refuse)
    monkeypatch.setattr(os, "pread", refuse)
    stayer = await dial(server)
    stayer.send(b"\0")
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await stayer.frame()
    await until(lambda: told == [file.path])


async def test_what_the_socket_refuses_is_not_the_files_fault(
    listen: Listen, dial: Dial, file: File, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> int:
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    monkeypatch.setattr(sendfile.os, "sendfile", refuse)
    told: list[str] = []
    telling = telling_of_files(real_sender, told.append)
    server = await listen(serving(file, [(0, MIB)]), limits=LIMITS, sender_factory=telling)
    peer = await dial(server)
    peer.send(b"\0")
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await peer.frame()
    await until(lambda: server.connection_count == 0)
    assert told == []


async def test_where_sendfile_is_refused_the_slice_is_read(
    listen: Listen, dial: Dial, file: File, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(sendfile.os, "sendfile", refuse)
    ranges = [(5, 3 * MIB)]
    peer = await dial(await listen(serving(file, ranges), limits=LIMITS))
    peer.send(b"\0", b"\0")
    assert await peer.frame() == expected(content, ranges, 0)
    assert await peer.frame() == expected(content, ranges, 0)


async def test_a_reader_that_stops_reading_a_slice_is_idle_in_the_end(
    listen: Listen, dial: Dial, file: File, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    limits = NetworkLimits(max_request_bytes=1000, min_request_bytes=1, connections_max_idle_ms=100)
    server = await listen(serving(file, [(0, 12 * MIB)]), limits=limits)
    raw = socket.create_connection(("127.0.0.1", server.port))
    with raw:
        raw.sendall(b"\0\0\0\1\0")
        await until(lambda: server.accepted_count == 1)
        await until(lambda: server.connection_count == 0)
    assert "idle for" in caplog.text
