"""The TCP of a simulated host: its ports, its ends of connections, and what its kernel does without a process.

As on Linux, the kernel completes handshakes and takes in data (up to a window) while the process is
paused; answers data for a closed connection with a reset; is silent while the host has no power and
answers the retransmissions of its peers once it is back; closes all connections of a killed process.
`kraft.chaos.world.transport` is the process's side of a connection, `kraft.chaos.world.network` the way between two
kernels.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from heapq import heappush
from typing import Protocol

from kraft.chaos.world.network import Latency, Link, Network, Stream
from kraft.chaos.world.scheduler import KernelEvent

Address = tuple[str, int]

ANY_ADDRESS = "0.0.0.0"
LOOPBACK = "127.0.0.1"
CONNECT_TIMEOUT_S = 127.0
REBOOT_RETRANSMIT_S = 0.2
SYN_RETRY_S = 1.0
EPHEMERAL_PORTS = range(40_000, 61_000)
WINDOW_BYTES = 256 * 1024
"""Sent and not yet read by the process at the far end, at most, per direction of a connection."""

_NOWHERE = Link(Latency(0.0, 0.0))
"""The link of a silent connection: held for ever, and nothing of it is kept."""
_NOWHERE.stop(0.0)
_NOWHERE.held = deque(maxlen=0)


class ListeningSocket(Protocol):
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
        self.listener: ListeningSocket | None = None
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


class Kernel:
    """The sockets of one host."""

    def __init__(self, network: Network, address: str) -> None:
        self.network = network
        self.address = address
        self.up = True
        self.listeners: dict[Address, ListeningSocket] = {}
        self.endpoints: dict[Endpoint, None] = {}
        self._unanswered_syns: dict[Endpoint, None] = {}
        self._unanswered_data: dict[Endpoint, None] = {}
        self._next_port = EPHEMERAL_PORTS.start
        network.kernels[address] = self

    # -- ports

    def ephemeral_port(self) -> int:
        """A port that nothing on this host uses."""
        taken = {port for _, port in self.listeners}
        taken.update(endpoint.local[1] for endpoint in self.endpoints)
        for _ in EPHEMERAL_PORTS:
            port = self._next_port
            self._next_port = port + 1 if port + 1 in EPHEMERAL_PORTS else EPHEMERAL_PORTS.start
            if port not in taken:
                return port
        raise OSError(errno.EADDRNOTAVAIL, f"no ephemeral port is free on {self.address}")

    def listen(self, host: str, port: int, listener: ListeningSocket) -> Address:
        """Binds. Port 0 takes an ephemeral one. Raises OSError EADDRINUSE, EADDRNOTAVAIL."""
        if host not in (ANY_ADDRESS, LOOPBACK, self.address):
            raise OSError(errno.EADDRNOTAVAIL, f"cannot assign requested address {host}:{port}")
        if port == 0:
            port = self.ephemeral_port()
        for bound_host, bound_port in self.listeners:
            if bound_port == port and (bound_host == host or ANY_ADDRESS in (bound_host, host)):
                raise OSError(errno.EADDRINUSE, f"address already in use: {host}:{port}")
        self.listeners[host, port] = listener
        return host, port

    def unlisten(self, address: Address, listener: ListeningSocket) -> None:
        """Frees the port, if it is still this listener's."""
        if self.listeners.get(address) is listener:
            del self.listeners[address]

    def _listener_for(self, target: Address) -> ListeningSocket | None:
        return self.listeners.get(target) or self.listeners.get((ANY_ADDRESS, target[1]))

    # -- connections

    def connect(self, target: Address, on_connected: Callable[[OSError | None], None]) -> Endpoint:
        """Starts a handshake; `on_connected` gets None, or the error, when it is over."""
        host, port = target
        if host in (LOOPBACK, ANY_ADDRESS):
            host = LOOPBACK
        far_address = self.address if host == LOOPBACK else host
        local_host = LOOPBACK if host == LOOPBACK else self.address
        endpoint = Endpoint(self, (local_host, self.ephemeral_port()), (host, port), far_address)
        endpoint.on_connected = on_connected
        far = self.network.kernels.get(far_address)
        if far is not None:
            self.network.transmit(endpoint.link, endpoint, far.on_syn, endpoint)
        endpoint.connect_timer = self.network.scheduler.call_kernel(
            CONNECT_TIMEOUT_S, endpoint.on_connect_timeout
        )
        return endpoint

    def on_syn(self, client: Stream) -> None:
        """A handshake arrived."""
        assert isinstance(client, Endpoint)
        if not self.up:
            self._unanswered_syns[client] = None
            return
        if client.dead:
            return
        back = self.network.link(self.address, client.kernel.address)
        listener = self._listener_for(client.remote)
        if listener is None or not listener.is_serving():
            self.network.transmit(back, None, client.on_refused)
        elif listener.backlog_full(sum(e.listener is listener for e in self.endpoints)):
            self.network.scheduler.call_kernel(SYN_RETRY_S, self.on_syn, client)
        else:
            endpoint = Endpoint(self, client.remote, client.local, client.kernel.address)
            endpoint.peer, client.peer = client, endpoint
            endpoint.listener = listener
            self.network.transmit(back, endpoint, client.on_syn_ack)

    def on_data_without_power(self, endpoint: Endpoint) -> None:
        """The peer will retransmit until the host is back and does not know the connection."""
        self._unanswered_data[endpoint] = None

    def acknowledge_to(self, far_address: str) -> None:
        """The way to `far_address` healed: what was read here meanwhile opens its windows."""
        for endpoint in list(self.endpoints):
            if endpoint.far_address == far_address and not endpoint.link.blocked:
                endpoint.acknowledge()

    def reset_connections(self, far_address: str) -> int:
        """Both ends of every connection with `far_address` see a reset. Returns how many there were."""
        connections = self._connections_with(far_address)
        for endpoint in connections:
            peer = endpoint.peer
            endpoint.on_reset()
            if peer is not None:
                peer.on_reset()
        return len(connections)

    def silence_connections(self, far_address: str, draw_give_up_s: Callable[[], float]) -> int:
        """Nothing of what is sent from now on over a connection with `far_address` arrives; each end
        gives up after its own time. Returns how many connections there were."""
        silenced = 0
        for endpoint in self._connections_with(far_address):
            if endpoint.peer is not None and not endpoint.silent:
                silenced += 1
                for end in (endpoint, endpoint.peer):
                    end.silence()
                    self.network.scheduler.call_kernel(draw_give_up_s(), end.on_gave_up)
        return silenced

    def give_up_silent_connections(self, far_address: str) -> None:
        """What is silent towards `far_address` fails now."""
        for endpoint in self._connections_with(far_address):
            if endpoint.silent:
                endpoint.on_gave_up()

    def peers(self) -> list[str]:
        """The addresses with which it has connections, in the order of the oldest."""
        return list(dict.fromkeys(endpoint.far_address for endpoint in self.endpoints))

    def _connections_with(self, far_address: str) -> list[Endpoint]:
        return [endpoint for endpoint in self.endpoints if endpoint.far_address == far_address]

    # -- the life of the host

    def process_killed(self) -> None:
        """Closes everything; peers get resets."""
        self.listeners.clear()
        for endpoint in list(self.endpoints):
            endpoint.kill()

    def power_lost(self) -> None:
        """Everything is forgotten, nobody is told."""
        self.up = False
        self.listeners.clear()
        for endpoint in list(self.endpoints):
            endpoint.drop()

    def power_restored(self) -> None:
        """The retransmissions of peers meet a kernel that knows nothing of their connections."""
        if self.up:
            return
        self.up = True
        call_kernel = self.network.scheduler.call_kernel
        for client in self._unanswered_syns:
            call_kernel(REBOOT_RETRANSMIT_S, self.on_syn, client)
        for endpoint in self._unanswered_data:
            call_kernel(REBOOT_RETRANSMIT_S, endpoint.send_reset)
        self._unanswered_syns.clear()
        self._unanswered_data.clear()
