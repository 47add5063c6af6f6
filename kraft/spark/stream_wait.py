"""Waits until a partition has more than the stream knows of: long polls, one at each leader, on their own connections.

A fetch at the known ends waits in the broker (KIP-227's `max_wait_ms`); its answer is only the sign to look. Without it
Spark would ask for the latest offset some ninety times a second. A wait ends after MAX_WAIT_MS, since stopping a query
may wait for it. `stream.py` calls it between two looks that found nothing.
"""

from __future__ import annotations

import selectors
from collections.abc import Mapping
from typing import NamedTuple

from kraft.protocol import ProtocolError
from kraft.protocol.fetch import FetchRequest, FetchResponse
from kraft.spark.client import ClusterClient
from kraft.spark.connection import BlockingConnection
from kraft.spark.errors import ConnectorError
from partitions.topic_partition import TopicPartition

MAX_WAIT_MS = 500

Ends = Mapping[TopicPartition, tuple[bytes, int]]
"""Topic id and end of each partition."""


class _Poll(NamedTuple):
    """A fetch that a broker has not answered yet."""

    connection: BlockingConnection
    ends: Ends


class NewsWatch:
    """Not for several threads. `close` ends all connections."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._polls: dict[int, _Poll] = {}
        self._idle: dict[int, BlockingConnection] = {}

    def close(self) -> None:
        """Idempotent."""
        for poll in self._polls.values():
            poll.connection.close()
        for connection in self._idle.values():
            connection.close()
        self._polls.clear()
        self._idle.clear()

    def wait(self, ends: Ends) -> None:
        """Returns when a partition may have more than `ends`, after MAX_WAIT_MS at the latest.

        A leader that cannot be asked has no say: looking again will tell what became of it.
        """
        policy = self._client.policy
        until = policy.clock() + MAX_WAIT_MS / 1000
        asked: set[int] = set()
        while (left_s := until - policy.clock()) > 0:
            for broker_id, request in self._client.polls(ends, MAX_WAIT_MS).items():
                if broker_id not in asked and broker_id not in self._polls:
                    asked.add(broker_id)
                    self._ask(broker_id, request, ends)
            if not self._polls:
                policy.sleep(left_s)
                return
            for broker_id in self._answered(left_s):
                if self._has_news(broker_id, ends):
                    return

    def _ask(self, broker_id: int, request: FetchRequest, ends: Ends) -> None:
        connection = self._idle.pop(broker_id, None)
        try:
            if connection is None:
                connection = self._client.connect(broker_id)
            connection.send(request)
        except (OSError, ProtocolError, ConnectorError):
            if connection is not None:
                connection.close()
            return
        self._polls[broker_id] = _Poll(connection, ends)

    def _answered(self, timeout_s: float) -> list[int]:
        with selectors.DefaultSelector() as selector:
            for broker_id, poll in self._polls.items():
                selector.register(poll.connection, selectors.EVENT_READ, broker_id)
            return [key.data for key, _ in selector.select(timeout_s)]

    def _has_news(self, broker_id: int, ends: Ends) -> bool:
        """Takes the answer. One to an earlier question says nothing; one with records, or an error, does."""
        poll = self._polls.pop(broker_id)
        try:
            response = poll.connection.receive(FetchResponse)
        except (OSError, ProtocolError):
            poll.connection.close()
            return True
        self._idle[broker_id] = poll.connection
        if poll.ends != ends:
            return False
        return any(
            data.error_code or data.records for topic in response.responses for data in topic.partitions
        )
