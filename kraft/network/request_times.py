"""How long requests of one API took, by the phases that Kafka's RequestMetrics names.

Sums and a count, so that a request costs a few additions. `Dispatcher` adds up what it sees, the outbox when an answer
has left; a request that ended its connection is not counted.
"""

from __future__ import annotations


class RequestTimes:
    """Sums over all requests of one API; in seconds of the loop's time."""

    __slots__ = ("count", "local_s", "queue_s", "remote_s", "send_s")

    def __init__(self) -> None:
        self.count = 0
        self.queue_s = 0.0
        """From the arrival of its last bytes to its handler, behind requests that came before it."""
        self.local_s = 0.0
        """In its handler, decoding and encoding included, until it is answered or waits."""
        self.remote_s = 0.0
        """Waiting for other brokers, for records, for the controller, and for its turn to be answered."""
        self.send_s = 0.0
        """From its answer to the moment at which the socket had taken it, or the transport as a last buffer."""
