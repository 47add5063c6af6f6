"""What a local cluster is configured with: `cluster.json` in its folder, and each node's `server.properties`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from kraft.user_error import UserError

STATE_FILE = "cluster.json"

FAST_TIMERS: dict[str, str] = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "1200",
    "controller.quorum.election.timeout.ms": "250",
    "controller.quorum.fetch.timeout.ms": "500",
    "replica.lag.time.max.ms": "10000",
}
"""Timers of a development cluster: a dead node is noticed within about two seconds. Four heartbeats in a session: more
of them would be half of what an idle controller costs."""


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

    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{node.client_port}" for node in self.nodes)

    def properties(self, node: NodePorts, data: Path) -> str:
        """The node's `server.properties`."""
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(node.id),
            "controller.quorum.voters": ",".join(f"{n.id}@127.0.0.1:{n.controller_port}" for n in self.nodes),
            "listeners": f"PLAINTEXT://127.0.0.1:{node.client_port},CONTROLLER://127.0.0.1:{node.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.listener.secret": self.secret,
            "http.listener": f"127.0.0.1:{node.http_port}",
            "log.dirs": str(data),
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


def read_spec(directory: Path) -> ClusterSpec:
    """Reads `cluster.json`. Raises UserError if there is no cluster here."""
    try:
        raw = json.loads((directory / STATE_FILE).read_text())
        return ClusterSpec(
            raw["cluster_id"], [NodePorts(**node) for node in raw["nodes"]], raw["settings"], raw["secret"]
        )
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
