"""A connection over real loopback sockets: order, back-pressure, malformed input, closing."""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
from typing import TYPE_CHECKING

import pytest

from kraft.network.connection import CloseConnectionError, Connection
from kraft.network.limits import NetworkLimits
from kraft.network.response import Answer, Deferred, Response

if TYPE_CHECKING:
    from tests.unit.network.conftest import Dial, Listen, Until

SMALL = NetworkLimits(max_request_bytes=1000, min_request_bytes=1)
MORE_THAN_IS_BUFFERED = 32 * 1024 * 1024
"""Bytes of an answer that neither the sockets nor the transport take at once."""


def echo(frame: memoryview, connection: Connection) -> Answer:
    return Response.of(bytes(frame))


class Controlled:
    """A handler whose answers the test gives.

    `s…` at once, `n…` never, `f…` a future, `c…` a coroutine, `d…` a deferred answer.
    """

    def __init__(self) -> None:
        self.futures: dict[str, asyncio.Future[Response | None]] = {}
        self.order: list[str] = []
        self.arrived = asyncio.Condition()

    def __call__(self, frame: memoryview, connection: Connection) -> Answer:
        name = bytes(frame).decode()
        self.order.append(name)
        if name.startswith("s"):
            return Response.of(name.encode())
        if name.startswith("n"):
            return None
        future: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
        self.futures[name] = future
        if name.startswith("d"):
            return Deferred(future, self._finish)
        return future if name.startswith("f") else self._coroutine(future)

    def _finish(self, answer: Response | None) -> Response | None:
        return answer

    async def _coroutine(self, future: asyncio.Future[Response | None]) -> Response | None:
        return await future

    def answer(self, name: str) -> None:
        self.futures[name].set_result(Response.of(name.encode()))


async def test_echo(listen: Listen, dial: Dial) -> None:
    peer = await dial(await listen(echo, limits=SMALL))
    peer.send(b"hello")
    assert await peer.frame() == b"hello"


async def test_frames_of_every_size_come_back_whole(listen: Listen, dial: Dial) -> None:
    peer = await dial(await listen(echo))
    bodies = [bytes([size % 251]) * size for size in (8, 4096, 65_536, 300_000, 1_000_000, 9, 3_000_000)]

    async def send() -> None:
        for body in bodies:
            peer.send(body)
            await peer.writer.drain()

    sending = asyncio.create_task(send())
    for body in bodies:
        assert await peer.frame() == body
    await sending


async def test_answers_keep_the_order_of_requests_however_they_are_made(
    listen: Listen, dial: Dial, until: Until
) -> None:
    handler = Controlled()
    peer = await dial(await listen(handler, limits=SMALL))
    names = ["s0", "f1", "s2", "c3", "n4", "s5", "d6", "s7"]
    peer.send(*[name.encode() for name in names])
    assert await peer.frame() == b"s0"
    await until(lambda: len(handler.order) == len(names))
    for name in ("d6", "c3", "f1"):  # answered in the reverse order
        handler.answer(name)
        await asyncio.sleep(0)
    assert [await peer.frame() for _ in range(6)] == [b"f1", b"s2", b"c3", b"s5", b"d6", b"s7"]


async def test_a_later_answer_of_none_is_no_answer(listen: Listen, dial: Dial, until: Until) -> None:
    handler = Controlled()
    peer = await dial(await listen(handler, limits=SMALL))
    peer.send(b"f1", b"s2")
    await until(lambda: "f1" in handler.futures)
    handler.futures["f1"].set_result(None)
    assert await peer.frame() == b"s2"


async def test_a_slow_request_holds_up_no_other_connection(listen: Listen, dial: Dial, until: Until) -> None:
    handler = Controlled()
    server = await listen(handler, limits=SMALL)
    slow, quick = await dial(server), await dial(server)
    slow.send(b"f1", b"s2")
    quick.send(b"s3")
    assert await quick.frame() == b"s3"
    await until(lambda: "f1" in handler.futures)
    handler.answer("f1")
    assert [await slow.frame(), await slow.frame()] == [b"f1", b"s2"]


