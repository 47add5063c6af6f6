"""One end of a simulated TCP connection, as the kernel of its host sees it.

It outlives pauses of its process: handshakes complete and data arrives, up to a window of bytes that the
process has not read. `kraft.chaos.world.transport` is the process's side of it.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from heapq import heappush
from typing import TYPE_CHECKING, Protocol

from kraft.chaos.world.network import Latency, Link
from kraft.chaos.world.scheduler import KernelEvent

if TYPE_CHECKING:
    from kraft.chaos.world.kernel import Kernel

Address = tuple[str, int]

_NOWHERE = Link(Latency(0.0, 0.0))
"""The link of a silent connection: held for ever, and nothing of it is kept."""
_NOWHERE.stop(0.0)
_NOWHERE.held = deque(maxlen=0)

WINDOW_BYTES = 256 * 1024
"""Sent and not yet read by the process at the far end, at most, per direction of a connection."""


class Listener(Protocol):
    """A listening socket of a process."""

    closed: bool

    def is_serving(self) -> bool:
        """False between binding and listening, when connections are refused."""

    def backlog_full(self, half_open: int) -> bool:
        """True if the accept queue has no room beside `half_open` connections that are on their way."""

    def enqueue(self, endpoint: Endpoint) -> None:
        """A connection is established and waits to be accepted."""


class EndpointOwner(Protocol):
    """The process's side of a connection. The kernel tells it; it runs no protocol code right then."""

    def readable(self) -> None: ...

    def writable(self) -> None: ...


