"""`kraft topics describe`: partitions with their replicas, ISR, ELR, high watermark and log ends; all or the ailing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text

from kraft.cli.reassign.moves import ongoing
from kraft.cli.shared.admin_client import AdminClient, raise_for, run_admin
from kraft.cli.shared.documents import lag_text, log_ends_text
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from kraft.cli.shared.output import Wide, console, is_terminal, print_json, print_line, print_rows
from kraft.cli.shared.tables import Cell, Rows
from kraft.cli.topics.names import TopicChoice
from kraft.cluster_problems import ids_text
from kraft.protocol.schemas.configs import (
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsResourceResult,
)
from kraft.protocol.schemas.metadata import MetadataResponsePartition, MetadataResponseTopic
from kraft.protocol.schemas.offsets import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID
from kraft.protocol.texts import uuid_text
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError
from partitions.topic_partition import TopicPartition

MIN_ISR = "min.insync.replicas"


class FilteredPartition(NamedTuple):
    """What filters go by."""

    leader: int
    in_sync: int
    replicas: int
    """Those that are still to come, in a reassignment, not counted."""
    min_isr: int
    """min.insync.replicas, bounded by the replicas that there are."""


FILTERS: Mapping[str, Callable[[FilteredPartition], bool]] = {
    "under-replicated": lambda partition: partition.in_sync < partition.replicas,
    "under-min-isr": lambda partition: partition.leader < 0 or partition.in_sync < partition.min_isr,
    "at-min-isr": lambda partition: partition.leader >= 0 and partition.in_sync == partition.min_isr,
    "unavailable": lambda partition: partition.leader < 0,
}
"""As Kafka's tool has them."""

Filter = Callable[[FilteredPartition], bool]
Adding = Mapping[TopicPartition, int]
"""How many replicas partitions still wait for, of those that are being reassigned."""


