"""A voter's network: its listener and its Raft links, together in the lane that they run in.

Calls are decided on the node's loop, in the order in which they come. Messages between voters wait for nothing that
happens there. `ControllerServer` owns it.
"""

from __future__ import annotations

import random
import ssl
from dataclasses import dataclass

from quorum.raft.config import DIRECTORY_ID_BYTES, RaftConfig
from quorum.raft.events import PeerConnected, PeerDisconnected, PeerMessage, SendToPeer
from quorum.raft.lane import RaftLane
from quorum.rpc.client import ConnectorFactory, TlsSource
from quorum.rpc.envelope import Body
from quorum.rpc.link_lane import LinkLane
from quorum.rpc.raft_links import LinkListener, RaftLinks
from quorum.rpc.server import ControllerListener, RpcHandler


@dataclass(frozen=True, slots=True)
class VoterTls:
    """The contexts of both ends; None for connections in the clear."""

    server: ssl.SSLContext | None
    client: TlsSource | None


class VoterNetwork:
    """One voter's. `start` and `close` on the node's loop."""

    def __init__(
        self,
        raft: RaftConfig,
        secret: bytes,
        handler: RpcHandler,
        *,
        raft_lane: RaftLane,
        link_lane: LinkLane,
        rng: random.Random,
        connector: ConnectorFactory,
        tls: VoterTls,
    ) -> None:
        """What comes from peers is posted to `raft_lane`."""
        self._lane = link_lane
        self._started = False
        self._handler = handler
        self._links = RaftLinks(
            raft.node_id,
            raft.voters,
            raft.cluster_id,
            raft.directory_id or bytes(DIRECTORY_ID_BYTES),
            secret,
            rng,
            LinkListener(
                connected=lambda peer, session, directory: raft_lane.post(
                    PeerConnected(peer, session, directory)
                ),
                disconnected=lambda peer, session: raft_lane.post(PeerDisconnected(peer, session)),
                received=lambda peer, session, data: raft_lane.post(PeerMessage(peer, session, data)),
            ),
            connector,
            tls.client,
        )
        self._listener = ControllerListener(
            self._on_call, secret, self._links.accept, rng=rng, tls=tls.server
        )

    async def start(self, host: str, port: int) -> None:
        """Listens, and begins to dial the other voters. Raises OSError."""
        self._lane.start()
        self._started = True
        try:
            await self._lane.run(lambda: self._start(host, port))
        except OSError:
            await self.close()
            raise

    async def _start(self, host: str, port: int) -> None:
        await self._listener.start(host, port)
        self._links.start()

    def send(self, message: SendToPeer) -> None:
        """Has a message sent, if its session still lasts; from any thread that the lane takes posts from."""
        self._lane.post(self._links.send, message.peer_id, message.session, message.data)

    async def close(self) -> None:
        """Ends everything that is open, then the lane; nothing if that has been done, or nothing begun."""
        if not self._started:
            return
        self._started = False
        try:
            await self._lane.run(self._close)
        finally:
            await self._lane.close()

    async def _close(self) -> None:
        try:
            await self._listener.close()
        finally:
            await self._links.close()

    async def _on_call(self, method: str, body: Body) -> Body:
        return await self._lane.on_node_loop(lambda: self._handler(method, body))
