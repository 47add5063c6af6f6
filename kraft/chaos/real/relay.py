"""The network of real processes as one that can be hurt: a TCP relay before each listener of each node.

A node advertises its relays' ports and listens on others. A link is a pair (from, to) of nodes, or of a node and all
clients (`CLIENTS`), and carries bytes one way. Which node dialled is found by the process that holds the other end
of the connection (Linux, no privileges). The relays themselves dial from addresses that nobody else uses: a
connection that goes around them is known by its address, also after it was closed (`connections_around`).

What is true of a real network and not of this one: a relay accepts and acknowledges what it does not pass on, so a
sender's TCP sees a slow peer, not a lost one, and no packet is ever lost or comes twice. Plain Linux without network
namespaces is enough, also in a container.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import uvloop

LOCALHOST: Final = "127.0.0.1"
RELAY_NETWORK: Final = "127.75.0."
"""Where relays dial from, and nobody else (Linux has all of 127/8 on its loopback): an address for each source, so that
packets tell whose they are."""
WATCHER_HOST: Final = f"{RELAY_NETWORK}250"
"""Where those dial from who watch a cluster past its relays."""
CLIENTS: Final = 0
"""The end of a link that stands for all clients; nodes count from 1."""
CHUNK_BYTES: Final = 1 << 16
WAITING_CHUNKS_MAX: Final = 64
"""Of one direction of one connection; behind them the sender waits."""
PIECE_S: Final = 0.1
"""A link of limited bandwidth carries pieces that take so long, and not all of a chunk at its end."""
CALL_S: Final = 10.0
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of a socket whose close is a reset."""
_TCP_LISTEN: Final = "0A"
_TCP_ESTABLISHED: Final = 1
_MAPPED: Final = "0000000000000000FFFF0000"
"""Before an IPv4 address in an IPv6 one (::ffff:0:0/96), as /proc/net/tcp6 has it on a little-endian machine."""
_T = TypeVar("_T")


class Link(NamedTuple):
    """One direction between two nodes, or between a node and the clients."""

    source: int
    target: int


def relay_host(source: int) -> str:
    """The address from which relays dial for a node, or for clients."""
    return f"{RELAY_NETWORK}{1 + source}"


class Passage(StrEnum):
    """What becomes of bytes on a link."""

    OPEN = "open"
    STALLED = "stalled"
    """They wait, and come when it ends, as TCP's retransmissions do; no connection is made."""
    HALF_OPEN = "half-open"
    """They are taken and never come; when it ends, the connections are reset."""
    RESET = "reset"
    """Connections are reset, those that are made meanwhile, too."""


@dataclass(frozen=True)
class Condition:
    """What one fault makes of a link."""

    passage: Passage = Passage.OPEN
    latency_s: float = 0.0
    jitter_s: float = 0.0
    """Added to the latency, evenly drawn; bytes of one connection stay in order."""
    bytes_per_s: float = 0.0
    """Of each connection; 0: no limit."""

    @property
    def is_late(self) -> bool:
        return bool(self.latency_s or self.jitter_s)


WHOLE: Final = Condition()
_WORST_FIRST: Final = (Passage.RESET, Passage.STALLED, Passage.HALF_OPEN, Passage.OPEN)


def combined(conditions: Collection[Condition]) -> Condition:
    """How a link is that several faults hurt at once: the worst passage, all delays, the narrowest bandwidth."""
    return Condition(
        min((one.passage for one in conditions), key=_WORST_FIRST.index, default=Passage.OPEN),
        sum(one.latency_s for one in conditions),
        sum(one.jitter_s for one in conditions),
        min((one.bytes_per_s for one in conditions if one.bytes_per_s), default=0.0),
    )


@dataclass
class Traffic:
    """What a link has carried since the relays began."""

    connections: int = 0
    """Made by its source."""
    passed_bytes: int = 0
    hurt: int = 0
    """Chunks that a condition held up, delayed or swallowed, and connections that it kept from being made."""


