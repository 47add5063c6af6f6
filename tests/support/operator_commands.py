"""What operators ask of a controller, as commands of the golden scripts: elections, reassignments,
configs, features, unregistration; and how the answers are shown."""

from __future__ import annotations

from quorum.rpc import messages as m
from tests.support.controller_world import World

_UPGRADE_TYPES = {"upgrade": m.UPGRADE, "safe": m.SAFE_DOWNGRADE, "unsafe": m.UNSAFE_DOWNGRADE, "other": 9}


def ids(broker_ids: tuple[int, ...]) -> str:
    return ",".join(map(str, broker_ids))


def parse_ids(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


def partition_name(text: str) -> tuple[str, int]:
    """The topic and number in "orders-0"."""
    name, _, number = text.rpartition("-")
    return name, int(number)


def show_operator_answer(answer: object) -> list[str] | None:
    """The lines of an answer to one of these commands; None for another one."""
    match answer:
        case m.ElectLeadersResponse() | m.AlterPartitionReassignmentsResponse():
            return [
                _outcome(f"{item.topic}-{item.partition}", item.error, item.message)
                for item in answer.partitions
            ] or ["nothing"]
        case m.ListPartitionReassignmentsResponse():
            return [
                f"{item.topic}-{item.partition}: replicas={ids(item.replicas)} adding={ids(item.adding_replicas)} "
                f"removing={ids(item.removing_replicas)}"
                for item in answer.partitions
            ] or ["nothing"]
        case m.UpdateFeaturesResponse():
            return [_outcome(item.name, item.error, item.message) for item in answer.features]
        case m.UnregisterBrokerResponse():
            return ["ok: unregistered"]
        case m.AlterConfigsResponse():
            return [
                _outcome(item.resource_name or _NAMELESS[item.resource_type], item.error, item.message)
                for item in answer.resources
            ]
        case _:
            return None


def _outcome(subject: str, error: str, message: str | None) -> str:
    return f"{subject}: ok" if error == m.NO_ERROR else f"{subject}: {error}: {message}"


class OperatorCommands:
    """A mixin: each `do_` method is a command; arguments are bare words, options `key=value`."""

    world: World

    def do_reassign(self, arguments: list[str], options: dict[str, str]) -> None:
        """reassign NAME-P=4,5 NAME-P=cancel … [same-factor]."""
        topics = []
        for partition, target in options.items():
            name, number = partition_name(partition)
            replicas = None if target == "cancel" else parse_ids(target)
            topics.append(m.TopicReassignments(name, (m.PartitionReassignment(number, replicas),)))
        self.world.send(m.AlterPartitionReassignmentsRequest(tuple(topics), "same-factor" not in arguments))

    def do_reassignments(self, arguments: list[str], options: dict[str, str]) -> None:
        """reassignments [NAME-P …]: what is under way."""
        wanted = [partition_name(argument) for argument in arguments]
        topics = tuple(m.TopicPartitions(name, (number,)) for name, number in wanted)
        self.world.send(m.ListPartitionReassignmentsRequest(topics or None))

    def do_elect(self, arguments: list[str], options: dict[str, str]) -> None:
        """elect preferred|unclean|TYPE [NAME-P …]: those partitions, or all."""
        kind, *names = arguments
        known = {"preferred": m.PREFERRED_ELECTION, "unclean": m.UNCLEAN_ELECTION}
        partitions = tuple(partition_name(name) for name in names)
        self.world.send(
            m.ElectLeadersRequest(known[kind] if kind in known else int(kind), partitions or None)
        )

    def do_unregister(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.send(m.UnregisterBrokerRequest(int(arguments[0])))

    def do_features(self, arguments: list[str], options: dict[str, str]) -> None:
        """features NAME=LEVEL[:upgrade|safe|unsafe] … [validate-only] [twice]."""
        updates = []
        for name, wish in options.items():
            level, _, kind = wish.partition(":")
            updates.append(m.FeatureUpdate(name, int(level), _UPGRADE_TYPES[kind or "upgrade"]))
        if "twice" in arguments:
            updates *= 2
        self.world.send(m.UpdateFeaturesRequest(tuple(updates), "validate-only" in arguments))

    def do_feature(self, arguments: list[str], options: dict[str, str]) -> None:
        """feature NAME=LEVEL: up, or down whatever it costs."""
        ((name, level),) = options.items()
        kind = m.UPGRADE if int(level) else m.UNSAFE_DOWNGRADE
        self.world.send(m.UpdateFeaturesRequest((m.FeatureUpdate(name, int(level), kind),)))

    def do_configure(self, arguments: list[str], options: dict[str, str]) -> None:
        """configure TOPIC key=value key= +key=more -key=less key=null … [whole] [twice] [validate-only]."""
        self._configure("topic", arguments[0], arguments[1:], options)

    def do_configure_broker(self, arguments: list[str], options: dict[str, str]) -> None:
        """configure-broker ID|all key=value …, as `configure`."""
        name = "" if arguments[0] == "all" else arguments[0]
        self._configure("broker", name, arguments[1:], options)

    def do_configure_group(self, arguments: list[str], options: dict[str, str]) -> None:
        """configure-group GROUP|nobody key=value …, as `configure`."""
        name = "" if arguments[0] == "nobody" else arguments[0]
        self._configure("group", name, arguments[1:], options)

    def _configure(self, kind: str, name: str, flags: list[str], options: dict[str, str]) -> None:
        changes = tuple(_change(key, value) for key, value in options.items())
        if "twice" in flags:
            changes *= 2
        resource = m.ConfigResourceChange(kind, name, changes, replace_all="whole" in flags)
        self.world.send(m.AlterConfigsRequest((resource,), "validate-only" in flags))


_NAMELESS = {"topic": "no topic", "broker": "all brokers", "group": "no group"}


def _change(key: str, value: str) -> m.ConfigChange:
    if value == "null":
        return m.ConfigChange(key, None)
    if key.startswith("+"):
        return m.ConfigChange(key[1:], value, m.APPEND)
    if key.startswith("-"):
        return m.ConfigChange(key[1:], value, m.SUBTRACT)
    return m.ConfigChange(key, value) if value else m.ConfigChange(key, None, m.DELETE)