async def test_unanswered_requests_are_bounded(listen: Listen, dial: Dial, until: Until) -> None:
    handler = Controlled()
    limits = NetworkLimits(max_request_bytes=1000, min_request_bytes=1, max_unanswered_requests=4)
    peer = await dial(await listen(handler, limits=limits))
    names = [f"f{index:03}" for index in range(40)]
    peer.send(*[name.encode() for name in names])
    for index, name in enumerate(names):
        await until(lambda name=name: name in handler.futures)
        assert len(handler.order) <= index + 4
        handler.answer(name)
        assert await peer.frame() == name.encode()


async def test_thousands_of_pipelined_requests(listen: Listen, dial: Dial) -> None:
    peer = await dial(await listen(echo, limits=SMALL))
    bodies = [b"%05d" % index for index in range(5000)]
    peer.send(*bodies)
    assert [await peer.frame() for _ in bodies] == bodies


async def test_a_reader_that_does_not_read_is_not_worked_for(
    listen: Listen, dial: Dial, until: Until
) -> None:
    handled = 0

    def large(frame: memoryview, connection: Connection) -> Answer:
        nonlocal handled
        handled += 1
        return Response.of(bytes([frame[0]]) * 1_000_000)

    server = await listen(large, limits=SMALL)
    peer = await dial(server)
    count = 100
    peer.send(*[bytes([index]) for index in range(count)])
    await until(lambda: server.connection_count == 1)
    (connection,) = server._connections.values()
    await until(lambda: connection._outbox.write_paused)  # the sockets' buffers are full
    assert handled < count
    for index in range(count):
        assert await peer.frame() == bytes([index]) * 1_000_000
    assert handled == count


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (struct.pack(">i", -1), "-1"),
        (struct.pack(">i", 0), "at least 1"),
        (struct.pack(">i", 1001), "at most 1000"),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"),
        (b"POST / HTTP/1.1\r\n\r\n", "http.listener"),
        (b"PRI * HTTP/2.0\r\n\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01", "a TLS handshake, but this port is PLAINTEXT"),
        (b"SSH-2.0-x\r\n", "at most 1000"),
    ],
)
async def test_malformed_frames_close_only_their_connection(
    listen: Listen, dial: Dial, caplog: pytest.LogCaptureFixture, data: bytes, says: str
) -> None:
    server = await listen(echo, limits=SMALL, name="PLAINTEXT")
    bad, good = await dial(server), await dial(server)
    bad.writer.write(data)
    assert await bad.at_end()
    good.send(b"still here")
    assert await good.frame() == b"still here"
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "PLAINTEXT: closing connection from 127.0.0.1:" in record.getMessage()
    assert says in record.getMessage()


async def test_requests_before_a_malformed_frame_are_answered(listen: Listen, dial: Dial) -> None:
    peer = await dial(await listen(echo, limits=SMALL))
    peer.writer.write(struct.pack(">i", 2) + b"ok" + struct.pack(">i", -7))
    assert await peer.frame() == b"ok"
    assert await peer.at_end()


async def test_frames_are_smaller_before_authentication(listen: Listen, dial: Dial) -> None:
    def handler(frame: memoryview, connection: Connection) -> Answer:
        if bytes(frame) == b"password":
            connection.mark_authenticated()
        return Response.of(b"%d" % len(frame))

    limits = NetworkLimits(max_unauthenticated_request_bytes=100, min_request_bytes=1)
    server = await listen(handler, limits=limits, authentication_required=True)
    stranger, friend = await dial(server), await dial(server)
    stranger.send(b"x" * 101)
    assert await stranger.at_end()
    friend.send(b"password")
    assert await friend.frame() == b"8"
    friend.send(b"x" * 101)
    assert await friend.frame() == b"101"


