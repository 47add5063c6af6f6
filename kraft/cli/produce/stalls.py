"""When brokers acknowledge nothing for long: which partitions stand still, why, and when a person is told.

Pure: what librdkafka counts, logs and reports comes in, with the time. librdkafka tries again by itself and tells its
caller nothing of it until a record's time is over. Its statistics count what it took for each partition, and at its
debug level `msg` it logs the error with which a broker refused a batch.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from kraft.protocol.errors import ErrorCode

STALL_S = 5.0
"""So long nothing of a partition is acknowledged before that is told."""

UNASSIGNED = -1
"""librdkafka's partition of records whose topic it does not know yet."""

NO_BROKER = "no broker answers"
NO_PRODUCER_ID = "no broker hands out a producer id"

_REFUSAL = re.compile(
    r": (?P<topic>[A-Za-z0-9._-]+) \[(?P<partition>-?[0-9]+)\]: MessageSet with .* encountered error: (?P<text>.+?)"
    r" \(actions "
)


class _Refusal(NamedTuple):
    reason: str
    at_s: float


class Stalls:
    """The partitions of one topic. `codes` are Kafka's errors by librdkafka's words for them; `timeout_s` is how
    long librdkafka tries."""

    def __init__(self, topic: str, codes: Mapping[str, ErrorCode], timeout_s: float) -> None:
        self._topic = topic
        self._codes = codes
        self._timeout_s = timeout_s
        self._moved: set[int] = set()
        self._reported: defaultdict[int, int] = defaultdict(int)
        self._sent: dict[int, int] = {}
        self.observations = 0
        """How often `observe` was called."""
        self._waits_since_s: dict[int, float] = {}
        self._refusals: dict[int, _Refusal] = {}
        self._reasons: dict[int, str] = {}
        self._client_error = ""
        self._told: dict[str, set[int]] = {}

    def acknowledged(self, partition: int) -> None:
        """A record of this partition was."""
        self._moved.add(partition)
        self._reported[partition] += 1

    def failed(self, partition: int) -> None:
        """A record of this partition was given up, or purged."""
        self._reported[partition] += 1

    def logged(self, text: str, now_s: float) -> None:
        """A line of librdkafka's log."""
        found = _REFUSAL.search(text)
        if found is None or found["topic"] != self._topic:
            return
        code = self._codes.get(found["text"])
        if code is not None:
            reason = f"{code.name}: {code.message.rstrip('.')}"
            self._refusals[int(found["partition"])] = _Refusal(reason, now_s)

    def client_error(self, text: str) -> None:
        """What librdkafka reports of its connections."""
        self._client_error = text

    def reason_of(self, partition: int) -> str | None:
        """Why nothing of this partition was acknowledged since something was, as far as that is known."""
        refusal = self._refusals.get(partition)
        return self._reasons.get(partition) if refusal is None else refusal.reason

    def sent_of_purged(self, partition: int, purged: int) -> int:
        """At most so many of the partition's last `purged` reports are of records that were sent before, by the last
        statistics."""
        return min(purged, max(0, self._sent.get(partition, 0) - (self._reported[partition] - purged)))

    def observe(self, statistics: Mapping[str, Any], now_s: float) -> str | None:
        """Takes librdkafka's statistics; returns a sentence if there is news. Call it once a second or so."""
        partitions = statistics["topics"].get(self._topic, {}).get("partitions", {})
        self.observations += 1
        self._sent = {int(number): facts["txmsgs"] for number, facts in partitions.items()}
        waiting = {
            int(number): facts for number, facts in partitions.items() if self._waits(int(number), facts)
        }
        moved, self._moved = self._moved, set()
        for partition in moved:
            self._refusals.pop(partition, None)
            self._reasons.pop(partition, None)
        self._waits_since_s = {
            partition: now_s if partition in moved else self._waits_since_s.get(partition, now_s)
            for partition in waiting
        }
        stuck: dict[str, set[int]] = {}
        for partition, since_s in self._waits_since_s.items():
            if now_s - since_s >= STALL_S:
                reason = self._why(partition, waiting[partition], statistics, now_s)
                stuck.setdefault(reason, set()).add(partition)
                self._reasons[partition] = reason
        if stuck.keys() - self._told.keys():
            self._told = stuck
            return self._sentence(stuck, now_s)
        told: set[int] = set().union(*self._told.values())
        if not stuck and (moved & told or (moved and UNASSIGNED in told)):  # and have not just timed out
            self._told = {}
            return "the brokers acknowledge again"
        return None

    def _waits(self, partition: int, facts: Mapping[str, Any]) -> bool:
        """Whether a record has no report yet. Counts of queues do not tell: what is sent again later is in none."""
        if partition == UNASSIGNED:
            return bool(facts["msgq_cnt"])
        return bool(facts["msgs"] > self._reported[partition])

    def _why(
        self, partition: int, facts: Mapping[str, Any], statistics: Mapping[str, Any], now_s: float
    ) -> str:
        up = {
            broker["nodeid"]
            for broker in statistics["brokers"].values()
            if broker["state"] in ("UP", "UPDATE")
        }
        refusal = self._refusals.get(partition)
        if not up:
            return NO_BROKER
        if refusal is not None and now_s - refusal.at_s < STALL_S:
            return refusal.reason
        if partition == UNASSIGNED:
            return f"the brokers know no topic {self._topic}"
        if statistics.get("eos", {}).get("idemp_state", "Assigned") != "Assigned":
            return NO_PRODUCER_ID
        if facts["leader"] < 0:
            return "the partition has no leader"
        return f"broker {facts['leader']}, the leader, " + (
            "acknowledges nothing" if facts["leader"] in up else "does not answer"
        )

    def _sentence(self, stuck: Mapping[str, set[int]], now_s: float) -> str:
        since_s = min(
            self._waits_since_s[partition] for partitions in stuck.values() for partition in partitions
        )
        reasons = "; ".join(self._clause(reason, partitions) for reason, partitions in stuck.items())
        until = f"; each line is tried for {self._timeout_s:g} s" if self._timeout_s else ""
        return f"nothing acknowledged for {now_s - since_s:.0f} s: {reasons}{until}"

    def _clause(self, reason: str, partitions: set[int]) -> str:
        if reason in (NO_BROKER, NO_PRODUCER_ID):
            return f"{reason} ({self._client_error})" if self._client_error else reason
        return reason if UNASSIGNED in partitions else f"{reason} (partition {_numbers(partitions)})"


def _numbers(partitions: set[int], at_most: int = 8) -> str:
    shown = ", ".join(map(str, sorted(partitions)[:at_most]))
    return shown if len(partitions) <= at_most else f"{shown}, … {len(partitions)} in all"
