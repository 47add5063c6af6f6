"""Where the cluster is: `HOST:PORT[,…]` of --bootstrap-server, and what counts when the option is not given.

Every command reads it here, for our client and for librdkafka. Without the option the brokers are those of
KRAFT_BOOTSTRAP_SERVERS; else of the profile that KRAFT_PROFILE names; else all nodes of the cluster in `./.kraft`, dead
ones included; else of the profile in use; else 127.0.0.1:9092.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
from pathlib import Path

from kraft.cli.shared.command_config import PLAIN, CommandConfig, Servers, read_command_config
from kraft.cli.shared.output import console
from kraft.cli.shared.profiles import PROFILE_VARIABLE, existing_profile, profile_in_use
from kraft.local_cluster.identities import CLIENT_FILE
from kraft.local_cluster.spec import DEFAULT_DIR, STATE_FILE, ClusterSpec, node_config, node_pid, read_spec
from kraft.user_error import EXIT_USAGE, UserError

BOOTSTRAP_VARIABLE = "KRAFT_BOOTSTRAP_SERVERS"
FALLBACK_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_BOOTSTRAP_HELP = (
    f"{BOOTSTRAP_VARIABLE}, else {PROFILE_VARIABLE}, else the cluster in ./{DEFAULT_DIR}, else the profile in use,"
    f" else {FALLBACK_BOOTSTRAP}"
)
MAX_PORT = 65535
LOOPBACK = "127.0.0.1"
"""Where the nodes of a local cluster listen."""
PROBE_S = 1.0
_PORT = re.compile(r"0*[0-9]{1,5}")
_HOST = re.compile(r"[A-Za-z0-9._-]+")

HostPort = tuple[str, int]


def default_bootstrap() -> Servers:
    """The brokers to ask when the command line names none. Raises UserError."""
    if servers := os.environ.get(BOOTSTRAP_VARIABLE):
        parse_bootstrap(servers, BOOTSTRAP_VARIABLE)
        return Servers(servers)
    if name := os.environ.get(PROFILE_VARIABLE):
        return servers_of(read_command_config(existing_profile(name)))
    cluster = cluster_of_this_folder()
    if cluster is None:
        in_use = profile_in_use()
        if in_use is not None:
            return servers_of(read_command_config(existing_profile(in_use)))
        return Servers(FALLBACK_BOOTSTRAP)
    if all(node_pid(DEFAULT_DIR, node.id) is None for node in cluster.nodes):
        _refuse_strangers(cluster)
        console.print(
            f"[dim]the cluster in {DEFAULT_DIR} does not run; `kraft cluster start` starts it[/dim]"
        )
    return Servers.of(cluster.bootstrap_servers(), _config_of(cluster))


def servers_of(config: CommandConfig) -> Servers:
    """Those of a file that says where its brokers are; this host's where it does not."""
    return Servers.of(config.servers or FALLBACK_BOOTSTRAP, config)


def _config_of(cluster: ClusterSpec) -> CommandConfig:
    """How clients speak to the cluster in `./.kraft`: as its admin, where it is secured."""
    if cluster.identities is None:
        return PLAIN
    return read_command_config(DEFAULT_DIR / CLIENT_FILE)


def _refuse_strangers(cluster: ClusterSpec) -> None:
    """A cluster that does not run keeps its ports, and another may have them by now: no command must reach that one
    unasked. Raises UserError."""
    for node in cluster.nodes:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, node.client_port), PROBE_S):
            raise UserError(
                f"the cluster in {DEFAULT_DIR} does not run, and another process listens at {LOOPBACK}:"
                f"{node.client_port}: name it with --bootstrap-server or {BOOTSTRAP_VARIABLE} if that is meant"
            )


def cluster_of_this_folder() -> ClusterSpec | None:
    """The cluster in `./.kraft`; None if there is none. Raises UserError for one that cannot be read."""
    try:
        return read_spec(DEFAULT_DIR) if (DEFAULT_DIR / STATE_FILE).exists() else None
    except OSError as error:
        reason = f"cannot look into {DEFAULT_DIR}: {error.strerror}"
    except UserError as error:
        reason = str(error)
    raise UserError(f"{reason}. Or name the brokers to ask, with --bootstrap-server or {BOOTSTRAP_VARIABLE}")


def config_of_this_folder(cluster_id: str | None = None) -> Path | None:
    """The server.properties of a node of the cluster in `./.kraft`, which has the secret of its controllers; None where
    there is no cluster, or, if `cluster_id` is given, none that is known to be this one. Raises UserError."""
    try:
        cluster = cluster_of_this_folder()
    except UserError:
        if cluster_id is None:
            raise
        return None
    if cluster is None or cluster_id not in (None, cluster.cluster_id):
        return None
    return node_config(DEFAULT_DIR, cluster.nodes[0].id)


def parse_bootstrap(text: str, option: str = "--bootstrap-server") -> list[HostPort]:
    """The addresses in such a text; of an IPv6 address without its brackets. Empty parts are passed over, as Kafka
    does. Raises UserError for anything else, and where there is none."""
    addresses = []
    for part in [part for part in map(str.strip, text.split(",")) if part] or [text]:
        host, _, port = part.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
            is_host = _is_ipv6(host)
        else:
            is_host = _is_name(host) or _is_ipv6(host)
        if not is_host or not _PORT.fullmatch(port) or not 0 < int(port[-5:]) <= MAX_PORT:
            raise UserError(f"{option} takes HOST:PORT[,…], not {text!r}", EXIT_USAGE)
        addresses.append((host, int(port[-5:])))
    return addresses


def address_text(host: str, port: int) -> str:
    """One address as everybody takes it: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bootstrap_text(text: str) -> str:
    """The same addresses for librdkafka, which would try whatever it is given. Raises UserError."""
    return ",".join(address_text(host, port) for host, port in parse_bootstrap(text))


def _is_name(host: str) -> bool:
    """Whether a resolver takes it: an IPv4 address, or a name, of any script."""
    try:
        return _HOST.fullmatch(host.encode("idna").decode()) is not None
    except UnicodeError:
        return False


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