class Endpoint:
    """One end of a TCP connection, in the kernel."""

    __slots__ = (
        "_fin_sent",
        "_network",
        "_unacknowledged_reads",
        "connect_timer",
        "dead",
        "direction",
        "error",
        "far_address",
        "fin_received",
        "in_flight_bytes",
        "kernel",
        "last_arrival_s",
        "link",
        "listener",
        "local",
        "number",
        "on_connected",
        "owner",
        "peer",
        "received",
        "remote",
    )

    def __init__(self, kernel: Kernel, local: Address, remote: Address, far_address: str) -> None:
        self.kernel = kernel
        self.local = local
        self.remote = remote
        self.far_address = far_address
        self._network = kernel.network
        self.link = kernel.network.link(kernel.address, far_address)
        self.number = kernel.network.scheduler.next_serial()
        self.direction = f"{remote[0]}:{remote[1]}>{local[0]}:{local[1]}"
        self.peer: Endpoint | None = None
        self.owner: EndpointOwner | None = None
        self.listener: Listener | None = None
        self.on_connected: Callable[[OSError | None], None] | None = None
        self.connect_timer: KernelEvent | None = None
        self.received: deque[bytes | memoryview] = deque()
        self.fin_received = False
        self.in_flight_bytes = 0
        self.last_arrival_s = 0.0
        self.dead = False
        self.error: OSError | None = None
        self._unacknowledged_reads = 0
        self._fin_sent = False
        kernel.endpoints[self] = None

    # -- handshake

    def on_syn_ack(self) -> None:
        """The far kernel accepted."""
        if self.dead or self.on_connected is None:
            self.send_reset()
            return
        assert self.peer is not None
        self._note("connected", self.number, self.direction)
        self._network.transmit(self.link, self, self.peer.on_established)
        self._connected(None)

    def on_established(self) -> None:
        """The handshake is complete at the accepting side."""
        listener, self.listener = self.listener, None
        if self.dead or listener is None:
            return
        if listener.closed:
            self.kill()
        else:
            listener.enqueue(self)

    def on_refused(self) -> None:
        """Nobody listens there."""
        if not self.dead:
            self.drop()
            message = f"connect to {self.remote[0]}:{self.remote[1]} refused"
            self._connected(ConnectionRefusedError(errno.ECONNREFUSED, message))

    def on_connect_timeout(self) -> None:
        """The kernel gave up retransmitting."""
        self.connect_timer = None
        if self.on_connected is not None and not self.dead:
            self.drop()
            message = f"connect to {self.remote[0]}:{self.remote[1]} timed out"
            self._connected(TimeoutError(errno.ETIMEDOUT, message))

    def _connected(self, error: OSError | None) -> None:
        self._cancel_connect_timer()
        on_connected, self.on_connected = self.on_connected, None
        if on_connected is not None:
            on_connected(error)

    def _cancel_connect_timer(self) -> None:
        if self.connect_timer is not None:
            self.connect_timer.cancel()
            self.connect_timer = None
            self._network.scheduler.timer_cancelled()

    # -- data

    def send(self, data: bytes) -> None:
        """Sends `data`, which fits into `window_bytes`."""
        peer, network, link = self.peer, self._network, self.link
        assert peer is not None
        self.in_flight_bytes += len(data)
        if link.impeded:
            network.transmit(link, self, peer.on_data, data)
            return
        # As `Network.transmit` would: this is how nearly everything is sent.
        scheduler = network.scheduler
        random = network.random
        arrival_s = scheduler.now + link.min_s + link.span_s * random()
        if arrival_s < self.last_arrival_s:
            arrival_s = self.last_arrival_s
        self.last_arrival_s = arrival_s
        scheduler.order = order = scheduler.order + 1
        heappush(scheduler.heap, (arrival_s, order, peer.on_data, (data,)))

    def window_bytes(self) -> int:
        """How much may be sent now."""
        return WINDOW_BYTES - self.in_flight_bytes

    def send_fin(self) -> None:
        """No more data will come from here."""
        if not self._fin_sent and not self.dead and self.peer is not None:
            self._fin_sent = True
            self._network.transmit(self.link, self, self.peer.on_fin)

    def send_reset(self) -> None:
        """The peer's connection is void."""
        if self.peer is not None:
            self._network.transmit(self.link, self, self.peer.on_reset)

    def on_data(self, data: bytes) -> None:
        """Data arrived, in order."""
        if self.dead:
            if self.kernel.up:
                self.send_reset()
            else:
                self.kernel.on_data_without_power(self)
            return
        scheduler = self._network.scheduler
        if scheduler.trace.enabled:
            scheduler.trace.delivered(scheduler.now, self.number, self.direction, data)
        self.received.append(data)
        if self.owner is not None:
            self.owner.readable()

    def on_fin(self) -> None:
        """The peer will send no more."""
        if not self.dead:
            self._note("fin", self.number, self.direction)
            self.fin_received = True
            if self.owner is not None:
                self.owner.readable()

    def on_reset(self) -> None:
        """The connection is void; what was received before can still be read, as on Linux."""
        self._fail(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

    def _fail(self, error: OSError) -> None:
        if self.dead:
            return
        self._note(type(error).__name__, self.number, self.direction)
        self.drop()
        self.error = error
        self._connected(error)
        if self.owner is not None:
            self.owner.readable()
            self.owner.writable()

    @property
    def silent(self) -> bool:
        """Whether a middlebox has forgotten this connection."""
        return self.link is _NOWHERE

    def silence(self) -> None:
        """What is sent from here on a connection goes nowhere, acknowledgements and the end included."""
        self._note("silent", self.number, self.direction)
        self.link = _NOWHERE

    def on_gave_up(self) -> None:
        """The kernel has retransmitted in vain for too long."""
        self._fail(TimeoutError(errno.ETIMEDOUT, "connection timed out"))

    def read(self, max_bytes: int) -> bytes:
        """Takes up to `max_bytes` of what arrived; empty if nothing is there."""
        received = self.received
        if not received:
            return b""
        data = received.popleft()
        size = len(data)
        if received or size > max_bytes or type(data) is not bytes:
            received.appendleft(data)
            data = self._take(max_bytes)
            size = len(data)
        peer = self.peer
        if self.link.blocked_since_s is not None or self._unacknowledged_reads or peer is None:
            self._unacknowledged_reads += size
            if self.link.blocked_since_s is None:
                self.acknowledge()
            return data
        was_full = peer.in_flight_bytes >= WINDOW_BYTES  # otherwise nothing waits for room
        peer.in_flight_bytes -= size
        if was_full and peer.owner is not None:
            peer.owner.writable()
        return data

    def _take(self, max_bytes: int) -> bytes:
        """The first bytes of what was received, in however many pieces they came."""
        received = self.received
        parts: list[bytes | memoryview] = []
        size = 0
        while received and size < max_bytes:
            chunk = received.popleft()
            if size + len(chunk) > max_bytes:
                received.appendleft(memoryview(chunk)[max_bytes - size :])
                chunk = chunk[: max_bytes - size]
            parts.append(chunk)
            size += len(chunk)
        return b"".join(parts)

    def acknowledge(self) -> None:
        """Tells the peer that there is room again. Acknowledgements travel in no time."""
        read_bytes, self._unacknowledged_reads = self._unacknowledged_reads, 0
        peer = self.peer
        if read_bytes and peer is not None:
            was_full = peer.in_flight_bytes >= WINDOW_BYTES  # otherwise nothing waits for room
            peer.in_flight_bytes -= read_bytes
            if was_full and peer.owner is not None:
                peer.owner.writable()

    # -- the end

    def drop(self) -> None:
        """The kernel forgets the connection; nobody is told."""
        self.dead = True
        self._cancel_connect_timer()
        self.kernel.endpoints.pop(self, None)

    def kill(self) -> None:
        """Aborts: the peer gets a reset."""
        if not self.dead:
            self.drop()
            self.send_reset()

    def close(self) -> None:
        """Closes as Linux does: a reset if unread data is left, otherwise an orderly end."""
        if self.dead:
            return
        if self.received or self.peer is None:
            self.kill()
        else:
            self.send_fin()
            self.drop()

    def _note(self, *words: object) -> None:
        scheduler = self._network.scheduler
        scheduler.trace.note(scheduler.now, *words)
