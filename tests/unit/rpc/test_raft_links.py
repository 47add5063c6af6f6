"""The Raft links: mutual proof, order, sessions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from kraft.runtime.free_ports import free_ports
from quorum.raft.config import FAST_TIMING
from quorum.rpc.raft_links import REDIAL_MAX_S, LinkListener, RaftLinks
from quorum.rpc.server import ControllerListener

CLUSTER = "cluster-of-the-test-xx"


@dataclass
class Voter:
    """One voter's links, and what they told it."""

    node_id: int
    events: asyncio.Queue[tuple[object, ...]] = field(default_factory=asyncio.Queue)

    @property
    def directory_id(self) -> bytes:
        return b"directory of %3d" % self.node_id

    async def start(self, addresses: dict[int, str], secret: bytes = b"s", cluster: str = CLUSTER) -> None:
        listener = LinkListener(
            connected=lambda peer, session, directory: self.events.put_nowait(
                ("connected", peer, session, directory)
            ),
            disconnected=lambda peer, session: self.events.put_nowait(("disconnected", peer, session)),
            received=lambda peer, session, data: self.events.put_nowait(("received", peer, session, data)),
        )
        self.links = RaftLinks(
            self.node_id,
            addresses,
            cluster,
            self.directory_id,
            secret,
            random.Random(self.node_id),
            listener,
        )

        async def no_calls(method: str, body: object) -> dict[str, object]:
            raise AssertionError("nobody calls")

        self.listener = ControllerListener(no_calls, secret, self.links.accept)
        host, _, port = addresses[self.node_id].rpartition(":")
        await self.listener.start(host, int(port))
        self.links.start()

    async def next(self, kind: str) -> tuple[object, ...]:
        async with asyncio.timeout(10):
            while True:
                event = await self.events.get()
                if event[0] == kind:
                    return event[1:]

    async def close(self) -> None:
        await self.listener.close()
        await self.links.close()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[float]:
    """How long each pause of the links is, in seconds; nobody waits for its end."""
    asked: asyncio.Queue[float] = asyncio.Queue()
    really_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        asked.put_nowait(seconds)
        await really_sleep(0)

    monkeypatch.setattr("quorum.rpc.raft_links.asyncio.sleep", sleep)
    return asked


@pytest.fixture
async def addresses() -> dict[int, str]:
    return dict(zip((1, 2, 3), (f"127.0.0.1:{port}" for port in free_ports(3, avoid=set())), strict=True))


@pytest.fixture
async def pair(addresses: dict[int, str]) -> AsyncIterator[tuple[Voter, Voter]]:
    one, two = Voter(1), Voter(2)
    await one.start(addresses)
    await two.start(addresses)
    yield one, two
    await one.close()
    await two.close()


async def test_messages_arrive_in_order_both_ways(pair: tuple[Voter, Voter]) -> None:
    one, two = pair
    _, session_one, directory_two = await one.next("connected")
    _, session_two, directory_one = await two.next("connected")
    assert (directory_one, directory_two) == (one.directory_id, two.directory_id)
    for number in range(200):
        one.links.send(2, session_one, b"one %d" % number)
        two.links.send(1, session_two, b"two %d" % number)
    assert [(await two.next("received"))[2] for _ in range(200)] == [b"one %d" % n for n in range(200)]
    assert [(await one.next("received"))[2] for _ in range(200)] == [b"two %d" % n for n in range(200)]


async def test_a_new_connection_is_a_new_session_and_the_old_one_is_dead(
    addresses: dict[int, str], pair: tuple[Voter, Voter]
) -> None:
    one, two = pair
    _, first, _ = await one.next("connected")
    await two.close()
    assert await one.next("disconnected") == (2, first)
    again = Voter(2)
    await again.start(addresses)
    try:
        _, second, _ = await one.next("connected")
        assert isinstance(first, int)
        assert isinstance(second, int)
        assert second > first
        one.links.send(2, first, b"of the old session")
        one.links.send(2, second, b"of the new session")
        assert (await again.next("received"))[2] == b"of the new session"
    finally:
        await again.close()


