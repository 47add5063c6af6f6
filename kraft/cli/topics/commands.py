"""`kraft topics`: create, list, describe, alter and delete topics, over Kafka's own admin APIs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kraft.cli.configs import change_configs, changes_of, parse_configs, split_list
from kraft.cli.shared.admin_client import CHANGE_TIMEOUT_MS, AdminClient, raise_for, run_admin
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, parse_pairs, reflowed
from kraft.cli.shared.output import console, print_json, print_line
from kraft.cli.topics.delete_records import delete_records
from kraft.cli.topics.describe import describe
from kraft.cli.topics.elect_leaders import elect_leaders
from kraft.cli.topics.names import TopicChoice
from kraft.cli.topics.offsets import offsets
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.configs import ConfigResourceType
from kraft.protocol.schemas.metadata import MetadataResponseTopic
from kraft.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kraft.protocol.texts import uuid_text
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError

CLUSTER_DEFAULT = -1
"""Asks for num.partitions, or default.replication.factor, of the broker (KIP-464)."""

app = typer.Typer(help="Topics of a cluster.")

TopicName = Annotated[str, typer.Argument(help="The topic's name.", show_default=False)]


@app.command()
@reflowed
def create(
    name: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="How many partitions; else the cluster's default.", show_default=False),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1, help="Replicas of each partition; else the cluster's default.", show_default=False
        ),
    ] = None,
    config: Annotated[list[str] | None, typer.Option(help="A topic config, key=value.")] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a topic of this name as it is.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Create a topic; returns when it is committed.

    Exit code 0: created, or there with --if-not-exists; 1: refused, or no broker answers; 2: wrong usage;
    3: it cannot be told.
    """
    configs = [
        CreatableTopicConfig(name=key, value=value) for key, value in parse_pairs(config or [], "--config")
    ]
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions or CLUSTER_DEFAULT,
        replication_factor=replication_factor or CLUSTER_DEFAULT,
        configs=configs,
    )

    async def work(admin: AdminClient) -> dict[str, Any]:
        answer: Any = await admin.request(
            CreateTopicsRequest(topics=[topic], timeout_ms=CHANGE_TIMEOUT_MS), version=7
        )
        result = answer.topics[0]
        if if_not_exists and result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return {**await _found(admin, name), "created": False}
        raise_for(
            result.error_code,
            result.error_message,
            f"topic {name} was not created",
            change=f"topic {name} was created",
        )
        return {
            "name": name,
            "topic_id": uuid_text(result.topic_id),
            "partitions": result.num_partitions,
            "replication_factor": result.replication_factor,
            "created": True,
        }

    document = run_admin(bootstrap_server, work)
    if as_json:
        print_json(document)
    elif not document["created"]:
        counts = f"partitions: {document['partitions']}, replication factor: {document['replication_factor']}"
        console.print(
            f"topic {name} exists already ({counts}); it stays as it is", markup=False, soft_wrap=True
        )


async def _found(admin: AdminClient, name: str) -> dict[str, Any]:
    """A topic that is there, as `create --json` tells of it. Raises UserError."""
    topic = (await admin.metadata([name])).topics[0]
    raise_for(topic.error_code, None, f"topic {name}")
    document = _listed(topic)
    del document["internal"]
    return document


@app.command("list")
def list_(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATTERN]",
            help="A regular expression for whole names, or a name; without it, all topics.",
            show_default=False,
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List topics, one name a line; internal ones only with --json."""
    choice = TopicChoice(name)

    async def work(admin: AdminClient) -> list[MetadataResponseTopic]:
        return choice.among((await admin.metadata(None)).topics)

    topics = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
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
@reflowed
def alter(
    name: TopicName,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="The new number of partitions, all counted.", show_default=False)
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE[,…]", help="As `kraft configs alter --add-config`.")
    ] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY[,…]", help="As `kraft configs alter --delete-config`.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Add partitions to a topic, or alter its configs.

    Exit code 0: done; 1: refused, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    added, deleted = parse_configs(config or [], "--config"), split_list(delete_config or [])
    if (partitions is None) != bool(added or deleted):
        raise UserError(
            "name what to alter: --partitions, or --config and --delete-config; not both at once, since one of them"
            " could be refused when the other is done",
            EXIT_USAGE,
        )

    async def work(admin: AdminClient) -> None:
        if partitions is None:
            await change_configs(admin, ConfigResourceType.TOPIC, name, changes_of(added, deleted))
        else:
            await _add_partitions(admin, name, partitions)

    run_admin(bootstrap_server, work)
    if as_json and partitions is not None:
        print_json({"name": name, "partitions": partitions})
    elif as_json:
        print_json({"name": name, "set": dict(added), "deleted": deleted})


async def _add_partitions(admin: AdminClient, name: str, total: int) -> None:
    topic = CreatePartitionsTopic(name=name, count=total)
    answer: Any = await admin.request(
        CreatePartitionsRequest(topics=[topic], timeout_ms=CHANGE_TIMEOUT_MS), version=3
    )
    raise_for(
        answer.results[0].error_code,
        answer.results[0].error_message,
        f"topic {name} was not altered",
        change=f"topic {name} was altered",
    )


@app.command()
def delete(name: TopicName, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Delete a topic and its data.

    Exit code 0: deleted; 1: refused, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    topic = DeleteTopicState(name=name)

    async def work(admin: AdminClient) -> Any:
        answer: Any = await admin.request(
            DeleteTopicsRequest(topics=[topic], timeout_ms=CHANGE_TIMEOUT_MS), version=6
        )
        result = answer.responses[0]
        raise_for(
            result.error_code,
            result.error_message,
            f"topic {name} was not deleted",
            change=f"topic {name} was deleted",
        )
        return result

    deleted = run_admin(bootstrap_server, work)
    if as_json:
        print_json({"name": name, "topic_id": uuid_text(deleted.topic_id)})


app.command()(reflowed(describe))
app.command()(reflowed(offsets))
app.command("delete-records")(reflowed(delete_records))
app.command("elect-leaders")(reflowed(elect_leaders))
