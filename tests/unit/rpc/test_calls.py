"""Calls to the controller listener: authentication, refusals, and finding the active controller."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from kraft.runtime.free_ports import free_port_range
from quorum.rpc import connection_gate, server
from quorum.rpc.authentication import SESSION_HEADER, CallerSession
from quorum.rpc.client import ControllerChannel, RpcClient, request_session
from quorum.rpc.connection_gate import STRANGERS_MAX
from quorum.rpc.envelope import Body, RpcError, RpcUnavailable, encode
from quorum.rpc.server import ControllerListener

SECRET = b"the quorum's secret"
PEM = Path(__file__).parent.parent / "network" / "localhost.pem"
CALL_S = 30.0
"""More than a busy machine needs; nobody waits for its end."""
Handler = Callable[[str, Body], Awaitable[Body]]


def free_port() -> int:
    return free_port_range(1)


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Handler], Awaitable[str]]]:
    async with AsyncExitStack() as stack:

        async def start(handler: Handler) -> str:
            port = free_port()
            listener = ControllerListener(handler, SECRET)
            await listener.start("127.0.0.1", port)
            stack.push_async_callback(listener.close)
            return f"127.0.0.1:{port}"

        yield start


@pytest.fixture
async def client() -> AsyncIterator[RpcClient]:
    client = RpcClient(SECRET)
    yield client
    await client.close()


async def echo(method: str, body: Body) -> Body:
    return {"method": method, **body}


async def test_a_call_carries_plain_values_both_ways(serve, client: RpcClient) -> None:
    address = await serve(echo)
    body = {"bytes": b"\0\xff", "text": "ä", "list": [1, None, True], "map": {"1": -(2**63)}}
    assert await client.call(address, "echo", body, CALL_S) == {"method": "echo", **body}


async def test_a_refusal_arrives_with_code_sentence_and_hint(serve, client: RpcClient) -> None:
    async def refuse(method: str, body: Body) -> Body:
        raise RpcError("NOT_CONTROLLER", "ask node 3", leader_id=3)

    address = await serve(refuse)
    with pytest.raises(RpcError) as caught:
        await client.call(address, "m", {}, CALL_S)
    assert (caught.value.code, caught.value.message, caught.value.leader_id) == (
        "NOT_CONTROLLER",
        "ask node 3",
        3,
    )


async def test_a_refused_caller_keeps_its_session(serve, client: RpcClient) -> None:
    """While nobody leads, every caller is refused again and again."""

    async def refuse(method: str, body: Body) -> Body:
        raise RpcError("NOT_CONTROLLER", "ask another")

    address = await serve(refuse)
    for _ in range(2):
        with pytest.raises(RpcError, match="NOT_CONTROLLER"):
            await client.call(address, "m", {}, CALL_S)
        session = client._sessions[address]
    assert session.sign("m", b"")[SESSION_HEADER].endswith(".3")


async def test_a_bug_in_the_handler_is_an_error_of_that_call_only(serve, client: RpcClient) -> None:
    async def broken(method: str, body: Body) -> Body:
        if method == "bug":
            raise KeyError("x")
        return {}

    address = await serve(broken)
    with pytest.raises(RpcError, match="UNKNOWN_SERVER_ERROR"):
        await client.call(address, "bug", {}, CALL_S)
    assert await client.call(address, "fine", {}, CALL_S) == {}


class DeafTransport(asyncio.Transport):
    """The server's end of a connection whose other end reads nothing."""

    def pause_reading(self) -> None:
        pass

    def write(self, data: object) -> None:
        raise AssertionError

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass


async def test_a_caller_that_is_gone_before_its_body_came_is_no_error() -> None:
    """Its connection ends between its head and the turn of the task that handles it."""
    listener = ControllerListener(echo, SECRET)
    await listener.start("127.0.0.1", 0)
    session = CallerSession(SECRET, listener._guard.challenge(listener._now_s()), random.Random(1))
    lines = ["POST /rpc/echo HTTP/1.1", "Host: x", "Content-Length: 100"]
    lines += [f"{name}: {value}" for name, value in session.sign("echo", b"x" * 100).items()]
    head = "\r\n".join([*lines, "", ""]).encode()
    with capture_logs() as logged:
        assert listener._gate is not None
        door = listener._gate()
        door.connection_made(DeafTransport())
        await asyncio.sleep(0)  # its task waits for a request now
        door.get_buffer(-1)[: len(head)] = head
        door.buffer_updated(len(head))
        await asyncio.sleep(0)  # the task of this request is there, and its turn is next
        door.connection_lost(None)
        await listener.close()  # awaits its tasks
    assert logged == []