async def test_a_handler_may_close_its_connection(
    listen: Listen, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(frame: memoryview, connection: Connection) -> Answer:
        if bytes(frame) == b"bad":
            raise CloseConnectionError("it said a bad word")
        return echo(frame, connection)

    peer = await dial(await listen(handler, limits=SMALL))
    peer.send(b"good", b"bad", b"never")
    assert await peer.frame() == b"good"
    assert await peer.at_end()
    assert "it said a bad word" in caplog.text


async def test_what_a_client_says_forges_no_line_of_the_log(
    listen: Listen, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(frame: memoryview, connection: Connection) -> Answer:
        raise CloseConnectionError(f"it said {bytes(frame).decode()}")

    peer = await dial(await listen(refuse))
    peer.send(b"good\nWARNING the broker is lost\0" + b"x" * 100_000)
    assert await peer.at_end()
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert r"it said good\nWARNING the broker is lost\x00x" in record.getMessage()
    assert len(record.getMessage().splitlines()) == 1
    assert len(record.getMessage()) < 2_000


async def test_a_deferred_answer_is_made_when_its_turn_comes(
    listen: Listen, dial: Dial, until: Until
) -> None:
    ready: dict[str, asyncio.Future[str]] = {}
    made: list[str] = []

    def finish(value: str) -> Response:
        made.append(value)
        return Response.of(value.encode())

    def handler(frame: memoryview, connection: Connection) -> Answer:
        future = ready[bytes(frame).decode()] = asyncio.get_running_loop().create_future()
        return Deferred(future, finish)

    peer = await dial(await listen(handler, limits=SMALL))
    peer.send(b"first", b"second")
    await until(lambda: len(ready) == 2)
    ready["second"].set_result("2")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert made == []
    ready["first"].set_result("1")
    assert [await peer.frame(), await peer.frame()] == [b"1", b"2"]
    assert made == ["1", "2"]


async def test_a_deferred_answer_can_be_awaited() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    deferred = Deferred(future, str)
    asyncio.get_running_loop().call_soon(future.set_result, 5)
    assert await deferred == "5"


@pytest.mark.parametrize("later", ["at once", "in a coroutine", "deferred"])
async def test_a_bug_in_a_handler_is_logged_and_closes_one_connection(
    listen: Listen, dial: Dial, caplog: pytest.LogCaptureFixture, later: str
) -> None:
    def fail(_: None = None) -> Response:
        raise ZeroDivisionError("a bug")

    async def fail_later() -> Response:
        return fail()

    def handler(frame: memoryview, connection: Connection) -> Answer:
        if bytes(frame) != b"bug":
            return echo(frame, connection)
        if later == "in a coroutine":
            return fail_later()
        if later == "deferred":
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.set_result(None)
            return Deferred(future, fail)
        return fail()

    server = await listen(handler, limits=SMALL)
    unlucky, other = await dial(server), await dial(server)
    unlucky.send(b"bug")
    assert await unlucky.at_end()
    other.send(b"fine")
    assert await other.frame() == b"fine"
    assert "ZeroDivisionError: a bug" in caplog.text


async def test_a_half_closed_client_still_gets_its_answers(listen: Listen, dial: Dial, until: Until) -> None:
    handler = Controlled()
    peer = await dial(await listen(handler, limits=SMALL))
    peer.send(b"s0", b"f1", b"s2")
    peer.writer.write_eof()
    assert await peer.frame() == b"s0"
    await until(lambda: "f1" in handler.futures)
    handler.answer("f1")
    assert [await peer.frame(), await peer.frame()] == [b"f1", b"s2"]
    assert await peer.at_end()


async def test_half_close_in_the_middle_of_a_frame_closes(listen: Listen, dial: Dial, until: Until) -> None:
    server = await listen(echo, limits=SMALL)
    peer = await dial(server)
    peer.writer.write(struct.pack(">i", 100) + b"only this")
    peer.writer.write_eof()
    assert await peer.at_end()
    await until(lambda: server.connection_count == 0)


async def test_half_close_with_more_requests_than_may_be_unanswered(
    listen: Listen, dial: Dial, until: Until
) -> None:
    handler = Controlled()
    limits = NetworkLimits(max_request_bytes=1000, min_request_bytes=1, max_unanswered_requests=2)
    peer = await dial(await listen(handler, limits=limits))
    peer.send(b"f1", b"f2", b"f3", b"s4", b"s5")
    peer.writer.write_eof()
    for name in ("f1", "f2", "f3"):
        await until(lambda name=name: name in handler.futures)
        handler.answer(name)
    assert [await peer.frame() for _ in range(5)] == [b"f1", b"f2", b"f3", b"s4", b"s5"]
    assert await peer.at_end()


async def test_pending_work_is_cancelled_when_the_client_leaves(
    listen: Listen, dial: Dial, until: Until
) -> None:
    handler = Controlled()
    server = await listen(handler, limits=SMALL)
    peer = await dial(server)
    peer.send(b"f1", b"c2", b"d3")
    await until(lambda: len(handler.futures) == 3)
    peer.reset()
    await until(lambda: all(future.cancelled() for future in handler.futures.values()))
    assert server.connection_count == 0


async def test_an_answer_that_races_with_the_leaving_client_is_ignored(
    listen: Listen, dial: Dial, until: Until
) -> None:
    handler = Controlled()
    server = await listen(handler, limits=SMALL)
    peer = await dial(server)
    peer.send(b"f1")
    await until(lambda: "f1" in handler.futures)
    (connection,) = server._connections.values()
    connection.close("the test says so")
    handler.answer("f1")
    assert await peer.at_end()
    await until(lambda: server.connection_count == 0)


@pytest.mark.parametrize(
    ("error", "is_told"),
    [(CloseConnectionError("a produce without acknowledgement failed"), False), (ValueError("a bug"), True)],
)
async def test_a_handler_that_would_close_what_its_client_has_left_has_nothing_to_say(
    listen: Listen,
    dial: Dial,
    until: Until,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    is_told: bool,
) -> None:
    handler = Controlled()
    server = await listen(handler, limits=SMALL)
    peer = await dial(server)
    peer.send(b"f1")
    await until(lambda: "f1" in handler.futures)
    (connection,) = server._connections.values()
    handler.futures["f1"].set_exception(error)
    connection.close("the client has left")
    assert await peer.at_end()
    await until(lambda: server.connection_count == 0)
    assert handlers_that_failed(caplog) == is_told


@pytest.mark.parametrize("closing", ["an earlier answer", "the client", "the client does not read"])
@pytest.mark.parametrize("kind", ["f", "c", "d"])
@pytest.mark.parametrize(
    ("error", "is_told"),
    [(CloseConnectionError("a produce without acknowledgement failed"), False), (ValueError("a bug"), True)],
)
async def test_the_failure_of_an_answer_whose_turn_never_comes_is_not_left_to_the_loop(
    listen: Listen,
    dial: Dial,
    until: Until,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    is_told: bool,
    kind: str,
    closing: str,
) -> None:
    left_to_the_loop: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: left_to_the_loop.append(context["message"])
    )
    handler = Controlled()
    server = await listen(handler, limits=SMALL)
    peer = await dial(server)
    first, second = f"{kind}1", f"{kind}2"
    peer.send(first.encode(), second.encode())
    await until(lambda: len(handler.futures) == 2)
    if closing == "the client does not read":
        handler.futures[first].set_result(Response.of(bytes(MORE_THAN_IS_BUFFERED)))
        (connection,) = server._connections.values()
        await until(lambda: connection._outbox is not None and connection._outbox.blocked)
        del connection
    handler.futures[second].set_exception(error)
    await a_few_turns()
    if closing == "an earlier answer":
        handler.futures[first].set_exception(CloseConnectionError("it failed, too"))
        assert await peer.at_end()
    else:
        peer.reset()
    await until(lambda: server.connection_count == 0)
    await a_few_turns()
    handler.futures.clear()
    gc.collect()
    assert left_to_the_loop == []
    assert handlers_that_failed(caplog) == is_told


async def a_few_turns() -> None:
    """Enough for a task to end, and for what waits for that."""
    for _ in range(4):
        await asyncio.sleep(0)


def handlers_that_failed(caplog: pytest.LogCaptureFixture) -> int:
    """How many log lines say so."""
    return sum("a handler failed" in record.getMessage() for record in caplog.records)


class Muting:
    """Echoes, and mutes the connection after a frame that says for how long in ms."""

    def __init__(self) -> None:
        self.order: list[bytes] = []
        self.connection: Connection | None = None

    def __call__(self, frame: memoryview, connection: Connection) -> Answer:
        self.order.append(bytes(frame))
        self.connection = connection
        if self.order[-1].isdigit():
            connection.session.mute_until(asyncio.get_running_loop().time() + int(self.order[-1]) / 1000)
        return Response.of(bytes(frame))


async def test_a_muted_connection_is_answered_and_neither_read_nor_handled(
    listen: Listen, dial: Dial
) -> None:
    handler = Muting()
    peer = await dial(await listen(handler, limits=SMALL))
    peer.send(b"60000", b"behind", b"far behind")
    assert await peer.frame() == b"60000"
    peer.send(b"sent later")
    await asyncio.sleep(0.01)
    assert handler.order == [b"60000"]
    connection = handler.connection
    assert connection is not None
    assert connection._transport is not None
    assert not connection._transport.is_reading()


async def test_it_goes_on_in_order_when_its_time_is_over(listen: Listen, dial: Dial) -> None:
    handler = Muting()
    peer = await dial(await listen(handler, limits=SMALL))
    frames = [b"5", b"a", b"b", b"5", b"c"]
    peer.send(*frames)
    assert [await peer.frame() for _ in frames] == frames
    peer.send(b"d")
    assert await peer.frame() == b"d"
    assert handler.order == [*frames, b"d"]


async def test_what_a_peer_sent_before_it_ended_its_side_is_handled_after_the_mute(
    listen: Listen, dial: Dial
) -> None:
    peer = await dial(await listen(Muting(), limits=SMALL))
    peer.send(b"5", b"a")
    peer.writer.write_eof()
    assert [await peer.frame() for _ in range(2)] == [b"5", b"a"]
    assert await peer.at_end()


async def test_the_later_time_holds_and_a_mute_is_bounded(
    listen: Listen, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraft.network.connection.MUTE_MAX_S", 0.01)
    handler = Muting()
    peer = await dial(await listen(handler, limits=SMALL))
    peer.send(b"3600000", b"a")
    assert await peer.frame() == b"3600000"
    assert handler.connection is not None
    until_s = handler.connection._muted_until_s
    handler.connection.session.mute_until(until_s - 0.001)
    handler.connection.session.mute_until(0.0)
    assert handler.connection._muted_until_s == until_s
    assert await peer.frame() == b"a"


async def test_a_mute_ends_with_its_connection(listen: Listen, dial: Dial, until: Until) -> None:
    handler = Muting()
    server = await listen(handler, limits=SMALL)
    peer, other = await dial(server), await dial(server)
    peer.send(b"60000", b"a")
    assert await peer.frame() == b"60000"
    connection = handler.connection
    assert connection is not None
    timer = connection._muted
    assert timer is not None
    peer.reset()
    connection.abort()
    await until(lambda: server.connection_count == 1)
    assert timer.cancelled()
    connection.session.mute_until(1e12)
    other.send(b"60000")
    await other.frame()
    await server.close(grace_s=10.0)
    assert await other.at_end(), "nothing is owed to it"
    assert handler.order == [b"60000", b"60000"]
