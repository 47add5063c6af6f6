"""The client's connection against a peer that answers by hand."""

from __future__ import annotations

import asyncio

import pytest

from kraft.chaos.workload.connection import ClientConnection
from kraft.protocol.schemas.metadata import MetadataRequest

REQUEST = MetadataRequest(topics=[])
VERSION = 12


def answer(correlation_id: int, body: bytes) -> bytes:
    frame = correlation_id.to_bytes(4, "big") + b"\0" + body
    return len(frame).to_bytes(4, "big") + frame


@pytest.fixture
def talk(play):
    """Plays a peer that sends chunks, each a moment after the one before, and a client's program."""

    def talk(chunks, program, *, ends=False):
        async def peer(process):
            async def serve(reader, writer):
                await reader.readexactly(4)
                for chunk in chunks:
                    writer.write(chunk)
                    await asyncio.sleep(0.01)
                if ends:
                    writer.close()
                await asyncio.sleep(30)

            await process.loop.create_server(
                lambda: _peer_protocol(serve, process.loop), process.host.address, 9092
            )
            await asyncio.sleep(30)

        async def client(process):
            await asyncio.sleep(0.01)
            _, connection = await process.loop.create_connection(
                lambda: ClientConnection(1), "10.0.0.1", 9092
            )
            got: list[bytes | None] = []

            def ask(timeout_s=2.0):
                connection.request(
                    REQUEST,
                    VERSION,
                    timeout_s,
                    lambda body: got.append(None if body is None else bytes(body)),
                )

            await program(connection, ask, got)

        play(peer, client, seconds=10.0)

    return talk


def _peer_protocol(serve, loop):
    reader = asyncio.StreamReader(loop=loop)
    return asyncio.StreamReaderProtocol(reader, serve, loop=loop)


def test_answers_come_in_order_however_the_bytes_are_cut(talk):
    frames = answer(0, b"one") + answer(1, b"two")

    async def program(connection, ask, got):
        ask()
        ask()
        await asyncio.sleep(1)
        assert got == [b"one", b"two"]
        assert not connection.closed

    talk([frames[:2], frames[2:7], frames[7:15], frames[15:]], program)


def test_a_late_answer_ends_the_connection_and_all_requests_once(talk):
    async def program(connection, ask, got):
        ask(timeout_s=0.5)
        ask(timeout_s=3.0)
        await asyncio.sleep(0.4)
        assert not got
        await asyncio.sleep(0.2)
        assert got == [None, None]
        assert (connection.closed, connection.reason) == (True, "an answer was late")
        await asyncio.sleep(3)
        assert got == [None, None]

    talk([], program)


def test_an_answer_in_time_is_no_cause(talk):
    async def program(connection, ask, got):
        ask(timeout_s=0.5)
        await asyncio.sleep(2)
        assert got == [b"one"]
        assert not connection.closed

    talk([answer(0, b"one")], program)


@pytest.mark.parametrize(
    ("chunk", "reason"),
    [
        (answer(7, b"whose?"), "an answer to no request came (7)"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes came"),
        ((2**31 - 1).to_bytes(4, "big"), "a frame of 2147483647 bytes came"),
    ],
)
def test_nonsense_ends_the_connection(talk, chunk, reason):
    async def program(connection, ask, got):
        ask()
        await asyncio.sleep(1)
        assert got == [None]
        assert connection.reason == reason

    talk([chunk], program)


def test_a_peer_that_closes_ends_the_requests(talk):
    async def program(connection, ask, got):
        ask()
        await asyncio.sleep(1)
        assert got == [None]
        assert connection.reason == "the broker closed it"

    talk([], program, ends=True)