async def test_a_wrong_secret_is_refused_before_anything_is_decoded(serve) -> None:
    calls: list[str] = []

    async def note(method: str, body: Body) -> Body:
        calls.append(method)
        return {}

    address = await serve(note)
    stranger = RpcClient(b"another secret")
    with pytest.raises(RpcError, match="CLUSTER_AUTHORIZATION_FAILED"):
        await stranger.call(address, "m", {}, CALL_S)
    await stranger.close()
    assert calls == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\x93\x01",
        encode({}) + b"x",
        b"\xc7\x01\x05x",
        b"\x91" * 100_000,
    ],
    ids=["empty", "never used", "forged array", "an array", "trailing", "extension", "nested"],
)
async def test_malformed_bodies_are_refused_and_harm_nothing(serve, client: RpcClient, data: bytes) -> None:
    address = await serve(echo)
    async with aiohttp.ClientSession() as http:
        session = await request_session(http, address, SECRET, random.Random(1))
        headers = session.sign("m", data)
        async with http.post(f"http://{address}/rpc/m", data=data, headers=headers) as response:
            assert response.status == 400
    assert await client.call(address, "m", {}, CALL_S) == {"method": "m"}


async def test_an_unreachable_address_is_unavailable(client: RpcClient) -> None:
    with pytest.raises(RpcUnavailable):
        await client.call(f"127.0.0.1:{free_port()}", "m", {}, CALL_S)


async def test_the_channel_follows_the_hint_and_stays_with_the_leader(serve, client: RpcClient) -> None:
    asked: list[int] = []

    def voter(node_id: int) -> Handler:
        async def answer(method: str, body: Body) -> Body:
            asked.append(node_id)
            if node_id != 2:
                raise RpcError("NOT_CONTROLLER", "ask the leader", leader_id=2)
            return {"from": node_id}

        return answer

    voters = {node_id: await serve(voter(node_id)) for node_id in (1, 2, 3)}
    channel = ControllerChannel(client, voters, random.Random(1))
    assert await channel.call("m", {}, timeout_s=CALL_S) == {"from": 2}
    assert channel.leader_id == 2
    asked.clear()
    assert await channel.call("m", {}, timeout_s=CALL_S) == {"from": 2}
    assert asked == [2]


async def test_the_channel_goes_past_dead_voters_and_gives_up_in_time(serve, client: RpcClient) -> None:
    live = await serve(echo)
    dead = f"127.0.0.1:{free_port()}"
    channel = ControllerChannel(client, {1: dead, 2: dead, 3: live}, random.Random(0))
    assert await channel.call("m", {}, timeout_s=CALL_S) == {"method": "m"}
    nobody = ControllerChannel(client, {1: dead, 2: dead}, random.Random(0))
    with pytest.raises(RpcUnavailable, match="no active controller answered m"):
        await nobody.call("m", {}, timeout_s=0.2)


class ScriptedClient:
    """Voters that answer from a list: an error, or the node that answers. The last answer stays."""

    def __init__(self, answers: dict[int, list[RpcError | int]]) -> None:
        self._answers = answers
        self.events: list[int | str] = []

    async def call(self, address: str, method: str, body: object, timeout_s: float) -> Body:
        voter = int(address)
        self.events.append(voter)
        answers = self._answers[voter]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, RpcError):
            raise answer
        return {"from": answer}

    async def sleep(self, _: float) -> None:
        self.events.append("pause")


async def test_a_dead_voter_costs_no_pause_and_each_is_asked_once_in_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dead = RpcUnavailable("refused")
    follower = RpcError("NOT_CONTROLLER", "an election is under way")
    client = ScriptedClient({1: [dead], 2: [follower], 3: [follower, 3]})
    monkeypatch.setattr("quorum.rpc.client.asyncio.sleep", client.sleep)
    channel = ControllerChannel(client, {voter: str(voter) for voter in (1, 2, 3)}, random.Random(1))
    first = channel._target
    assert await channel.call("m", {}, timeout_s=CALL_S) == {"from": 3}
    round_of_all = [(first - 1 + n) % 3 + 1 for n in range(3)]
    assert client.events[:4] == [*round_of_all, "pause"]
    assert client.events[4:] == round_of_all[: round_of_all.index(3) + 1]


