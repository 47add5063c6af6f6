"""A scenario: cluster, topics, workloads, faults and their times, as one plain value.

A scenario and a commit decide a run completely. `kraft.chaos.swarm` draws scenarios from seeds, shrinking takes
parts away, the corpus keeps some as JSON. The seed's one stream draws shapes, rates and faults; each fault and each
workload behaves by a stream of its own. So a scenario can be written down, and a part that is taken away leaves the
draws of the others as they were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

FORMAT = 1


class ScenarioError(ValueError):
    """A text that is no scenario; the message says why."""


@dataclass(frozen=True)
class NodeSpec:
    """One node; its host is node-N."""

    node_id: int
    roles: tuple[str, ...] = ("broker", "controller")
    log_dirs: int = 1
    """How many data directories it has, each a file system of its own; the first has the quorum's files."""
    rack: str = ""
    """Its rack, whose consumers may be sent to it (KIP-392); "": unknown."""


@dataclass(frozen=True)
class TopicSpec:
    """A topic that exists from the start of the faults to the end."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_compacted(self) -> bool:
        """Whether its records have keys, whose old records may go."""
        return "compact" in self.configs.get("cleanup.policy", "")


@dataclass(frozen=True)
class WorkloadSpec:
    """One client process on a host of its own. `kind` is a name of `kraft.chaos.workload.WORKLOADS`."""

    kind: str
    stream: int
    """Names its random stream."""
    topic: str = ""
    acks: int = -1
    per_second: float = 20.0
    """Operations begun per virtual second, over all partitions."""
    operations_max: int | None = None
    """Operations after which it stops; None: it stops when the faults are over."""
    rack: str = ""
    """Of a consumer: its rack, which it names in every Fetch."""
    fetch_sessions: bool = False
    """Of a consumer: whether it keeps a fetch session with every broker that it reads from (KIP-227)."""
    group: str = ""
    """Of a member of a group, and of a group's topic: the group."""
    transactional_id: str = ""
    """Of a transactional client; two with one id fence each other."""
    transaction_version: int = 2
    """Of a transactional client: which protocol it speaks, as its age and the cluster's level have it."""
    output: str = ""
    """Of a processor: the topic that it writes to."""
    user: str = ""
    """Of a guest: the name that it says, in a secured scenario."""
    crashes: bool = True
    """Whether its process may crash and come back, drawn from its stream."""


@dataclass(frozen=True)
class FaultSpec:
    """One fault. `name` is one of `kraft.chaos.faults.FAULTS`."""

    name: str
    at_s: float
    """Virtual seconds after the cluster was whole."""
    stream: int
    """Names the random stream from which target and size are drawn when it strikes."""


@dataclass(frozen=True)
class Scenario:
    """One run."""

    seed: int
    seconds: float
    """How long faults may strike, in virtual seconds from when the cluster was whole."""
    nodes: tuple[NodeSpec, ...]
    topics: tuple[TopicSpec, ...]
    workloads: tuple[WorkloadSpec, ...]
    faults: tuple[FaultSpec, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of every node, over those of `kraft.chaos.cluster`."""
    run_time_configs: Mapping[str, str] = field(default_factory=dict)
    """Configs that limit the speed of replication, which server.properties cannot have. They are set on all brokers
    from the creation of the topics until the faults are over."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Levels of features that are set before the topics are created."""
    format: int = FORMAT

    @property
    def controllers(self) -> tuple[int, ...]:
        return tuple(node.node_id for node in self.nodes if "controller" in node.roles)

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(node.node_id for node in self.nodes if "broker" in node.roles)

    @property
    def shape(self) -> str:
        """How many nodes have which roles, in words."""
        both = len(set(self.controllers).intersection(self.brokers))
        parts = {
            "combined node": both,
            "broker": len(self.brokers) - both,
            "controller": len(self.controllers) - both,
        }
        return ", ".join(f"{count} {role}{'s' * (count > 1)}" for role, count in parts.items() if count)

    def to_json(self) -> str:
        """The text from which `from_json` makes an equal scenario, which plays as this one does, to the byte: configs
        keep the order in which they are sent."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Scenario:
        """Raises ScenarioError."""
        try:
            document: dict[str, Any] = json.loads(text)
            if document.get("format") != FORMAT:
                raise ScenarioError(f"a scenario of format {document.get('format')}; this is format {FORMAT}")
            if unknown := document.keys() - {field.name for field in fields(cls)}:
                raise ScenarioError(f"not a scenario: unknown {', '.join(sorted(unknown))}")
            return cls(
                seed=int(document["seed"]),
                seconds=float(document["seconds"]),
                nodes=tuple(NodeSpec(**{**n, "roles": tuple(n["roles"])}) for n in document["nodes"]),
                topics=tuple(TopicSpec(**topic) for topic in document["topics"]),
                workloads=tuple(WorkloadSpec(**workload) for workload in document["workloads"]),
                faults=tuple(FaultSpec(**fault) for fault in document["faults"]),
                properties=dict(document["properties"]),
                run_time_configs=dict(document.get("run_time_configs", {})),
                features=dict(document.get("features", {})),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ScenarioError(f"not a scenario: {error!r}") from error