@dataclass
class _State:
    """A link now."""

    condition: Condition = WHOLE
    """Of all its faults together."""
    faults: dict[object, Condition] = field(default_factory=dict)
    """By owner."""
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set unless it is stalled."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, when it becomes another."""
    traffic: Traffic = field(default_factory=Traffic)
    hurt_by: dict[object, int] = field(default_factory=dict)
    """By owner: how much of what was hurt is its fault's, as long as that lasts."""

    def has(self, passage: Passage) -> bool:
        """Whether any fault does that to it."""
        return any(one.passage is passage for one in self.faults.values())

    def become(self, owner: object, condition: Condition) -> None:
        """One fault's part of it is so from now on; `WHOLE` ends it."""
        if condition == WHOLE:
            self.faults.pop(owner, None)
            self.hurt_by.pop(owner, None)
        else:
            self.faults[owner] = condition
        self.condition = combined(self.faults.values())
        self.changed.set()
        self.changed = asyncio.Event()
        if self.condition.passage is Passage.STALLED:
            self.is_open.clear()
        else:
            self.is_open.set()

    def hurt(self, is_to_blame: Callable[[Condition], object]) -> None:
        """Notes that something was held up, by those faults."""
        self.traffic.hurt += 1
        for owner, condition in self.faults.items():
            if is_to_blame(condition):
                self.hurt_by[owner] = self.hurt_by.get(owner, 0) + 1

    def hurt_as(self, passage: Passage) -> None:
        """Notes that a fault with this passage let nothing through."""
        self.hurt(lambda condition: condition.passage is passage)


