"""Plays the stories under scripts/: one classic group, its clients, its log and its clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraft.coordinator.groups import group_metadata
from kraft.coordinator.groups.context import GroupSettings
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.classic_groups import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupResponse,
)
from tests.support.classic_groups import Answer, World, subscription
from tests.support.golden import check_script, scripts_beside

SETTINGS = {
    "initial-delay": "initial_rebalance_delay_ms",
    "max-size": "max_size",
    "max-record": "record_max_bytes",
}


class Story:
    """Clients go by their names and keep what they were told: member id, generation, instance id."""

    def __init__(self) -> None:
        self.world = World(GroupSettings())
        self.ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.instances: dict[str, str] = {}
        self.protocols: dict[str, dict[str, bytes]] = {}
        self.logged = 0

    def play(self, line: str) -> list[str]:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        arguments = [word for word in words if "=" not in word]
        lines = getattr(self, "do_" + command.replace("-", "_"))(arguments, options) or []
        written = [f"log: {self._record(data)}" for data in self.world.log[self.logged :]]
        self.logged = len(self.world.log)
        return [*written, *lines]

    def do_group(self, arguments: list[str], options: dict[str, str]) -> None:
        """group [initial-delay=MS] [max-size=N] [max-record=BYTES]: a group that nobody has joined yet."""
        self.__init__()  # type: ignore[misc]
        self.do_settings(arguments, options)

    def do_settings(self, arguments: list[str], options: dict[str, str]) -> None:
        """settings …: as the next coordinator has them."""
        changed: dict[str, Any] = {SETTINGS[name]: int(value) for name, value in options.items()}
        settings = replace(GroupSettings(), **changed)
        if self.logged:
            self.world.settings = settings
        else:
            self.world = World(settings)

    # Requests

    def do_join(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """join CLIENT [protocols=NAME:TOPIC+TOPIC,…] [instance=ID] [restarted] [id=ID] [type=] [session=] [rebalance=]
        [v=] [pad=BYTES]"""
        client = arguments[0]
        if "restarted" in arguments:
            self.ids.pop(client, None)
        if "instance" in options:
            self.instances[client] = options["instance"]
        if "protocols" in options or client not in self.protocols:
            listed = options.get("protocols", "range:t").split(",")
            offered = (one.partition(":")[::2] for one in listed if one)
            self.protocols[client] = {
                name: subscription(filter(None, topics.split("+"))) + bytes(int(options.get("pad", "0")))
                for name, topics in offered
            }
        answers = self.world.join(
            client,
            options.get("id", self.ids.get(client, "")),
            self.protocols[client],
            instance_id=self.instances.get(client),
            protocol_type=options.get("type", "consumer"),
            session_ms=int(options.get("session", "10000")),
            rebalance_ms=int(options.get("rebalance", "30000")),
            version=int(options.get("v", "9")),
            reason=options.get("reason"),
        )
        return self._tell(answers)

    def do_sync(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """sync CLIENT [CLIENT=PARTITIONS…] [generation=N] [id=ID] [protocol=NAME]: the leader gives the assignments;
        TEXT*N is as many"""
        client = arguments[0]
        member_id = options.pop("id", self.ids.get(client, ""))
        generation = int(options.pop("generation", self.generations.get(client, -1)))
        protocol = options.pop("protocol", None)
        repeated = {name: value.partition("*")[::2] for name, value in options.items()}
        assignments = {self.ids[name]: text.encode() * int(n or 1) for name, (text, n) in repeated.items()}
        answers = self.world.sync(
            client,
            member_id,
            generation,
            assignments,
            instance_id=self.instances.get(client),
            protocol_name=protocol,
        )
        return self._tell(answers)

    def do_heartbeat(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """heartbeat CLIENT… [generation=N] [id=ID]"""
        lines = []
        for client in arguments:
            generation = int(options.get("generation", self.generations.get(client, -1)))
            member_id = options.get("id", self.ids.get(client, ""))
            instance_id = self.instances.get(client)
            lines += self._tell(self.world.heartbeat(client, member_id, generation, instance_id))
        return lines

    def do_leave(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """leave CLIENT… [v=N] [id=ID]"""
        version = int(options.get("v", "5"))
        members = [
            MemberIdentity(options.get("id", self.ids.get(name, "")), self.instances.get(name), "closed")
            for name in arguments
        ]
        request = LeaveGroupRequest(members=members, member_id=members[0].member_id)
        return self._tell(self.world.leave(arguments[0], request, version))

    def do_remove(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """remove INSTANCE… [id=ID]: an administrator removes static members."""
        members = [MemberIdentity(options.get("id", ""), instance) for instance in arguments]
        return self._tell(self.world.leave("admin", LeaveGroupRequest(members=members)))

    def do_commit(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """commit CLIENT [generation=N] [id=ID] [transaction]; or commit simple: by somebody who is no member"""
        client, version = arguments[0], None if "transaction" in arguments else 9
        if client == "simple":
            return [f"simple: {self.world.group.check_commit('', -1, None, version).name}"]
        generation = int(options.get("generation", self.generations.get(client, -1)))
        member_id = options.get("id", self.ids.get(client, ""))
        error = self.world.group.check_commit(member_id, generation, self.instances.get(client), version)
        if error is ErrorCode.NONE and version is not None:
            self.world.group.on_commit(member_id, self.world.now)
        return [f"{client}: {error.name}"]

    # Time, crashes, deletion

    def do_tick(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        return self._tell(self.world.tick(int(arguments[0])))

    def do_leap(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        return self._tell(self.world.leap(int(arguments[0])))

    def do_suspend(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        return self._tell(self.world.suspend(int(arguments[0])))

    def do_crash(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """crash: another coordinator loads the log"""
        return [*self._tell(self.world.crash()), *self.do_show([], {})]

    def do_delete(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        return [self.world.delete().name]

    # What is told

    def do_show(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        group = self.world.group
        members = " ".join(
            f"{described.member_id}={described.member_assignment.decode() or '-'}"
            + (f"({described.group_instance_id})" if described.group_instance_id else "")
            for described in group.describe().members
        )
        return [f"{group.state}, generation {group.generation}, {members or 'no members'}"]

    def do_describe(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        told = self.world.group.describe()
        lines = [f"{told.group_id}: {told.group_state}, type '{told.protocol_type}', '{told.protocol_data}'"]
        for member in told.members:
            metadata = f"metadata {len(member.member_metadata)} bytes"
            assigned = member.member_assignment.decode() or "-"
            lines.append(
                f"  {member.member_id} {member.client_id} {member.client_host}: {metadata}, {assigned}"
            )
        return lines

    def do_reads(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        """reads TOPIC…: whether anybody in the group does"""
        return [f"{topic}: {self.world.group.is_subscribed_to(topic)}" for topic in arguments]

    def do_counters(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        counters, kind = self.world.counters, self.world.group.type
        return [f"{counters.rebalances[kind]} rebalances, {counters.rebalance_ms[kind]} ms"]

    def _tell(self, answers: list[Answer]) -> list[str]:
        return [f"{client}: {self._answer(client, response)}" for client, response in answers]

    def _answer(self, client: str, response: Any) -> str:
        error = ErrorCode(response.error_code)
        if isinstance(response, JoinGroupResponse):
            return self._join_answer(client, response, error)
        if isinstance(response, SyncGroupResponse):
            return f"sync {error.name}" if error else f"assigned {response.assignment.decode() or 'nothing'}"
        if isinstance(response, HeartbeatResponse):
            return f"heartbeat {error.name}"
        each = [
            f"{m.group_instance_id or m.member_id} {ErrorCode(m.error_code).name}" for m in response.members
        ]
        return f"leave {error.name}" + (f": {', '.join(each)}" if each else "")

    def _join_answer(self, client: str, response: JoinGroupResponse, error: ErrorCode) -> str:
        if response.member_id and error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.ids[client] = response.member_id
        if error is not ErrorCode.NONE:
            return f"join {error.name}" + (f" {response.member_id}" if response.member_id else "")
        self.generations[client] = response.generation_id
        members = " ".join(member.member_id for member in response.members)
        skips = ", skip the assignment" if response.skip_assignment else ""
        role = (
            f"leads {members}{skips}"
            if response.leader == response.member_id
            else f"follows {response.leader}"
        )
        return (
            f"{response.member_id} in generation {response.generation_id}, {response.protocol_name}, {role}"
        )

    @staticmethod
    def _record(data: bytes | None) -> str:
        if data is None:
            return "tombstone"
        value = group_metadata.VALUE.decode(data)
        members = " ".join(f"{m.member_id}={m.assignment.decode() or '-'}" for m in value.members)
        leader = "" if value.leader is None else f", leader {value.leader}"
        return (
            f"generation {value.generation}, type '{value.protocol_type}', {value.protocol}{leader}, "
            f"{members or 'no members'}"
        )


@pytest.mark.parametrize("path", scripts_beside(__file__), ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    check_script(path, Story().play)


def test_there_are_stories() -> None:
    assert len(scripts_beside(__file__)) >= 12
