"""The experiment document: a YAML file, checked whole, as frozen values. `EXAMPLE` is one, with all its parts.

`vocabulary` has the words, `units` the quantities, `targets` the targets. Every mistake is told with its line
(`ExperimentError`). Pure: `load` takes the text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn

import jsonschema
import yaml

from kraft.chaos.experiments import units
from kraft.chaos.experiments.targets import Target, TargetError, parse_target
from kraft.chaos.experiments.vocabulary import ANOMALIES, BOTH, FAULTS, PROBES, REAL, SIM, WORKLOADS

EXAMPLE: Final = """\
experiment: leader-kill
teaches: A killed leader costs an election, and no acknowledged record.
backends: [sim, real]
duration: 30s                      # of the method, whose clock begins after
steady: 3s                         # of the undisturbed workload
cluster:
  nodes: 3
  settings: {broker.session.timeout.ms: 3000}
  topics:
    orders: {partitions: 3, replicas: 3, configs: {min.insync.replicas: 2}}
hypothesis:
  - {probe: ailments}              # before and after; its tolerance is 0
  - {probe: unavailable, at-most: 15s, when: during}
workload:
  - {kind: idempotent-producer, topic: orders, rate: 50/s}
  - {kind: consumer, topic: orders}
method:
  - {fault: kill, target: leader of orders-0, at: 8s, for: 5s}
abort:
  - {probe: unavailable, at-most: 60s}
expect: held                       # or {violated: [lost-write]}
promises: [acked >= 100]           # counts; one that is not met: undecided
minimums:                          # evidence that each fault needs for "held"
  {acknowledged-before: 5, attempts-during: 1, acknowledged-after: 5}
"""
TEXT_MAX_CHARACTERS: Final = 64 * 1024
NODES_MAX: Final = 9
DURATION_MAX_S: Final = 3600.0
NAMESPACES: Final = "namespaces"
ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}
When = Literal["before", "during", "after"]


class ExperimentError(ValueError):
    """A text that is no experiment; the message is "line N: what is wrong, and what would be right"."""


@dataclass(frozen=True)
class Topic:
    """A topic of the workload, made before it begins."""

    name: str
    partitions: int
    replicas: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterSpec:
    """The cluster that is started for the run."""

    nodes: int
    """Node ids are 1 to this, each broker and controller."""
    settings: Mapping[str, str]
    """Of every node's server.properties."""
    topics: tuple[Topic, ...]
    network: Literal["relays", "namespaces"] = "relays"
    """How faults reach a real network: through relays, or with a network namespace for each node, in which packets are
    truly lost. The simulator has packets of its own."""


@dataclass(frozen=True)
class Probe:
    """A measure and its tolerance, in the unit of the probe (seconds, a second, share or count)."""

    name: str
    at_least: float | None
    at_most: float | None
    when: frozenset[When]

    @property
    def tolerance(self) -> str:
        """For people: "at most 15s"."""
        word = PROBES[self.name]
        parts = [("at least", self.at_least), ("at most", self.at_most)]
        return " and ".join(
            f"{text} {quantity(value, word.unit)}" for text, value in parts if value is not None
        )

    def holds(self, value: float) -> bool:
        """Whether the value is within the tolerance."""
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )


@dataclass(frozen=True)
class Hypothesis:
    """The steady state."""

    probes: tuple[Probe, ...] = ()


@dataclass(frozen=True)
class Workload:
    """One entry of the workload; what its kind does not have is empty."""

    kind: str
    topic: str = ""
    acks: int = -1
    rate: float = 20.0
    """Operations a second, of each client."""
    size_bytes: int = 100
    clients: int = 1
    group: str = ""
    transactional_id: str = ""
    command: str = ""
    history: str = ""
    """Of a command: the file that it writes, within its working folder."""
    timeout_s: float = 60.0
    backlog_bytes: int = 2_000_000_000
    bandwidth: float = 1_000_000.0


@dataclass(frozen=True)
class Step:
    """One fault of the method."""

    fault: str
    target: Target
    at_s: float
    """Since the method's clock began."""
    for_s: float
    """0: it does not last."""
    ramp_s: float = 0.0
    """A quantity grows to its full size within this time."""
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    """In seconds, bytes a second, shares; words as they stand."""

    @property
    def end_s(self) -> float:
        return self.at_s + self.for_s


