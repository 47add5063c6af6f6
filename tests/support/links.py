"""The network between real node processes, as one that can be cut: a TCP relay before each listener that nodes dial.

A node advertises its relay's port to the other nodes and listens on another; clients reach it directly, so that a
node that is cut off from its peers still has clients, as in the worst of real partitions. Who dialled is found by
the process that holds the other end of the connection (Linux, no privileges). A link is a pair (from, to) and
carries bytes one way: while it is cut, bytes wait and are delivered when it heals, as TCP's retransmissions do,
and no connection is made between the two. Plain Linux without network namespaces is enough, also in a container.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

CHUNK_BYTES = 1 << 16
START_S = 10.0


class Link(NamedTuple):
    """One direction between two nodes."""

    source: int
    target: int


class Links:
    """The relays, on an event loop in a thread of its own. Ports are fixed once `relay` has returned."""

    def __init__(self, pid_of: Callable[[int], int | None], node_ids: Iterable[int]) -> None:
        """`pid_of` gives the process of a node now, or None."""
        self._pid_of = pid_of
        self._node_ids = tuple(node_ids)
        self._loop = asyncio.new_event_loop()
        self._open: dict[Link, asyncio.Event] = {}
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self.relayed = 0
        """Connections between nodes that were made."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends all connections and relays."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_S)
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_S)

    # -- what a test does

    def relay(self, node_id: int, port: int) -> int:
        """Starts a relay before a port of a node; returns the port that other nodes have to dial."""
        return int(self._call(self._listen(node_id, port)))

    def cut(self, *links: Link) -> None:
        """Nothing passes any more when this returns."""

        async def close_gates() -> None:
            for link in links:
                self._gate(link).clear()

        self._call(close_gates())

    def heal(self) -> None:
        """Everything passes again, what has waited first."""

        async def open_gates() -> None:
            for gate in self._open.values():
                gate.set()

        self._call(open_gates())

    def around(self, node_id: int) -> tuple[list[Link], list[Link]]:
        """All links from a node, and all to it."""
        others = [other for other in self._node_ids if other != node_id]
        return [Link(node_id, other) for other in others], [Link(other, node_id) for other in others]

    # -- the relays

    def _gate(self, link: Link) -> asyncio.Event:
        gate = self._open.get(link)
        if gate is None:
            gate = self._open[link] = asyncio.Event()
            gate.set()
        return gate

    async def _listen(self, node_id: int, port: int) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections.add(task)
            try:
                await self._carry(node_id, port, reader, writer)
            except OSError:
                pass  # one side is gone, and `_carry` has told the other
            finally:
                self._connections.discard(task)
                writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _carry(
        self, target: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection, until both sides have ended it or one has broken."""
        source = self._owner(writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
        if source is None:
            return  # the process is gone already
        there, back = self._gate(Link(source, target)), self._gate(Link(target, source))
        await there.wait()
        await back.wait()
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        self.relayed += 1
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, far_writer, there))
                group.create_task(_pump(far_reader, writer, back))
        except* OSError:
            pass  # a reset goes on to the other side as an end
        finally:
            far_writer.close()

    def _owner(self, its_port: int, our_port: int) -> int | None:
        """The node whose process holds the other end of a connection."""
        inode = _socket_inode(its_port, our_port)
        for node_id in self._node_ids:
            pid = self._pid_of(node_id)
            if pid is not None and f"socket:[{inode}]" in _open_files(pid):
                return node_id
        return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    while data := await reader.read(CHUNK_BYTES):
        await gate.wait()
        writer.write(data)
        await writer.drain()
    await gate.wait()  # its end is a segment like any other
    if writer.can_write_eof():
        writer.write_eof()


def _socket_inode(local_port: int, remote_port: int) -> str | None:
    """The inode of this host's socket with these two ports on 127.0.0.1."""
    loopback = "0100007F"
    ends = (f"{loopback}:{local_port:04X}", f"{loopback}:{remote_port:04X}")
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if (fields[1], fields[2]) == ends:
            return fields[9]
    return None


def _open_files(pid: int) -> Iterator[str]:
    """What a process's descriptors refer to; nothing of a process that has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                yield os.readlink(entry.path)
