"""The record of a classic group in all of Kafka's versions, and what is read of consumers' metadata."""

from __future__ import annotations

import warnings
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.coordinator.groups import group_metadata
from kraft.coordinator.groups.classic import ClassicGroup
from kraft.coordinator.groups.context import GroupSettings
from kraft.coordinator.groups.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from kraft.coordinator.record_schema import type_of_key
from kraft.protocol.consumer_protocol import subscribed_topics
from kraft.protocol.errors import ErrorCode, ProtocolError
from kraft.protocol.schemas.classic_groups import JoinGroupRequest, JoinGroupRequestProtocol
from tests.support.classic_groups import GROUP_ID, World, check, subscription


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def data(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def number(value: int, size: int = 4) -> bytes:
    return value.to_bytes(size, "big", signed=True)


NULL = number(-1, 2)


def stored_group(version: int) -> bytes:
    """A group with one member, field by field as Kafka writes this version."""
    member = text("m-1") + (text("instance") if version >= 3 else b"") + text("client") + text("/10.0.0.1")
    member += (
        (number(60_000) if version >= 1 else b"") + number(10_000) + data(b"subscribed") + data(b"assigned")
    )
    since = number(1_234, 8) if version >= 2 else b""
    group = text("consumer") + number(7) + text("range") + text("m-1") + since
    return number(version, 2) + group + number(1) + member


def test_the_key_is_kafkas() -> None:
    key = group_metadata.KEY.encode(GroupMetadataKey("g1"))
    assert key == number(2, 2) + text("g1")
    assert type_of_key(key) == group_metadata.KEY_TYPE


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_versions_are_read(version: int) -> None:
    value = group_metadata.VALUE.decode(stored_group(version))
    assert value == GroupMetadataValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m-1",
        current_state_timestamp=1_234 if version >= 2 else -1,
        members=[
            MemberMetadata(
                member_id="m-1",
                group_instance_id="instance" if version >= 3 else None,
                client_id="client",
                client_host="/10.0.0.1",
                rebalance_timeout=60_000 if version >= 1 else -1,
                session_timeout=10_000,
                subscription=b"subscribed",
                assignment=b"assigned",
            )
        ],
    )


def test_version_3_is_written() -> None:
    assert group_metadata.VALUE.encode(group_metadata.VALUE.decode(stored_group(3))) == stored_group(3)


def test_the_flexible_version_is_read() -> None:
    empty = number(4, 2) + b"\x09consumer" + number(2) + b"\x00" + b"\x00" + number(5, 8) + b"\x01" + b"\x00"
    assert group_metadata.VALUE.decode(empty) == GroupMetadataValue("consumer", 2, None, None, 5, [])


def test_a_version_that_is_not_known_is_refused() -> None:
    with pytest.raises(ProtocolError, match="version 5"):
        group_metadata.VALUE.decode(number(5, 2))


def test_without_a_rebalance_timeout_the_session_timeout_stands_for_it() -> None:
    world = World(GroupSettings())
    value = group_metadata.VALUE.decode(stored_group(0))
    world.group.replay(value)
    (member,) = world.group._members.values()
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (10_000, 10_000)
    assert world.group.empty_since_ms is None


def test_an_empty_group_knows_since_when_it_is_empty_if_its_record_does() -> None:
    world = World(GroupSettings())
    for told, known in ((5_000, 5_000), (-1, None)):
        value = GroupMetadataValue("consumer", 2, None, None, told, [])
        world.group.replay(value)
        assert (world.group.is_empty, world.group.empty_since_ms) == (True, known)


def test_a_record_replaces_all_before() -> None:
    world = World(GroupSettings())
    first = group_metadata.VALUE.decode(stored_group(3))
    second = GroupMetadataValue(
        "consumer", 8, "sticky", "n-2", 5_000, [MemberMetadata("n-2", None, "c", "/h", 1, 2)]
    )
    world.group.replay(first)
    world.group.replay(second)
    check(world.group, set(), loaded=False)
    assert [member.member_id for member in world.group.describe().members] == ["n-2"]
    assert (world.group.generation, world.group._leader, world.group._static) == (8, "n-2", {})


