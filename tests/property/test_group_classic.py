"""Classic groups under random clients: whatever they do, a generation is one, and the group becomes whole again.

Each client may at any time join, sync, heartbeat or leave, with what it was told or with something made up, as a new
version or an old one; time passes or leaps; coordinators crash. Afterwards all clients behave.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft.coordinator.groups import group_metadata
from kraft.coordinator.groups.classic import ClassicGroup, State
from kraft.coordinator.groups.context import GroupSettings
from kraft.coordinator.shard import Decisions
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.classic_groups import (
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupResponse,
)
from tests.support.classic_groups import GROUP_ID, Answer, World, is_join, is_sync, subscription
from tests.support.examples import examples

CLIENTS = ("a", "b", "c", "d")
GONE = "gone"
INSTANCES = {"c": "ic", "d": "id"}
OFFERS: tuple[dict[str, bytes], ...] = (
    {"range": subscription(["t"])},
    {"range": subscription(["t", "u"]), "sticky": subscription(["t"])},
    {"sticky": b"", "range": subscription(["t"])},
    {"other": b"?"},
    {},
)
REBALANCE_MS = 20_000
STEP_MS = 3_000
ROUNDS = 150
"""More than the five minutes for which a new member that is gone may be waited for."""


class Client:
    """What one client knows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.members: list[str] = []
        self.next = "join"
        """What a client that behaves sends next; nothing while it waits."""


class Clients:
    def __init__(self, group_settings: GroupSettings) -> None:
        self.world = World(group_settings)
        self.clients = {name: Client(name) for name in CLIENTS}
        self.coordinators = 0
        self.protocols: dict[tuple[int, int], str | None] = {}
        """The protocol that was told of a generation, with the coordinator that told it."""
        self.generation = 0

    def take(self, answers: list[Answer]) -> None:
        for answer in answers:
            if answer.client == GONE:
                continue
            client = self.clients[answer.client]
            if is_join(answer):
                self._take_join(client, answer.response)
            elif is_sync(answer):
                self._take_sync(client, answer.response)
            elif answer.response.error_code and client.next == "heartbeat":
                self._take_error(client, ErrorCode(answer.response.error_code))
        generation = self.world.group.generation
        assert generation >= self.generation, "a generation went back without a crash"
        self.generation = generation

    def _take_join(self, client: Client, response: JoinGroupResponse) -> None:
        error = ErrorCode(response.error_code)
        if error is not ErrorCode.NONE:
            self._take_error(client, error, response.member_id)
            return
        group, key = self.world.group, (self.coordinators, response.generation_id)
        told = self.protocols.setdefault(key, response.protocol_name)
        assert told == response.protocol_name, "a generation has two protocols"
        if response.members and response.generation_id == group.generation:
            assert response.member_id == group._leader, "a generation has two leaders"
            assert {member.member_id for member in response.members} == set(group._members)
        client.member_id, client.generation = response.member_id, response.generation_id
        client.members = [member.member_id for member in response.members]
        assert bool(client.members) == (response.leader == response.member_id)
        client.next = "sync"

    def _take_sync(self, client: Client, response: SyncGroupResponse) -> None:
        if response.error_code:
            self._take_error(client, ErrorCode(response.error_code))
            return
        record = self.world.last_record()
        assert record is not None, "an assignment was told that no record has"
        recorded = {member.member_id: member.assignment for member in record.members}
        assert recorded[client.member_id] == response.assignment
        client.next = "heartbeat"

    def _take_error(self, client: Client, error: ErrorCode, member_id: str = "") -> None:
        client.next = "join"
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = member_id
        elif error not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            client.member_id = ""

    # What clients do

    def join(self, name: str, member_id: str, offer: dict[str, bytes], version: int, session_ms: int) -> None:
        answers = self.world.join(
            name,
            member_id,
            offer,
            instance_id=INSTANCES.get(name),
            version=version,
            session_ms=session_ms,
            rebalance_ms=REBALANCE_MS,
        )
        self.take(answers)

    def sync(self, name: str, generation: int, *, forget: bool = False, size: int = 1) -> None:
        client = self.clients[name]
        listed = client.members[1:] if forget else client.members
        assignments = {member_id: f"{member_id}@{generation}".encode() * size for member_id in listed}
        self.take(
            self.world.sync(name, client.member_id, generation, assignments, instance_id=INSTANCES.get(name))
        )

    def leave(self, name: str, member_id: str, version: int) -> None:
        members = [MemberIdentity(member_id, INSTANCES.get(name))]
        request = LeaveGroupRequest(member_id=member_id, members=members)
        self.take(self.world.leave(name, request, version))

    def heartbeat(self, name: str, generation: int) -> None:
        member_id = self.clients[name].member_id
        self.take(self.world.heartbeat(name, member_id, generation, INSTANCES.get(name)))

    def crash(self) -> None:
        self.coordinators += 1
        self.generation = 0
        for client in self.clients.values():  # those that waited ask again
            client.next = client.next or "join"
        self.take(self.world.crash())

    def behave(self) -> None:
        """All clients begin anew, and do what the protocol asks of them until the group had the time to settle. Nobody
        hears what was asked before."""
        self.world.waiting = dict.fromkeys(self.world.waiting, GONE)
        for client in self.clients.values():
            client.next = "join"
        for _ in range(ROUNDS):
            for client in self.clients.values():
                step, client.next = client.next, ""
                if step == "join":
                    self.join(client.name, client.member_id, OFFERS[0], 9, 10_000)
                elif step == "sync":
                    self.sync(client.name, client.generation)
                elif step == "heartbeat":
                    client.next = "heartbeat"
                    self.heartbeat(client.name, client.generation)
            self.take(self.world.tick(STEP_MS))

    def check_whole(self) -> None:
        group = self.world.group
        described = {member.member_id: member.member_assignment for member in group.describe().members}
        assert group.state == State.STABLE
        assert sorted(described) == sorted(client.member_id for client in self.clients.values())
        expected = f"@{group.generation}"
        assert all(
            assignment == (member_id + expected).encode() for member_id, assignment in described.items()
        )
        assert not self.world.waiting

    def check_record(self) -> None:
        """A group that is whole is what its record says."""
        group, record = self.world.group, self.world.last_record()
        if record is None or group.state not in (State.STABLE, State.EMPTY):
            return
        loaded = ClassicGroup(GROUP_ID, self.world._context())
        loaded.replay(record)
        for one in (group, loaded):
            assert one.generation == record.generation
        if group.state == State.STABLE:
            assert loaded._leader == group._leader
            assert loaded.describe() == group.describe()
            again = Decisions()
            loaded._write_generation(again)
            assert group_metadata.VALUE.decode(again.written[0].record.value or b"") == record