@dataclass(frozen=True)
class Abort:
    """The run ends, undecided, when the probe leaves its tolerance."""

    probe: Probe


@dataclass(frozen=True)
class Expectation:
    """What must come of the run."""

    verdict: Literal["held", "violated"]
    anomalies: frozenset[str] = frozenset()
    """Of "violated": the anomalies that are expected; any other one fails."""


@dataclass(frozen=True)
class Promise:
    """A count that the run must reach for it to prove what the file teaches; else it is undecided."""

    text: str
    count: str
    """As `kraft.chaos.experiments.counts` names it, perhaps with "(topic)" behind it."""
    operator: str
    value: int

    def is_met(self, counts: Mapping[str, int]) -> bool:
        """A count that nobody counted is 0."""
        found = counts.get(self.count, 0)
        return {">=": found >= self.value, "<=": found <= self.value, "==": found == self.value}[
            self.operator
        ]


@dataclass(frozen=True)
class Minimums:
    """How much evidence each fault, and each partition that it was aimed at, needs for "held"."""

    acknowledged_before: int = 5
    attempts_during: int = 1
    acknowledged_after: int = 5
    unknown_at_most: float = 0.2
    """The share of sends whose outcome nobody knows."""


@dataclass(frozen=True)
class Experiment:
    """One file."""

    name: str
    teaches: str
    backends: tuple[str, ...]
    """In order of preference."""
    duration_s: float
    steady_s: float
    """How long the steady state is watched before the method's clock begins."""
    cluster: ClusterSpec
    hypothesis: Hypothesis
    workload: tuple[Workload, ...]
    method: tuple[Step, ...]
    aborts: tuple[Abort, ...]
    expect: Expectation
    promises: tuple[Promise, ...]
    minimums: Minimums
    text: str
    """The file itself."""

    def may_expire(self, topic: str) -> bool:
        """Whether the file has retention delete records of a topic; by default it does not within a run."""
        configs = {**self.cluster.settings}
        for one in self.cluster.topics:
            if one.name == topic:
                configs.update(one.configs)
        return any("retention" in key for key in configs)


# -- the schema

_QUANTITY = {"type": ["string", "number"]}
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$", "maxLength": 100}
_TEXTS = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}