def test_members_without_a_protocol_are_refused() -> None:
    world = World(GroupSettings())
    value = group_metadata.VALUE.decode(stored_group(3))
    value.protocol = None
    with pytest.raises(ProtocolError, match="no protocol"):
        world.group.replay(value)
    assert world.group.is_vacant


def test_a_group_of_offsets_only() -> None:
    world = World(GroupSettings())
    world.group = ClassicGroup.of_offsets(GROUP_ID, world._context())
    assert (world.group.state, world.group.protocol_type, world.group.is_empty) == ("Empty", "", True)
    assert world.group.check_commit("", -1, None, 9) is ErrorCode.NONE
    assert world.group.check_commit("a-1", 1, None, 9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.group.check_fetch("", -1) is ErrorCode.NONE
    assert world.group.is_subscribed_to("t") is False
    assert not world.group.is_vacant
    world.join("a", "", {"range": b""})
    assert world.log == []  # it is no new group
    assert world.delete() is ErrorCode.NONE
    assert world.log == [None]
    assert world.group.check_fetch("", -1) is ErrorCode.GROUP_ID_NOT_FOUND


def test_nobody_keeps_a_group_that_nobody_joined() -> None:
    world = World(GroupSettings())
    assert world.group.is_vacant
    world.join("a", "x", {"range": b""})
    assert world.group.is_vacant
    world.join("a", "", {"range": b""})
    assert not world.group.is_vacant


def test_a_client_id_does_not_make_a_member_id_too_long_to_be_told() -> None:
    world = World(GroupSettings())
    (answer,) = world.join("é" * 16_000, "", {"range": b""})
    assert len(answer.response.member_id.encode()) < 10_000


def test_member_ids_that_are_given_out_are_bounded() -> None:
    world = World(GroupSettings(record_max_bytes=2_000))
    errors = [world.join("a", "", {"range": b""})[0].response.error_code for _ in range(40)]
    assert set(errors) == {ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED}
    world.tick(10_000)
    assert world.join("a", "", {"range": b""})[0].response.error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_metadata_of_many_protocols_is_bounded() -> None:
    world = World(GroupSettings(record_max_bytes=10_000))
    many = {f"p{number}": bytes(2_000) for number in range(50)}
    assert world.join("a", "", many, version=3)[0].response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    few = dict(list(many.items())[:5])
    assert world.join("a", "", few, version=3) == []


def test_a_protocol_that_is_offered_twice_counts_once() -> None:
    world = World(GroupSettings())
    request = JoinGroupRequest(
        group_id=GROUP_ID,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"1"), JoinGroupRequestProtocol("range", b"2")],
    )
    world.call("a", world.group.join, request, 3)
    world.join("b", "", {"range": b"3"}, version=3)
    answers = world.tick(3_000 * 11)
    assert [answer.response.protocol_name for answer in answers[:2]] == ["range", "range"]


def test_of_version_0_the_session_timeout_is_the_rebalance_timeout() -> None:
    world = World(GroupSettings())
    world.join("a", "", {"range": b""}, version=0, session_ms=7_000, rebalance_ms=-1)
    (member,) = world.group._members.values()
    assert member.rebalance_timeout_ms == 7_000


@pytest.mark.parametrize("version", [0, 1, 2, 3, 99])
def test_topics_are_read_of_any_version(version: int) -> None:
    assert subscribed_topics(subscription(["t", "ü"], version=version)) == ["t", "ü"]


def test_what_a_client_tells_is_read() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of importlib.resources, at kafka's import
        theirs = import_module("kafka.protocol.consumer").ConsumerProtocolSubscription
    for version in range(4):
        told = theirs(topics=["t", "u"], user_data=b"sticky", owned_partitions=[], generation_id=3)
        assert subscribed_topics(told.encode(version=version)) == ["t", "u"]


@given(st.binary(max_size=40))
def test_what_is_no_subscription_is_none(metadata: bytes) -> None:
    found = subscribed_topics(metadata)
    assert found is None or metadata.startswith(subscription(found)[2:-4], 2)


def test_consumers_whose_metadata_cannot_be_read_may_read_anything() -> None:
    world = World(GroupSettings(initial_rebalance_delay_ms=0))
    world.join("a", "", {"range": b"?"}, version=3)
    world.tick(0)
    assert world.group.is_subscribed_to("t") is True
