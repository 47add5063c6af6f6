"""How long a read waits for leader changes and absent brokers before it fails, and how it waits.

`local[N]` masters have no task retries and a failed driver call kills the query, so an election must be ridden out
here. The budget counts from the last progress: a long read survives many elections. It is bounded: a lost partition
ends the job with a reason. The options fetchOffset.numRetries and fetchOffset.retryIntervalMs bound the driver's
questions as well, kafkaConsumer.pollTimeoutMs replaces the executors' budget. `client.py` and `slice_reader.py` use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from kraft.spark.data_loss import LOGGER
from kraft.spark.errors import ConnectorError, TopicChangedError, UnknownTopicError


@dataclass(frozen=True)
class RetryPolicy:
    """Durations in seconds; `clock` and `sleep` are replaced in tests."""

    budget_s: float = 60.0
    """Without progress for so long, the read fails."""
    absence_s: float = 5.0
    """A topic that is unknown, or has another id, for so long is believed to be so: brokers learn of
    topics one after the other."""
    first_answer_s: float = 14.0
    """Until any broker has answered, the address may be wrong: the read fails so soon."""
    notice_s: float = 3.0
    """After so long without a first answer `warn` says that it is still tried."""
    max_attempts: int | None = None
    """So many attempts without progress fail, even if there is time left."""
    first_backoff_s: float = 0.05
    max_backoff_s: float = 1.0
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 10.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    warn: Callable[[str], None] = LOGGER.warning


class Attempts:
    """Counts one operation's failures since its last progress."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._since = policy.clock()
        self._absent_since: float | None = None
        self._failures = 0
        self._backoff_s = policy.first_backoff_s

    def lasted_s(self) -> float:
        """The time since the last progress."""
        return self._policy.clock() - self._since

    def progressed(self) -> None:
        """The budget starts anew."""
        self._since = self._policy.clock()
        self._absent_since = None
        self._failures = 0
        self._backoff_s = self._policy.first_backoff_s

    def wait_or_raise(self, error: ConnectorError, *, within_s: float | None = None) -> None:
        """Waits before the next attempt; raises `error` once the time for such errors, or `within_s`, is used up."""
        policy, now = self._policy, self._policy.clock()
        self._failures += 1
        left = self._since + policy.budget_s - now
        if within_s is not None:
            left = min(left, within_s)
        if isinstance(error, (UnknownTopicError, TopicChangedError)):
            self._absent_since = now if self._absent_since is None else self._absent_since
            left = min(left, self._absent_since + policy.absence_s - now)
        else:
            self._absent_since = None
        if left <= 0 or (policy.max_attempts is not None and self._failures >= policy.max_attempts):
            raise error
        policy.sleep(min(self._backoff_s, left))
        self._backoff_s = min(self._backoff_s * 2, policy.max_backoff_s)
