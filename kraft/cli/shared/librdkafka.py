"""`--property`: librdkafka's properties, as `kraft produce` and `kraft consume` hand them on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from kraft.cli.shared.command_config import config_of
from kraft.cli.shared.options import parse_pairs, require_text
from kraft.spark.errors import AuthenticationError
from kraft.user_error import EXIT_FAILED, EXIT_USAGE, UserError

Properties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="K=V", help="A property of librdkafka, over what the command sets."),
]

_OWN = "the command needs it for itself"
OWNED = {
    "bootstrap.servers": "--bootstrap-server sets it",
    "metadata.broker.list": "--bootstrap-server sets it",
    **dict.fromkeys(("log_level", "debug", "logger", "opaque", "enabled_events", "log.queue"), _OWN),
    "statistics.interval.ms": _OWN,
}
"""Properties that no caller may set, and why."""


def parse_properties(texts: list[str], owned: Mapping[str, str]) -> dict[str, str]:
    """What --property says. Raises UserError, wrong usage, for one that the command owns; `owned` gives the reasons."""
    properties = dict(parse_pairs(texts, "--property"))
    for key, value in properties.items():
        require_text(f"{key}={value}", "--property")
        reason = owned.get(key, OWNED.get(key, _OWN if key.endswith("_cb") else None))
        if reason is not None:
            raise UserError(f"--property cannot set {key}: {reason}", EXIT_USAGE)
    return properties


def security_properties(servers: str) -> dict[str, Any]:
    """How these brokers are spoken to. Raises UserError where tokens are needed and there is none: librdkafka would
    only say that it has waited for one."""
    try:
        return config_of(servers).security.producer_properties()
    except AuthenticationError as error:
        raise UserError(str(error), EXIT_FAILED) from error


def client_of(kind: Callable[..., Any], properties: Mapping[str, Any], logger: Any = None) -> Any:
    """A Producer or Consumer. Raises UserError, wrong usage, for properties that it does not take."""
    from confluent_kafka import KafkaException

    try:
        return kind(dict(properties), logger=logger)
    except KafkaException as error:
        raise UserError(
            f"librdkafka refuses its properties: {error.args[0].str().strip()}", EXIT_USAGE
        ) from error
    except (TypeError, ValueError) as error:  # what the Python binding checks itself
        raise UserError(f"librdkafka refuses its properties: {error}", EXIT_USAGE) from error
