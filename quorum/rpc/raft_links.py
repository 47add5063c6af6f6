"""The Raft links between voters: one WebSocket for each pair, first in first out, authenticated.

The voter with the lower id dials; the other accepts. Both sides prove that they know the shared
secret before a Raft byte passes (challenge and response over fresh nonces, bound to both ids, both
directory ids, the cluster id and the set of voters, so that an answer cannot be replayed or reflected,
and voters that were told of different quorums do not talk). Each connection gets a new local session
number and has the peer's directory id (KIP-853); what arrives on it is handed on with that number, and
the driver drops what belongs to an older session. Started by `kraft.node` on voters, between the Raft
lane and the network.
"""

from __future__ import annotations

import asyncio
import hmac
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import aiohttp
import structlog
from aiohttp import web

from quorum.raft.config import DIRECTORY_ID_BYTES
from quorum.rpc.client import ConnectorFactory, TlsSource, default_connector, newest, request_session, url_of
from quorum.rpc.envelope import RpcUnavailable
from quorum.rpc.server import RAFT_METHOD, UNAUTHORIZED
from quorum.rpc.sparse_log import SparseLog

log = structlog.get_logger(__name__)

MESSAGE_MAX_BYTES = 40 * 1024 * 1024
QUEUE_MAX_BYTES = 64 * 1024 * 1024
HANDSHAKE_TIMEOUT_S = 2.0
HEARTBEAT_S = 2.0
NONCE_BYTES = 32
_HELLO_BYTES = DIRECTORY_ID_BYTES + NONCE_BYTES
NOT_PROVED = (
    "it does not know the shared secret, is another node or of another cluster, or its"
    " controller.quorum.voters lists other voters"
)
REDIAL_FIRST_S = 0.05
REDIAL_MAX_S = 0.2
"""Below the shortest election timeout in use: when a voter is back and the leader dies next, the others
must find it before they can elect anybody. A refused connection every so often costs nothing."""
REDIAL_REFUSED_S = 1.0
"""After a refusal, which no haste will change: the other side has to be configured anew."""

_Socket = aiohttp.ClientWebSocketResponse | web.WebSocketResponse


class LinkListener:
    """What the Raft lane hears of the links; the methods are called on the event loop."""

    def __init__(
        self,
        connected: Callable[[int, int, bytes], None],
        disconnected: Callable[[int, int], None],
        received: Callable[[int, int, bytes], None],
    ) -> None:
        """`connected` is told peer, session and the peer's directory id, `received` peer, session, data."""
        self.connected = connected
        self.disconnected = disconnected
        self.received = received


@dataclass
class _Link:
    """One live connection to a peer, and what waits to be sent on it."""

    peer_id: int
    session: int
    socket: _Socket
    queue: deque[bytes] = field(default_factory=deque)
    queued_bytes: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class HandshakeError(Exception):
    """The other side did not prove that it is the voter it claims to be."""