def describe(
    name: Annotated[
        str | None,
        typer.Argument(
            help="The topic, or a regular expression for whole names; without it, all topics.",
            show_default=False,
        ),
    ] = None,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated",
            help="Only partitions with a replica out of the ISR; new ones of a reassignment not counted.",
        ),
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr", help="Only those whose ISR is below min.insync.replicas.")
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr", help="Only those whose ISR is at min.insync.replicas exactly.")
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable", help="Only partitions without a leader.")
    ] = False,
    wide: Wide = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show partitions: leader, epoch, replicas, ISR, ELR, high watermark, and which replicas lag.

    `lag` is how many offsets a replica's log ends before the leader's (without a leader: before the longest), as
    ID:OFFSETS of those that lag; ID:? for one that does not answer. --wide adds each log's end.
    Exit code 0: shown; 1: failed; 2: wrong usage; 3: no broker answers.
    """
    given = (under_replicated, under_min_isr, at_min_isr, unavailable)  # in the order of FILTERS
    chosen = _chosen(dict(zip(FILTERS, given, strict=True)))
    topic_choice = TopicChoice(name)

    async def work(admin: AdminClient) -> list[dict[str, Any]]:
        topics = topic_choice.among((await admin.metadata(topic_choice.asked)).topics)
        moves = await ongoing(admin, None) if under_replicated else []
        adding = {one.key: len(one.state.adding_replicas) for one in moves}
        return [await _described(admin, topic, chosen, adding) for topic in topics]

    documents = run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)
    if not topic_choice.is_one:
        documents = [document for document in documents if document["partitions"]]
    if as_json:
        print_json(documents[0] if topic_choice.is_one else {"topics": documents})
        return
    show(documents, wide)
    if not any(document["partitions"] for document in documents):
        console.print("no partition is like that" if chosen else topic_choice.none, markup=False)


def _chosen(given: Mapping[str, bool]) -> Filter | None:
    """The one filter that is given, by its name. Raises UserError, wrong usage, for several."""
    chosen = [FILTERS[name] for name, is_given in given.items() if is_given]
    if len(chosen) > 1:
        options = ", ".join(f"--{name}" for name in FILTERS)
        raise UserError(f"choose one of {options}", EXIT_USAGE)
    return chosen[0] if chosen else None


async def _described(
    admin: AdminClient, topic: MetadataResponseTopic, chosen: Filter | None, adding: Adding
) -> dict[str, Any]:
    name = topic.name or ""
    raise_for(topic.error_code, None, f"topic {name}")
    configs = await admin.describe_configs(ConfigResourceType.TOPIC, name)
    min_isr = _min_isr(configs)
    partitions = sorted(
        (
            partition
            for partition in topic.partitions
            if chosen is None
            or chosen(
                _judged(partition, min_isr, adding.get(TopicPartition(name, partition.partition_index), 0))
            )
        ),
        key=lambda partition: partition.partition_index,
    )
    return {
        "name": name,
        "topic_id": uuid_text(topic.topic_id),
        "configs": {
            config.name: config.value
            for config in configs
            if config.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        },
        "partitions": await _rows(admin, name, partitions) if partitions else [],
    }


def _judged(partition: MetadataResponsePartition, min_isr: int, adding: int) -> FilteredPartition:
    replicas = len(partition.replica_nodes)
    return FilteredPartition(
        partition.leader_id, len(partition.isr_nodes), replicas - adding, min(min_isr, replicas)
    )


def _min_isr(configs: list[DescribeConfigsResourceResult]) -> int:
    return next((int(config.value or 1) for config in configs if config.name == MIN_ISR), 1)


async def _rows(
    admin: AdminClient, name: str, partitions: list[MetadataResponsePartition]
) -> list[dict[str, Any]]:
    eligible = await admin.eligible_leaders(name)
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
    return [
        {
            "partition": partition.partition_index,
            "leader": partition.leader_id,
            "leader_epoch": partition.leader_epoch,
            "replicas": partition.replica_nodes,
            "isr": partition.isr_nodes,
            "elr": eligible.get(partition.partition_index, []),
            "offline": partition.offline_replicas,
            "hw": high_watermarks.get(partition.partition_index, -1),
            "leo": log_ends.get(partition.partition_index, {}),
        }
        for partition in partitions
    ]


def show(documents: Sequence[dict[str, Any]], wide: bool) -> None:
    """Prints topics: on a terminal a table for each, below its id and configs; piped, one for all."""
    if not is_terminal():
        print_rows(partitions_table(documents, wide=True, names_topics=True))
        return
    for number, document in enumerate(documents):
        configs = ", ".join(f"{key}={value}" for key, value in document["configs"].items()) or "defaults"
        if number:
            print_line("")
        print_line(f"{document['name']} ({document['topic_id']}): {configs}")
        print_rows(partitions_table([document], wide=wide, names_topics=False), wide=wide)


def partitions_table(documents: Sequence[dict[str, Any]], *, wide: bool, names_topics: bool) -> Rows:
    """What the documents say, in columns; the ends of logs only if `wide`."""
    columns = ["partition", "leader", "epoch", "replicas", "isr", "elr", "offline", "high watermark", "lag"]
    table = Rows([*(["topic"] if names_topics else []), *columns, *(["log ends"] if wide else [])])
    for document in documents:
        for partition in document["partitions"]:
            ends = log_ends_text(partition["leo"])
            table.add(
                *([document["name"]] if names_topics else []),
                *_cells(partition),
                *([ends] if wide else []),
            )
    return table


def _cells(partition: dict[str, Any]) -> list[Cell]:
    leader = partition["leader"]
    missing = set(partition["replicas"]) - set(partition["isr"])
    colour = "red" if leader < 0 else "yellow" if missing else "green"
    return [
        str(partition["partition"]),
        Text("none" if leader < 0 else str(leader), style=colour),
        str(partition["leader_epoch"]),
        ids_text(partition["replicas"]),
        Text(ids_text(partition["isr"]), style=colour),
        ids_text(partition["elr"]),
        ids_text(partition["offline"]),
        "?" if partition["hw"] < 0 else str(partition["hw"]),
        lag_text(partition["replicas"], partition["leo"], leader),
    ]
