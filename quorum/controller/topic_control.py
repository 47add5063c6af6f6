"""The creation and deletion of topics, and the addition of partitions.

Guarantees: a topic comes into being whole (its configs and all its partitions) or not at all. Every refusal is for one
topic, with Kafka's error and a sentence. Ids are random, never zero and never reused. `requests` calls it; the model is
Kafka's ReplicationControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from partitions.topic_partition import CLUSTER_METADATA_TOPIC, TOPIC_ID_BYTES, ZERO_TOPIC_ID
from quorum.controller.cluster_index import collision_key
from quorum.controller.configuration_control import new_topic_configs
from quorum.controller.decision import ClusterView, Decision, Unit, decided
from quorum.controller.mutation_budget import UNLIMITED, MutationBudget
from quorum.controller.placement import Randomness, UsableBroker, place
from quorum.controller.replica_assignment import assignment_problem
from quorum.controller.topic_names import topic_name_problem
from quorum.errors import ControllerError
from quorum.metadata.image import TopicImage
from quorum.metadata.records import Partition, RemoveTopic, Topic
from quorum.rpc.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResult,
    CreateTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MorePartitions,
    NewTopic,
    TopicToDelete,
)

MAX_PARTITIONS_PER_REQUEST = 10_000
_RESERVED_IDS = 256
"""Topic ids below this number (as an integer) are kept for the system; zero means "no id"."""


def create_topics(
    view: ClusterView, request: CreateTopicsRequest, rng: Randomness, budget: MutationBudget = UNLIMITED
) -> Decision:
    """Creates topics, each as one unit. Raises ControllerError POLICY_VIOLATION for far too many."""
    wanted = [
        len(topic.assignments)
        if topic.assignments
        else view.config.default_partitions
        if topic.partitions == -1
        else topic.partitions
        for topic in request.topics
    ]
    _check_total(wanted)
    named = Counter(topic.name for topic in request.topics)
    taken: dict[str, str] = {}
    topic_ids: set[bytes] = set()
    units: list[Unit] = []
    results = []
    for topic in request.topics:
        try:
            if named[topic.name] > 1:
                raise ControllerError("INVALID_REQUEST", f"Topic '{topic.name}' is named more than once.")
            _check_new_name(view, topic.name, taken)
            topic_id = _new_topic_id(view, topic_ids, rng)
            result, unit = _create(view, topic, topic_id, rng)
            budget.take(result.partitions)
        except ControllerError as error:
            results.append(CreateTopicResult(topic.name, error.code, error.message))
            continue
        taken[collision_key(topic.name)] = topic.name
        topic_ids.add(topic_id)
        results.append(result)
        units.append(unit)
    if request.validate_only:
        units = []
        results = [replace(result, topic_id=ZERO_TOPIC_ID) for result in results]
    return decided(CreateTopicsResponse(tuple(results), budget.throttle_time_ms), *units)


def _check_total(counts: Iterable[int]) -> None:
    total = sum(max(count, 0) for count in counts)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise ControllerError(
            "POLICY_VIOLATION",
            f"Excessively large number of partitions per request: {total}; send at most "
            f"{MAX_PARTITIONS_PER_REQUEST} at a time.",
        )


def _check_new_name(view: ClusterView, name: str, taken: dict[str, str]) -> None:
    problem = topic_name_problem(name)
    if problem is not None:
        raise ControllerError("INVALID_TOPIC_EXCEPTION", problem)
    if name == CLUSTER_METADATA_TOPIC:
        raise ControllerError("INVALID_REQUEST", f"Creation of internal topic {name} is prohibited.")
    if name in view.image.topic_ids:
        raise ControllerError("TOPIC_ALREADY_EXISTS", f"Topic '{name}' already exists.")
    colliding = view.index.colliding_name(name) or taken.get(collision_key(name))
    if collision_key(name) == CLUSTER_METADATA_TOPIC:
        colliding = CLUSTER_METADATA_TOPIC
    if colliding is not None:
        raise ControllerError(
            "INVALID_TOPIC_EXCEPTION",
            f"Topic '{name}' collides with existing topic: {colliding} ('.' and '_' count as the same character).",
        )


def _new_topic_id(view: ClusterView, others: set[bytes], rng: Randomness) -> bytes:
    while True:
        topic_id = rng.randbytes(TOPIC_ID_BYTES)
        if (
            int.from_bytes(topic_id, "big") >= _RESERVED_IDS
            and topic_id not in view.image.topics
            and topic_id not in others
        ):
            return topic_id


def _create(
    view: ClusterView, topic: NewTopic, topic_id: bytes, rng: Randomness
) -> tuple[CreateTopicResult, Unit]:
    configs, config_records = new_topic_configs(view, topic.name, topic.configs)
    replicas = _assigned(view, topic) if topic.assignments else _placed(view, topic, rng)
    unit = Unit(
        Topic(topic.name, topic_id),
        *config_records,
        *_new_partitions(view, topic_id, 0, replicas, manual=bool(topic.assignments)),
    )
    result = CreateTopicResult(
        topic.name,
        topic_id=topic_id,
        partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=tuple(configs.items()),
    )
    return result, unit


def _placed(view: ClusterView, topic: NewTopic, rng: Randomness) -> list[tuple[int, ...]]:
    if topic.replication_factor != -1 and topic.replication_factor < 1:
        raise ControllerError(
            "INVALID_REPLICATION_FACTOR",
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.partitions != -1 and topic.partitions < 1:
        raise ControllerError(
            "INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value."
        )
    partitions = view.config.default_partitions if topic.partitions == -1 else topic.partitions
    factor = (
        view.config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    )
    return place(_usable_brokers(view), partitions, factor, rng)


def _usable_brokers(view: ClusterView) -> list[UsableBroker]:
    return [
        UsableBroker(broker.broker_id, broker.rack, broker.fenced)
        for broker in view.image.brokers.values()
        if not broker.in_controlled_shutdown
    ]


def _assigned(view: ClusterView, topic: NewTopic) -> list[tuple[int, ...]]:
    """The replicas that the client chose, by partition number."""
    assert topic.assignments
    if topic.replication_factor != -1 or topic.partitions != -1:
        raise ControllerError(
            "INVALID_REQUEST",
            "A manual partition assignment was specified, but partitions or replication factor was not set to -1.",
        )
    chosen = {assignment.partition: assignment.broker_ids for assignment in topic.assignments}
    if len(chosen) != len(topic.assignments):
        raise ControllerError(
            "INVALID_REPLICA_ASSIGNMENT", "Found multiple manual partition assignments for one partition."
        )
    if sorted(chosen) != list(range(len(chosen))):
        raise ControllerError(
            "INVALID_REPLICA_ASSIGNMENT", "Partitions should be a consecutive 0-based integer sequence."
        )
    replicas = [chosen[number] for number in range(len(chosen))]
    _check_assignments(view, replicas, len(replicas[0]))
    return replicas


def _check_assignments(
    view: ClusterView, replicas: Sequence[tuple[int, ...]], replication_factor: int
) -> None:
    for broker_ids in replicas:
        problem = assignment_problem(view, broker_ids)
        if problem is None and len(broker_ids) != replication_factor:
            problem = (
                f"includes a partition with {len(broker_ids)} replica(s), but this is not consistent with previous "
                f"partitions, which have {replication_factor} replica(s)."
            )
        if problem is not None:
            raise ControllerError("INVALID_REPLICA_ASSIGNMENT", f"The manual partition assignment {problem}")


def _new_partitions(
    view: ClusterView, topic_id: bytes, first: int, replicas: Sequence[tuple[int, ...]], *, manual: bool
) -> list[Partition]:
    """Records of new partitions: the living replicas are in sync, and the first of them leads."""
    records = []
    for number, broker_ids in enumerate(replicas, first):
        isr = tuple(broker_id for broker_id in broker_ids if view.is_active(broker_id))
        if not isr:
            raise ControllerError(
                "INVALID_REPLICA_ASSIGNMENT" if manual else "INVALID_REPLICATION_FACTOR",
                f"All brokers chosen for partition {number} ({', '.join(map(str, broker_ids))}) are fenced or in "
                "controlled shutdown.",
            )
        records.append(
            Partition(topic_id, number, broker_ids, broker_ids if isr == broker_ids else isr, leader=isr[0])
        )
    return records


def delete_topics(
    view: ClusterView, request: DeleteTopicsRequest, budget: MutationBudget = UNLIMITED
) -> Decision:
    """Deletes topics by name or id, each as one unit; a topic that is named twice, by either, stays."""
    times_given = Counter(request.topics)
    ways = Counter(topic.topic_id for wanted in times_given if (topic := _topic_of(view, wanted)) is not None)
    units = []
    results = []
    for wanted, times in times_given.items():
        try:
            topic = _to_delete(view, wanted, times)
            if ways[topic.topic_id] > 1:
                raise ControllerError(
                    "INVALID_REQUEST", "The provided topic name maps to an ID that was already supplied."
                )
            budget.take(len(topic.partitions))
        except ControllerError as error:
            results.append(DeleteTopicResult(wanted.name, wanted.topic_id, error.code, error.message))
            continue
        units.append(Unit(RemoveTopic(topic.topic_id)))
        results.append(DeleteTopicResult(topic.name, topic.topic_id))
    return decided(DeleteTopicsResponse(tuple(results), budget.throttle_time_ms), *units)


def _topic_of(view: ClusterView, wanted: TopicToDelete) -> TopicImage | None:
    """The topic that one item names, by its name or by its id."""
    if wanted.topic_id is None:
        return None if wanted.name is None else view.image.topic(wanted.name)
    return view.image.topics.get(wanted.topic_id) if wanted.name is None else None


def _to_delete(view: ClusterView, wanted: TopicToDelete, times: int) -> TopicImage:
    """The topic of an item that occurs `times` times in the request. Raises ControllerError."""
    if wanted.topic_id is None:
        if wanted.name is None:
            raise ControllerError("INVALID_REQUEST", "Neither topic name nor id were specified.")
        if times > 1:
            raise ControllerError("INVALID_REQUEST", "Duplicate topic name.")
    elif wanted.name is not None:
        raise ControllerError("INVALID_REQUEST", "You may not specify both topic name and topic id.")
    elif times > 1:
        raise ControllerError("INVALID_REQUEST", "Duplicate topic id.")
    topic = _topic_of(view, wanted)
    if topic is not None:
        return topic
    if wanted.topic_id is None:
        raise ControllerError("UNKNOWN_TOPIC_OR_PARTITION", f"The topic '{wanted.name}' does not exist.")
    raise ControllerError("UNKNOWN_TOPIC_ID", f"There is no topic with id {wanted.topic_id.hex()}.")


def create_partitions(
    view: ClusterView, request: CreatePartitionsRequest, rng: Randomness, budget: MutationBudget = UNLIMITED
) -> Decision:
    """Raises topics' partition counts, each as one unit. Existing partitions are not touched."""
    named = Counter(topic.name for topic in request.topics)
    present = {
        name: 0 if topic is None else len(topic.partitions)
        for name, topic in ((name, view.image.topic(name)) for name in named)
    }
    _check_total(topic.count - present[topic.name] for topic in request.topics)
    units = []
    results = []
    for topic in request.topics:
        try:
            if named[topic.name] > 1:
                raise ControllerError("INVALID_REQUEST", f"Topic '{topic.name}' is named more than once.")
            unit = _add_partitions(view, topic, rng)
            budget.take(topic.count - present[topic.name])
        except ControllerError as error:
            results.append(CreatePartitionsResult(topic.name, error.code, error.message))
            continue
        if not request.validate_only:
            units.append(unit)
        results.append(CreatePartitionsResult(topic.name))
    return decided(CreatePartitionsResponse(tuple(results), budget.throttle_time_ms), *units)