class RaftLinks:
    """All links of one voter."""

    def __init__(
        self,
        node_id: int,
        voters: Mapping[int, str],
        cluster_id: str,
        directory_id: bytes,
        secret: bytes,
        rng: random.Random,
        listener: LinkListener,
        connector: ConnectorFactory = default_connector,
        tls: TlsSource | None = None,
    ) -> None:
        """`directory_id`: the 16 bytes of this voter's own directory id."""
        self._tls = tls
        self._node_id = node_id
        self._directory_id = directory_id
        self._voters = dict(voters)
        self._cluster_id = cluster_id
        self._secret = secret
        self._rng = rng
        self._listener = listener
        self._connector = connector
        self._links: dict[int, _Link] = {}
        self._next_session = 1
        self._dialers: list[asyncio.Task[None]] = []
        self._client: aiohttp.ClientSession | None = None
        self._closed = False

    def start(self) -> None:
        """Begins to dial every voter with a higher id, for as long as the node lives."""
        self._client = aiohttp.ClientSession(connector=self._connector())
        for peer_id in sorted(self._voters):
            if peer_id > self._node_id:
                self._dialers.append(
                    asyncio.get_running_loop().create_task(self._dial(peer_id), name=f"raft-link-{peer_id}")
                )

    async def close(self) -> None:
        """Ends all links and stops dialing."""
        self._closed = True
        for task in self._dialers:
            task.cancel()
        await asyncio.gather(*self._dialers, return_exceptions=True)
        for link in list(self._links.values()):
            await link.socket.close()
        if self._client is not None:
            await self._client.close()

    def send(self, peer_id: int, session: int, data: bytes) -> None:
        """Queues one message. Dropped when the session is over; a peer too slow loses its link."""
        link = self._links.get(peer_id)
        if link is None or link.session != session:
            return
        link.queue.append(data)
        link.queued_bytes += len(data)
        link.wake.set()
        if link.queued_bytes > QUEUE_MAX_BYTES:
            log.warning(
                "a voter does not keep up; its link is reset", peer=peer_id, queued_bytes=link.queued_bytes
            )
            self._forget(link)

    # -- connecting

    async def _dial(self, peer_id: int) -> None:
        failures = SparseLog("a voter cannot be dialed")
        pause_s = REDIAL_FIRST_S
        while not self._closed:
            try:
                socket, directory_id = await self._open(peer_id)
                pause_s = REDIAL_FIRST_S
                try:
                    await self._run(socket, peer_id, directory_id)
                finally:
                    await socket.close()
            except (aiohttp.ClientError, RpcUnavailable, TimeoutError, OSError) as error:
                log.debug("a voter cannot be reached", peer=peer_id, reason=str(error))
            except HandshakeError as error:
                log.warning("a voter was refused", peer=peer_id, reason=str(error))
                pause_s = REDIAL_REFUSED_S
            except UnicodeError:
                reason = f"{self._voters[peer_id]} is no address; correct controller.quorum.voters"
                failures.warning(peer=peer_id, reason=reason)
                pause_s = REDIAL_REFUSED_S
            except Exception as error:  # noqa: BLE001 - a defect: the quorum has to hear of it, and goes on with others
                failures.warning(peer=peer_id, reason=repr(error), exc_info=error)
                pause_s = REDIAL_REFUSED_S
            await asyncio.sleep(pause_s * self._rng.uniform(0.8, 1.2))
            pause_s = min(pause_s * 2, REDIAL_MAX_S)

    async def _open(self, peer_id: int) -> tuple[aiohttp.ClientWebSocketResponse, bytes]:
        """A link to a voter that has proved itself, and its directory id.

        All of it has one deadline: the kernel of a process that stands still accepts connections, and
        then nobody answers. Raises TimeoutError, aiohttp.ClientError, RpcUnavailable, OSError, HandshakeError.
        """
        assert self._client is not None
        address = self._voters[peer_id]
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            session = await request_session(self._client, address, self._secret, self._rng, self._tls)
            try:
                socket = await self._client.ws_connect(
                    f"{url_of(address, self._tls)}/raft",
                    headers=session.sign(RAFT_METHOD, b""),
                    ssl=newest(self._tls),
                    max_msg_size=MESSAGE_MAX_BYTES,
                    heartbeat=HEARTBEAT_S,
                    timeout=aiohttp.ClientWSTimeout(ws_close=HANDSHAKE_TIMEOUT_S),
                )
            except aiohttp.WSServerHandshakeError as error:
                if error.status == UNAUTHORIZED:
                    raise HandshakeError("it refused our signature; check the shared secret") from error
                raise
            try:
                directory_id = await self._prove_as_dialer(socket, peer_id)
            except BaseException:
                await socket.close()
                raise
        return socket, directory_id

    async def accept(self, request: web.Request) -> web.StreamResponse:
        """The route `/raft`: proves itself to the dialer, has it prove itself, then serves the link."""
        socket = web.WebSocketResponse(
            max_msg_size=MESSAGE_MAX_BYTES, heartbeat=HEARTBEAT_S, timeout=HANDSHAKE_TIMEOUT_S
        )
        try:
            await socket.prepare(request)
        except ConnectionError:
            return web.Response(status=400)  # for a dialer that is gone already
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                peer_id, directory_id = await self._prove_as_acceptor(socket)
        except (TimeoutError, HandshakeError, ConnectionError) as error:
            log.warning(
                "refused a Raft link", peer=request.remote, reason=str(error) or "handshake timed out"
            )
            await socket.close()
            return socket
        try:
            await self._run(socket, peer_id, directory_id)
        except ConnectionError as error:
            log.debug("a Raft link broke", peer=peer_id, reason=str(error))
        return socket

    def _proof(self, role: bytes, dialer: int, acceptor: int, said: bytes) -> bytes:
        """`said`: what both sides have told in the open, directory id and nonce, the dialer's first."""
        voters = b",".join(b"%d" % voter for voter in sorted(self._voters))
        text = b"|".join((role, self._cluster_id.encode(), voters, b"%d" % dialer, b"%d" % acceptor, said))
        return hmac.new(self._secret, text, "sha256").digest()

    async def _prove_as_dialer(self, socket: _Socket, peer_id: int) -> bytes:
        mine = self._directory_id + self._rng.randbytes(NONCE_BYTES)
        await socket.send_bytes(b"%d|" % self._node_id + mine)
        answer = await _receive(socket)
        theirs, proof = answer[:_HELLO_BYTES], answer[_HELLO_BYTES:]
        said = mine + theirs
        if not hmac.compare_digest(proof, self._proof(b"acceptor", self._node_id, peer_id, said)):
            raise HandshakeError(NOT_PROVED)
        await socket.send_bytes(self._proof(b"dialer", self._node_id, peer_id, said))
        return theirs[:DIRECTORY_ID_BYTES]

    async def _prove_as_acceptor(self, socket: _Socket) -> tuple[int, bytes]:
        claim, separator, theirs = (await _receive(socket)).partition(b"|")
        if not separator or not claim.isdigit() or len(claim) > 10 or len(theirs) != _HELLO_BYTES:
            raise HandshakeError("not the first message of a Raft link")
        peer_id = int(claim)
        if peer_id not in self._voters or peer_id >= self._node_id:
            raise HandshakeError(f"node {peer_id} is not a voter that dials node {self._node_id}")
        mine = self._directory_id + self._rng.randbytes(NONCE_BYTES)
        said = theirs + mine
        await socket.send_bytes(mine + self._proof(b"acceptor", peer_id, self._node_id, said))
        if not hmac.compare_digest(
            await _receive(socket), self._proof(b"dialer", peer_id, self._node_id, said)
        ):
            raise HandshakeError(NOT_PROVED)
        return peer_id, theirs[:DIRECTORY_ID_BYTES]

    # -- a live link

    async def _run(self, socket: _Socket, peer_id: int, directory_id: bytes) -> None:
        if self._closed:
            return
        previous = self._links.get(peer_id)
        if previous is not None:
            self._forget(previous)
        link = _Link(peer_id, self._next_session, socket)
        self._next_session += 1
        self._links[peer_id] = link
        self._listener.connected(peer_id, link.session, directory_id)
        writer = asyncio.get_running_loop().create_task(self._write(link), name=f"raft-writer-{peer_id}")
        try:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY or self._links.get(peer_id) is not link:
                    break
                self._listener.received(peer_id, link.session, message.data)
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            self._forget(link)

    async def _write(self, link: _Link) -> None:
        try:
            while self._links.get(link.peer_id) is link:
                await link.wake.wait()
                link.wake.clear()
                while link.queue:
                    data = link.queue.popleft()
                    link.queued_bytes -= len(data)
                    await link.socket.send_bytes(data)
        except (ConnectionError, aiohttp.ClientError) as error:
            log.debug("a Raft link broke while sending", peer=link.peer_id, reason=str(error))
        finally:
            await link.socket.close()

    def _forget(self, link: _Link) -> None:
        """Ends the session; the reader or writer that still holds the socket closes it."""
        if self._links.get(link.peer_id) is link:
            del self._links[link.peer_id]
            link.queue.clear()
            link.wake.set()
            self._listener.disconnected(link.peer_id, link.session)


async def _receive(socket: _Socket) -> bytes:
    message = await socket.receive()
    if message.type is not aiohttp.WSMsgType.BINARY or not isinstance(message.data, bytes):
        raise HandshakeError("the link closed before it was authenticated")
    return message.data