def _table(properties: Mapping[str, Any], required: Iterable[str] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


_PROBE = {
    "probe": {"enum": list(PROBES)},
    "at-least": _QUANTITY,
    "at-most": _QUANTITY,
}
SCHEMA: Final[Mapping[str, Any]] = _table(
    {
        "experiment": _NAME,
        "teaches": {"type": "string", "minLength": 10},
        "backends": {"type": "array", "items": {"enum": [SIM, REAL]}, "minItems": 1, "uniqueItems": True},
        "duration": _QUANTITY,
        "steady": _QUANTITY,
        "cluster": _table(
            {
                "nodes": {"type": "integer", "minimum": 1, "maximum": NODES_MAX},
                "settings": _TEXTS,
                "network": {"enum": ["relays", NAMESPACES]},
                "topics": {
                    "type": "object",
                    "minProperties": 1,
                    "propertyNames": _NAME,
                    "additionalProperties": _table(
                        {
                            "partitions": {"type": "integer", "minimum": 1, "maximum": 100},
                            "replicas": {"type": "integer", "minimum": 1, "maximum": NODES_MAX},
                            "configs": _TEXTS,
                        },
                        ("partitions", "replicas"),
                    ),
                },
            },
            ("nodes", "topics"),
        ),
        "hypothesis": {
            "type": "array",
            "items": _table(
                {**_PROBE, "when": {"enum": ["before", "during", "after", "before and after"]}}, ("probe",)
            ),
        },
        "workload": {
            "type": "array",
            "minItems": 1,
            "maxItems": 20,
            "items": _table(
                {
                    "kind": {"enum": list(WORKLOADS)},
                    "topic": _NAME,
                    "acks": {"enum": ["all", 0, 1, -1, "0", "1"]},
                    "rate": _QUANTITY,
                    "size": _QUANTITY,
                    "clients": {"type": "integer", "minimum": 1, "maximum": 10_000},
                    "group": _NAME,
                    "transactional-id": _NAME,
                    "command": {"type": "string", "minLength": 1},
                    "history": {"type": "string", "minLength": 1},
                    "timeout": _QUANTITY,
                    "backlog": _QUANTITY,
                    "bandwidth": _QUANTITY,
                },
                ("kind",),
            ),
        },
        "method": {
            "type": "array",
            "maxItems": 50,
            "items": _table(
                {
                    "fault": {"enum": list(FAULTS)},
                    "target": {"type": "string"},
                    "at": _QUANTITY,
                    "for": _QUANTITY,
                    "ramp": _QUANTITY,
                    **{
                        name: _QUANTITY if callable(kind) else {"enum": list(kind)}
                        for word in FAULTS.values()
                        for name, kind in word.parameters.items()
                    },
                },
                ("fault", "target", "at"),
            ),
        },
        "abort": {"type": "array", "items": _table(_PROBE, ("probe",))},
        "expect": {
            "oneOf": [
                {"const": "held"},
                _table({"violated": {"type": "array", "items": _NAME, "minItems": 1}}, ("violated",)),
            ]
        },
        "promises": {"type": "array", "items": {"type": "string"}},
        "minimums": _table(
            {
                "acknowledged-before": {"type": "integer", "minimum": 0},
                "attempts-during": {"type": "integer", "minimum": 0},
                "acknowledged-after": {"type": "integer", "minimum": 0},
                "unknown-at-most": _QUANTITY,
            }
        ),
    },
    ("experiment", "teaches", "backends", "duration", "cluster", "workload", "method", "expect"),
)
_PROMISE = re.compile(r"([a-z0-9_]+(?:\([A-Za-z0-9._-]+\))?) *(>=|<=|==) *(\d+)")


class _Lines:
    """Where each value of the document stands."""

    def __init__(self, root: yaml.Node) -> None:
        self._root = root

    def of(self, path: Iterable[str | int]) -> int:
        """The line, from 1, of the value at the path, or of the nearest that holds it."""
        node, line = self._root, self._root.start_mark.line
        for part in path:
            found = _child(node, part)
            if found is None:
                break
            line, node = found
        return line + 1


def _child(node: yaml.Node, part: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return key.start_mark.line, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line, node.value[part]
    return None


def load(text: str) -> Experiment:
    """The experiment of a file's text. Raises ExperimentError."""
    if len(text) > TEXT_MAX_CHARACTERS:
        raise ExperimentError(f"line 1: an experiment has at most {TEXT_MAX_CHARACTERS} characters")
    try:
        root = _compose(text)
        document = yaml.SafeLoader("").construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ExperimentError(
            f"line {mark.line + 1 if mark else 1}: {error.problem or error.context}"
        ) from error
    except ExperimentError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise ExperimentError(f"line 1: {error}") from error
    lines = _Lines(root)
    _check_schema(document, lines)
    return _Reader(document, lines).experiment(text)


def _compose(text: str) -> yaml.Node:
    """The one document of a text, as nodes; aliases and keys that stand twice are refused: nobody means them."""
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1 if event.start_mark is not None else 1
            raise ExperimentError(f"line {line}: aliases (*name) are not used in experiments")
    root = yaml.compose(text, yaml.SafeLoader)
    if root is None:
        raise ExperimentError("line 1: the file is empty")
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            known: set[str] = set()
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode) or key.value in known:
                    raise ExperimentError(
                        f"line {key.start_mark.line + 1}: the key {key.value!r} stands here twice"
                    )
                known.add(key.value)
                waiting.append(value)
    return root


def _check_schema(document: object, lines: _Lines) -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    error = jsonschema.exceptions.best_match(validator.iter_errors(document))
    if error is None:
        return
    path = list(error.absolute_path)
    if error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        known = error.schema.get("properties", {})
        unknown = [key for key in error.instance if key not in known]
        raise ExperimentError(
            f"line {lines.of([*path, unknown[0]])}: unknown key {unknown[0]!r}: known here are {', '.join(known)}"
        )
    where = f"{path[-1]}: " if path and isinstance(path[-1], str) else ""
    if error.validator == "enum":
        choices = ", ".join(str(one) for one in error.validator_value)
        raise ExperimentError(f"line {lines.of(path)}: {where}{error.instance!r} is none of {choices}")
    raise ExperimentError(f"line {lines.of(path)}: {where}{error.message}")


class _Reader:
    """Makes values of a document that fits the schema. Raises ExperimentError."""

    def __init__(self, document: Mapping[str, Any], lines: _Lines) -> None:
        self._document = document
        self._lines = lines
        self._topics = dict(document["cluster"]["topics"])

    def experiment(self, text: str) -> Experiment:
        document = self._document
        duration_s = self._quantity(("duration",), units.seconds_of)
        if not 1 <= duration_s <= DURATION_MAX_S:
            self._fail(("duration",), f"a run lasts from 1s to {DURATION_MAX_S:g}s")
        workload = tuple(self._workload(number) for number in range(len(document["workload"])))
        method = tuple(self._step(number, duration_s) for number in range(len(document["method"])))
        experiment = Experiment(
            name=document["experiment"],
            teaches=" ".join(document["teaches"].split()),
            backends=tuple(document["backends"]),
            duration_s=duration_s,
            steady_s=self._quantity(("steady",), units.seconds_of) if "steady" in document else 3.0,
            cluster=self._cluster(),
            hypothesis=Hypothesis(
                tuple(self._probe(("hypothesis", n)) for n in range(len(document.get("hypothesis", ()))))
            ),
            workload=workload,
            method=method,
            aborts=tuple(Abort(self._probe(("abort", n))) for n in range(len(document.get("abort", ())))),
            expect=self._expectation(),
            promises=tuple(self._promise(n) for n in range(len(document.get("promises", ())))),
            minimums=self._minimums(),
            text=text,
        )
        self._check_backends(experiment)
        return experiment

    # -- parts

    def _cluster(self) -> ClusterSpec:
        cluster = self._document["cluster"]
        topics = []
        for name, spec in self._topics.items():
            if spec["replicas"] > cluster["nodes"]:
                self._fail(
                    ("cluster", "topics", name, "replicas"),
                    f"{name} wants {spec['replicas']} replicas on {cluster['nodes']} nodes",
                )
            topics.append(Topic(name, spec["partitions"], spec["replicas"], _texts(spec.get("configs", {}))))
        return ClusterSpec(
            cluster["nodes"],
            _texts(cluster.get("settings", {})),
            tuple(topics),
            cluster.get("network", "relays"),
        )

    def _probe(self, path: tuple[str, int]) -> Probe:
        spec = self._document[path[0]][path[1]]
        word = PROBES[spec["probe"]]
        least, most = (
            self._quantity((*path, key), word.parse) if key in spec else None
            for key in ("at-least", "at-most")
        )
        if least is None and most is None:
            most = word.at_most
        if least is None and most is None:
            self._fail(path, f"the probe {spec['probe']} needs a tolerance: at-least or at-most")
        when = spec.get("when", "during" if path[0] == "abort" else "before and after")
        return Probe(spec["probe"], least, most, frozenset(when.split(" and ")))

    def _workload(self, number: int) -> Workload:
        path, spec = ("workload", number), self._document["workload"][number]
        word = WORKLOADS[spec["kind"]]
        self._check_keys(path, spec, word.keys | {"kind"}, word.required, f"the workload {spec['kind']}")
        if spec.get("topic", next(iter(self._topics))) not in self._topics:
            self._fail((*path, "topic"), f"there is no topic {spec['topic']!r} in the cluster")
        values: dict[str, Any] = {
            key.replace("-", "_"): spec[key]
            for key in ("topic", "clients", "group", "transactional-id", "command", "history")
            if key in spec
        }
        parsers = {
            "rate": ("rate", units.rate_of),
            "size": ("size_bytes", units.bytes_of),
            "timeout": ("timeout_s", units.seconds_of),
            "backlog": ("backlog_bytes", units.bytes_of),
            "bandwidth": ("bandwidth", units.byte_rate_of),
        }
        for key, (name, parse) in parsers.items():
            if key in spec:
                values[name] = self._quantity((*path, key), parse)
                if values[name] <= 0:
                    self._fail((*path, key), f"{key} must be above 0")
                if name.endswith("_bytes"):
                    values[name] = int(values[name])
        return Workload(spec["kind"], acks=ACKS[str(spec.get("acks", "all"))], **values)

    def _step(self, number: int, duration_s: float) -> Step:
        path, spec = ("method", number), self._document["method"][number]
        word = FAULTS[spec["fault"]]
        known = {"fault", "target", "at", *word.parameters}
        known |= {key for key, has in (("for", word.lasts), ("ramp", word.ramps)) if has}
        required = {*word.required} | ({"for"} if word.lasts else set())
        self._check_keys(path, spec, known, required, f"the fault {spec['fault']}")
        try:
            target = parse_target(spec["target"])
        except TargetError as error:
            self._fail((*path, "target"), str(error))
        if target.partition is not None:
            topic, partition = target.partition
            if partition >= self._topics.get(topic, {"partitions": 0})["partitions"]:
                self._fail((*path, "target"), f"there is no partition {topic}-{partition} in the cluster")
        if target.role == "nodes" and not all(
            0 < n <= self._document["cluster"]["nodes"] for n in target.numbers
        ):
            self._fail((*path, "target"), f"the cluster has nodes 1 to {self._document['cluster']['nodes']}")
        if target.role == "step" and not 0 < target.numbers[0] <= number:
            self._fail((*path, "target"), "node of step N names an earlier step, from 1")
        times = {
            key: self._quantity((*path, key), units.seconds_of) if key in spec else 0.0
            for key in ("at", "for", "ramp")
        }
        if min(times.values()) < 0 or times["at"] + times["for"] > duration_s:
            self._fail((*path, "at"), f"a fault begins and ends within the duration of {duration_s:g}s")
        parameters = {
            name: self._quantity((*path, name), kind) if callable(kind) else spec[name]
            for name, kind in word.parameters.items()
            if name in spec
        }
        return Step(spec["fault"], target, times["at"], times["for"], times["ramp"], parameters)

    def _expectation(self) -> Expectation:
        expect = self._document["expect"]
        if expect == "held":
            return Expectation("held")
        for number, name in enumerate(expect["violated"]):
            if name not in ANOMALIES:
                close = difflib.get_close_matches(name, ANOMALIES, 1)
                hint = f"did you mean {close[0]}? " if close else ""
                self._fail(
                    ("expect", "violated", number),
                    f"nobody reports an anomaly {name!r}: {hint}Known are {', '.join(sorted(ANOMALIES))}",
                )
        return Expectation("violated", frozenset(expect["violated"]))

    def _promise(self, number: int) -> Promise:
        text = self._document["promises"][number]
        matched = _PROMISE.fullmatch(text.strip())
        if matched is None:
            self._fail(
                ("promises", number), f"{text!r} is no promise like lost_acks1 >= 1 or acked(orders) >= 10"
            )
        return Promise(text.strip(), matched[1], matched[2], int(matched[3]))

    def _minimums(self) -> Minimums:
        spec = self._document.get("minimums", {})
        values: dict[str, Any] = {key.replace("-", "_"): value for key, value in spec.items()}
        if "unknown-at-most" in spec:
            values["unknown_at_most"] = self._quantity(("minimums", "unknown-at-most"), units.share_of)
        return Minimums(**values)

    # -- checks

    def _check_backends(self, experiment: Experiment) -> None:
        """A file names no backend that lacks a fault or a workload of its own."""
        for number, backend in enumerate(experiment.backends):
            lacking = [step.fault for step in experiment.method if backend not in FAULTS[step.fault].backends]
            lacking += [
                one.kind for one in experiment.workload if backend not in WORKLOADS[one.kind].backends
            ]
            if lacking:
                others = ", ".join(sorted(BOTH - {backend}))
                self._fail(("backends", number), f"{backend} has no {lacking[0]}: name only {others}")

    def _check_keys(
        self,
        path: tuple[str, int],
        spec: Mapping[str, Any],
        known: Iterable[str],
        required: Iterable[str],
        what: str,
    ) -> None:
        for key in spec:
            if key not in set(known):
                self._fail((*path, key), f"{what} has no {key!r}: it has {', '.join(sorted(known))}")
        for key in sorted(required):
            if key not in spec:
                self._fail(path, f"{what} needs {key!r}")

    def _quantity(self, path: tuple[str | int, ...], parse: Any) -> float:
        value: Any = self._document
        for part in path:
            value = value[part]
        try:
            return float(parse(value))
        except units.UnitError as error:
            self._fail(path, f"{path[-1]}: {error}")

    def _fail(self, path: Iterable[str | int], text: str) -> NoReturn:
        raise ExperimentError(f"line {self._lines.of(path)}: {text}")


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Properties as a node reads them."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()
    }


def quantity(value: float, unit: str) -> str:
    """A probe's value for people."""
    if unit == "s":
        return units.shown_seconds(round(value, 4))
    if unit == "share":
        return f"{value * 100:.3g}%"
    return f"{value:.4g}{unit}"
