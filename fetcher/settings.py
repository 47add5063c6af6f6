"""How a follower fetches; names, units and defaults are Kafka's replica.fetch.* keys."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """Settings of all fetchers of a broker."""

    max_wait_ms: int = 500
    """replica.fetch.wait.max.ms: how long the leader holds a fetch that finds nothing new."""
    min_bytes: int = 1
    """replica.fetch.min.bytes"""
    max_bytes: int = 10 * 1024 * 1024
    """replica.fetch.response.max.bytes: records in one answer, the first batch excepted."""
    partition_max_bytes: int = 1024 * 1024
    """replica.fetch.max.bytes: records of one partition in one answer, the first batch excepted."""
    fetchers_per_leader: int = 1
    """num.replica.fetchers: how many share what is copied from one leader, each with its connections."""
    backoff_initial_ms: int = 50
    """The wait after a first failure; it doubles with each further one."""
    backoff_max_ms: int = 1_000
    """replica.fetch.backoff.ms"""


def backoff_ms(settings: FetcherSettings, failures: int, jitter: float) -> int:
    """The wait after so many failures in a row; `jitter` in [0, 1) spreads it by a fifth to both sides."""
    assert failures > 0, "a back-off follows a failure"
    # The exponent is bounded so that a leader that is down for days costs no big integers.
    wait_ms = min(settings.backoff_max_ms, settings.backoff_initial_ms << min(failures - 1, 16))
    return max(1, int(wait_ms * (0.8 + 0.4 * jitter)))
