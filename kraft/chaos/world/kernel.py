"""The TCP of a simulated host: its ports, and what its kernel does without a process.

As on Linux, the kernel completes handshakes and takes in data (up to a window) while the process is
paused; answers data for a closed connection with a reset; is silent while the host has no power and
answers the retransmissions of its peers once it is back; closes all connections of a killed process.
Connections are in `kraft.chaos.world.endpoint`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from kraft.chaos.world.endpoint import Address, Endpoint, Listener
from kraft.chaos.world.network import Network

ANY_ADDRESS = "0.0.0.0"
LOOPBACK = "127.0.0.1"
CONNECT_TIMEOUT_S = 127.0
REBOOT_RETRANSMIT_S = 0.2
SYN_RETRY_S = 1.0
EPHEMERAL_PORTS = range(40_000, 61_000)


class Kernel:
    """The sockets of one host."""

    def __init__(self, network: Network, address: str) -> None:
        self.network = network
        self.address = address
        self.up = True
        self.listeners: dict[Address, Listener] = {}
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

    def listen(self, host: str, port: int, listener: Listener) -> Address:
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

    def unlisten(self, address: Address, listener: Listener) -> None:
        """Frees the port, if it is still this listener's."""
        if self.listeners.get(address) is listener:
            del self.listeners[address]

    def _listener_for(self, target: Address) -> Listener | None:
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

    def on_syn(self, client: Endpoint) -> None:
        """A handshake arrived."""
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
