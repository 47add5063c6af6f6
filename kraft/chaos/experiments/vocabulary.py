"""The words of experiment files: faults, probes and workloads, with their parameters, units and worlds. Pure tables.

`document` checks files against them; each world plays those that its column names. A fault's parameters are read by
the unit's parser: `FAULTS["latency"].parameters["delay"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kraft.chaos.experiments import units

SIM, REAL = "sim", "real"
BOTH: Final = frozenset((SIM, REAL))
ONLY_REAL: Final = frozenset((REAL,))
ONLY_SIM: Final = frozenset((SIM,))

Parser = Callable[[object], float]


@dataclass(frozen=True)
class FaultWord:
    """A fault that a method may name."""

    doc: str
    parameters: Mapping[str, Parser | tuple[str, ...]] = field(default_factory=dict)
    """By name: the parser of its quantity, or the words that it may be."""
    required: frozenset[str] = frozenset()
    backends: frozenset[str] = BOTH
    lasts: bool = True
    """Whether it needs a `for`."""
    ramps: bool = False
    """Whether its quantity can grow to its full size within a `ramp`."""
    takes_down: bool = False
    """Whether its nodes do not answer while it lasts."""


_CUT: Final[Mapping[str, Parser | tuple[str, ...]]] = {
    "from": ("nodes", "clients", "everybody"),
    "direction": ("both", "in", "out"),
    "split": ("group", "each"),
}
"""`split`: whether several targets stay together (the default), or each is alone."""
FAULTS: Final[Mapping[str, FaultWord]] = {
    "kill": FaultWord("kill -9; the node is started again after `for`", takes_down=True),
    "stop": FaultWord("a controlled shutdown (SIGTERM); started again after `for`", takes_down=True),
    "pause": FaultWord("SIGSTOP, and SIGCONT after `for`: the node does not know it", takes_down=True),
    "rolling-restart": FaultWord(
        "a controlled shutdown and a start of each target in turn, each when the one before is whole",
        lasts=False,
    ),
    "wipe": FaultWord("kill -9, and the node comes back after `for` with an empty disk", takes_down=True),
    "power-loss": FaultWord(
        "the machine loses its power, and what was not synced; back after `for`",
        backends=ONLY_SIM,
        takes_down=True,
    ),
    "cut-off": FaultWord(
        "no byte passes between the targets and `from` (nodes, clients or everybody) in `direction`",
        _CUT,
    ),
    "latency": FaultWord(
        "all that the target sends and gets takes `delay` longer, `jitter` at most besides",
        {"delay": units.seconds_of, "jitter": units.seconds_of, **_CUT},
        required=frozenset(("delay",)),
        ramps=True,
    ),
    "bandwidth": FaultWord(
        "the target's links carry `rate` at most",
        {"rate": units.byte_rate_of, **_CUT},
        required=frozenset(("rate",)),
        ramps=True,
    ),
    "stall": FaultWord("nothing passes the target's links for a while, and then everything at once", _CUT),
    "reset": FaultWord("all connections of the target break, and both ends are told", _CUT, lasts=False),
    "half-open": FaultWord("the target's connections go silent, and nobody is told", _CUT),
    "packet-loss": FaultWord(
        "the share `lost` of the target's packets is lost",
        {"lost": units.share_of},
        required=frozenset(("lost",)),
        backends=ONLY_REAL,
    ),
    "disk-full": FaultWord("the target's disk has no room (ENOSPC)"),
    "slow-disk": FaultWord(
        "each fsync of the target takes `sync`",
        {"sync": units.seconds_of},
        required=frozenset(("sync",)),
    ),
    "failing-disk": FaultWord(
        "writes and fsyncs of the target's disk fail (EIO); a node that ended comes back after `for`"
    ),
    "bit-rot": FaultWord(
        "the target is stopped, a bit of a partition's log flips, it starts after `for`", takes_down=True
    ),
    "truncate": FaultWord(
        "the target is stopped, the end of a partition's log is cut off, it starts after `for`",
        backends=ONLY_REAL,
        takes_down=True,
    ),
    "clock-offset": FaultWord(
        "the target's wall clock is wrong by `offset`",
        {"offset": units.seconds_of},
        required=frozenset(("offset",)),
    ),
    "cpu-pressure": FaultWord(
        "processes that compute for nothing beside the nodes, `share` of all cores",
        {"share": units.share_of},
        backends=ONLY_REAL,
    ),
}


@dataclass(frozen=True)
class ProbeWord:
    """A measure of the steady state."""

    doc: str
    parse: Parser
    unit: str
    """ "s", "/s", "share" or ""."""
    at_most: float | None = None
    """The tolerance where a file gives none."""


PROBES: Final[Mapping[str, ProbeWord]] = {
    "ailments": ProbeWord("reasons why the cluster is not whole", units.count_of, "", at_most=0.0),
    "leaderless": ProbeWord("partitions without a leader", units.count_of, "", at_most=0.0),
    "under-replicated": ProbeWord(
        "partitions with a replica outside of the ISR", units.count_of, "", at_most=0.0
    ),
    "acknowledged": ProbeWord("records acknowledged in a second", units.rate_of, "/s"),
    "read": ProbeWord("records read in a second", units.rate_of, "/s"),
    "latency-p50": ProbeWord("half of the acknowledged sends took less", units.seconds_of, "s"),
    "latency-p99": ProbeWord("99 % of the acknowledged sends took less", units.seconds_of, "s"),
    "errors": ProbeWord("the share of sends that were not acknowledged", units.share_of, "share"),
    "unavailable": ProbeWord(
        "the longest time in which a partition acknowledged nothing", units.seconds_of, "s"
    ),
}


@dataclass(frozen=True)
class WorkloadWord:
    """A kind of client."""

    doc: str
    keys: frozenset[str]
    """What its entry may say, besides `kind`."""
    required: frozenset[str]
    backends: frozenset[str] = BOTH


_WRITES = frozenset(("topic", "rate", "size", "clients"))
WORKLOADS: Final[Mapping[str, WorkloadWord]] = {
    "idempotent-producer": WorkloadWord(
        "acks=all, retried under one sequence", _WRITES, frozenset(("topic",))
    ),
    "producer": WorkloadWord(
        "acks 0, 1 or all, not idempotent", _WRITES | {"acks"}, frozenset(("topic", "acks"))
    ),
    "transactional-producer": WorkloadWord(
        "transactions that write to a topic",
        _WRITES | {"transactional-id"},
        frozenset(("topic", "transactional-id")),
    ),
    "consumer": WorkloadWord(
        "assigned to all partitions", frozenset(("topic", "rate", "clients")), frozenset(("topic",))
    ),
    "group": WorkloadWord(
        "members of a consumer group that commit offsets",
        frozenset(("topic", "group", "clients", "rate")),
        frozenset(("topic", "group")),
    ),
    "command": WorkloadWord(
        "a program of your own, judged by its exit code, and by its history if it writes one",
        frozenset(("command", "history", "timeout")),
        frozenset(("command",)),
        ONLY_REAL,
    ),
    "connection-storm": WorkloadWord(
        "`clients` connections are opened and closed, `rate` of them a second",
        frozenset(("clients", "rate")),
        frozenset(("rate",)),
        ONLY_REAL,
    ),
    "slow-consumer": WorkloadWord(
        "a client that asks for a `backlog` and reads it at `bandwidth`",
        frozenset(("topic", "backlog", "bandwidth")),
        frozenset(("topic",)),
        ONLY_REAL,
    ),
}

ANOMALIES: Final = frozenset(
    (
        "aborted-offset", "aborted-read", "authentication", "both-own", "cleaned-below-high-watermark",
        "command-failed", "consistent-read", "corrupt-batch-served", "counted-before-flushed", "defect",
        "doubled-commit", "doubled-output", "duplicate", "durable-records-cut", "earliest-behind-log-start",
        "eligible-leaders", "epoch-fenced", "epochs-grow", "fenced-commit", "fenced-not-in-isr", "halted",
        "hanging-transaction", "high-watermark-bounded", "high-watermark-monotonic", "hypothesis",
        "inconsistent-offsets", "isr-by-lag", "last-stable-offset-bounded", "last-stable-offset-monotonic",
        "latest-below-committed", "leader-candidate-completeness", "leader-completeness", "leader-elected",
        "listed-not-committed", "liveness", "log-matching", "lost-commit", "lost-transaction", "lost-write",
        "marker-kept", "metadata-agreement", "missing-output", "newest-of-key-kept", "no-committed-record-lost",
        "node-ended", "non-monotonic-poll", "non-monotonic-send", "not-halted", "offline-not-in-isr",
        "one-controller-per-epoch", "one-leader-per-epoch", "open-transaction-passed", "poll-skip",
        "precommitted-offset", "precommitted-read", "principal-changed", "quota-exceeded", "read-cycle",
        "read-while-muted", "refused-with-permission", "replicas-differ", "retention-limits",
        "served-without-permission", "session-outlived", "skipped-commit", "strong-isr",
        "told-uncommitted", "tombstone-kept", "torn-batch", "torn-transaction", "two-owners",
        "unclean-election-reported", "unexpected-answer", "unexpected-error", "unmade-commit", "unseen", "unsent-read",
        "vanished-commit", "vote-once", "write-cycle",
    )
)  # fmt: skip
"""All that a run may be found to violate, in either world: what checkers, oracles and the verdict's rules report."""
