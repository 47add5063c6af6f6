"""`kraft topics`: create, list, describe, alter and delete topics, over Kafka's own admin APIs."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from kraft.cli.admin import AdminClient, raise_for, run_admin
from kraft.cli.delete_records import delete_records
from kraft.cli.elections import elect_leaders
from kraft.cli.ids import uuid_text
from kraft.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, parse_pairs, reflowed
from kraft.cli.output import print_json, print_line, print_table
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
    as_json: Json = False,
) -> None:
    """Create a topic; returns when it is committed."""
    configs = [
        CreatableTopicConfig(name=key, value=value) for key, value in parse_pairs(config or [], "--config")
    ]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, configs=configs
    )

    async def work(admin: AdminClient) -> Any:
        answer: Any = await admin.request(
            CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), version=7
        )
        result = answer.topics[0]
        raise_for(result.error_code, result.error_message, f"topic {name} was not created")
        return result

    created = run_admin(bootstrap_server, work)
    if as_json:
        print_json(
            {
                "name": name,
                "topic_id": uuid_text(created.topic_id),
                "partitions": created.num_partitions,
                "replication_factor": created.replication_factor,
            }
        )


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
        "topic_id": uuid_text(topic.topic_id),
        "partitions": len(topic.partitions),
        "replication_factor": max(
            (len(partition.replica_nodes) for partition in topic.partitions), default=0
        ),
        "internal": topic.is_internal,
    }


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
    raise_for(topic.error_code, None, f"topic {name}")
    configs = await admin.describe_configs(ConfigResourceType.TOPIC, name)
    eligible = await admin.eligible_leaders(name)
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
        "topic_id": uuid_text(topic.topic_id),
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
                "elr": eligible.get(partition.partition_index, []),
                "hw": high_watermarks.get(partition.partition_index, -1),
                "leo": log_ends.get(partition.partition_index, {}),
            }
            for partition in partitions
        ],
    }


def _table(document: dict[str, Any]) -> Table:
    configs = ", ".join(f"{key}={value}" for key, value in document["configs"].items()) or "defaults"
    table = Table(title=f"{document['name']} ({document['topic_id']}): {configs}")
    for column in ("partition", "leader", "epoch", "replicas", "isr", "elr", "high watermark", "log ends"):
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
            ",".join(map(str, partition["elr"])),
            str(partition["hw"]),
            " ".join(f"{replica}:{offset}" for replica, offset in partition["leo"].items()),
        )
    return table


@app.command()
def alter(
    name: Name,
    partitions: Annotated[int, typer.Option(min=1, help="The new number of partitions, all counted.")],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Add partitions to a topic."""
    topic = CreatePartitionsTopic(name=name, count=partitions)

    async def work(admin: AdminClient) -> None:
        answer: Any = await admin.request(
            CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), version=3
        )
        raise_for(
            answer.results[0].error_code, answer.results[0].error_message, f"topic {name} was not altered"
        )

    run_admin(bootstrap_server, work)
    if as_json:
        print_json({"name": name, "partitions": partitions})


@app.command()
def delete(name: Name, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Delete a topic and its data."""
    topic = DeleteTopicState(name=name)

    async def work(admin: AdminClient) -> Any:
        answer: Any = await admin.request(
            DeleteTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), version=6
        )
        result = answer.responses[0]
        raise_for(result.error_code, result.error_message, f"topic {name} was not deleted")
        return result

    deleted = run_admin(bootstrap_server, work)
    if as_json:
        print_json({"name": name, "topic_id": uuid_text(deleted.topic_id)})


app.command("delete-records")(reflowed(delete_records))
app.command("elect-leaders")(reflowed(elect_leaders))