NAMES = st.sampled_from(CLIENTS)
STEPS = st.one_of(
    st.tuples(
        st.just("join"),
        NAMES,
        st.sampled_from(["known", "known", "known", "fresh", "made up"]),
        st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4]),
        st.sampled_from([9, 9, 9, 8, 3, 0]),
        st.sampled_from([6_000, 10_000, 10_000, 5_000]),
    ),
    st.tuples(
        st.just("sync"), NAMES, st.sampled_from([0, 0, 0, 1]), st.booleans(), st.sampled_from([1, 1, 200])
    ),
    st.tuples(st.just("heartbeat"), NAMES, st.sampled_from([0, 0, 0, 1])),
    st.tuples(st.just("leave"), NAMES, st.booleans(), st.sampled_from([5, 3, 2])),
    st.tuples(
        st.sampled_from(["tick", "leap", "suspend"]), st.sampled_from([0, 500, 4_000, 20_000, 400_000])
    ),
    st.tuples(st.just("crash")),
)


def play(clients: Clients, step: tuple[Any, ...]) -> None:
    command, *rest = step
    if command == "join":
        name, which, offer, version, session_ms = rest
        member_id = {"known": clients.clients[name].member_id, "fresh": "", "made up": "x"}[which]
        clients.join(name, member_id, OFFERS[offer], version, session_ms)
    elif command == "sync":
        name, off_by, forget, size = rest
        clients.sync(name, clients.clients[name].generation + off_by, forget=forget, size=size)
    elif command == "heartbeat":
        name, off_by = rest
        clients.heartbeat(name, clients.clients[name].generation + off_by)
    elif command == "leave":
        name, is_known, version = rest
        clients.leave(name, clients.clients[name].member_id if is_known else "", version)
    elif command == "crash":
        clients.crash()
    else:
        clients.take(getattr(clients.world, command)(rest[0]))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(STEPS, max_size=40),
    initial_delay_ms=st.sampled_from([0, 3_000]),
    max_size=st.sampled_from([4, 5, 100]),
)
def test_a_generation_is_one_and_the_group_becomes_whole(
    steps: list[tuple[Any, ...]], initial_delay_ms: int, max_size: int
) -> None:
    clients = Clients(
        GroupSettings(initial_rebalance_delay_ms=initial_delay_ms, max_size=max_size, record_max_bytes=3_000)
    )
    for step in steps:
        play(clients, step)
        clients.check_record()
    clients.behave()
    clients.check_whole()
    clients.check_record()
