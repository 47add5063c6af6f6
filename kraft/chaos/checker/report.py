"""The verdict of the history checker, and its findings, gathered into anomalies.

Findings of one oracle in one partition make one anomaly: the first few in full, the others counted, so that a
partition that lost a thousand records reads as one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kraft.chaos.history import Operation, TopicKey, Value

EXAMPLES_MAX = 3
"""Findings of one oracle in one partition that are reported in full."""
OPERATIONS_MAX = 10
"""Operations that an anomaly names."""
VALUE_SHOWN_BYTES = 40

IsExcused = Callable[[TopicKey, int, Value], bool]
"""Whether injected faults fully explain that the partition lost this value at this offset (-1: unknown)."""

Describe = Callable[[], tuple[str, Iterable[Operation]]]
"""The finding in a sentence, and the operations that show it."""


def never(_key: TopicKey, _offset: int, _value: Value) -> bool:
    """Nothing is excused."""
    return False


@dataclass(frozen=True)
class Anomaly:
    """The findings of one oracle in one partition."""

    oracle: str
    text: str
    operations: tuple[int, ...]
    """Indexes in the history of the operations of the first findings."""


@dataclass(frozen=True)
class Report:
    """The verdict on a history."""

    anomalies: list[Anomaly]
    excused: list[str]
    """Findings that injected faults explain."""
    undecided: str
    """Why there was no evidence, or not enough; empty if there was."""
    counts: Mapping[str, int]
    """How much evidence there was, and events that are counted and not judged."""

    @property
    def verdict(self) -> Literal["valid", "invalid", "unknown"]:
        """The verdict: an anomaly decides, however little evidence there was."""
        if self.anomalies:
            return "invalid"
        return "unknown" if self.undecided else "valid"


def shown(value: Value) -> str:
    """A value for people: its beginning."""
    text = value[:VALUE_SHOWN_BYTES].decode("ascii", "backslashreplace")
    return f"{text}…" if len(value) > VALUE_SHOWN_BYTES else text


@dataclass
class _Bundle:
    examples: list[str] = field(default_factory=list)
    operations: dict[int, None] = field(default_factory=dict)
    findings: int = 0

    def add(self, describe: Describe) -> None:
        self.findings += 1
        if len(self.examples) == EXAMPLES_MAX:
            return
        text, operations = describe()
        self.examples.append(text)
        for operation in operations:
            if len(self.operations) < OPERATIONS_MAX:
                self.operations[operation.index] = None

    def told(self, label: str) -> str:
        more = self.findings - len(self.examples)
        return f"{label}: " + "; ".join(self.examples) + (f"; and {more} more" if more else "")


@dataclass
class Findings:
    """Collects the oracles' findings, in order."""

    _found: dict[tuple[str, str], _Bundle] = field(default_factory=dict)
    _excused: dict[tuple[str, str], _Bundle] = field(default_factory=dict)

    def add(self, oracle: str, label: str, describe: Describe, *, excused: bool = False) -> None:
        """Adds a finding in the partition `label`; described only if it is among the first ones."""
        bundles = self._excused if excused else self._found
        bundles.setdefault((oracle, label), _Bundle()).add(describe)

    @property
    def anomalies(self) -> list[Anomaly]:
        return [
            Anomaly(oracle, bundle.told(label), tuple(bundle.operations))
            for (oracle, label), bundle in self._found.items()
        ]

    @property
    def excused(self) -> list[str]:
        return [f"{oracle}: {bundle.told(label)}" for (oracle, label), bundle in self._excused.items()]

    @property
    def excused_total(self) -> int:
        return sum(bundle.findings for bundle in self._excused.values())
