"""The levels of this node's loggers, as configs of the resource type 8 (KIP-412).

DescribeConfigs lists them, IncrementalAlterConfigs sets them; each node answers for its own, nothing of it reaches the
controller, and a restart forgets it. Called by `configs` and `alter_configs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kraft.broker.handlers.forwarding import Refusal
from kraft.broker.services import BrokerServices
from kraft.loggers import LEVELS, ROOT
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.configs import ConfigSource, DescribeConfigsResourceResult
from kraft.protocol.texts import shortened
from quorum.rpc.messages import DELETE, SET

Change = tuple[str, str | None, str | None]
"""Logger, level, and the name of the operation (None for one that is not Kafka's)."""


def node_problem(services: BrokerServices, resource_name: str) -> Refusal | None:
    """Why this node does not answer for the resource."""
    if resource_name == str(services.broker_id):
        return None
    received = shortened(resource_name)
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"Unexpected broker id, expected {services.broker_id}, but received {received!r};"
        " ask each broker for its own loggers",
    )


def logger_entries(services: BrokerServices) -> Iterator[DescribeConfigsResourceResult]:
    """All loggers with the levels that count for them."""
    for name, level in services.loggers.levels().items():
        yield DescribeConfigsResourceResult(
            name=name, value=level, config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
        )


def changes_problem(services: BrokerServices, changes: Sequence[Change]) -> Refusal | None:
    """Why these levels cannot be set; None if they all can."""
    return next(filter(None, (_problem(services, change) for change in changes)), None)


def _problem(services: BrokerServices, change: Change) -> Refusal | None:
    name, level, operation = change
    shown = shortened(name)
    if operation not in (SET, DELETE):
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"{operation} operation is not allowed for the BROKER_LOGGER resource; use SET or DELETE",
        )
    if not services.loggers.exists(name):
        return Refusal(ErrorCode.INVALID_CONFIG, f"Logger {shown} does not exist!")
    if operation == DELETE and name == ROOT:
        return Refusal(
            ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed; set another"
        )
    if operation == SET and level not in LEVELS:
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {shown} to {shortened(level or '')} as it is not a supported log level."
            f" Valid log levels are {', '.join(LEVELS)}",
        )
    return None


def set_levels(services: BrokerServices, changes: Sequence[Change]) -> None:
    """Makes changes that have no problem."""
    for name, level, operation in changes:
        services.loggers.set_level(name, None if operation == DELETE else level)
