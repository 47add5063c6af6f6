"""How long requests of one API took, by the phases that Kafka's RequestMetrics names.

A sum and counts by power of two, so that a request costs a few additions. `Dispatcher` adds up what it sees, the outbox
when an answer has left; a request that ended its connection is not counted.
"""

from __future__ import annotations

from typing import Final

BUCKETS: Final = 48
"""No process lives as long as the last one says."""


class PhaseTimes:
    """How long each of the requests was in one phase."""

    __slots__ = ("buckets", "sum_s")

    def __init__(self) -> None:
        self.sum_s = 0.0
        self.buckets = [0] * BUCKETS
        """At n: how many took less than 2**n microseconds, and not less than 2**(n-1)."""

    def add(self, duration_s: float) -> None:
        """`duration_s`: of a clock that never goes back."""
        self.sum_s += duration_s
        self.buckets[int(duration_s * 1e6).bit_length()] += 1


class RequestTimes:
    """Of all requests of one API; in seconds of the loop's time."""

    __slots__ = ("count", "local", "queue", "remote", "send")

    def __init__(self) -> None:
        self.count = 0
        self.queue = PhaseTimes()
        """From the arrival of its last bytes to its handler, behind requests that came before it."""
        self.local = PhaseTimes()
        """In its handler, decoding and encoding included, until it is answered or waits."""
        self.remote = PhaseTimes()
        """Waiting for other brokers, for records, for the controller, and for its turn to be answered; of those that
        wait."""
        self.send = PhaseTimes()
        """From its answer to the moment at which the socket had taken it, or the transport as a last buffer."""
