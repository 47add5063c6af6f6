"""`kraft topics`: create, list, describe, alter and delete topics, over Kafka's own admin APIs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kraft.cli.shared.admin_client import CHANGE_TIMEOUT_MS, AdminClient, raise_for, run_admin
from kraft.cli.shared.documents import uuid_text
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, parse_pairs, reflowed
from kraft.cli.shared.output import print_json, print_line
from kraft.cli.topics.delete_records import delete_records
from kraft.cli.topics.describe import describe
from kraft.cli.topics.elect_leaders import elect_leaders
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
from kraft.user_error import EXIT_UNDECIDED

app = typer.Typer(help="Topics of a cluster.")

TopicName = Annotated[str, typer.Argument(help="The topic's name.", show_default=False)]


@app.command()
def create(
    name: TopicName,
    partitions: Annotated[int, typer.Option(min=1, help="How many partitions.")] = 1,
    replication_factor: Annotated[int, typer.Option(min=1, help="Replicas of each partition.")] = 1,
    config: Annotated[list[str] | None, typer.Option(help="A topic config, key=value.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Create a topic; returns when it is committed.

    Exit code 0: created; 1: refused, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    configs = [
        CreatableTopicConfig(name=key, value=value) for key, value in parse_pairs(config or [], "--config")
    ]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, configs=configs
    )

    async def work(admin: AdminClient) -> Any:
        answer: Any = await admin.request(
            CreateTopicsRequest(topics=[topic], timeout_ms=CHANGE_TIMEOUT_MS), version=7
        )
        result = answer.topics[0]
        raise_for(
            result.error_code,
            result.error_message,
            f"topic {name} was not created",
            change=f"topic {name} was created",
        )
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

    topics = sorted(
        run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED), key=lambda topic: topic.name or ""
    )
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
def alter(
    name: TopicName,
    partitions: Annotated[int, typer.Option(min=1, help="The new number of partitions, all counted.")],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Add partitions to a topic.

    Exit code 0: added; 1: refused, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    topic = CreatePartitionsTopic(name=name, count=partitions)

    async def work(admin: AdminClient) -> None:
        answer: Any = await admin.request(
            CreatePartitionsRequest(topics=[topic], timeout_ms=CHANGE_TIMEOUT_MS), version=3
        )
        raise_for(
            answer.results[0].error_code,
            answer.results[0].error_message,
            f"topic {name} was not altered",
            change=f"topic {name} was altered",
        )

    run_admin(bootstrap_server, work)
    if as_json:
        print_json({"name": name, "partitions": partitions})


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


app.command()(describe)
app.command("delete-records")(reflowed(delete_records))
app.command("elect-leaders")(reflowed(elect_leaders))
