"""What a local cluster is configured with: `cluster.json` in its folder, and each node's `server.properties`."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kraft.local_cluster.identities import LISTENER, Identities
from kraft.local_cluster.node_process import live_pid
from kraft.user_error import UserError

DEFAULT_DIR = Path(".kraft")
"""Where `kraft cluster` keeps a cluster, and where all commands look for one."""
STATE_FILE = "cluster.json"
REPLICAS = 3

FAST_TIMERS: dict[str, str] = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "1200",
    "controller.quorum.election.timeout.ms": "250",
    "controller.quorum.fetch.timeout.ms": "500",
    "replica.lag.time.max.ms": "10000",
}
"""Timers of a development cluster: a dead node is noticed within about two seconds. Four heartbeats in a session: more
of them would be half of what an idle controller costs."""


def replication_settings(nodes: int) -> dict[str, str]:
    """What new topics of a cluster get unless they say otherwise: as many replicas as there are nodes for, up to three;
    of three, two in sync for acks=all. Internal topics alike."""
    factor = min(REPLICAS, nodes)
    settings = {"default.replication.factor": str(factor)}
    if factor == REPLICAS:
        settings["min.insync.replicas"] = str(factor - 1)
    return settings | {
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(max(factor - 1, 1)),
    }


@dataclass(frozen=True)
class NodePorts:
    """The ports of one node; its id is its position, from 1."""

    id: int
    client_port: int
    controller_port: int
    http_port: int


@dataclass(frozen=True)
class ClusterSpec:
    """What `cluster.json` holds."""

    cluster_id: str
    nodes: list[NodePorts]
    settings: dict[str, str]
    secret: str
    identities: Identities | None = None
    """Of a secured cluster."""

    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{node.client_port}" for node in self.nodes)

    @property
    def client_listener(self) -> str:
        """The name of the listener that clients dial."""
        return "PLAINTEXT" if self.identities is None else LISTENER

    @property
    def serves_https(self) -> bool:
        """Whether the nodes' pages are https alone."""
        return self.settings.get("http.ssl.enable", "false").strip().lower() == "true"

    def console(self, node_id: int) -> str:
        """The address of a node's console, and of its other pages."""
        scheme = "https" if self.serves_https else "http"
        return f"{scheme}://127.0.0.1:{self.nodes[node_id - 1].http_port}"

    def properties(self, node: NodePorts, directory: Path) -> str:
        """The node's `server.properties`, for the cluster's folder."""
        folder = node_folder(directory, node.id)
        addresses = {
            self.client_listener: f"127.0.0.1:{node.client_port}",
            "CONTROLLER": f"127.0.0.1:{node.controller_port}",
        }
        secured = {} if self.identities is None else self.identities.node_settings(directory, folder)
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(node.id),
            "controller.quorum.voters": ",".join(f"{n.id}@127.0.0.1:{n.controller_port}" for n in self.nodes),
            "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
            "controller.listener.names": "CONTROLLER",
            "controller.listener.secret": self.secret,
            "http.listener": f"127.0.0.1:{node.http_port}",
            "log.dirs": str(folder / "data"),
            **secured,
            **self.settings,
        }
        return "".join(f"{key}={value}\n" for key, value in lines.items())

    def write(self, directory: Path) -> None:
        """Whole, or not at all. Raises OSError."""
        temporary = directory / f"{STATE_FILE}.tmp"
        temporary.touch(mode=0o600)
        try:
            temporary.write_text(json.dumps(asdict(self), indent=2) + "\n")
            temporary.replace(directory / STATE_FILE)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def node_folder(directory: Path, node_id: int) -> Path:
    """All that is one node's, of the cluster in a folder."""
    return directory / f"node-{node_id}"


def node_config(directory: Path, node_id: int) -> Path:
    """A node's `server.properties`, of the cluster in a folder."""
    return node_folder(directory, node_id) / "server.properties"


def node_pid(directory: Path, node_id: int) -> int | None:
    """The pid of a node's live process, or None. Raises UserError."""
    with permitted(directory):
        return live_pid(node_folder(directory, node_id) / "pid")


def read_spec(directory: Path) -> ClusterSpec:
    """Reads `cluster.json`. Raises UserError if there is no cluster here."""
    try:
        with permitted(directory):
            raw = json.loads((directory / STATE_FILE).read_text())
        spec = ClusterSpec(
            raw["cluster_id"], [NodePorts(**node) for node in raw["nodes"]], raw["settings"], raw["secret"]
        )
        identities = raw.get("identities")
        return spec if identities is None else replace(spec, identities=Identities(**identities))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"there is no cluster in {directory}; start one with `kraft cluster start --dir {directory}`"
        ) from None
    except OSError as error:
        raise UserError(f"cannot read {directory / STATE_FILE}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{directory / STATE_FILE} is damaged ({error}); `kraft cluster destroy` removes it"
        ) from error


@contextlib.contextmanager
def permitted(directory: Path) -> Iterator[None]:
    """Makes a sentence of what the operating system does not permit with the cluster in a folder."""
    try:
        yield
    except PermissionError as error:
        raise UserError(_refusal(directory, error)) from error


def _refusal(directory: Path, error: PermissionError) -> str:
    try:
        owner = directory.stat().st_uid
    except OSError:
        return f"cannot look into {directory}: {error.strerror}"
    if owner == os.geteuid():
        return f"cannot use the cluster in {directory}: {error.strerror}"
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"user {owner}"
    return f"the cluster in {directory} belongs to {name}: only its owner, or root, can do this with it"