@pytest.mark.parametrize(
    ("secret", "cluster"),
    [(b"another", CLUSTER), (b"s", "another-cluster-xxxxxx")],
    ids=["secret", "cluster"],
)
async def test_a_stranger_gets_no_link(addresses: dict[int, str], secret: bytes, cluster: str) -> None:
    one, two, stranger = Voter(1), Voter(2), Voter(3)
    await one.start(addresses)
    await stranger.start(addresses, secret, cluster)
    await two.start(addresses)
    try:
        # The two true voters find each other; by then the stranger was dialed and had its chance.
        assert (await one.next("connected"))[0] == 2
        assert (await two.next("connected"))[0] == 1
        assert stranger.events.empty()
    finally:
        for voter in (one, two, stranger):
            await voter.close()


async def test_voters_of_different_lists_get_no_link(addresses: dict[int, str]) -> None:
    one, two, other = Voter(1), Voter(2), Voter(3)
    fourth = f"127.0.0.1:{free_ports(1, avoid=set())[0]}"
    await one.start(addresses)
    await other.start({**addresses, 4: fourth})
    await two.start(addresses)
    try:
        assert (await one.next("connected"))[0] == 2
        assert (await two.next("connected"))[0] == 1
        assert other.events.empty()
    finally:
        for voter in (one, two, other):
            await voter.close()


async def test_a_peer_that_accepts_and_says_nothing_is_dialled_again(
    addresses: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel of a process that stands still: the handshake of TCP is all there is."""
    monkeypatch.setattr("quorum.rpc.raft_links.HANDSHAKE_TIMEOUT_S", 0.05)
    dialled: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    host, _, port = addresses[2].rpartition(":")
    silent = await asyncio.start_server(lambda _, writer: dialled.put_nowait(writer), host, int(port))
    one = Voter(1)
    await one.start(addresses)
    try:
        async with asyncio.timeout(10):
            writers = [await dialled.get(), await dialled.get()]
        for writer in writers:
            writer.close()
    finally:
        silent.close()
        await one.close()


async def test_a_dead_voter_is_dialled_more_often_than_elections_time_out(
    addresses: dict[int, str], pauses: asyncio.Queue[float]
) -> None:
    """Or it would be back, and the next leader gone, and nobody could be elected for want of a link."""
    one = Voter(1)
    await one.start({voter: addresses[voter] for voter in (1, 2)})
    try:
        async with asyncio.timeout(10):
            seen = [await pauses.get() for _ in range(50)]
    finally:
        await one.close()
    assert min(seen) > 0
    assert max(seen) < FAST_TIMING.election_min_s


async def test_a_voter_that_refuses_is_dialled_less_often_and_named(
    addresses: dict[int, str], pauses: asyncio.Queue[float]
) -> None:
    one, stranger = Voter(1), Voter(2)
    pair = {voter: addresses[voter] for voter in (1, 2)}
    await stranger.start(pair, b"another secret")
    with capture_logs() as lines:
        await one.start(pair)
        try:
            async with asyncio.timeout(10):
                assert await pauses.get() > 3 * REDIAL_MAX_S
        finally:
            await one.close()
            await stranger.close()
    (refused,) = [line for line in lines if line["event"] == "a voter was refused"][:1]
    assert "check the shared secret" in refused["reason"]


@pytest.mark.parametrize(
    ("address", "error", "reason"),
    [
        ("..:9", None, "..:9 is no address; correct controller.quorum.voters"),
        ("a" * 70 + ".example:9", None, "a.example:9 is no address; correct controller.quorum.voters"),
        ("127.0.0.1:1", ZeroDivisionError("a defect"), "ZeroDivisionError('a defect')"),
    ],
)
async def test_a_dialer_goes_on_and_says_what_is_wrong(
    pauses: asyncio.Queue[float],
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    error: Exception | None,
    reason: str,
) -> None:
    """Whatever comes up: one that ended would leave the quorum without this link, and nobody would know."""

    async def broken(*_: object) -> object:
        assert error is not None
        raise error

    if error is not None:
        monkeypatch.setattr("quorum.rpc.raft_links.request_session", broken)
    links = RaftLinks(
        1,
        {1: "127.0.0.1:1", 2: address},
        CLUSTER,
        bytes(16),
        b"s",
        random.Random(1),
        LinkListener(print, print, print),
    )
    with capture_logs() as lines:
        links.start()
        async with asyncio.timeout(10):
            for _ in range(5):
                while await pauses.get() < 3 * REDIAL_MAX_S:
                    continue
        assert not links._dialers[0].done()
        await links.close()
    (line,) = [line for line in lines if line["log_level"] == "warning"]
    assert (line["event"], line["peer"]) == ("a voter cannot be dialed", 2)
    assert line["reason"].endswith(reason)
