"""Plays the stories under scripts/: one group of KIP-848, what members say and are told, and what is recorded.

The members are scripted: one says what it has only where the script says so (`has=`), with the epoch that it was told
last unless the script gives another (`epoch=`). After every command the records, replayed, must give the same group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraft.coordinator.groups import consumer_records as records
from kraft.coordinator.groups.context import GroupType
from kraft.coordinator.groups.reconciliation import MemberState
from kraft.coordinator.shard import Decisions
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.support.consumer_group_world import GROUP_ID, GroupWorld, state_of
from tests.support.golden import check_script, scripts_beside

SETTINGS = {
    "max-size": "consumer_max_size",
    "record-max-bytes": "record_max_bytes",
    "session-timeout-ms": "consumer_session_timeout_ms",
}


class Story:
    """Every command gives the lines that it caused: records first, then answers."""

    def __init__(self) -> None:
        self.world = GroupWorld()
        self.epochs: dict[str, int] = {}
        self.seen = 0

    def play(self, line: str) -> list[str]:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        arguments = [word for word in words if "=" not in word]
        lines = list(getattr(self, "do_" + command.replace("-", "_"))(arguments, options) or [])
        written = [self._record(*records.decode(*record)) for record, _ in self.world.log[self.seen :]]
        self.seen = len(self.world.log)
        self._check_replay()
        return [*written, *lines]

    def _check_replay(self) -> None:
        assert state_of(self.world.replayed(compacted=False)) == state_of(self.world.group)

    # Topics, time, settings

    def do_topics(self, arguments: list[str], options: dict[str, str]) -> None:
        """topics NAME=PARTITIONS...: created, or grown."""
        for name, partitions in options.items():
            self.world.topics.put(name, int(partitions))
        self.world.change_topics(*options)

    def do_delete_topic(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.topics.delete(arguments[0])
        self.world.change_topics(arguments[0])

    def do_unseen_topics(self, arguments: list[str], options: dict[str, str]) -> None:
        """Topics change while no coordinator looks."""
        for name, partitions in options.items():
            self.world.topics.put(name, int(partitions))

    def do_hide(self, arguments: list[str], options: dict[str, str]) -> None:
        """hide MEMBER [TOPIC...]: ACLs let the member describe all topics but these. From the first on there is an
        authorizer."""
        member_id, *topics = arguments
        self.world.hide({member_id: frozenset(topics)})

    def do_tick(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.tick(int(arguments[0]))

    def do_suspend(self, arguments: list[str], options: dict[str, str]) -> None:
        """suspend MS: for so long the coordinator could hear nobody. What was due meanwhile is already under way."""
        self.world.now_ms += int(arguments[0])
        due = self.world.timers.pop_due(self.world.now_ms)
        decisions = Decisions()
        self.world.group.on_loaded(self.world.now, decisions)
        for action in due:
            action(self.world.now, decisions)
        self.world.keep(decisions)

    def do_set(self, arguments: list[str], options: dict[str, str]) -> None:
        known = {SETTINGS[name]: int(value) for name, value in options.items()}
        self.world.settings = replace(self.world.settings, **known)  # type: ignore[arg-type]
        self.world.group._context = self.world.context()

    def do_group_config(self, arguments: list[str], options: dict[str, str]) -> None:
        self.world.configs.update(options)

    def do_load(self, arguments: list[str], options: dict[str, str]) -> None:
        """The coordinator moves to another broker."""
        before = state_of(self.world.group)
        self.world.load()
        assert state_of(self.world.group) == before

    # Members

    def do_join(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """join MEMBER [TOPIC...] [regex=R] [instance=I] [assignor=A] [timeout=MS] [version=V]"""
        member_id, *topics = arguments
        self.epochs[member_id] = 0
        options.setdefault("timeout", "60000")
        return self._send(member_id, options, topics, [])

    def do_beat(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """beat MEMBER [TOPIC...] [has=P,...] [epoch=N]: has=none is an empty list."""
        member_id, *topics = arguments
        return self._send(member_id, options, topics or None, None)

    def do_leave(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        return self._send(arguments[0], {"epoch": "-1", **options}, None, None)

    def do_leave_for_a_while(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        return self._send(arguments[0], {"epoch": "-2", **options}, None, None)

    def do_remove(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """An operator removes a member by id, or by instance=I."""
        decisions = Decisions()
        who = (arguments[0] if arguments else "", options.get("instance"))
        (error,) = self.world.group.remove_members([who], self.world.now, decisions)
        self.world.keep(decisions)
        return [error.name]

    def do_delete_group(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        decisions = Decisions()
        error = self.world.group.delete(decisions)
        assert not decisions.replies
        self.world.keep(decisions)
        return [error.name]

    def _send(
        self, member_id: str, options: dict[str, str], topics: list[str] | None, owned: list[Any] | None
    ) -> list[str]:
        if "has" in options:
            owned = self.world.owned_topics(self._partitions(options["has"]))
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP_ID,
            member_id="" if member_id == "?" else member_id,
            member_epoch=int(options.get("epoch", self.epochs.get(member_id, 0))),
            instance_id=options.get("instance"),
            rack_id=options.get("rack"),
            rebalance_timeout_ms=int(options.get("timeout", "-1")),
            subscribed_topic_names=topics,
            subscribed_topic_regex=options.get("regex"),
            server_assignor=options.get("assignor"),
            topic_partitions=owned,
        )
        response = self.world.heartbeat(request, int(options.get("version", "1")))
        if response.error_code == ErrorCode.NONE and "lost" not in options:
            self.epochs[response.member_id or member_id] = response.member_epoch
        return ["(lost)"] if "lost" in options else [self._answer(member_id, response)]

    # What is seen

    def do_show(self, arguments: list[str], options: dict[str, str]) -> Iterable[str]:
        group = self.world.group
        described = group.describe()
        yield (
            f"{described.group_state} epoch={described.group_epoch} assignment={described.assignment_epoch} "
            f"assignor={described.assignor_name}"
        )
        for member in described.members:
            instance = f" ({member.instance_id})" if member.instance_id else ""
            state = group._members[member.member_id].current.state
            yield (
                f"  {member.member_id}{instance} at {member.member_epoch} {_title(state)}: "
                f"has {_named(member.assignment)}, target {_named(member.target_assignment)}"
            )

    def do_commit(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """commit MEMBER EPOCH [version=N] [transaction]: whether the offsets of such a commit are taken."""
        member_id = "" if arguments[0] == "nobody" else arguments[0]
        version = None if "transaction" in arguments else int(options.get("version", "9"))
        return [self.world.group.check_commit(member_id, int(arguments[1]), None, version).name]

    def do_fetch(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        member_id = None if arguments[0] == "nobody" else arguments[0]
        return [self.world.group.check_fetch(member_id, int(arguments[1])).name]

    def do_reads(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        return [f"{topic}: {self.world.group.is_subscribed_to(topic)}" for topic in arguments]

    def do_rebalances(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        counters = self.world.counters
        return [
            f"{counters.rebalances[GroupType.CONSUMER]} in {counters.rebalance_ms[GroupType.CONSUMER]} ms"
        ]

    def do_empty_since(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        since_ms = self.world.group.empty_since_ms
        return ["not empty" if since_ms is None else f"{self.world.now.wall_ms - since_ms} ms"]

    def _partitions(self, text: str) -> Iterable[tuple[bytes, int]]:
        """orders-0,orders-2 or none"""
        for name in text.split(",") if text != "none" else []:
            topic, _, partition = name.rpartition("-")
            found = self.world.topics.named(topic)
            assert found is not None, f"no topic {topic}"
            yield found.topic_id, int(partition)

    def _answer(self, member_id: str, response: ConsumerGroupHeartbeatResponse) -> str:
        if response.error_code:
            return f"{member_id}: {ErrorCode(response.error_code).name}: {response.error_message}"
        told = (
            ""
            if response.assignment is None
            else f" has {self._assignment(response.assignment.topic_partitions)}"
        )
        interval = f" every {response.heartbeat_interval_ms} ms" if self.world.configs else ""
        return f"{response.member_id}: epoch {response.member_epoch}{told}{interval}"

    def _assignment(self, topics: Iterable[Any]) -> str:
        parts = []
        for topic in topics:
            found = self.world.topics.with_id(topic.topic_id)
            name = f"deleted#{topic.topic_id[-1]}" if found is None else found.name
            parts.append(f"{name}-{','.join(map(str, topic.partitions))}")
        return " ".join(parts) or "nothing"

    def _record(self, key: Message, value: Message | None) -> str:
        name = type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
        about = " ".join(str(getattr(key, field)) for field in key.NAMES if field != "group_id")
        return f"  {f'{name} {about}'.strip()}: {'deleted' if value is None else self._value(value)}"

    def _value(self, value: Message) -> str:
        match value:
            case records.ConsumerGroupMetadataValue():
                return f"epoch {value.epoch}"
            case records.ConsumerGroupTargetAssignmentMetadataValue():
                return f"epoch {value.assignment_epoch}"
            case records.ConsumerGroupTargetAssignmentMemberValue():
                return self._assignment(value.topic_partitions)
            case records.ConsumerGroupCurrentMemberAssignmentValue():
                revoked = self._assignment(value.partitions_pending_revocation)
                return (
                    f"epoch {value.member_epoch} after {value.previous_member_epoch} {_title(value.state)} "
                    f"{self._assignment(value.assigned_partitions)}"
                    + (f", gives up {revoked}" if value.partitions_pending_revocation else "")
                )
            case records.ConsumerGroupMemberMetadataValue():
                facts = {
                    "instance": value.instance_id,
                    "rack": value.rack_id,
                    "topics": ",".join(value.subscribed_topic_names),
                    "regex": value.subscribed_topic_regex,
                    "timeout": value.rebalance_timeout_ms,
                    "assignor": value.server_assignor,
                }
                return " ".join(f"{name}={fact}" for name, fact in facts.items() if fact)
            case records.ConsumerGroupRegularExpressionValue():
                return " ".join(value.topics) or "no topic"
        raise AssertionError(f"{value} is not told")


def _title(state: int) -> str:
    return MemberState(state).name.title().replace("_", "")


def _named(assignment: Any) -> str:
    parts = [
        f"{topic.topic_name}-{','.join(map(str, topic.partitions))}" for topic in assignment.topic_partitions
    ]
    return " ".join(parts) or "nothing"


@pytest.mark.parametrize("path", scripts_beside(__file__), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    check_script(path, Story().play)
