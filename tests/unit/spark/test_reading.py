"""How patient the clients are that the options ask for."""

from __future__ import annotations

import pytest

from kraft.spark.options import parse_options
from kraft.spark.reading import driver_client
from kraft.spark.retry import RetryPolicy


@pytest.mark.parametrize(
    ("options", "attempts", "first_s", "longest_s"),
    [
        ({}, None, RetryPolicy.first_backoff_s, RetryPolicy.max_backoff_s),
        ({"fetchOffset.numRetries": "3"}, 3, 1.0, 1.0),
        ({"fetchOffset.retryIntervalMs": "200"}, None, 0.2, 0.2),
        ({"fetchOffset.numRetries": "9", "fetchOffset.retryIntervalMs": "50"}, 9, 0.05, 0.05),
    ],
)
def test_the_driver_asks_as_often_as_the_options_say(
    options: dict[str, str], attempts: int | None, first_s: float, longest_s: float
) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **options}
    policy = driver_client(parse_options(given)).policy
    assert (policy.max_attempts, policy.first_backoff_s, policy.max_backoff_s) == (
        attempts,
        first_s,
        longest_s,
    )
    assert policy.first_answer_s < 15