async def test_a_late_failure_does_not_lead_away_from_the_leader_that_another_call_has_found() -> None:
    late = asyncio.Event()

    class Client:
        async def call(self, address: str, method: str, body: object, timeout_s: float) -> Body:
            if address == "3":
                return {"from": 3}
            if method == "slow":
                await late.wait()
            raise RpcError("NOT_CONTROLLER", "ask the leader", leader_id=3 if method == "fast" else None)

    channel = ControllerChannel(Client(), {1: "1", 2: "2", 3: "3"}, random.Random(0))
    channel._target = 1
    slow = asyncio.create_task(channel.call("slow", {}, timeout_s=CALL_S))
    await asyncio.sleep(0)
    assert await channel.call("fast", {}, timeout_s=CALL_S) == {"from": 3}
    late.set()
    assert await slow == {"from": 3}
    assert channel._target == 3


async def test_a_definite_refusal_is_not_retried(serve, client: RpcClient) -> None:
    asked: list[str] = []

    async def refuse(method: str, body: Body) -> Body:
        asked.append(method)
        raise RpcError("STALE_BROKER_EPOCH", "registered anew")

    channel = ControllerChannel(client, {1: await serve(refuse)}, random.Random(0))
    with pytest.raises(RpcError, match="STALE_BROKER_EPOCH"):
        await channel.call("m", {}, timeout_s=CALL_S)
    assert asked == ["m"]


