"""`kraft topics`: create, list, describe, alter and delete topics, over Kafka's own admin APIs."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import typer
from rich.table import Table

from kraft.cli.admin import AdminClient, run_admin
from kraft.cli.errors import EXIT_UNDECIDED, EXIT_USAGE, UserError
from kraft.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from kraft.cli.output import print_json, print_line, print_table
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.configs import ConfigResourceType, ConfigSource
from kraft.protocol.schemas.metadata import MetadataResponseTopic
from kraft.protocol.schemas.offsets import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID
from kraft.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

app = typer.Typer(help="Topics of a cluster.")

TIMEOUT_MS = 30_000
Name = Annotated[str, typer.Argument(help="The topic's name.", show_default=False)]


@app.command()
def create(
    name: Name,
    partitions: Annotated[int, typer.Option(min=1, help="How many partitions.")] = 1,
    replication_factor: Annotated[int, typer.Option(min=1, help="Replicas of each partition.")] = 1,
    config: Annotated[list[str] | None, typer.Option(help="A topic config, key=value.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create a topic; returns when it is committed."""
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in _parse_configs(config or [])]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, configs=configs
    )

    async def work(admin: AdminClient) -> None:
        answer: Any = await admin.request(
            CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), version=7
        )
        _raise_for(
            answer.topics[0].error_code, answer.topics[0].error_message, f"topic {name} was not created"
        )

    run_admin(bootstrap_server, work)


def _parse_configs(pairs: list[str]) -> list[tuple[str, str]]:
    parsed = []
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UserError(f"--config takes key=value, not {pair!r}", EXIT_USAGE)
        parsed.append((key, value))
    return parsed


def _raise_for(code: int, message: str | None, what: str) -> None:
    if code:
        error = ErrorCode(code)
        text = message or error.message
        if error is ErrorCode.REQUEST_TIMED_OUT:
            raise UserError(f"it cannot be told whether {what}: {text} ({error.name})", EXIT_UNDECIDED)
        raise UserError(f"{what}: {text} ({error.name})")


@app.command("list")
def list_(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List topics, one name a line; internal ones only with --json."""

    async def work(admin: AdminClient) -> list[MetadataResponseTopic]:
        return (await admin.metadata(None)).topics

    topics = sorted(run_admin(bootstrap_server, work), key=lambda topic: topic.name or "")
    if as_json:
        print_json({"topics": [_listed(topic) for topic in topics]})
        return
    for topic in topics:
        if not topic.is_internal:
            print_line(topic.name or "")


def _listed(topic: MetadataResponseTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": _uuid_text(topic.topic_id),
        "partitions": len(topic.partitions),
        "replication_factor": max(
            (len(partition.replica_nodes) for partition in topic.partitions), default=0
        ),
        "internal": topic.is_internal,
    }


def _uuid_text(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


@app.command()
def describe(name: Name, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show a topic's partitions: leader, epoch, replicas, ISR, high watermark, each replica's log end."""

    async def work(admin: AdminClient) -> dict[str, Any]:
        return await _describe(admin, name)

    document = run_admin(bootstrap_server, work)
    if as_json:
        print_json(document)
    else:
        print_table(_table(document))


async def _describe(admin: AdminClient, name: str) -> dict[str, Any]:
    topic = (await admin.metadata([name])).topics[0]
    _raise_for(topic.error_code, None, f"topic {name}")
    configs = await admin.describe_configs(ConfigResourceType.TOPIC, name)
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    by_leader: dict[int, list[int]] = {}
    by_replica: dict[int, list[int]] = {}
    for partition in partitions:
        if partition.leader_id >= 0:
            by_leader.setdefault(partition.leader_id, []).append(partition.partition_index)
        for replica in partition.replica_nodes:
            by_replica.setdefault(replica, []).append(partition.partition_index)
    high_watermarks: dict[int, int] = {}
    for leader, numbers in by_leader.items():
        high_watermarks |= await admin.end_offsets(leader, name, numbers, CONSUMER_REPLICA_ID)
    log_ends: dict[int, dict[str, int]] = {}
    for replica, numbers in by_replica.items():
        for number, offset in (await admin.end_offsets(replica, name, numbers, DEBUGGING_REPLICA_ID)).items():
            log_ends.setdefault(number, {})[str(replica)] = offset
    return {
        "name": name,
        "topic_id": _uuid_text(topic.topic_id),
        "configs": {
            config.name: config.value
            for config in configs
            if config.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        },
        "partitions": [
            {
                "partition": partition.partition_index,
                "leader": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replica_nodes,
                "isr": partition.isr_nodes,
                "elr": [],
                "hw": high_watermarks.get(partition.partition_index, -1),
                "leo": log_ends.get(partition.partition_index, {}),
            }
            for partition in partitions
        ],
    }


def _table(document: dict[str, Any]) -> Table:
    configs = ", ".join(f"{key}={value}" for key, value in document["configs"].items()) or "defaults"
    table = Table(title=f"{document['name']} ({document['topic_id']}): {configs}")
    for column in ("partition", "leader", "epoch", "replicas", "isr", "high watermark", "log ends"):
        table.add_column(column)
    for partition in document["partitions"]:
        missing = set(partition["replicas"]) - set(partition["isr"])
        colour = "red" if partition["leader"] < 0 else "yellow" if missing else "green"
        table.add_row(
            str(partition["partition"]),
            f"[{colour}]{partition['leader']}[/{colour}]",
            str(partition["leader_epoch"]),
            ",".join(map(str, partition["replicas"])),
            f"[{colour}]{','.join(map(str, partition['isr']))}[/{colour}]",
            str(partition["hw"]),
            " ".join(f"{replica}:{offset}" for replica, offset in partition["leo"].items()),
        )
    return table


@app.command()
def alter(
    name: Name,
    partitions: Annotated[int, typer.Option(min=1, help="The new number of partitions, all counted.")],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add partitions to a topic."""
    topic = CreatePartitionsTopic(name=name, count=partitions)

    async def work(admin: AdminClient) -> None:
        answer: Any = await admin.request(
            CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), version=3
        )
        _raise_for(
            answer.results[0].error_code, answer.results[0].error_message, f"topic {name} was not altered"
        )

    run_admin(bootstrap_server, work)


@app.command()
def delete(name: Name, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Delete a topic and its data."""
    topic = DeleteTopicState(name=name)

    async def work(admin: AdminClient) -> None:
        answer: Any = await admin.request(
            DeleteTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), version=6
        )
        result = answer.responses[0]
        _raise_for(result.error_code, result.error_message, f"topic {name} was not deleted")

    run_admin(bootstrap_server, work)