def _add_partitions(view: ClusterView, wanted: MorePartitions, rng: Randomness) -> Unit:
    topic = view.image.topic(wanted.name)
    if topic is None:
        raise ControllerError("UNKNOWN_TOPIC_OR_PARTITION", f"The topic '{wanted.name}' does not exist.")
    present = len(topic.partitions)
    if wanted.count == present:
        raise ControllerError("INVALID_PARTITIONS", f"Topic already has {present} partition(s).")
    if wanted.count < present:
        raise ControllerError(
            "INVALID_PARTITIONS",
            f"The topic {wanted.name} currently has {present} partition(s); {wanted.count} would not be an increase.",
        )
    added = wanted.count - present
    factor = len(topic.partitions[0].replicas)
    replicas: Sequence[tuple[int, ...]]
    if wanted.assignments is None:
        replicas = place(_usable_brokers(view), added, factor, rng)
    elif len(wanted.assignments) != added:
        raise ControllerError(
            "INVALID_REPLICA_ASSIGNMENT",
            f"Attempted to add {added} additional partition(s), but {len(wanted.assignments)} assignment(s) "
            "were specified.",
        )
    else:
        _check_assignments(view, wanted.assignments, factor)
        replicas = wanted.assignments
    manual = wanted.assignments is not None
    return Unit(*_new_partitions(view, topic.topic_id, present, replicas, manual=manual))