async def test_two_voters_that_point_at_each_other_are_not_asked_in_a_loop(
    client: RpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each asks for a leader that the other one was; only the pause between rounds bounds the calls."""
    calls: list[str] = []

    async def refuse(address: str, method: str, body: object, timeout_s: float) -> Body:
        calls.append(address)
        raise RpcError("NOT_CONTROLLER", "ask the other", leader_id=2 if address == "a:1" else 1)

    monkeypatch.setattr(client, "call", refuse)
    channel = ControllerChannel(client, {1: "a:1", 2: "b:2"}, random.Random(1))
    with pytest.raises(RpcUnavailable):
        await channel.call("m", {}, timeout_s=0.1)
    assert len(calls) <= 12


async def test_what_was_recorded_from_the_wire_is_served_once(serve) -> None:
    calls: list[str] = []

    async def note(method: str, body: Body) -> Body:
        calls.append(method)
        return {}

    address = await serve(note)
    async with aiohttp.ClientSession() as http:
        session = await request_session(http, address, SECRET, random.Random(1))
        headers = session.sign("m", encode({}))
        statuses = []
        for _ in range(2):
            async with http.post(f"http://{address}/rpc/m", data=encode({}), headers=headers) as response:
                statuses.append(response.status)
    assert statuses == [200, 401]
    assert calls == ["m"]


async def test_a_signed_request_carries_the_body_that_was_signed(serve) -> None:
    address = await serve(echo)
    async with aiohttp.ClientSession() as http:
        session = await request_session(http, address, SECRET, random.Random(1))
        headers = session.sign("m", encode({"name": "a"}))
        body = encode({"name": "b"})
        async with http.post(f"http://{address}/rpc/m", data=body, headers=headers) as response:
            assert response.status == 401


async def test_a_stranger_is_refused_before_its_body_is_read(serve) -> None:
    host, port = (await serve(echo)).split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /rpc/m HTTP/1.1\r\nHost: x\r\nContent-Length: 16000000\r\n\r\nbegun")
    assert (await reader.readline()).startswith(b"HTTP/1.1 401")
    writer.close()


async def test_a_restarted_controller_is_called_again_without_anybody_noticing(client: RpcClient) -> None:
    """The new process does not know the old one's sessions."""
    port = free_port()
    for _ in range(2):
        listener = ControllerListener(echo, SECRET)
        await listener.start("127.0.0.1", port)
        assert await client.call(f"127.0.0.1:{port}", "m", {}, CALL_S) == {"method": "m"}
        await listener.close()


async def test_many_calls_at_once_to_a_restarted_controller_all_get_through(client: RpcClient) -> None:
    port = free_port()
    for _ in range(2):
        listener = ControllerListener(echo, SECRET)
        await listener.start("127.0.0.1", port)
        address = f"127.0.0.1:{port}"
        calls = [client.call(address, "echo", {"n": n}, CALL_S) for n in range(8)]
        assert await asyncio.gather(*calls) == [{"method": "echo", "n": n} for n in range(8)]
        await listener.close()


async def test_a_flood_of_silent_strangers_keeps_nobody_out(
    serve, client: RpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_gate, "GRACE_S", 0.0)
    address = await serve(echo)
    host, port = address.split(":")
    strangers = [await asyncio.open_connection(host, int(port)) for _ in range(STRANGERS_MAX + 20)]
    assert await client.call(address, "m", {}, CALL_S) == {"method": "m"}
    first_reader, _ = strangers[0]
    assert await first_reader.read() == b""  # the oldest had to make room
    for _, writer in strangers:
        writer.close()


async def test_a_flood_of_silent_tls_handshakes_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest makes room, and what fails is forgotten at once: room for others stays theirs."""
    monkeypatch.setattr(connection_gate, "STRANGERS_MAX", 4)
    monkeypatch.setattr(connection_gate, "GRACE_S", 0.0)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(PEM)
    listener = ControllerListener(echo, SECRET, tls=context)
    port = free_port()
    await listener.start("127.0.0.1", port)
    client = RpcClient(SECRET, tls=lambda: ssl.create_default_context(cafile=str(PEM)))
    try:
        address = f"localhost:{port}"
        first, *others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        assert await first[0].read() == b""
        for reader, writer in others[1:]:
            writer.write(b"no handshake")
            await reader.read()
        assert await client.call(address, "m", {}, CALL_S) == {"method": "m"}
        gate = listener._gate
        assert gate is not None
        assert [stranger for stranger in gate._strangers if stranger.transport is None] == []
        assert gate.turned_away == 2
        for _, writer in (first, *others):
            writer.close()
    finally:
        await client.close()
        await listener.close()


async def test_a_crowd_that_comes_at_once_is_let_in(serve, client: RpcClient) -> None:
    """Their first requests are in the sockets, and nobody had the time to read them."""
    host, port = (await serve(echo)).split(":")
    crowd = await asyncio.gather(
        *(asyncio.open_connection(host, int(port)) for _ in range(STRANGERS_MAX + 100))
    )
    for _, writer in crowd:
        writer.write(b"GET /session HTTP/1.1\r\nHost: x\r\n\r\n")
    for reader, _ in crowd:
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    for _, writer in crowd:
        writer.close()


async def test_a_crowd_beyond_all_measure_is_cut_down(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_gate, "STRANGERS_MAX", 2)
    monkeypatch.setattr(connection_gate, "STRANGERS_HARD_MAX", 3)
    host, port = (await serve(echo)).split(":")
    crowd = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
    first_reader, _ = crowd[0]
    assert await first_reader.read() == b""
    for _, writer in crowd:
        writer.close()


async def test_a_stranger_has_little_time(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_gate, "STRANGER_MAX_S", 0.05)
    host, port = (await serve(echo)).split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /session HTTP/1.1\r\n")
    assert await reader.read() == b""
    writer.close()


async def test_whoever_is_known_stays_connected(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger_s = 2.0  # in which a busy machine gets as far as to know the caller
    monkeypatch.setattr(connection_gate, "STRANGER_MAX_S", stranger_s)
    connectors: list[aiohttp.TCPConnector] = []

    def one_connection() -> aiohttp.TCPConnector:
        connectors.append(aiohttp.TCPConnector(limit=1))
        return connectors[0]

    over = asyncio.Event()

    async def wait(method: str, body: Body) -> Body:
        asyncio.get_running_loop().call_later(stranger_s + 0.1, over.set)
        await over.wait()
        return {}

    client = RpcClient(SECRET, one_connection)
    assert await client.call(await serve(wait), "m", {}, CALL_S) == {}
    await client.close()


async def test_a_caller_that_is_cut_off_in_the_middle_of_a_body_is_no_error(
    serve, client: RpcClient, caplog: pytest.LogCaptureFixture
) -> None:
    address = await serve(echo)
    host, port = address.split(":")
    async with aiohttp.ClientSession() as http:
        session = await request_session(http, address, SECRET, random.Random(1))
    headers = "".join(f"{name}: {value}\r\n" for name, value in session.sign("m", b"x" * 100).items())
    _, writer = await asyncio.open_connection(host, int(port))
    linger = struct.pack("ii", 1, 0)  # closing resets the connection
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.write(f"POST /rpc/m HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: 100\r\n\r\nbegun".encode())
    await writer.drain()
    assert await client.call(address, "m", {}, CALL_S) == {
        "method": "m"
    }  # so what was begun is being read by now
    writer.transport.abort()
    assert await client.call(address, "m", {}, CALL_S) == {"method": "m"}
    assert caplog.records == []


async def test_a_tls_handshake_that_never_begins_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STRANGER_MAX_S", 0.05)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(PEM)
    port = free_port()
    listener = ControllerListener(echo, SECRET, tls=context)
    await listener.start("127.0.0.1", port)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b""
    writer.close()
    await listener.close()
