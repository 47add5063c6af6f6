"""`kraft configs`: shows the configs of topics, brokers, groups and loggers, and alters them while they run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from kraft.cli.shared.admin_client import AdminClient, raise_for, run_admin
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, reflowed
from kraft.cli.shared.output import print_json, print_line
from kraft.protocol.schemas.configs import ConfigResourceType, ConfigSource, DescribeConfigsResourceResult
from kraft.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError

app = typer.Typer(help="Configs of topics, brokers, groups and broker loggers.")

INCREMENTAL_VERSION = 1
_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[\]]*\])")
_SET_AT_RUN_TIME = frozenset(
    {
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        ConfigSource.DYNAMIC_GROUP_CONFIG,
        ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
    }
)


class EntityType(Enum):
    """What has configs, as Kafka's tool calls it."""

    TOPICS = "topics"
    BROKERS = "brokers"
    GROUPS = "groups"
    BROKER_LOGGERS = "broker-loggers"


Entity = Annotated[EntityType, typer.Option("--entity-type", help="Of what.", show_default=False)]
EntityName = Annotated[
    str | None,
    typer.Option(
        "--entity-name", help="The name of the topic or group, or the broker's id.", show_default=False
    ),
]
EntityDefault = Annotated[
    bool, typer.Option("--entity-default", help="What counts for all brokers, instead of one of them.")
]


@app.command()
@reflowed
def describe(
    entity_type: Entity,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    every: Annotated[bool, typer.Option("--all", help="Also what was not set at run time.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show what is set at run time or, with --all, everything and where it comes from.

    Exit code 0: shown; 1: failed; 2: wrong usage; 3: no broker answers.
    """
    resource_type, name = _resource(entity_type, entity_name, entity_default)

    async def work(admin: AdminClient) -> list[DescribeConfigsResourceResult]:
        return await admin.describe_configs(resource_type, name)

    found = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    configs = [
        config
        for config in sorted(found, key=lambda config: config.name)
        if every or config.config_source in _SET_AT_RUN_TIME
    ]
    if as_json:
        rows = [_row(config) for config in configs]
        print_json({"entity_type": entity_type.value, "entity_name": name, "configs": rows})
        return
    for config in configs:
        value = "(secret)" if config.is_sensitive else "" if config.value is None else config.value
        print_line(f"{config.name}={value}  ({ConfigSource(config.config_source).name})")


@app.command()
@reflowed
def alter(
    entity_type: Entity,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    add_config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE[,…]",
            help="Set configs; a value with commas in brackets: cleanup.policy=[compact,delete]. May be repeated.",
        ),
    ] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY[,…]", help="Back to the default; may be repeated.")
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Check, and change nothing.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Set configs, or put them back to their defaults: all that are named, or none.

    Exit code 0: done; 1: refused, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    resource_type, name = _resource(entity_type, entity_name, entity_default)
    added, deleted = parse_configs(add_config or [], "--add-config"), split_list(delete_config or [])
    if not added and not deleted:
        raise UserError("nothing to change: name --add-config or --delete-config", EXIT_USAGE)

    async def work(admin: AdminClient) -> None:
        changes = changes_of(added, deleted)
        await change_configs(admin, resource_type, name, changes, validate_only=validate_only)

    run_admin(bootstrap_server, work)
    if as_json:
        print_json(
            {
                "entity_type": entity_type.value,
                "entity_name": name,
                "validate_only": validate_only,
                "set": dict(added),
                "deleted": deleted,
            }
        )


def _resource(entity_type: EntityType, name: str | None, is_default: bool) -> tuple[ConfigResourceType, str]:
    """The resource that the options name. Raises UserError, wrong usage."""
    if (name is None) != is_default:
        raise UserError("name one of --entity-name and --entity-default", EXIT_USAGE)
    if entity_type is EntityType.TOPICS:
        if not name:
            raise UserError("topics have no common configs: name one with --entity-name", EXIT_USAGE)
        return ConfigResourceType.TOPIC, name
    if entity_type is EntityType.GROUPS:
        if not name:
            raise UserError("groups have no common configs: name one with --entity-name", EXIT_USAGE)
        return ConfigResourceType.GROUP, name
    if entity_type is EntityType.BROKER_LOGGERS and not name:
        raise UserError("loggers are of one broker: name it with --entity-name", EXIT_USAGE)
    if name is not None and not name.isdecimal():
        raise UserError(f"--entity-name of a broker is its id, a number, not {name!r}", EXIT_USAGE)
    is_logger = entity_type is EntityType.BROKER_LOGGERS
    return ConfigResourceType.BROKER_LOGGER if is_logger else ConfigResourceType.BROKER, name or ""


def parse_configs(texts: Sequence[str], option: str) -> list[tuple[str, str]]:
    """The key=value[,key=value…] of an option, as Kafka's tool reads them: a value with commas stands in brackets.
    Raises UserError."""
    pairs = []
    for part in (part for text in texts for part in _COMMA_OUTSIDE_BRACKETS.split(text)):
        key, separator, value = (text.strip() for text in part.partition("="))
        if not separator or not key:
            raise UserError(
                f"{option} takes key=value[,key=value…], a value with commas in brackets (key=[a,b]);"
                f" {part!r} is no key=value",
                EXIT_USAGE,
            )
        if value.startswith("[") and value.endswith("]"):
            value = value[1:-1].strip()
        pairs.append((key, value))
    return pairs


def split_list(texts: Sequence[str]) -> list[str]:
    """The names of an option that takes several, separated by commas, and may be repeated."""
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def changes_of(added: Sequence[tuple[str, str]], deleted: Sequence[str]) -> list[AlterableConfig]:
    """What to set, and what to put back to its default."""
    return [
        *(
            AlterableConfig(name=key, config_operation=ConfigOperation.SET, value=value)
            for key, value in added
        ),
        *(AlterableConfig(name=key, config_operation=ConfigOperation.DELETE, value=None) for key in deleted),
    ]


async def change_configs(
    admin: AdminClient,
    resource_type: ConfigResourceType,
    name: str,
    changes: list[AlterableConfig],
    *,
    validate_only: bool = False,
) -> None:
    """Makes all changes of one resource, or none. Raises UserError."""
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=changes)],
        validate_only=validate_only,
    )
    answer: Any = await admin.request_for(resource_type, name, request, version=INCREMENTAL_VERSION)
    result = answer.responses[0]
    raise_for(
        result.error_code, result.error_message, "the configs were not altered", change="they were altered"
    )


def _row(config: DescribeConfigsResourceResult) -> dict[str, Any]:
    return {
        "name": config.name,
        "value": config.value,
        "source": ConfigSource(config.config_source).name,
        "read_only": config.read_only,
        "sensitive": config.is_sensitive,
    }