class Relays:
    """The relays, on an event loop in a thread of its own. Ports are fixed once `relay` has returned."""

    def __init__(
        self, pid_of: Callable[[int], int | None], node_ids: Iterable[int], *, seed: int | None = None
    ) -> None:
        """`pid_of` gives the process of a node now, or None. `seed` is for the jitter."""
        self._pid_of = pid_of
        self._node_ids = tuple(node_ids)
        self._rng = random.Random(seed)
        self._links: dict[Link, _State] = {}
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], _Connection | None] = {}
        self.ports: dict[int, set[int]] = {}
        """By node: its ports before which relays stand."""
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends all connections and relays."""
        if self._loop.is_closed():
            return
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_S)
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)

    # -- what experiments and tests do

    def relay(self, node_id: int, port: int, *, clients: bool = False, source: int | None = None) -> int:
        """Starts a relay before a port of a node, which its peers dial, or its clients; returns the port to dial.
        `source`: the one node that dials it, where all nodes are one process."""
        self.ports.setdefault(node_id, set()).add(port)
        return self._call(self._listen(node_id, port, CLIENTS if clients else source))

    def impose(self, condition: Condition, links: Iterable[Link], owner: object = None) -> Traffic:
        """The owner's fault makes this of each of the links from when this returns; what it made of them before is
        over, and what other owners make of them stays. Returns what they all had carried by then."""
        chosen = list(links)

        async def impose() -> Traffic:
            before = self._sum(chosen)
            for link in chosen:
                self._become(link, owner, condition)
            return before

        return self._call(impose())

    def lift(self, links: Iterable[Link], owner: object = None) -> None:
        """The owner's fault is over; what waited for it alone passes first."""
        self.impose(WHOLE, links, owner)

    def cut(self, *links: Link) -> None:
        """Nothing passes any more when this returns."""
        self.impose(Condition(Passage.STALLED), links)

    def heal(self) -> None:
        """Every fault of every link is over: all pass everything again, what has waited first."""

        async def heal() -> None:
            for link, state in self._links.items():
                for owner in list(state.faults):
                    self._become(link, owner, WHOLE)

        self._call(heal())

    def hurt_by(self, owner: object, links: Iterable[Link]) -> int:
        """How often the owner's fault held up, delayed or swallowed something on these links since it began."""
        chosen = list(links)

        async def hurt() -> int:
            return sum(self._state(link).hurt_by.get(owner, 0) for link in chosen)

        return self._call(hurt())

    def are_shut(self, links: Iterable[Link]) -> bool:
        """Whether some fault lets nothing through on any of these links."""
        chosen = list(links)

        async def shut() -> bool:
            return any(self._state(link).condition.passage is not Passage.OPEN for link in chosen)

        return self._call(shut())

    def around(self, node_id: int) -> tuple[list[Link], list[Link]]:
        """All links from a node to others, and all to it; clients' are not among them."""
        others = [other for other in self._node_ids if other != node_id]
        return [Link(node_id, other) for other in others], [Link(other, node_id) for other in others]

    def traffic(self, links: Iterable[Link]) -> Traffic:
        """Of all these links together."""
        chosen = list(links)

        async def sums() -> Traffic:
            return self._sum(chosen)

        return self._call(sums())

    def _sum(self, links: Iterable[Link]) -> Traffic:
        parts = [self._state(link).traffic for link in links]
        return Traffic(
            sum(part.connections for part in parts),
            sum(part.passed_bytes for part in parts),
            sum(part.hurt for part in parts),
        )

    @property
    def node_ports(self) -> set[int]:
        """The ports of all nodes before which relays stand."""
        return set().union(*self.ports.values())

    @property
    def relayed(self) -> int:
        """Connections between nodes that were made."""
        nodes = self._node_ids
        return self.traffic(Link(one, other) for one in nodes for other in nodes).connections

    # -- the relays

    def _state(self, link: Link) -> _State:
        state = self._links.get(link)
        if state is None:
            state = self._links[link] = _State()
            state.is_open.set()
        return state

    def _become(self, link: Link, owner: object, condition: Condition) -> None:
        state = self._state(link)
        had_swallowed = state.has(Passage.HALF_OPEN)
        state.become(owner, condition)
        # Whose bytes were swallowed can never go on.
        if condition.passage is Passage.RESET or (had_swallowed and not state.has(Passage.HALF_OPEN)):
            for connection in self._connections.values():
                if connection is not None and link in connection.links:
                    connection.reset()
                    state.hurt_as(Passage.RESET)

    async def _listen(self, node_id: int, port: int, dialler: int | None) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections[task] = None
            try:
                # One side is gone, and `_carry` has told the other; or the relays close, which asyncio would report.
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    source = self._owner(writer) if dialler is None else dialler
                    if source is not None:  # else the process is gone already
                        await self._carry(task, Link(source, node_id), port, reader, writer)
            finally:
                del self._connections[task]
                writer.close()

        server = await asyncio.start_server(accept, LOCALHOST, 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _carry(
        self,
        task: asyncio.Task[None],
        link: Link,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """One connection, until both sides have ended it or one has broken."""
        there, back = self._state(link), self._state(Link(link.target, link.source))
        connection = self._connections[task] = _Connection((link, Link(link.target, link.source)), [writer])
        for state in (there, back):
            if not state.is_open.is_set():
                state.hurt_as(Passage.STALLED)
                await state.is_open.wait()
        if not _is_established(writer):
            return  # who dialled has given up meanwhile: nobody's packets would have come through
        for state in (there, back):
            if state.condition.passage is Passage.RESET:
                state.hurt_as(Passage.RESET)
                connection.reset()
                return
        far_reader, far_writer = await asyncio.open_connection(
            LOCALHOST, port, local_addr=(relay_host(link.source), 0)
        )
        connection.writers.append(far_writer)
        there.traffic.connections += 1
        try:
            async with asyncio.TaskGroup() as group:
                for state, source, target in ((there, reader, far_writer), (back, far_reader, writer)):
                    waiting: _Waiting = asyncio.Queue(WAITING_CHUNKS_MAX)
                    group.create_task(self._take(state, source, waiting))
                    group.create_task(self._pass_on(state, waiting, target))
        except* OSError:
            connection.reset()  # a reset goes on to the other side
        finally:
            far_writer.close()

    async def _take(self, state: _State, reader: asyncio.StreamReader, waiting: _Waiting) -> None:
        """Reads what a source sends and says when it is due; its end is a chunk like any other."""
        loop, due_s, data = asyncio.get_running_loop(), 0.0, b" "
        while data:
            data = await reader.read(CHUNK_BYTES)
            condition = state.condition
            if condition.is_late:
                delay_s = condition.latency_s + self._rng.uniform(0.0, condition.jitter_s)
                due_s = max(due_s, loop.time() + delay_s)
                state.hurt(lambda one: one.is_late)
            await waiting.put((due_s, data))

    async def _pass_on(self, state: _State, waiting: _Waiting, writer: asyncio.StreamWriter) -> None:
        loop, data = asyncio.get_running_loop(), b" "
        while data:
            due_s, data = await waiting.get()
            if (early_s := due_s - loop.time()) > 0:
                await asyncio.sleep(early_s)
            left = memoryview(data)
            while left:
                rate = state.condition.bytes_per_s
                piece = left[: max(1, int(rate * PIECE_S))] if rate else left
                await self._carried(state, len(piece))
                await self._hand_on(state, piece, writer)
                left = left[len(piece) :]
        await self._hand_on(state, b"", writer)

    async def _carried(self, state: _State, left_bytes: float) -> None:
        """Waits as long as the link needs for so many bytes; its bandwidth may change or be whole again meanwhile."""
        loop = asyncio.get_running_loop()
        if state.condition.bytes_per_s:
            state.hurt(lambda one: one.bytes_per_s)
        while left_bytes > 0 and (rate := state.condition.bytes_per_s):
            began_s = loop.time()
            try:
                async with asyncio.timeout(left_bytes / rate):
                    await state.changed.wait()
            except TimeoutError:
                return
            left_bytes -= rate * (loop.time() - began_s)

    async def _hand_on(self, state: _State, data: bytes | memoryview, writer: asyncio.StreamWriter) -> None:
        """Bytes, or the end if there are none, to the other side, as the link's passage lets them."""
        if not state.is_open.is_set():
            state.hurt_as(Passage.STALLED)
            await state.is_open.wait()
        if state.condition.passage is Passage.HALF_OPEN:
            state.hurt_as(Passage.HALF_OPEN)
        elif data and writer.transport.is_closing():
            raise ConnectionResetError("the side that it is for is gone")
        elif data:
            state.traffic.passed_bytes += len(data)
            writer.write(data)
            await writer.drain()
        elif not writer.transport.is_closing():  # else the other way has ended with a reset
            writer.write_eof()

    def _owner(self, writer: asyncio.StreamWriter) -> int | None:
        """The node whose process holds the other end of a connection."""
        inode = _socket_inode(writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
        for node_id in self._node_ids:
            pid = self._pid_of(node_id)
            if pid is not None and f"socket:[{inode}]" in _open_files(pid):
                return node_id
        return None


_Waiting = asyncio.Queue[tuple[float, bytes]]
"""Chunks and when they are due; the empty one is the end."""


@dataclass
class _Connection:
    """Both sides of one relayed connection."""

    links: tuple[Link, Link]
    writers: list[asyncio.StreamWriter]

    def reset(self) -> None:
        """Both sides are told so at once, whatever is still on its way."""
        for writer in self.writers:
            end = writer.get_extra_info("socket")
            if end is not None and not writer.transport.is_closing():
                with contextlib.suppress(OSError):  # the other side was faster
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


# -- what the kernel says of connections


def _is_established(writer: asyncio.StreamWriter) -> bool:
    """Whether the other side has not ended its connection, whatever it had sent before."""
    end = writer.get_extra_info("socket")
    if end is None or writer.transport.is_closing():
        return False
    return bool(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_ESTABLISHED)


def _connections() -> Iterator[tuple[str, str, str, str]]:
    """This host's connections over IPv4 as /proc/net/tcp has them: local end, remote end, state, inode. Both ends are
    `ADDRESS:PORT` in hexadecimal. The ends of programs whose sockets are for IPv6, too (Java's), are in another file.
    """
    for file, prefix in (("tcp", ""), ("tcp6", _MAPPED)):
        with contextlib.suppress(FileNotFoundError):  # a host without IPv6
            for line in Path("/proc/net", file).read_text().splitlines()[1:]:
                _, local, remote, state, *others = line.split(None, 10)
                if local.startswith(prefix) and remote.startswith(prefix):
                    yield local.removeprefix(prefix), remote.removeprefix(prefix), state, others[5]


def _end(address: str, port: int) -> str:
    """An end of a connection, as the kernel writes it."""
    return f"{struct.unpack('=I', socket.inet_aton(address))[0]:08X}:{port:04X}"


_RELAY_ENDING: Final = _end(f"{RELAY_NETWORK}0", 0)[2:8]
"""Of all addresses in the network of relays: its bytes but for the last, which comes first."""


def connections_around(node_ports: Collection[int]) -> set[tuple[int, int]]:
    """Connections with these ports of nodes, open ones and those that the kernel still remembers, which go around the
    relays: (port of the node, port of the other end). Those that were there before the nodes were are none of theirs.
    """
    ports = {_end(LOCALHOST, port): port for port in node_ports}
    return {
        (ports[near], int(far[9:], 16))
        for local, remote, state, _ in _connections()
        for near, far in ((local, remote), (remote, local))
        if near in ports and far[2:8] != _RELAY_ENDING and state != _TCP_LISTEN
    }


def _socket_inode(local_port: int, remote_port: int) -> str | None:
    """The inode of this host's socket with these two ports on 127.0.0.1."""
    ends = (_end(LOCALHOST, local_port), _end(LOCALHOST, remote_port))
    return next((inode for *found, _, inode in _connections() if tuple(found) == ends), None)


def _open_files(pid: int) -> Iterator[str]:
    """What a process's descriptors refer to; nothing of a process that has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                yield os.readlink(entry.path)
